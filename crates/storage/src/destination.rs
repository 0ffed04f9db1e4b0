//! A directory or a prefix in a store that a dataset is written to. Both use the same names and operations.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use ring::digest;
use shardmill_core::{CancelToken, lock};

use crate::dir::{Dir, PublishMode};
use crate::entry::{DestinationEntry, FileVersion};
use crate::error::{StorageError, if_found};
use crate::file::FileHandle;
use crate::location::{Location, RemoteLocation};
use crate::remote::{Remote, RemoteOptions};
use crate::temp::TempFile;

/// The root that a dataset is written to: a local directory or a prefix in a store. Clones share all state.
///
/// A file begins as a [`TempFile`] in the directory, or for a store in a local spool directory.
/// [`Destination::publish`] gives it its name. Long operations call `cancel` several times a second, and fail with
/// `interrupted` when it returns `false`.
#[derive(Clone, Debug)]
pub enum Destination {
    /// A local directory.
    Local(Dir),
    /// A prefix in a store.
    Store(StoreDestination),
}

/// A prefix in a store, and the local directory for files that are to be uploaded.
#[derive(Clone, Debug)]
pub struct StoreDestination {
    remote: Remote,
    spool: Dir,
    uploads: Arc<Uploads>,
    written: Arc<Mutex<BTreeMap<String, Written>>>,
}

/// What is known of an object that was uploaded through this destination, to recognise it later.
#[derive(Clone, Debug)]
enum Written {
    /// The version that the store reported.
    Version(FileVersion),
    /// The length and the SHA-256.
    Digest(u64, digest::Digest),
    /// The file. It is unknown whether its upload succeeded.
    File(Arc<FileHandle>),
}

/// The number of bytes of an object that are compared at once.
const COMPARED_BYTES: u64 = 8 << 20;

/// How often an upload is verified before it counts as failed, because an answer may be wrong.
const VERIFY_ATTEMPTS: usize = 3;

impl Destination {
    /// Opens an existing location; sends no request to a store. `spool` is the directory for files that are to be
    /// uploaded. It defaults to the temporary directory of the system.
    ///
    /// # Errors
    ///
    /// As [`Dir::open`] and [`Remote::open`]; `store-unsupported` for a store that cannot be written.
    pub fn open(
        location: &Location,
        options: &RemoteOptions,
        spool: Option<&Path>,
    ) -> Result<Self, StorageError> {
        match location {
            Location::Local(path) => Dir::open(path).map(Self::Local),
            Location::Remote(_) => Self::create(location, options, spool),
        }
    }

    /// Opens a location as [`Destination::open`] does, and creates a directory that is missing.
    ///
    /// # Errors
    ///
    /// As [`Dir::create`] and [`Remote::open`]; `store-unsupported` for a store that cannot be written.
    pub fn create(
        location: &Location,
        options: &RemoteOptions,
        spool: Option<&Path>,
    ) -> Result<Self, StorageError> {
        match location {
            Location::Local(path) => Dir::create(path).map(Self::Local),
            Location::Remote(remote) => {
                let store = StoreDestination::open(remote, options, spool)?;
                store.remote.writable("")?;
                Ok(Self::Store(store))
            }
        }
    }

    /// Returns the location.
    #[must_use]
    pub fn location(&self) -> Location {
        match self {
            Self::Local(dir) => Location::Local(dir.path().to_owned()),
            Self::Store(store) => Location::Remote(store.remote.location().clone()),
        }
    }

    /// Returns the path or the URL of a name, for messages.
    #[must_use]
    pub fn display(&self, name: &str) -> String {
        match self {
            Self::Local(dir) => dir.path_of(name).display().to_string(),
            Self::Store(store) => store.remote.display(name),
        }
    }

    /// Returns the directory, if the destination is local.
    #[must_use]
    pub const fn as_local(&self) -> Option<&Dir> {
        match self {
            Self::Local(dir) => Some(dir),
            Self::Store(_) => None,
        }
    }

