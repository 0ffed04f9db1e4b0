//! What there is in a store.

use std::collections::BTreeSet;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use reqwest::Method;

use super::put::GoOn;
use super::request::Wish;
use super::send::{Answer, Call, inside, lie, send};
use super::transfer::Failure;
use super::{Live, Remote, check_name, xml};
use crate::error::StorageError;
use crate::fault::RemoteFault;

/// Most bytes of a page: 1,000 keys of 1,024 bytes, each byte of which may take six, and what goes with them.
const PAGE: usize = 16 << 20;

/// Most pages in a row with nothing on them.
const EMPTY_PAGES: u32 = 1000;

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemoteObject {
    /// Its name beneath the location. It comes from the store as it is, and is not checked.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What a store knows about an object.
#[derive(Debug)]
pub(super) struct Stat {
    pub(super) bytes: u64,
    pub(super) etag: Option<String>,
    pub(super) sum: Option<String>,
}

/// Asks for an object without its contents.
pub(super) async fn stat(live: &Live, key: &str) -> Result<Option<Stat>, RemoteFault> {
    let call = Call {
        wish: Wish {
            method: &Method::HEAD,
            key,
            query: &[],
            headers: &[("x-amz-checksum-mode", "ENABLED")],
            payload: None,
        },
        accepts: &[200, 404],
        most: 0,
    };
    send(live, &call, &Arc::default(), |answer| {
        if answer.status == 404 {
            return Ok(None);
        }
        if answer.etag.is_none() {
            return Err(lie("it has no ETag"));
        }
        Ok(Some(Stat {
            bytes: answer.length.ok_or(Failure::Lie(RemoteFault::NoLength))?,
            etag: answer.etag,
            sum: answer.sum,
        }))
    })
    .await
}

/// One page of a listing.
#[derive(Debug, Default)]
struct Page {
    objects: Vec<(String, u64)>,
    next: Option<String>,
}

impl Page {
    fn read(answer: &Answer) -> Result<Self, Failure> {
        let text = std::str::from_utf8(&answer.body).map_err(|_| lie("it is not UTF-8"))?;
        let (mut page, mut truncated, mut root) = (Self::default(), false, "");
        let (mut key, mut bytes) = (None, None);
        xml::read(text, |path, inside| {
            match path {
                ["ListBucketResult", "Contents", "Key"] => key = Some(inside.to_owned()),
                ["ListBucketResult", "Contents", "Size"] => {
                    let size = inside.trim().parse::<u64>();
                    bytes = Some(size.map_err(|_| "a size that is no number")?);
                }
                ["ListBucketResult", "Contents"] => match (key.take(), bytes.take()) {
                    (Some(key), Some(bytes)) => page.objects.push((key, bytes)),
                    _ => return Err("an object without a key or a size"),
                },
                ["ListBucketResult", "IsTruncated"] => truncated = inside.trim() == "true",
                ["ListBucketResult", "NextContinuationToken"] => {
                    page.next = Some(inside.to_owned());
                }
                [only] => root = only,
                _ => {}
            }
            Ok(())
        })
        .map_err(lie)?;
        match root {
            "ListBucketResult" => {}
            "Error" => return Err(inside(answer.status, answer.code())),
            _ => return Err(lie("it is no listing")),
        }
        if truncated && page.next.is_none() {
            return Err(lie("a listing goes on and does not say where"));
        }
        page.next = page.next.filter(|_| truncated);
        Ok(page)
    }
}

async fn page(
    live: &Live,
    prefix: &str,
    token: Option<&str>,
    most: &str,
) -> Result<Page, RemoteFault> {
    let mut query = vec![("list-type", "2"), ("prefix", prefix), ("max-keys", most)];
    if let Some(token) = token {
        query.push(("continuation-token", token));
    }
    let call = Call {
        wish: Wish {
            method: &Method::GET,
            key: "",
            query: &query,
            headers: &[],
            payload: None,
        },
        accepts: &[200],
        most: PAGE,
    };
    send(live, &call, &Arc::default(), |answer| Page::read(&answer)).await
}

async fn list(live: &Live, prefix: &str, most: u64) -> Result<Vec<RemoteObject>, RemoteFault> {
    // The names are those behind it.
    let root = match live.location.prefix() {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    };
    let wanted = format!("{root}{prefix}");
    let mut objects: Vec<RemoteObject> = Vec::new();
    let mut token: Option<String> = None;
    let mut tokens = BTreeSet::new();
    let mut empty = 0;
    loop {
        let page = page(live, &wanted, token.as_deref(), "1000").await?;
        empty = if page.objects.is_empty() {
            empty + 1
        } else {
            0
        };
        for (key, bytes) in page.objects {
            let name = key.strip_prefix(&root).filter(|_| key.starts_with(&wanted));
            let Some(name) = name else {
                return Err(RemoteFault::Answer {
                    what: "a key that was not asked for",
                });
            };
            if objects.len() as u64 >= most {
                return Err(RemoteFault::TooMany { most });
            }
            let held = (objects.len() * size_of::<RemoteObject>()) as u64;
            let room = objects.try_reserve(1);
            room.map_err(|_| RemoteFault::OutOfMemory { bytes: held })?;
            objects.push(RemoteObject {
                name: name.to_owned(),
                bytes,
            });
        }
        let Some(next) = page.next else {
            return Ok(objects);
        };
        if !tokens.insert(live.hasher.hash_one(&next)) || empty > EMPTY_PAGES {
            return Err(RemoteFault::Answer {
                what: "a listing that has no end",
            });
        }
        token = Some(next);
    }
}

impl Remote {
    /// Most objects of a listing that anybody should want (reliability rule L10).
    pub const LIST_MOST: u64 = 50_000_000;

    /// The bytes of an object, `None` where there is none. Costs one `HEAD`.
    ///
    /// Where the bucket is missing there is no object either.
    ///
    /// # Errors
    ///
    /// [`StorageError::Remote`]: see [`RemoteFault`]. [`StorageError::Name`].
    pub fn size(&self, name: &str, go_on: &mut GoOn<'_>) -> Result<Option<u64>, StorageError> {
        check_name(name)?;
        let key = self.shared.location.key(name);
        let found = self.wait_while(name, go_on, &AtomicU64::new(0), |live| async move {
            stat(&live, &key).await
        })?;
        Ok(found.map(|stat| stat.bytes))
    }

    /// Whether there is an object.
    ///
    /// # Errors
    ///
    /// As [`Remote::size`].
    pub fn exists(&self, name: &str, go_on: &mut GoOn<'_>) -> Result<bool, StorageError> {
        Ok(self.size(name, go_on)?.is_some())
    }

    /// The objects whose names begin with `prefix`, a text that need not end at a `/`, in the order of the store.
    ///
    /// # Errors
    ///
    /// [`StorageError::Remote`]: see [`RemoteFault`]; `limit-list` where there are more than `most`.
    pub fn list(
        &self,
        prefix: &str,
        most: u64,
        go_on: &mut GoOn<'_>,
    ) -> Result<Vec<RemoteObject>, StorageError> {
        let owned = prefix.to_owned();
        self.wait_while(prefix, go_on, &AtomicU64::new(0), move |live| async move {
            list(&live, &owned, most).await
        })
    }

    /// Asks for one object of the bucket, to see whether the bucket is there and may be listed.
    ///
    /// # Errors
    ///
    /// [`StorageError::Remote`]: see [`RemoteFault`].
    pub fn check_bucket(&self, go_on: &mut GoOn<'_>) -> Result<(), StorageError> {
        self.wait_while("", go_on, &AtomicU64::new(0), |live| async move {
            page(&live, live.location.prefix(), None, "1").await
        })?;
        Ok(())
    }
}
