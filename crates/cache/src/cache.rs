//! The cache of one process and of its forked children.

use std::fmt;
use std::sync::{Arc, OnceLock};

use shardmill_core::PerProcess;
use shardmill_storage::StorageError;

use crate::blobs::{BlobResult, Blobs, CachedBlob};
use crate::capacity::Capacity;
use crate::engine::Engine;
use crate::options::{CacheOptions, CacheStats};

/// A cache of blobs. A process that uses it has an [`Engine`]; a forked child gets its own.
pub struct Cache<B: Blobs> {
    blobs: Arc<B>,
    options: CacheOptions,
    engines: PerProcess<OnceLock<Arc<Engine<B>>>, 64>,
}

impl<B: Blobs> fmt::Debug for Cache<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<B: Blobs> Cache<B> {
    /// Checks the options. Creates no threads, locks, sockets or files: each process creates them on first use.
    ///
    /// # Errors
    ///
    /// [`CacheError::TooSmall`](crate::CacheError::TooSmall) for a limit below the largest compressed blob;
    /// [`CacheError::OneFolder`](crate::CacheError::OneFolder) for two sets in one folder.
    pub fn new(blobs: Arc<B>, options: &CacheOptions) -> BlobResult<Self, B::Error> {
        Capacity::new(Arc::clone(&blobs), options)?;
        Ok(Self {
            blobs,
            options: options.clone(),
            engines: PerProcess::new(),
        })
    }

    /// Returns the engine of this process, and creates it on first use. Errors are those of [`Cache::new`].
    pub fn engine(&self) -> BlobResult<&Arc<Engine<B>>, B::Error> {
        let own = self.engines.get(OnceLock::new);
        let own = own.ok_or_else(StorageError::too_many_processes)?;
        match own.get() {
            Some(engine) => Ok(engine),
            None => {
                let made = Arc::new(Engine::new(Arc::clone(&self.blobs), &self.options)?);
                // If several threads get here at once, all engines but one are dropped.
                Ok(own.get_or_init(|| made))
            }
        }
    }

    /// Returns the engine of this process, if it was used.
    #[must_use]
    pub fn started(&self) -> Option<&Arc<Engine<B>>> {
        self.engines.peek()?.get()
    }

    /// Returns an open blob, or `None` without waiting if it is not open.
    #[must_use]
    pub fn get(&self, blob: usize) -> Option<Arc<CachedBlob<B::Open>>> {
        self.started()?.get(blob)
    }

    /// Returns a number that increases when a blob is closed or evicted. Holders of open blobs compare it and drop
    /// theirs.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.started().map_or(0, |engine| engine.generation())
    }

    /// Returns the counters of this process.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.started()
            .map_or_else(CacheStats::default, |engine| engine.stats())
    }

    /// Joins the threads of this process and cancels its fetches. Later requests return an error.
    pub fn stop(&self) {
        if let Some(engine) = self.started() {
            engine.stop();
        }
    }
}

impl<B: Blobs> Drop for Cache<B> {
    fn drop(&mut self) {
        self.stop();
    }
}
