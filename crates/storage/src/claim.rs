//! Lock files by which the processes of one machine coordinate: which process works on something, and which ones read
//! it.

use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, statat};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::error::{StorageError, if_found};
use crate::file::{FileBirth, FileHandle, birth_of};
use crate::open_claims;

/// The mode in which a claim is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimMode {
    /// Any number of processes can hold it.
    Shared,
    /// Only one process can hold it.
    Exclusive,
}

/// The outcome of an attempt to lock a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// The claim is held until it is dropped or the process ends.
    Held,
    /// Another holder has the claim in a conflicting mode.
    Busy,
    /// The file system does not support locks, so the holder is unknown.
    Unknown,
}

/// A file with locks, whose descriptor a forked child gives up.
#[derive(Debug)]
pub(crate) struct ClaimFile(File);

impl ClaimFile {
    /// Opens the file for reading and writing. Creates it with mode 0600 if it is missing.
    pub(crate) fn create_or_open(dir: &Dir, name: &str) -> Result<Self, StorageError> {
        Self::open(dir, name, OFlags::RDWR | OFlags::CREATE)
    }

    /// Opens the file for reading only.
    pub(crate) fn open_readable(dir: &Dir, name: &str) -> Result<Self, StorageError> {
        Self::open(dir, name, OFlags::RDONLY)
    }

    fn open(dir: &Dir, name: &str, flags: OFlags) -> Result<Self, StorageError> {
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        // Some kernels refuse a mode without `O_CREAT`.
        let mode = if flags.contains(OFlags::CREATE) {
            Mode::RUSR | Mode::WUSR
        } else {
            Mode::empty()
        };
        let file = open_claims::open(|| {
            let handle = dir.open_at(name, "open", flags, mode)?;
            FileHandle::from_handle(handle, dir.path_of(name)).map(FileHandle::into_file)
        })?;
        Ok(Self(file))
    }
}

impl Deref for ClaimFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for ClaimFile {
    fn drop(&mut self) {
        open_claims::remove(self.0.as_raw_fd());
    }
}

/// An open lock file. Its advisory locks are released by the kernel when the process ends.
///
/// No operation blocks. Claims are best effort: they avoid duplicate work and protect files that are being read, but
/// correctness must not depend on them. Two claims on the same file also exclude each other within one process.
#[derive(Debug)]
pub struct Claim {
    file: ClaimFile,
    dir: Dir,
    name: String,
    /// The process that made the claim. A forked child inherits the open file, but does not own the claim.
    owner: u32,
    held: Option<ClaimMode>,
}

