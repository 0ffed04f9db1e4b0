//! Maps files, and names pieces of their bytes.

use shardmill_mmap::Mapping;
use shardmill_storage::{FileHandle, StorageError};

/// Maps a file.
pub fn map(file: &FileHandle) -> Result<Mapping, StorageError> {
    use std::os::fd::AsFd as _;

    let bytes = usize::try_from(file.len()).map_err(|_| StorageError::OutOfMemory {
        path: file.path().to_owned(),
        bytes: file.len(),
    })?;
    Mapping::new(file.as_fd(), bytes).map_err(|source| StorageError::Io {
        action: "map",
        path: file.path().to_owned(),
        source,
    })
}

/// Bytes of a shard, and their position in it.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The offset of the bytes in the shard.
    pub begin: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}
