//! An open directory: lists, opens, renames and removes entries without following links.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, StatVfsMountFlags, fstat, fstatvfs, linkat, mkdirat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;

use crate::dir_handle::DirHandle;
use crate::entry::{Entry, EntryKind};
use crate::error::{StorageError, check_name, if_found};
use crate::file::FileHandle;
use crate::resolve::{DirFd, Parent, Resolver, open_beneath, open_parent};

/// What to do if the name exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishMode {
    /// Replace the file atomically: readers see the old file or the new one.
    Replace,
    /// Fail with [`StorageError::Exists`].
    CreateNew,
}

/// The free space of a file system that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free bytes. Quotas that the file system does not report are not included.
    pub bytes: u64,
    /// The allocation unit in bytes, at least 1.
    pub block: u64,
    /// The number of files that can still be created; `None` where the file system does not report it.
    pub files: Option<u64>,
}

/// A directory that was opened once. Names are resolved relative to the open directory, even if its path changes later.
///
/// Names are relative, with `/` between the parts. Names that [`check_relative_path`](shardmill_core::check_relative_path)
/// rejects are refused, and so are names that lead through a symbolic link. Clones share the file descriptor.
#[derive(Clone, Debug)]
pub struct Dir {
    handle: Arc<DirHandle>,
    path: PathBuf,
    resolver: Resolver,
}

impl Dir {
    /// Opens a directory by a path that the user gave. Symbolic links in the path are followed.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Permission`; [`StorageError::NotDirectory`] when the path is not a directory.
    pub fn open(path: &Path) -> Result<Self, StorageError> {
        let shown = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle =
            rustix::fs::open(shown, flags, Mode::empty()).map_err(|errno| match errno {
                Errno::NOTDIR => StorageError::NotDirectory {
                    path: shown.to_owned(),
                },
                _ => StorageError::io("open the directory", shown, errno),
            })?;
        Ok(Self::from_handle(
            handle,
            shown.to_owned(),
            Resolver::Kernel,
        ))
    }

