//! Samples of shards that are not cached: read individually, or from shards kept in memory for a while.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};

use shardmill_core::Limits;

use crate::error::ReaderError;
use crate::open::OpenShard;
use crate::shard_cache::check::unpack;
use crate::shard_cache::engine::Engine;
use crate::shard_cache::error::CacheError;
use crate::shard_cache::origin::{PartKind, Piece, no_shard};
use crate::shard_cache::shard::Extract;
use crate::shard_cache::state::Slot;
use crate::shard_cache::{Access, Cancel};
use shardmill_dataset::DatasetError;

/// These shards take at most 1/4 of the memory limit for shards, in addition to it.
const SHARE: u64 = 4;

/// Shards that were fetched for samples, least recently used first.
#[derive(Debug, Default)]
pub(crate) struct Uncached(VecDeque<(Arc<OpenShard>, u64)>);

impl Uncached {
    fn get(&mut self, shard: usize) -> Option<Arc<OpenShard>> {
        let at = self.0.iter().position(|(open, _)| open.number() == shard)?;
        let found = self.0.remove(at)?;
        let open = Arc::clone(&found.0);
        self.0.push_back(found);
        Some(open)
    }

    /// Keeps a shard in memory. It replaces first the shards that are no longer in use, then the least recently used
    /// ones. If all are in use (`Some(true)`) and there is no space, the new shard is not kept and may be fetched
    /// again.
    fn keep(
        &mut self,
        open: Arc<OpenShard>,
        bytes: u64,
        most: u64,
        in_use: impl Fn(usize) -> Option<bool>,
    ) {
        self.0.retain(|(kept, _)| {
            kept.number() != open.number() && in_use(kept.number()) != Some(false)
        });
        while !self.0.is_empty() && self.bytes().saturating_add(bytes) > most {
            let stays = |(kept, _): &(Arc<OpenShard>, u64)| in_use(kept.number()) == Some(true);
            if self.0.iter().all(stays) {
                return;
            }
            self.0.pop_front();
        }
        self.0.push_back((open, bytes));
    }

