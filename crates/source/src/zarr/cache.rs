//! An LRU cache of decoded chunks and shard indexes. Threads that need the same chunk share one load.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use shardmill_core::{Error, lock};

use crate::error;

/// What is kept: a chunk of an array, or the index of a shard, by its number in row-major order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub array: usize,
    pub is_index: bool,
    pub number: u64,
}

/// The bytes of a decoded chunk or index.
pub(super) type Decoded = Arc<Vec<u8>>;

/// Decoded chunks of all units. A chunk that several threads need at the same time is decoded once.
pub(super) struct ChunkCache {
    max_bytes: u64,
    state: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    slots: HashMap<Key, Slot>,
    /// The keys by the time of their last use.
    by_use: BTreeMap<u64, Key>,
    clock: u64,
    bytes: u64,
}

#[derive(Default)]
struct Slot {
    chunk: Arc<Mutex<Option<Decoded>>>,
    used: u64,
    bytes: u64,
}

impl ChunkCache {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            state: Mutex::default(),
        }
    }

    /// Returns chunks in the order of their keys, which ascend. Calls `load` with those that are not kept, and keeps what
    /// it returns in the same order.
    pub(super) fn get(
        &self,
        keys: &[Key],
        load: impl FnOnce(&[Key]) -> Result<Vec<Decoded>, Error>,
    ) -> Result<Vec<Decoded>, Error> {
        let chunks: Vec<_> = {
            let mut state = lock(&self.state);
            keys.iter().map(|key| state.slot(*key)).collect()
        };
        // All threads lock chunks in the order of their keys, so that none waits for one that waits for it.
        let mut guards: Vec<MutexGuard<'_, Option<Decoded>>> =
            chunks.iter().map(|chunk| lock(chunk)).collect();
        let missing: Vec<Key> = keys
            .iter()
            .zip(&guards)
            .filter(|(_, chunk)| chunk.is_none())
            .map(|(key, _)| *key)
            .collect();
        if !missing.is_empty() {
            let empty = guards.iter_mut().filter(|chunk| chunk.is_none());
            let mut loaded = Vec::with_capacity(missing.len());
            for (into, bytes) in empty.zip(load(&missing)?) {
                loaded.push(bytes.len() as u64);
                **into = Some(bytes);
            }
            lock(&self.state).note(&missing, &loaded, self.max_bytes);
        }
        let found: Option<Vec<Decoded>> = guards
            .iter()
            .map(|chunk| chunk.as_ref().map(Arc::clone))
            .collect();
        found.ok_or_else(|| error::bug("a chunk was not loaded"))
    }
}

impl CacheState {
    /// Returns the slot of a chunk, which is now the most recently used.
    fn slot(&mut self, key: Key) -> Arc<Mutex<Option<Decoded>>> {
        self.clock += 1;
        let slot = self.slots.entry(key).or_default();
        self.by_use.remove(&slot.used);
        slot.used = self.clock;
        self.by_use.insert(self.clock, key);
        Arc::clone(&slot.chunk)
    }

    /// Counts the bytes of loaded chunks, and drops the least recently used ones above the limit.
    fn note(&mut self, keys: &[Key], bytes: &[u64], max: u64) {
        for (key, bytes) in keys.iter().zip(bytes) {
            if let Some(slot) = self.slots.get_mut(key) {
                self.bytes += bytes - slot.bytes.min(*bytes);
                slot.bytes = *bytes;
            }
        }
        while self.bytes > max
            && let Some((_, key)) = self.by_use.pop_first()
        {
            let dropped = self.slots.remove(&key);
            self.bytes -= dropped.map_or(0, |slot| slot.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key {
            array: 0,
            is_index: false,
            number,
        }
    }

    #[test]
    fn least_recently_used_chunk_is_evicted() {
        let cache = ChunkCache::new(25);
        let mut loads = Vec::new();
        for numbers in [&[1_u64, 2][..], &[1], &[3], &[1, 3], &[2]] {
            let keys: Vec<Key> = numbers.iter().map(|number| key(*number)).collect();
            let found = cache.get(&keys, |missing| {
                let missing = missing.iter().map(|key| key.number);
                loads.extend(missing.clone());
                Ok(missing
                    .map(|number| Arc::new(vec![u8::try_from(number).unwrap(); 10]))
                    .collect())
            });
            let first: Vec<u64> = found
                .unwrap()
                .iter()
                .map(|chunk| u64::from(chunk[0]))
                .collect();
            assert_eq!(first, numbers);
        }
        // Chunk 2 was used before chunk 1 when chunk 3 came.
        assert_eq!(loads, [1, 2, 3, 2]);
        assert!(lock(&cache.state).bytes <= 25);
    }

    #[test]
    fn failed_chunk_load_is_retried() {
        let cache = ChunkCache::new(100);
        let failed = cache.get(&[key(1)], |_| Err(error::bug("it failed")));
        assert!(failed.is_err());
        let found = cache
            .get(&[key(1)], |_| Ok(vec![Arc::new(vec![7])]))
            .unwrap();
        assert_eq!(*found[0], [7]);
    }

    #[test]
    fn concurrent_threads_load_each_chunk_once() {
        let cache = ChunkCache::new(1000);
        let loads = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for first in 0..50 {
                        let keys: Vec<Key> = (first..first + 4).map(key).collect();
                        let load = |missing: &[Key]| {
                            *loads.lock().unwrap() += missing.len();
                            Ok(vec![Arc::default(); missing.len()])
                        };
                        assert_eq!(cache.get(&keys, load).unwrap().len(), 4);
                    }
                });
            }
        });
        assert_eq!(*loads.lock().unwrap(), 53);
    }
}
