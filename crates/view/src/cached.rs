//! Which shards are in the folder of a cache.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use shardmill_storage::{Dir, StorageError};

use crate::samples::{Samples, ShardFile};

/// Describes the shards of a dataset that are in the folder `cache`: the numbers of those that are there as raw files, and as
/// stored files. A missing folder has none, because a run makes it.
///
/// # Errors
///
/// Errors of opening the folder or a file other than that it does not exist.
pub fn cached(samples: &Samples, cache: &Path) -> Result<Json, StorageError> {
    let (mut raw, mut stored) = (Vec::new(), Vec::new());
    let dir = match Dir::open(cache) {
        Ok(dir) => Some(dir),
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(error),
    };
    for (number, files) in samples.shard_files().enumerate() {
        let Some(dir) = &dir else { break };
        if has(dir, &files.raw)? {
            raw.push(number);
        } else if let Some(file) = &files.stored
            && has(dir, file)?
        {
            stored.push(number);
        }
    }
    let folder: PathBuf = cache.to_owned();
    Ok(json!({ "folder": folder.to_string_lossy(), "raw": raw, "stored": stored }))
}

/// Returns whether a file exists with its length.
fn has(dir: &Dir, (name, bytes): &ShardFile) -> Result<bool, StorageError> {
    match dir.open_file(name) {
        Ok(file) => Ok(file.len() == *bytes),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}