    /// Returns how many files to publish concurrently. A disk has no benefit from more than one; uploads to a store do.
    #[must_use]
    pub const fn publishers(&self) -> usize {
        match self {
            Self::Local(_) => 1,
            Self::Store(_) => 8,
        }
    }

    /// Creates a temporary file. In a directory it is in `folder`, which has to exist. For a store it is an unnamed
    /// file in the spool directory, so nothing is left of it however the process ends.
    /// Errors are those of [`Dir::temp_file`].
    pub fn temp_file(&self, folder: Option<&str>) -> Result<TempFile, StorageError> {
        match self {
            Self::Local(dir) => dir.temp_file(folder).map(TempFile::written_behind),
            Self::Store(store) => TempFile::nameless(&store.spool),
        }
    }

    /// Publishes a file of [`Destination::temp_file`] under a name. When this returns, the file is durable: synchronised
    /// to the disk in a directory, or verified by checksum and length in a store.
    /// Errors are those of [`TempFile::publish`], [`Remote::put_file`] and [`Remote::put_new`].
    pub fn publish(
        &self,
        file: TempFile,
        name: &str,
        mode: PublishMode,
        cancel: &mut CancelToken<'_>,
    ) -> Result<FileVersion, StorageError> {
        let bytes = file.written();
        let store = match self {
            Self::Local(_) => {
                file.publish(name, mode)?;
                return Ok(FileVersion { bytes, etag: None });
            }
            Self::Store(store) => store,
        };
        let file = Arc::new(file.into_handle()?);
        store.note(name, Written::File(Arc::clone(&file)));
        // PERF: limits the bytes that are in memory and in flight for all threads together.
        let reservation = store.uploads.enter(bytes);
        match mode {
            PublishMode::Replace => store.remote.put_file(name, &file, cancel)?,
            PublishMode::CreateNew => store.put_new(name, file.read_all(bytes)?, cancel)?,
        }
        drop(reservation);
        let mut found = None;
        for _ in 0..VERIFY_ATTEMPTS {
            found = self.file_version(name, cancel)?;
            if let Some(file_version) = &found
                && file_version.bytes == bytes
            {
                if let Some(written) = lock(&store.written).get_mut(name) {
                    *written = Written::Version(file_version.clone());
                }
                return Ok(file_version.clone());
            }
        }
        Err(store.remote.not_as_put(name, bytes, found))
    }

    /// Publishes `bytes` as one file, in a directory through a temporary file in `folder`. With
    /// [`PublishMode::CreateNew`], an existing file with the same bytes counts as published.
    /// Errors are those of [`Destination::publish`].
    pub fn publish_bytes(
        &self,
        folder: Option<&str>,
        name: &str,
        bytes: &[u8],
        mode: PublishMode,
        cancel: &mut CancelToken<'_>,
    ) -> Result<(), StorageError> {
        match (self, mode) {
            (Self::Local(dir), _) => match dir.publish_bytes(folder, name, bytes, mode) {
                Err(StorageError::Exists { .. }) if self.holds(name, bytes, cancel) => Ok(()),
                published => published,
            },
            (Self::Store(store), _) => {
                let sum = digest::digest(&digest::SHA256, bytes);
                store.note(name, Written::Digest(bytes.len() as u64, sum));
                match mode {
                    PublishMode::Replace => store.remote.put(name, bytes.to_vec(), cancel),
                    PublishMode::CreateNew => store.put_new(name, bytes.to_vec(), cancel),
                }
            }
        }
    }

    /// Returns whether the file has these bytes; `false` if it cannot be read.
    fn holds(&self, name: &str, bytes: &[u8], cancel: &mut CancelToken<'_>) -> bool {
        let max = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let there = self.read(name, max, cancel).ok().flatten();
        there.as_deref() == Some(bytes)
    }

