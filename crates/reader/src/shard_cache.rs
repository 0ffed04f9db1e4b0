//! The shard cache: prefetches shards in the order of their use and checks them.
//!
//! The cache keeps shards within a limit, and shares them with the other processes of the machine.
//!
//! This module decides when a shard is fetched, where it is stored and when it is evicted. Other modules decide when
//! each shard is needed ([`AccessPlan`]) and which one to evict ([`make_room`](crate::cache::make_room)). [`Fetch`]
//! transfers the bytes, and `OpenShard` reads them.
//!
//! The model:
//!
//! - A shard is absent, busy, ready (on the disk), open, or failed. One lock protects the table of these states. No
//!   file is accessed while it is held (`state`).
//! - Each operation on a shard is a job. Jobs that a thread waits for come first, and the waiting thread helps. Threads
//!   start with the first fetch, so that a dataset on a local disk has none (`engine`).
//! - The used space is recorded in the cache folders, under a lock between processes (`capacity`, `usage_file`,
//!   `folder`).
//! - If no shard can be evicted for a new one, the new one is held in memory, or its samples are read one by one.
//! - No state survives a fork: a child starts with an empty table, and shares the folder like any other process.

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
pub(crate) use folder::{Marker, PostExitHold, capacity_folder, forget, own_folder, weight};
pub(crate) use origin::no_shard;
pub(crate) use shard::Extract;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub use error::CacheError;
pub(crate) use error::samples_of;

use crate::cache::AccessPlan;
use crate::catalog::Catalog;
use crate::error::ReaderError;
use crate::open::OpenShard;
use engine::Engine;
use origin::{Fetch, Origins};
use process::PerProcess;

/// Options for fetching and caching shards.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The most bytes that the cache uses on the disk, over all streams and processes. This includes shards, files
    /// being written, the indexes and the cache's own records. `None` for no limit.
    pub limit: Option<u64>,
    /// The most bytes in flight at a time, compressed and raw.
    pub in_flight: u64,
    /// The most bytes of shards in memory that do not fit on the disk.
    pub memory: u64,
    /// The number of threads that check, decompress and write.
    pub threads: usize,
    /// How many batches ahead shards are prefetched; `None` for as many as fit.
    pub lookahead: Option<u64>,
    /// How many batches before its use a prefetched shard may replace one that Belady's policy would keep. An early
    /// replacement costs another fetch later; a late one costs time. `None` for twice the batches that a fetch has
    /// taken so far.
    pub slack: Option<u64>,
    /// How long to wait for another process.
    pub timeout: Duration,
    /// The most shards that are open at a time. Shards that the current batches do not need are closed, the least
    /// recently used first.
    pub open_shards: usize,
    /// The most shards that are pinned against eviction by other processes. Each pin takes an open file.
    pub pins: usize,
    /// The position of this rank among those that share the folder. With it, shards are kept for slower ranks.
    pub peers: Option<Peers>,
    /// A number of the training process, which all its loader processes share; 0 for none. Files that a loader process
    /// still used when it ended stay pinned until the next epoch of the same owner.
    pub owner: u64,
    /// Whether to take locks. Only tests turn this off, to see what happens on file systems where locks have no effect.
    #[doc(hidden)]
    pub locks: bool,
}

impl Default for CacheOptions {
    /// No limit; 256 MiB in flight and as much in memory; two threads; a timeout of two minutes. 8,192 shards may be
    /// open, which is an eighth of the regions that a process may map (`vm.max_map_count`).
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

/// The ranks of one machine that take part in the same run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peers {
    /// The number of this rank on the machine, from 0.
    pub rank: u64,
    /// The number of ranks on the machine.
    pub ranks: u64,
    /// A number that the ranks of one run share, and that differs between runs. Positions are compared only within a
    /// run.
    pub run: u64,
}

/// Statistics of the cache in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Fetches of whole shards, including repeated ones.
    pub fetched_shards: u64,
    /// Fetched bytes, as stored.
    pub fetched_bytes: u64,
    /// Fetches that returned wrong bytes.
    pub bad_fetches: u64,
    /// Shards that were already in the folder when they were first needed.
    pub found_shards: u64,
    /// The number of times that a thread waited for a shard.
    pub waits: u64,
    /// The total time of those waits.
    pub waited: Duration,
    /// Shards evicted from the folder.
    pub evictions: u64,
    /// Shards held in memory because the disk had no space for them.
    pub bypasses: u64,
    /// Samples read one by one because there was no space for their shard.
    pub alone_samples: u64,
    /// Bytes in the folders when they were last counted; 0 for a cache without a limit.
    pub resident_bytes: u64,
    /// Bytes of shards in memory now.
    pub memory_bytes: u64,
    /// Shards open now.
    pub open_shards: u64,
}

/// How a shard can be read.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// As a whole shard.
    Open(Arc<OpenShard>),
    /// Sample by sample, by [`ShardCache::samples`].
    Alone,
}

