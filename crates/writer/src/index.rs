//! The one commit point: a dataset exists when its index does.

use std::io::Write as _;

use shardmill_mds::Index;
use shardmill_storage::{Dir, GoOn, Place, PublishMode, StorageError};

use crate::entry::DatasetIndex;
use crate::error::WriteError;

/// The name of the index.
pub const INDEX_NAME: &str = "index.json";

/// Publishes an index that must not exist yet, in a directory by way of a temporary file in `temp_folder`. An index with
/// the same bytes counts as published.
///
/// # Errors
///
/// A conflict when another index is there; otherwise what the disk or the store says.
pub fn publish_index(
    place: &Place,
    temp_folder: &str,
    folder: &str,
    index: &DatasetIndex,
    go_on: &mut GoOn<'_>,
) -> Result<(), WriteError> {
    let name = beneath(folder, INDEX_NAME);
    let text = index.to_json();
    let (folder, mode) = (Some(temp_folder), PublishMode::CreateNew);
    Ok(place.publish_bytes(folder, &name, text.as_bytes(), mode, go_on)?)
}

/// Publishes the index of a dataset whose shards have their names, in `dir` itself.
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
