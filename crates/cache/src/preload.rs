//! Blobs that are accessed individually, in the caller's order: preloaded, held and released.
//!
//! The only known future is what the caller preloads. A preloaded blob may be evicted for a blob that a caller waits
//! for, but not for another preloaded blob. Among the others, the least recently used is evicted first.

use std::sync::Arc;

use crate::blobs::{BlobResult, Blobs};
use crate::engine::Engine;
use crate::folder::Lookup;
use crate::state::{Slot, State};

/// The most jobs queued by preloading; the bytes in flight are limited too.
const MAX_JOBS: usize = 256;

impl<B: Blobs> Engine<B> {
    /// Returns whether a blob is open or in its folder.
    ///
    /// # Errors
    ///
    /// `Storage`; an error if there is no such blob.
    pub fn has(&self, number: usize) -> BlobResult<bool, B::Error> {
        if self.lock().is_present(number) {
            return Ok(true);
        }
        let entry = self.entry(number)?;
        if !entry.blob.is_kept {
            return Ok(entry.set.local.exists(&entry.blob.data.raw.basename)?);
        }
        let Some(folder) = self.capacity.folder(entry.set_number)? else {
            return Ok(false);
        };
        Ok(match folder.inspect(entry.number, entry.blob)? {
            Lookup::Present { files, .. } => files.0.own || !entry.blob.is_unhashed,
            Lookup::Missing | Lookup::Busy { .. } => false,
        })
    }

    /// Queues blobs to be fetched in this order, as far as there is space. Returns how many were missing.
    pub fn preload(self: &Arc<Self>, blobs: &[usize]) -> u64 {
        let mut state = self.lock();
        let mut count = 0;
        for &blob in blobs {
            let is_kept = self.blobs.blob(blob).is_some_and(|blob| blob.is_kept);
            if is_kept && matches!(state.slots.get(blob), Some(Slot::Absent)) {
                state.ahead.requested.push_back(blob);
                count += 1;
            }
        }
        let more = self.queue_prefetches(&mut state);
        self.unlock(state);
        if more {
            self.start_threads();
        }
        count
    }

    /// Returns how many of the blobs queued by [`Engine::preload`] are not finished yet.
    #[must_use]
    pub fn preloading(&self) -> u64 {
        let state = self.lock();
        let is_busy = |blob: &&usize| matches!(state.slots.get(**blob), Some(Slot::Busy(_)));
        let busy = state.ahead.preloading.iter().filter(is_busy);
        (busy.count() + state.ahead.requested.len()) as u64
    }

    /// Closes a blob without holders, so that it can be evicted.
    pub fn close(&self, blob: usize) {
        let mut state = self.lock();
        let unused = match state.slots.get(blob) {
            // A blob that a later batch needs is closed after that batch.
            Some(Slot::Open(opened)) => {
                Arc::strong_count(&opened.blob) == 1 && opened.used_at <= state.now
            }
            _ => false,
        };
        if unused {
            state.close(blob, true);
        }
        self.unlock(state);
    }

    /// Starts fetching preloaded blobs within the budget of bytes in flight. Returns whether any were started.
    pub(crate) fn pump_requested(&self, state: &mut State<B>) -> bool {
        let mut more = false;
        while let Some(blob) = state.ahead.requested.front().copied() {
            let bytes = self.flight(state, blob);
            let in_flight = state.budget.in_flight;
            let full = in_flight > 0 && in_flight.saturating_add(bytes) > self.options.in_flight;
            if full || state.queue.len() >= MAX_JOBS {
                break;
            }
            state.ahead.requested.pop_front();
            if matches!(state.slots.get(blob), Some(Slot::Absent)) {
                state.ahead.preloading.insert(blob);
                // Needed later than earlier preloads, so it cannot evict them.
                let tick = state.now.saturating_add(2);
                state.begin(blob, false, tick, bytes);
                more = true;
            }
        }
        more
    }
}
