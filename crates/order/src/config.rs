//! The configuration that determines the order of an epoch.

use std::str::FromStr;
use std::sync::Arc;

use shardmill_core::Error;

use serde::Deserialize;

use crate::error::{self, OrderProblem, ensure};
use crate::mixture::Mixture;

shardmill_core::named_enum! {
    /// How the samples of an epoch are shuffled.
    pub enum ShuffleAlgo {
        /// One permutation of the whole epoch: every batch needs every shard. The only shuffle without a lazy form.
        Naive = "naive",
        /// Shard parts in a random order; the samples of each are shuffled in place.
        Py1s = "py1s",
        /// Like `py1s`, with an additional shuffle of each shard before it is cut.
        Py2s = "py2s",
        /// Shard parts in a random order; samples are shuffled within staggered blocks.
        Py1br = "py1br",
        /// Shard parts in a random order; every sample moves by a bounded random distance.
        Py1e = "py1e",
        /// Shard parts in a random order; two keyed permutations of overlapping blocks move the samples. Has random
        /// access, and memory use is independent of the number of samples.
        Shardmill = "shardmill",
    }
}

shardmill_core::named_enum! {
    /// Which samples are drawn from a shard that is used in part.
    pub enum SamplingMethod {
        /// Different samples in every epoch.
        Balanced = "balanced",
        /// The same samples in every epoch.
        Fixed = "fixed",
    }
}

shardmill_core::named_enum! {
    /// How positions are distributed over nodes, ranks and workers.
    pub enum PartitionAlgo {
        /// Either the canonical nodes divide the physical nodes, or the reverse.
        Orig = "orig",
        /// Like `orig`, but a resumed run may have any number of nodes that keeps the global batch size.
        Relaxed = "relaxed",
    }
}

shardmill_core::named_enum! {
    /// Which streams a batch consists of.
    pub enum BatchingMethod {
        /// All streams mixed.
        Random = "random",
        /// Every global batch has the same share of each stream.
        Stratified = "stratified",
        /// Every global batch comes from one stream.
        PerStream = "per_stream",
        /// Every device batch comes from one stream.
        DevicePerStream = "device_per_stream",
    }
}

macro_rules! parse_names {
    ($($type:ident = $option:literal,)+) => {$(
        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                Self::from_name(text).ok_or_else(|| {
                    error::unknown_name($option, text, &Self::ALL.map(Self::name).join(", "))
                })
            }
        }
    )+};
}

parse_names! {
    ShuffleAlgo = "shuffle_algo",
    SamplingMethod = "sampling_method",
    PartitionAlgo = "partition_algo",
    BatchingMethod = "batching_method",
}

/// The numbers of machines, training processes and loader processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct World {
    /// Machines.
    pub nodes: u64,
    /// Training processes (devices) on each machine.
    pub ranks_per_node: u64,
    /// Loader processes of each rank; 1 if the rank loads data itself.
    pub workers_per_rank: u64,
}

impl World {
    /// One node, one rank, one worker.
    pub const SINGLE: Self = Self {
        nodes: 1,
        ranks_per_node: 1,
        workers_per_rank: 1,
    };

    /// Returns the number of ranks.
    #[must_use]
    pub const fn ranks(self) -> u64 {
        self.nodes.saturating_mul(self.ranks_per_node)
    }

    /// Returns the world that the order is computed for if `replication` consecutive ranks receive the same samples.
    ///
    /// COMPAT: if the remaining ranks are not a multiple of the ranks per node, they become a single node.
    ///
    /// # Errors
    /// `InvalidInput` if `replication` is 0 or does not divide the number of ranks.
    pub fn replicate(self, replication: u64) -> Result<Self, Error> {
        let ranks = self.ranks();
        ensure(
            replication > 0 && ranks.is_multiple_of(replication),
            "replication",
            replication,
            "a divisor of the number of ranks",
        )?;
        let ranks = ranks / replication;
        let nodes = if ranks.is_multiple_of(self.ranks_per_node) {
            ranks / self.ranks_per_node
        } else {
            1
        };
        Ok(Self {
            nodes,
            ranks_per_node: ranks / nodes,
            workers_per_rank: self.workers_per_rank,
        })
    }