impl Claim {
    /// Creates the file with mode 0600. Returns `None` if the name exists already.
    pub fn create(dir: &Dir, name: &str) -> Result<Option<Self>, StorageError> {
        let flags = OFlags::CREATE | OFlags::EXCL;
        match Self::open_with(dir, name, flags) {
            Ok(claim) => Ok(Some(claim)),
            Err(StorageError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::AlreadyExists =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens the file. Returns `None` if it does not exist. On a read-only file system, it cannot be written to.
    ///
    /// # Errors
    ///
    /// [`StorageError::Symlink`], [`StorageError::NotRegular`], `Permission`.
    pub fn open(dir: &Dir, name: &str) -> Result<Option<Self>, StorageError> {
        if_found(Self::open_with(dir, name, OFlags::empty()))
    }

    /// Opens the file. Creates it with mode 0600 if it is missing.
    ///
    /// # Errors
    ///
    /// As [`Claim::open`], and when the file cannot be created.
    pub fn open_or_create(dir: &Dir, name: &str) -> Result<Self, StorageError> {
        Self::open_with(dir, name, OFlags::CREATE)
    }

    fn open_with(dir: &Dir, name: &str, flags: OFlags) -> Result<Self, StorageError> {
        let file = match ClaimFile::open(dir, name, flags | OFlags::RDWR) {
            // An existing file of a read-only file system can be read and locked.
            Err(error) if error.is_read_only() && flags.is_empty() => {
                ClaimFile::open_readable(dir, name)?
            }
            opened => opened?,
        };
        Ok(Self {
            file,
            dir: dir.clone(),
            name: name.to_owned(),
            owner: std::process::id(),
            held: None,
        })
    }

    #[cfg(test)]
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the path of the file, for messages.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path_of(&self.name)
    }

    /// Tries to lock the claim without waiting. A lock that is held in the other mode is converted, and can be lost if
    /// the conversion fails.
    ///
    /// # Errors
    ///
    /// `Storage`. Missing support for locks is not an error but [`ClaimState::Unknown`].
    pub fn lock(&mut self, mode: ClaimMode) -> Result<ClaimState, StorageError> {
        let operation = match mode {
            ClaimMode::Shared => FlockOperation::NonBlockingLockShared,
            ClaimMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        loop {
            match flock(&*self.file, operation) {
                Ok(()) => {
                    self.held = Some(mode);
                    return Ok(ClaimState::Held);
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => {
                    // The kernel releases the old lock before it tries to take the new one.
                    self.held = None;
                    return Ok(ClaimState::Busy);
                }
                Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    return Ok(ClaimState::Unknown);
                }
                Err(errno) => return Err(StorageError::io("lock", self.path(), errno)),
            }
        }
    }

    /// Returns the mode in which the claim is held, or `None`.
    #[must_use]
    pub const fn held(&self) -> Option<ClaimMode> {
        self.held
    }

    /// Returns whether the file still has its name. Check this after locking: the previous holder may have removed the
    /// file. Then the lock is on an unlinked file that no other process can open.
    pub fn is_named(&self) -> Result<bool, StorageError> {
        let failed = |errno| StorageError::io("look up", self.path(), errno);
        let ours = fstat(&*self.file).map_err(failed)?;
        let (parent, last) = self.dir.parent_of(&self.name, "look up")?;
        match statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Returns the inode and creation time of the file.
    pub fn birth(&self) -> Result<FileBirth, StorageError> {
        birth_of(self.file.as_fd()).map_err(|errno| StorageError::io("look up", self.path(), errno))
    }

    /// Reads at most `most` bytes from `offset`. Returns fewer at the end of the file.
    pub fn read(&self, offset: u64, max: usize) -> Result<Vec<u8>, StorageError> {
        let mut bytes = vec![0; max];
        let mut filled = 0;
        while let Some(room) = bytes.get_mut(filled..).filter(|room| !room.is_empty()) {
            match self
                .file
                .read_at(room, offset.saturating_add(filled as u64))
            {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StorageError::io("read", self.path(), error)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Writes bytes at `offset`, with a single system call where the system accepts them all at once.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| StorageError::io("write", self.path(), error))
    }

    /// Replaces the contents with `bytes`. Concurrent readers may see a part of them.
    pub fn replace(&self, bytes: &[u8]) -> Result<(), StorageError> {
        self.write(0, bytes)?;
        self.file
            .set_len(bytes.len() as u64)
            .map_err(|error| StorageError::io("cut", self.path(), error))
    }

    /// Removes the name, if it still belongs to this file. The claim stays locked until it is dropped; processes that
    /// open the file meanwhile detect with [`Claim::is_named`] that it was removed.
    pub fn remove(&self) -> Result<(), StorageError> {
        if self.is_named()? {
            self.dir.remove(&self.name)?;
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Closing the file releases the lock, unless a child process has it open too. The child itself must not unlock.
        if self.held.is_some() && self.owner == std::process::id() {
            let _ = flock(&*self.file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::root;

    #[test]
    fn shared_and_exclusive_claims_exclude_each_other() {
        use ClaimMode::{Exclusive, Shared};
        use ClaimState::{Busy, Held};

        let (_root, dir) = root();
        let mut one = Claim::create(&dir, "7").unwrap().unwrap();
        let mut two = Claim::open(&dir, "7").unwrap().unwrap();
        assert_eq!(one.lock(Shared).unwrap(), Held);
        assert_eq!(two.lock(Shared).unwrap(), Held);
        assert_eq!(two.lock(Exclusive).unwrap(), Busy);
        assert_eq!(two.held(), None);
        assert_eq!(one.lock(Exclusive).unwrap(), Held);
        assert_eq!(two.lock(Shared).unwrap(), Busy);
        drop(one);
        assert_eq!(two.lock(Exclusive).unwrap(), Held);
    }

    #[test]
    fn claim_detects_removed_or_replaced_file() {
        let (_root, dir) = root();
        let old = Claim::create(&dir, "7").unwrap().unwrap();
        assert!(old.is_named().unwrap());
        assert!(Claim::create(&dir, "7").unwrap().is_none());
        old.remove().unwrap();
        assert!(!old.is_named().unwrap());
        let new = Claim::create(&dir, "7").unwrap().unwrap();
        assert!(!old.is_named().unwrap() && new.is_named().unwrap());
        // The name belongs to another file now, so it is not removed.
        old.remove().unwrap();
        assert!(new.is_named().unwrap());
        assert!(Claim::open(&dir, "8").unwrap().is_none());
    }

    #[test]
    fn replace_overwrites_and_truncates_claim_contents() {
        let (_root, dir) = root();
        let claim = Claim::open_or_create(&dir, "7").unwrap();
        claim.replace(b"long enough").unwrap();
        claim.replace(b"short").unwrap();
        claim.write(8, b"!").unwrap();
        assert_eq!(claim.read(0, 100).unwrap(), b"short\0\0\0!");
        assert_eq!(claim.read(1, 3).unwrap(), b"hor");
        assert_eq!(claim.read(50, 3).unwrap(), b"");
    }

    #[test]
    fn claim_does_not_follow_symlinks() {
        let (root, dir) = root();
        std::fs::write(root.path().join("victim"), b"x").unwrap();
        std::os::unix::fs::symlink("victim", root.path().join("7")).unwrap();
        for error in [
            Claim::open(&dir, "7").unwrap_err(),
            Claim::open_or_create(&dir, "7").unwrap_err(),
        ] {
            assert!(matches!(error, StorageError::Symlink { .. }), "{error:?}");
        }
        assert!(Claim::create(&dir, "7").unwrap().is_none());
    }
}
