//! Temporary files, which get their names when they are complete and synced.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fstat, unlinkat};
use rustix::io::Errno;
use shardmill_mmap::begin_writeback;

use crate::dir::{Dir, PublishMode, rename_at, sync_handle};
use crate::error::{StorageError, check_name};
use crate::file::{FileBirth, FileHandle, birth_of};
use crate::random::random_number;

/// A file that is being written and has not been published yet.
///
/// Writes are not buffered, so write large chunks or use a `BufWriter`. Dropping the file without [`TempFile::publish`]
/// removes it. A process that is killed leaves it in its folder, under a name that starts with [`TempFile::PREFIX`].
#[derive(Debug)]
pub struct TempFile {
    file: File,
    /// The directory to publish to.
    target: Dir,
    /// The directory of the temporary file.
    folder: Dir,
    name: String,
    written: u64,
    /// The offset up to which writeback was started; `None` if writeback is left to the system.
    writeback_end: Option<u64>,
    failed: bool,
    /// The temporary name no longer exists: it was renamed or unlinked.
    gone: bool,
}

impl TempFile {
    /// The prefix of the names of temporary files.
    pub const PREFIX: &'static str = "tmp-";

    /// Creates a file without a name, so nothing is left of it however the process ends. It cannot be published, only
    /// read with [`TempFile::into_handle`].
    pub(crate) fn nameless(folder: &Dir) -> Result<Self, StorageError> {
        let mut file = folder.temp_file(None)?;
        file.discard();
        Ok(file)
    }

    /// Removes the temporary name and returns the file for reading.
    ///
    /// # Errors
    ///
    /// [`StorageError::Incomplete`], [`StorageError::Length`], and errors of system calls.
    pub fn into_handle(mut self) -> Result<FileHandle, StorageError> {
        self.check_written()?;
        self.discard();
        let path = self.path();
        let file = self
            .file
            .try_clone()
            .map_err(|error| StorageError::io("open again", &path, error))?;
        FileHandle::from_handle(file.into(), path)
    }

    /// Creates a file whose name has `stem` between the prefix and the random part.
    fn create_in(target: &Dir, folder: Dir, stem: &str) -> Result<Self, StorageError> {
        /// Names are random 64-bit numbers, so a collision is very unlikely.
        const ATTEMPTS: usize = 8;

        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut attempts = 0;
        let (name, handle) = loop {
            let name = format!("{}{stem}{:016x}", Self::PREFIX, random_number());
            attempts += 1;
            match folder.open_at(&name, "make a temporary file", flags, mode) {
                Err(StorageError::Io { source, .. })
                    if source.kind() == io::ErrorKind::AlreadyExists && attempts < ATTEMPTS => {}
                made => break (name, made?),
            }
        };
        Ok(Self {
            file: File::from(handle),
            target: target.clone(),
            folder,
            name,
            written: 0,
            writeback_end: None,
            failed: false,
            gone: false,
        })
    }

    /// Starts writeback to the disk while the file is being written, so that publishing waits for less. Use it for
    /// files that will be synchronised, and not for files that may be discarded.
    #[must_use]
    pub fn written_behind(mut self) -> Self {
        self.writeback_end = Some(self.written);
        self
    }

