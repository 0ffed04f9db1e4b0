//! Streams and their weights: how many samples of each stream an epoch takes.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/stream.py`. Differs in that three errors are detected here instead
//! of later: a mix without samples, a weight that is not a number, and a count above 2^48.

use shardmill_core::Error;

use crate::config::{StreamConfig, Weight};
use crate::error::{self, OrderProblem, ensure};
use crate::num::{count, index, real, trunc};
use crate::rng::Pcg64;

/// The most samples of an epoch or stream. Products with world sizes and doubles stay exact below it.
pub(crate) const MAX_SAMPLES: u64 = 1 << 48;

/// The most samples of a shard, which are counted in 32 bits. An MDS shard ends at 2^32 bytes.
const MAX_IN_SHARD: u64 = 1 << 31;

/// The resolved weight of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The number of samples of the stream.
    pub samples: u64,
    /// The number of samples that an epoch takes.
    pub choose: u64,
    /// The stream's part of the epoch, which determines its part of a stratified batch and of the shuffle block.
    pub proportion: f64,
}

/// Returns the shares of all streams; the sum of their `choose` is the epoch size.
///
/// `seed` is that of the configuration, not of a state. The streams that receive the samples left by rounding are
/// chosen once per run.
///
/// # Errors
/// `InvalidInput` if weights are mixed, negative or leave no samples, or if a stream is empty.
pub fn shares(
    streams: &[StreamConfig],
    epoch_size: Option<u64>,
    seed: u64,
) -> Result<Vec<Share>, Error> {
    let sizes = stream_sizes(streams)?;
    let epoch_size = epoch_size.filter(|size| *size > 0);
    check_samples("epoch_size", epoch_size.unwrap_or(0))?;
    let proportional =
        matches!(streams.first(), Some(first) if matches!(first.weight, Weight::Proportion(_)));
    let mut proportions = Vec::with_capacity(streams.len());
    let mut unspecified = true;
    for (stream, config) in streams.iter().enumerate() {
        if matches!(config.weight, Weight::Proportion(_)) != proportional {
            return Err(OrderProblem::MixedWeights
                .of_stream(stream, "proportions on some streams and not on others"));
        }
        unspecified &= config.weight == Weight::Unspecified;
        match config.weight {
            Weight::Proportion(value) => {
                if value.is_nan() || value < 0.0 {
                    return Err(bad(stream, "proportion", value));
                }
                proportions.push(value);
            }
            Weight::Repeat(value) if value.is_nan() || value < 0.0 => {
                return Err(bad(stream, "repeat", value));
            }
            _ => {}
        }
    }
    let total: u64 = sizes.iter().sum();
    if proportional {
        return relative(&sizes, proportions, epoch_size.unwrap_or(total), seed);
    }
    if let (true, Some(epoch_size)) = (unspecified, epoch_size) {
        let proportions = sizes.iter().map(|size| real(*size)).collect();
        return relative(&sizes, proportions, epoch_size, seed);
    }
    if epoch_size.is_some() {
        return Err(OrderProblem::MixedWeights.of_stream(
            0,
            "an epoch size can be combined only with proportions, not with repeat or choose",
        ));
    }
    absolute(streams, &sizes)
}

fn bad(stream: usize, weight: &'static str, value: f64) -> Error {
    OrderProblem::Weights.of_stream(
        stream,
        format!("{weight} is {value}, which is not a number from 0 to 2^63"),
    )
}

pub(crate) fn check_samples(option: &'static str, value: u64) -> Result<(), Error> {
    ensure(value <= MAX_SAMPLES, option, value, "at most 2^48")
}

/// Returns the number of samples of each stream.
pub(crate) fn stream_sizes(streams: &[StreamConfig]) -> Result<Vec<u64>, Error> {
    if streams.is_empty() {
        return Err(OrderProblem::Streams.error("there are no streams"));
    }
    let mut total = 0_u64;
    let mut sizes = Vec::with_capacity(streams.len());
    for (stream, config) in streams.iter().enumerate() {
        let mut samples = 0_u64;
        for size in config.shards.iter() {
            ensure(
                *size <= MAX_IN_SHARD,
                "shards",
                *size,
                "at most 2^31 samples in a shard",
            )?;
            samples = samples.saturating_add(*size);
        }
        if samples == 0 {
            return Err(OrderProblem::Streams.of_stream(stream, "has no samples"));
        }
        total = total.saturating_add(samples);
        check_samples("shards", total)?;
        sizes.push(samples);
    }
    Ok(sizes)
}

