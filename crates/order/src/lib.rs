//! Which sample goes where: the order of an epoch as a pure function of shard sizes, options and a seed.
//!
//! Decides what every rank of every node is given in every step, in which order shards are needed, and where a stopped
//! run goes on, on any number of machines. The order is bit-equal to MosaicML Streaming 0.13 for its shuffles
//! (`naive`, `py1s`, `py2s`, `py1br`, `py1e`), its partitions (`orig`, `relaxed`), its four batching methods, its
//! weights, sampling and replication; quirks that are kept for that are marked `COMPAT:`. A further shuffle,
//! `shardmill`, has random access and needs no memory for samples (`QUALITY.md` measures it).
//!
//! Leaves to others: reading an index (here a stream is a list of shard sizes), fetching, decoding, counting what was
//! delivered, storing a state, and waiting. No I/O, no clock, no async; threads only where a [`Cursor`] is asked for
//! them.
//!
//! The model:
//!
//! 1. [`weights`]: how many samples of each stream an epoch takes.
//! 2. [`units`]: how often each shard is used and which of its samples; all of them in a row have *big ids*.
//! 3. [`shuffle`]: the order as a map from *position* to big id. Positions are divided once and for all among
//!    *canonical nodes*; a window of each is made when it is needed, from checkpoints of the generator.
//! 4. [`partition`]: which position stands at which entry of which *global batch* (the samples of one step, node by
//!    node, rank by rank), by arithmetic.
//! 5. Batching mixes the streams' batches. [`Epoch`] puts it all together, [`Cursor`] reads it, [`AccessSchedule`] foretells it.
//!
//! [`tables`] holds the same as arrays, made at once, for programs that look at an order as a whole.
//!
//! ```
//! use shardmill_order::{Epoch, EpochConfig, StreamConfig, World};
//!
//! let world = World { nodes: 1, ranks_per_node: 2, workers_per_rank: 1 };
//! let mut config = EpochConfig::new(vec![StreamConfig::new(&[4, 3, 5])], 2, world);
//! config.shuffle = true;
//! let epoch = Epoch::new(&config)?;
//! let mut cursor = epoch.rank(0)?;
//! let mut batch = Vec::new();
//! assert!(cursor.read(0, &mut batch));
//! assert_eq!(batch.len(), 2);
//! // Stop after one step, go on with four ranks of one sample each.
//! config.resume = Some(epoch.state_after(1));
//! config.world.ranks_per_node = 4;
//! config.batch_size = 1;
//! assert_eq!(Epoch::new(&config)?.batches(), 2);
//! # Ok::<(), shardmill_order::OrderError>(())
//! ```
//!
//! No features. Costs: making an epoch takes about a nanosecond a sample (nothing for `shardmill`), see [`Epoch::new`].
//!
//! Source: MosaicML Streaming 0.13.0 and NumPy 2.1.3, as each module says.

mod access_schedule;
mod batch_plan;
mod config;
mod cursor;
mod epoch;
mod error;
mod num;
mod orders;
pub mod partition;
pub mod reference;
mod request;
pub mod rng;
mod rng_checkpoints;
pub mod shuffle;
pub mod tables;
pub mod units;
pub mod weights;

pub use access_schedule::{AccessSchedule, Use};
pub use config::{
    BatchingMethod, EpochConfig, PartitionAlgo, Resolved, SamplingMethod, ShuffleAlgo, State,
    StreamConfig, Weight, World,
};
pub use cursor::Cursor;
pub use epoch::{Entry, Epoch, SampleId};
pub use error::OrderError;
pub use orders::orders;
pub use request::Request;
