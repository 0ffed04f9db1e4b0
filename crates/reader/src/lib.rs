//! Streams the samples of datasets in batches, through a cache of their shards.
//!
//! Raw files that are samples themselves are read in the same order and through the same cache: see
//! [`FileOptions`](shardmill_dataset::FileOptions).
//!
//! `shardmill-dataset` opens the datasets and decides which file of a shard to read. `shardmill-order` decides the order
//! of the samples. This crate decides when a shard is fetched and evicted, and fills the batches.

mod batch;
mod batches;
mod cached;
mod check;
mod collate;
mod context;
mod episodes;
mod error;
mod lineage;
mod open;
mod origin;
mod packed;
mod prefetch_planner;
mod ranges;
mod reader;
mod served;
mod state;
#[cfg(test)]
mod tests;
mod values;
mod walks;
mod windows;

pub use batch::{Batch, BatchData, BatchWindow, ColumnData, Held};
pub use batches::{BatchOptions, BatchStats, Batches};
pub use episodes::find_episodes;
pub use error::{ReaderProblem, interrupted, no_thread};
pub use lineage::{Lineage, SamplePlace};
pub use packed::{IGNORED_LABEL, PADDING_DOCUMENT, TokenBatch, TokenBatches, TokenOptions};
pub use ranges::Ranges;
pub use reader::{EncodedSample, FileUse, Reader, ReaderOptions};
pub use shardmill_cache::{
    Activity, CacheEpoch, CacheForecast, CacheOptions, CacheStats, Cancel, ClusterEpoch,
    EpochFacts, Forecast, ForecastOptions, MAX_TRACE_STEPS, NodeForecast, Peers, Point, ShardCost,
    TraceStep, forecast,
};
pub use shardmill_dataset::Window;
pub use shardmill_peers::{ClusterOptions, ClusterStats, PeerFile, TlsOptions, owner};
pub use state::{Fingerprint, MAX_STATE_BYTES, OrderIdentity, RunState, continued_mixture};
pub use values::StoredPlace;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
