//! Fetches blobs before they are needed, verifies them, and keeps them on disk within a size limit.
//!
//! The processes of one machine share the cache folder. This module decides when to fetch a blob, where to put it and
//! when to evict it. Other modules define the rest: [`AccessPlan`] says when each blob is needed,
//! [`make_room`](crate::make_room) chooses what to evict, [`Fetch`] moves bytes, and `OpenBlob` reads a blob.
//!
//! # States of a blob
//!
//! Each process has one table with one slot per blob (`state`):
//!
//! | State    | Meaning                                                            | Next states                 |
//! |----------|--------------------------------------------------------------------|-----------------------------|
//! | `Absent` | Not known to be on disk                                            | `Busy`                      |
//! | `Busy`   | A job is queued, running, fetching, or waiting for another process | any other                   |
//! | `Ready`  | On disk; not open                                                  | `Busy`, `Absent` (evicted)  |
//! | `Open`   | Mapped from disk, or held in memory                                | `Ready` (closed), `Absent`  |
//! | `Alone`  | No space on disk or in memory; samples are read individually       | `Busy`, when space is freed |
//! | `Failed` | The blob cannot be read; the next caller receives the error       | `Busy`, on a later attempt  |
//!
//! One mutex protects the table. No thread holds it during file or network access.
//!
//! A `Busy` blob advances by jobs (`engine`). A `Start` job looks for the blob on disk. If the blob is missing, the
//! job reserves space and starts the fetch. A `Finish` job verifies and decompresses the fetched bytes, writes the
//! files, and opens the blob if a caller waits for it. Jobs that a caller waits for run before prefetches, and the
//! waiting caller runs them too. Worker threads start with the first fetch, so a dataset on a local disk has none.
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
//! A blob is never displaced by one that is needed later. If nothing can be evicted for a blob, the cache holds it
//! in memory. If memory is full as well, its samples are read individually (`uncached`).
//!
//! # Processes
//!
//! Processes count used space in the cache folders themselves, under a lock file (`capacity`, `usage_file`, `folder`).
//! After a fork, a child process starts with an empty table and shares the folder like any other process (`process`).

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
mod process;
mod queue;
mod ranks;
#[cfg(test)]
mod simulate;
mod state;
#[cfg(test)]
mod tests;
mod uncached;
mod uncached_blobs;
mod usage_file;
mod verified_stamp;

pub use blobs::{
    Access, Blob, BlobCatalog, BlobFile, BlobPart, BlobProblem, BlobResult, BlobSet, Blobs,
    CachedBlob, Done, KnownFiles, Pending, RawBlob,
};
pub use cache::Cache;
pub use engine::Engine;
pub use error::CacheError;
pub use folder::{forget, own_folder, private_folder};
pub use forecast::{
    CacheEpoch, CacheForecast, EpochFacts, Forecast, ForecastOptions, NodeForecast, Point,
    ShardCost, forecast,
};
pub use options::{CacheOptions, CacheStats, Cancel, Peers};
pub use policy::{AccessPlan, AccessWindow, Resident, make_room};
