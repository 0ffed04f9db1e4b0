//! Distributes the samples of a mixture over ranks and batches.
//!
//! The samples of an epoch are a single sequence, the same for every world. A global batch is the next part of it, and
//! each rank receives a contiguous part of the batch. The last batch is divided equally; samples are repeated where
//! that leaves a remainder.

use std::ops::Range;

use shardmill_core::Error;

use crate::config::{BatchingMethod, EpochConfig, Resolved, Weight};
use crate::error::{self, OrderProblem, ensure};
use crate::mixture::{Mixture, MixturePlan};
use crate::num::{count, index, real};
use crate::partition::RankPosition;
use crate::weights::{Share, check_samples, stream_sizes};

/// The samples of a mixture from where an epoch starts, by batch and entry.
///
/// Each pass over a stream is a source of its own, with its own shuffle.
#[derive(Clone, Debug)]
pub(crate) struct Mixed {
    plan: MixturePlan,
    sizes: Vec<u64>,
    /// The passes of each stream that the epoch reads.
    passes: Vec<Range<u64>>,
    /// The first source of each stream.
    sources: Vec<usize>,
    /// Samples of the epoch that were delivered before.
    start: u64,
    batch_size: u64,
    ranks: u64,
}

impl Mixed {
    pub(crate) fn new(
        config: &EpochConfig,
        mixture: &Mixture,
        resolved: &Resolved,
    ) -> Result<Self, Error> {
        let refuse = |reason: &str| Err(OrderProblem::Mixture.at("mixture", reason));
        if config.batching_method != BatchingMethod::Random {
            return refuse("the weights over time go with batching `random` only");
        }
        let has_weight = |weight: Weight| weight != Weight::Unspecified;
        if config
            .streams
            .iter()
            .any(|stream| has_weight(stream.weight))
        {
            return refuse("streams with weights over time have no proportion, repeat or choose");
        }
        let (sizes, epoch_size) = config.mixture_sizes()?;
        let plan = mixture.plan(&sizes, epoch_size, resolved.epoch)?;
        if resolved.sample_in_epoch > plan.samples {
            return Err(error::beyond_end(resolved.sample_in_epoch, plan.samples));
        }
        let ranges = plan.ranges();
        let both = ranges.iter().zip(&sizes);
        let passes: Vec<Range<u64>> = both
            .map(|(range, size)| match range.is_empty() {
                true => 0..0,
                false => range.start / size..range.end.div_ceil(*size),
            })
            .collect();
        let (mut sources, mut next) = (Vec::with_capacity(sizes.len()), 0_u64);
        for range in &passes {
            sources.push(index(next));
            next = next.saturating_add(range.end - range.start);
        }
        ensure(
            next <= 1 << 16,
            "mixture",
            next,
            "at most 65536 shuffles of streams in an epoch",
        )?;
        Ok(Self {
            plan,
            sizes,
            passes,
            sources,
            start: resolved.sample_in_epoch,
            batch_size: config.batch_size,
            ranks: resolved.world.ranks(),
        })
    }

    /// Returns the shares of the streams in this epoch.
    pub(crate) fn shares(&self) -> Vec<Share> {
        let both = self.sizes.iter().zip(self.plan.ranges());
        both.map(|(samples, range)| {
            let choose = range.end - range.start;
            Share {
                samples: *samples,
                choose,
                proportion: real(choose) / real(self.plan.samples.max(1)),
            }
        })
        .collect()
    }

    /// Returns the stream and the number of the pass of each source.
    pub(crate) fn passes(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let streams = self.passes.iter().enumerate();
        streams.flat_map(|(stream, passes)| passes.clone().map(move |pass| (stream, pass)))
    }

    pub(crate) fn streams(&self) -> u64 {
        count(self.sizes.len())
    }

    const fn global_batch(&self) -> u64 {
        self.ranks * self.batch_size
    }

    const fn left(&self) -> u64 {
        self.plan.samples - self.start
    }

