use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters that workers bump and others poll. Hot loops call nobody.
///
/// Totals of zero mean "not known yet".
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

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Bytes of input done.
    pub input_bytes: u64,
    /// Bytes of input in all, 0 when unknown.
    pub input_bytes_total: u64,
    /// Samples done.
    pub samples: u64,
    /// Samples in all, 0 when unknown.
    pub samples_total: u64,
    /// Shards done.
    pub shards: u64,
    /// Shards in all, 0 when unknown.
    pub shards_total: u64,
    /// Bytes of output done.
    pub output_bytes: u64,
}

impl Progress {
    /// Counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says how much there is to do; zero for what is not known.
    pub fn set_totals(&self, input_bytes: u64, samples: u64, shards: u64) {
        self.input_bytes_total.store(input_bytes, Ordering::Relaxed);
        self.samples_total.store(samples, Ordering::Relaxed);
        self.shards_total.store(shards, Ordering::Relaxed);
    }

    /// Counts input as read.
    pub fn add_input_bytes(&self, bytes: u64) {
        self.input_bytes.fetch_add(bytes, Ordering::Release);
    }

    /// Counts samples as done.
    pub fn add_samples(&self, samples: u64) {
        self.samples.fetch_add(samples, Ordering::Release);
    }

    /// Counts one shard and its stored bytes as done.
    pub fn add_shard(&self, output_bytes: u64) {
        self.output_bytes.fetch_add(output_bytes, Ordering::Release);
        self.shards.fetch_add(1, Ordering::Release);
    }

    /// Asks the workers to stop at the next safe point.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Whether somebody asked the workers to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// The counters now. What is done is read before the totals, so that done ≤ total wherever the total
    /// is known in advance.
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
    fn counts_add_up() {
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
