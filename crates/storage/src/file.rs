//! An open file: its identity, and reads at any position.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, OFlags, fstat};
use rustix::io::{Errno, pread};

use crate::entry::EntryKind;
use crate::error::StorageError;

/// The length and modification time of a file, by which changes are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    bytes: u64,
    changed: (i64, u64),
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct FileHandle {
    handle: OwnedFd,
    path: PathBuf,
    state: State,
}

impl FileHandle {
    /// Opens a file by a path that the user gave. Symbolic links are followed. Never blocks.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Permission`; [`StorageError::NotRegular`].
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => Self::from_handle(file.into(), path.to_owned()),
            Err(error) => Err(StorageError::opening(path.to_owned(), error)),
        }
    }

    pub(crate) fn from_handle(handle: OwnedFd, path: PathBuf) -> Result<Self, StorageError> {
        let stat = fstat(&handle).map_err(|errno| StorageError::io("look up", &path, errno))?;
        match FileType::from_raw_mode(stat.st_mode).into() {
            EntryKind::File => {}
            found => return Err(StorageError::NotRegular { path, found }),
        }
        let state = state_of(&stat);
        Ok(Self {
            handle,
            path,
            state,
        })
    }

    pub(crate) fn into_file(self) -> File {
        File::from(self.handle)
    }

    /// Returns the path it was opened by, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length in bytes when the file was opened.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.state.bytes
    }

    /// Returns the device, inode, length and modification time, which identify this version of the file.
    pub fn identity(&self) -> Result<FileIdentity, StorageError> {
        let stat =
            fstat(&self.handle).map_err(|errno| StorageError::io("look up", &self.path, errno))?;
        #[expect(
            clippy::useless_conversion,
            reason = "the types of these fields differ between systems"
        )]
        Ok(FileIdentity {
            device: u64::from(stat.st_dev),
            inode: u64::from(stat.st_ino),
            state: self.state,
        })
    }

    /// Returns whether the file was empty when it was opened.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.state.bytes == 0
    }

    /// Fills `buffer` with the bytes from `offset`.
    ///
    /// # Errors
    ///
    /// [`StorageError::Range`] when the range ends after the end of the file, [`StorageError::Changed`] when the file
    /// became shorter since it was opened, and `Storage`.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), StorageError> {
        self.check_range(offset, buffer.len() as u64)?;
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            match pread(&self.handle, &mut *rest, at) {
                Ok(0) => return Err(self.changed()),
                Ok(read) => {
                    at += read as u64;
                    rest = rest.get_mut(read..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(StorageError::io("read", &self.path, errno)),
            }
        }
        Ok(())
    }

    /// Reads `len` bytes from `offset`. Compares the range with the length of the file before it allocates memory.
    ///
    /// # Errors
    ///
    /// As [`FileHandle::read_at`]; [`StorageError::NoMemory`].
    pub fn read_range(&self, offset: u64, len: u64) -> Result<Vec<u8>, StorageError> {
        let mut bytes = Vec::new();
        self.check_range(offset, len)?;
        self.append(&mut bytes, offset, len)?;
        Ok(bytes)
    }

    /// Reads the whole file. Errors are those of [`FileHandle::read_all_into`].
    pub fn read_all(&self, max: u64) -> Result<Vec<u8>, StorageError> {
        let mut bytes = Vec::new();
        self.read_all_into(&mut bytes, max)?;
        Ok(bytes)
    }

    /// Reads the whole file into `bytes`, and reuses its memory.
    ///
    /// # Errors
    ///
    /// [`StorageError::TooLarge`] above `max`, [`StorageError::Changed`] when the length or modification time differs
    /// from when the file was opened, [`StorageError::NoMemory`], `Storage`.
    pub fn read_all_into(&self, bytes: &mut Vec<u8>, max: u64) -> Result<(), StorageError> {
        bytes.clear();
        self.check_size(max)?;
        self.append(bytes, 0, self.len())?;
        self.check_unchanged()
    }

    /// Reads the bytes that the file had when it was opened, or fewer if it became shorter. For logs to which another
    /// process may be appending, or that it may be truncating, at the same time.
    ///
    /// # Errors
    ///
    /// [`StorageError::TooLarge`] above `max`, [`StorageError::NoMemory`], `Storage`.
    pub fn read_log(&self, max: u64) -> Result<Vec<u8>, StorageError> {
        let mut bytes = Vec::new();
        self.check_size(max)?;
        self.fill(&mut bytes, 0, self.len())?;
        Ok(bytes)
    }

    /// Returns a stream over the whole file, for contents that need not be in memory at once. Call
    /// [`FileHandle::check_unchanged`] at the end.
    #[must_use]
    pub const fn reader(&self) -> FileReader<'_> {
        FileReader { file: self, at: 0 }
    }

    /// Returns the inode and creation time of the file.
    pub fn birth(&self) -> Result<FileBirth, StorageError> {
        birth_of(self.handle.as_fd())
            .map_err(|errno| StorageError::io("look up", &self.path, errno))
    }

    /// Returns the modification time that the file had when it was opened.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        let (seconds, nanos) = self.state.changed;
        let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
            .saturating_add(Duration::from_nanos(nanos));
        SystemTime::UNIX_EPOCH
            .checked_add(since)
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Returns the modification time that the file had when it was opened, in the format of
    /// [`Dir::files`](crate::Dir::files).
    #[must_use]
    pub fn tag(&self) -> String {
        self.state.tag()
    }

    /// Checks that the file has not changed since it was opened.
    ///
    /// # Errors
    ///
    /// [`StorageError::Changed`] when its length or modification time differs.
    pub fn check_unchanged(&self) -> Result<(), StorageError> {
        if self.state_now()? == self.state {
            return Ok(());
        }
        Err(self.changed())
    }

    fn check_size(&self, max: u64) -> Result<(), StorageError> {
        if self.len() <= max {
            return Ok(());
        }
        Err(StorageError::TooLarge {
            path: self.path.clone(),
            bytes: self.len(),
            max,
        })
    }

    /// Appends exactly `len` bytes from `offset`.
    fn append(&self, bytes: &mut Vec<u8>, offset: u64, len: u64) -> Result<(), StorageError> {
        if self.fill(bytes, offset, len)? == len {
            return Ok(());
        }
        Err(self.changed())
    }

    /// Appends up to `len` bytes from `offset`, fewer where the file ends earlier. Returns their number.
    fn fill(&self, bytes: &mut Vec<u8>, offset: u64, len: u64) -> Result<u64, StorageError> {
        let too_much = || StorageError::NoMemory { bytes: len }.at(self.path.to_string_lossy());
        let wanted = usize::try_from(len).map_err(|_| too_much())?;
        bytes.try_reserve_exact(wanted).map_err(|_| too_much())?;
        let end = bytes.len() + wanted;
        while bytes.len() < end {
            let at = offset + (len - (end - bytes.len()) as u64);
            // PERF: the read fills the spare capacity directly, without zeroing it first.
            match pread(&self.handle, spare_capacity(bytes), at) {
                Ok(0) => return Ok(len - (end - bytes.len()) as u64),
                Ok(_) => {}
                Err(Errno::INTR) => {}
                Err(errno) => return Err(StorageError::io("read", &self.path, errno)),
            }
        }
        // A reused buffer may have more spare capacity than needed.
        bytes.truncate(end);
        Ok(len)
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<(), StorageError> {
        let end = offset.saturating_add(len);
        if end <= self.len() && end - offset == len {
            return Ok(());
        }
        Err(StorageError::Range {
            path: self.path.clone(),
            offset,
            end,
            bytes: self.len(),
        })
    }

    fn state_now(&self) -> Result<State, StorageError> {
        let stat =
            fstat(&self.handle).map_err(|errno| StorageError::io("look up", &self.path, errno))?;
        Ok(state_of(&stat))
    }

    fn changed(&self) -> StorageError {
        StorageError::Changed {
            path: self.path.clone(),
            expected: self.len(),
            found: self.state_now().map_or(0, |state| state.bytes),
        }
    }
}

