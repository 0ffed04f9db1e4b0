//! Removes the contents of a folder that shardmill created.

use std::ffi::OsStr;

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::entry::EntryKind;
use crate::error::StorageError;

/// Folders that shardmill creates are two or three levels deep.
const MAX_LEVELS: usize = 32;

/// Removes the contents of `dir`, except its top-level entries named in `keep`. Checks all entries first: if any is of
/// a type that shardmill never creates, nothing is removed.
pub(crate) fn remove_all(dir: &Dir, keep: &[&OsStr]) -> Result<(), StorageError> {
    walk(dir, keep, 0, false)?;
    walk(dir, keep, 0, true)
}

impl Dir {
    /// Removes the contents of the directory `name`, but not the directory itself. Only regular files and directories
    /// are removed: if there is any other entry, nothing is removed.
    ///
    /// # Errors
    ///
    /// [`StorageError::Symlink`] or [`StorageError::NotRegular`] for what is neither; `Permission`, `Storage`.
    pub fn remove_all_in(&self, name: &str) -> Result<(), StorageError> {
        remove_all(&self.open_dir(name)?, &[])
    }
}

fn walk(dir: &Dir, keep: &[&OsStr], level: usize, remove: bool) -> Result<(), StorageError> {
    for entry in dir.entries()? {
        if keep.contains(&entry.name.as_os_str()) {
            continue;
        }
        let path = dir.path().join(&entry.name);
        match entry.kind {
            EntryKind::File => {
                if remove {
                    unlink(dir, &entry.name, AtFlags::empty())?;
                }
            }
            EntryKind::Directory if level < MAX_LEVELS => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let handle = match openat(dir.fd()?, &entry.name, flags, Mode::empty()) {
                    Ok(handle) => handle,
                    Err(Errno::NOENT) => continue,
                    Err(errno) => {
                        return Err(StorageError::resolving("open the directory", path, errno));
                    }
                };
                walk(
                    &Dir::from_handle(handle, path, dir.resolver()),
                    &[],
                    level + 1,
                    remove,
                )?;
                if remove {
                    unlink(dir, &entry.name, AtFlags::REMOVEDIR)?;
                }
            }
            EntryKind::Symlink => return Err(StorageError::Symlink { path }),
            found => return Err(StorageError::NotRegular { path, found }),
        }
    }
    Ok(())
}

fn unlink(dir: &Dir, name: &OsStr, flags: AtFlags) -> Result<(), StorageError> {
    match unlinkat(dir.fd()?, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        // A file system is mounted there.
        Err(Errno::BUSY) if flags.contains(AtFlags::REMOVEDIR) => Ok(()),
        Err(errno) => Err(StorageError::io("remove", dir.path().join(name), errno)),
    }
}
