//! Interleaves streams in exact shares, as a function with random access.
//!
//! A *piece* is a run of samples in which every weight is constant or changes linearly. The streams' samples of a piece
//! are rounded once, by largest remainders, so each differs from its exact share by less than one sample. Inside the
//! piece, the samples of a stream are due when its exact share passes 1/2, 3/2, 5/2 and so on (Webster's method), and
//! all samples are ordered by the tick in which they are due. Both directions are found by bisection, so nothing is
//! stored per sample. All arithmetic is on integers, so all machines compute the same order.

use crate::num::{count, index, low64, real};

/// The sum of all weights at any point. With pieces of at most 2^40 samples, no product exceeds 128 bits.
pub(crate) const SCALE: u64 = 1 << 40;

/// The most samples of a piece.
pub(crate) const MAX_IN_PIECE: u64 = 1 << 40;

/// The fixed-point bits of the passed part of a piece.
const BITS: u32 = 60;

/// A stream's part of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Curve {
    /// The samples in the whole piece.
    quota: u64,
    /// The weights at the start and at the end.
    weights: (u64, u64),
}

/// A run of samples in which all weights are linear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first sample of the run that belongs to the piece, and the exclusive end. A stream that is used up may end
    /// the piece before its length.
    pub(crate) start: u64,
    pub(crate) end: u64,
    length: u64,
    curves: Vec<Curve>,
    /// The samples of each stream before the piece.
    pub(crate) before: Vec<u64>,
}

impl Piece {
    /// Creates the piece of `length` samples from `start` on, with the weights at both ends, each of sum [`SCALE`].
    pub(crate) fn new(
        start: u64,
        length: u64,
        weights: (&[u64], &[u64]),
        before: Vec<u64>,
    ) -> Self {
        let both = || weights.0.iter().copied().zip(weights.1.iter().copied());
        let exact: Vec<u128> = both()
            .map(|(first, last)| u128::from(length) * (u128::from(first) + u128::from(last)))
            .collect();
        let quotas = apportion(length, &exact, 2 * u128::from(SCALE));
        let curves = both().zip(quotas);
        Self {
            start,
            end: start + length,
            length,
            curves: curves
                .map(|(weights, quota)| Curve { quota, weights })
                .collect(),
            before,
        }
    }

    /// Returns how many samples the piece has of each stream, and the exact share of each at the current end.
    pub(crate) fn shares(&self) -> Vec<(u64, f64)> {
        let length = self.end - self.start;
        let counts = self.counts_before(length);
        let part = real(length) / real(self.length.max(1));
        let curves = self.curves.iter().zip(counts);
        curves
            .map(|(curve, counted)| {
                let (first, last) = (real(curve.weights.0), real(curve.weights.1));
                let mean = first + (last - first) * part / 2.0;
                (counted, mean / real(SCALE) * real(length))
            })
            .collect()
    }

    /// Returns how many samples of a stream are due up to a tick.
    fn due(&self, curve: &Curve, tick: u64) -> u64 {
        let (quota, length) = (curve.quota, self.length);
        if tick >= length {
            return quota;
        }
        let (first, last) = curve.weights;
        // PERF: 64-bit division is several times faster, and is enough for constant weights below 2^31 samples.
        if first == last
            && let Some(twice) = quota.checked_mul(2 * tick)
            && let Some(sum) = twice.checked_add(length)
        {
            return sum / (2 * length);
        }
        let (wide_tick, wide_length) = (u128::from(tick), u128::from(length));
        let (first, last) = (u128::from(first), u128::from(last));
        let passed = wide_tick * (first * (2 * wide_length - wide_tick) + last * wide_tick);
        let whole = wide_length * wide_length * (first + last);
        let shift = (u128::BITS - whole.leading_zeros()).saturating_sub(64);
        let part = ((passed >> shift) << BITS) / (whole >> shift).max(1);
        let rounded = (u128::from(quota) * part + (1 << (BITS - 1))) >> BITS;
        low64(rounded).min(quota)
    }

