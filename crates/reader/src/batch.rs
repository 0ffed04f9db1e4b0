//! A batch: the samples of one step of a rank, column by column.

use std::sync::Arc;

use shardmill_memory::Buffer;
use shardmill_order::Entry;

use crate::error::ReaderError;
use crate::open::OpenShard;
use crate::schema::Schema;
use crate::shard_cache::PostExitHold;

/// The samples of one step.
#[derive(Debug)]
pub struct Batch {
    /// The step, counted from where the epoch started or was resumed.
    pub step: u64,
    /// Which samples, in order. Those of padding are marked as repeated.
    pub entries: Vec<Entry>,
    /// Their values.
    pub data: BatchData,
    /// What keeps raw files whose paths are among the values from being removed.
    pub held: Held,
}

/// Raw files of a batch whose paths were given out: as long as it is there, nobody removes them from the cache.
#[derive(Clone, Debug, Default)]
pub struct Held(pub(crate) Vec<Arc<OpenShard>>);

impl Held {
    /// Before a loader process ends whose batches somebody else still looks at: has the files stay for a minute, or until
    /// the next epoch of that `owner` begins (see [`CacheOptions::owner`](crate::CacheOptions)).
    ///
    /// # Errors
    ///
    /// `Storage`.
    pub fn leave_in_use(&self, owner: u64, epoch: u64) -> Result<(), ReaderError> {
        for open in &self.0 {
            open.leave_in_use(PostExitHold::new(owner, epoch))?;
        }
        Ok(())
    }

    /// Whether there is nothing to hold: the files lie where nobody removes them, or no paths were given out.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The values of the samples of a batch.
#[derive(Debug)]
pub enum BatchData {
    /// All samples have the same columns, of MDS: one buffer for each column.
    Columns {
        /// The columns.
        schema: Arc<Schema>,
        /// Their values, in the order of the schema.
        columns: Vec<ColumnData>,
    },
    /// Samples of text, or of several schemas: each as its encoded bytes.
    Samples {
        /// Where each sample begins in `bytes`, and at the end where the last one ends. Shape: `[samples + 1]`.
        offsets: Vec<u64>,
        /// The encoded samples, one behind the other.
        bytes: Buffer,
        /// The columns of each sample. Shape: `[samples]`.
        schemas: Vec<Arc<Schema>>,
    },
}

/// The values of a column of a batch, as encoded: numbers are little-endian and not copied again.
#[derive(Debug)]
pub enum ColumnData {
    /// Every value has `size` bytes. Shape of `bytes`: `[samples, size]`.
    Fixed {
        /// Bytes of a value.
        size: usize,
        /// The values.
        bytes: Buffer,
    },
    /// Each value has its own length.
    Variable {
        /// Where each value begins in `bytes`, and at the end where the last one ends. Shape: `[samples + 1]`.
        offsets: Vec<u64>,
        /// The values, one behind the other.
        bytes: Buffer,
    },
}

impl Batch {
    /// Samples in it.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of all values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let bytes = match &self.data {
            BatchData::Columns { columns, .. } => {
                columns.iter().map(|column| column.buffer().len()).sum()
            }
            BatchData::Samples { bytes, .. } => bytes.len(),
        };
        bytes as u64
    }

    /// The encoded value of a column of a sample, by their places in the batch and in the schema; `None` for places that
    /// there are not, and where samples are not in columns.
    #[must_use]
    pub fn value(&self, sample: usize, column: usize) -> Option<&[u8]> {
        match &self.data {
            BatchData::Columns { columns, .. } => columns.get(column)?.value(sample),
            BatchData::Samples { .. } => None,
        }
    }

    /// The encoded bytes of a sample where samples are not in columns; `None` where they are.
    #[must_use]
    pub fn sample(&self, sample: usize) -> Option<&[u8]> {
        match &self.data {
            BatchData::Columns { .. } => None,
            BatchData::Samples { offsets, bytes, .. } => {
                slice_of(offsets, bytes.as_slice(), sample)
            }
        }
    }
}

impl ColumnData {
    /// All values.
    #[must_use]
    pub const fn buffer(&self) -> &Buffer {
        match self {
            Self::Fixed { bytes, .. } | Self::Variable { bytes, .. } => bytes,
        }
    }

    /// One value; `None` for a sample that there is not.
    #[must_use]
    pub fn value(&self, sample: usize) -> Option<&[u8]> {
        match self {
            Self::Fixed { size, bytes } => {
                let start = sample.checked_mul(*size)?;
                bytes.as_slice().get(start..start.checked_add(*size)?)
            }
            Self::Variable { offsets, bytes } => slice_of(offsets, bytes.as_slice(), sample),
        }
    }
}

/// The bytes between two neighbouring offsets.
pub(crate) fn slice_of<'a>(offsets: &[u64], bytes: &'a [u8], place: usize) -> Option<&'a [u8]> {
    let begin = usize::try_from(*offsets.get(place)?).ok()?;
    let end = usize::try_from(*offsets.get(place + 1)?).ok()?;
    bytes.get(begin..end)
}