    /// Returns the version of a file, or `None` if it does not exist. Sends one `HEAD` request to a store.
    /// Errors are those of [`Dir::open_file`] and [`Remote::size`].
    pub fn file_version(
        &self,
        name: &str,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Option<FileVersion>, StorageError> {
        match self {
            Self::Local(dir) => {
                let file = if_found(dir.open_file(name))?;
                Ok(file.map(|file| FileVersion {
                    bytes: file.len(),
                    etag: None,
                }))
            }
            Self::Store(store) => store.remote.file_version(name, cancel),
        }
    }

    /// Reads a file of at most `most` bytes. Returns `None` if it does not exist.
    /// Errors are those of [`Dir::open_file`] and [`Remote::read`].
    pub fn read(
        &self,
        name: &str,
        max: u64,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let read = match self {
            Self::Local(dir) => dir.open_file(name).and_then(|file| file.read_all(max)),
            Self::Store(store) => store.remote.read_anew(name, max, cancel),
        };
        if_found(read)
    }

    /// Lists a folder, sorted by the bytes of the names. `""` is the root. A missing folder is empty.
    /// Errors are those of [`Dir::entries`] and [`Remote::list`].
    pub fn entries(
        &self,
        folder: &str,
        cancel: &mut CancelToken<'_>,
    ) -> Result<Vec<DestinationEntry>, StorageError> {
        let dir = match self {
            Self::Store(store) => return store.remote.entries(folder, cancel),
            Self::Local(dir) if folder.is_empty() => dir.clone(),
            Self::Local(dir) => match if_found(dir.open_dir(folder))? {
                Some(dir) => dir,
                None => return Ok(Vec::new()),
            },
        };
        let entries = dir.entries()?.into_iter();
        Ok(entries.map(DestinationEntry::from).collect())
    }

    /// Removes a file. A missing file is not an error. [`Destination::sync`] makes the removal durable.
    /// Errors are those of [`Dir::remove`] and [`Remote::remove`].
    pub fn remove(&self, name: &str, cancel: &mut CancelToken<'_>) -> Result<(), StorageError> {
        match self {
            Self::Local(dir) => dir.remove(name).map(|_| ()),
            Self::Store(store) => store.remote.remove(name, cancel),
        }
    }

    /// Returns the names of the objects that were uploaded through this destination and its clones. Uploads that failed
    /// are included, because the store may have them. Empty for a directory, where only the holder of the lease writes.
    #[must_use]
    pub fn written(&self) -> Vec<String> {
        match self {
            Self::Local(_) => Vec::new(),
            Self::Store(store) => lock(&store.written).keys().cloned().collect(),
        }
    }

    /// Removes a file as [`Destination::remove`] does. In a store, an object is kept if it was not uploaded through this
    /// destination, or if another writer has replaced it since.
    ///
    /// # Errors
    ///
    /// As [`Destination::remove`], and those of reading the object, if the store did not report its version.
    pub fn remove_own(&self, name: &str, cancel: &mut CancelToken<'_>) -> Result<(), StorageError> {
        if let Self::Store(store) = self {
            let written = lock(&store.written).get(name).cloned();
            let Some(written) = written else {
                return Ok(());
            };
            if !store.is_unchanged(name, &written, cancel)? {
                return Ok(());
            }
        }
        self.remove(name, cancel)
    }

    /// Creates a folder. Does nothing in a store. Errors are those of [`Dir::make_dir`].
    pub fn make_folder(&self, name: &str) -> Result<(), StorageError> {
        match self {
            Self::Local(dir) => dir.make_dir(name).map(|_| ()),
            Self::Store(_) => Ok(()),
        }
    }

    /// Removes an empty folder. A missing folder is not an error. Errors are those of [`Dir::remove_dir`].
    pub fn remove_folder(&self, name: &str) -> Result<(), StorageError> {
        match self {
            Self::Local(dir) => dir.remove_dir(name).map(|_| ()),
            Self::Store(_) => Ok(()),
        }
    }

    /// Waits until published and removed names are durable in a directory. In a store they already are.
    /// Errors are those of [`Dir::sync`].
    pub fn sync(&self) -> Result<(), StorageError> {
        match self {
            Self::Local(dir) => dir.sync(),
            Self::Store(_) => Ok(()),
        }
    }
}

impl StoreDestination {
    /// Files of up to this many bytes are uploaded in one request.
    const WHOLE_BYTES: u64 = 16 << 20;
    /// The initial number of bytes of each part of a larger file.
    const PART_BYTES: u64 = 8 << 20;

