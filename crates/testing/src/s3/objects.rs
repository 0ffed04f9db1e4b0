//! The objects of the bucket.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The objects of one bucket, in memory or in a directory.
#[derive(Debug)]
pub struct Objects {
    bucket: String,
    storage: ObjectStorage,
    /// The tag and the checksum of each object that was written through the server.
    sums: Mutex<BTreeMap<String, (String, String)>>,
}

#[derive(Debug)]
enum ObjectStorage {
    Memory(Mutex<BTreeMap<String, Arc<Vec<u8>>>>),
    Folder {
        root: PathBuf,
        /// The tag of each file, with the length and modification time for which it was computed.
        tags: Mutex<BTreeMap<String, (u64, SystemTime, String)>>,
    },
    /// This many keys in order, which are generated on demand.
    Made {
        count: u64,
        key: fn(u64) -> String,
    },
}

/// An object, with its contents if they are in memory.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) bytes: u64,
    pub(super) etag: String,
    from: From,
}

#[derive(Debug)]
enum From {
    Memory(Arc<Vec<u8>>),
    File(File),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Objects {
    /// Creates a bucket with these objects in memory.
    pub fn memory(bucket: &str, objects: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let objects = objects
            .into_iter()
            .map(|(key, bytes)| (key, Arc::new(bytes)))
            .collect();
        Self {
            bucket: bucket.to_owned(),
            storage: ObjectStorage::Memory(Mutex::new(objects)),
            sums: Mutex::default(),
        }
    }

    /// Creates a bucket whose keys are the paths of the files below a directory.
    #[must_use]
    pub fn folder(bucket: &str, root: &Path) -> Self {
        Self {
            bucket: bucket.to_owned(),
            storage: ObjectStorage::Folder {
                root: root.to_owned(),
                tags: Mutex::default(),
            },
            sums: Mutex::default(),
        }
    }

    /// Creates a bucket of `count` empty objects whose keys are generated on demand: `key` returns the key at a
    /// position, and has to be increasing. The bucket can be listed but not written.
    #[must_use]
    pub fn made(bucket: &str, count: u64, key: fn(u64) -> String) -> Self {
        Self {
            bucket: bucket.to_owned(),
            storage: ObjectStorage::Made { count, key },
            sums: Mutex::default(),
        }
    }

    /// Returns the name of the bucket.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Stores an object in memory, and replaces an existing one. Does nothing for a directory.
    pub fn put(&self, key: &str, bytes: Vec<u8>) {
        if let ObjectStorage::Memory(objects) = &self.storage {
            lock(objects).insert(key.to_owned(), Arc::new(bytes));
        }
    }

    /// Removes an object from memory. Does nothing for a directory.
    pub fn remove(&self, key: &str) {
        if let ObjectStorage::Memory(objects) = &self.storage {
            lock(objects).remove(key);
        }
    }

    /// Returns the number of objects in memory; 0 for a directory.
    #[must_use]
    pub fn count(&self) -> usize {
        match &self.storage {
            ObjectStorage::Memory(objects) => lock(objects).len(),
            ObjectStorage::Folder { .. } | ObjectStorage::Made { .. } => 0,
        }
    }

    /// Returns the keys and contents of all objects in memory; none for a directory.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, Vec<u8>> {
        match &self.storage {
            ObjectStorage::Memory(objects) => lock(objects)
                .iter()
                .map(|(key, contents)| (key.clone(), contents.to_vec()))
                .collect(),
            ObjectStorage::Folder { .. } | ObjectStorage::Made { .. } => BTreeMap::new(),
        }
    }

