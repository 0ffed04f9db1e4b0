//! What is reserved in a folder, without looking at all of it each time.
//!
//! The file that the books' lock is on says how often they were changed, and how many bytes are reserved. Both are
//! written before a marker is made and after one is removed, so that a process that is killed in between leaves too large
//! a number, never too small a one; the next count of the markers puts it right. Where there are no locks nobody can rely
//! on it, and the markers are counted each time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use shardmill_storage::{Claim, StorageError};

/// Distinguishes what was written from zeros and from halves.
const MARK: u64 = 0x6c65_6467_6572_2031;

const BYTES: usize = 24;

/// What the books say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageFile {
    /// How often they were changed.
    pub(crate) changes: u64,
    /// Bytes of all shards with a marker.
    pub(crate) used: u64,
}

impl UsageFile {
    /// `None` where nothing was written yet, or not all of it.
    pub(crate) fn read(capacity: &Claim) -> Result<Option<Self>, StorageError> {
        if capacity.held().is_none() {
            return Ok(None);
        }
        let bytes = capacity.read(0, BYTES)?;
        let mut words = bytes.chunks_exact(8).map(|word| {
            word.first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word))
        });
        let (Some(changes), Some(used), Some(mark)) = (words.next(), words.next(), words.next())
        else {
            return Ok(None);
        };
        Ok((mark == changes ^ used.rotate_left(32) ^ MARK).then_some(Self { changes, used }))
    }

    fn write(self, capacity: &Claim) -> Result<(), StorageError> {
        let mark = self.changes ^ self.used.rotate_left(32) ^ MARK;
        let words = [self.changes, self.used, mark].map(u64::to_le_bytes);
        capacity.write(0, &words.concat())
    }
}

/// What this process knows of a folder's markers.
#[derive(Debug)]
pub(crate) struct View {
    usage_file: UsageFile,
    pub(crate) markers: BTreeSet<usize>,
    listed: Instant,
    took: Duration,
    /// Whether others have changed the books since.
    pub(crate) stale: bool,
}

impl View {
    /// After listing the markers: the ledger is put right.
    pub(crate) fn listed(
        capacity: &Claim,
        markers: BTreeSet<usize>,
        used: u64,
        begun: Instant,
    ) -> Result<Self, StorageError> {
        let old = UsageFile::read(capacity)?;
        let usage_file = match old {
            Some(old) if old.used == used => old,
            old => {
                let usage_file = UsageFile {
                    changes: old.map_or(0, |old| old.changes).wrapping_add(1),
                    used,
                };
                usage_file.write(capacity)?;
                usage_file
            }
        };
        Ok(Self {
            usage_file,
            markers,
            listed: Instant::now(),
            took: begun.elapsed(),
            stale: false,
        })
    }

    /// Whether it will do. Others' changes make it stale; they are not worth listing everything again at once, as long
    /// as the number of bytes is known.
    pub(crate) fn will_do(&mut self, capacity: &Claim, exact: bool) -> Result<bool, StorageError> {
        /// Listing takes at most so much of the time: one part in this many.
        const SHARE: u32 = 10;

        let Some(usage_file) = UsageFile::read(capacity)? else {
            return Ok(false);
        };
        self.stale |= usage_file.changes != self.usage_file.changes;
        self.usage_file = usage_file;
        Ok(!self.stale || (!exact && self.listed.elapsed() < self.took * SHARE))
    }

    pub(crate) const fn used(&self) -> u64 {
        self.usage_file.used
    }

    /// A marker is about to be made.
    pub(crate) fn add(
        &mut self,
        capacity: &Claim,
        number: usize,
        bytes: u64,
    ) -> Result<(), StorageError> {
        self.markers.insert(number);
        self.change(capacity, self.usage_file.used.saturating_add(bytes))
    }

    /// A marker was removed; with 0 bytes, by somebody else.
    pub(crate) fn remove(
        &mut self,
        capacity: &Claim,
        number: usize,
        bytes: u64,
    ) -> Result<(), StorageError> {
        self.markers.remove(&number);
        self.change(capacity, self.usage_file.used.saturating_sub(bytes))
    }

    fn change(&mut self, capacity: &Claim, used: u64) -> Result<(), StorageError> {
        self.usage_file = UsageFile {
            changes: self.usage_file.changes.wrapping_add(1),
            used,
        };
        self.usage_file.write(capacity)
    }
}

/// For who does not count: more or fewer bytes in a folder, where somebody else does.
pub(crate) fn note(capacity: &Claim, more: u64, less: u64) -> Result<(), StorageError> {
    let Some(usage_file) = UsageFile::read(capacity)? else {
        return Ok(());
    };
    UsageFile {
        changes: usage_file.changes.wrapping_add(1),
        used: usage_file.used.saturating_add(more).saturating_sub(less),
    }
    .write(capacity)
}

#[cfg(test)]
mod tests {
    use shardmill_storage::{ClaimMode, Dir};

    use super::*;

    #[test]
    fn what_is_written_is_read_and_halves_are_not() {
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
        view.add(&capacity, 2, 50).unwrap();
        assert_eq!(view.used(), 150);
        assert!(view.will_do(&capacity, true).unwrap());
        // Somebody else.
        note(&capacity, 7, 0).unwrap();
        assert!(!view.will_do(&capacity, true).unwrap() && view.stale);
        assert_eq!(view.used(), 157);
        capacity.write(8, &[9]).unwrap();
        assert_eq!(UsageFile::read(&capacity).unwrap(), None);
        assert!(!view.will_do(&capacity, false).unwrap());
    }
}
