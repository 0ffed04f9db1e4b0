//! The options and the counters of the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Options of the blob cache: limits, threads, prefetching and sharing.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The most bytes that the cache uses on disk, for all streams and all processes together. Includes blobs,
    /// reservations of blobs that are being written, indexes, and the cache's own files. `None` for no limit.
    pub limit: Option<u64>,
    /// The most bytes in flight at a time, compressed and raw. At most 64 shards or 128 raw files are in flight, however
    /// small.
    pub in_flight: u64,
    /// The most bytes of blobs held in memory because there is no space for them on disk. A single blob that
    /// a caller waits for may exceed it.
    pub memory: u64,
    /// The number of threads that verify, decompress and write blobs.
    pub threads: usize,
    /// How many batches ahead to prefetch; `None` prefetches as far as there is space.
    pub lookahead: Option<u64>,
    /// How many batches before its use a prefetched blob may evict a blob that optimal eviction would keep. An early
    /// eviction costs another fetch later; a late prefetch costs waiting time. `None` uses twice the average duration
    /// of a fetch.
    pub slack: Option<u64>,
    /// How long to wait for another process, or for a blob that is fetched without the cache.
    pub timeout: Duration,
    /// The most blobs open at a time. Beyond it, the cache closes the least recently used blobs.
    pub open_shards: usize,
    /// The most blobs that this process pins, so that other processes cannot evict them. On systems without locks on
    /// parts of files, each pin takes an open file.
    pub pins: usize,
    /// The position of this rank among those that share the folder. The cache keeps blobs for slower ranks.
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
    /// timeout of two minutes; 8,192 open blobs, an eighth of the regions that a process may map
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
    /// Fetches of whole blobs, including repeated ones.
    pub fetched_shards: u64,
    /// Bytes of the fetched files, in their stored form.
    pub fetched_bytes: u64,
    /// Fetches whose content failed verification.
    pub bad_fetches: u64,
    /// Blobs that were already in the folder when first looked up.
    pub found_shards: u64,
    /// How often a caller had to wait for a blob.
    pub waits: u64,
    /// The total time that callers waited.
    pub waited: Duration,
    /// Blobs evicted to make space.
    pub evictions: u64,
    /// Blobs held in memory because there was no space on disk.
    pub bypasses: u64,
    /// Samples read individually because there was no space for their blob.
    pub alone_samples: u64,
    /// Bytes in the folders at the last count; 0 for a cache without a limit.
    pub resident_bytes: u64,
    /// Bytes of blobs in memory now.
    pub memory_bytes: u64,
    /// Blobs open now.
    pub open_shards: u64,
}

/// A request to stop waiting. Clones share the same request.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Requests the stop. Call [`Engine::wake`](crate::Engine::wake) afterwards.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns whether the stop was requested.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
