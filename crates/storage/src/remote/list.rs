//! Lists the objects of a store.

use std::collections::BTreeSet;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use shardmill_core::CancelToken;

use super::handle::Remote;
use super::live::{Live, bare};
use super::pages::{Listed, Page, Paging};
use super::protocol::Stat;
use super::send::send;
use crate::entry::{DestinationEntry, FileVersion, StoreKind};
use crate::error::{StorageError, check_name};

/// The maximum number of consecutive empty pages.
pub(super) const EMPTY_PAGES: u32 = 1000;

/// Returns the error for a key that does not begin with the prefix of the listing.
pub(super) fn stray() -> StorageError {
    StorageError::Answer {
        what: "a key that was not asked for".into(),
    }
}

/// Returns the error for a listing that repeats itself.
pub(super) fn endless() -> StorageError {
    StorageError::Answer {
        what: "a listing that has no end".into(),
    }
}

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemoteObject {
    /// The name relative to the location, as the store returns it. It is not checked.
    pub name: String,
    /// The length in bytes.
    pub bytes: u64,
    /// The version tag: an `ETag` without its quotes, or a time. Empty if the store has none.
    pub tag: String,
    /// The time of the last change in milliseconds since 1970, if the listing has it.
    pub modified_ms: Option<i64>,
}

impl RemoteObject {
    fn of(name: &str, listed: &Listed) -> Self {
        Self {
            name: name.to_owned(),
            bytes: listed.bytes,
            tag: bare(&listed.tag).to_owned(),
            modified_ms: listed.modified_ms,
        }
    }

    /// Returns whether the object is a folder marker, which some tools upload: its name ends with a slash.
    #[must_use]
    pub fn is_marker(&self) -> bool {
        self.name.ends_with('/')
    }
}

/// Requests the length and tag of an object.
pub(super) async fn stat(live: &Live, key: &str) -> Result<Option<Stat>, StorageError> {
    let kind = live.signer.kind();
    send(live, &kind.stat(key), None, &Arc::default(), |answer| {
        kind.stat_answer(answer)
    })
    .await
}

/// Requests one page of a listing.
pub(super) async fn page(live: &Live, paging: Paging<'_>) -> Result<Page, StorageError> {
    let kind = live.signer.kind();
    if !kind.can_list() {
        return Err(StorageError::Unsupported {
            action: "list objects",
            store: kind,
        });
    }
    let ask = kind.page(paging);
    send(live, &ask, None, &Arc::default(), |answer| {
        kind.page_answer(&answer, &live.signer.access, paging)
    })
    .await
}

/// The pages of a listing, in order.
struct Pages<'a> {
    live: &'a Live,
    prefix: &'a str,
    folded: bool,
    /// The maximum number of entries of a page.
    max: u32,
    token: Option<String>,
    /// Hashes of the continuation tokens so far, to detect a listing that loops.
    seen: BTreeSet<u64>,
    /// The number of consecutive empty pages.
    empty: u32,
    is_over: bool,
}

impl<'a> Pages<'a> {
    fn new(live: &'a Live, prefix: &'a str, folded: bool) -> Self {
        Self {
            live,
            prefix,
            folded,
            max: 1000,
            token: None,
            seen: BTreeSet::new(),
            empty: 0,
            is_over: false,
        }
    }

    /// Returns the next page, or `None` after the last one.
    async fn next(&mut self) -> Result<Option<Page>, StorageError> {
        if self.is_over {
            return Ok(None);
        }
        let paging = Paging {
            prefix: self.prefix,
            folded: self.folded,
            after: None,
            token: self.token.as_deref(),
            max: self.max,
        };
        let page = page(self.live, paging).await?;
        let is_empty = page.objects.is_empty() && page.prefixes.is_empty();
        self.empty = if is_empty { self.empty + 1 } else { 0 };
        if let Some(next) = &page.next {
            let is_new = self.seen.insert(self.live.hasher.hash_one(next));
            if !is_new || self.empty > EMPTY_PAGES {
                return Err(endless());
            }
        }
        self.token.clone_from(&page.next);
        self.is_over = page.next.is_none();
        Ok(Some(page))
    }