    /// Returns the contents of an object.
    ///
    /// # Errors
    ///
    /// Returns errors of reading its file.
    pub fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        match self.find(key)? {
            Some(mut found) => found.read(0..found.bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Stores an object atomically, or only if the key does not exist. Returns its tag, or `None` if the key exists.
    pub(super) fn write(
        &self,
        key: &str,
        bytes: Vec<u8>,
        only_new: bool,
        sum: Option<String>,
    ) -> io::Result<Option<String>> {
        let etag = tag(xxh3_64(&bytes));
        match &self.storage {
            ObjectStorage::Memory(objects) => {
                let mut objects = lock(objects);
                if only_new && objects.contains_key(key) {
                    return Ok(None);
                }
                objects.insert(key.to_owned(), Arc::new(bytes));
            }
            ObjectStorage::Folder { root, .. } => {
                if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                // One writer at a time.
                let _sums = lock(&self.sums);
                let path = root.join(key);
                if only_new && path.exists() {
                    return Ok(None);
                }
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)?;
                }
                let half = path.with_added_extension("half");
                std::fs::write(&half, &bytes)?;
                std::fs::rename(&half, &path)?;
            }
            ObjectStorage::Made { .. } => return Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
        let mut sums = lock(&self.sums);
        match sum {
            Some(sum) => sums.insert(key.to_owned(), (etag.clone(), sum)),
            None => sums.remove(key),
        };
        Ok(Some(etag))
    }

    /// Returns the checksum with which an object with this tag was written.
    pub(super) fn sum(&self, key: &str, etag: &str) -> Option<String> {
        let sums = lock(&self.sums);
        let (known, sum) = sums.get(key)?;
        (known == etag).then(|| sum.clone())
    }

    pub(super) fn find(&self, key: &str) -> io::Result<Option<Found>> {
        match &self.storage {
            ObjectStorage::Memory(objects) => Ok(lock(objects).get(key).map(|contents| Found {
                bytes: contents.len() as u64,
                etag: tag(xxh3_64(contents)),
                from: From::Memory(Arc::clone(contents)),
            })),
            ObjectStorage::Folder { root, tags } => {
                if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
                    return Ok(None);
                }
                let mut file = match File::open(root.join(key)) {
                    Ok(file) => file,
                    // In a store nothing is below an object; the file system reports that as another error.
                    Err(error)
                        if matches!(
                            error.kind(),
                            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                        ) =>
                    {
                        return Ok(None);
                    }
                    Err(error) => return Err(error),
                };
                let metadata = file.metadata()?;
                if !metadata.is_file() {
                    return Ok(None);
                }
                let (bytes, changed) = (metadata.len(), metadata.modified()?);
                let known = lock(tags)
                    .get(key)
                    .filter(|(len, at, _)| (*len, *at) == (bytes, changed))
                    .map(|(_, _, tag)| tag.clone());
                let etag = match known {
                    Some(etag) => etag,
                    None => {
                        let etag = tag(hash(&mut file)?);
                        lock(tags).insert(key.to_owned(), (bytes, changed, etag.clone()));
                        etag
                    }
                };
                Ok(Some(Found {
                    bytes,
                    etag,
                    from: From::File(file),
                }))
            }
            ObjectStorage::Made { count, key: made } => {
                let at = first_at(*count, |at| made(at).as_str() >= key);
                let is_there = at < *count && made(at) == key;
                Ok(is_there.then(|| Found {
                    bytes: 0,
                    etag: tag(xxh3_64(b"")),
                    from: From::Memory(Arc::default()),
                }))
            }
        }
    }

    /// Returns one page of the keys that begin with `prefix` and follow `after`, in order.
    pub(super) fn page(&self, wanted: &Wanted<'_>) -> io::Result<Page> {
        match &self.storage {
            ObjectStorage::Memory(objects) => Ok(page_of(&lock(objects), wanted, |_, contents| {
                (contents.len() as u64, tag(xxh3_64(contents)))
            })),
            ObjectStorage::Folder { root, .. } => {
                let mut found = Vec::new();
                walk(root, "", &mut found)?;
                let found: BTreeMap<String, u64> = found.into_iter().collect();
                Ok(page_of(&found, wanted, |key, bytes| {
                    // A file that was removed since the folder was read has no tag.
                    match self.find(key) {
                        Ok(Some(found)) => (found.bytes, found.etag),
                        _ => (*bytes, String::new()),
                    }
                }))
            }
            ObjectStorage::Made { count, key } => Ok(page_of_made(*count, *key, wanted)),
        }
    }

    /// Removes an object, and returns whether it existed.
    pub(super) fn delete(&self, key: &str) -> io::Result<bool> {
        match &self.storage {
            ObjectStorage::Memory(objects) => Ok(lock(objects).remove(key).is_some()),
            ObjectStorage::Folder { root, .. } => {
                if key.split('/').any(|part| matches!(part, "" | "." | "..")) {
                    return Ok(false);
                }
                match std::fs::remove_file(root.join(key)) {
                    Ok(()) => Ok(true),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                    Err(error) => Err(error),
                }
            }
            ObjectStorage::Made { .. } => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    }
}

/// The page to return.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) prefix: &'a str,
    pub(super) after: Option<&'a str>,
    /// Whether keys with a slash after the prefix are folded.
    pub(super) folded: bool,
    pub(super) max: usize,
}

