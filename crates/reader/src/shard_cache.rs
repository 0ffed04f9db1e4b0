//! Fetches shards before they are needed, verifies them, and keeps them on disk within a size limit.
//!
//! The processes of one machine share the cache folder. This module decides when to fetch a shard, where to put it and
//! when to evict it. Other modules define the rest: [`AccessPlan`] says when each shard is needed,
//! [`make_room`](shardmill_cache::make_room) chooses what to evict, [`Fetch`] moves bytes, and `OpenShard` reads a shard.
//!
//! # States of a shard
//!
//! Each process has one table with one slot per shard (`state`):
//!
//! | State    | Meaning                                                            | Next states                 |
//! |----------|--------------------------------------------------------------------|-----------------------------|
//! | `Absent` | Not known to be on disk                                            | `Busy`                      |
//! | `Busy`   | A job is queued, running, fetching, or waiting for another process | any other                   |
//! | `Ready`  | On disk; not open                                                  | `Busy`, `Absent` (evicted)  |
//! | `Open`   | Mapped from disk, or held in memory                                | `Ready` (closed), `Absent`  |
//! | `Alone`  | No space on disk or in memory; samples are read individually       | `Busy`, when space is freed |
//! | `Failed` | The shard cannot be read; the next caller receives the error       | `Busy`, on a later attempt  |
//!
//! One mutex protects the table. No thread holds it during file or network access.
//!
//! A `Busy` shard advances by jobs (`engine`). A `Start` job looks for the shard on disk. If the shard is missing, the
//! job reserves space and starts the fetch. A `Finish` job verifies and decompresses the fetched bytes, writes the
//! files, and opens the shard if a caller waits for it. Jobs that a caller waits for run before prefetches, and the
//! waiting caller runs them too. Worker threads start with the first fetch, so a dataset on a local disk has none.
//!
//! # Eviction
//!
//! When space runs out, the cache evicts the shard whose next use is furthest away (`capacity`). The access plan is
//! known in advance, so this is Belady's algorithm, not LRU:
//!
//! - A shard that a caller waits for, or that is needed within [`CacheOptions::slack`] batches, is fetched at once. It
//!   displaces shards whose next use is later than its own.
//! - A shard that is needed later is prefetched only if no earlier use is lost. The cache computes which shards
//!   Belady's algorithm would evict when the shard is needed. It evicts them early only if none of them is pinned or
//!   needed before then. Otherwise the prefetch waits.
//! - The next use is counted from the position of the slowest rank that shares the folder (`positions`).
//! - Without an access plan, the cache evicts the least recently used shard first.
//!
//! A shard is never displaced by one that is needed later. If nothing can be evicted for a shard, the cache holds it
//! in memory. If memory is full as well, its samples are read individually (`uncached`).
//!
//! # Processes
//!
//! Processes count used space in the cache folders themselves, under a lock file (`capacity`, `usage_file`, `folder`).
//! After a fork, a child process starts with an empty table and shares the folder like any other process (`process`).

mod capacity;
mod check;
mod disk;
mod engine;
mod error;
mod folder;
mod names;
mod origin;
mod positions;
mod process;
mod shard;
mod state;
mod uncached;
mod usage_file;
mod verified_stamp;

pub(crate) use capacity::is_kept;
pub(crate) use folder::{Marker, PostExitHold, forget, own_folder, weight};
pub(crate) use origin::no_shard;
pub(crate) use shard::Extract;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use error::CacheError;

use crate::error::ReaderError;
use crate::open::OpenShard;
use engine::Engine;
use origin::{Fetch, Origins};
use process::PerProcess;
use shardmill_cache::AccessPlan;
use shardmill_dataset::Catalog;

/// Options of the shard cache: limits, threads, prefetching and sharing.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The most bytes that the cache uses on disk, for all streams and all processes together. Includes shards,
    /// reservations of shards that are being written, indexes, and the cache's own files. `None` for no limit.
    pub limit: Option<u64>,
    /// The most bytes in flight at a time, compressed and raw.
    pub in_flight: u64,
    /// The most bytes of shards held in memory because there is no space for them on disk. A single shard that
    /// a caller waits for may exceed it.
    pub memory: u64,
    /// The number of threads that verify, decompress and write shards.
    pub threads: usize,
    /// How many batches ahead to prefetch; `None` prefetches as far as there is space.
    pub lookahead: Option<u64>,
    /// How many batches before its use a prefetched shard may evict a shard that optimal eviction would keep. An early
    /// eviction costs another fetch later; a late prefetch costs waiting time. `None` uses twice the average duration
    /// of a fetch.
    pub slack: Option<u64>,
    /// How long to wait for another process.
    pub timeout: Duration,
    /// The most shards open at a time. Beyond it, the cache closes the least recently used shards.
    pub open_shards: usize,
    /// The most shards that this process pins, so that other processes cannot evict them. Each pin takes an open file.
    pub pins: usize,
    /// The position of this rank among those that share the folder. The cache keeps shards for slower ranks.
    pub peers: Option<Peers>,
    /// A number that identifies the training process; its loader processes share it. 0 if there is no such process.
    /// Files that a loader process still used when it exited stay pinned for 60 seconds, or until the next epoch of
    /// the same owner.
    pub owner: u64,
    /// Whether to take file locks. Only tests turn this off, to simulate file systems on which locks do nothing.
    #[doc(hidden)]
    pub locks: bool,
}