    fn bytes(&self) -> u64 {
        let bytes = self.0.iter().map(|(_, bytes)| *bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

impl Engine {
    /// Returns the encoded bytes of samples; see `ShardCache::samples`.
    pub(crate) fn samples(
        self: &Arc<Self>,
        wanted: &[(usize, u64)],
    ) -> Result<Vec<Extract>, ReaderError> {
        let mut found: Vec<Option<Extract>> = vec![None; wanted.len()];
        let mut pieces = Vec::new();
        let mut whole = Vec::new();
        for (place, &(shard, at)) in wanted.iter().enumerate() {
            let entry = self
                .catalog
                .entry(shard)
                .ok_or_else(|| no_shard(&self.catalog, shard))?;
            let is_kept = || self.uncached().get(shard).is_some();
            if self.is_read_alone(shard)
                && let Some(range) = entry.place_of(at)
                && !is_kept()
            {
                let part = if entry.table().is_some() {
                    PartKind::Meta
                } else {
                    PartKind::Data
                };
                // INVARIANT: below the number of samples, so the offset table contains it.
                if at >= entry.samples() {
                    return Err(self.broken(shard));
                }
                pieces.push((place, Piece { shard, part, range }));
                continue;
            }
            whole.push((shard, at, place));
        }
        // Sorted by shard, so that each shard is fetched at most once, even if only one can be kept.
        whole.sort_unstable();
        let mut last: Option<Arc<OpenShard>> = None;
        for (shard, at, place) in whole {
            let open = match last.take().filter(|open| open.number() == shard) {
                Some(open) => open,
                None => self.open_whole(shard)?,
            };
            let piece = open.sample(at).ok_or_else(|| self.broken(shard))?;
            let extract = Extract {
                begin: piece.begin,
                bytes: piece.bytes.to_vec(),
            };
            if let Err(error) = open.check(&self.catalog) {
                self.distrust(shard);
                return Err(error.into());
            }
            if let Some(slot) = found.get_mut(place) {
                *slot = Some(extract);
            }
            last = Some(open);
        }
        self.read_alone(pieces, &mut found)?;
        Ok(found.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Fetches the offsets of the samples, then the samples: two rounds of concurrent requests.
    fn read_alone(
        &self,
        pieces: Vec<(usize, Piece)>,
        found: &mut [Option<Extract>],
    ) -> Result<(), ReaderError> {
        if pieces.is_empty() {
            return Ok(());
        }
        let (places, offsets): (Vec<usize>, Vec<Piece>) = pieces.into_iter().unzip();
        let ends = self.fetch.read_ranges(&self.catalog, &offsets);
        let mut wanted = Vec::with_capacity(offsets.len());
        for (piece, bytes) in offsets.into_iter().zip(ends) {
            let bytes = bytes?;
            let entry = self.catalog.entry(piece.shard);
            let range = entry.and_then(|entry| entry.range_in(&bytes));
            let range = range.ok_or_else(|| self.broken(piece.shard))?;
            let limit = self.catalog.limits().sample_bytes;
            Limits::check("sample-bytes", range.end - range.start, limit).map_err(|source| {
                DatasetError::Limit {
                    path: PathBuf::from(self.catalog.place(piece.shard).file),
                    source,
                }
            })?;
            wanted.push(Piece {
                shard: piece.shard,
                part: PartKind::Data,
                range,
            });
        }
        let read = self.fetch.read_ranges(&self.catalog, &wanted);
        self.lock().stats.alone_samples += wanted.len() as u64;
        for ((place, piece), bytes) in places.into_iter().zip(wanted).zip(read) {
            let bytes = bytes?;
            if bytes.len() as u64 != piece.range.end - piece.range.start {
                return Err(self.broken(piece.shard));
            }
            if let Some(slot) = found.get_mut(place) {
                *slot = Some(Extract {
                    begin: piece.range.start,
                    bytes,
                });
            }
        }
        Ok(())
    }

    /// Returns whether samples of a shard are fetched individually: it is not cached, and need not be verified as a
    /// whole.
    fn is_read_alone(&self, shard: usize) -> bool {
        let here = matches!(
            self.lock().slots.get(shard),
            Some(Slot::Open(_) | Slot::Ready)
        );
        !here && self.is_plain(shard)
    }

    /// Returns whether a shard is stored uncompressed at a remote origin and need not be verified as a whole.
    pub(crate) fn is_plain(&self, shard: usize) -> bool {
        let Some((stream, number)) = self.catalog.stream_of(shard) else {
            return false;
        };
        let entry = stream.shards.get(number);
        stream.origin.is_some()
            && self.catalog.validate(shard).is_none()
            && entry.is_some_and(|entry| !entry.is_packed() && entry.place_of(0).is_some())
    }

    /// Opens a whole shard, from the cache or without keeping it there.
    fn open_whole(self: &Arc<Self>, shard: usize) -> Result<Arc<OpenShard>, ReaderError> {
        if let Some(open) = self.get(shard) {
            return Ok(open);
        }
        if let Some(open) = self.uncached().get(shard) {
            return Ok(open);
        }
        let now = self.lock().now;
        let found = self.need(&[shard], now, &Cancel::new())?;
        match found.into_iter().next() {
            Some(Access::Open(open)) => Ok(open),
            Some(Access::Alone) | None => self.load_uncached(shard),
        }
    }

    /// Waits until a shard is readable as a whole.
    pub(crate) fn bring(self: &Arc<Self>, shard: usize) -> Result<(), ReaderError> {
        let now = self.lock().now;
        // If there is no space, its samples are still read individually.
        self.need(&[shard], now, &Cancel::new()).map(drop)
    }

    fn uncached(&self) -> MutexGuard<'_, Uncached> {
        self.uncached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a shard for which the cache has no space, within the memory limit.
    pub(crate) fn keep_uncached(&self, open: Arc<OpenShard>, bytes: u64) {
        self.keep_in(&mut self.uncached(), open, bytes);
    }

    fn keep_in(&self, uncached: &mut Uncached, open: Arc<OpenShard>, bytes: u64) {
        let (access_plan, now) = {
            let state = self.lock();
            (Arc::clone(&state.access_plan), state.now)
        };
        let in_use = |shard| {
            let next = || access_plan.next_use(shard, now);
            (!access_plan.is_empty()).then(|| next().is_some_and(|next| next <= now))
        };
        uncached.keep(open, bytes, self.options.memory / SHARE, in_use);
    }

    /// Fetches a shard for which the cache has no space, and keeps it within the memory limit.
    fn load_uncached(&self, shard: usize) -> Result<Arc<OpenShard>, ReaderError> {
        // One fetch at a time: another thread may be fetching this shard.
        let mut uncached = self.uncached();
        if let Some(open) = uncached.get(shard) {
            return Ok(open);
        }
        let (open, bytes) = self.load(shard)?;
        self.keep_in(&mut uncached, Arc::clone(&open), bytes);
        Ok(open)
    }

    /// Fetches a shard from its origin, bypassing the cache.
    pub(crate) fn load_once(&self, shard: usize) -> Result<Arc<OpenShard>, ReaderError> {
        let (open, _) = self.load(shard)?;
        Ok(open)
    }

    fn load(&self, shard: usize) -> Result<(Arc<OpenShard>, u64), ReaderError> {
        let parts = self
            .catalog
            .entry(shard)
            .map_or(0, |entry| entry.parts().count());
        let mut files = Vec::with_capacity(parts);
        for kind in [PartKind::Data, PartKind::Meta].into_iter().take(parts) {
            let (send, receive) = std::sync::mpsc::channel();
            let done = Box::new(move |result| {
                // The receiver may have timed out.
                let _received = send.send(result);
            });
            let pending = self.fetch.fetch(&self.catalog, shard, kind, done);
            // The fetch has its own deadlines; a lost one drops the sender.
            let lost = |_| {
                ReaderError::from(CacheError::WorkerLost {
                    place: self.catalog.place(shard),
                })
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
        let raw = unpack(&self.catalog, shard, files)?;
        let bytes = (raw.data.len() + raw.meta.as_ref().map_or(0, Vec::len)) as u64;
        let open = OpenShard::in_memory(&self.catalog, shard, raw.data, raw.meta)?;
        Ok((Arc::new(open), bytes))
    }

    /// Returns the error for a sample whose offsets are invalid.
    fn broken(&self, shard: usize) -> ReaderError {
        self.catalog.changed(shard).into()
    }
}