#[derive(Debug, Default)]
pub(super) struct Page {
    /// Key, bytes and tag.
    pub(super) objects: Vec<(String, u64, String)>,
    pub(super) prefixes: Vec<String>,
    /// The start of the next page.
    pub(super) next: Option<String>,
}

fn page_of<T>(
    all: &BTreeMap<String, T>,
    wanted: &Wanted<'_>,
    describe: impl Fn(&str, &T) -> (u64, String),
) -> Page {
    let mut page = Page::default();
    let mut from = match wanted.after {
        Some(after) if after >= wanted.prefix => Bound::Excluded(after.to_owned()),
        _ => Bound::Included(wanted.prefix.to_owned()),
    };
    let mut last = String::new();
    if !wanted.folded {
        let range = all.range::<str, _>((from.as_ref().map(String::as_str), Bound::Unbounded));
        let mut range = range.take_while(|(key, _)| key.starts_with(wanted.prefix));
        for (key, value) in range.by_ref().take(wanted.max) {
            let (bytes, tag) = describe(key, value);
            page.objects.push((key.clone(), bytes, tag));
        }
        if range.next().is_some() {
            page.next = page.objects.last().map(|(key, _, _)| key.clone());
        }
        return page;
    }
    loop {
        let mut range = all.range::<str, _>((from.as_ref().map(String::as_str), Bound::Unbounded));
        let Some((key, value)) = range.next() else {
            return page;
        };
        if !key.starts_with(wanted.prefix) {
            return page;
        }
        if page.objects.len() + page.prefixes.len() >= wanted.max {
            page.next = Some(last);
            return page;
        }
        let rest = key.get(wanted.prefix.len()..).unwrap_or_default();
        match rest.find('/').filter(|_| wanted.folded) {
            Some(at) => {
                let end = wanted.prefix.len() + at + 1;
                let prefix = key.get(..end).unwrap_or_default();
                page.prefixes.push(prefix.to_owned());
                last = format!("{prefix}\u{10ffff}");
            }
            None => {
                let (bytes, tag) = describe(key, value);
                page.objects.push((key.clone(), bytes, tag));
                last.clone_from(key);
            }
        }
        from = Bound::Excluded(last.clone());
    }
}

/// Returns the first of `count` positions where `holds` is true, if it is also true at all later ones.
fn first_at(count: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

fn page_of_made(count: u64, key: fn(u64) -> String, wanted: &Wanted<'_>) -> Page {
    let mut page = Page::default();
    let etag = tag(xxh3_64(b""));
    let mut at = match wanted.after {
        Some(after) if after >= wanted.prefix => first_at(count, |at| key(at).as_str() > after),
        _ => first_at(count, |at| key(at).as_str() >= wanted.prefix),
    };
    let mut last = String::new();
    while at < count {
        let name = key(at);
        let Some(rest) = name.strip_prefix(wanted.prefix) else {
            break;
        };
        if page.objects.len() + page.prefixes.len() >= wanted.max {
            page.next = Some(last);
            break;
        }
        if let Some(slash) = rest.find('/').filter(|_| wanted.folded) {
            let prefix = name.get(..=wanted.prefix.len() + slash);
            let prefix = prefix.unwrap_or_default().to_owned();
            last = format!("{prefix}\u{10ffff}");
            at = first_at(count, |at| key(at) > last);
            page.prefixes.push(prefix);
        } else {
            last.clone_from(&name);
            page.objects.push((name, 0, etag.clone()));
            at += 1;
        }
    }
    page
}

impl Found {
    pub(super) fn read(&mut self, range: Range<u64>) -> io::Result<Vec<u8>> {
        match &mut self.from {
            From::Memory(contents) => {
                let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
                contents
                    .get(at(range.start)..at(range.end))
                    .map(<[u8]>::to_vec)
                    .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
            }
            From::File(file) => {
                file.seek(SeekFrom::Start(range.start))?;
                let mut bytes = Vec::new();
                file.take(range.end.saturating_sub(range.start))
                    .read_to_end(&mut bytes)?;
                Ok(bytes)
            }
        }
    }
}

pub(super) fn tag(hash: u64) -> String {
    format!("\"{hash:016x}\"")
}

fn hash(file: &mut File) -> io::Result<u64> {
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        match buffer.get(..read) {
            Some(piece) if read > 0 => hasher.update(piece),
            _ => return Ok(hasher.digest()),
        }
    }
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, u64)>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let key = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &format!("{key}/"), found)?;
        } else {
            found.push((key, entry.metadata()?.len()));
        }
    }
    Ok(())
}