    /// Opens a directory by a path that the user gave, and creates it and its parents where they are missing. New
    /// directories are synchronised, so they survive a power failure.
    ///
    /// # Errors
    ///
    /// As [`Dir::open`], and when a directory cannot be created.
    pub fn create(path: &Path) -> Result<Self, StorageError> {
        let mut missing = Vec::new();
        let mut at = path;
        loop {
            match fs::metadata(at) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(at),
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                    return Err(StorageError::NotDirectory {
                        path: at.to_owned(),
                    });
                }
                Err(error) => return Err(StorageError::io("open the directory", at, error)),
            }
            match at.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => at = parent,
                _ => break,
            }
        }
        for &path in missing.iter().rev() {
            match fs::create_dir(path) {
                Ok(()) => {}
                // Another process created it, or the path ends in `..`. The open below decides.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(StorageError::io("make the directory", path, error)),
            }
            if let Some(parent) = path.parent() {
                Self::open(parent)?.sync()?;
            }
        }
        Self::open(path)
    }

    pub(crate) fn from_handle(handle: OwnedFd, path: PathBuf, resolver: Resolver) -> Self {
        Self {
            handle: Arc::new(DirHandle::Open(handle)),
            path,
            resolver,
        }
    }

    /// Returns the same directory, whose descriptor may be closed while many other such directories are used. Then it
    /// is reopened by its path, and it is an error if another directory is there.
    #[must_use]
    pub fn pooled(self) -> Self {
        let handle = match Arc::try_unwrap(self.handle) {
            Ok(DirHandle::Open(handle)) => DirHandle::pooled(handle, &self.path),
            Ok(pooled) => Arc::new(pooled),
            Err(shared) => shared,
        };
        Self { handle, ..self }
    }

    /// Returns the descriptor of the directory.
    pub(crate) fn fd(&self) -> Result<DirFd<'_>, StorageError> {
        self.handle
            .get()
            .map_err(|errno| StorageError::io("open the directory", &self.path, errno))
    }

    #[cfg(test)]
    pub(crate) fn with_resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Returns the path it was opened by, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether two handles refer to the same directory.
    pub fn is_same(&self, other: &Self) -> Result<bool, StorageError> {
        let (own, other) = (self.stat()?, other.stat()?);
        Ok(own.st_dev == other.st_dev && own.st_ino == other.st_ino)
    }

    /// Returns the free space of the file system that the directory is on, or `None` where the file system does not
    /// report it.
    pub fn space(&self) -> Result<Option<Space>, StorageError> {
        let found = fstatvfs(self.fd()?)
            .map_err(|errno| StorageError::io("read the free space of", &self.path, errno))?;
        if found.f_blocks == 0 {
            return Ok(None);
        }
        let block = found.f_frsize.max(1);
        Ok(Some(Space {
            bytes: found.f_bavail.saturating_mul(block),
            block,
            files: (found.f_files > 0).then_some(found.f_favail),
        }))
    }

    fn stat(&self) -> Result<rustix::fs::Stat, StorageError> {
        fstat(self.fd()?).map_err(|errno| StorageError::io("read the status of", &self.path, errno))
    }

    /// Returns the number of the device that the directory is on.
    pub fn device(&self) -> Result<u64, StorageError> {
        Ok(self.stat()?.st_dev)
    }

    /// Returns the number of the directory on its device.
    pub fn inode(&self) -> Result<u64, StorageError> {
        Ok(self.stat()?.st_ino)
    }

    /// Returns whether the directory belongs to this user or to root.
    pub fn is_trusted(&self) -> Result<bool, StorageError> {
        Ok([0, rustix::process::geteuid().as_raw()].contains(&self.stat()?.st_uid))
    }

    /// Returns whether the directory is on a file system that is mounted read-only.
    pub fn is_read_only(&self) -> Result<bool, StorageError> {
        let found = fstatvfs(self.fd()?)
            .map_err(|errno| StorageError::io("read the status of", &self.path, errno))?;
        Ok(found.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    /// Returns whether files can be renamed from `other` to this directory: both are in the same mount of the same file
    /// system. A bind mount is another mount of the same file system.
    pub fn is_same_mount(&self, other: &Self) -> Result<bool, StorageError> {
        if self.device()? != other.device()? {
            return Ok(false);
        }
        let (own, other) = (mount_of(self.fd()?.as_fd()), mount_of(other.fd()?.as_fd()));
        Ok(own == other)
    }

    /// Returns the path of a name in this directory, for messages.
    #[must_use]
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) const fn resolver(&self) -> Resolver {
        self.resolver
    }

    /// Checks the name and opens it below this directory, with `NOFOLLOW` and `CLOEXEC`.
    pub(crate) fn open_at(
        &self,
        name: &str,
        action: &'static str,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, StorageError> {
        check_name(name)?;
        open_beneath(self.resolver, self.fd()?.as_fd(), name, flags, mode)
            .map_err(|errno| StorageError::resolving(action, self.path_of(name), errno))
    }

    /// Checks `name` and returns its parent directory and its last part.
    pub(crate) fn parent_of<'a>(
        &self,
        name: &'a str,
        action: &'static str,
    ) -> Result<(Parent<'_>, &'a str), StorageError> {
        check_name(name)?;
        open_parent(self.resolver, self.fd()?, name)
            .map_err(|errno| StorageError::resolving(action, self.path_of(name), errno))
    }

    /// Opens a regular file for reading. Never blocks, whatever the type of the file.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Permission`; [`StorageError::Symlink`], [`StorageError::NotRegular`],
    /// [`StorageError::Name`].
    pub fn open_file(&self, name: &str) -> Result<FileHandle, StorageError> {
        // Without O_NONBLOCK, opening a pipe that has no writer would block forever.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        match self.open_at(name, "open", flags, Mode::empty()) {
            Ok(file) => FileHandle::from_handle(file, self.path_of(name)),
            Err(StorageError::Io { source, path, .. }) => Err(StorageError::opening(path, source)),
            Err(error) => Err(error),
        }
    }

    /// Opens a directory below this one.
    ///
    /// # Errors
    ///
    /// As [`Dir::open`]; [`StorageError::Symlink`], [`StorageError::Name`].
    pub fn open_dir(&self, name: &str) -> Result<Self, StorageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let handle = self.open_at(name, "open the directory", flags, Mode::empty())?;
        Ok(Self::from_handle(handle, self.path_of(name), self.resolver))
    }

    /// Returns the type of the entry, or `None` if the name does not exist.
    ///
    /// # Errors
    ///
    /// [`StorageError::Symlink`] when the name leads *through* a link, [`StorageError::Name`], `Permission`.
    pub fn kind_of(&self, name: &str) -> Result<Option<EntryKind>, StorageError> {
        let (parent, last) = match if_found(self.parent_of(name, "look up")) {
            Ok(Some(found)) => found,
            Ok(None) | Err(StorageError::NotDirectory { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        match statat(&parent, last, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode).into())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(StorageError::io("look up", self.path_of(name), errno)),
        }
    }

    /// Returns whether the name exists. A dangling link counts. Errors are those of [`Dir::kind_of`].
    pub fn exists(&self, name: &str) -> Result<bool, StorageError> {
        Ok(self.kind_of(name)?.is_some())
    }

    /// Returns all entries except `.` and `..`, sorted by the bytes of the name.
    pub fn entries(&self) -> Result<Vec<Entry>, StorageError> {
        let failed = |errno: Errno| StorageError::io("list the directory", &self.path, errno);
        let mut entries = Vec::new();
        let handle = self.fd()?;
        for entry in rustix::fs::Dir::read_from(&handle).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let name = OsStr::from_bytes(name).to_owned();
            let kind = match entry.file_type() {
                FileType::Unknown => match statat(&handle, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    // It was removed since it was listed.
                    Err(Errno::NOENT) => continue,
                    Err(errno) => return Err(failed(errno)),
                },
                kind => kind,
            };
            entries.push(Entry {
                name,
                kind: kind.into(),
            });
        }
        entries.sort_unstable_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        Ok(entries)
    }

    /// Returns the names of [`Dir::entries`] in the same order. Names that are not UTF-8 have replacement characters,
    /// so they are visible but cannot be opened. Errors are those of [`Dir::entries`].
    pub fn list(&self) -> Result<Vec<String>, StorageError> {
        Ok(self
            .entries()?
            .iter()
            .map(|entry| entry.name.to_string_lossy().into_owned())
            .collect())
    }

    /// Removes a file or a symbolic link, and returns whether it existed. Call [`Dir::sync`] if the removal has to
    /// survive a power failure.
    ///
    /// # Errors
    ///
    /// [`StorageError::NotRegular`] for a directory; `Permission`, `Storage`.
    pub fn remove(&self, name: &str) -> Result<bool, StorageError> {
        self.unlink(name, "remove", AtFlags::empty())
    }

    /// Removes an empty directory, and returns whether that was done. A missing one and a mount point are left out.
    ///
    /// # Errors
    ///
    /// [`StorageError::NotDirectory`]; `Storage` when it is not empty.
    pub fn remove_dir(&self, name: &str) -> Result<bool, StorageError> {
        self.unlink(name, "remove the directory", AtFlags::REMOVEDIR)
    }

    fn unlink(
        &self,
        name: &str,
        action: &'static str,
        flags: AtFlags,
    ) -> Result<bool, StorageError> {
        let Some((parent, last)) = if_found(self.parent_of(name, action))? else {
            return Ok(false);
        };
        match unlinkat(&parent, last, flags) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::BUSY) if flags.contains(AtFlags::REMOVEDIR) => Ok(false),
            Err(Errno::ISDIR) => Err(StorageError::NotRegular {
                path: self.path_of(name),
                found: EntryKind::Directory,
            }),
            Err(Errno::NOTDIR) => Err(StorageError::NotDirectory {
                path: self.path_of(name),
            }),
            // A read-only file system refuses before it looks for the name.
            Err(Errno::ROFS) if !self.exists(name)? => Ok(false),
            Err(errno) => Err(StorageError::io(action, self.path_of(name), errno)),
        }
    }

    /// Creates a directory and its missing parents below this one, and opens it. An existing directory is opened. New
    /// directories are synchronised, so they survive a power failure.
    ///
    /// # Errors
    ///
    /// As [`Dir::open_dir`], and when a directory cannot be created.
    pub fn make_dir(&self, name: &str) -> Result<Self, StorageError> {
        check_name(name)?;
        let mut here = self.clone();
        for part in name.split('/') {
            here = here.make_one(part, Mode::from_raw_mode(0o777))?.0;
        }
        Ok(here)
    }

    /// Creates and opens `name`. Returns whether it was created by this call.
    pub(crate) fn make_one(&self, name: &str, mode: Mode) -> Result<(Self, bool), StorageError> {
        let (parent, last) = self.parent_of(name, "make the directory")?;
        let made = match mkdirat(&parent, last, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => {
                return Err(StorageError::io(
                    "make the directory",
                    self.path_of(name),
                    errno,
                ));
            }
        };
        let dir = self.open_dir(name)?;
        if made {
            self.sync_parent_of(name)?;
        }
        Ok((dir, made))
    }

    /// Synchronises the directory that contains the last part of `name`. On Linux [`Parent`] is opened with `O_PATH`,
    /// which cannot be synchronised.
    pub(crate) fn sync_parent_of(&self, name: &str) -> Result<(), StorageError> {
        match name.rsplit_once('/') {
            Some((folders, _)) => self.open_dir(folders)?.sync(),
            None => self.sync(),
        }
    }

    /// Renames a file below this directory. Call [`Dir::sync`] on both directories if the new name has to survive a
    /// power failure.
    ///
    /// # Errors
    ///
    /// `NotFound`; [`StorageError::Exists`] with [`PublishMode::CreateNew`]; `Permission`, `Storage`.
    pub fn rename(&self, from: &str, to: &str, mode: PublishMode) -> Result<(), StorageError> {
        let (old, old_last) = self.parent_of(from, "rename")?;
        let (new, new_last) = self.parent_of(to, "rename")?;
        let renamed = rename_at(old.as_fd(), old_last, new.as_fd(), new_last, mode);
        renamed.map_err(|errno| match errno {
            Errno::EXIST => StorageError::Exists {
                path: self.path_of(to),
            },
            _ => StorageError::io("rename", self.path_of(from), errno),
        })
    }

    /// Waits until all files published, created or removed in this directory are durable on the disk.
    ///
    /// # Errors
    ///
    /// `Storage`: then nothing is certain. A second call that succeeds would not prove that the first changes are
    /// durable.
    pub fn sync(&self) -> Result<(), StorageError> {
        match sync_handle(self.fd()?.as_fd()) {
            // Some network and user-space file systems cannot synchronise directories; they order the changes
            // themselves.
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(StorageError::io(
                "synchronise the directory",
                &self.path,
                errno,
            )),
        }
    }
}

