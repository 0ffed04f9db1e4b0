//! Finds the folder of the cache's own files, such as the list of a tree.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use shardmill_storage::{Dir, StorageError};

/// Opens or creates the folder of the cache's own files. It is next to `local`, so that programs that list `local`
/// find only shards. It is inside `local` if the parent is not writable or is on another file system.
pub fn capacity_folder(local: &Dir) -> Result<Dir, StorageError> {
    const INSIDE: &str = ".shardmill";
    if !local.exists(INSIDE)?
        && let Some((parent, name)) = parent_of(local)
        && let Ok(dir) = parent.make_private_dir(&name)
    {
        return Ok(dir);
    }
    local.make_private_dir(INSIDE)
}

/// Returns the parent of `local` and the name of the cache's own folder in it. `None` if files cannot be renamed from
/// there into `local`.
fn parent_of(local: &Dir) -> Option<(Dir, String)> {
    let path = fs::canonicalize(local.path()).ok()?;
    let name = path.file_name()?.to_str()?;
    let parent = path.parent()?;
    let same = fs::metadata(parent).ok()?.dev() == fs::metadata(&path).ok()?.dev();
    let parent = Dir::open(parent).ok().filter(|_| same)?;
    Some((parent, format!(".{name}.shardmill")))
}