    pub(crate) const fn batches(&self) -> u64 {
        self.left().div_ceil(self.global_batch())
    }

    /// Returns the number of complete batches.
    pub(crate) const fn clean_batches(&self) -> u64 {
        self.left() / self.global_batch()
    }

    /// Returns the number of samples of a batch without repetitions, and of the entries of each rank in it.
    fn lengths(&self, batch: u64) -> (u64, u64) {
        let samples = (self.left() - batch * self.global_batch()).min(self.global_batch());
        (samples, samples.div_ceil(self.ranks))
    }

    /// Returns the source and the position at `entry` of a batch that exists.
    pub(crate) fn position_at(&self, batch: u64, entry: u64) -> Option<(usize, RankPosition)> {
        let (samples, per_rank) = self.lengths(batch);
        let (rank, in_rank) = (entry / self.batch_size, entry % self.batch_size);
        if in_rank >= per_rank {
            return None;
        }
        let number = rank * per_rank + in_rank;
        let sample = self.start + batch * self.global_batch() + number % samples;
        let (stream, number_in_stream) = self.plan.at(sample)?;
        let size = self.sizes.get(stream)?;
        let pass = number_in_stream / size - self.passes.get(stream)?.start;
        let slot = RankPosition {
            position: number_in_stream % size,
            canonical_node: 0,
            repeated: number >= samples,
        };
        Some((self.sources.get(stream)? + index(pass), slot))
    }

    /// Returns the stream of a source, and the number in that stream of the sample at a position.
    fn number_of(&self, source: usize, position: u64) -> Option<(usize, u64)> {
        let mut streams = self.sources.iter().zip(&self.passes);
        let stream = streams.rposition(|(first, passes)| *first <= source && !passes.is_empty())?;
        let pass = self.passes.get(stream)?.start + count(source - self.sources.get(stream)?);
        Some((stream, pass * self.sizes.get(stream)? + position))
    }

    /// Returns the sample at a position of a source, counted from where the epoch starts. `None` if the epoch does not
    /// read it.
    fn sample_of(&self, source: usize, position: u64) -> Option<u64> {
        let (stream, number) = self.number_of(source, position)?;
        self.plan.sample_of(stream, number)?.checked_sub(self.start)
    }

    /// Returns the batch of a position of a source: `None` before the start, and the number of batches after the end.
    pub(crate) fn batch_of(&self, source: usize, position: u64) -> Option<u64> {
        let (stream, number) = self.number_of(source, position)?;
        if number >= self.plan.ranges().get(stream)?.end {
            return Some(self.batches());
        }
        let sample = self.sample_of(source, position)?;
        Some(sample / self.global_batch())
    }

    /// Returns the batches and entries of a position, and whether it is repeated there.
    pub(crate) fn entries_of(&self, source: usize, position: u64) -> Vec<(u64, u64, bool)> {
        let Some(sample) = self.sample_of(source, position) else {
            return Vec::new();
        };
        let (batch, number) = (sample / self.global_batch(), sample % self.global_batch());
        let (samples, per_rank) = self.lengths(batch);
        let all = (number..per_rank * self.ranks).step_by(index(samples.max(1)));
        all.map(|number| {
            let entry = number / per_rank * self.batch_size + number % per_rank;
            (batch, entry, number >= samples)
        })
        .collect()
    }
}

impl EpochConfig {
    /// Returns the sizes of the streams, and the samples of an epoch with a mixture.
    ///
    /// # Errors
    /// `InvalidInput` for a stream without samples, and for too many samples.
    pub fn mixture_sizes(&self) -> Result<(Vec<u64>, u64), Error> {
        let sizes = stream_sizes(&self.streams)?;
        let given = self.epoch_size.filter(|size| *size > 0);
        check_samples("epoch_size", given.unwrap_or(0))?;
        let epoch_size = given.unwrap_or_else(|| sizes.iter().sum());
        Ok((sizes, epoch_size))
    }
}