impl Default for CacheOptions {
    /// Returns options without a size limit. At most 256 MiB are in flight and 256 MiB in memory. Two threads; a
    /// timeout of two minutes; 8,192 open shards, an eighth of the regions that a process may map
    /// (`vm.max_map_count`).
    fn default() -> Self {
        Self {
            limit: None,
            in_flight: 256 << 20,
            memory: 256 << 20,
            threads: 2,
            lookahead: None,
            slack: None,
            timeout: Duration::from_secs(120),
            open_shards: 8192,
            pins: 512,
            peers: None,
            owner: 0,
            locks: true,
        }
    }
}

/// The ranks on one machine that read the same run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peers {
    /// This rank's number among the ranks on the machine, from 0.
    pub rank: u64,
    /// The number of ranks on the machine.
    pub ranks: u64,
    /// A number that identifies the run. All ranks of a run have the same number, and only their positions are
    /// compared.
    pub run: u64,
}

/// Counters of the cache in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Fetches of whole shards, including repeated ones.
    pub fetched_shards: u64,
    /// Bytes of the fetched files, in their stored form.
    pub fetched_bytes: u64,
    /// Fetches whose content failed verification.
    pub bad_fetches: u64,
    /// Shards that were already in the folder when first looked up.
    pub found_shards: u64,
    /// How often a caller had to wait for a shard.
    pub waits: u64,
    /// The total time that callers waited.
    pub waited: Duration,
    /// Shards evicted to make space.
    pub evictions: u64,
    /// Shards held in memory because there was no space on disk.
    pub bypasses: u64,
    /// Samples read individually because there was no space for their shard.
    pub alone_samples: u64,
    /// Bytes in the folders at the last count; 0 for a cache without a limit.
    pub resident_bytes: u64,
    /// Bytes of shards in memory now.
    pub memory_bytes: u64,
    /// Shards open now.
    pub open_shards: u64,
}

/// How the samples of a shard can be read.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// From the open shard.
    Open(Arc<OpenShard>),
    /// Individually, by [`ShardCache::samples`].
    Alone,
}

/// A request to stop waiting. Clones share the same request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Requests the stop. Call [`ShardCache::wake`] afterwards.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The shard cache of one reader. See the module documentation.
pub(crate) struct ShardCache {
    catalog: Arc<Catalog>,
    options: CacheOptions,
    fetch: Arc<dyn Fetch>,
    engines: PerProcess<Engine>,
}

