//! Computes the sample order of an epoch as a pure function of shard sizes, options and a seed.
//!
//! The order says which samples each rank of each node receives in each step, and when each shard is needed. It also
//! says where a stopped run resumes, on any number of machines. The order is bit-identical to MosaicML Streaming 0.13
//! for its shuffles (`naive`, `py1s`, `py2s`, `py1br`, `py1e`), partitions (`orig`, `relaxed`) and four batching
//! methods. The same holds for its weights, sampling and replication; `COMPAT:` marks quirks that are kept for this
//! purpose. The additional shuffle `shardmill` has random access and needs no memory per sample (`QUALITY.md` measures
//! its quality).
//!
//! This crate does not read indexes (a stream is a list of shard sizes), fetch, decode, count delivered samples, store
//! states or wait. It has no I/O, no clock and no async code. It starts threads only if a [`Cursor`] is configured
//! with them.
//!
//! The order is computed in five stages:
//!
//! 1. [`weights`]: how many samples of each stream an epoch takes.
//! 2. `units`: how often each shard is used and which of its samples. *Big ids* number all of them consecutively.
//! 3. `shuffle`: the order as a map from *position* to big id. *Canonical nodes* divide the positions once for the
//!    whole run. A window of each is computed on demand, from checkpoints of the random number generator.
//! 4. `partition`: which position is at which entry of which *global batch* (the samples of one step, node by node,
//!    rank by rank), computed by arithmetic.
//! 5. Batching mixes the batches of the streams. [`Epoch`] combines all stages, [`Cursor`] reads the order, and
//!    [`AccessSchedule`] predicts when each shard is needed.
//!
//! [`PackedEpoch`] makes rows of tokens from the order: contexts that documents fill, or batches by tokens.
//!
//! [`tables`] computes the same as complete arrays, for programs that process an order as a whole.
//!
//! ```
//! use shardmill_order::{Epoch, EpochConfig, StreamConfig, World};
//!
//! let world = World { nodes: 1, ranks_per_node: 2, workers_per_rank: 1 };
//! let mut config = EpochConfig::new(vec![StreamConfig::new(&[4, 3, 5])], 2, world);
//! config.shuffle.enabled = true;
//! let epoch = Epoch::new(&config)?;
//! let mut cursor = epoch.rank(0)?;
//! let mut batch = Vec::new();
//! assert!(cursor.read(0, &mut batch));
//! assert_eq!(batch.len(), 2);
//! // Stop after one step and resume with four ranks of one sample each.
//! config.resume = Some(epoch.state_after(1));
//! config.world.ranks_per_node = 4;
//! config.batch_size = 1;
//! assert_eq!(Epoch::new(&config)?.batches(), 2);
//! # Ok::<(), shardmill_core::Error>(())
//! ```
//!
//! The crate has no Cargo features. Creating an epoch takes about a nanosecond per sample (nothing for `shardmill`);
//! see [`Epoch::new`].
//!
//! Source: MosaicML Streaming 0.13.0 and NumPy 2.1.3; each module names its files.

mod access_schedule;
mod batch_plan;
mod config;
mod cursor;
mod epoch;
mod error;
mod interleave;
mod lineage;
mod mixed;
mod mixture;
mod num;
mod orders;
mod packing;
mod partition;
mod reference;
mod request;
pub mod rng;
mod rng_checkpoints;
mod shuffle;
mod skip;
pub mod tables;
mod units;
pub mod weights;

pub use access_schedule::{AccessSchedule, Use};
pub use config::{
    BatchingMethod, EpochConfig, PartitionAlgo, Resolved, SamplingMethod, SamplingOptions,
    ShuffleAlgo, ShuffleOptions, State, StreamConfig, Weight, World,
};
pub use cursor::Cursor;
pub use epoch::{Entry, Epoch, SampleId};
pub use error::{bad_value, outside_world};
pub use lineage::Delivery;
pub use mixture::{Mixture, MixtureWindow, WeightPoint, WhenExhausted};
pub use orders::orders;
pub use packing::{
    DocumentPiece, LastRows, LongDocument, PackedEpoch, PackingOptions, Row, RowCursor, RowForm,
};
pub use request::Request;
pub use skip::{Kept, Skip};
pub use units::ShardTable;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
