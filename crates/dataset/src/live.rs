//! Numbers the samples of a dataset that are read.
//!
//! Every part of the reader that numbers, counts or orders samples uses [`LiveSamples`]. A *stored* number counts all
//! samples of the shards. A *live* number counts those that are read: those that are not deleted, and that a view
//! selects.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use shardmill_mds::{HashAlgo, Hasher};

use crate::bits::Bits;

/// The live samples among the stored samples of a dataset.
///
/// Few gaps are kept as ranges, and numbers are converted by binary search. Many gaps are kept as a bit for each sample.
/// A clone shares them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSamples {
    stored: u64,
    set: LiveSet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LiveSet {
    Gaps(Arc<[Gap]>),
    Bits(Arc<Bits>),
}

/// A range of samples that are not live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    start: u64,
    end: u64,
    /// The number of samples before `start` that are not live.
    before: u64,
}

/// Up to this number of gaps, ranges are kept in any case.
const FEW_GAPS: usize = 64;
/// The samples whose bits take as much memory as a range.
const SAMPLES_PER_GAP: u64 = 170;

impl Default for LiveSamples {
    fn default() -> Self {
        Self::all(0)
    }
}

impl LiveSamples {
    /// Returns the samples of a dataset of `stored` samples, all of which are live.
    #[must_use]
    pub fn all(stored: u64) -> Self {
        Self {
            stored,
            set: LiveSet::Gaps(Arc::default()),
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
        // The same samples are always kept in the same form.
        if has_many_gaps(stored, gaps.len()) {
            let starts = iter::once(0).chain(gaps.iter().map(|gap| gap.end));
            let ends = gaps.iter().map(|gap| gap.start).chain(iter::once(stored));
            let live = starts.zip(ends).map(|(start, end)| start..end);
            return Ok(Self::of_bits(stored, live));
        }
        Ok(Self {
            stored,
            set: LiveSet::Gaps(gaps.into()),
        })
    }

    /// Returns the samples of a dataset of `stored` samples that are in the ranges. `live` returns the ranges each time
    /// that it is called. They must be sorted, not empty and within the samples, and must not touch each other.
    ///
    /// # Errors
    ///
    /// As for [`Self::without`], the first gap between ranges that are not sorted.
    pub fn of_ranges<R: Iterator<Item = Range<u64>>>(
        stored: u64,
        live: impl Fn() -> R,
    ) -> Result<Self, (u64, u64)> {
        let gaps = || {
            let mut next = 0;
            let live = live().chain(iter::once(stored..stored));
            live.filter_map(move |range| {
                let gap = (next, range.start);
                next = range.end;
                (gap.0 != gap.1).then_some(gap)
            })
        };
        // PERF: the ranges of millions of gaps would need more memory than the bits.
        match has_many_gaps(stored, gaps().count()) {
            true => Ok(Self::of_bits(stored, live())),
            false => Self::without(stored, gaps()),
        }
    }

    fn of_bits(stored: u64, live: impl Iterator<Item = Range<u64>>) -> Self {
        Self {
            stored,
            set: LiveSet::Bits(Arc::new(Bits::new(stored, live))),
        }
    }

    /// Returns the number of samples that the shards store.
    #[must_use]
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// Returns the number of samples that are not live.
    #[must_use]
    pub fn deleted(&self) -> u64 {
        match &self.set {
            LiveSet::Gaps(gaps) => gaps
                .last()
                .map_or(0, |gap| gap.before + (gap.end - gap.start)),
            LiveSet::Bits(bits) => self.stored - bits.ones(),
        }
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

    /// Returns whether all samples are live.
    #[must_use]
    pub fn is_all(&self) -> bool {
        matches!(&self.set, LiveSet::Gaps(gaps) if gaps.is_empty())
    }

    /// Returns the ranges of samples that are not live, by stored number.
    pub fn deleted_ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut next = 0;
        iter::from_fn(move || {
            let start = self.next(next, false);
            let end = self.next(start, true);
            next = end;
            (start < end).then_some((start, end))
        })
    }

    /// Returns whether the sample with a stored number is live.
    #[must_use]
    pub fn contains(&self, stored: u64) -> bool {
        match &self.set {
            LiveSet::Gaps(gaps) => {
                let next = gaps.partition_point(|gap| gap.end <= stored);
                stored < self.stored && gaps.get(next).is_none_or(|gap| stored < gap.start)
            }
            LiveSet::Bits(bits) => bits.contains(stored),
        }
    }

    /// Returns how many live samples come before a stored number. If that sample is live, this is its live number.
    #[must_use]
    pub fn live_before(&self, stored: u64) -> u64 {
        let gaps = match &self.set {
            LiveSet::Gaps(gaps) => gaps,
            LiveSet::Bits(bits) => return bits.rank(stored),
        };
        let next = gaps.partition_point(|gap| gap.end <= stored);
        let deleted = match gaps.get(next) {
            Some(gap) => gap.before + stored.saturating_sub(gap.start),
            None => self.deleted(),
        };
        stored - deleted
    }

    /// Returns the stored number of a live sample; the number of stored samples if `live` is out of range.
    #[must_use]
    pub fn stored_number(&self, live: u64) -> u64 {
        let gaps = match &self.set {
            LiveSet::Gaps(gaps) => gaps,
            LiveSet::Bits(bits) => return bits.select(live),
        };
        // `start - before` is the live number of the first sample after a gap.
        let next = gaps.partition_point(|gap| gap.start - gap.before <= live);
        let deleted = match gaps.get(next) {
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
        let mut next = stored.start;
        iter::from_fn(move || {
            let start = self.next(next, true).min(stored.end);
            let end = self.next(start, false).min(stored.end);
            next = end;
            (start < end).then_some(start..end)
        })
    }

    /// Returns the first stored number from `from` on that is live, or is not live; the number of stored samples if
    /// there is none.
    fn next(&self, from: u64, live: bool) -> u64 {
        let gaps = match &self.set {
            LiveSet::Gaps(gaps) => gaps,
            LiveSet::Bits(bits) => return bits.next(from, live),
        };
        let next = gaps.partition_point(|gap| gap.end <= from);
        match (gaps.get(next), live) {
            (Some(gap), true) if gap.start <= from => gap.end,
            (_, true) => from.min(self.stored),
            (Some(gap), false) => gap.start.max(from),
            (None, false) => self.stored,
        }
    }

    /// Returns a digest of the ranges of samples that are not live; `None` if all samples are live.
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

/// The live samples of a dataset, by shard.
#[derive(Clone, Debug)]
pub struct LiveShards {
    /// The live samples.
    pub live: LiveSamples,
    /// The stored number of the first sample of each shard, then the number of stored samples.
    starts: Vec<u64>,
}

impl LiveShards {
    /// Returns all samples of shards that store these numbers of samples.
    pub(crate) fn all(samples: impl IntoIterator<Item = u64>) -> Self {
        let starts = starts_of(samples);
        let stored = starts.last().copied().unwrap_or_default();
        Self {
            live: LiveSamples::all(stored),
            starts,
        }
    }

    /// Returns the stored number of the first sample of a shard; for a shard that does not exist, the number of stored
    /// samples.
    fn start(&self, shard: usize) -> u64 {
        let start = self.starts.get(shard).copied();
        start.unwrap_or(self.live.stored())
    }

    /// Returns the stored numbers of the samples of a shard.
    #[must_use]
    pub fn stored_samples(&self, shard: usize) -> Range<u64> {
        self.start(shard)..self.start(shard + 1)
    }

    /// Returns the number of live samples of a shard.
    #[must_use]
    pub fn samples_of(&self, shard: usize) -> u64 {
        self.live.count_in(&self.stored_samples(shard))
    }

    /// Returns the shard of a stored sample, and its position in the shard.
    pub(crate) fn shard_of(&self, stored: u64) -> (usize, u64) {
        // Of several shards with the same start, all but the last are empty.
        let next = self.starts.partition_point(|start| *start <= stored);
        let shard = next.saturating_sub(1);
        (shard, stored - self.start(shard))
    }

    /// Returns the position in its shard of the live sample with this number in the shard.
    pub(crate) fn stored_at(&self, shard: usize, live: u64) -> u64 {
        let start = self.start(shard);
        let before = self.live.live_before(start);
        self.live.stored_number(before.saturating_add(live)) - start
    }

    /// Returns how many live samples of a shard come before a position in it.
    pub(crate) fn live_before(&self, shard: usize, at: u64) -> u64 {
        let start = self.start(shard);
        self.live.count_in(&(start..start.saturating_add(at)))
    }

    /// Returns whether the sample at a position in a shard is live.
    pub(crate) fn has(&self, shard: usize, at: u64) -> bool {
        self.live.contains(self.start(shard).saturating_add(at))
    }
}

/// Returns the stored number of the first sample of each of these shards, then the number of all samples.
pub(crate) fn starts_of(samples: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let ends = samples.into_iter().scan(0_u64, |end, samples| {
        *end = end.saturating_add(samples);
        Some(*end)
    });
    iter::once(0).chain(ends).collect()
}

/// Returns whether bits take less memory than ranges of gaps.
const fn has_many_gaps(stored: u64, gaps: usize) -> bool {
    gaps > FEW_GAPS && (gaps as u64).saturating_mul(SAMPLES_PER_GAP) > stored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_samples_equal_a_plain_list() {
        let cases: [&[(u64, u64)]; 7] = [
            &[],
            &[(0, 1)],
            &[(2, 4), (7, 8), (11, 15)],
            &[(0, 20)],
            &[(19, 20)],
            &[(0, 3), (4, 5), (6, 19)],
            &[(5, 6)],
        ];
        for (deleted, as_bits) in cases.iter().flat_map(|case| [(case, false), (case, true)]) {
            let mut live = LiveSamples::without(20, deleted.iter().copied()).unwrap();
            let ranges: Vec<_> = live.live_ranges(0..20).collect();
            assert_eq!(
                LiveSamples::of_ranges(20, || ranges.iter().cloned()),
                Ok(live.clone())
            );
            if as_bits && !deleted.is_empty() {
                live = LiveSamples::of_bits(20, ranges.into_iter());
            }
            assert!(live.deleted_ranges().eq(deleted.iter().copied()));
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
    fn many_gaps_are_stored_as_equivalent_bits() {
        let odd = (0..500).map(|number| (2 * number, 2 * number + 1));
        let live = LiveSamples::without(1000, odd.clone()).unwrap();
        assert!(matches!(live.set, LiveSet::Bits(_)));
        assert!(live.deleted_ranges().eq(odd.clone()));
        let ranges = || (0..500).map(|number| 2 * number + 1..2 * number + 2);
        assert_eq!(LiveSamples::of_ranges(1000, ranges), Ok(live.clone()));
        let far = LiveSamples::without(1_000_000, odd).unwrap();
        assert!(matches!(far.set, LiveSet::Gaps(_)));
        assert_eq!(far.digest(), live.digest());
    }

    #[test]
    fn invalid_deleted_ranges_are_errors() {
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
    fn digest_depends_on_deleted_samples() {
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
