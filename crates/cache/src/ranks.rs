//! Keeps residents sorted by their next use, so that those furthest away are found without inspecting all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::policy::{Resident, make_room};

/// The eviction policy of a full cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Evicts the blob whose next use is furthest away, and does not keep a blob that is needed later than all
    /// residents.
    Belady,
    /// Evicts the least recently used blob.
    Lru,
}

/// The residents that can be evicted, and the next use of each; `u64::MAX` means never.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranks {
    /// Next use, bytes, and the blob in reverse order: the last entry is evicted first.
    sorted: BTreeSet<(u64, u64, Reverse<usize>)>,
    known: BTreeMap<usize, (u64, u64)>,
}

impl Ranks {
    /// Adds a resident, or updates its next use.
    pub(crate) fn insert(&mut self, blob: usize, bytes: u64, next_use: u64) {
        self.remove(blob);
        self.known.insert(blob, (next_use, bytes));
        self.sorted.insert((next_use, bytes, Reverse(blob)));
    }

    /// Removes a resident; returns false if it is not present.
    pub(crate) fn remove(&mut self, blob: usize) -> bool {
        let Some((next_use, bytes)) = self.known.remove(&blob) else {
            return false;
        };
        self.sorted.remove(&(next_use, bytes, Reverse(blob)))
    }

    pub(crate) fn next_use(&self, blob: usize) -> Option<u64> {
        self.known.get(&blob).map(|(next_use, _)| *next_use)
    }

    /// Calls [`make_room`] with the residents furthest away, as many as suffice to free the missing bytes.
    pub(crate) fn make_room(
        &self,
        used: u64,
        limit: u64,
        bytes: u64,
        wanted_at: u64,
    ) -> Option<Vec<usize>> {
        let missing = used.saturating_sub(limit.checked_sub(bytes)?);
        let mut seen = Vec::new();
        let mut freed = 0_u64;
        for (_, bytes, Reverse(blob)) in self.sorted.iter().rev() {
            if freed >= missing {
                break;
            }
            freed = freed.saturating_add(*bytes);
            seen.push(Resident {
                blob: *blob,
                bytes: *bytes,
                pinned: false,
            });
        }
        make_room(&seen, used, limit, bytes, wanted_at, |blob| {
            self.next_use(blob)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_evict_the_same_blobs_as_make_room(
            residents in prop::collection::vec((0_u64..20, prop_oneof![0_u64..9, Just(u64::MAX)]), 0..12),
            limit in 0_u64..100,
            bytes in 0_u64..40,
            wanted_at in prop_oneof![0_u64..9, Just(u64::MAX)],
        ) {
            let mut ranks = Ranks::default();
            let mut all = Vec::new();
            for (blob, (bytes, next_use)) in residents.iter().enumerate() {
                ranks.insert(blob, 1, 5);
                ranks.insert(blob, *bytes, *next_use);
                all.push(Resident { blob, bytes: *bytes, pinned: false });
            }
            let used = all.iter().map(|resident| resident.bytes).sum();
            prop_assert_eq!(
                ranks.make_room(used, limit, bytes, wanted_at),
                make_room(&all, used, limit, bytes, wanted_at, |blob| {
                    Some(residents[blob].1).filter(|next| *next < u64::MAX)
                })
            );
        }
    }

    #[test]
    fn removed_blob_is_not_evicted() {
        let mut ranks = Ranks::default();
        ranks.insert(3, 10, 7);
        assert_eq!(ranks.make_room(10, 10, 5, 0), Some(vec![3]));
        assert_eq!(ranks.make_room(10, 10, 5, 7), None);
        assert!(ranks.remove(3));
        assert!(!ranks.remove(3));
        assert_eq!(ranks.make_room(10, 10, 5, 0), None);
    }
}
