//! Lists the samples of a complete shard.

use crate::group::SampleEntry;

/// The contents of a complete shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardMap {
    /// Its samples, in order.
    pub samples: Vec<SampleEntry>,
    /// The end of the archive: the offset of its first zero block.
    pub end: u64,
    /// The length of the raw file.
    pub bytes: u64,
    /// Files that belong to no sample: names without a dot, and metadata.
    pub skipped: u64,
}

impl ShardMap {
    /// Returns the begin of each sample and the end of the last one: one number more than there are samples.
    #[must_use]
    pub fn offsets(&self) -> Vec<u64> {
        let begins = self.samples.iter().map(|sample| sample.begin);
        begins.chain([self.end]).collect()
    }

    /// Returns the bytes of all fields, without headers.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.samples
            .iter()
            .fold(0, |sum, sample| sum.saturating_add(sample.content_bytes()))
    }
}
