//! Sets of sample numbers, stored as ranges.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A set of sample numbers. It is stored as sorted pairs of start and end (exclusive), with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Creates the set of the numbers in these ranges, which may be in any order.
    pub(crate) fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let ranges = ranges.into_iter().filter(|range| range.start < range.end);
        let mut sorted: Vec<(u64, u64)> = ranges.map(|range| (range.start, range.end)).collect();
        sorted.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, end) in sorted {
            match merged.last_mut() {
                Some((_, last)) if *last >= start => *last = end.max(*last),
                _ => merged.push((start, end)),
            }
        }
        Self(merged)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the set consists of exactly these ranges.
    pub(crate) fn is(&self, ranges: impl Iterator<Item = (u64, u64)>) -> bool {
        self.0.iter().copied().eq(ranges)
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the union of all sets.
    pub(crate) fn union<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        Self::of(all.into_iter().flat_map(Self::iter))
    }

    /// Returns whether the ranges are sorted, separate and not empty, and all numbers are below `end`.
    pub(crate) fn is_sound(&self, end: u64) -> bool {
        let mut before = None;
        self.0.iter().all(|(start, own_end)| {
            let is_behind = before.is_none_or(|before| before < *start);
            before = Some(*own_end);
            is_behind && start < own_end && *own_end <= end
        })
    }

    /// Returns the elements that are in `range`.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = u64> {
        let (from, to) = (range.start, range.end);
        let first = self.0.partition_point(|(_, end)| *end <= from);
        let here = self.0.get(first..).unwrap_or_default();
        here.iter()
            .take_while(move |(start, _)| *start < to)
            .flat_map(move |(start, end)| from.max(*start)..to.min(*end))
    }
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::single_range_in_vec_init,
        reason = "ranges are what it is about"
    )]

    use super::*;

    #[test]
    fn ranges_are_sorted_and_merged() {
        let ranges = Ranges::of([7..9, 0..2, 2..3, 5..5, 8..12]);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [0..3, 7..12]);
        assert_eq!((ranges.len(), ranges.is_empty()), (8, false));
        assert!(ranges.is_sound(12));
        assert!(!ranges.is_sound(11));
        let union = Ranges::union([&ranges, &Ranges::of([3..4])]);
        assert_eq!(union.iter().collect::<Vec<_>>(), [0..4, 7..12]);
        assert_eq!(ranges.within(&(1..8)).collect::<Vec<_>>(), [1, 2, 7]);
        assert_eq!(ranges.within(&(3..7)).count(), 0);
        assert_eq!(ranges.within(&(11..100)).collect::<Vec<_>>(), [11]);
    }

    #[test]
    fn unsorted_or_overlapping_ranges_are_invalid() {
        for text in [
            "[[3,2]]",
            "[[2,2]]",
            "[[0,2],[1,3]]",
            "[[0,2],[2,3]]",
            "[[5,6],[0,1]]",
        ] {
            let ranges: Ranges = serde_json::from_str(text).unwrap();
            assert!(!ranges.is_sound(100), "{text}");
        }
        let ranges: Ranges = serde_json::from_str("[[0,2],[3,4]]").unwrap();
        assert!(ranges.is_sound(4));
        assert_eq!(serde_json::to_string(&ranges).unwrap(), "[[0,2],[3,4]]");
    }
}
