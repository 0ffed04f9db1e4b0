//! A directory or a prefix in a store that a dataset is read from. Both use the same names.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use shardmill_core::lock;

use crate::dir::Dir;
use crate::entry::DestinationEntry;
use crate::error::{StorageError, check_name, if_found};
use crate::file::FileHandle;
use crate::location::{Location, RemoteLocation};
use crate::remote::{Remote, RemoteOptions};

/// The root that a dataset is read from: a local directory or a prefix in a store. Clones share all state.
#[derive(Clone, Debug)]
pub enum Folder {
    /// A local directory.
    Local(Dir),
    /// A prefix in a store.
    Store(StoreFolder),
}

/// A prefix in a store, with a cache of its small objects.
#[derive(Clone, Debug)]
pub struct StoreFolder {
    remote: Remote,
    /// Its URL, used in messages where a directory has its path.
    path: PathBuf,
    kept: Arc<Mutex<BTreeMap<String, Kept>>>,
}

/// The contents of an object; `None` if the object does not exist.
type Kept = Option<Arc<Vec<u8>>>;

/// A file of a [`Folder`], open for reading.
#[derive(Debug)]
pub enum Stored {
    /// A local file.
    File(FileHandle),
    /// An object of a store.
    Object(StoredObject),
}

/// An object at the version it had when it was opened. Reads of another version fail.
#[derive(Debug)]
pub struct StoredObject {
    remote: Remote,
    name: String,
    path: PathBuf,
    bytes: u64,
    tag: String,
    kept: Kept,
}

impl Folder {
    /// Opens a location. Sends no request to a store. Errors are those of [`Dir::open`] and [`Remote::open`].
    pub fn open(location: &Location, options: &RemoteOptions) -> Result<Self, StorageError> {
        match location {
            Location::Local(path) => Dir::open(path).map(Self::Local),
            Location::Remote(location) => Self::open_store(location, options),
        }
    }

    /// Opens a prefix in a store. Errors are those of [`Remote::open`].
    pub fn open_store(
        location: &RemoteLocation,
        options: &RemoteOptions,
    ) -> Result<Self, StorageError> {
        Remote::open(location, options).map(Self::of)
    }

    fn of(remote: Remote) -> Self {
        Self::Store(StoreFolder {
            path: PathBuf::from(remote.location().to_string()),
            remote,
            kept: Arc::default(),
        })
    }

