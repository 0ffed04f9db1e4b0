//! Partitions, shuffles, resampling and epochs as complete arrays in memory, for programs that process an order as a
//! whole.
//!
//! Everything here needs at least 8 bytes per sample. Training uses an [`Epoch`](crate::Epoch), which computes the
//! same entries on demand.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/partition/`, `shuffle/` and `batching/`; the arrays have the same
//! shapes.

use std::ops::Range;

use shardmill_core::Error;

use crate::batch_plan::{BatchPlan, Terms};
use crate::config::{BatchingMethod, PartitionAlgo, Resolved, ShuffleAlgo, World, check_count};
use crate::epoch::block_of;
use crate::error::ensure;
use crate::num::{count, index, room};
pub use crate::partition::Cut;
use crate::partition::Partition;
use crate::reference;
use crate::shuffle::Shuffle;
pub use crate::shuffle::layout::ShuffleConfig;
pub use crate::units::Sampling;
use crate::units::{Drawn, ShardTable, Units, counts};
use crate::weights::{Share, check_samples};

/// The value of an entry without a sample.
pub const PADDING: i64 = -1;

/// A partition: the positions of the epoch that each worker receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// The positions, or [`PADDING`]. Ordered by node, rank of the node, worker of the rank, batch of the worker, and
    /// position in the batch.
    pub entries: Vec<i64>,
    /// Whether there are so few samples for the canonical nodes that they repeat cyclically.
    pub tiny: bool,
    /// Whether a node has so few samples that they repeat cyclically on its ranks.
    pub scarce: bool,
}

/// Computes the whole partition.
///
/// # Errors
/// `InvalidInput` for a count of 0, and if neither number of nodes divides the other, the drop is beyond the end, or a
/// canonical node has too few samples for its padding; `Resource` without enough memory.
pub fn partition(
    algo: PartitionAlgo,
    cut: Cut,
    workers_per_rank: u64,
    initial_nodes: Option<u64>,
) -> Result<PartitionTable, Error> {
    let world = World {
        nodes: cut.nodes,
        ranks_per_node: cut.ranks_per_node,
        workers_per_rank,
    };
    check_world(world, cut.batch_size, cut.canonical_nodes)?;
    check_samples("num_samples", cut.samples)?;
    let partition = Partition::new(algo, cut, initial_nodes)?;
    let entries = spread(
        world,
        cut.batch_size,
        partition.batches(),
        |batch, entry| Some(partition.position_at(batch, entry)?.position),
    )?;
    Ok(PartitionTable {
        entries,
        tiny: partition.is_tiny(),
        scarce: partition.is_scarce(),
    })
}

/// Computes the whole shuffle of units of these sizes, from position to big id. Units may be empty.
///
/// # Errors
/// `InvalidInput` if a block size is too small, or if a canonical node has no samples with `py1e`; `Resource` without
/// enough memory.
pub fn shuffle(sizes: &[u64], config: &ShuffleConfig) -> Result<Vec<u64>, Error> {
    check_count("num_canonical_nodes", config.canonical_nodes)?;
    check_samples("shuffle_block_size", config.block)?;
    let units = Units::of_sizes(sizes)?;
    room::<u64>(units.samples(), "the shuffled order")?;
    if let Some(order) = reference::shuffle(&units, config)? {
        return Ok(order);
    }
    // The layout of this shuffle has no empty spans, which contain no ids.
    let sizes: Vec<u64> = sizes.iter().copied().filter(|size| *size > 0).collect();
    if sizes.is_empty() {
        return Ok(Vec::new());
    }
    let shuffle = Shuffle::new(&Units::of_sizes(&sizes)?, config)?;
    let mut order = room(units.samples(), "the shuffled order")?;
    order.extend((0..units.samples()).filter_map(|position| shuffle.direct(position)));
    Ok(order)
}

/// Returns how many samples of each shard make up `choose`.
///
/// # Errors
/// `InvalidInput` for a granularity of 0 or more than 2^48 samples; `Resource` without enough memory.
pub fn sample(sizes: &[u64], choose: u64, sampling: &Sampling) -> Result<Vec<u64>, Error> {
    check_sampling(sizes, choose, sampling)?;
    counts(sizes, choose, sampling)
}

/// The result of resampling shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resampled {
    /// The samples of each unit: one for each whole use of a shard, and one for a partial use.
    pub units: Vec<u64>,
    /// The sample id of each big id.
    pub samples: Vec<u64>,
}

/// Draws `choose` samples of each given stream. Streams are ranges of `shards`, the sizes of all shards.
///
/// # Errors
/// `InvalidInput` if nothing is chosen or there are more than 2^27 units; `Resource` without enough memory.
pub fn resample(
    shards: &[u64],
    streams: &[(Range<usize>, u64)],
    sampling: &Sampling,
) -> Result<Resampled, Error> {
    for (_, choose) in streams {
        check_sampling(shards, *choose, sampling)?;
    }
    let table = ShardTable::new([shards]);
    let units = Units::resample(&table, streams, sampling)?;
    let mut samples: Vec<u64> = room(units.samples(), "the resampled ids")?;
    samples.extend(0..units.samples());
    units.resolve(&table, &mut Drawn::default(), &mut samples);
    Ok(Resampled {
        units: units.ranges().map(|unit| unit.end - unit.start).collect(),
        samples,
    })
}