    /// Returns the number of bytes written so far.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Returns the temporary path, for messages.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path_of(&self.name)
    }

    /// Converts a failed write to an error that names the file.
    #[must_use]
    pub fn write_error(&self, error: io::Error) -> StorageError {
        StorageError::io("write", self.path(), error)
    }

    pub(crate) fn owner(&self) -> Result<u32, StorageError> {
        let stat =
            fstat(&self.file).map_err(|errno| StorageError::io("look up", self.path(), errno))?;
        Ok(stat.st_uid)
    }

    /// Publishes the file under `name`, relative to the directory that [`Dir::temp_file`] was called on. Checks its
    /// length, sets its mode to 0644 as far as the umask allows, synchronises it, renames it, and synchronises the
    /// directory. When this returns, the file survives a power failure.
    ///
    /// # Errors
    ///
    /// After any error the file counts as not published, and the temporary file is removed. [`StorageError::Exists`]
    /// with [`PublishMode::CreateNew`]; [`StorageError::Incomplete`], [`StorageError::Length`]; `Resource`,
    /// `Permission`, `Storage`. A failed synchronisation is final and never retried.
    pub fn publish(self, name: &str, mode: PublishMode) -> Result<(), StorageError> {
        let target = self.target.clone();
        self.publish_pending(name, mode, true)?;
        target.sync_parent_of(name)
    }

    /// Publishes the file as [`TempFile::publish`] does, but without synchronising the directory. With `sync` the
    /// contents survive a power failure. The name does so after [`Dir::sync`] on its directory, once for many files.
    /// Errors are those of [`TempFile::publish`].
    pub fn publish_pending(
        mut self,
        name: &str,
        mode: PublishMode,
        sync: bool,
    ) -> Result<(), StorageError> {
        self.prepare(name, sync)?;
        self.rename(name, mode, sync)
    }

    /// Checks and prepares the file before it gets its name.
    fn prepare(&self, name: &str, sync: bool) -> Result<(), StorageError> {
        check_name(name)?;
        self.check_written()?;
        set_mode(&self.file, Mode::from_raw_mode(0o644 & !umask()))
            .map_err(|errno| StorageError::io("open to other users", self.path(), errno))?;
        if sync { self.sync() } else { Ok(()) }
    }

    fn sync(&self) -> Result<(), StorageError> {
        sync_handle(self.file.as_fd())
            .map_err(|errno| StorageError::io("bring to the disk", self.path(), errno))
    }

    /// Publishes the file without synchronising it, for contents that can be recreated. The mode stays 0600, and after
    /// a power failure the file may exist without its contents. Readers see all of it or nothing.
    /// Errors are those of [`TempFile::publish`].
    pub fn publish_unsynced(mut self, name: &str, mode: PublishMode) -> Result<(), StorageError> {
        check_name(name)?;
        self.check_written()?;
        self.rename(name, mode, false)
    }

    fn check_written(&self) -> Result<(), StorageError> {
        let path = self.path();
        if self.failed {
            return Err(StorageError::Incomplete { path });
        }
        let stat = fstat(&self.file).map_err(|errno| StorageError::io("look up", &path, errno))?;
        let found = u64::try_from(stat.st_size).unwrap_or_default();
        if found != self.written {
            return Err(StorageError::Length {
                path,
                written: self.written,
                found,
            });
        }
        Ok(())
    }

    fn rename(&mut self, name: &str, mode: PublishMode, sync: bool) -> Result<(), StorageError> {
        let renamed = match self.rename_once(name, mode)? {
            // Another file system, or a bind mount of this one, is mounted below the directory.
            Err(Errno::XDEV) => {
                self.move_beside(name, sync)?;
                self.rename_once(name, mode)?
            }
            renamed => renamed,
        };
        renamed.map_err(|errno| {
            let path = self.target.path_of(name);
            match errno {
                Errno::EXIST => StorageError::Exists { path },
                _ => StorageError::io("publish", path, errno),
            }
        })?;
        self.gone = true;
        Ok(())
    }

    fn rename_once(
        &self,
        name: &str,
        mode: PublishMode,
    ) -> Result<rustix::io::Result<()>, StorageError> {
        let (parent, last) = self.target.parent_of(name, "publish")?;
        let folder = self.folder.fd()?;
        Ok(rename_at(
            folder.as_fd(),
            &self.name,
            parent.as_fd(),
            last,
            mode,
        ))
    }

    /// Copies the file to the directory that `name` is in, and continues with the copy.
    fn move_beside(&mut self, name: &str, sync: bool) -> Result<(), StorageError> {
        let folder = match name.rsplit_once('/') {
            Some((folders, _)) => self.target.open_dir(folders)?,
            None => self.target.clone(),
        };
        let mut copy = Self::create_in(&self.target, folder, "")?;
        let path = self.path();
        let failed = |error| StorageError::io("read", &path, error);
        let own = self.file.try_clone().map_err(failed)?;
        let own = FileHandle::from_handle(own.into(), path.clone())?;
        io::copy(&mut own.reader(), &mut copy).map_err(|error| copy.write_error(error))?;
        let mode = fstat(&self.file).map_err(|errno| StorageError::io("look up", &path, errno))?;
        set_mode(&copy.file, Mode::from_raw_mode(mode.st_mode & 0o777))
            .map_err(|errno| StorageError::io("open to other users", copy.path(), errno))?;
        copy.check_written()?;
        if sync {
            copy.sync()?;
        }
        *self = copy;
        Ok(())
    }

    /// Returns the inode and creation time of the file. Publishing does not change them, unless another file system is
    /// mounted between the temporary file and its name.
    pub fn birth(&self) -> Result<FileBirth, StorageError> {
        birth_of(self.file.as_fd()).map_err(|errno| StorageError::io("look up", self.path(), errno))
    }

    /// Starts writeback of the bytes written since the last time, if there are enough of them.
    fn begin(&mut self) {
        /// Large requests suit every disk, and the remainder at the end is written quickly.
        const BEHIND: u64 = 8 << 20;

        if let Some(start) = self.writeback_end
            && self.written - start >= BEHIND
        {
            // A failing disk reports its error to the call that synchronises the file.
            let _ = begin_writeback(self.file.as_fd(), start..self.written);
            self.writeback_end = Some(self.written);
        }
    }

    /// Removes the temporary name. A failure leaves a stray file in the folder, but no wrong data.
    fn discard(&mut self) {
        if !self.gone {
            if let Ok(folder) = self.folder.fd() {
                let _ = unlinkat(folder, &self.name, AtFlags::empty());
            }
            self.gone = true;
        }
    }
}