    /// Returns the path or the URL, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Local(dir) => dir.path(),
            Self::Store(store) => &store.path,
        }
    }

    /// Returns the path or the URL of a name, for messages.
    #[must_use]
    pub fn path_of(&self, name: &str) -> PathBuf {
        match self {
            Self::Local(dir) => dir.path_of(name),
            Self::Store(store) => PathBuf::from(store.remote.display(name)),
        }
    }

    /// Returns whether the root is in a store.
    #[must_use]
    pub const fn is_store(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// Returns whether the contents can be listed. Web servers do not support listings.
    #[must_use]
    pub fn can_list(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::Store(store) => store.remote.can_list(),
        }
    }

    /// Opens a file by its name. In a store, requests the length of the object.
    ///
    /// # Errors
    ///
    /// As [`Dir::open_file`] and [`Remote::look_up`]; `not-found` when the file or object does not exist.
    pub fn open_file(&self, name: &str) -> Result<Stored, StorageError> {
        let store = match self {
            Self::Local(dir) => return dir.open_file(name).map(Stored::File),
            Self::Store(store) => store,
        };
        if let Some(kept) = store.opened(name)? {
            return Ok(kept);
        }
        let found = store
            .remote
            .look_up(name, &mut |_| true)?
            .ok_or_else(|| store.remote.not_found(name))?;
        let pinned = std::iter::once((name, found.tag.as_str()));
        store.remote.pin(pinned)?;
        Ok(store.object(name, found.bytes, found.tag, None))
    }

    /// Opens a file that should have `bytes` bytes. Sends no request to a store: reading a missing object, or one of another
    /// length, fails there. A local file may have any length.
    /// Errors are those of [`open_file`](Self::open_file).
    pub fn open_listed(&self, name: &str, bytes: u64) -> Result<Stored, StorageError> {
        let Self::Store(store) = self else {
            return self.open_file(name);
        };
        let kept = store.opened(name)?;
        Ok(kept.unwrap_or_else(|| store.object(name, bytes, String::new(), None)))
    }

    /// Reads a whole file of at most `most` bytes. In a store, this takes one request.
    /// Errors are those of [`Dir::open_file`] and [`Remote::read`].
    pub fn read(&self, name: &str, max: u64) -> Result<Vec<u8>, StorageError> {
        match self {
            Self::Local(dir) => dir.open_file(name)?.read_all(max),
            Self::Store(store) => store.remote.read(name, max),
        }
    }

    /// Reads an object of at most `most` bytes from a store and caches it, so that later calls need no request. Does
    /// nothing for a directory.
    ///
    /// # Errors
    ///
    /// As [`Remote::read`]. A missing object is not an error; its absence is cached.
    pub fn keep(&self, name: &str, max: u64) -> Result<(), StorageError> {
        let Self::Store(store) = self else {
            return Ok(());
        };
        if store.known(name).is_some() {
            return Ok(());
        }
        let found = if_found(store.remote.read(name, max))?;
        store.keep(name, found.map(Arc::new));
        Ok(())
    }

    /// Returns whether the name exists. For a store, a negative answer is cached.
    /// Errors are those of [`Dir::exists`] and [`Remote::exists`].
    pub fn exists(&self, name: &str) -> Result<bool, StorageError> {
        match self {
            Self::Local(dir) => dir.exists(name),
            Self::Store(store) => match store.known(name) {
                Some(found) => Ok(found.is_some()),
                None => {
                    let found = store.remote.exists(name, &mut |_| true)?;
                    if !found {
                        store.keep(name, None);
                    }
                    Ok(found)
                }
            },
        }
    }

    /// Opens a folder below this one. Sends no request to a store.
    ///
    /// # Errors
    ///
    /// As [`Dir::open_dir`]; [`StorageError::Name`] for an invalid name.
    pub fn open_folder(&self, name: &str) -> Result<Self, StorageError> {
        match self {
            Self::Local(dir) => dir.open_dir(name).map(Self::Local),
            Self::Store(store) => {
                check_name(name)?;
                Ok(Self::of(store.remote.join(name)))
            }
        }
    }

    /// Lists the direct entries. Names that are not UTF-8 have replacement characters.
    /// Errors are those of [`Dir::entries`] and [`Remote::entries`].
    pub fn entries(&self) -> Result<Vec<DestinationEntry>, StorageError> {
        match self {
            Self::Local(dir) => {
                let entries = dir.entries()?.into_iter();
                Ok(entries.map(DestinationEntry::from).collect())
            }
            Self::Store(store) => store.remote.entries("", &mut |_| true),
        }
    }

    /// Returns the names of all objects below a prefix of a store, at most `most`. Returns `None` for a directory.
    /// Errors are those of [`Remote::list`].
    pub fn all_names(&self, max: u64) -> Result<Option<Vec<String>>, StorageError> {
        let Self::Store(store) = self else {
            return Ok(None);
        };
        let objects = store.remote.list("", max, &mut |_| true)?;
        let files = objects
            .into_iter()
            .filter(|object| !object.is_marker() && !object.name.is_empty());
        Ok(Some(files.map(|object| object.name).collect()))
    }
}

impl StoreFolder {
    /// Returns the client of the store.
    #[must_use]
    pub const fn remote(&self) -> &Remote {
        &self.remote
    }

    fn keep(&self, name: &str, found: Kept) {
        let mut kept = lock(&self.kept);
        kept.insert(name.to_owned(), found);
    }

    fn known(&self, name: &str) -> Option<Kept> {
        let kept = lock(&self.kept);
        kept.get(name).cloned()
    }

    /// Opens an object whose contents are cached. A cached absence is an error.
    fn opened(&self, name: &str) -> Result<Option<Stored>, StorageError> {
        match self.known(name) {
            None => Ok(None),
            Some(None) => Err(self.remote.not_found(name)),
            Some(Some(kept)) => {
                let bytes = kept.len() as u64;
                Ok(Some(self.object(name, bytes, String::new(), Some(kept))))
            }
        }
    }

