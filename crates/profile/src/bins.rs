//! Histograms with exact counts in one pass, for numbers whose range is not known in advance.
//!
//! A bin covers the values from `index * 2^power` to `(index + 1) * 2^power`. `power` is the smallest for which at most
//! [`MAX_BINS`] bins cover all values so far. When the range grows, neighbouring bins are added up; none is ever
//! divided. So the counts are exact, and they do not depend on the order of the values.

/// The most bins of a histogram. There are at least half as many, unless the values need fewer.
pub(crate) const MAX_BINS: i128 = 16;

/// The power for values that are as close to zero as floats can be.
const LOWEST_POWER: i32 = -1000;

/// A type of numbers that can be counted in bins.
pub(crate) trait Binned: Copy + PartialOrd {
    /// Returns the smallest power that can be used for values between two others.
    fn first_power(low: Self, high: Self) -> i32;

    /// Returns the bin of a value.
    fn bin_index(self, power: i32) -> i128;
}

impl Binned for i128 {
    fn first_power(_: Self, _: Self) -> i32 {
        0
    }

    fn bin_index(self, power: i32) -> i128 {
        self >> power.clamp(0, 127)
    }
}

impl Binned for f64 {
    fn first_power(low: Self, high: Self) -> i32 {
        let largest = low.abs().max(high.abs());
        // With this power, the index of every value is below 2^54, so floats represent it exactly.
        (exponent(largest) - 52).max(LOWEST_POWER)
    }

    fn bin_index(self, power: i32) -> i128 {
        let scaled = self * power_of_two(-power);
        // A value far below the width of a bin must not lose its sign.
        if scaled == 0.0 && self < 0.0 {
            return -1;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "`first_power` keeps it below 2^54"
        )]
        let index = scaled.floor() as i128;
        index
    }
}

/// Returns the exponent of a finite number: 0 for 1, -1 for 0.5.
fn exponent(value: f64) -> i32 {
    let bits = (value.to_bits() >> 52) & 0x7ff;
    i32::try_from(bits).unwrap_or(0) - 1023
}

/// Returns a power of two. Powers that floats cannot represent become zero or infinity.
pub(crate) fn power_of_two(power: i32) -> f64 {
    2.0_f64.powi(power)
}

/// The counts of the bins.
#[derive(Clone, Debug)]
pub(crate) struct Bins<T> {
    /// The smallest and the largest value; `None` without values.
    range: Option<(T, T)>,
    power: i32,
    /// The index of the first bin.
    first: i128,
    counts: Vec<u64>,
}

impl<T> Default for Bins<T> {
    fn default() -> Self {
        Self {
            range: None,
            power: i32::MIN,
            first: 0,
            counts: Vec::new(),
        }
    }
}

impl<T: Binned> Bins<T> {
    /// Returns the smallest and the largest value.
    pub(crate) const fn range(&self) -> Option<(T, T)> {
        self.range
    }

    /// Counts a value, which must not be NaN or infinite.
    pub(crate) fn add(&mut self, value: T) {
        let inside = self
            .range
            .is_some_and(|(low, high)| value >= low && value <= high);
        if !inside {
            self.widen(value, value);
        }
        self.count(value.bin_index(self.power), 1);
    }

    /// Adds the counts of another histogram.
    pub(crate) fn merge(&mut self, other: &Self) {
        let Some((low, high)) = other.range else {
            return;
        };
        self.widen(low, high);
        // The index of a bin is a value for wider bins.
        for (index, count) in (other.first..).zip(&other.counts) {
            self.count(index.bin_index(self.power - other.power), *count);
        }
    }

    fn count(&mut self, index: i128, count: u64) {
        let at = usize::try_from(index - self.first).ok();
        if let Some(bin) = at.and_then(|at| self.counts.get_mut(at)) {
            *bin += count;
        }
    }

    /// Makes the bins also cover a range.
    fn widen(&mut self, low: T, high: T) {
        let (mine_low, mine_high) = self.range.unwrap_or((low, high));
        let low = if low < mine_low { low } else { mine_low };
        let high = if high > mine_high { high } else { mine_high };
        let mut power = T::first_power(low, high).max(self.power);
        while high.bin_index(power).saturating_sub(low.bin_index(power)) >= MAX_BINS {
            power += 1;
        }
        let (first, last) = (low.bin_index(power), high.bin_index(power));
        let bins = usize::try_from(last - first).unwrap_or(0) + 1;
        let before = std::mem::replace(&mut self.counts, vec![0; bins]);
        let (was_first, was_power) = (self.first, self.power);
        self.range = Some((low, high));
        self.power = power;
        self.first = first;
        for (index, count) in (was_first..).zip(before) {
            self.count(index.bin_index(power - was_power), count);
        }
    }

    /// Returns the power of the width of a bin, and the index and the count of each bin.
    pub(crate) fn bins(&self) -> (i32, impl Iterator<Item = (i128, u64)>) {
        (self.power, (self.first..).zip(self.counts.iter().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<T: Binned>(values: &[T]) -> Bins<T> {
        let mut bins = Bins::default();
        for value in values {
            bins.add(*value);
        }
        bins
    }

    fn shown<T: Binned>(bins: &Bins<T>) -> (i32, Vec<(i128, u64)>) {
        let (power, bins) = bins.bins();
        (power, bins.collect())
    }

    fn by_hand<T: Binned>(values: &[T], power: i32) -> Vec<(i128, u64)> {
        let indexes: Vec<i128> = values.iter().map(|value| value.bin_index(power)).collect();
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
        let (power, bins) = shown(&of(&values));
        assert_eq!(bins, by_hand(&values, power));
        assert!((8..=16).contains(&bins.len()), "{}", bins.len());
        let mut sorted = values.clone();
        sorted.sort_unstable();
        assert_eq!(shown(&of(&sorted)), (power, bins.clone()));
        let (a, b) = values.split_at(1234);
        let mut merged = of(b);
        merged.merge(&of(a));
        assert_eq!(shown(&merged), (power, bins));
    }

    #[test]
    fn float_bins_are_exact_in_any_order() {
        let mut values: Vec<f64> = numbers(5000)
            .iter()
            .map(|n| *n as f64 / 7.0 - 1e12)
            .collect();
        values.extend([1e-300, -1e-300, 0.0, 5e-324, -5e-324]);
        let (power, bins) = shown(&of(&values));
        assert_eq!(bins, by_hand(&values, power));
        assert_eq!(bins.iter().map(|(_, count)| count).sum::<u64>(), 5005);
        values.reverse();
        let (a, b) = values.split_at(17);
        let mut merged = of(a);
        merged.merge(&of(b));
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
            let (_, bins) = shown(&of(&values));
            assert_eq!(
                bins.iter().map(|(_, count)| *count).sum::<u64>(),
                values.len() as u64,
                "{values:?}"
            );
        }
        let (power, bins) = shown(&of(&[i128::MIN, i128::MAX]));
        assert_eq!((power, bins.len()), (124, 16));
        assert_eq!(shown(&of(&[7_i128])), (0, vec![(7, 1)]));
    }

    #[test]
    fn merging_an_empty_histogram_changes_nothing() {
        let mut bins = of(&[3_i128, 4]);
        bins.merge(&Bins::default());
        assert_eq!(shown(&bins), (0, vec![(3, 1), (4, 1)]));
        let mut empty = Bins::default();
        empty.merge(&bins);
        assert_eq!(shown(&empty), (0, vec![(3, 1), (4, 1)]));
    }
}
