//! An epoch: combines streams, weights, sampling, shuffle, partition and batching.

use std::ops::Range;
use std::sync::Arc;

use shardmill_core::Error;

use crate::batch_plan::{BatchPlan, Method, Terms};
use crate::config::{BatchingMethod, EpochConfig, Resolved, SamplingMethod, State};
use crate::error::{self, OrderProblem};
use crate::mixed::Mixed;
use crate::num::{real, trunc};
use crate::rng_checkpoints::{Kept, Writer};
use crate::shuffle::Shuffle;
use crate::shuffle::layout::ShuffleConfig;
use crate::units::{EmptyShards, Sampling, ShardTable, Units};
use crate::weights::{self, Share};

/// A sample, by its number in shard order across all shards of all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleId(pub u64);

/// A sample that a rank receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The sample.
    pub sample: SampleId,
    /// Whether the sample is padding: repeated so that all ranks receive equally many samples.
    pub repeated: bool,
}

/// Samples that are distributed together: those of the whole epoch (`random`) or of one stream.
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

/// The order of one epoch, from its start or from where it is resumed. Cheap to clone. All processes compute the same
/// order from the same configuration.
#[derive(Clone, Debug)]
pub struct Epoch {
    pub(crate) inner: Arc<Inner>,
}

impl Epoch {
    /// Computes the order: draws the random decisions about shards, and advances the generator over all samples. That
    /// takes about a nanosecond per sample; `shardmill` and unshuffled epochs do not need it. [`rank`](Self::rank)
    /// reads the samples.
    ///
    /// Memory: 50 to 100 bytes per shard; 8 bytes per batch with `per_stream` and `device_per_stream`; 4 bytes per
    /// sample with `naive`; and temporarily 4 bytes per pick while a fractional share is drawn.
    ///
    /// # Errors
    /// `InvalidInput` in all cases in which the original raises an error.
    pub fn new(config: &EpochConfig) -> Result<Self, Error> {
        Self::with_checkpoints(config, &[])
    }

    /// Like [`new`](Self::new), but uses the generator checkpoints in `saved`, as returned by [`saved_checkpoints`](Self::saved_checkpoints).
    ///
    /// They must be of an epoch with the same shards, shares, shuffle, seed and number; the world and the start may
    /// differ. Checkpoints that do not match are ignored.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_checkpoints(config: &EpochConfig, saved: &[u8]) -> Result<Self, Error> {
        let resolved = config.resolve()?;
        let mixture = config.sampling.mixture.as_ref();
        let mixed = mixture.map(|mixture| Mixed::new(config, mixture, &resolved));
        let mixed = mixed.transpose()?;
        let shares = match &mixed {
            Some(mixed) => mixed.shares(),
            None => weights::shares(&config.streams, config.epoch_size, config.shuffle.seed)?,
        };
        let table = ShardTable::new(config.streams.iter().map(|stream| &*stream.shards));
        let sampling = Sampling {
            seed: resolved.seed,
            epoch: resolved.epoch,
            epoch_counts: resolved.epoch_seed,
            epoch_members: config.sampling.method == SamplingMethod::Balanced,
            granularity: config.sampling.granularity,
        };
        let mut streams: Vec<((Range<usize>, u64), EmptyShards)> = Vec::with_capacity(shares.len());
        for (stream, share) in config.streams.iter().zip(&shares) {
            let first = streams.last().map_or(0, |((shards, _), _)| shards.end);
            let shards = first..first + stream.shards.len();
            // A pass of a mixture takes the whole stream.
            let choose = if mixed.is_some() {
                share.samples
            } else {
                share.choose
            };
            let empty = match stream.deleted {
                None => EmptyShards::Stored,
                Some(_) => EmptyShards::NotRead,
            };
            streams.push(((shards, choose), empty));
        }
        let streams = streams.into_iter();
        let mut units = Vec::new();
        if mixed.is_none() && config.batching_method == BatchingMethod::Random {
            units.push(Units::resample_streams(&table, streams, &sampling)?);
        } else {
            for (stream, request) in streams.enumerate() {
                if request.0.1 == 0 {
                    return Err(
                        OrderProblem::Weights.of_stream(stream, "no samples are left to choose")
                    );
                }
                let request = std::iter::once(request);
                units.push(Units::resample_streams(&table, request, &sampling)?);
            }
        }
        let source = |units: Units, canonical_nodes, epoch, block| -> Result<_, Error> {
            let shuffle = if config.shuffle.enabled {
                let config = ShuffleConfig {
                    algo: config.shuffle.algo,
                    canonical_nodes,
                    seed: resolved.seed,
                    epoch,
                    block,
                };
                Shuffle::with_checkpoints(&units, &config, Kept::new(saved))?
            } else {
                Shuffle::unshuffled(units.samples(), canonical_nodes)
            };
            Ok(Source { units, shuffle })
        };
        let mut sources = Vec::new();
        let batch_plan = if let Some(mixed) = mixed {
            // Each pass over a stream is a shuffle of its own, with the number of the pass as its epoch.
            let block = (resolved.block / mixed.streams()).max(1);
            for (stream, pass) in mixed.passes() {
                sources.push(source(units[stream].clone(), 1, pass, block)?);
            }
            BatchPlan::of_mixture(mixed, &resolved, config.batch_size)
        } else {
            let samples: Vec<u64> = units.iter().map(Units::samples).collect();
            // The batch plan is cheap and rejects most invalid configurations, so it is computed before the shuffle.
            let batch_plan = BatchPlan::new(&Terms {
                method: config.batching_method,
                algo: config.partition_algo,
                batch_size: config.batch_size,
                resolved: &resolved,
                shares: &shares,
                samples: &samples,
            })?;
            for (stream, units) in units.into_iter().enumerate() {
                let block = if config.shuffle.enabled {
                    block_of(config.batching_method, stream, &shares, resolved.block)?
                } else {
                    0
                };
                sources.push(source(
                    units,
                    resolved.canonical_nodes,
                    resolved.epoch,
                    block,
                )?);
            }
            batch_plan
        };
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