fn relative(
    sizes: &[u64],
    mut proportions: Vec<f64>,
    epoch_size: u64,
    seed: u64,
) -> Result<Vec<Share>, Error> {
    let sum = pairwise_sum(&proportions);
    if sum <= 0.0 || !sum.is_finite() {
        return Err(OrderProblem::Weights.error(format!("proportions add up to {sum}")));
    }
    let mut chosen = Vec::with_capacity(sizes.len());
    for (stream, proportion) in proportions.iter_mut().enumerate() {
        *proportion /= sum;
        let choose = trunc(real(epoch_size) * *proportion)
            .ok_or_else(|| bad(stream, "proportion", *proportion))?;
        chosen.push(choose);
    }
    let given: u64 = chosen.iter().sum();
    let short = epoch_size
        .checked_sub(given)
        .ok_or_else(|| error::choose_too_many(given, epoch_size))?;
    for lucky in Pcg64::new(u128::from(seed)).choice(count(sizes.len()), short)? {
        chosen[index(lucky)] += 1;
    }
    let shares = sizes.iter().zip(chosen).zip(proportions);
    Ok(shares
        .map(|((samples, choose), proportion)| Share {
            samples: *samples,
            choose,
            proportion,
        })
        .collect())
}

fn absolute(streams: &[StreamConfig], sizes: &[u64]) -> Result<Vec<Share>, Error> {
    let mut chosen = Vec::with_capacity(sizes.len());
    let mut total = 0_u64;
    for (stream, (config, samples)) in streams.iter().zip(sizes).enumerate() {
        let choose = match config.weight {
            Weight::Repeat(repeat) => {
                trunc(repeat * real(*samples)).ok_or_else(|| bad(stream, "repeat", repeat))?
            }
            Weight::Choose(choose) => choose,
            Weight::Unspecified | Weight::Proportion(_) => *samples,
        };
        total = total.saturating_add(choose);
        check_samples("epoch size", total)?;
        chosen.push(choose);
    }
    if total == 0 {
        return Err(error::nothing_chosen());
    }
    let shares = sizes.iter().zip(chosen);
    Ok(shares
        .map(|(samples, choose)| Share {
            samples: *samples,
            choose,
            proportion: real(choose) / real(total),
        })
        .collect())
}

/// COMPAT: NumPy adds doubles in eight accumulators and halves long arrays. The result affects which stream gets an
/// extra sample.
fn pairwise_sum(values: &[f64]) -> f64 {
    let length = values.len();
    if length < 8 {
        return values.iter().fold(0.0, |sum, value| sum + value);
    }
    if length <= 128 {
        let mut sums = [0.0; 8];
        sums.copy_from_slice(&values[..8]);
        let whole = values.len() / 8 * 8;
        for eight in values[8..whole].chunks_exact(8) {
            for (sum, value) in sums.iter_mut().zip(eight) {
                *sum += value;
            }
        }
        let start = ((sums[0] + sums[1]) + (sums[2] + sums[3]))
            + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
        return values[whole..].iter().fold(start, |sum, value| sum + value);
    }
    let half = length / 2 - (length / 2) % 8;
    pairwise_sum(&values[..half]) + pairwise_sum(&values[half..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(weights: &[(u64, Weight)], epoch_size: Option<u64>) -> Result<Vec<u64>, Error> {
        let streams: Vec<_> = weights
            .iter()
            .map(|(size, weight)| StreamConfig::new(&[*size]).with_weight(*weight))
            .collect();
        Ok(shares(&streams, epoch_size, 9176)?
            .iter()
            .map(|share| share.choose)
            .collect())
    }

    #[test]
    fn chosen_counts_match_golden_values() {
        let p = Weight::Proportion;
        assert_eq!(
            chosen(&[(100, p(0.3)), (200, p(0.3)), (50, p(0.4))], Some(101)).unwrap(),
            [30, 30, 41]
        );
        let u = Weight::Unspecified;
        assert_eq!(
            chosen(&[(7, u), (11, u), (5, u)], Some(10)).unwrap(),
            [3, 4, 3]
        );
        assert_eq!(
            chosen(
                &[(7, Weight::Repeat(1.5)), (11, Weight::Choose(3)), (5, u)],
                None
            )
            .unwrap(),
            [10, 3, 5]
        );
    }

    #[test]
    fn invalid_weights_are_errors() {
        let p = Weight::Proportion;
        assert!(chosen(&[], None).is_err());
        assert!(chosen(&[(0, Weight::Unspecified)], None).is_err());
        assert!(chosen(&[(5, p(0.5)), (5, Weight::Unspecified)], None).is_err());
        assert!(chosen(&[(5, p(0.0))], None).is_err());
        assert!(chosen(&[(5, p(-1.0))], None).is_err());
        assert!(chosen(&[(5, p(f64::NAN))], None).is_err());
        assert!(chosen(&[(5, Weight::Choose(5))], Some(3)).is_err());
        assert!(chosen(&[(5, Weight::Choose(0))], None).is_err());
        assert!(chosen(&[(5, Weight::Repeat(1e300))], None).is_err());
        assert!(
            chosen(
                &[
                    (u64::MAX, Weight::Unspecified),
                    (u64::MAX, Weight::Unspecified)
                ],
                None
            )
            .is_err()
        );
    }
}
