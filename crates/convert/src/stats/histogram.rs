//! Histograms with exact counts in one pass, for numbers whose range is not known in advance.
//!
//! A bin covers the values from `index * 2^power` to `(index + 1) * 2^power`. `power` is the smallest for which at most
//! [`MAX_BINS`] bins cover all values so far. When the range grows, neighbouring bins are added up; none is ever
//! divided. So the counts are exact, and they do not depend on the order of the values.

use std::collections::BTreeMap;

/// The most bins of a histogram. There are at least half as many, unless the values need fewer.
const MAX_BINS: i128 = 16;

/// The power for values that are as close to zero as floats can be.
const LOWEST_POWER: i32 = -1000;

/// A number of a column, all of which are of one kind.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum Exact {
    Int(i128),
    /// It is finite.
    Float(f64),
}

/// A number as an integer times a power of two.
#[derive(Clone, Copy, Debug)]
struct Scaled {
    integer: i128,
    power: i32,
}

impl From<Exact> for Scaled {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the power keeps it below 2^54"
    )]
    fn from(number: Exact) -> Self {
        match number {
            Exact::Int(integer) => Self { integer, power: 0 },
            Exact::Float(value) => {
                let exponent = i32::try_from((value.to_bits() >> 52) & 0x7ff).unwrap_or(0);
                let power = (exponent - 1075).max(LOWEST_POWER);
                // A value far below the width of a bin must not lose its sign.
                let integer = (value * 2.0_f64.powi(-power)).floor() as i128;
                Self { integer, power }
            }
        }
    }
}

impl Scaled {
    /// Returns the bin of the number. The width of bins is at least the power of the number.
    fn bin(self, power: i32) -> i128 {
        self.integer >> (power - self.power).clamp(0, 127)
    }
}

/// The counts of the bins.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    power: i32,
    /// The bins that are not empty, by their indexes.
    counts: BTreeMap<i128, u64>,
}

impl Histogram {
    /// Counts a number.
    pub(super) fn add(&mut self, number: Exact) {
        self.add_many(number.into(), 1);
    }

    /// Adds the counts of another histogram.
    pub(super) fn merge(&mut self, other: &Self) {
        let power = other.power;
        for (integer, count) in &other.counts {
            // The index of a bin is a number for wider bins.
            let integer = *integer;
            self.add_many(Scaled { integer, power }, *count);
        }
    }

    fn add_many(&mut self, number: Scaled, count: u64) {
        if self.counts.is_empty() {
            self.power = number.power;
        }
        self.widen(number.power);
        let bins = self.counts.len();
        *self.counts.entry(number.bin(self.power)).or_default() += count;
        if self.counts.len() > bins {
            while let Some((first, last)) = self.range()
                && last.saturating_sub(first) >= MAX_BINS
            {
                self.widen(self.power + 1);
            }
        }
    }

    /// Returns the indexes of the first and the last bin.
    fn range(&self) -> Option<(i128, i128)> {
        let (first, _) = self.counts.first_key_value()?;
        let (last, _) = self.counts.last_key_value()?;
        Some((*first, *last))
    }

    /// Makes the bins at least this wide.
    fn widen(&mut self, power: i32) {
        if power > self.power {
            let by = (power - self.power).min(127);
            for (index, count) in std::mem::take(&mut self.counts) {
                *self.counts.entry(index >> by).or_default() += count;
            }
            self.power = power;
        }
    }

    /// Returns the power of the width of a bin.
    pub(super) const fn power(&self) -> i32 {
        self.power
    }

