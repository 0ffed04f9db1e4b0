//! Whole blobs for which the cache has no space: fetched for a caller, and kept in memory for a while.

use std::sync::{Arc, MutexGuard, PoisonError, mpsc};

use crate::blobs::{Access, BlobPart, BlobResult, Blobs, CachedBlob};
use crate::engine::Engine;
use crate::error::CacheError;
use crate::options::Cancel;
use crate::uncached_blobs::UncachedBlobs;

/// These blobs take at most 1/4 of the memory limit for blobs, in addition to it.
const SHARE: u64 = 4;

impl<B: Blobs> Engine<B> {
    /// Returns whether a blob is open or on disk, or was fetched without the cache and is still in memory.
    #[must_use]
    pub fn is_at_hand(&self, blob: usize) -> bool {
        self.lock().is_present(blob) || self.uncached().get(blob).is_some()
    }

    /// Opens a whole blob, in the cache if there is space, and otherwise in memory.
    ///
    /// # Errors
    ///
    /// As [`Engine::need`].
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

    /// Waits until a blob is readable, for a caller without a batch.
    ///
    /// # Errors
    ///
    /// As [`Engine::need`].
    pub fn need_now(
        self: &Arc<Self>,
        blob: usize,
        cancel: &Cancel,
    ) -> BlobResult<Access<B::Open>, B::Error> {
        let found = self.need(&[blob], self.now(), cancel)?;
        Ok(found.into_iter().next().unwrap_or(Access::Uncached))
    }

    fn uncached(&self) -> MutexGuard<'_, UncachedBlobs<B::Open>> {
        self.uncached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a blob for which the cache has no space, within the memory limit.
    pub(crate) fn keep_uncached(&self, open: Arc<CachedBlob<B::Open>>, bytes: u64) {
        self.keep_in(&mut self.uncached(), open, bytes);
    }

    fn keep_in(
        &self,
        uncached: &mut UncachedBlobs<B::Open>,
        open: Arc<CachedBlob<B::Open>>,
        bytes: u64,
    ) {
        let (plan, now) = {
            let state = self.lock();
            (Arc::clone(&state.ahead.plan), state.now)
        };
        let in_use = |blob| {
            (!plan.is_empty()).then(|| plan.next_use(blob, now).is_some_and(|next| next <= now))
        };
        uncached.keep(open, bytes, self.options.memory / SHARE, in_use);
    }

    /// Fetches a blob for which the cache has no space, and keeps it within the memory limit.
    fn load_uncached(&self, blob: usize) -> BlobResult<Arc<CachedBlob<B::Open>>, B::Error> {
        // One fetch at a time: another thread may be fetching this blob.
        let mut uncached = self.uncached();
        if let Some(open) = uncached.get(blob) {
            return Ok(open);
        }
        let (open, bytes) = self.load(blob)?;
        let open = Arc::new(open);
        self.keep_in(&mut uncached, Arc::clone(&open), bytes);
        Ok(open)
    }

    /// Fetches a blob from its origin without using or filling the cache.
    ///
    /// # Errors
    ///
    /// The error of fetching or checking the blob.
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
            // The fetch has its own deadlines; a lost one drops the sender.
            let lost = |_| CacheError::WorkerLost {
                name: self.blobs.name(blob),
            };
            let result = receive.recv_timeout(self.options.timeout).map_err(lost)?;
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