    /// Checks that all counts are in range, and that the samples of one step of all ranks, times the workers per rank, are
    /// at most 2^44.
    pub(crate) fn check(self, batch_size: u64) -> Result<(), Error> {
        for (option, value) in [
            ("nodes", self.nodes),
            ("ranks_per_node", self.ranks_per_node),
            ("workers_per_rank", self.workers_per_rank),
            ("batch_size", batch_size),
        ] {
            check_count(option, value)?;
        }
        let workers = self.ranks().saturating_mul(self.workers_per_rank);
        ensure(
            workers <= 1 << 24,
            "workers_per_rank",
            self.workers_per_rank,
            "at most 2^24 workers in the whole world",
        )?;
        ensure(
            workers.saturating_mul(batch_size) <= 1 << 44,
            "batch_size",
            batch_size,
            "at most 2^44 divided by nodes x ranks x workers",
        )
    }
}

/// Checks a count against a limit, so that the product of any three counts fits into 64 bits.
pub(crate) fn check_count(option: &'static str, value: u64) -> Result<(), Error> {
    ensure(
        (1..=1 << 20).contains(&value),
        option,
        value,
        "from 1 to 1048576",
    )
}

/// How much of a stream an epoch takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Weight {
    /// Every sample once; with an epoch size, in proportion to the stream's size.
    #[default]
    Unspecified,
    /// Relative to the proportions of the other streams, which must have proportions too.
    Proportion(f64),
    /// A number of repetitions of all samples; a fractional part is drawn randomly.
    Repeat(f64),
    /// A number of samples.
    Choose(u64),
}

/// One dataset of a mix.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamConfig {
    /// The samples of each shard, in index order; shards may be empty.
    pub shards: Arc<[u64]>,
    /// How much of the stream an epoch takes.
    pub weight: Weight,
    /// A digest of the samples that the shards store and `shards` does not count, because they are deleted or a view does
    /// not select them; `None` if there are none. The order does not depend on the digest, but a state does: without
    /// other samples, the same number means another sample. If it is set, the order is that of a stream without the
    /// empty shards.
    pub deleted: Option<[u8; 16]>,
}

impl StreamConfig {
    /// Creates a stream with these shard sizes and no weight.
    #[must_use]
    pub fn new(shards: &[u64]) -> Self {
        Self {
            shards: Arc::from(shards),
            weight: Weight::Unspecified,
            deleted: None,
        }
    }

    /// Sets the weight.
    #[must_use]
    pub fn with_weight(mut self, weight: Weight) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the digest of samples that are not counted.
    #[must_use]
    pub fn with_deleted(mut self, deleted: Option<[u8; 16]>) -> Self {
        self.deleted = deleted;
        self
    }
}

/// The position of a run: the fields that MosaicML Streaming stores in a checkpoint.
///
/// It is valid for every rank and every world that the order supports. It does not contain the batch size, block size,
/// algorithm and weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct State {
    /// The current epoch.
    pub epoch: u64,
    /// Samples of the epoch that all ranks together have received, with replicas counted once.
    pub sample_in_epoch: u64,
    /// The fixed division of sample space. A state without it (made before the first epoch) cannot be resumed.
    pub num_canonical_nodes: Option<u64>,
    /// The seed of the run.
    pub shuffle_seed: u64,
    /// Physical nodes of the first run; `None` in states of old versions.
    pub initial_physical_nodes: Option<u64>,
}

/// Whether and how an epoch is shuffled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShuffleOptions {
    /// Whether to shuffle.
    pub enabled: bool,
    /// The shuffle algorithm.
    pub algo: ShuffleAlgo,
    /// The seed of the run. The epoch number is added where the order differs between epochs.
    pub seed: u64,
    /// How far a sample may move, in samples; ignored by `naive`, `py1s` and `py2s`. `None` means `max(4_000_000 /
    /// num_canonical_nodes, 262_144)`.
    pub block_size: Option<u64>,
}

/// How samples are drawn from streams, and from a shard that is used in part.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingOptions {
    /// Which samples are drawn from a shard.
    pub method: SamplingMethod,
    /// How many samples at a time are drawn when the share of a shard is determined.
    pub granularity: u64,
    /// Weights of the streams that change over the run. Then streams have no weights of their own, and batching is
    /// `random`.
    pub mixture: Option<Arc<Mixture>>,
}

