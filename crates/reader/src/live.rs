//! Numbers the samples of a dataset without the deleted ones.
//!
//! Every part of the reader that numbers, counts or orders samples uses [`LiveSamples`]. A *stored* number counts all
//! samples of the shards. A *live* number counts those that are not deleted.

use std::ops::Range;
use std::sync::Arc;

use shardmill_mds::{HashAlgo, Hasher};

/// The live samples among the stored ones of a dataset.
///
/// The live samples among the stored samples of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveSamples {
    stored: u64,
    gaps: Arc<[Gap]>,
}

/// Consecutive samples that are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    start: u64,
    end: u64,
    /// How many samples are deleted before `start`.
    before: u64,
}

impl LiveSamples {
    /// A dataset of `stored` samples of which none is deleted.
    #[must_use]
    pub fn all(stored: u64) -> Self {
        Self {
            stored,
            gaps: Arc::default(),
        }
    }

    /// The samples that are left of `stored` ones without `deleted`: pairs of the first number and the one after the last,
    /// sorted, with gaps between them.
    /// Returns the samples of a dataset of `stored` samples without the `deleted` ranges. Each range is a pair of its
    /// first number and the number after its last. The ranges must be sorted, and must not touch each other.
    ///
    /// The first pair that is empty, out of order or beyond the last sample.
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

    /// Samples that the shards store.
    #[must_use]
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// Samples that are deleted.
    #[must_use]
    pub fn deleted(&self) -> u64 {
        self.gaps
            .last()
            .map_or(0, |gap| gap.before + (gap.end - gap.start))
    }

    /// Samples that are left.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.stored.saturating_sub(self.deleted())
    }

    /// Whether no sample is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no sample is deleted.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.gaps.is_empty()
    }

    /// The ranges of deleted samples, by stored number.
    pub fn deleted_ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.gaps.iter().map(|gap| (gap.start, gap.end))
    }

    /// Whether the sample with a stored number is left.
    #[must_use]
    pub fn contains(&self, stored: u64) -> bool {
        let next = self.gaps.partition_point(|gap| gap.end <= stored);
        stored < self.stored && self.gaps.get(next).is_none_or(|gap| stored < gap.start)
    }

    /// How many live samples come before a stored number: the live number of that sample, if it is left.
    #[must_use]
    pub fn live_before(&self, stored: u64) -> u64 {
        let next = self.gaps.partition_point(|gap| gap.end <= stored);
        let deleted = match self.gaps.get(next) {
            Some(gap) => gap.before + stored.saturating_sub(gap.start),
            None => self.deleted(),
        };
        stored - deleted
    }

    /// The stored number of the sample with a live number; the number of stored samples where there is none.
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

    /// How many of the samples with these stored numbers are left.
    #[must_use]
    pub fn count_in(&self, stored: &Range<u64>) -> u64 {
        self.live_before(stored.end)
            .saturating_sub(self.live_before(stored.start))
    }

    /// The ranges of live samples among those with these stored numbers.
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

    /// A digest of which samples are deleted; `None` where none is.
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
