//! The number of reserved bytes in a folder, stored in the lock file, so that a count need not list the folder.
//!
//! The lock file contains the number of changes and the reserved bytes. Both are written before a marker is created
//! and after one is removed. A process killed in between leaves a number that is too large, never too small; the next
//! listing of the markers corrects it. Without file locks the number is unreliable, and every count lists the markers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use shardmill_storage::{Claim, StorageError};

/// Part of the checksum, which distinguishes written content from zeros and partial writes.
const MARK: u64 = 0x6c65_6467_6572_2031;

const BYTES: usize = 24;

/// The content of the lock file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageFile {
    /// The number of changes.
    pub(crate) changes: u64,
    /// Bytes of all blobs with a marker.
    pub(crate) used: u64,
}

impl UsageFile {
    /// Reads the lock file; `None` if it is empty or incomplete, or if the lock is not held.
    pub(crate) fn read(claim: &Claim) -> Result<Option<Self>, StorageError> {
        if claim.held().is_none() {
            return Ok(None);
        }
        let bytes = claim.read(0, BYTES)?;
        let (words, _) = bytes.as_chunks::<8>();
        let Some(words) = words.first_chunk() else {
            return Ok(None);
        };
        let [changes, used, mark] = words.map(u64::from_le_bytes);
        Ok((mark == changes ^ used.rotate_left(32) ^ MARK).then_some(Self { changes, used }))
    }

    fn changed(self, more: u64, less: u64) -> Self {
        Self {
            changes: self.changes.wrapping_add(1),
            used: self.used.saturating_add(more).saturating_sub(less),
        }
    }

    fn write(self, claim: &Claim) -> Result<(), StorageError> {
        let mark = self.changes ^ self.used.rotate_left(32) ^ MARK;
        let words = [self.changes, self.used, mark].map(u64::to_le_bytes);
        claim.write(0, &words.concat())
    }
}

/// What this process knows about a folder's markers.
#[derive(Debug)]
pub(crate) struct View {
    usage_file: UsageFile,
    pub(crate) markers: BTreeSet<usize>,
    listed: Instant,
    took: Duration,
    /// Whether other processes have changed the folder since the listing.
    pub(crate) stale: bool,
}

impl View {
    /// Creates a view from a listing of the markers, and corrects the usage file.
    pub(crate) fn listed(
        claim: &Claim,
        markers: BTreeSet<usize>,
        used: u64,
        started: Instant,
    ) -> Result<Self, StorageError> {
        let old = UsageFile::read(claim)?;
        let usage_file = match old {
            Some(old) if old.used == used => old,
            old => {
                let usage_file = UsageFile {
                    changes: old.map_or(0, |old| old.changes).wrapping_add(1),
                    used,
                };
                usage_file.write(claim)?;
                usage_file
            }
        };
        Ok(Self {
            usage_file,
            markers,
            listed: Instant::now(),
            took: started.elapsed(),
            stale: false,
        })
    }

    /// Returns whether the view can be used without a new listing. Changes by other processes make it stale. A stale
    /// view is good enough for a while if `exact` is false, because the number of bytes is still known.
    pub(crate) fn is_usable(&mut self, claim: &Claim, exact: bool) -> Result<bool, StorageError> {
        /// Listing takes at most this fraction of the time (1/10).
        const SHARE: u32 = 10;

        let Some(usage_file) = UsageFile::read(claim)? else {
            return Ok(false);
        };
        self.stale |= usage_file.changes != self.usage_file.changes;
        self.usage_file = usage_file;
        Ok(!self.stale || (!exact && self.listed.elapsed() < self.took * SHARE))
    }

    pub(crate) const fn used(&self) -> u64 {
        self.usage_file.used
    }

    /// Adds and subtracts bytes.
    pub(crate) fn change(
        &mut self,
        claim: &Claim,
        more: u64,
        less: u64,
    ) -> Result<(), StorageError> {
        self.usage_file = self.usage_file.changed(more, less);
        self.usage_file.write(claim)
    }
}

/// Adds and subtracts bytes in the usage file without a view.
pub(crate) fn note(claim: &Claim, more: u64, less: u64) -> Result<(), StorageError> {
    match UsageFile::read(claim)? {
        Some(usage_file) => usage_file.changed(more, less).write(claim),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use shardmill_storage::{ClaimMode, Dir};

    use super::*;

    #[test]
    fn usage_file_round_trips_and_partial_writes_are_ignored() {
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let mut capacity = Claim::open_or_create(&dir, "lock").unwrap();
        assert_eq!(UsageFile::read(&capacity).unwrap(), None);
        capacity.lock(ClaimMode::Exclusive).unwrap();
        assert_eq!(UsageFile::read(&capacity).unwrap(), None);
        let mut view = View::listed(&capacity, BTreeSet::from([1]), 100, Instant::now()).unwrap();
        assert_eq!(
            UsageFile::read(&capacity).unwrap(),
            Some(UsageFile {
                changes: 1,
                used: 100
            })
        );
        view.change(&capacity, 50, 0).unwrap();
        assert_eq!(view.used(), 150);
        assert!(view.is_usable(&capacity, true).unwrap());
        // Another process.
        note(&capacity, 7, 0).unwrap();
        assert!(!view.is_usable(&capacity, true).unwrap() && view.stale);
        assert_eq!(view.used(), 157);
        capacity.write(8, &[9]).unwrap();
        assert_eq!(UsageFile::read(&capacity).unwrap(), None);
        assert!(!view.is_usable(&capacity, false).unwrap());
    }
}
