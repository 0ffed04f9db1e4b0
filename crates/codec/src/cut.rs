//! Decides where one shard ends and the next begins.

/// Decides, sample by sample, whether the current shard is full: before a sample that would make it larger than a limit, or
/// give it more samples than another one. A sample above the limit gets its own shard.
///
/// The decision depends only on the sizes of the samples, so shards can be planned before any sample is encoded.
#[derive(Clone, Debug)]
pub struct Cutter {
    size_limit: Option<u64>,
    samples_limit: Option<u64>,
    shard_overhead: u64,
    sample_overhead: u64,
    file_bytes: fn(u64) -> u64,
    bytes: u64,
    samples: u64,
    empty_first: bool,
}

impl Cutter {
    /// Creates a cutter at the start of the first shard, with the most bytes and the most samples of a shard.
    #[must_use]
    pub fn new(size_limit: Option<u64>, samples_limit: Option<u64>) -> Self {
        Self {
            size_limit,
            samples_limit,
            shard_overhead: 0,
            sample_overhead: 0,
            file_bytes: |bytes| bytes,
            bytes: 0,
            samples: 0,
            empty_first: false,
        }
    }

    /// Counts these bytes for every shard, and these for every sample.
    #[must_use]
    pub const fn with_overhead(mut self, shard: u64, sample: u64) -> Self {
        self.shard_overhead = shard;
        self.sample_overhead = sample;
        self.bytes = shard;
        self
    }

    /// Compares the length of the file with the limit. `file_bytes` returns it for the bytes of the samples.
    #[must_use]
    pub const fn with_file_bytes(mut self, file_bytes: fn(u64) -> u64) -> Self {
        self.file_bytes = file_bytes;
        self
    }

    /// Flushes an empty shard if the very first sample alone exceeds the size limit.
    #[must_use]
    pub const fn with_empty_first(mut self) -> Self {
        self.empty_first = true;
        self
    }

    /// Counts one encoded sample. Returns `true` if the current shard has to be flushed before this sample, which then
    /// starts the next shard. Only with [`with_empty_first`](Self::with_empty_first) it can be empty, before the very first
    /// sample.
    #[must_use]
    pub fn push(&mut self, sample_bytes: u64) -> bool {
        let cost = sample_bytes.saturating_add(self.sample_overhead);
        let after = self.bytes.saturating_add(cost);
        let too_large = self
            .size_limit
            .is_some_and(|limit| (self.file_bytes)(after) > limit);
        let too_many = self
            .samples_limit
            .is_some_and(|limit| self.samples >= limit);
        let flush = (too_large || too_many) && (self.samples > 0 || self.empty_first);
        if flush {
            self.flush();
        }
        self.bytes = self.bytes.saturating_add(cost);
        self.samples = self.samples.saturating_add(1);
        self.empty_first = false;
        flush
    }

    /// Starts the next shard, whatever the size of the current one.
    pub const fn flush(&mut self) {
        self.bytes = self.shard_overhead;
        self.samples = 0;
    }

    /// Returns the bytes of the current shard that count towards the limit.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of samples in the current shard.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }
}
