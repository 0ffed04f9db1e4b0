//! What a provenance knows about the index that it belongs to.

use shardmill_mds::{HashAlgo, Hasher};

/// The samples, the shards and their order in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexShape {
    pub(crate) samples: u64,
    pub(crate) shards: u64,
    /// A hash of the names and samples of the shards, in their order, as a provenance records it: 32 hexadecimal digits.
    pub order: String,
}

impl IndexShape {
    /// Returns the shape of an index with these shards: the name of the raw file and the number of samples of each.
    pub fn of<'a>(shards: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let mut hasher = Hasher::new(HashAlgo::Xxh3_128);
        let (mut samples, mut count) = (0_u64, 0);
        for (name, own) in shards {
            hasher.update(name.as_bytes());
            // No name contains a zero.
            hasher.update(&[0]);
            hasher.update(&own.to_le_bytes());
            samples = samples.saturating_add(own);
            count += 1;
        }
        Self {
            samples,
            shards: count,
            order: hasher.finish_hex(),
        }
    }
}