    /// Returns the first page with entries, or an empty one.
    async fn first_entries(&mut self) -> Result<Page, StorageError> {
        while let Some(page) = self.next().await? {
            if !page.objects.is_empty() || !page.prefixes.is_empty() {
                return Ok(page);
            }
        }
        Ok(Page::default())
    }
}

/// Returns the prefix of all keys of the location, and the prefix of the keys that begin with `prefix` in it.
pub(super) fn roots(live: &Live, prefix: &str) -> (String, String) {
    // Names are keys without the first prefix.
    let root = match live.location.prefix() {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    };
    let wanted = format!("{root}{prefix}");
    (root, wanted)
}

/// Returns the prefix with which a listing of `wanted` begins: `wanted` itself, or its folder where a listing covers a
/// single folder.
pub(super) fn first_prefix(live: &Live, wanted: &str) -> String {
    match (live.signer.kind().has_folders(), wanted.rsplit_once('/')) {
        (false, _) => wanted.to_owned(),
        (true, Some((folder, _))) => format!("{folder}/"),
        (true, None) => String::new(),
    }
}

async fn list(live: &Live, prefix: &str, max: u64) -> Result<Vec<RemoteObject>, StorageError> {
    let (root, wanted) = roots(live, prefix);
    let mut objects: Vec<RemoteObject> = Vec::new();
    let has_folders = live.signer.kind().has_folders();
    // Where a listing covers a single folder, each folder is listed separately.
    let mut folders = vec![first_prefix(live, &wanted)];
    let mut seen = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        let mut pages = Pages::new(live, &folder, false);
        while let Some(page) = pages.next().await? {
            for listed in page.objects {
                let key = &listed.key;
                if has_folders && !key.starts_with(&wanted) {
                    continue;
                }
                let name = key.strip_prefix(&root).filter(|_| key.starts_with(&wanted));
                let name = name.ok_or_else(stray)?;
                if objects.len() as u64 >= max {
                    return Err(StorageError::TooMany { max });
                }
                let bytes = (objects.len() * size_of::<RemoteObject>()) as u64;
                let room = objects.try_reserve(1);
                room.map_err(|_| StorageError::NoMemory { bytes })?;
                objects.push(RemoteObject::of(name, &listed));
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

/// Lists one folder, page by page.
async fn entries(live: &Live, folder: &str) -> Result<Vec<DestinationEntry>, StorageError> {
    let mut prefix = live.location.key(folder);
    if !prefix.is_empty() {
        prefix.push('/');
    }
    let mut found = BTreeSet::new();
    let mut pages = Pages::new(live, &prefix, true);
    while let Some(page) = pages.next().await? {
        let objects = page.objects.into_iter().map(|listed| listed.key);
        for key in objects.chain(page.prefixes) {
            let name = key.strip_prefix(&prefix).ok_or_else(stray)?;
            // A store that does not fold returns deeper keys as well.
            let folder = name.split_once('/').map(|(folder, _)| folder);
            let (name, is_folder) = (folder.unwrap_or(name), folder.is_some());
            if !name.is_empty() {
                found.insert(DestinationEntry {
                    name: name.to_owned(),
                    is_folder,
                });
            }
            if found.len() as u64 > Remote::MAX_LISTED {
                return Err(StorageError::TooMany {
                    max: Remote::MAX_LISTED,
                });
            }
        }
    }
    Ok(found.into_iter().collect())
}

impl Remote {
    /// The maximum number of objects of a listing that is held in memory.
    pub const MAX_LISTED: u64 = 50_000_000;

    pub(super) fn stat(
        &self,
        name: &str,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Option<Stat>, StorageError> {
        check_name(name)?;
        let key = self.shared.location.key(name);
        self.wait_while(
            name,
            cancel,
            |live, _| async move { stat(&live, &key).await },
        )
    }

    /// Returns the length of an object, or `None` if it does not exist. Sends one `HEAD` request.
    ///
    /// A missing bucket counts as a missing object.
    pub fn size(
        &self,
        name: &str,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Option<u64>, StorageError> {
        let found = self.stat(name, cancel)?;
        Ok(found.map(|stat| stat.bytes))
    }

    /// Returns the length and the tag of an object, or `None` if it does not exist. Sends one `HEAD` request.
    pub(crate) fn file_version(
        &self,
        name: &str,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Option<FileVersion>, StorageError> {
        let found = self.stat(name, cancel)?;
        Ok(found.map(|stat| FileVersion {
            bytes: stat.bytes,
            etag: stat.etag,
        }))
    }

    /// Reads the current version of an object of at most `most` bytes, even if another version was read before.
    pub(crate) fn read_anew(
        &self,
        name: &str,
        max: u64,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Vec<u8>, StorageError> {
        check_name(name)?;
        let key = self.shared.location.key(name);
        self.wait_while(name, cancel, |live, _| async move {
            live.unpin(&key);
            live.get_key(&key, None, None, max).await
        })
    }

    /// Lists a folder, sorted by the bytes of the names: its objects and its subfolders. `""` is the location itself.
    /// Names that begin with a slash and folder markers are omitted. Errors are those of [`Remote::list`].
    pub fn entries(
        &self,
        folder: &str,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Vec<DestinationEntry>, StorageError> {
        if !folder.is_empty() {
            check_name(folder)?;
        }
        let folder = folder.to_owned();
        self.wait_while(&folder.clone(), cancel, |live, _| async move {
            entries(&live, &folder).await
        })
    }

    /// Returns whether an object exists. Errors are those of [`Remote::size`].
    pub fn exists(&self, name: &str, cancel: &mut CancelToken<'_>) -> Result<bool, StorageError> {
        Ok(self.size(name, cancel)?.is_some())
    }

    /// Lists the objects whose names begin with `prefix`, in the order of the store. `prefix` need not end at a `/`.
    ///
    /// # Errors
    ///
    /// [`StorageError::At`]; `limit-list` where there are more than `most`.
    pub fn list(
        &self,
        prefix: &str,
        max: u64,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Vec<RemoteObject>, StorageError> {
        let owned = prefix.to_owned();
        self.wait_while(prefix, cancel, move |live, _| async move {
            list(&live, &owned, max).await
        })
    }

    /// Requests a listing of one object, to check that the bucket exists and may be listed.
    pub fn check_bucket(&self, cancel: &mut CancelToken<'_>) -> Result<(), StorageError> {
        self.peek("", 1, cancel).map(drop)
    }

    /// Lists some of the objects whose names begin with `prefix`: the first page, of at most `most` and at most 1,000
    /// objects. Where a listing covers a single folder, its subfolders are included as markers of 0 bytes.
    pub fn peek(
        &self,
        prefix: &str,
        max: u32,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Vec<RemoteObject>, StorageError> {
        let (owned, max) = (prefix.to_owned(), max.clamp(1, 1000));
        self.wait_while(prefix, cancel, move |live, _| async move {
            let (root, wanted) = roots(&live, &owned);
            let first = first_prefix(&live, &wanted);
            let mut pages = Pages::new(&live, &first, false);
            let page = if live.signer.kind() == StoreKind::HubBucket {
                // The first pages may have only what is beside the folder.
                pages.first_entries().await?
            } else {
                pages.max = max;
                pages.next().await?.unwrap_or_default()
            };
            let folders = page.prefixes.into_iter().map(|key| Listed {
                key,
                bytes: 0,
                tag: String::new(),
                modified_ms: None,
            });
            let all = page.objects.into_iter().chain(folders);
            let objects = all.filter(|listed| listed.key.starts_with(&wanted));
            let objects = objects.filter_map(|listed| {
                Some(RemoteObject::of(listed.key.strip_prefix(&root)?, &listed))
            });
            Ok(objects.take(max as usize).collect())
        })
    }

    /// Returns the length and tag of an object, or `None` if it does not exist. Sends one `HEAD` request.
    /// Errors are those of [`Remote::size`].
    pub fn look_up(
        &self,
        name: &str,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Option<RemoteObject>, StorageError> {
        let found = self.stat(name, cancel)?;
        Ok(found.map(|stat| RemoteObject {
            name: name.to_owned(),
            bytes: stat.bytes,
            tag: bare(stat.etag.as_deref().unwrap_or_default()).to_owned(),
            modified_ms: None,
        }))
    }
}