    fn object(&self, name: &str, bytes: u64, tag: String, kept: Kept) -> Stored {
        Stored::Object(StoredObject {
            remote: self.remote.clone(),
            name: name.to_owned(),
            path: PathBuf::from(self.remote.display(name)),
            bytes,
            tag,
            kept,
        })
    }
}

impl Stored {
    /// Returns the path or the URL, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Object(object) => &object.path,
        }
    }

    /// Returns the length in bytes when it was opened.
    #[must_use]
    pub const fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Object(object) => object.bytes,
        }
    }

    /// Returns whether it was empty when it was opened.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the local file, if it is one.
    #[must_use]
    pub const fn as_file(&self) -> Option<&FileHandle> {
        match self {
            Self::File(file) => Some(file),
            Self::Object(_) => None,
        }
    }

    /// Returns the version tag of the object, such as its `ETag`. Empty if the store has none; `None` for a local file.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        match self {
            Self::File(_) => None,
            Self::Object(object) => Some(&object.tag),
        }
    }

    /// Fills `buffer` with the bytes from `offset`.
    /// Errors are those of [`FileHandle::read_at`] and [`Remote::read_range`].
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), StorageError> {
        match self {
            Self::File(file) => file.read_at(buffer, offset),
            Self::Object(object) => {
                let bytes = object.range(offset, buffer.len() as u64)?;
                match bytes.get(..buffer.len()) {
                    Some(bytes) => buffer.copy_from_slice(bytes),
                    None => return Err(object.short(offset, buffer.len() as u64)),
                }
                Ok(())
            }
        }
    }

    /// Reads `len` bytes from `offset`. Errors are those of [`FileHandle::read_range`] and [`Remote::read_range`].
    pub fn read_range(&self, offset: u64, len: u64) -> Result<Vec<u8>, StorageError> {
        match self {
            Self::File(file) => file.read_range(offset, len),
            Self::Object(object) => object.range(offset, len),
        }
    }

    /// Reads several ranges, those of an object at the same time. Errors are those of [`read_range`](Self::read_range).
    pub fn read_ranges(&self, ranges: &[Range<u64>]) -> Result<Vec<Vec<u8>>, StorageError> {
        let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
        match self {
            Self::Object(object) if object.kept.is_none() => {
                let wanted: Vec<_> = ranges
                    .iter()
                    .map(|range| (object.name.clone(), object.bytes, range.clone()))
                    .collect();
                object.remote.read_ranges_of(&wanted).into_iter().collect()
            }
            _ => ranges
                .iter()
                .map(|range| self.read_range(range.start, length(range)))
                .collect(),
        }
    }

    /// Reads the whole file or object. Errors are those of [`FileHandle::read_all`] and [`Remote::read_many`].
    pub fn read_all(&self, max: u64) -> Result<Vec<u8>, StorageError> {
        let mut bytes = Vec::new();
        self.read_all_into(&mut bytes, max)?;
        Ok(bytes)
    }

    /// Reads the whole file or object into `bytes`, replacing its contents.
    /// Errors are those of [`FileHandle::read_all_into`] and [`Remote::read_many`].
    pub fn read_all_into(&self, bytes: &mut Vec<u8>, max: u64) -> Result<(), StorageError> {
        match self {
            Self::File(file) => file.read_all_into(bytes, max),
            Self::Object(object) => {
                if object.bytes > max {
                    return Err(StorageError::TooLarge {
                        path: object.path.clone(),
                        bytes: object.bytes,
                        max,
                    });
                }
                // Free the old contents before the new ones are read.
                *bytes = Vec::new();
                *bytes = match &object.kept {
                    Some(kept) => kept.as_ref().clone(),
                    None => {
                        let (name, bytes) = (&object.name, object.bytes);
                        object.remote.read_one(name, None, Some(bytes), bytes)?
                    }
                };
                Ok(())
            }
        }
    }

    /// Checks that a local file has not changed since it was opened. Sends no request to a store, because reads of
    /// another version fail there. Errors are those of [`FileHandle::check_unchanged`].
    pub fn check_unchanged(&self) -> Result<(), StorageError> {
        match self {
            Self::File(file) => file.check_unchanged(),
            Self::Object(_) => Ok(()),
        }
    }
}