    /// Returns the resolved configuration: the world after replication, the epoch, its start and its canonical nodes.
    #[must_use]
    pub fn resolved(&self) -> &Resolved {
        &self.inner.resolved
    }

    /// Returns the resolved share of each stream.
    #[must_use]
    pub fn shares(&self) -> &[Share] {
        &self.inner.shares
    }

    /// Returns the shards and sample ids of all streams.
    #[must_use]
    pub fn shards(&self) -> &ShardTable {
        &self.inner.table
    }

    /// Returns the number of samples of a whole epoch, before padding.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.inner.shares.iter().map(|share| share.choose).sum()
    }

    /// Returns the number of steps from the start of the epoch. The last step may be short.
    ///
    /// The steps have the same length on every rank except in two cases, which match the original. One is batching
    /// `device_per_stream`. The other is a run that `relaxed` resumed on nodes that neither divide the canonical nodes
    /// nor are divided by them. Its last steps are short on some ranks only. [`clean_batches`](Self::clean_batches)
    /// excludes those steps with `random`.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.inner.batch_plan.batches()
    }

    /// Returns the number of samples in one step of all ranks, with replicas counted once.
    #[must_use]
    pub fn global_batch(&self) -> u64 {
        self.inner.batch_plan.global_batch()
    }

    /// Returns the number of steps from the start that are complete and without repeated samples.
    ///
    /// Methods other than `random` have only complete batches. All of them count here, although they may contain
    /// repeated samples (which are flagged).
    #[must_use]
    pub fn clean_batches(&self) -> u64 {
        match &self.inner.batch_plan.method {
            Method::Random(partition) => partition.clean_batches().min(self.batches()),
            Method::Mixture(mixed) => mixed.clean_batches(),
            _ => self.batches(),
        }
    }

    /// Returns the state after this many further steps, from which another run can resume.
    ///
    /// After the last step, it is the start of the next epoch. With `random`, a padded epoch has a few more entries
    /// than samples. The original does not resume beyond the number of samples in some or all worlds. If only padding
    /// is left there, the state is the start of the next epoch. Otherwise it is the last position that can be resumed:
    /// a few samples are repeated, and none is lost.
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

    /// Returns whether a batch from this one on contains anything but padding.
    fn any_from(&self, batch: u64) -> bool {
        let batch_plan = &self.inner.batch_plan;
        let mut entries = (batch..batch_plan.batches())
            .flat_map(|batch| (0..batch_plan.global_batch()).map(move |entry| (batch, entry)));
        entries.any(|(batch, entry)| {
            let slot = batch_plan.position_at(batch, entry);
            slot.is_some_and(|(_, slot)| !slot.repeated)
        })
    }

    /// Returns the entries of the global batch that belong to a rank of the world before replication.
    ///
    /// # Errors
    /// `InvalidInput` if the rank does not exist.
    pub fn entries_of_rank(&self, rank: u64) -> Result<Range<u64>, Error> {
        let world = self.inner.resolved.world;
        let replica_group = rank / self.inner.replication;
        if replica_group >= world.ranks() {
            return Err(error::outside_world(
                "rank",
                rank,
                world.ranks() * self.inner.replication,
            ));
        }
        let batch_size = self.inner.batch_plan.batch_size;
        Ok(replica_group * batch_size..(replica_group + 1) * batch_size)
    }

    /// Returns the generator checkpoints, to be stored for [`with_checkpoints`](Self::with_checkpoints): 29 bytes for each. Empty if
    /// there are none: without shuffling, with `naive` and with `shardmill`.
    #[must_use]
    pub fn saved_checkpoints(&self) -> Vec<u8> {
        if self.checkpoints() == 0 {
            return Vec::new();
        }
        let mut writer = Writer::new();
        for source in &self.inner.sources {
            source.shuffle.write_checkpoints(&mut writer);
        }
        writer.finish()
    }

    /// Returns whether the generator was advanced over all samples to create this epoch. Then [`saved_checkpoints`](Self::saved_checkpoints) may
    /// be worth storing.
    #[must_use]
    pub fn has_computed_checkpoints(&self) -> bool {
        self.inner
            .sources
            .iter()
            .any(|source| source.shuffle.has_computed_checkpoints())
    }

    /// Returns the number of generator checkpoints.
    #[must_use]
    pub fn checkpoints(&self) -> u64 {
        self.inner
            .sources
            .iter()
            .map(|source| source.shuffle.checkpoints())
            .sum()
    }
}

/// Returns a stream's part of the shuffle block.
pub(crate) fn block_of(
    method: BatchingMethod,
    stream: usize,
    shares: &[Share],
    block: u64,
) -> Result<u64, Error> {
    let Some(share) = shares
        .get(stream)
        .filter(|_| method != BatchingMethod::Random)
    else {
        return Ok(block);
    };
    let part = trunc(real(block) * share.proportion).unwrap_or(0);
    if part == 0 && method == BatchingMethod::DevicePerStream {
        return Err(error::no_share(stream, "a shuffle block of", block));
    }
    Ok(part)
}
