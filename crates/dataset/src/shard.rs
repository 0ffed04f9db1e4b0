//! An open MDS shard and its samples.

use std::sync::Arc;

use shardmill_core::Limits;
use shardmill_mds::{Field, MdsError, OwnedShard, SampleValue, ShardConfig, ShardEntry, ShardView};

use crate::error::DatasetError;
use crate::problem::ValueLocation;

/// A shard in memory, decompressed and checked.
#[derive(Debug)]
pub struct Shard {
    owned: OwnedShard,
    number: usize,
    first_sample: u64,
    /// The file that the shard was read from, for messages.
    file: String,
}

impl Shard {
    pub(crate) fn open(
        entry: &ShardEntry,
        number: usize,
        first_sample: u64,
        file: &str,
        (data, meta): (Vec<u8>, Option<Vec<u8>>),
        limits: &Limits,
    ) -> Result<Self, DatasetError> {
        let owned = OwnedShard::open(entry, data, meta, limits).map_err(|source| {
            let location = ValueLocation::file(file);
            DatasetError::shard(location, first_sample, source)
        })?;
        Ok(Self {
            owned,
            number,
            first_sample,
            file: file.to_owned(),
        })
    }

    /// Returns the number of the shard in the index, from 0.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.number
    }

    /// Returns the stored number of the first sample in the dataset, which counts deleted samples.
    #[must_use]
    pub const fn first_sample(&self) -> u64 {
        self.first_sample
    }

    /// Returns the number of samples in the shard.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.view().len()
    }

    /// Returns whether the shard has no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the view of the shard in `shardmill-mds`.
    #[must_use]
    pub fn view(&self) -> ShardView<'_> {
        self.owned.view()
    }

    /// Returns the encoded bytes of a sample, by its number in the shard.
    ///
    /// # Errors
    ///
    /// [`DatasetError::Reading`].
    pub fn sample(&self, at: u64) -> Result<&[u8], DatasetError> {
        self.view()
            .sample(at)
            .map_err(|source| self.error(at, source))
    }

    /// Returns the columns of an MDS sample, by its number in the shard.
    ///
    /// # Errors
    ///
    /// [`DatasetError::Reading`].
    pub fn fields(&self, at: u64) -> Result<Vec<Field<'_>>, DatasetError> {
        self.view()
            .fields(at)
            .map_err(|source| self.error(at, source))
    }

    /// Returns the columns and values of a sample of any format, by its number in the shard.
    ///
    /// # Errors
    ///
    /// [`DatasetError::Reading`].
    pub fn values(&self, at: u64) -> Result<Vec<(&str, SampleValue<'_>)>, DatasetError> {
        self.view()
            .values(at)
            .map_err(|source| self.error(at, source))
    }

    fn error(&self, at: u64, source: MdsError) -> DatasetError {
        let location = ValueLocation {
            sample: Some(self.first_sample.saturating_add(at)),
            ..ValueLocation::file(&self.file)
        };
        DatasetError::shard(location, self.first_sample, source)
    }
}

/// One sample, which keeps the shard that contains its bytes in memory.
#[derive(Clone, Debug)]
pub struct Sample {
    shard: Arc<Shard>,
    at: u64,
    number: u64,
}

impl Sample {
    /// Makes the sample at position `at` of a shard, with its number in the dataset.
    pub(crate) const fn new(shard: Arc<Shard>, at: u64, number: u64) -> Self {
        Self { shard, at, number }
    }

    /// Returns the number of the sample in the dataset.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of the sample's shard in the index.
    #[must_use]
    pub fn shard_number(&self) -> usize {
        self.shard.number
    }

    /// Returns the config of the sample's shard: its format and columns.
    #[must_use]
    pub fn config(&self) -> &ShardConfig {
        self.shard.view().config()
    }

    /// Returns the encoded bytes of the sample.
    ///
    /// # Errors
    ///
    /// [`DatasetError::Reading`].
    pub fn bytes(&self) -> Result<&[u8], DatasetError> {
        self.shard.sample(self.at)
    }

    /// Returns the columns of an MDS sample.
    ///
    /// # Errors
    ///
    /// [`DatasetError::Reading`].
    pub fn fields(&self) -> Result<Vec<Field<'_>>, DatasetError> {
        self.shard.fields(self.at)
    }

    /// Returns the columns and values of a sample of any format.
    ///
    /// # Errors
    ///
    /// [`DatasetError::Reading`].
    pub fn values(&self) -> Result<Vec<(&str, SampleValue<'_>)>, DatasetError> {
        self.shard.values(self.at)
    }
}