/// All inputs that determine which sample goes where in one epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct EpochConfig {
    /// The datasets of the mix, in order. Sample ids number all of them consecutively.
    pub streams: Vec<StreamConfig>,
    /// Samples of an epoch with relative weights; `None` and 0 mean all samples.
    pub epoch_size: Option<u64>,
    /// The fixed division of sample space. `None` and 0 mean 64 per node (`py1s`, `py2s`) or one per node.
    pub num_canonical_nodes: Option<u64>,
    /// How many consecutive ranks receive the same samples.
    pub replication: Option<u64>,
    /// Samples of a rank in one step.
    pub batch_size: u64,
    /// Whether and how to shuffle.
    pub shuffle: ShuffleOptions,
    /// How samples are drawn from streams and shards.
    pub sampling: SamplingOptions,
    /// How positions are distributed.
    pub partition_algo: PartitionAlgo,
    /// Which streams a batch consists of.
    pub batching_method: BatchingMethod,
    /// Machines, ranks and workers.
    pub world: World,
    /// The epoch, unless `resume` names this or a later one.
    pub epoch: u64,
    /// Where to resume. A state of an earlier epoch is stale: the epoch then starts at its beginning.
    pub resume: Option<State>,
}

/// An [`EpochConfig`] with defaults filled in and its state applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The world after replication.
    pub world: World,
    /// The epoch.
    pub epoch: u64,
    /// Where the epoch starts, in samples.
    pub sample_in_epoch: u64,
    /// The fixed division of sample space.
    pub canonical_nodes: u64,
    /// The seed of shuffles and sampling; weights use the seed of the configuration.
    pub seed: u64,
    /// Physical nodes of the first run, if a state contains them.
    pub initial_nodes: Option<u64>,
    /// The shuffle block size.
    pub block: u64,
    /// Whether the epoch number is added to the seed of sampling and of the order of batches.
    pub epoch_seed: bool,
}

impl EpochConfig {
    /// Creates the configuration of epoch 0 of these streams, with the defaults of MosaicML Streaming.
    ///
    /// These are: no shuffling, `py1e`, seed 9176, `balanced` sampling of single samples, `relaxed` partition,
    /// `random` batching.
    #[must_use]
    pub fn new(streams: Vec<StreamConfig>, batch_size: u64, world: World) -> Self {
        Self {
            streams,
            epoch_size: None,
            num_canonical_nodes: None,
            replication: None,
            batch_size,
            shuffle: ShuffleOptions {
                enabled: false,
                algo: ShuffleAlgo::Py1e,
                seed: 9176,
                block_size: None,
            },
            sampling: SamplingOptions {
                method: SamplingMethod::Balanced,
                granularity: 1,
                mixture: None,
            },
            partition_algo: PartitionAlgo::Relaxed,
            batching_method: BatchingMethod::Random,
            world,
            epoch: 0,
            resume: None,
        }
    }

    /// Fills in defaults, applies the state, and validates all that does not depend on the streams.
    ///
    /// # Errors
    /// `InvalidInput` for counts of 0, a replication that does not divide the world, or a state without canonical
    /// nodes.
    pub fn resolve(&self) -> Result<Resolved, Error> {
        self.world.check(self.batch_size)?;
        ensure(
            self.sampling.granularity > 0,
            "sampling_granularity",
            0,
            "positive",
        )?;
        let world = match self.replication {
            None => self.world,
            Some(replication) => self.world.replicate(replication)?,
        };
        let mut resolved = Resolved {
            world,
            epoch: self.epoch,
            sample_in_epoch: 0,
            canonical_nodes: 0,
            seed: self.shuffle.seed,
            initial_nodes: None,
            block: 0,
            epoch_seed: self.shuffle.enabled && self.sampling.method == SamplingMethod::Balanced,
        };
        match self.resume.filter(|state| state.epoch >= self.epoch) {
            Some(state) => {
                resolved.epoch = state.epoch;
                resolved.sample_in_epoch = state.sample_in_epoch;
                resolved.canonical_nodes = state.num_canonical_nodes.ok_or_else(|| {
                    OrderProblem::StateField.at("state", "has no num_canonical_nodes")
                })?;
                resolved.seed = state.shuffle_seed;
                resolved.initial_nodes = state.initial_physical_nodes;
            }
            None => {
                let given = self.num_canonical_nodes.filter(|nodes| *nodes > 0);
                resolved.canonical_nodes = given.unwrap_or(match self.shuffle.algo {
                    ShuffleAlgo::Py1s | ShuffleAlgo::Py2s => 64 * world.nodes,
                    _ => world.nodes,
                });
            }
        }
        let canonical_nodes = resolved.canonical_nodes;
        check_count("num_canonical_nodes", canonical_nodes)?;
        ensure(
            resolved.sample_in_epoch <= 1 << 53,
            "sample_in_epoch",
            resolved.sample_in_epoch,
            "at most 2^53",
        )?;
        let block = self
            .shuffle
            .block_size
            .unwrap_or_else(|| (4_000_000 / canonical_nodes).max(1 << 18));
        ensure(
            block <= 1 << 48,
            "shuffle_block_size",
            block,
            "at most 2^48",
        )?;
        resolved.block = block;
        Ok(resolved)
    }

