//! Publishes indexes. A dataset exists once its index is published, so this is its only commit point.

use std::io::Write as _;

use shardmill_core::Error;
use shardmill_mds::Index;
use shardmill_storage::{CancelToken, Destination, Dir, PublishMode, StorageError};

use crate::entry::DatasetIndex;

pub use shardmill_core::{INDEX_NAME, TABLE_INDEX_NAME};

/// Publishes the index of a new dataset in `folder`, through a temporary file in `temp_folder`.
///
/// If an index with the same bytes exists, the call succeeds.
///
/// # Errors
///
/// Returns a conflict if a different index exists, or the error of the disk or the store.
pub fn publish_index(
    destination: &Destination,
    temp_folder: &str,
    folder: &str,
    index: &DatasetIndex,
    cancel: &mut CancelToken<'_>,
) -> Result<(), Error> {
    let name = in_folder(folder, index.format.index_name());
    let text = index.to_json();
    let (folder, mode) = (Some(temp_folder), PublishMode::CreateNew);
    Ok(destination.publish_bytes(folder, &name, text.as_bytes(), mode, cancel)?)
}

/// Publishes the index of a dataset in `dir` itself. The shards must have their final names.
pub(crate) fn publish_last(dir: &Dir, index: &Index, durable: bool) -> Result<(), Error> {
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
    // The check above has shown that no index exists, so `Replace` is safe. It needs only rename support from the file
    // system.
    if durable {
        // The names of the shards must be durable before the index is.
        dir.sync()?;
    }
    temp.publish_pending(INDEX_NAME, PublishMode::Replace, durable)?;
    if durable {
        dir.sync()?;
    }
    Ok(())
}

/// Joins a folder and a name. `""` is the root.
#[must_use]
pub fn in_folder(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}