impl fmt::Debug for ShardCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardCache")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl ShardCache {
    /// Validates the options. Creates no threads, locks, sockets or files: each process creates them on first use.
    pub(crate) fn new(catalog: Arc<Catalog>, options: &CacheOptions) -> Result<Self, ReaderError> {
        Self::with_fetch(catalog, options, Arc::new(Origins))
    }

    pub(crate) fn with_fetch(
        catalog: Arc<Catalog>,
        options: &CacheOptions,
        fetch: Arc<dyn Fetch>,
    ) -> Result<Self, ReaderError> {
        capacity::Capacity::new(Arc::clone(&catalog), options)?;
        Ok(Self {
            catalog,
            options: options.clone(),
            fetch,
            engines: PerProcess::new(),
        })
    }

    /// Returns the engine of this process. A forked child gets its own.
    fn engine(&self) -> Result<&Arc<Engine>, ReaderError> {
        self.engines.get_or_make(|| {
            Engine::new(
                Arc::clone(&self.catalog),
                &self.options,
                Arc::clone(&self.fetch),
            )
        })
    }

    /// Returns an open shard, or `None` without waiting if it is not open.
    pub(crate) fn get(&self, shard: usize) -> Option<Arc<OpenShard>> {
        self.engines.get()?.get(shard)
    }

    /// Makes the shards readable that a batch needs at `tick`, and waits until all are.
    pub(crate) fn need(
        &self,
        shards: &[usize],
        tick: u64,
        cancel: &Cancel,
    ) -> Result<Vec<Access>, ReaderError> {
        self.engine()?.need(shards, tick, cancel)
    }

    /// Records that an epoch begins at a tick. Files left in use for the same owner in an earlier epoch may then be
    /// evicted.
    pub(crate) fn begin_epoch(&self, epoch: u64, tick: u64) {
        if let Ok(engine) = self.engine() {
            engine.capacity.begin_epoch(epoch, tick);
        }
    }

    /// Replaces the access plan and the consumer's position in it, and starts prefetching.
    pub(crate) fn plan(&self, access_plan: AccessPlan, now: u64) {
        if let Ok(engine) = self.engine() {
            engine.foresee(access_plan, Some(now));
        }
    }

    /// Replaces the access plan with a longer one; the consumer's position stays.
    pub(crate) fn extend(&self, access_plan: AccessPlan) {
        if let Ok(engine) = self.engine() {
            engine.foresee(access_plan, None);
        }
    }

    /// Moves the consumer to a tick: all earlier batches have been delivered.
    pub(crate) fn at(&self, tick: u64) {
        if let Some(engine) = self.engines.get() {
            engine.at(tick);
        }
    }

    /// Returns a number that increases when a shard is closed or evicted. Holders of open shards compare it and drop
    /// theirs.
    pub(crate) fn generation(&self) -> u64 {
        self.engines.get().map_or(0, |engine| engine.generation())
    }

    /// Returns the encoded bytes of samples, each given by its shard and its position in the shard. Samples of
    /// uncompressed shards that are not cached are fetched individually, all at once; their hash cannot be checked.
    /// The whole shard is fetched if it is compressed or if hashes have to be checked.
    pub(crate) fn samples(&self, wanted: &[(usize, u64)]) -> Result<Vec<Extract>, ReaderError> {
        self.engine()?.samples(wanted)
    }

    /// Returns the bytes that the folders use before any shard is cached.
    pub(crate) fn base(&self) -> Result<u64, ReaderError> {
        Ok(self.engine()?.capacity.base())
    }

    /// Returns the smallest limit with which the cache of these streams can be opened.
    pub(crate) fn minimum(&self) -> Result<u64, ReaderError> {
        Ok(self.engine()?.capacity.minimum())
    }

    /// Checks that the limit has space for raw files whose paths are needed at the same time.
    pub(crate) fn check_room(&self, shards: &[usize]) -> Result<(), ReaderError> {
        if self.options.limit.is_none() {
            return Ok(());
        }
        self.engine()?.capacity.check_room(shards)
    }

    /// Returns a raw file, which is not removed while the result is held; `None` if it cannot be cached.
    pub(crate) fn hold(
        &self,
        shard: usize,
        cancel: &Cancel,
    ) -> Result<Option<Arc<OpenShard>>, ReaderError> {
        let engine = self.engine()?;
        let now = engine.lock().now;
        let found = engine.need(&[shard], now, cancel)?;
        Ok(match found.into_iter().next() {
            Some(Access::Open(open)) => Some(open),
            Some(Access::Alone) | None => None,
        })
    }

    /// Fetches a shard from its origin, bypassing the folder. The cache does not keep it.
    pub(crate) fn once(&self, shard: usize) -> Result<Arc<OpenShard>, ReaderError> {
        self.engine()?.load_once(shard)
    }

    /// Returns whether a shard is open or in the folder.
    pub(crate) fn has(&self, shard: usize) -> Result<bool, ReaderError> {
        self.engine()?.has(shard)
    }

    /// Queues shards to be fetched in this order, as far as there is space. Returns how many were missing.
    pub(crate) fn preload(&self, shards: &[usize]) -> Result<u64, ReaderError> {
        Ok(self.engine()?.preload(shards))
    }

    /// Returns how many of the shards queued by [`ShardCache::preload`] are not finished yet.
    pub(crate) fn under_way(&self) -> u64 {
        self.engines.get().map_or(0, |engine| engine.under_way())
    }

    /// Closes a shard without holders, so that it can be evicted.
    pub(crate) fn close(&self, shard: usize) {
        if let Some(engine) = self.engines.get() {
            engine.close(shard);
        }
    }

    /// Makes a shard readable as a whole, for samples that are read individually. It is kept as long as there is
    /// space.
    pub(crate) fn bring(&self, shard: usize) -> Result<(), ReaderError> {
        self.engine()?.bring(shard)
    }

    /// Returns how to read these shards without waiting. Open shards are read as a whole; samples of the others are
    /// read individually while the shards are fetched. `None` if that would not be faster.
    pub(crate) fn at_once(&self, shards: &[usize], tick: u64) -> Option<Vec<Access>> {
        self.engines.get()?.at_once(shards, tick)
    }

    /// Discards what is known about a shard whose files changed. The next use verifies it again.
    pub(crate) fn distrust(&self, shard: usize) {
        if let Some(engine) = self.engines.get() {
            engine.distrust(shard);
        }
    }

    pub(crate) fn stats(&self) -> CacheStats {
        self.engines
            .get()
            .map_or_else(CacheStats::default, |engine| engine.stats())
    }

    /// Wakes all waiting threads, so that they check whether to stop.
    pub(crate) fn wake(&self) {
        if let Some(engine) = self.engines.get() {
            engine.wake();
        }
    }

    /// Joins the threads of this process and cancels its fetches. Later requests return an error.
    pub(crate) fn stop(&self) {
        if let Some(engine) = self.engines.get() {
            engine.stop();
        }
    }
}

impl Drop for ShardCache {
    fn drop(&mut self) {
        self.stop();
    }
}
