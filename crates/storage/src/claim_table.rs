//! Claims on numbers, all held with one lock file, so that any number of claims takes one file descriptor.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use shardmill_core::lock;
use shardmill_mmap::{RangeLock, lock_byte};

use crate::claim::{ClaimFile, ClaimMode};
use crate::dir::Dir;
use crate::error::{StorageError, if_found};

/// A lock file, of which each byte is a claim on the number of that byte.
///
/// No operation blocks. As with a [`Claim`](crate::Claim), the kernel releases all claims when the process ends, and
/// correctness must not depend on them. Two claims on a number also exclude each other within one table.
#[derive(Debug)]
pub struct ClaimTable {
    dir: Dir,
    name: &'static str,
    claims: Mutex<Claims>,
}

#[derive(Debug, Default)]
struct Claims {
    /// The lock file, open while there is a claim.
    file: Option<ClaimFile>,
    /// For each number, how often it is claimed in the shared mode; 0 for an exclusive claim.
    held: BTreeMap<u64, u32>,
}

/// A claim on a number, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct NumberClaim {
    table: Arc<ClaimTable>,
    number: u64,
    /// The process that made the claim. A forked child inherits the lock, but does not own the claim.
    owner: u32,
}

/// The outcome of an attempt to claim a number.
#[derive(Debug)]
pub enum NumberClaimState {
    /// The number is claimed.
    Held(NumberClaim),
    /// Another holder has claimed it in a conflicting mode.
    Busy,
    /// The file system or the system has no locks on parts of files, so the holder is unknown.
    Unknown,
}

impl ClaimTable {
    /// Creates a table of the lock file `name` in `dir`. The file is created with the first claim.
    #[must_use]
    pub fn new(dir: &Dir, name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            dir: dir.clone(),
            name,
            claims: Mutex::default(),
        })
    }

    /// Tries to claim a number without waiting.
    ///
    /// # Errors
    ///
    /// `Storage`. Missing support for locks is not an error but [`NumberClaimState::Unknown`].
    pub fn claim(
        self: &Arc<Self>,
        number: u64,
        mode: ClaimMode,
    ) -> Result<NumberClaimState, StorageError> {
        let mut claims = lock(&self.claims);
        match (claims.held.get_mut(&number), mode) {
            (Some(1..), ClaimMode::Exclusive) | (Some(0), _) => return Ok(NumberClaimState::Busy),
            (Some(shared), ClaimMode::Shared) => *shared += 1,
            (None, _) => {
                if claims.file.is_none() {
                    claims.file = self.open()?;
                }
                let Some(file) = &claims.file else {
                    return Ok(NumberClaimState::Unknown);
                };
                let (range, shared) = match mode {
                    ClaimMode::Shared => (RangeLock::Shared, 1),
                    ClaimMode::Exclusive => (RangeLock::Exclusive, 0),
                };
                let locked = self.lock(file, number, range);
                if matches!(locked, Ok(None)) {
                    claims.held.insert(number, shared);
                }
                claims.close_unused();
                if let Some(refused) = locked? {
                    return Ok(refused);
                }
            }
        }
        Ok(NumberClaimState::Held(NumberClaim {
            table: Arc::clone(self),
            number,
            owner: std::process::id(),
        }))
    }

    /// Opens the lock file. `None` if it cannot be created because the file system is read-only.
    fn open(&self) -> Result<Option<ClaimFile>, StorageError> {
        match ClaimFile::create_or_open(&self.dir, self.name) {
            Err(error) if error.is_read_only() => {
                if_found(ClaimFile::open_readable(&self.dir, self.name))
            }
            opened => opened.map(Some),
        }
    }

    /// Locks a byte. Returns `None` if that succeeded.
    fn lock(
        &self,
        file: &ClaimFile,
        number: u64,
        range: RangeLock,
    ) -> Result<Option<NumberClaimState>, StorageError> {
        loop {
            let Err(error) = lock_byte(file.as_fd(), number, range) else {
                return Ok(None);
            };
            return match Errno::from_io_error(&error) {
                _ if error.kind() == std::io::ErrorKind::WouldBlock => {
                    Ok(Some(NumberClaimState::Busy))
                }
                Some(Errno::INTR) => continue,
                // The file of an exclusive claim that is only open for reading has `BADF`.
                None
                | Some(
                    Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::BADF,
                ) => Ok(Some(NumberClaimState::Unknown)),
                Some(_) => Err(StorageError::io("lock", self.dir.path_of(self.name), error)),
            };
        }
    }
}

impl Claims {
    fn close_unused(&mut self) {
        if self.held.is_empty() {
            self.file = None;
        }
    }
}

impl NumberClaim {
    /// Returns whether the claim is exclusive.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        lock(&self.table.claims).held.get(&self.number) == Some(&0)
    }

    /// Converts an exclusive claim to a shared one.
    pub fn share(&self) -> Result<(), StorageError> {
        let mut claims = lock(&self.table.claims);
        if claims.held.get(&self.number) == Some(&0)
            && let Some(file) = &claims.file
        {
            self.table.lock(file, self.number, RangeLock::Shared)?;
            claims.held.insert(self.number, 1);
        }
        Ok(())
    }
}

impl Drop for NumberClaim {
    fn drop(&mut self) {
        // The locks are those of the parent. It may have been forked while a thread held the mutex.
        if self.owner != std::process::id() {
            return;
        }
        let mut claims = lock(&self.table.claims);
        if let Some(shared @ 2..) = claims.held.get_mut(&self.number) {
            *shared -= 1;
            return;
        }
        claims.held.remove(&self.number);
        if let Some(file) = &claims.file {
            // Closing the file releases the lock, unless a child process has it open too.
            let _ = lock_byte(file.as_fd(), self.number, RangeLock::Unlocked);
        }
        claims.close_unused();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::root;

    #[test]
    fn claims_on_a_number_exclude_each_other_and_take_one_descriptor() {
        use ClaimMode::{Exclusive, Shared};

        let (_root, dir) = root();
        let (one, two) = (
            ClaimTable::new(&dir, "claims"),
            ClaimTable::new(&dir, "claims"),
        );
        let held = |table: &Arc<ClaimTable>, number, mode| match table.claim(number, mode).unwrap()
        {
            NumberClaimState::Held(claim) => Some(claim),
            NumberClaimState::Busy => None,
            NumberClaimState::Unknown => panic!("no locks"),
        };
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        let many: Vec<_> = (100..1100)
            .map(|number| held(&one, number, Exclusive))
            .collect();
        assert!(many.iter().all(Option::is_some));
        // Other tests of this process may open files as well.
        assert!(descriptors() < before + 100);
        assert!(held(&two, 1099, Shared).is_none() && held(&one, 1099, Shared).is_none());
        drop(many);
        let first = held(&one, 7, Shared).unwrap();
        let (again, other) = (
            held(&one, 7, Shared).unwrap(),
            held(&two, 7, Shared).unwrap(),
        );
        assert!(held(&one, 7, Exclusive).is_none() && held(&two, 7, Exclusive).is_none());
        drop((first, other));
        assert!(held(&one, 7, Exclusive).is_none() && held(&two, 7, Exclusive).is_none());
        drop(again);
        let exclusive = held(&two, 7, Exclusive).unwrap();
        assert!(exclusive.is_exclusive() && held(&one, 7, Shared).is_none());
        exclusive.share().unwrap();
        assert!(!exclusive.is_exclusive() && held(&one, 7, Shared).is_some());
        drop(exclusive);
        assert!(lock(&two.claims).file.is_none());
    }
}
