//! A directory or a prefix in a store, written to by the same names in the same way.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::dir::{Dir, Entry, EntryKind};
use crate::error::StorageError;
use crate::location::Location;
use crate::remote::{GoOn, Remote, RemoteOptions};
use crate::temp::{PublishMode, TempFile};

/// Where a dataset is written: a directory, or a prefix in a store. Clones share everything.
///
/// Files begin as a [`TempFile`], in the directory itself or, for a store, in a local one under no name, and get their
/// name by [`Place::publish`]. What takes long asks `go_on` several times a second and ends with `interrupted` where the
/// answer is `false`.
#[derive(Clone, Debug)]
pub enum Place {
    /// A directory of this machine.
    Local(Dir),
    /// A prefix in a store.
    Store(StorePlace),
}

/// A prefix in a store, and the local directory that files for it are made in.
#[derive(Clone, Debug)]
pub struct StorePlace {
    remote: Remote,
    spool: Dir,
    uploads: Arc<Uploads>,
}

/// What is known of a published file, to recognise it by later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// Its length.
    pub bytes: u64,
    /// The tag that the store gave it; a directory has none.
    pub etag: Option<String>,
}

/// Something in a folder of a [`Place`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlaceEntry {
    /// Its name. A name that is not UTF-8 has replacement characters and cannot be opened.
    pub name: String,
    /// Whether it is a folder: in a store, whether names go on behind it.
    pub is_folder: bool,
}

impl From<Entry> for PlaceEntry {
    fn from(entry: Entry) -> Self {
        Self {
            name: entry.name.to_string_lossy().into_owned(),
            is_folder: entry.kind == EntryKind::Directory,
        }
    }
}

/// How often a store is asked for what was put: an answer may be wrong.
const LOOKS: usize = 3;

impl Place {
    /// Opens a location that is there; of a store nothing is asked. `spool` is where files for a store are made, the
    /// system's directory for temporary files where there is none.
    ///
    /// # Errors
    ///
    /// As [`Dir::open`] and [`Remote::open`]; `store-unsupported` where a store takes no objects.
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

    /// As [`Place::open`]; makes the directory where it is missing.
    ///
    /// # Errors
    ///
    /// As [`Dir::create`] and [`Remote::open`]; `store-unsupported` where a store takes no objects.
    pub fn create(
        location: &Location,
        options: &RemoteOptions,
        spool: Option<&Path>,
    ) -> Result<Self, StorageError> {
        let remote = match location {
            Location::Local(path) => return Dir::create(path).map(Self::Local),
            Location::Remote(remote) => remote,
        };
        let mut options = options.clone();
        options.put_split_above = options.put_split_above.min(StorePlace::WHOLE_BYTES);
        options.put_part_bytes = options.put_part_bytes.min(StorePlace::PART_BYTES);
        let remote = Remote::open(remote, &options)?;
        remote.check_writable()?;
        let spool = match spool {
            Some(path) => Dir::open(path)?,
            None => Dir::open(&std::env::temp_dir())?,
        };
        Ok(Self::Store(StorePlace {
            remote,
            spool,
            uploads: Arc::default(),
        }))
    }

    /// Where it is.
    #[must_use]
    pub fn location(&self) -> Location {
        match self {
            Self::Local(dir) => Location::Local(dir.path().to_owned()),
            Self::Store(store) => Location::Remote(store.remote.location().clone()),
        }
    }

    /// The path or the URL of a name, for messages.
    #[must_use]
    pub fn display(&self, name: &str) -> String {
        match self {
            Self::Local(dir) => dir.path_of(name).display().to_string(),
            Self::Store(store) => store.remote.display(name),
        }
    }

    /// The directory, where it is one of this machine.
    #[must_use]
    pub const fn as_local(&self) -> Option<&Dir> {
        match self {
            Self::Local(dir) => Some(dir),
            Self::Store(_) => None,
        }
    }

    /// How many files are worth publishing at once: waiting for a disk is waiting once, waiting for a store is not.
    #[must_use]
    pub const fn publishers(&self) -> usize {
        match self {
            Self::Local(_) => 1,
            Self::Store(_) => 8,
        }
    }