    /// Returns the index and the count of each bin, from the first to the last one that is not empty.
    pub(super) fn bins(&self) -> impl Iterator<Item = (i128, u64)> {
        let range = self.range().map(|(first, last)| first..=last);
        let count = |index| (index, self.counts.get(&index).copied().unwrap_or_default());
        range.into_iter().flatten().map(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<T: Copy>(values: &[T], number: fn(T) -> Exact) -> Histogram {
        let mut histogram = Histogram::default();
        for value in values {
            histogram.add(number(*value));
        }
        histogram
    }

    fn ints(values: &[i128]) -> Histogram {
        of(values, Exact::Int)
    }

    fn floats(values: &[f64]) -> Histogram {
        of(values, Exact::Float)
    }

    fn shown(histogram: &Histogram) -> (i32, Vec<(i128, u64)>) {
        (histogram.power(), histogram.bins().collect())
    }

    fn by_hand(indexes: &[i128]) -> Vec<(i128, u64)> {
        let (first, last) = (
            *indexes.iter().min().unwrap(),
            *indexes.iter().max().unwrap(),
        );
        (first..=last)
            .map(|bin| {
                (
                    bin,
                    indexes.iter().filter(|index| **index == bin).count() as u64,
                )
            })
            .collect()
    }

    /// Numbers without a pattern that a bug could hide in.
    fn numbers(count: u64) -> Vec<u64> {
        let mut state = 1_u64;
        (0..count)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                state >> 20
            })
            .collect()
    }

    #[test]
    fn integer_bins_are_exact_in_any_order() {
        let values: Vec<i128> = numbers(5000)
            .iter()
            .map(|n| i128::from(*n) - (1 << 43))
            .collect();
        let (power, bins) = shown(&ints(&values));
        let indexes: Vec<i128> = values.iter().map(|value| value >> power).collect();
        assert_eq!(bins, by_hand(&indexes));
        assert!((8..=16).contains(&bins.len()), "{}", bins.len());
        let mut sorted = values.clone();
        sorted.sort_unstable();
        assert_eq!(shown(&ints(&sorted)), (power, bins.clone()));
        let (a, b) = values.split_at(1234);
        let mut merged = ints(b);
        merged.merge(&ints(a));
        assert_eq!(shown(&merged), (power, bins));
    }

    #[test]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the indexes are below 2^54"
    )]
    fn float_bins_are_exact_in_any_order() {
        let mut values: Vec<f64> = numbers(5000)
            .iter()
            .map(|n| *n as f64 / 7.0 - 1e12)
            .collect();
        values.extend([1e-300, -1e-300, 0.0, 5e-324, -5e-324]);
        let (power, bins) = shown(&floats(&values));
        let indexes: Vec<i128> = values
            .iter()
            // A value far below the width of a bin must not lose its sign.
            .map(
                |value| match (value / 2.0_f64.powi(power)).floor() as i128 {
                    0 if *value < 0.0 => -1,
                    index => index,
                },
            )
            .collect();
        assert_eq!(bins, by_hand(&indexes));
        assert_eq!(bins.iter().map(|(_, count)| count).sum::<u64>(), 5005);
        values.reverse();
        let (a, b) = values.split_at(17);
        let mut merged = floats(a);
        merged.merge(&floats(b));
        assert_eq!(shown(&merged), (power, bins));
    }

    #[test]
    fn extreme_values_are_binned() {
        for values in [
            vec![f64::MIN, f64::MAX, 0.0],
            vec![5e-324],
            vec![5e-324, -5e-324],
            vec![f64::MAX],
            vec![1.0, 1.0 + f64::EPSILON],
        ] {
            let (_, bins) = shown(&floats(&values));
            assert_eq!(
                bins.iter().map(|(_, count)| *count).sum::<u64>(),
                values.len() as u64,
                "{values:?}"
            );
        }
        let (power, bins) = shown(&ints(&[i128::MIN, i128::MAX]));
        assert_eq!((power, bins.len()), (124, 16));
        assert_eq!(shown(&ints(&[7])), (0, vec![(7, 1)]));
    }

    #[test]
    fn merging_an_empty_histogram_changes_nothing() {
        let mut histogram = ints(&[3, 4]);
        histogram.merge(&Histogram::default());
        assert_eq!(shown(&histogram), (0, vec![(3, 1), (4, 1)]));
        let mut empty = Histogram::default();
        empty.merge(&histogram);
        assert_eq!(shown(&empty), (0, vec![(3, 1), (4, 1)]));
    }
}
