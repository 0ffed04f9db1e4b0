//! An epoch: streams, weights, sampling, shuffle, partition and batching put together.

use std::ops::Range;
use std::sync::Arc;

use crate::batch_plan::{BatchPlan, Method, Terms};
use crate::config::{BatchingMethod, EpochConfig, Resolved, SamplingMethod, State};
use crate::cursor::Cursor;
use crate::error::OrderError;
use crate::num::{count, real, trunc};
use crate::rng_checkpoints::{Kept, Writer};
use crate::shuffle::{Shuffle, ShuffleConfig};
use crate::units::{Sampling, ShardTable, Units};
use crate::weights::{self, Share};

/// A sample: its number in shard order, through all shards of all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleId(pub u64);

/// A sample that a rank is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Which one.
    pub sample: SampleId,
    /// Whether it is padding: given a second time so that all ranks have as many samples.
    pub repeated: bool,
}

/// Samples that are dealt together: those of the whole epoch (`random`), or those of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) units: Units,
    pub(crate) shuffle: Shuffle,
}

#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub(crate) resolved: Resolved,
    pub(crate) replication: u64,
    pub(crate) shares: Vec<Share>,
    pub(crate) table: ShardTable,
    pub(crate) sources: Vec<Source>,
    pub(crate) batch_plan: BatchPlan,
}

/// The order of one epoch, from where it starts or is resumed. Cheap to clone; the same in every process that makes it
/// from the same configuration.
#[derive(Clone, Debug)]
pub struct Epoch {
    pub(crate) inner: Arc<Inner>,
}

impl Epoch {
    /// Makes the order: draws what is drawn for shards and walks the generator through the samples (about a nanosecond
    /// each; `shardmill` and no shuffle do not walk). See [`rank`](Self::rank) for the samples themselves.
    ///
    /// Memory: 50 to 100 bytes for each shard, 8 for each batch of the methods `per_stream` and `device_per_stream`,
    /// 4 a sample for `naive`, and 4 for each pick while a fractional share is drawn.
    ///
    /// # Errors
    /// `InvalidInput`, whenever the original raises; see [`OrderError`].
    pub fn new(config: &EpochConfig) -> Result<Self, OrderError> {
        Self::with_walk(config, &[])
    }