/// Returns the number of the mount that a file is in, or `None` if the system does not report it.
fn mount_of(handle: BorrowedFd<'_>) -> Option<u64> {
    let path = format!("/proc/self/fdinfo/{}", handle.as_raw_fd());
    let text = fs::read_to_string(path).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    number.trim().parse().ok()
}

/// Calls `fsync` once. An interruption counts as a failure, because the result of a second call says nothing about the
/// first.
pub(crate) fn sync_handle(handle: BorrowedFd<'_>) -> rustix::io::Result<()> {
    #[cfg(test)]
    if crate::tests::sync_should_fail() {
        return Err(Errno::IO);
    }
    rustix::fs::fsync(handle)
}

/// Renames a file. With [`PublishMode::CreateNew`], fails with `EXIST` if the new name exists. On file systems with
/// neither hard links nor exclusive renames, that check is not atomic: of two concurrent callers, the later one wins.
pub(crate) fn rename_at(
    old: BorrowedFd<'_>,
    old_name: &str,
    new: BorrowedFd<'_>,
    new_name: &str,
    mode: PublishMode,
) -> rustix::io::Result<()> {
    if mode == PublishMode::Replace {
        return renameat(old, old_name, new, new_name);
    }
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    let renamed = {
        use rustix::fs::{RenameFlags, renameat_with};
        renameat_with(old, old_name, new, new_name, RenameFlags::NOREPLACE)
    };
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    let renamed = Err(Errno::OPNOTSUPP);
    if !matches!(renamed, Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)) {
        return renamed;
    }
    // The file system has no exclusive rename. A hard link is exclusive as well.
    match linkat(old, old_name, new, new_name, AtFlags::empty()) {
        Ok(()) => unlinkat(old, old_name, AtFlags::empty()),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK | Errno::INVAL) => {
            match statat(new, new_name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => renameat(old, old_name, new, new_name),
                Err(errno) => Err(errno),
            }
        }
        linked => linked,
    }
}
