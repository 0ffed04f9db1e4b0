//! Files that are accessed individually, in the caller's order: preloaded, held and released.
//!
//! The only known future is what the caller preloads. A preloaded file may be evicted for a file that a caller waits
//! for, but not for another preloaded file. Among the others, the least recently used is evicted first.

use std::sync::Arc;

use super::engine::Engine;
use super::folder::Look;
use super::state::{DeferredDrop, Slot, State};
use crate::error::ReaderError;
use crate::shard_cache::capacity::is_kept;
use crate::shard_cache::origin::no_shard;

/// The most jobs queued by preloading; the bytes in flight are limited too.
const MOST_JOBS: usize = 256;

impl Engine {
    /// See [`super::ShardCache::has`].
    pub(crate) fn has(&self, shard: usize) -> Result<bool, ReaderError> {
        if matches!(
            self.lock().slots.get(shard),
            Some(Slot::Open(_) | Slot::Ready)
        ) {
            return Ok(true);
        }
        let missing = || no_shard(&self.catalog, shard);
        let (stream, number) = self.catalog.stream_of(shard).ok_or_else(missing)?;
        let entry = stream.shards.get(number).ok_or_else(missing)?;
        if !is_kept(stream, entry) {
            return Ok(stream.local.exists(&entry.data().basename)?);
        }
        let mut streams = self.catalog.streams().iter();
        let place = streams.position(|other| std::ptr::eq(other, stream));
        let Some(folder) = self.capacity.folder(place.ok_or_else(missing)?)? else {
            return Ok(false);
        };
        Ok(match folder.look(number, entry)? {
            // For files without an index, existing files count only if the cache wrote them.
            Look::Here { files, .. } => files.0.own || entry.raw_file().is_none(),
            Look::Away | Look::Busy { .. } => false,
        })
    }

    /// See [`super::ShardCache::preload`].
    pub(crate) fn preload(self: &Arc<Self>, shards: &[usize]) -> u64 {
        let mut state = self.lock();
        let mut count = 0;
        for shard in shards {
            let kept = self
                .catalog
                .stream_of(*shard)
                .and_then(|(stream, number)| Some(is_kept(stream, stream.shards.get(number)?)));
            let absent = matches!(state.slots.get(*shard), Some(Slot::Absent));
            if absent && kept == Some(true) {
                state.asked_ahead.push_back(*shard);
                count += 1;
            }
        }
        let more = self.pump(&mut state);
        self.unlock(state, DeferredDrop::default());
        if more {
            self.start_threads();
        }
        count
    }

    /// See [`super::ShardCache::under_way`].
    pub(crate) fn under_way(&self) -> u64 {
        let state = self.lock();
        let busy = state
            .promised
            .iter()
            .filter(|shard| matches!(state.slots.get(**shard), Some(Slot::Busy(_))));
        (busy.count() + state.asked_ahead.len()) as u64
    }

    /// See [`super::ShardCache::close`].
    pub(crate) fn close(&self, shard: usize) {
        let mut deferred_drop = DeferredDrop::default();
        let mut state = self.lock();
        let unused = match state.slots.get(shard) {
            // A shard that a later batch needs is closed after that batch.
            Some(Slot::Open(opened)) => {
                Arc::strong_count(&opened.shard) == 1 && opened.used_at <= state.now
            }
            _ => false,
        };
        if unused {
            state.let_go(shard, true, &mut deferred_drop);
        }
        self.unlock(state, deferred_drop);
    }

    /// Starts fetching preloaded shards within the budget of bytes in flight. Returns whether any were started.
    pub(crate) fn pump_asked(&self, state: &mut State) -> bool {
        let mut more = false;
        while let Some(shard) = state.asked_ahead.front().copied() {
            let bytes = self.flight(state, shard);
            let full = state.in_flight > 0
                && state.in_flight.saturating_add(bytes) > self.options.in_flight;
            if full || state.jobs.len() >= MOST_JOBS {
                break;
            }
            state.asked_ahead.pop_front();
            if matches!(state.slots.get(shard), Some(Slot::Absent)) {
                state.promised.insert(shard);
                // Needed later than earlier preloads, so it cannot evict them.
                let tick = state.now.saturating_add(2);
                state.begin(shard, false, tick, bytes);
                more = true;
            }
        }
        more
    }
}
