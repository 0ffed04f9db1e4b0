//! The one commit point: a data set exists when its index does.

use std::io::Write as _;

use shardmill_mds::{Index, ShardEntry};
use shardmill_storage::{Dir, PublishMode, StorageError};

use crate::error::WriteError;

/// The name of the index.
pub const INDEX_NAME: &str = "index.json";

/// Bytes of a shard as it is stored: compressed where it is compressed, data and meta together.
#[must_use]
pub fn stored_bytes(entry: &ShardEntry) -> u64 {
    let data = entry.zip_data.as_ref().unwrap_or(&entry.raw_data).bytes;
    let meta = entry
        .zip_meta
        .as_ref()
        .or(entry.raw_meta.as_ref())
        .map_or(0, |meta| meta.bytes);
    data.saturating_add(meta)
}

/// Publishes an index that must not exist yet, by way of a temporary file in `temp_folder`. An index with the same
/// bytes counts as published.
///
/// # Errors
///
/// A conflict when another index is there; otherwise what the disk says.
pub fn publish_index(
    dir: &Dir,
    temp_folder: &str,
    folder: &str,
    index: &Index,
) -> Result<(), WriteError> {
    let name = beneath(folder, INDEX_NAME);
    let text = index.to_json();
    match dir.publish_bytes(
        Some(temp_folder),
        &name,
        text.as_bytes(),
        PublishMode::CreateNew,
    ) {
        Err(StorageError::Exists { .. }) if same(dir, &name, text.as_bytes()) => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// Publishes the index of a data set whose shards have their names, in `dir` itself.
pub(crate) fn publish_last(dir: &Dir, index: &Index, durable: bool) -> Result<(), WriteError> {
    if dir.exists(INDEX_NAME)? {
        return Err(StorageError::Exists {
            path: dir.path_of(INDEX_NAME),
        }
        .into());
    }
    let text = index.to_json();
    let mut temp = dir.temp_file(None)?;
    temp.write_all(text.as_bytes())
        .map_err(|error| temp.write_error(error))?;
    // Replacing needs nothing of the file system but renaming, and nothing is there.
    if durable {
        // The names of the shards first.
        dir.sync()?;
    }
    temp.publish_pending(INDEX_NAME, PublishMode::Replace, durable)?;
    if durable {
        dir.sync()?;
    }
    Ok(())
}

/// A name in a folder, `""` being the root itself.
pub(crate) fn beneath(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

fn same(dir: &Dir, name: &str, bytes: &[u8]) -> bool {
    let limit = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    dir.open_file(name)
        .and_then(|file| file.read_all(limit))
        .is_ok_and(|there| there == bytes)
}
