//! Detects what an unfinished conversion left in a folder.

use shardmill_core::{JOURNAL_NAME, PARTS_FOLDER, Unfinished};
use shardmill_storage::{Dir, Folder, Remote, StorageError};

/// Returns what an unfinished conversion left in this directory.
pub(crate) fn unfinished(dir: &Dir) -> Result<Option<Unfinished>, StorageError> {
    let found = match dir.exists(JOURNAL_NAME) {
        // No writer creates its journal as a link.
        Err(StorageError::Symlink { .. }) => return Ok(None),
        found => found?,
    };
    if found {
        return Ok(Some(Unfinished::Conversion));
    }
    let parts = match dir.open_dir(PARTS_FOLDER).and_then(|parts| parts.entries()) {
        Ok(parts) => parts,
        Err(StorageError::Symlink { .. } | StorageError::NotDirectory { .. }) => return Ok(None),
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let names = parts.iter().filter_map(|entry| entry.name.to_str());
    let names: Vec<String> = names.map(|name| format!("{PARTS_FOLDER}/{name}")).collect();
    Ok(Unfinished::among(names.iter().map(String::as_str)))
}

/// Returns what an unfinished conversion left in this folder, which may be in a store.
pub fn unfinished_in(folder: &Folder) -> Result<Option<Unfinished>, StorageError> {
    match folder {
        Folder::Local(dir) => unfinished(dir),
        folder if !folder.can_list() => Ok(None),
        folder => {
            let names = folder.all_names(Remote::MAX_LISTED)?.unwrap_or_default();
            Ok(Unfinished::among(names.iter().map(String::as_str)))
        }
    }
}