    /// Starts a file that nobody sees yet: in `folder` of the directory, which has to be there; for a store in the spool,
    /// without a name, so that nothing is left of it however the process ends.
    ///
    /// # Errors
    ///
    /// As [`Dir::temp_file`].
    pub fn temp_file(&self, folder: Option<&str>) -> Result<TempFile, StorageError> {
        match self {
            Self::Local(dir) => dir.temp_file(folder).map(TempFile::written_behind),
            Self::Store(store) => TempFile::nameless(&store.spool),
        }
    }

    /// Gives a file of [`Place::temp_file`] its name. Once this returns, it is there for good: a directory has brought it
    /// to the disk, a store has compared its checksum and shows its length.
    ///
    /// # Errors
    ///
    /// As [`TempFile::publish`], [`Remote::put_file`] and [`Remote::put_new`].
    pub fn publish(
        &self,
        file: TempFile,
        name: &str,
        mode: PublishMode,
        go_on: &mut GoOn<'_>,
    ) -> Result<FileVersion, StorageError> {
        let bytes = file.written();
        let store = match self {
            Self::Local(_) => {
                file.publish(name, mode)?;
                return Ok(FileVersion { bytes, etag: None });
            }
            Self::Store(store) => store,
        };
        let file = file.into_handle()?;
        // PERF: only so many bytes are in memory and under way, whoever publishes.
        let held = store.uploads.enter(bytes);
        match mode {
            PublishMode::Replace => store.remote.put_file(name, &file, go_on)?,
            PublishMode::CreateNew => {
                store.remote.put_new(name, file.read_all(bytes)?, go_on)?;
            }
        }
        drop(held);
        let mut found = None;
        for _ in 0..LOOKS {
            found = self.file_version(name, go_on)?;
            if let Some(file_version) = &found
                && file_version.bytes == bytes
            {
                return Ok(file_version.clone());
            }
        }
        Err(store.remote.not_as_put(name, bytes, found))
    }

    /// Publishes a small file in one go, in a directory by way of a temporary file in `folder`. With
    /// [`PublishMode::CreateNew`] the same bytes under the name count as published.
    ///
    /// # Errors
    ///
    /// As [`Place::publish`].
    pub fn publish_bytes(
        &self,
        folder: Option<&str>,
        name: &str,
        bytes: &[u8],
        mode: PublishMode,
        go_on: &mut GoOn<'_>,
    ) -> Result<(), StorageError> {
        match (self, mode) {
            (Self::Local(dir), _) => match dir.publish_bytes(folder, name, bytes, mode) {
                Err(StorageError::Exists { .. }) if self.holds(name, bytes, go_on) => Ok(()),
                published => published,
            },
            (Self::Store(store), PublishMode::Replace) => {
                store.remote.put(name, bytes.to_vec(), go_on)
            }
            (Self::Store(store), PublishMode::CreateNew) => store
                .remote
                .put_new(name, bytes.to_vec(), go_on)
                .map(|_| ()),
        }
    }

    /// Whether a name has these bytes; `false` where that cannot be told.
    fn holds(&self, name: &str, bytes: &[u8], go_on: &mut GoOn<'_>) -> bool {
        let most = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let there = self.read(name, most, go_on).ok().flatten();
        there.as_deref() == Some(bytes)
    }

    /// What is known of a file; `None` where there is none. Costs a store one `HEAD`.
    ///
    /// # Errors
    ///
    /// As [`Dir::open_file`] and [`Remote::size`].
    pub fn file_version(
        &self,
        name: &str,
        go_on: &mut GoOn<'_>,
    ) -> Result<Option<FileVersion>, StorageError> {
        match self {
            Self::Local(dir) => match dir.open_file(name) {
                Ok(file) => Ok(Some(FileVersion {
                    bytes: file.len(),
                    etag: None,
                })),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            },
            Self::Store(store) => store.remote.file_version(name, go_on),
        }
    }