impl StoredObject {
    fn short(&self, offset: u64, len: u64) -> StorageError {
        StorageError::Range {
            path: self.path.clone(),
            offset,
            end: offset.saturating_add(len),
            bytes: self.bytes,
        }
    }

    fn range(&self, offset: u64, len: u64) -> Result<Vec<u8>, StorageError> {
        let end = offset.saturating_add(len);
        if end > self.bytes {
            return Err(self.short(offset, len));
        }
        if let Some(kept) = &self.kept {
            let at = |offset| usize::try_from(offset).unwrap_or(usize::MAX);
            return kept
                .get(at(offset)..at(end))
                .map(<[u8]>::to_vec)
                .ok_or_else(|| self.short(offset, len));
        }
        self.remote
            .read_range(&self.name, Some(self.bytes), offset..end)
    }
}

#[cfg(test)]
mod tests {
    use shardmill_testing::s3::{Objects, S3Server, Settings};

    use super::*;
    use crate::tests::options_for;

    #[test]
    fn store_and_directory_folders_read_equally() {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in [("a/x", "0123456789"), ("a/b/y", "y"), ("index.json", "{}")] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let objects = Objects::folder("bucket", root.path());
        let server = S3Server::start(objects, Settings::default()).unwrap();
        let options = options_for(&server);
        let local = Folder::open(&root.path().into(), &options).unwrap();
        let store = Folder::open(&Location::parse("s3://bucket").unwrap(), &options).unwrap();
        for folder in [&local, &store] {
            let mut entries = folder.entries().unwrap();
            entries.sort();
            let names: Vec<_> = entries
                .iter()
                .map(|entry| (entry.name.as_str(), entry.is_folder))
                .collect();
            assert_eq!(names, [("a", true), ("index.json", false)]);
            assert!(folder.exists("a/x").unwrap() && !folder.exists("a/z").unwrap());
            let below = folder.open_folder("a").unwrap();
            let file = below.open_file("x").unwrap();
            assert_eq!((file.len(), file.is_empty()), (10, false));
            assert_eq!(file.read_range(3, 4).unwrap(), b"3456");
            let mut two = [0; 2];
            file.read_at(&mut two, 8).unwrap();
            assert_eq!(&two, b"89");
            assert_eq!(file.read_all(10).unwrap(), b"0123456789");
            assert!(matches!(
                file.read_all(9),
                Err(StorageError::TooLarge { .. })
            ));
            assert!(matches!(
                file.read_range(9, 2),
                Err(StorageError::Range { .. })
            ));
            file.check_unchanged().unwrap();
            assert!(below.open_file("z").unwrap_err().is_not_found());
            assert!(folder.open_folder("..").is_err());
        }
        server.forget_counts();
        let listed = store.open_listed("a/x", 10).unwrap();
        assert_eq!(server.counts().requests, 0);
        for file in [&listed, &local.open_listed("a/x", 10).unwrap()] {
            assert_eq!(
                file.read_ranges(&[0..2, 7..10]).unwrap(),
                [&b"01"[..], b"789"]
            );
        }
        assert_eq!(server.counts().requests, 2);
        let other = store.open_listed("a/b/y", 2).unwrap();
        assert!(other.read_range(0, 1).unwrap_err().is_other_length());
        let gone = store.open_listed("a/none", 2).unwrap();
        assert!(gone.read_range(0, 1).unwrap_err().is_not_found());
        server.forget_counts();
        store.keep("index.json", 100).unwrap();
        store.keep("gone", 100).unwrap();
        assert!(store.exists("index.json").unwrap() && !store.exists("gone").unwrap());
        assert_eq!(
            store.open_file("index.json").unwrap().read_all(2).unwrap(),
            b"{}"
        );
        assert!(store.open_file("gone").unwrap_err().is_not_found());
        assert_eq!(server.counts().requests, 2);
        assert_eq!(
            store.all_names(10).unwrap().unwrap(),
            ["a/b/y", "a/x", "index.json"]
        );
        // Only the version that was opened can be read.
        let file = store.open_file("a/x").unwrap();
        std::fs::write(root.path().join("a/x"), "9876543210").unwrap();
        assert!(file.read_all(10).is_err());
    }
}