/// A request to stop waiting. Clones share the request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Requests to stop. The caller must then call [`ShardCache::wake`].
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The cache of one reader. See the module documentation.
pub(crate) struct ShardCache {
    catalog: Arc<Catalog>,
    options: CacheOptions,
    fetch: Arc<dyn Fetch>,
    engines: PerProcess<Engine>,
}

impl fmt::Debug for ShardCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Residency")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl ShardCache {
    /// Checks the options. Threads, locks, sockets and files are created on first use, in the process that uses them.
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

    /// Returns the engine of this process. A forked child makes its own.
    fn engine(&self) -> Result<&Arc<Engine>, ReaderError> {
        self.engines.get_or_make(|| {
            Engine::new(
                Arc::clone(&self.catalog),
                &self.options,
                Arc::clone(&self.fetch),
            )
        })
    }

    /// Returns a shard if it is open. This never waits.
    pub(crate) fn get(&self, shard: usize) -> Option<Arc<OpenShard>> {
        self.engines.get()?.get(shard)
    }

    /// Makes the shards readable that a batch needs at `tick`, and waits for all of them.
    pub(crate) fn need(
        &self,
        shards: &[usize],
        tick: u64,
        cancel: &Cancel,
    ) -> Result<Vec<Access>, ReaderError> {
        self.engine()?.need(shards, tick, cancel)
    }

    /// Starts an epoch at a tick. Files that processes of the same owner left in use in earlier epochs may now be
    /// evicted.
    pub(crate) fn begin_epoch(&self, epoch: u64, tick: u64) {
        if let Ok(engine) = self.engine() {
            engine.capacity.begin_epoch(epoch, tick);
        }
    }

    /// Sets the plan of future accesses and the current tick, and starts prefetching.
    pub(crate) fn plan(&self, access_plan: AccessPlan, now: u64) {
        if let Ok(engine) = self.engine() {
            engine.foresee(access_plan, Some(now));
        }
    }

    /// Replaces the plan by a longer one. The current tick stays.
    pub(crate) fn extend(&self, access_plan: AccessPlan) {
        if let Ok(engine) = self.engine() {
            engine.foresee(access_plan, None);
        }
    }

    /// Sets the current tick: all batches before it have been returned.
    pub(crate) fn at(&self, tick: u64) {
        if let Some(engine) = self.engines.get() {
            engine.at(tick);
        }
    }

    /// Returns a number that increases when the cache releases an open shard. Holders of open shards compare it from
    /// time to time, and then drop theirs.
    pub(crate) fn generation(&self) -> u64 {
        self.engines.get().map_or(0, |engine| engine.generation())
    }

    /// Returns the encoded bytes of samples, each given by its shard and its position in the shard. Samples of missing,
    /// uncompressed shards are fetched individually and in parallel, without a check of their hash. If hashes must be
    /// checked, or a shard is compressed, the whole shard is fetched.
    pub(crate) fn samples(&self, wanted: &[(usize, u64)]) -> Result<Vec<Extract>, ReaderError> {
        self.engine()?.samples(wanted)
    }

    /// Returns the bytes that empty cache folders take.
    pub(crate) fn base(&self) -> Result<u64, ReaderError> {
        Ok(self.engine()?.capacity.base())
    }

    /// Returns the smallest limit that the cache of these streams can be opened with.
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

    /// Fetches a raw file and pins it while the result exists; `None` if there is no space for it.
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

    /// Reads a shard from its source, bypassing the folder. Only the last one is cached.
    pub(crate) fn once(&self, shard: usize) -> Result<Arc<OpenShard>, ReaderError> {
        self.engine()?.load_once(shard)
    }

    /// Returns whether a shard is in the folder, or open.
    pub(crate) fn has(&self, shard: usize) -> Result<bool, ReaderError> {
        self.engine()?.has(shard)
    }

    /// Prefetches shards in this order, as far as there is space. Returns how many were missing.
    pub(crate) fn preload(&self, shards: &[usize]) -> Result<u64, ReaderError> {
        Ok(self.engine()?.preload(shards))
    }

    /// Returns how many shards of [`Self::preload`] are queued or in flight.
    pub(crate) fn under_way(&self) -> u64 {
        self.engines.get().map_or(0, |engine| engine.under_way())
    }

    /// Releases a shard that is no longer in use, so that it can be evicted.
    pub(crate) fn close(&self, shard: usize) {
        if let Some(engine) = self.engines.get() {
            engine.close(shard);
        }
    }

    /// Makes a whole shard readable, for reads of single samples. It stays as long as there is space.
    pub(crate) fn bring(&self, shard: usize) -> Result<(), ReaderError> {
        self.engine()?.bring(shard)
    }

    /// Returns how these shards can be read without waiting: open ones as a whole, and the others sample by sample
    /// while they are fetched. Returns `None` if that gains nothing.
    pub(crate) fn at_once(&self, shards: &[usize], tick: u64) -> Option<Vec<Access>> {
        self.engines.get()?.at_once(shards, tick)
    }

    /// Marks a shard as changed, so that it is checked again when it is next needed.
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

    /// Stops the threads of this process and cancels transfers in flight. Later requests for shards are errors.
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