    fn all_due(&self, tick: u64) -> u64 {
        self.curves.iter().map(|curve| self.due(curve, tick)).sum()
    }

    /// Returns the first tick up to which more than `sample_in_piece` samples are due.
    fn tick_of(&self, sample_in_piece: u64) -> u64 {
        // All streams together are at most half a sample each ahead or late, so the tick is near the sample.
        let near = 2 * count(self.curves.len()) + 2;
        let (mut low, mut high) = (
            sample_in_piece.saturating_sub(near),
            (sample_in_piece + near).min(self.length),
        );
        if self.all_due(low) > sample_in_piece {
            low = 0;
        }
        if self.all_due(high) <= sample_in_piece {
            high = self.length;
        }
        // INVARIANT: at most `sample_in_piece` samples are due up to `low`, and more up to `high`.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.all_due(middle) > sample_in_piece {
                true => high = middle,
                false => low = middle,
            }
        }
        high
    }

    /// Returns the stream of a sample of the run, and how many samples of that stream come before it.
    pub(crate) fn at(&self, sample: u64) -> (usize, u64) {
        let sample_in_piece = sample - self.start;
        let tick = self.tick_of(sample_in_piece);
        let mut rest = sample_in_piece - self.all_due(tick - 1);
        for (stream, curve) in self.curves.iter().enumerate() {
            let earlier = self.due(curve, tick - 1);
            let new = self.due(curve, tick) - earlier;
            if rest < new {
                return (stream, self.before[stream] + earlier + rest);
            }
            rest -= new;
        }
        debug_assert!(false, "more samples are due than the streams have");
        (0, self.before[0])
    }

    /// Returns how many samples of each stream are among the first `sample_in_piece` of the piece.
    pub(crate) fn counts_before(&self, sample_in_piece: u64) -> Vec<u64> {
        if sample_in_piece >= self.length {
            return self.curves.iter().map(|curve| curve.quota).collect();
        }
        let tick = self.tick_of(sample_in_piece);
        let mut rest = sample_in_piece - self.all_due(tick - 1);
        let curves = self.curves.iter();
        curves
            .map(|curve| {
                let earlier = self.due(curve, tick - 1);
                let new = (self.due(curve, tick) - earlier).min(rest);
                rest -= new;
                earlier + new
            })
            .collect()
    }

    /// Returns the sample of the run at which a stream's sample is. `number` counts the samples of the stream in the
    /// whole run. `None` if it is not in this piece.
    pub(crate) fn sample_of(&self, stream: usize, number: u64) -> Option<u64> {
        let sample = self.uncut_sample_of(stream, number)?;
        (sample < self.end).then_some(sample)
    }

    /// Like [`sample_of`](Self::sample_of), for a piece that is not cut off.
    fn uncut_sample_of(&self, stream: usize, number: u64) -> Option<u64> {
        let curve = self.curves.get(stream)?;
        let number_in_piece = number.checked_sub(*self.before.get(stream)?)?;
        if number_in_piece >= curve.quota {
            return None;
        }
        let (mut low, mut high) = (0, self.length);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.due(curve, middle) > number_in_piece {
                true => high = middle,
                false => low = middle,
            }
        }
        let mut sample = self.start + self.all_due(low) + (number_in_piece - self.due(curve, low));
        for before in self.curves.get(..stream)? {
            sample += self.due(before, high) - self.due(before, low);
        }
        Some(sample)
    }

    /// Cuts the piece off at the first sample of a stream that has only so many samples.
    pub(crate) fn cut_at_limits(&mut self, limits: &[Option<u64>]) {
        for (stream, limit) in limits.iter().enumerate() {
            let Some(limit) = *limit else { continue };
            if let Some(sample) = self.uncut_sample_of(stream, limit.max(self.before[stream])) {
                self.end = self.end.min(sample);
            }
        }
    }

    /// Returns the number of samples of each stream up to the end of the piece.
    pub(crate) fn after(&self) -> Vec<u64> {
        let counts = self.counts_before(self.end - self.start);
        let sums = self.before.iter().zip(counts);
        sums.map(|(before, counted)| before + counted).collect()
    }
}

