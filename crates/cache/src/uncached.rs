//! Whole blobs for which the cache has no space: fetched for a caller, and kept in memory for a while.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shardmill_core::lock;

use crate::blobs::{Access, BlobPart, BlobResult, Blobs, CachedBlob};
use crate::capacity::Scheduler as _;
use crate::engine::{Engine, POLL_INTERVAL};
use crate::error::CacheError;
use crate::options::Cancel;
use crate::uncached_blobs::UncachedBlobs;

/// These blobs take at most 1/4 of the memory limit for blobs, in addition to it.
const SHARE: u64 = 4;

/// The right to fetch a blob without the cache; other threads wait until it is dropped.
struct Turn<'a, B: Blobs> {
    engine: &'a Engine<B>,
    blob: usize,
}

impl<B: Blobs> Drop for Turn<'_, B> {
    fn drop(&mut self) {
        self.engine.uncached().end_load(self.blob);
        self.engine.loaded.notify_all();
    }
}

impl<B: Blobs> Engine<B> {
    /// Returns whether a blob is open or on disk, or was fetched without the cache and is still in memory.
    #[must_use]
    pub fn is_at_hand(&self, blob: usize) -> bool {
        // One lock at a time: `begin_load` takes the table's lock while it holds the other.
        let is_present = self.lock().is_present(blob);
        is_present || self.uncached().get(blob).is_some()
    }

    /// Opens a whole blob, in the cache if there is space, and otherwise in memory.
    /// Errors are those of [`Engine::need`].
    pub fn whole(self: &Arc<Self>, blob: usize) -> BlobResult<Arc<CachedBlob<B::Open>>, B::Error> {
        if let Some(open) = self.get(blob) {
            return Ok(open);
        }
        if let Some(open) = self.uncached().get(blob) {
            return Ok(open);
        }
        match self.need_now(blob, &Cancel::default())? {
            Access::Open(open) => Ok(open),
            Access::Uncached => self.load_uncached(blob),
        }
    }

    /// Waits until a blob is readable, for a caller without a batch. Errors are those of [`Engine::need`].
    pub fn need_now(
        self: &Arc<Self>,
        blob: usize,
        cancel: &Cancel,
    ) -> BlobResult<Access<B::Open>, B::Error> {
        let found = self.need(&[blob], self.now(), cancel)?;
        Ok(found.into_iter().next().unwrap_or(Access::Uncached))
    }

    /// As [`Engine::need_now`], for another node that waits for the blob.
    pub fn need_for_peer(
        self: &Arc<Self>,
        blob: usize,
        cancel: &Cancel,
    ) -> BlobResult<Access<B::Open>, B::Error> {
        self.lock().begin_for_peer(blob);
        self.need_now(blob, cancel)
    }

    fn uncached(&self) -> MutexGuard<'_, UncachedBlobs<B::Open>> {
        lock(&self.uncached)
    }

    /// Keeps a blob for which the cache has no space, within the memory limit.
    pub(crate) fn keep_uncached(&self, open: Arc<CachedBlob<B::Open>>, bytes: u64) {
        let (plan, now) = {
            let state = self.lock();
            (Arc::clone(&state.ahead.plan), state.now)
        };
        let in_use = |blob| {
            (!plan.is_empty()).then(|| plan.next_use(blob, now).is_some_and(|next| next <= now))
        };
        let max = self.options.memory / SHARE;
        self.uncached().keep(open, bytes, max, in_use);
    }

    /// Fetches a blob for which the cache has no space, and keeps it within the memory limit.
    fn load_uncached(&self, blob: usize) -> BlobResult<Arc<CachedBlob<B::Open>>, B::Error> {
        let _turn = self.begin_load(blob)?;
        // Another thread may have fetched this blob in the meantime.
        if let Some(open) = self.uncached().get(blob) {
            return Ok(open);
        }
        let (open, bytes) = self.load(blob)?;
        let open = Arc::new(open);
        self.keep_uncached(Arc::clone(&open), bytes);
        Ok(open)
    }

    /// Waits until no other thread fetches a blob without the cache. No lock is held during the fetch.
    fn begin_load(&self, blob: usize) -> BlobResult<Turn<'_, B>, B::Error> {
        let start = Instant::now();
        let mut uncached = self.uncached();
        while !uncached.begin_load(blob) {
            let pause = self.next_check(blob, start)?;
            let waited = self.loaded.wait_timeout(uncached, pause);
            uncached = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(Turn { engine: self, blob })
    }

    /// Returns how long to wait for the fetch of a blob before the next check. An error if the timeout has passed.
    fn next_check(&self, blob: usize, start: Instant) -> BlobResult<Duration, B::Error> {
        if self.is_stopped() {
            return Err(CacheError::Stopped);
        }
        let left = self.options.timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(CacheError::Timeout {
                name: self.blobs.name(blob),
                seconds: self.options.timeout.as_secs(),
            });
        }
        Ok(left.min(POLL_INTERVAL))
    }

    /// Fetches a blob from its origin without using or filling the cache.
    pub fn load_once(&self, blob: usize) -> BlobResult<CachedBlob<B::Open>, B::Error> {
        Ok(self.load(blob)?.0)
    }

    fn load(&self, blob: usize) -> BlobResult<(CachedBlob<B::Open>, u64), B::Error> {
        let count = self.blobs.blob(blob).map_or(0, |blob| blob.files().count());
        let mut files = Vec::with_capacity(count);
        for part in [BlobPart::Data, BlobPart::Table].into_iter().take(count) {
            let (send, receive) = mpsc::channel();
            let done = Box::new(move |result| {
                // The receiver may have timed out.
                let _received = send.send(result);
            });
            let pending = self.blobs.fetch(blob, part, done);
            let start = Instant::now();
            let result = loop {
                match receive.recv_timeout(self.next_check(blob, start)?) {
                    Ok(result) => break result,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        let name = self.blobs.name(blob);
                        return Err(CacheError::WorkerLost { name });
                    }
                }
            };
            drop(pending);
            files.push(result?);
        }
        {
            let mut state = self.lock();
            state.stats.fetched_shards += 1;
            let bytes = files.iter().map(|file| file.len() as u64);
            let bytes = bytes.fold(state.stats.fetched_bytes, u64::saturating_add);
            state.stats.fetched_bytes = bytes;
        }
        let raw = self.blobs.unpack(blob, files)?;
        let bytes = raw.bytes();
        let open = self.blobs.in_memory(blob, raw)?;
        Ok((CachedBlob::new(blob, open, None), bytes))
    }
}
