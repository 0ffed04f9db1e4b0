//! Which shards are in the folder of a cache.

use std::path::Path;

use serde_json::{Value as Json, json};
use shardmill_mds::FileInfo;
use shardmill_storage::{Dir, StorageError};

use crate::samples::Samples;

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
    for (number, (raw_file, stored_file)) in samples.shard_files().enumerate() {
        let Some(dir) = &dir else { break };
        if has(dir, raw_file)? {
            raw.push(number);
        } else if let Some(file) = stored_file
            && has(dir, file)?
        {
            stored.push(number);
        }
    }
    Ok(json!({ "folder": cache.to_string_lossy(), "raw": raw, "stored": stored }))
}

/// Returns whether a file exists with its length.
fn has(dir: &Dir, known: &FileInfo) -> Result<bool, StorageError> {
    match dir.open_file(&known.basename) {
        Ok(file) => Ok(file.len() == known.bytes),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}
