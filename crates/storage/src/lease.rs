//! The lease of a directory, which lets one process write at a time.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::claim::{Claim, ClaimMode, ClaimState};
use crate::dir::Dir;
use crate::error::{StorageError, check_name};
use crate::remove::remove_all;

/// An exclusive lock of one writer on a folder.
///
/// The kernel releases it however the process ends, so no stale lease is left behind. It avoids wasted work and names
/// the other writer. Correctness depends on atomic publishing, not on the lease.
#[derive(Debug)]
pub struct Lease {
    claim: Claim,
    dir: Dir,
    name: String,
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

        check_name(name)?;
        let mut lost = StorageError::OtherWriter {
            path: dir.path_of(name),
            pid: None,
        };
        for _ in 0..ATTEMPTS {
            match Self::attempt(dir, name) {
                Ok(Some(lease)) => return Ok(lease),
                Ok(None) => {}
                // The previous holder removed the folder.
                Err(error) if error.is_not_found() => lost = error,
                Err(error) => return Err(error),
            }
        }
        Err(lost)
    }

    /// Returns `None` if the file was removed or replaced between opening and locking it.
    fn attempt(dir: &Dir, name: &str) -> Result<Option<Self>, StorageError> {
        if let Some((folder, _)) = name.rsplit_once('/') {
            dir.make_private_dir(folder)?;
        }
        let mut claim = Claim::open_or_create(dir, name)?;
        // A file system without locks is no error, because correctness does not depend on them.
        if claim.lock(ClaimMode::Exclusive)? == ClaimState::Busy {
            // The id only completes the message.
            let text = claim.read(0, 32).unwrap_or_default();
            let pid = std::str::from_utf8(&text).ok();
            return Err(StorageError::OtherWriter {
                path: claim.path(),
                pid: pid.and_then(|pid| pid.trim().parse().ok()),
            });
        }
        // INVARIANT: only the file that has the name counts. The previous holder may have removed the locked file, and
        // no other process can open an unlinked file.
        if !claim.is_named()? {
            return Ok(None);
        }
        claim.replace(format!("{}\n", std::process::id()).as_bytes())?;
        Ok(Some(Self {
            claim,
            dir: dir.clone(),
            name: name.to_owned(),
        }))
    }

    /// Returns whether the file system excludes other writers. Some file systems have no locks.
    #[must_use]
    pub const fn is_exclusive(&self) -> bool {
        self.claim.held().is_some()
    }

    /// Returns the path of the lease file, for messages.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.claim.path()
    }

    /// Ends the lease and removes its folder with all contents, except the entries named in `spared`. If spared entries
    /// are present, the folder stays. If the name has no folder, only the lease file is removed. A writer that starts
    /// at the same moment finds the old folder locked or missing; a folder it creates is not touched.
    /// Errors are those of [`Dir::remove_all_in`].
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
    /// Errors are those of [`Dir::remove`] and [`Dir::remove_dir`].
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

fn is_not_empty(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::DirectoryNotEmpty | std::io::ErrorKind::AlreadyExists
    )
}
