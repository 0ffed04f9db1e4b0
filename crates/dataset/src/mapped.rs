//! Maps files, names pieces of their bytes, and detects changes of them.

use shardmill_mmap::Mapping;
use shardmill_storage::{FileHandle, StorageError, Stored};

/// Maps a file.
pub fn map(file: &FileHandle) -> Result<Mapping, StorageError> {
    use std::os::fd::AsFd as _;

    let failed = |source| StorageError::Io {
        action: "map",
        path: file.path().to_owned(),
        source,
    };
    let bytes = usize::try_from(file.len());
    let bytes = bytes.map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
    Mapping::new(file.as_fd(), bytes).map_err(failed)
}

/// Returns the version of a file: its modification time, or the tag that its store reports. Equal versions mean that
/// the file has not changed.
#[must_use]
pub fn version_of(file: &Stored) -> Vec<u8> {
    match (file.as_file(), file.tag()) {
        (Some(file), _) => {
            let modified = file.modified().duration_since(std::time::UNIX_EPOCH);
            let nanos = modified.map_or(0, |since| since.as_nanos());
            nanos.to_le_bytes().to_vec()
        }
        (None, tag) => tag.unwrap_or_default().as_bytes().to_vec(),
    }
}

/// The bytes of a file, mapped or in memory.
#[derive(Debug)]
pub enum ShardBytes {
    /// A mapped file.
    Mapped(Mapping),
    /// Bytes that were read or decompressed.
    Memory(Vec<u8>),
}

impl ShardBytes {
    /// Maps a local file, or reads an object of a store of at most `most` bytes.
    pub(crate) fn of(file: &Stored, max: u64) -> Result<Self, StorageError> {
        match file.as_file() {
            Some(file) => Ok(Self::Mapped(map(file)?)),
            None => Ok(Self::Memory(file.read_all(max)?)),
        }
    }

    /// Returns whether the file could not be read, or was truncated, since it was opened. If so, bytes that were read
    /// since then are invalid.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        match self {
            Self::Mapped(mapping) => mapping.is_damaged(),
            Self::Memory(_) => false,
        }
    }
}

impl AsRef<[u8]> for ShardBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.bytes(),
            Self::Memory(bytes) => bytes,
        }
    }
}

/// Bytes of a shard, and their position in it.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The offset of the bytes in the shard.
    pub begin: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}
