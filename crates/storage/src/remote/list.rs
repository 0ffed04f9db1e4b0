//! What there is in a store.

use std::collections::BTreeSet;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::put::GoOn;
use super::send::send;
use super::store_provider::{Listed, Page, Paging, Stat};
use super::{Live, Remote, bare, check_name};
use crate::error::StorageError;
use crate::fault::RemoteFault;
use crate::place::{FileVersion, PlaceEntry};

/// Most pages in a row with nothing on them.
const EMPTY_PAGES: u32 = 1000;

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemoteObject {
    /// Its name beneath the location. It comes from the store as it is, and is not checked.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// What changes when the object does (an `ETag` without its quotes, a time); empty where the store says nothing of the
    /// kind.
    pub tag: String,
    /// When it was last changed, in milliseconds since 1970, where a listing says.
    pub modified_ms: Option<i64>,
}

impl RemoteObject {
    /// Whether it stands for a folder, as some tools put objects for: its name ends with a slash.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        self.name.ends_with('/')
    }
}

/// Asks for an object without its contents.
pub(super) async fn stat(live: &Live, key: &str) -> Result<Option<Stat>, RemoteFault> {
    let store_provider = live.signer.store_provider();
    send(
        live,
        &store_provider.stat(key),
        None,
        &Arc::default(),
        |answer| store_provider.stat_answer(answer),
    )
    .await
}

/// Asks for a page.
pub(super) async fn page(live: &Live, paging: Paging<'_>) -> Result<Page, RemoteFault> {
    let store_provider = live.signer.store_provider();
    if !store_provider.can_list() {
        return Err(RemoteFault::Unsupported {
            action: "list objects",
            store: store_provider.kind(),
        });
    }
    let ask = store_provider.page(paging);
    send(live, &ask, None, &Arc::default(), |answer| {
        store_provider.page_answer(&answer, &live.signer.access)
    })
    .await
}

/// The pages of a listing, one after the other.
struct Pages<'a> {
    live: &'a Live,
    prefix: &'a str,
    folded: bool,
    token: Option<String>,
    /// What led to the pages so far, to notice a listing that goes in a circle.
    seen: BTreeSet<u64>,
    /// Pages in a row with nothing on them.
    empty: u32,
    is_over: bool,
}

impl<'a> Pages<'a> {
    fn new(live: &'a Live, prefix: &'a str, folded: bool) -> Self {
        Self {
            live,
            prefix,
            folded,
            token: None,
            seen: BTreeSet::new(),
            empty: 0,
            is_over: false,
        }
    }

    /// The next page, `None` behind the last one.
    async fn next(&mut self) -> Result<Option<Page>, RemoteFault> {
        if self.is_over {
            return Ok(None);
        }
        let paging = Paging {
            prefix: self.prefix,
            folded: self.folded,
            after: None,
            token: self.token.as_deref(),
            most: 1000,
        };
        let page = page(self.live, paging).await?;
        let is_empty = page.objects.is_empty() && page.prefixes.is_empty();
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        if let Some(next) = &page.next {
            let is_new = self.seen.insert(self.live.hasher.hash_one(next));
            if !is_new || self.empty > EMPTY_PAGES {
                return Err(RemoteFault::Answer {
                    what: "a listing that has no end",
                });
            }
        }
        self.token.clone_from(&page.next);
        self.is_over = page.next.is_none();
        Ok(Some(page))
    }
}

/// The prefixes that all keys beneath a location and beneath a name there begin with.
pub(super) fn roots(live: &Live, prefix: &str) -> (String, String) {
    // The names are those behind it.
    let root = match live.location.prefix() {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    };
    let wanted = format!("{root}{prefix}");
    (root, wanted)
}

async fn list(live: &Live, prefix: &str, most: u64) -> Result<Vec<RemoteObject>, RemoteFault> {
    let (root, wanted) = roots(live, prefix);
    let mut objects: Vec<RemoteObject> = Vec::new();
    let has_folders = live.signer.store_provider().has_folders();
    // Where a listing has one folder only, there is one for each folder.
    let mut folders = vec![match (has_folders, wanted.rsplit_once('/')) {
        (false, _) => wanted.clone(),
        (true, Some((folder, _))) => format!("{folder}/"),
        (true, None) => String::new(),
    }];
    let mut seen = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        let mut pages = Pages::new(live, &folder, false);
        while let Some(page) = pages.next().await? {
            for listed in page.objects {
                let key = listed.key;
                if has_folders && !key.starts_with(&wanted) {
                    continue;
                }
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
                    bytes: listed.bytes,
                    tag: bare(&listed.tag).to_owned(),
                    modified_ms: listed.modified_ms,
                });
            }
            for prefix in page.prefixes {
                let leads = prefix.starts_with(&wanted) || wanted.starts_with(&prefix);
                if leads && prefix.len() > folder.len() && seen.insert(prefix.clone()) {
                    folders.push(prefix);
                }
            }
        }
    }
    if has_folders {
        objects.sort_unstable();
    }
    Ok(objects)
}

/// One folder, page by page.
async fn entries(live: &Live, folder: &str) -> Result<Vec<PlaceEntry>, RemoteFault> {
    let mut prefix = live.location.key(folder);
    if !prefix.is_empty() {
        prefix.push('/');
    }
    let mut found = BTreeSet::new();
    let mut pages = Pages::new(live, &prefix, true);
    while let Some(page) = pages.next().await? {
        let objects = page.objects.into_iter().map(|listed| listed.key);
        for key in objects.chain(page.prefixes) {
            let Some(name) = key.strip_prefix(&prefix) else {
                return Err(RemoteFault::Answer {
                    what: "a key that was not asked for",
                });
            };
            // A store that does not fold gives what is deeper as well.
            let (name, is_folder) = match name.split_once('/') {
                Some((name, _)) => (name, true),
                None => (name, false),
            };
            if !name.is_empty() {
                found.insert(PlaceEntry {
                    name: name.to_owned(),
                    is_folder,
                });
            }
            if found.len() as u64 > Remote::LIST_MOST {
                return Err(RemoteFault::TooMany {
                    most: Remote::LIST_MOST,
                });
            }
        }
    }
    Ok(found.into_iter().collect())
}