impl AsFd for FileHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// The identity of a version of a file: device, inode, length and modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    state: State,
}

impl FileIdentity {
    /// Returns whether both are the same file, changed or not.
    #[must_use]
    pub const fn is_same_file(&self, other: &Self) -> bool {
        self.device == other.device && self.inode == other.inode
    }
}

/// The identity of a file from its creation to its removal. Changes of its contents or its name do not change it.
///
/// The inode number of a removed file may be reused. The new file has another creation time, where the file system
/// records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileBirth {
    /// The inode number.
    pub inode: u64,
    /// The creation time in nanoseconds since 1970; 0 where it is not recorded.
    pub born: u64,
}

pub(crate) fn birth_of(handle: BorrowedFd<'_>) -> rustix::io::Result<FileBirth> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, StatxFlags, statx};

        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        match statx(handle, "", AtFlags::EMPTY_PATH, wanted) {
            Ok(stat) => {
                let kept = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
                let seconds = u64::try_from(stat.stx_btime.tv_sec).unwrap_or_default();
                let born = seconds
                    .saturating_mul(1_000_000_000)
                    .saturating_add(u64::from(stat.stx_btime.tv_nsec));
                return Ok(FileBirth {
                    inode: stat.stx_ino,
                    born: if kept { born } else { 0 },
                });
            }
            // An old kernel or file system, or a seccomp filter that denies the call.
            Err(Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    let stat = fstat(handle)?;
    #[expect(
        clippy::useless_conversion,
        reason = "the type of this field differs between systems"
    )]
    Ok(FileBirth {
        inode: u64::from(stat.st_ino),
        born: 0,
    })
}

/// A stream over a file, up to the length it had when it was opened.
#[derive(Debug)]
pub struct FileReader<'a> {
    file: &'a FileHandle,
    at: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.file.len() - self.at).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        let room = buffer.get_mut(..wanted).unwrap_or_default();
        if room.is_empty() {
            return Ok(0);
        }
        let read = pread(&self.file.handle, room, self.at)?;
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                self.file.changed(),
            ));
        }
        self.at += read as u64;
        Ok(read)
    }
}

impl State {
    fn tag(&self) -> String {
        let (seconds, nanos) = self.changed;
        let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        nanos.to_string()
    }
}

pub(crate) fn tag_of(stat: &rustix::fs::Stat) -> String {
    state_of(stat).tag()
}

fn state_of(stat: &rustix::fs::Stat) -> State {
    #[expect(
        clippy::useless_conversion,
        reason = "the types of these fields differ between systems"
    )]
    State {
        bytes: u64::try_from(stat.st_size).unwrap_or_default(),
        changed: (i64::from(stat.st_mtime), u64::from(stat.st_mtime_nsec)),
    }
}

/// Reads a regular file that the user named. Symbolic links are followed. Opening a pipe does not block.
/// Errors are those of [`FileHandle::open`] and [`FileHandle::read_all`].
pub fn read_file(path: &Path, max: u64) -> Result<Vec<u8>, StorageError> {
    FileHandle::open(path)?.read_all(max)
}