    /// As [`new`](Self::new), without walking where `walk` is what [`walk`](Self::walk) gave for an epoch with the same
    /// shards, shares, shuffle, seed and number, in whatever world and resumed wherever. What does not fit is ignored.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_walk(config: &EpochConfig, walk: &[u8]) -> Result<Self, OrderError> {
        let kept = Kept::new(walk);
        let resolved = config.resolve()?;
        let shares = weights::shares(&config.streams, config.epoch_size, config.shuffle_seed)?;
        let table = ShardTable::new(config.streams.iter().map(|stream| &*stream.shards));
        let sampling = Sampling {
            seed: resolved.seed,
            epoch: resolved.epoch,
            epoch_counts: resolved.epoch_seed,
            epoch_members: config.sampling_method == SamplingMethod::Balanced,
            granularity: config.sampling_granularity,
        };
        let mut streams: Vec<(Range<usize>, u64)> = Vec::with_capacity(shares.len());
        for (stream, share) in config.streams.iter().zip(&shares) {
            let first = streams.last().map_or(0, |(shards, _)| shards.end);
            streams.push((first..first + stream.shards.len(), share.choose));
        }
        let mut units = Vec::new();
        if config.batching_method == BatchingMethod::Random {
            units.push(Units::resample(&table, &streams, &sampling)?);
        } else {
            for (stream, request) in streams.iter().enumerate() {
                if request.1 == 0 {
                    return Err(OrderError::NothingChosen {
                        stream: Some(stream),
                    });
                }
                units.push(Units::resample(
                    &table,
                    std::slice::from_ref(request),
                    &sampling,
                )?);
            }
        }
        let samples: Vec<u64> = units.iter().map(Units::samples).collect();
        // The deal is cheap and refuses most of what is refused, so it comes before the walk.
        let batch_plan = BatchPlan::new(&Terms {
            method: config.batching_method,
            algo: config.partition_algo,
            batch_size: config.batch_size,
            resolved: &resolved,
            shares: &shares,
            samples: &samples,
        })?;
        let mut sources = Vec::with_capacity(units.len());
        for (stream, units) in units.into_iter().enumerate() {
            let shuffle = if config.shuffle {
                let block = block_of(config.batching_method, stream, &shares, resolved.block)?;
                Shuffle::with_walk(
                    &units,
                    &ShuffleConfig {
                        algo: config.shuffle_algo,
                        canonical_nodes: resolved.canonical_nodes,
                        seed: resolved.seed,
                        epoch: resolved.epoch,
                        block,
                    },
                    kept,
                )?
            } else {
                Shuffle::unshuffled(units.samples(), resolved.canonical_nodes)
            };
            sources.push(Source { units, shuffle });
        }
        Ok(Self {
            inner: Arc::new(Inner {
                resolved,
                replication: config.replication.unwrap_or(1),
                shares,
                table,
                sources,
                batch_plan,
            }),
        })
    }

    /// What the configuration came to: the world after replication, the epoch, where it starts, its canonical nodes.
    #[must_use]
    pub fn resolved(&self) -> &Resolved {
        &self.inner.resolved
    }

    /// What each stream's weight came to.
    #[must_use]
    pub fn shares(&self) -> &[Share] {
        &self.inner.shares
    }

    /// Shards and sample ids of all streams.
    #[must_use]
    pub fn shards(&self) -> &ShardTable {
        &self.inner.table
    }

    /// Samples of a whole epoch, before it is padded.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.inner.shares.iter().map(|share| share.choose).sum()
    }

    /// Steps from where the epoch starts. The last one may be short.
    ///
    /// It is of the same length on every rank but for two cases, in which the original does the same: batching
    /// `device_per_stream`, and a run that `relaxed` resumed on nodes that neither divide nor are divided by the canonical
    /// nodes, where the last steps are short on some ranks only. [`clean_batches`](Self::clean_batches) leaves those out
    /// of `random`.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.inner.batch_plan.batches()
    }

    /// Samples of one step of all ranks, replicas counted once.
    #[must_use]
    pub fn global_batch(&self) -> u64 {
        self.inner.batch_plan.global_batch()
    }

    /// Steps at the start that are complete and without repeated samples: what is left when the ragged end is dropped.
    ///
    /// The methods other than `random` have complete batches only; those may hold flagged repeats and all count here.
    #[must_use]
    pub fn clean_batches(&self) -> u64 {
        match &self.inner.batch_plan.method {
            Method::Random(partition) => partition.clean_batches().min(self.batches()),
            _ => self.batches(),
        }
    }

    /// The state after so many further steps: what to store so that another run goes on there.
    ///
    /// After the last step it is the start of the next epoch. With `random`, an epoch that is padded has a few more places
    /// than samples, and the original refuses to go on behind so many places as there are samples, on some worlds or on
    /// all. There the state is the start of the next epoch where only padding is left, and else that last place: a few
    /// samples are then given a second time, and none is lost.
    #[must_use]
    pub fn state_after(&self, batches: u64) -> State {
        let resolved = &self.inner.resolved;
        let samples = self.samples();
        let mut done = resolved
            .sample_in_epoch
            .saturating_add(batches.saturating_mul(self.global_batch()));
        let mut at_end = batches >= self.batches();
        if matches!(self.inner.batch_plan.method, Method::Random(_)) && done > samples && !at_end {
            at_end = !self.any_from(batches);
            done = samples;
        }
        State {
            epoch: resolved.epoch + u64::from(at_end),
            sample_in_epoch: if at_end { 0 } else { done },
            num_canonical_nodes: Some(resolved.canonical_nodes),
            shuffle_seed: resolved.seed,
            initial_physical_nodes: Some(resolved.initial_nodes.unwrap_or(resolved.world.nodes)),
        }
    }

    /// Whether a batch from this one on holds anything but padding.
    fn any_from(&self, batch: u64) -> bool {
        let batch_plan = &self.inner.batch_plan;
        let mut entries = (batch..batch_plan.batches())
            .flat_map(|batch| (0..batch_plan.global_batch()).map(move |entry| (batch, entry)));
        entries.any(|(batch, entry)| {
            let place = batch_plan.place(batch, entry);
            place.is_some_and(|(_, place)| !place.repeated)
        })
    }

    /// Places in the global batch that belong to a rank of the world before replication.
    ///
    /// # Errors
    /// `InvalidInput` when there is no such rank.
    pub fn entries_of_rank(&self, rank: u64) -> Result<Range<u64>, OrderError> {
        let world = self.inner.resolved.world;
        let place = rank / self.inner.replication;
        if place >= world.ranks() {
            return Err(OrderError::OutsideWorld {
                what: "rank",
                value: rank,
                of: world.ranks() * self.inner.replication,
            });
        }
        let batch_size = self.inner.batch_plan.batch_size;
        Ok(place * batch_size..(place + 1) * batch_size)
    }

    /// The samples of one rank of the world before replication.
    ///
    /// # Errors
    /// `InvalidInput` when there is no such rank.
    pub fn rank(&self, rank: u64) -> Result<Cursor, OrderError> {
        Ok(Cursor::new(self.clone(), self.entries_of_rank(rank)?))
    }

    /// The samples of all ranks, replicas counted once: node by node, rank by rank.
    #[must_use]
    pub fn everyone(&self) -> Cursor {
        Cursor::new(self.clone(), 0..self.global_batch())
    }

    /// The sample at a position of the epoch's order before it is dealt, where that needs no window: without shuffling,
    /// with `naive` and with `shardmill`. `source` is the stream, or 0 for `random`.
    #[must_use]
    pub fn sample_at(&self, source: usize, position: u64) -> Option<SampleId> {
        let source = self.inner.sources.get(source)?;
        if position >= source.shuffle.samples() {
            return None;
        }
        let mut id = [source.shuffle.direct(position)?];
        source.units.resolve(
            &self.inner.table,
            &mut crate::units::Drawn::default(),
            &mut id,
        );
        Some(SampleId(id[0]))
    }

    /// The generator's walk, to be kept for [`with_walk`](Self::with_walk): 29 bytes for each checkpoint. Empty where
    /// there was none: without shuffling, with `naive` and with `shardmill`.
    #[must_use]
    pub fn walk(&self) -> Vec<u8> {
        if self.checkpoints() == 0 {
            return Vec::new();
        }
        let mut writer = Writer::new();
        for source in &self.inner.sources {
            source.shuffle.write_walk(&mut writer);
        }
        writer.finish()
    }

    /// Whether a generator was walked through the samples to make this: then the [`walk`](Self::walk) may be worth
    /// keeping.
    #[must_use]
    pub fn has_walked(&self) -> bool {
        self.inner
            .sources
            .iter()
            .any(|source| source.shuffle.has_walked())
    }

    /// Generator checkpoints that are kept.
    #[must_use]
    pub fn checkpoints(&self) -> u64 {
        self.inner
            .sources
            .iter()
            .map(|source| source.shuffle.checkpoints())
            .sum()
    }

    /// Sources of samples: streams, or 1 for `random`.
    #[must_use]
    pub fn sources(&self) -> u64 {
        count(self.inner.sources.len())
    }
}

/// A stream's part of the shuffle block.
pub(crate) fn block_of(
    method: BatchingMethod,
    stream: usize,
    shares: &[Share],
    block: u64,
) -> Result<u64, OrderError> {
    let Some(share) = shares
        .get(stream)
        .filter(|_| method != BatchingMethod::Random)
    else {
        return Ok(block);
    };
    let part = trunc(real(block) * share.proportion).unwrap_or(0);
    if part == 0 && method == BatchingMethod::DevicePerStream {
        return Err(OrderError::NoShare {
            stream,
            what: "a shuffle block of",
            of: block,
        });
    }
    Ok(part)
}
