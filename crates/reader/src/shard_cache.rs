//! Which shards are here: fetched ahead in the order of their use, checked, kept within a limit, shared with the other
//! processes of the machine.
//!
//! This module decides when a shard is fetched, where it goes and when it leaves. It leaves to others which shard is
//! needed when ([`AccessPlan`]) and who leaves for whom ([`make_room`](crate::cache::make_room)), how bytes are moved
//! ([`Fetch`]), and what a shard looks like (`OpenShard`).
//!
//! The model:
//!
//! - A shard is absent, worked on, ready (on the disk), open, or failed. The table of that is under one lock, which is
//!   never held while a file is touched (`state`).
//! - What is done to a shard is a job. Jobs that somebody waits for come first, and whoever waits helps. Threads are
//!   there only from the first fetch on, so that a dataset on a local disk has none (`engine`).
//! - Room is counted in the folders themselves, under a lock between processes (`capacity`, `usage_file`, `folder`).
//! - A shard for which nobody may leave is held in memory, or else its samples are read one by one.
//! - Nothing survives a fork: a child starts with an empty table, and shares the folder as any other process does.

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

/// How shards are fetched and kept.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Most bytes that the cache takes up on the disk, of all streams and all processes together: shards, what is
    /// being written, the indexes, its own books. `None` for no limit.
    pub limit: Option<u64>,
    /// Most bytes on their way at a time, compressed and raw.
    pub in_flight: u64,
    /// Most bytes of shards in memory, for which there is no room on the disk.
    pub memory: u64,
    /// Threads that check, decompress and write.
    pub threads: usize,
    /// How many batches ahead shards are fetched; `None` for as many as there is room for.
    pub lookahead: Option<u64>,
    /// How many batches before it is needed a shard that is fetched ahead may take the place of one that the best order
    /// would keep. That costs a fetch later; waiting longer costs time. `None`: twice as many as a fetch has lasted so
    /// far.
    pub slack: Option<u64>,
    /// How long another process is waited for.
    pub timeout: Duration,
    /// Most shards open at a time. Of those that are not needed by the batches being read, the ones that were asked
    /// for longest ago are closed.
    pub open_shards: usize,
    /// Most shards that other processes are kept from removing. Each takes an open file.
    pub pins: usize,
    /// Where this rank is among those that share the folder, so that shards are kept for the slower ones.
    pub peers: Option<Peers>,
    /// For whom batches are read: a number of the training process, which its loader processes share; 0 for nobody else.
    /// What a loader process of his has left in use when it ended counts until his next epoch.
    pub owner: u64,
    /// Whether locks are taken. Only tests turn this off, to see what happens where they do nothing.
    #[doc(hidden)]
    pub locks: bool,
}

impl Default for CacheOptions {
    /// No limit; 256 MiB on their way and as much in memory; two threads; two minutes of waiting; 8,192 shards open,
    /// which is an eighth of the regions that a process may map (`vm.max_map_count`).
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

/// The ranks of one machine that read the same run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peers {
    /// This rank among those of the machine, from 0.
    pub rank: u64,
    /// Ranks of the machine.
    pub ranks: u64,
    /// A number that the ranks of one run share and those of another do not: positions are compared only within it.
    pub run: u64,
}

/// What the cache has done so far, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Fetches of whole shards, those that had to be made again among them.
    pub fetched_shards: u64,
    /// Bytes of what was fetched, as it is stored.
    pub fetched_bytes: u64,
    /// Fetches that brought something else than the shard.
    pub bad_fetches: u64,
    /// Shards that were found in the folder when they were first looked for.
    pub found_shards: u64,
    /// Times that somebody had to wait for a shard.
    pub waits: u64,
    /// How long they waited, all together.
    pub waited: Duration,
    /// Shards removed from the folder to make room.
    pub evictions: u64,
    /// Shards held in memory for want of room.
    pub bypasses: u64,
    /// Samples read one by one for want of room.
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
    /// As a whole.
    Open(Arc<OpenShard>),
    /// Sample by sample, by [`ShardCache::samples`].
    Alone,
}