/// Samples that are distributed together: those of the whole epoch (`random`) or of one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Source<'a> {
    /// The samples of each unit.
    pub units: &'a [u64],
    /// The sample id of each big id.
    pub samples: &'a [u64],
    /// The stream's part of the epoch; not used by `random`.
    pub proportion: f64,
}

/// The inputs of an epoch whose streams are resampled already.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work<'a> {
    /// Which streams a batch consists of.
    pub batching: BatchingMethod,
    /// How positions are distributed.
    pub partition: PartitionAlgo,
    /// Samples of a rank in one step.
    pub batch_size: u64,
    /// The world with replicas counted once, the epoch, its start, seed and canonical nodes.
    pub resolved: &'a Resolved,
    /// The shuffle, if any.
    pub shuffle: Option<ShuffleAlgo>,
    /// One for `random`, otherwise one for each stream.
    pub sources: &'a [Source<'a>],
}

/// Computes the epoch from its start: sample ids or [`PADDING`], in the order of [`PartitionTable::entries`].
///
/// # Errors
/// As for [`Epoch::new`](crate::Epoch::new); `InvalidInput` if a source has more or fewer sample ids than samples in
/// its units.
pub fn work(work: &Work<'_>) -> Result<Vec<i64>, Error> {
    let resolved = work.resolved;
    check_world(resolved.world, work.batch_size, resolved.canonical_nodes)?;
    let mut samples = Vec::with_capacity(work.sources.len());
    let mut shares = Vec::with_capacity(work.sources.len());
    for source in work.sources {
        let length = total("units", source.units)?;
        ensure(
            length == count(source.samples.len()),
            "units",
            length,
            "the number of sample ids",
        )?;
        samples.push(length);
        shares.push(Share {
            samples: length,
            choose: length,
            proportion: source.proportion,
        });
    }
    let batch_plan = BatchPlan::new(&Terms {
        method: work.batching,
        algo: work.partition,
        batch_size: work.batch_size,
        resolved,
        shares: &shares,
        samples: &samples,
    })?;
    let mut orders = Vec::with_capacity(work.sources.len());
    for (stream, source) in work.sources.iter().enumerate() {
        orders.push(match work.shuffle {
            None => None,
            Some(algo) => {
                let config = ShuffleConfig {
                    algo,
                    canonical_nodes: resolved.canonical_nodes,
                    seed: resolved.seed,
                    epoch: resolved.epoch,
                    block: block_of(work.batching, stream, &shares, resolved.block)?,
                };
                Some(shuffle(source.units, &config)?)
            }
        });
    }
    spread(
        resolved.world,
        work.batch_size,
        batch_plan.batches(),
        |batch, entry| {
            let (source, slot) = batch_plan.position_at(batch, entry)?;
            let big = match orders.get(source)? {
                None => slot.position,
                Some(order) => order.get(index(slot.position)).copied()?,
            };
            work.sources.get(source)?.samples.get(index(big)).copied()
        },
    )
}

/// Returns the entries of global batches, ordered by the rank and worker that receive them.
fn spread(
    world: World,
    batch_size: u64,
    batches: u64,
    at: impl Fn(u64, u64) -> Option<u64>,
) -> Result<Vec<i64>, Error> {
    let workers = world.workers_per_rank;
    let rounds = batches.div_ceil(workers);
    let length = [world.ranks(), workers, batch_size]
        .into_iter()
        .fold(rounds, u64::saturating_mul);
    let mut entries = room(length, "the table of an epoch")?;
    for rank in 0..world.ranks() {
        let part = rank * batch_size..(rank + 1) * batch_size;
        for worker in 0..workers {
            for round in 0..rounds {
                let batch = round * workers + worker;
                let row = part.clone().map(|entry| at(batch, entry));
                entries.extend(row.map(|id| id.map_or(PADDING, u64::cast_signed)));
            }
        }
    }
    Ok(entries)
}

fn check_world(world: World, batch_size: u64, canonical_nodes: u64) -> Result<(), Error> {
    world.check(batch_size)?;
    check_count("num_canonical_nodes", canonical_nodes)
}

fn check_sampling(sizes: &[u64], choose: u64, sampling: &Sampling) -> Result<(), Error> {
    total("samples_per_shard", sizes)?;
    check_samples("choose", choose)?;
    ensure(
        sampling.granularity > 0,
        "sampling_granularity",
        0,
        "positive",
    )
}

fn total(option: &'static str, sizes: &[u64]) -> Result<u64, Error> {
    let sum = sizes
        .iter()
        .fold(0, |sum: u64, size| sum.saturating_add(*size));
    check_samples(option, sum)?;
    Ok(sum)
}

#[cfg(test)]
mod tests;
