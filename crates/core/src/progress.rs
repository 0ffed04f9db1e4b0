//! Counts the progress of a run, and carries its cancellation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The cancellation of one operation: a callback that the operation calls several times a second, with the bytes or
/// objects transferred so far. Returning `false` cancels the operation.
pub type CancelToken<'a> = dyn FnMut(u64) -> bool + 'a;

/// Progress counters that workers increment and observers poll. Hot loops make no callbacks.
///
/// A total of zero means "not known yet".
#[derive(Debug, Default)]
pub struct Progress {
    input_bytes: AtomicU64,
    input_bytes_total: AtomicU64,
    samples: AtomicU64,
    samples_total: AtomicU64,
    shards: AtomicU64,
    shards_total: AtomicU64,
    output_bytes: AtomicU64,
    cancelled: AtomicBool,
}

/// The values of the counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Input bytes processed.
    pub input_bytes: u64,
    /// Total input bytes, 0 if unknown.
    pub input_bytes_total: u64,
    /// Samples processed.
    pub samples: u64,
    /// Total samples, 0 if unknown.
    pub samples_total: u64,
    /// Shards completed.
    pub shards: u64,
    /// Total shards, 0 if unknown.
    pub shards_total: u64,
    /// Output bytes of the completed shards.
    pub output_bytes: u64,
}

impl Progress {
    /// Returns counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the totals; zero for those that are not known.
    pub fn set_totals(&self, input_bytes: u64, samples: u64, shards: u64) {
        self.input_bytes_total.store(input_bytes, Ordering::Relaxed);
        self.samples_total.store(samples, Ordering::Relaxed);
        self.shards_total.store(shards, Ordering::Relaxed);
    }

    /// Adds input bytes that were read.
    pub fn add_input_bytes(&self, bytes: u64) {
        self.input_bytes.fetch_add(bytes, Ordering::Release);
    }

    /// Adds samples that were processed.
    pub fn add_samples(&self, samples: u64) {
        self.samples.fetch_add(samples, Ordering::Release);
    }

    /// Adds one completed shard and its stored bytes.
    pub fn add_shard(&self, output_bytes: u64) {
        self.output_bytes.fetch_add(output_bytes, Ordering::Release);
        self.shards.fetch_add(1, Ordering::Release);
    }

    /// Requests that the workers stop at the next safe point.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Returns whether the workers were requested to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Returns the current values. The counters are read before the totals, so that no counter exceeds a total that is
    /// known in advance.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (input_bytes, samples) = (
            self.input_bytes.load(Ordering::Acquire),
            self.samples.load(Ordering::Acquire),
        );
        let (shards, output_bytes) = (
            self.shards.load(Ordering::Acquire),
            self.output_bytes.load(Ordering::Acquire),
        );
        Snapshot {
            input_bytes,
            input_bytes_total: self.input_bytes_total.load(Ordering::Relaxed),
            samples,
            samples_total: self.samples_total.load(Ordering::Relaxed),
            shards,
            shards_total: self.shards_total.load(Ordering::Relaxed),
            output_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_add_up() {
        let progress = Progress::new();
        progress.set_totals(100, 10, 2);
        progress.add_input_bytes(40);
        progress.add_samples(4);
        progress.add_shard(30);
        let snapshot = progress.snapshot();
        assert_eq!(
            (snapshot.input_bytes, snapshot.samples, snapshot.shards),
            (40, 4, 1)
        );
        assert_eq!((snapshot.output_bytes, snapshot.samples_total), (30, 10));
        assert!(!progress.is_cancelled());
        progress.cancel();
        assert!(progress.is_cancelled());
    }
}
