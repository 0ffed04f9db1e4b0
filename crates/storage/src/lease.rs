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

/// The claim of one writer on a folder.
///
/// The kernel gives it up when the process ends, however it ends, so that no stale lease ever stands in the
/// way. It saves work and names the other writer; correctness rests on publishing, not on it.
#[derive(Debug)]
pub struct Lease {
    file: File,
    dir: Dir,
    name: String,
    /// Whoever is forked off has the file open as well, but does not own the lease.
    owner: u32,
    locked: bool,
}

enum Attempt {
    Held(Lease),
    /// The file was removed or replaced between opening and locking it.
    Lost,
}

impl Lease {
    /// Claims the lease file `name` beneath `dir`; makes the folder it lies in (private, one level) and the
    /// file where they are missing. Never waits.
    ///
    /// # Errors
    ///
    /// [`StorageError::OtherWriter`] when somebody else, this process included, holds it.
    pub fn acquire(dir: &Dir, name: &str) -> Result<Self, StorageError> {
        /// Each attempt loses only to another writer that came or went in this moment.
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
                // The folder was removed by the one who had it.
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
            // No locks on this file system, or none at the moment. Correctness does not rest on them.
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => false,
            Err(errno) => return Err(StorageError::io("lock", path(), errno)),
        };
        // INVARIANT: only the file that has the name counts. The one who held the lease before may have
        // removed it, and then the lock is on a file that nobody else will ever see.
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

    /// Whether the file system keeps other writers away; some have no locks.
    #[must_use]
    pub const fn is_exclusive(&self) -> bool {
        self.locked
    }

    /// The path of the lease file, for messages.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path_of(&self.name)
    }

    /// Ends the lease and removes the folder that its file lies in, with all that is in it but the entries called
    /// `spared`, with which it stays. For a name without a folder, only the lease file. A writer that comes at the same
    /// moment finds either the old folder, held, or none, and its new folder is left alone.
    ///
    /// # Errors
    ///
    /// As [`Dir::remove_all_in`].
    pub fn remove_folder(self, spared: &[&str]) -> Result<(), StorageError> {
        let Some((folder, last)) = self.name.rsplit_once('/') else {
            self.dir.remove(&self.name)?;
            return self.dir.sync();
        };
        // INVARIANT: the lease file goes last, while it is locked. From then on the folder may be another's,
        // so that it is removed only if it is empty.
        let mut keep = vec![OsStr::new(last)];
        keep.extend(spared.iter().map(OsStr::new));
        remove_all(&self.dir.open_dir(folder)?, &keep)?;
        self.end()
    }

    /// Ends the lease, and removes the folder that its file lies in if nothing else is there.
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
        // Closing is enough unless a child process has the file open too. The child itself must not unlock.
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