/// Divides `total` into whole parts in proportion to `shares / denominator`, whose sum is `total`. Each part is rounded
/// down, and the rest is given to the largest remainders; earlier parts come first.
pub(crate) fn apportion(total: u64, shares: &[u128], denominator: u128) -> Vec<u64> {
    let mut parts: Vec<u64> = shares
        .iter()
        .map(|share| low64(share / denominator))
        .collect();
    let given: u64 = parts.iter().sum();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|part| (u128::MAX - shares[*part] % denominator, *part));
    for part in order.into_iter().take(index(total.saturating_sub(given))) {
        parts[part] += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn normal(weights: &[u64]) -> Vec<u64> {
        let sum: u128 = weights.iter().copied().map(u128::from).sum();
        let shares: Vec<u128> = weights
            .iter()
            .map(|weight| u128::from(*weight) * u128::from(SCALE))
            .collect();
        apportion(SCALE, &shares, sum)
    }

    fn piece(length: u64, first: &[u64], last: &[u64]) -> Piece {
        let before = vec![0; first.len()];
        Piece::new(0, length, (&normal(first), &normal(last)), before)
    }

    #[test]
    fn streams_with_equal_weights_alternate() {
        let piece = piece(8, &[1, 1], &[1, 1]);
        let streams: Vec<usize> = (0..8).map(|sample| piece.at(sample).0).collect();
        assert_eq!(streams, [0, 1, 0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn ramp_shifts_shares_between_streams() {
        let piece = piece(1000, &[1, 0], &[0, 1]);
        let of_second = |range: std::ops::Range<u64>| range.map(|at| piece.at(at).0).sum::<usize>();
        assert_eq!(of_second(0..1000), 500);
        assert!((4..=6).contains(&of_second(0..100)));
        assert!((94..=96).contains(&of_second(900..1000)));
    }

    #[test]
    fn interleaving_is_exact_for_billions_of_samples() {
        for last in [[3, 1], [1, 3]] {
            let piece = piece(MAX_IN_PIECE, &[3, 1], &last);
            assert_eq!(piece.after().iter().sum::<u64>(), MAX_IN_PIECE);
            for sample in [0, 1, 12_345_678_901, MAX_IN_PIECE / 2, MAX_IN_PIECE - 1] {
                let (stream, number) = piece.at(sample);
                assert_eq!(piece.sample_of(stream, number), Some(sample));
            }
        }
    }

    fn ends() -> impl Strategy<Value = (Vec<u64>, Vec<u64>)> {
        (1_usize..9).prop_flat_map(|streams| {
            let weights = || {
                let each = prop_oneof![Just(0_u64), 1_u64..20, 1_u64..1_000_000];
                prop::collection::vec(each, streams)
                    .prop_filter("a sum of 0", |weights| weights.iter().any(|one| *one > 0))
            };
            (weights(), weights(), any::<bool>()).prop_map(|(first, last, is_constant)| {
                (first.clone(), if is_constant { first } else { last })
            })
        })
    }

    proptest! {
        #[test]
        fn each_sample_appears_once_with_exact_shares(
            (first, last) in ends(), length in 1_u64..3000,
        ) {
            let piece = piece(length, &first, &last);
            let streams = first.len();
            let mut counts = vec![0; streams];
            let half = real(count(streams)) / 2.0;
            for sample in 0..length {
                prop_assert_eq!(piece.counts_before(sample), counts.clone());
                let (stream, number) = piece.at(sample);
                prop_assert_eq!(number, counts[stream]);
                prop_assert_eq!(piece.sample_of(stream, number), Some(sample));
                counts[stream] += 1;
                let mut cut = piece.clone();
                cut.end = sample + 1;
                for (counted, exact) in cut.shares() {
                    prop_assert!((real(counted) - exact).abs() < 2.0 + half, "{counted} {exact}");
                }
            }
            for (counted, exact) in piece.shares() {
                prop_assert!((real(counted) - exact).abs() <= 1.0, "{counted} {exact}");
            }
        }
    }
}