impl Dir {
    /// Creates a temporary file with mode 0600, in `folder` below this directory or in the directory
    /// itself. If the folder is on another file system, publishing copies the file.
    pub fn temp_file(&self, folder: Option<&str>) -> Result<TempFile, StorageError> {
        let folder = match folder {
            Some(name) => self.open_dir(name)?,
            None => self.clone(),
        };
        TempFile::create_in(self, folder, "")
    }

    /// Creates a temporary file as [`Dir::temp_file`] does, in an open folder. Its temporary name is `tmp-`, the `stem`
    /// and 16 hexadecimal digits.
    pub fn temp_file_in(&self, folder: &Self, stem: &str) -> Result<TempFile, StorageError> {
        TempFile::create_in(self, folder.clone(), stem)
    }

    /// Publishes `bytes` as one file, through a temporary file in `folder`.
    /// Errors are those of [`Dir::temp_file`] and [`TempFile::publish`].
    pub fn publish_bytes(
        &self,
        folder: Option<&str>,
        name: &str,
        bytes: &[u8],
        mode: PublishMode,
    ) -> Result<(), StorageError> {
        let mut temp = self.temp_file(folder)?;
        temp.write_all(bytes)
            .map_err(|error| temp.write_error(error))?;
        temp.publish(name, mode)
    }

    /// Creates a directory of one part as [`Dir::make_dir`] does, with mode 0700. An existing directory has to belong
    /// to this user; the permissions of other users are removed.
    ///
    /// # Errors
    ///
    /// As [`Dir::make_dir`]; [`StorageError::Owner`].
    pub fn make_private_dir(&self, name: &str) -> Result<Self, StorageError> {
        let (dir, made) = self.make_one(name, Mode::RWXU)?;
        if !made {
            dir.close_to_others()?;
        }
        Ok(dir)
    }

    fn close_to_others(&self) -> Result<(), StorageError> {
        let stat =
            fstat(self.fd()?).map_err(|errno| StorageError::io("look up", self.path(), errno))?;
        let user = rustix::process::geteuid().as_raw();
        if stat.st_uid != user {
            // Some file systems report the same owner for every file. There the owner of a new file is the one to
            // compare with.
            let own = self.temp_file(None)?.owner()?;
            if stat.st_uid != own {
                return Err(StorageError::Owner {
                    path: self.path().to_owned(),
                    expected: own,
                    found: stat.st_uid,
                });
            }
            return Ok(());
        }
        if stat.st_mode & 0o077 != 0 {
            set_mode(self.fd()?, Mode::RWXU)
                .map_err(|errno| StorageError::io("close to other users", self.path(), errno))?;
        }
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        self.discard();
    }
}

impl Write for TempFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.file.write(bytes) {
            Ok(written) => {
                self.written += written as u64;
                self.begin();
                Ok(written)
            }
            Err(error) => {
                self.failed |= error.kind() != io::ErrorKind::Interrupted;
                Err(error)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Creates an unnamed file in `dir`, or in the temporary directory of the system. It is deleted when it is closed.
pub(crate) fn unnamed_file(dir: Option<&Path>) -> Result<File, StorageError> {
    let made = match dir {
        Some(dir) => tempfile::tempfile_in(dir),
        None => tempfile::tempfile(),
    };
    made.map_err(|error| unnamed_error(dir, error))
}

/// Returns the error of reading or writing such a file.
pub(crate) fn unnamed_error(dir: Option<&Path>, error: io::Error) -> StorageError {
    let folder = dir.map_or_else(std::env::temp_dir, Path::to_owned);
    StorageError::io("write a temporary file in", folder, error)
}

/// Sets the permissions of a file. It is no error if the file system has none of its own, as CIFS, FUSE and 9p may not.
fn set_mode(file: impl AsFd, mode: Mode) -> rustix::io::Result<()> {
    match fchmod(file, mode) {
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        changed => changed,
    }
}

/// Returns the umask of the process. `umask(2)` would change it briefly for all threads, so it is read from `/proc`. If
/// that is not available, returns the usual 022.
fn umask() -> u32 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| parse_umask(&status))
        .unwrap_or(0o022)
}

fn parse_umask(status: &str) -> Option<u32> {
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(value.trim(), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::parse_umask;

    #[test]
    fn umask_is_parsed_from_proc_status() {
        assert_eq!(
            parse_umask("Name:\tx\nUmask:\t0027\nState:\tR\n"),
            Some(0o027)
        );
        assert_eq!(parse_umask("Name:\tx\n"), None);
        assert_eq!(parse_umask("Umask:\tnine\n"), None);
    }
}