impl Remote {
    /// Most objects of a listing that anybody should want (reliability rule L10).
    pub const LIST_MOST: u64 = 50_000_000;

    fn stat(&self, name: &str, go_on: &mut GoOn<'_>) -> Result<Option<Stat>, StorageError> {
        check_name(name)?;
        let key = self.shared.location.key(name);
        self.wait_while(name, go_on, &AtomicU64::new(0), |live| async move {
            stat(&live, &key).await
        })
    }

    /// The bytes of an object, `None` where there is none. Costs one `HEAD`.
    ///
    /// Where the bucket is missing there is no object either.
    ///
    /// # Errors
    ///
    /// [`StorageError::Remote`]: see [`RemoteFault`]. [`StorageError::Name`].
    pub fn size(&self, name: &str, go_on: &mut GoOn<'_>) -> Result<Option<u64>, StorageError> {
        let found = self.stat(name, go_on)?;
        Ok(found.map(|stat| stat.bytes))
    }

    /// The length and the tag of an object, `None` where there is none. Costs one `HEAD`.
    pub(crate) fn file_version(
        &self,
        name: &str,
        go_on: &mut GoOn<'_>,
    ) -> Result<Option<FileVersion>, StorageError> {
        let found = self.stat(name, go_on)?;
        Ok(found.map(|stat| FileVersion {
            bytes: stat.bytes,
            etag: stat.etag,
        }))
    }

    /// Reads an object of at most `most` bytes as it is now, whichever version was read before.
    pub(crate) fn read_anew(
        &self,
        name: &str,
        most: u64,
        go_on: &mut GoOn<'_>,
    ) -> Result<Vec<u8>, StorageError> {
        check_name(name)?;
        let key = self.shared.location.key(name);
        self.wait_while(name, go_on, &AtomicU64::new(0), |live| async move {
            live.unpin(&key);
            live.get_key(&key, None, None, most).await
        })
    }

    /// What is in a folder, `""` being the location itself, sorted by the bytes of its names: objects, and folders that
    /// objects are beneath. Names that begin with a slash or are markers of folders are left out.
    ///
    /// # Errors
    ///
    /// As [`Remote::list`].
    pub fn entries(
        &self,
        folder: &str,
        go_on: &mut GoOn<'_>,
    ) -> Result<Vec<PlaceEntry>, StorageError> {
        if !folder.is_empty() {
            check_name(folder)?;
        }
        let folder = folder.to_owned();
        self.wait_while(
            &folder.clone(),
            go_on,
            &AtomicU64::new(0),
            |live| async move { entries(&live, &folder).await },
        )
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
            let paging = Paging {
                prefix: live.location.prefix(),
                folded: false,
                after: None,
                token: None,
                most: 1,
            };
            page(&live, paging).await
        })?;
        Ok(())
    }

    /// Some of the objects whose names begin with `prefix`: those of the first page, of `most` objects and 1,000 at most.
    /// Where a listing has one folder only, its folders are there too, as markers without bytes.
    ///
    /// # Errors
    ///
    /// [`StorageError::Remote`]: see [`RemoteFault`].
    pub fn peek(
        &self,
        prefix: &str,
        most: u32,
        go_on: &mut GoOn<'_>,
    ) -> Result<Vec<RemoteObject>, StorageError> {
        let owned = prefix.to_owned();
        self.wait_while(prefix, go_on, &AtomicU64::new(0), move |live| async move {
            let (root, wanted) = roots(&live, &owned);
            let has_folders = live.signer.store_provider().has_folders();
            let asked = match (has_folders, wanted.rsplit_once('/')) {
                (false, _) => wanted.clone(),
                (true, Some((folder, _))) => format!("{folder}/"),
                (true, None) => String::new(),
            };
            let paging = Paging {
                prefix: &asked,
                folded: false,
                after: None,
                token: None,
                most: most.clamp(1, 1000),
            };
            let page = page(&live, paging).await?;
            let folders = page.prefixes.into_iter().map(|key| Listed {
                key,
                bytes: 0,
                tag: String::new(),
                modified_ms: None,
            });
            let all = page.objects.into_iter().chain(folders);
            let objects = all.filter(|listed| listed.key.starts_with(&wanted));
            let objects = objects.filter_map(|listed| {
                Some(RemoteObject {
                    name: listed.key.strip_prefix(&root)?.to_owned(),
                    bytes: listed.bytes,
                    tag: bare(&listed.tag).to_owned(),
                    modified_ms: listed.modified_ms,
                })
            });
            Ok(objects.collect())
        })
    }

    /// An object without its contents, `None` where there is none. Costs one `HEAD`.
    ///
    /// # Errors
    ///
    /// As [`Remote::size`].
    pub fn look_up(
        &self,
        name: &str,
        go_on: &mut GoOn<'_>,
    ) -> Result<Option<RemoteObject>, StorageError> {
        let found = self.stat(name, go_on)?;
        Ok(found.map(|stat| RemoteObject {
            name: name.to_owned(),
            bytes: stat.bytes,
            tag: bare(stat.etag.as_deref().unwrap_or_default()).to_owned(),
            modified_ms: None,
        }))
    }
}
