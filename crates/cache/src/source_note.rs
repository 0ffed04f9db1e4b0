//! The note of the location that the index in a cache folder came from. With it, the cache follows a dataset that grows.
//!
//! The note is a file in the cache's own folder of an index. It exists only if the cache wrote that index.

use shardmill_storage::{Dir, PublishMode, StorageError};

use crate::folder::{own_folder, own_name, private_folder};

const NAME: &str = "source";
/// The largest note that is read, in bytes.
const NOTE_BYTES: u64 = 64 << 10;

/// Notes that the cache wrote the index with this hash into `local`, and the location that it came from.
pub fn note_source(local: &Dir, digest: &[u8; 32], source: &str) -> Result<(), StorageError> {
    own_folder(local, digest)?.publish_bytes(None, NAME, source.as_bytes(), PublishMode::Replace)
}

/// Moves the cache's own files of an index to a newer index, in which its blobs have the same numbers. Returns `false`
/// if the cache did not write the older index, or if it came from another location.
pub fn move_to_index(
    local: &Dir,
    old: &[u8; 32],
    new: &[u8; 32],
    source: &str,
) -> Result<bool, StorageError> {
    let folders = private_folder(local)?;
    let (old, new) = (own_name(old), own_name(new));
    let is_from_source = |name: &str| {
        let folder = folders.open_dir(name);
        let note = folder.and_then(|folder| folder.open_file(NAME)?.read_all(NOTE_BYTES));
        match note {
            Ok(note) => Ok(note == source.as_bytes()),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    };
    // Another process, or one that was killed before it wrote the index, may have moved the folder already.
    if is_from_source(&new)? {
        return Ok(true);
    }
    if !is_from_source(&old)? {
        return Ok(false);
    }
    match folders.rename(&old, &new, PublishMode::Replace) {
        Ok(()) => Ok(true),
        Err(_) if is_from_source(&new)? => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}