    /// Returns whether both configurations give the same order from the same position on. A default counts as equal to
    /// the same explicit value, and a state as equal to the same options. Returns false if one cannot be resolved.
    #[must_use]
    pub fn is_same_order(&self, other: &Self) -> bool {
        let resolved = |config: &Self| {
            let mut resolved = config.resolve().ok()?;
            resolved.initial_nodes.get_or_insert(resolved.world.nodes);
            Some(resolved)
        };
        let rest = |config: &Self| Self {
            num_canonical_nodes: None,
            shuffle: ShuffleOptions {
                block_size: None,
                ..config.shuffle
            },
            epoch: 0,
            resume: None,
            ..config.clone()
        };
        let own = resolved(self);
        own.is_some() && own == resolved(other) && rest(self) == rest(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replication_matches_mosaicml() {
        let world = |nodes, ranks_per_node| World {
            nodes,
            ranks_per_node,
            workers_per_rank: 3,
        };
        assert_eq!(world(2, 4).replicate(2).unwrap(), world(1, 4));
        assert_eq!(world(1, 8).replicate(4).unwrap(), world(1, 2));
        assert_eq!(world(37, 8).replicate(8).unwrap(), world(1, 37));
        assert!(world(1, 8).replicate(3).is_err());
        assert!(world(1, 8).replicate(0).is_err());
    }

    #[test]
    fn shuffle_algorithm_names_round_trip() {
        for algo in &ShuffleAlgo::ALL {
            assert_eq!(algo.name().parse::<ShuffleAlgo>().unwrap(), *algo);
        }
        assert!("py1b".parse::<ShuffleAlgo>().is_err());
    }

    #[test]
    fn equivalent_configs_have_the_same_order() {
        let mut plain = EpochConfig::new(vec![StreamConfig::new(&[4, 4])], 2, World::SINGLE);
        plain.epoch = 3;
        let state = State {
            epoch: 3,
            sample_in_epoch: 0,
            num_canonical_nodes: Some(1),
            shuffle_seed: plain.shuffle.seed,
            initial_physical_nodes: None,
        };
        let explicit = EpochConfig {
            num_canonical_nodes: Some(1),
            shuffle: ShuffleOptions {
                block_size: Some(4_000_000),
                ..plain.shuffle
            },
            resume: Some(state),
            ..plain.clone()
        };
        assert!(plain.is_same_order(&explicit) && explicit.is_same_order(&plain));
        let resumed = |state| EpochConfig {
            resume: Some(state),
            ..plain.clone()
        };
        let same = State {
            initial_physical_nodes: Some(1),
            ..state
        };
        assert!(plain.is_same_order(&resumed(same)));
        for other in [
            State { epoch: 4, ..state },
            State {
                sample_in_epoch: 2,
                ..state
            },
            State {
                num_canonical_nodes: Some(2),
                ..state
            },
            State {
                shuffle_seed: 1,
                ..state
            },
            State {
                initial_physical_nodes: Some(2),
                ..state
            },
        ] {
            assert!(!plain.is_same_order(&resumed(other)), "{other:?}");
        }
        let shuffled = EpochConfig {
            shuffle: ShuffleOptions {
                enabled: true,
                ..plain.shuffle
            },
            ..plain.clone()
        };
        assert!(!plain.is_same_order(&shuffled));
        let mut broken = plain.clone();
        broken.batch_size = 0;
        assert!(!broken.is_same_order(&broken));
    }

    #[test]
    fn state_of_an_earlier_epoch_is_ignored() {
        let mut config = EpochConfig::new(vec![StreamConfig::new(&[4])], 2, World::SINGLE);
        config.resume = Some(State {
            epoch: 3,
            sample_in_epoch: 2,
            num_canonical_nodes: Some(8),
            shuffle_seed: 5,
            initial_physical_nodes: Some(2),
        });
        let resumed = config.resolve().unwrap();
        assert_eq!(
            (
                resumed.epoch,
                resumed.sample_in_epoch,
                resumed.canonical_nodes,
                resumed.seed
            ),
            (3, 2, 8, 5)
        );
        assert_eq!(resumed.block, 500_000);
        config.epoch = 4;
        let fresh = config.resolve().unwrap();
        assert_eq!(
            (
                fresh.epoch,
                fresh.sample_in_epoch,
                fresh.canonical_nodes,
                fresh.seed
            ),
            (4, 0, 1, 9176)
        );
    }
}
