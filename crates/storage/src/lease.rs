//! The lease of a directory, which lets one process write at a time.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, statat};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::StorageError;
use crate::file::FileHandle;
use crate::remove::remove_all;

/// An exclusive lock of one writer on a folder.
///
/// The kernel releases it however the process ends, so no stale lease is left behind. It avoids wasted work and names
/// the other writer. Correctness depends on atomic publishing, not on the lease.
#[derive(Debug)]
pub struct Lease {
    file: File,
    dir: Dir,
    name: String,
    /// The process that acquired the lease. A forked child inherits the open file, but does not own the lease.
    owner: u32,
    locked: bool,
}

enum Attempt {
    Held(Lease),
    /// The file was removed or replaced between opening and locking it.
    Lost,
}

impl Lease {
    /// Acquires the lease file `name` in `dir` without waiting. Creates the file and its folder (private, one level)
    /// where they are missing.
    ///
    /// # Errors
    ///
    /// [`StorageError::OtherWriter`] when another writer holds it, in this process or another one.
    pub fn acquire(dir: &Dir, name: &str) -> Result<Self, StorageError> {
        /// An attempt fails only if another writer acquires or removes the lease at the same moment.
        const ATTEMPTS: usize = 64;

        Dir::check(name)?;
        let mut lost = StorageError::OtherWriter {
            path: dir.path_of(name),
            pid: None,
        };
        for _ in 0..ATTEMPTS {
            match Self::attempt(dir, name) {
                Ok(Attempt::Held(lease)) => return Ok(lease),
                Ok(Attempt::Lost) => {}
                // The previous holder removed the folder.
                Err(error) if error.is_not_found() => lost = error,
                Err(error) => return Err(error),
            }
        }
        Err(lost)
    }

    fn attempt(dir: &Dir, name: &str) -> Result<Attempt, StorageError> {
        let path = || dir.path_of(name);
        if let Some((folder, _)) = name.rsplit_once('/') {
            dir.make_private_dir(folder)?;
        }
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let handle = dir.open_at(name, "open the lease", flags, Mode::RUSR | Mode::WUSR)?;
        let handle = FileHandle::from_handle(handle, path())?;
        let mut file = handle.into_file();
        let locked = match lock(&file) {
            Ok(()) => true,
            Err(Errno::WOULDBLOCK) => {
                return Err(StorageError::OtherWriter {
                    path: path(),
                    pid: read_pid(&mut file),
                });
            }
            // The file system has no locks, or none are left. Correctness does not depend on them.
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => false,
            Err(errno) => return Err(StorageError::io("lock", path(), errno)),
        };
        // INVARIANT: only the file that has the name counts. The previous holder may have removed the locked file, and
        // no other process can open an unlinked file.
        let ours = fstat(&file).map_err(|errno| StorageError::io("look up", path(), errno))?;
        let (parent, last) = dir.parent_of(name, "open the lease")?;
        match statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino) => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(Attempt::Lost),
            Err(errno) => return Err(StorageError::io("look up", path(), errno)),
        }
        drop(parent);
        let owner = std::process::id();
        file.set_len(0)
            .and_then(|()| file.write_all(format!("{owner}\n").as_bytes()))
            .map_err(|error| StorageError::io("write the lease", path(), error))?;
        Ok(Attempt::Held(Self {
            file,
            dir: dir.clone(),
            name: name.to_owned(),
            owner,
            locked,
        }))
    }

    /// Returns whether the file system excludes other writers. Some file systems have no locks.
    #[must_use]
    pub const fn is_exclusive(&self) -> bool {
        self.locked
    }

    /// Returns the path of the lease file, for messages.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path_of(&self.name)
    }

    /// Ends the lease and removes its folder with all contents, except the entries named in `spared`. If spared entries
    /// are present, the folder stays. If the name has no folder, only the lease file is removed. A writer that starts
    /// at the same moment finds the old folder locked or missing; a folder it creates is not touched.
    ///
    /// # Errors
    ///
    /// As [`Dir::remove_all_in`].
    pub fn remove_folder(self, spared: &[&str]) -> Result<(), StorageError> {
        let Some((folder, last)) = self.name.rsplit_once('/') else {
            self.dir.remove(&self.name)?;
            return self.dir.sync();
        };
        // INVARIANT: the lease file is removed last, while it is locked. After that the folder may belong to another
        // writer, so it is removed only if it is empty.
        let mut keep = vec![OsStr::new(last)];
        keep.extend(spared.iter().map(OsStr::new));
        remove_all(&self.dir.open_dir(folder)?, &keep)?;
        self.end()
    }

    /// Ends the lease, and removes its folder if nothing else is in it.
    ///
    /// # Errors
    ///
    /// As [`Dir::remove`] and [`Dir::remove_dir`].
    pub fn end(self) -> Result<(), StorageError> {
        self.dir.remove(&self.name)?;
        let Some((folder, _)) = self.name.rsplit_once('/') else {
            return self.dir.sync();
        };
        match self.dir.remove_dir(folder) {
            Ok(_) => {}
            Err(StorageError::Io { source, .. }) if is_not_empty(&source) => {}
            Err(error) => return Err(error),
        }
        self.dir.sync()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Closing the file releases the lock, unless a child process has it open too. The child itself must not unlock.
        if self.locked && self.owner == std::process::id() {
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

fn lock(file: &File) -> rustix::io::Result<()> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn is_not_empty(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::DirectoryNotEmpty | std::io::ErrorKind::AlreadyExists
    )
}
