//! A bounded cache of blobs on disk, which knows when each blob is needed next.
//!
//! A blob is one or two files with a number. The cache fetches blobs before they are needed, keeps them in a folder within
//! a size limit, and shares the folder with the other processes of the machine. It knows nothing about the content: a
//! user of the cache implements [`BlobCatalog`] (names, sizes and hashes) and [`Blobs`] (fetch, check and open).
//!
//! - [`Cache`] is created once; each process gets its own [`Engine`] from it, also after a fork.
//! - [`AccessPlan`] says in which batches each blob is needed. [`Engine::set_plan`] starts prefetching,
//!   [`Engine::need`] waits for the blobs of a batch, and [`Engine::move_to`] ends a batch.
//! - [`forecast()`] predicts what a whole run fetches, with the same policy.
//!
//! # States of a blob
//!
//! Each process has one table with one slot per blob (`state`). One mutex protects it, and no thread holds the mutex
//! during file or network access.
//!
//! ```text
//!                 need, prefetch                      in the folder or fetched,
//!                +--------------+                     and a caller needs it
//!                |              v      +------------------------------------> Open
//!             Absent <------- Busy ----+                                      |  |
//!                ^   failed    ^  |    | the same, but no caller needs it     |  |
//!                |   prefetch  |  |    +--------------> Ready <--- closed ----+  |
//!                |             |  |                     |   |                    |
//!                |             +--|------ need ---------+   |                    |
//!                +----------------|---- evicted ------------+---- evicted -------+
//!                                 |
//!                                 +-- no space on disk or in memory --> Uncached --+
//!                                 |                                                +--> Busy, on the next need
//!                                 +-- failed, and a caller needs it --> Failed ----+
//! ```
//!
//! | state      | meaning                                                              |
//! |------------|----------------------------------------------------------------------|
//! | `Absent`   | not known to be on disk                                              |
//! | `Busy`     | a job is queued, running, fetching, or waiting for another process   |
//! | `Ready`    | on disk, not open                                                    |
//! | `Open`     | mapped from disk, or held in memory                                  |
//! | `Uncached` | there was no space; the blob is read without the cache until there is |
//! | `Failed`   | the blob cannot be read; the next caller receives the error          |
//!
//! A `Busy` blob advances by two jobs (`jobs`). The job `Start` looks for the blob on disk. If it is missing, the job
//! reserves space and starts the fetch. The job `Finish` verifies and decompresses the fetched bytes, writes the files,
//! and opens the blob if a caller waits for it. Jobs that a caller waits for run before prefetches, and the waiting
//! caller runs them too. Worker threads start with the first fetch, so blobs on a local disk need none.
//!
//! # Eviction
//!
//! When space runs out, the cache evicts the blob whose next use is furthest away (`capacity`). The access plan is
//! known in advance, so this is Belady's algorithm, not LRU:
//!
//! - A blob that a caller waits for, or that is needed within [`CacheOptions::slack`] batches, is fetched at once. It
//!   displaces blobs whose next use is later than its own.
//! - A blob that is needed later is prefetched only if no earlier use is lost. The cache computes which blobs
//!   Belady's algorithm would evict when the blob is needed. It evicts them early only if none of them is pinned or
//!   needed before then. Otherwise the prefetch waits.
//! - The next use is counted from the position of the slowest rank that shares the folder (`positions`).
//! - Without an access plan, the cache evicts the least recently used blob first.
//!
//! A blob is never displaced by one that is needed later. If nothing can be evicted for a blob, the cache holds it in
//! memory. If memory is full as well, the blob is read without the cache (`uncached`).
//!
//! # Processes
//!
//! Processes count used space in the cache folders themselves, under a lock file (`capacity`, `usage_file`, `folder`).
//! After a fork, a child process starts with an empty table and shares the folder like any other process.

mod blobs;
mod cache;
mod capacity;
mod disk;
mod engine;
mod error;
mod folder;
mod forecast;
mod jobs;
mod marker;
mod options;
mod outcome;
mod pace;
mod policy;
mod positions;
mod preload;
mod publish;
mod queue;
mod ranks;
mod source_note;
mod state;
#[cfg(test)]
mod tests;
mod timings;
mod uncached;
mod uncached_blobs;
mod usage_file;
mod verified_stamp;

pub use blobs::{
    Access, Blob, BlobCatalog, BlobEntry, BlobFile, BlobPart, BlobProblem, BlobResult, BlobSet,
    Blobs, CachedBlob, Done, KnownFiles, Pending, RawBlob,
};
pub use cache::Cache;
pub use engine::Engine;
pub use error::CacheError;
pub use folder::{forget, own_folder, private_folder};
pub use forecast::{
    CacheEpoch, CacheForecast, ClusterEpoch, EpochFacts, Forecast, ForecastOptions, NodeForecast,
    Point, ShardCost, forecast,
};
pub use options::{CacheOptions, CacheStats, Cancel, Peers};
pub use policy::AccessPlan;
pub use publish::publish;
pub use source_note::{move_to_index, note_source};
pub use timings::{Activity, MAX_TRACE_STEPS, Step, Timings, TraceStep};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