/// Tells whoever waits to stop waiting. Clones are of the same request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Asks to stop; then call [`ShardCache::wake`].
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The shards that are here, for one reader. See the module.
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
    /// Checks the options. Makes no thread, no lock, no socket and no file: those come with the first need, in the
    /// process that has it.
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

    /// What this process has, which a child of it has not.
    fn engine(&self) -> Result<&Arc<Engine>, ReaderError> {
        self.engines.get_or_make(|| {
            Engine::new(
                Arc::clone(&self.catalog),
                &self.options,
                Arc::clone(&self.fetch),
            )
        })
    }

    /// A shard that is open; at once or not at all.
    pub(crate) fn get(&self, shard: usize) -> Option<Arc<OpenShard>> {
        self.engines.get()?.get(shard)
    }

    /// Makes shards readable that a batch needs at `tick`, and waits until all are.
    pub(crate) fn need(
        &self,
        shards: &[usize],
        tick: u64,
        cancel: &Cancel,
    ) -> Result<Vec<Access>, ReaderError> {
        self.engine()?.need(shards, tick, cancel)
    }

    /// An epoch begins at a tick: what those left in use who read an earlier one for the same owner is in use no longer.
    pub(crate) fn begin_epoch(&self, epoch: u64, tick: u64) {
        if let Ok(engine) = self.engine() {
            engine.capacity.begin_epoch(epoch, tick);
        }
    }

    /// What comes, and where in it the consumer begins. Starts fetching ahead.
    pub(crate) fn plan(&self, access_plan: AccessPlan, now: u64) {
        if let Ok(engine) = self.engine() {
            engine.foresee(access_plan, Some(now));
        }
    }

    /// More of what comes; the consumer stays where it is.
    pub(crate) fn extend(&self, access_plan: AccessPlan) {
        if let Ok(engine) = self.engine() {
            engine.foresee(access_plan, None);
        }
    }

    /// The consumer has come to a tick: batches before it have been given out.
    pub(crate) fn at(&self, tick: u64) {
        if let Some(engine) = self.engines.get() {
            engine.at(tick);
        }
    }

    /// Rises when a shard was let go. Who holds open shards compares it from time to time and drops them.
    pub(crate) fn generation(&self) -> u64 {
        self.engines.get().map_or(0, |engine| engine.generation())
    }

    /// The encoded bytes of samples, each by its shard and its place in it. Those of shards that are not here, and that
    /// are stored uncompressed, are fetched alone, all at once; their hash cannot be checked. Where hashes have to be
    /// checked, and for compressed shards, the whole shard is fetched.
    pub(crate) fn samples(&self, wanted: &[(usize, u64)]) -> Result<Vec<Extract>, ReaderError> {
        self.engine()?.samples(wanted)
    }

    /// Bytes that the folders take up before there is anything in them.
    pub(crate) fn base(&self) -> Result<u64, ReaderError> {
        Ok(self.engine()?.capacity.base())
    }

    /// The least limit that the cache of these streams can be opened with.
    pub(crate) fn minimum(&self) -> Result<u64, ReaderError> {
        Ok(self.engine()?.capacity.minimum())
    }

    /// Whether there can be room for raw files whose paths are wanted at the same time.
    pub(crate) fn check_room(&self, shards: &[usize]) -> Result<(), ReaderError> {
        if self.options.limit.is_none() {
            return Ok(());
        }
        self.engine()?.capacity.check_room(shards)
    }

    /// A raw file, which stays where it is as long as it is held.
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

    /// A shard from where it comes from, past the folder. Only the last one is kept.
    pub(crate) fn once(&self, shard: usize) -> Result<Arc<OpenShard>, ReaderError> {
        self.engine()?.load_once(shard)
    }

    /// Whether a shard lies in the folder, or is open.
    pub(crate) fn has(&self, shard: usize) -> Result<bool, ReaderError> {
        self.engine()?.has(shard)
    }

    /// Has shards fetched in this order, as far as there is room. How many were not there is the result.
    pub(crate) fn preload(&self, shards: &[usize]) -> Result<u64, ReaderError> {
        Ok(self.engine()?.preload(shards))
    }

    /// How many of the shards that were to be fetched are still on their way.
    pub(crate) fn under_way(&self) -> u64 {
        self.engines.get().map_or(0, |engine| engine.under_way())
    }

    /// Lets a shard go that nobody holds any more, so that it may leave.
    pub(crate) fn close(&self, shard: usize) {
        if let Some(engine) = self.engines.get() {
            engine.close(shard);
        }
    }

    /// Makes a shard readable as a whole, for samples that are asked for one by one; it is kept as long as there is room.
    pub(crate) fn bring(&self, shard: usize) -> Result<(), ReaderError> {
        self.engine()?.bring(shard)
    }

    /// How these shards can be read at once: those that are open as a whole, the others sample by sample while they are
    /// fetched. `None` where that is no gain.
    pub(crate) fn at_once(&self, shards: &[usize], tick: u64) -> Option<Vec<Access>> {
        self.engines.get()?.at_once(shards, tick)
    }

    /// Looks at a shard anew when it is needed next: somebody found that it was changed.
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

    /// Everybody who waits looks whether to stop.
    pub(crate) fn wake(&self) {
        if let Some(engine) = self.engines.get() {
            engine.wake();
        }
    }

    /// Ends the threads of this process and calls off what is being fetched. What is needed afterwards is an error.
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
