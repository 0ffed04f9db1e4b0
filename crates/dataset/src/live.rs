//! Numbers the samples of a dataset without the deleted ones.
//!
//! Every part of the reader that numbers, counts or orders samples uses [`LiveSamples`]. A *stored* number counts all
//! samples of the shards. A *live* number counts those that are not deleted.

use std::ops::Range;
use std::sync::Arc;

use shardmill_mds::{HashAlgo, Hasher};

/// The live samples among the stored samples of a dataset.
///
/// Numbers are converted by binary search over the ranges of deleted samples. A clone shares the ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveSamples {
    stored: u64,
    gaps: Arc<[Gap]>,
}

/// A range of deleted samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    start: u64,
    end: u64,
    /// The number of deleted samples before `start`.
    before: u64,
}

impl LiveSamples {
    /// Returns the samples of a dataset of `stored` samples, none of which is deleted.
    #[must_use]
    pub fn all(stored: u64) -> Self {
        Self {
            stored,
            gaps: Arc::default(),
        }
    }

    /// Returns the samples of a dataset of `stored` samples without the `deleted` ranges. Each range is a pair of its
    /// first number and the number after its last. The ranges must be sorted, and must not touch each other.
    ///
    /// # Errors
    ///
    /// Returns the first range that is empty, out of order or beyond the last sample.
    pub fn without(
        stored: u64,
        deleted: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<Self, (u64, u64)> {
        let mut gaps: Vec<Gap> = Vec::new();
        let mut before = 0_u64;
        for (start, end) in deleted {
            let follows = gaps.last().is_none_or(|last| last.end < start);
            if start >= end || end > stored || !follows {
                return Err((start, end));
            }
            gaps.push(Gap { start, end, before });
            before = before.saturating_add(end - start);
        }
        Ok(Self {
            stored,
            gaps: gaps.into(),
        })
    }

    /// Returns the number of samples that the shards store.
    #[must_use]
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// Returns the number of deleted samples.
    #[must_use]
    pub fn deleted(&self) -> u64 {
        self.gaps
            .last()
            .map_or(0, |gap| gap.before + (gap.end - gap.start))
    }

    /// Returns the number of live samples.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.stored.saturating_sub(self.deleted())
    }

    /// Returns whether there are no live samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether no sample is deleted.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.gaps.is_empty()
    }

    /// Returns the ranges of deleted samples, by stored number.
    pub fn deleted_ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.gaps.iter().map(|gap| (gap.start, gap.end))
    }

    /// Returns whether the sample with a stored number is live.
    #[must_use]
    pub fn contains(&self, stored: u64) -> bool {
        let next = self.gaps.partition_point(|gap| gap.end <= stored);
        stored < self.stored && self.gaps.get(next).is_none_or(|gap| stored < gap.start)
    }

    /// Returns how many live samples come before a stored number. If that sample is live, this is its live number.
    #[must_use]
    pub fn live_before(&self, stored: u64) -> u64 {
        let next = self.gaps.partition_point(|gap| gap.end <= stored);
        let deleted = match self.gaps.get(next) {
            Some(gap) => gap.before + stored.saturating_sub(gap.start),
            None => self.deleted(),
        };
        stored - deleted
    }

    /// Returns the stored number of a live sample; the number of stored samples if `live` is out of range.
    #[must_use]
    pub fn stored_number(&self, live: u64) -> u64 {
        // `start - before` is the live number of the first sample after a gap.
        let next = self
            .gaps
            .partition_point(|gap| gap.start - gap.before <= live);
        let deleted = match self.gaps.get(next) {
            Some(gap) => gap.before,
            None => self.deleted(),
        };
        live.saturating_add(deleted).min(self.stored)
    }

    /// Returns how many samples of a range of stored numbers are live.
    #[must_use]
    pub fn count_in(&self, stored: &Range<u64>) -> u64 {
        self.live_before(stored.end)
            .saturating_sub(self.live_before(stored.start))
    }

    /// Returns the ranges of live samples within a range of stored numbers.
    pub fn live_ranges(&self, stored: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'_> {
        let first = self.gaps.partition_point(|gap| gap.end <= stored.start);
        let mut gaps = self.gaps.get(first..).unwrap_or_default().iter();
        let mut next = stored.start;
        std::iter::from_fn(move || {
            while next < stored.end {
                let (end, after) = match gaps.next() {
                    Some(gap) => (gap.start.min(stored.end), gap.end),
                    None => (stored.end, stored.end),
                };
                let range = next..end;
                next = after.max(next);
                if !range.is_empty() {
                    return Some(range);
                }
            }
            None
        })
    }

    /// Returns a digest of the ranges of deleted samples; `None` if no sample is deleted.
    #[must_use]
    pub fn digest(&self) -> Option<[u8; 16]> {
        if self.is_all() {
            return None;
        }
        let mut hasher = Hasher::new(HashAlgo::Sha256);
        for (start, end) in self.deleted_ranges() {
            hasher.update(&start.to_le_bytes());
            hasher.update(&end.to_le_bytes());
        }
        hasher.finish().as_bytes().first_chunk().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_translated_as_by_a_list_of_all_live_samples() {
        let cases: [&[(u64, u64)]; 7] = [
            &[],
            &[(0, 1)],
            &[(2, 4), (7, 8), (11, 15)],
            &[(0, 20)],
            &[(19, 20)],
            &[(0, 3), (4, 5), (6, 19)],
            &[(5, 6)],
        ];
        for deleted in cases {
            let live = LiveSamples::without(20, deleted.iter().copied()).unwrap();
            let is_deleted = |number: u64| deleted.iter().any(|(a, b)| (*a..*b).contains(&number));
            let left: Vec<u64> = (0..20).filter(|number| !is_deleted(*number)).collect();
            assert_eq!(live.len(), left.len() as u64);
            assert_eq!(live.deleted() + live.len(), 20);
            for number in 0..=20 {
                let before = left.iter().filter(|other| **other < number).count() as u64;
                assert_eq!(live.live_before(number), before, "{deleted:?} {number}");
                assert_eq!(live.contains(number), left.contains(&number));
            }
            for (number, stored) in left.iter().enumerate() {
                assert_eq!(live.stored_number(number as u64), *stored, "{deleted:?}");
            }
            assert_eq!(live.stored_number(live.len()), 20);
            for from in 0..=20 {
                for to in from..=20 {
                    let wanted: Vec<u64> = left
                        .iter()
                        .copied()
                        .filter(|number| (from..to).contains(number))
                        .collect();
                    let found: Vec<u64> = live.live_ranges(from..to).flatten().collect();
                    assert_eq!(found, wanted, "{deleted:?} {from}..{to}");
                    assert_eq!(live.count_in(&(from..to)), wanted.len() as u64);
                }
            }
        }
    }

    #[test]
    fn lists_that_cannot_be_true_are_refused() {
        for deleted in [
            vec![(3, 3)],
            vec![(4, 3)],
            vec![(0, 11)],
            vec![(0, 2), (1, 3)],
            vec![(0, 2), (2, 3)],
            vec![(5, 6), (0, 1)],
        ] {
            assert!(LiveSamples::without(10, deleted).is_err());
        }
    }

    #[test]
    fn a_digest_is_of_what_is_deleted() {
        let of = |deleted: &[(u64, u64)]| {
            LiveSamples::without(10, deleted.iter().copied())
                .unwrap()
                .digest()
        };
        assert_eq!(of(&[]), None);
        assert_ne!(of(&[(1, 2)]), of(&[(2, 3)]));
        assert_eq!(of(&[(1, 2)]), of(&[(1, 2)]));
    }
}