    /// Opens a prefix in a store, also in one that cannot be written.
    pub(crate) fn open(
        location: &RemoteLocation,
        options: &RemoteOptions,
        spool: Option<&Path>,
    ) -> Result<Self, StorageError> {
        let mut options = options.clone();
        options.upload.split_above = options.upload.split_above.min(Self::WHOLE_BYTES);
        options.upload.part_bytes = options.upload.part_bytes.min(Self::PART_BYTES);
        Ok(Self {
            remote: Remote::open(location, &options)?,
            spool: Dir::open(spool.unwrap_or(&std::env::temp_dir()))?,
            uploads: Arc::default(),
            written: Arc::default(),
        })
    }

    fn note(&self, name: &str, written: Written) {
        lock(&self.written).insert(name.to_owned(), written);
    }

    /// Uploads a new object. If another writer has uploaded it, it does not count as written here.
    fn put_new(
        &self,
        name: &str,
        bytes: Vec<u8>,
        cancel: &mut CancelToken<'_>,
    ) -> Result<(), StorageError> {
        let put = self.remote.put_new(name, bytes, cancel);
        let exists = |error: &StorageError| matches!(error.fault(), StorageError::ObjectExists);
        if put.as_ref().map_or_else(exists, |is_new| !is_new) {
            lock(&self.written).remove(name);
        }
        put.map(|_| ())
    }

    /// Returns whether an object is the one that was written.
    fn is_unchanged(
        &self,
        name: &str,
        written: &Written,
        cancel: &mut CancelToken<'_>,
    ) -> Result<bool, StorageError> {
        let found = self.remote.file_version(name, cancel)?;
        let Some(found) = found else {
            return Ok(false);
        };
        let bytes = found.bytes;
        match written {
            Written::Version(known) => Ok(known.etag.is_some() && *known == found),
            Written::Digest(known, sum) => Ok(*known == bytes && {
                let read = self.remote.read_anew(name, bytes, cancel)?;
                digest::digest(&digest::SHA256, &read).as_ref() == sum.as_ref()
            }),
            Written::File(file) => {
                let mut at = 0;
                let mut is_same = file.len() == bytes;
                while is_same && at < bytes {
                    let end = bytes.min(at + COMPARED_BYTES);
                    let read = self.remote.read_range(name, Some(bytes), at..end)?;
                    is_same = file.read_range(at, end - at)? == read;
                    at = end;
                }
                Ok(is_same)
            }
        }
    }

    /// Returns the store.
    #[must_use]
    pub const fn remote(&self) -> &Remote {
        &self.remote
    }
}

/// The number of bytes being uploaded.
#[derive(Debug, Default)]
struct Uploads {
    bytes: Mutex<u64>,
    left: Condvar,
}

/// A reservation of bytes, released when it is dropped.
struct Upload<'a> {
    uploads: &'a Uploads,
    bytes: u64,
}

impl Uploads {
    /// The maximum number of bytes in memory at once.
    const MAX_BYTES: u64 = 64 << 20;

    /// Waits for free capacity. One file is always admitted.
    fn enter(&self, bytes: u64) -> Upload<'_> {
        // A file uploaded in parts has only some of them in memory.
        let bytes = bytes.min(Self::MAX_BYTES / 2);
        let mut reserved = lock(&self.bytes);
        while *reserved > 0 && *reserved + bytes > Self::MAX_BYTES {
            reserved = self
                .left
                .wait(reserved)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *reserved += bytes;
        Upload {
            uploads: self,
            bytes,
        }
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        let mut reserved = lock(&self.uploads.bytes);
        *reserved = reserved.saturating_sub(self.bytes);
        drop(reserved);
        self.uploads.left.notify_all();
    }
}