    /// The contents of a file of at most `most` bytes; `None` where there is none.
    ///
    /// # Errors
    ///
    /// As [`Dir::open_file`] and [`Remote::read`].
    pub fn read(
        &self,
        name: &str,
        most: u64,
        go_on: &mut GoOn<'_>,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let read = match self {
            Self::Local(dir) => dir.open_file(name).and_then(|file| file.read_all(most)),
            Self::Store(store) => store.remote.read_anew(name, most, go_on),
        };
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What is in a folder, `""` being the place itself, sorted by the bytes of its names. A folder that is missing is
    /// empty.
    ///
    /// # Errors
    ///
    /// As [`Dir::entries`] and [`Remote::list`].
    pub fn entries(
        &self,
        folder: &str,
        go_on: &mut GoOn<'_>,
    ) -> Result<Vec<PlaceEntry>, StorageError> {
        let dir = match self {
            Self::Store(store) => return store.remote.entries(folder, go_on),
            Self::Local(dir) if folder.is_empty() => dir.clone(),
            Self::Local(dir) => match dir.open_dir(folder) {
                Ok(dir) => dir,
                Err(error) if error.is_not_found() => return Ok(Vec::new()),
                Err(error) => return Err(error),
            },
        };
        let entries = dir.entries()?.into_iter();
        Ok(entries.map(PlaceEntry::from).collect())
    }

    /// Removes a file; that nothing has the name is no error. [`Place::sync`] makes it last.
    ///
    /// # Errors
    ///
    /// As [`Dir::remove`] and [`Remote::remove`].
    pub fn remove(&self, name: &str, go_on: &mut GoOn<'_>) -> Result<(), StorageError> {
        match self {
            Self::Local(dir) => dir.remove(name).map(|_| ()),
            Self::Store(store) => store.remote.remove(name, go_on),
        }
    }

    /// Makes a folder, which a store has no need of.
    ///
    /// # Errors
    ///
    /// As [`Dir::make_dir`].
    pub fn make_folder(&self, name: &str) -> Result<(), StorageError> {
        match self {
            Self::Local(dir) => dir.make_dir(name).map(|_| ()),
            Self::Store(_) => Ok(()),
        }
    }

    /// Removes a folder that is empty; that there is none is no error.
    ///
    /// # Errors
    ///
    /// As [`Dir::remove_dir`].
    pub fn remove_folder(&self, name: &str) -> Result<(), StorageError> {
        match self {
            Self::Local(dir) => dir.remove_dir(name).map(|_| ()),
            Self::Store(_) => Ok(()),
        }
    }

    /// Waits until names that were given and taken away survive a power cut. In a store they do.
    ///
    /// # Errors
    ///
    /// As [`Dir::sync`].
    pub fn sync(&self) -> Result<(), StorageError> {
        match self {
            Self::Local(dir) => dir.sync(),
            Self::Store(_) => Ok(()),
        }
    }
}

impl StorePlace {
    /// Files of up to so many bytes are put in one request …
    const WHOLE_BYTES: u64 = 16 << 20;
    /// … and others in parts of so many bytes at first.
    const PART_BYTES: u64 = 8 << 20;

    /// The store.
    #[must_use]
    pub const fn remote(&self) -> &Remote {
        &self.remote
    }
}

/// How many bytes are being put.
#[derive(Debug, Default)]
struct Uploads {
    bytes: Mutex<u64>,
    left: Condvar,
}

/// A share of them, until it is dropped.
struct Upload<'a> {
    uploads: &'a Uploads,
    bytes: u64,
}

impl Uploads {
    /// Bytes in memory at once.
    const MOST: u64 = 64 << 20;

    /// Waits for room. One file is always let in.
    fn enter(&self, bytes: u64) -> Upload<'_> {
        // A file that goes in parts has only some of them in memory.
        let bytes = bytes.min(Self::MOST / 2);
        let mut held = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        while *held > 0 && *held + bytes > Self::MOST {
            held = self.left.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        *held += bytes;
        Upload {
            uploads: self,
            bytes,
        }
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        let mut held = self
            .uploads
            .bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *held = held.saturating_sub(self.bytes);
        drop(held);
        self.uploads.left.notify_all();
    }
}
