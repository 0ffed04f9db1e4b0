//! A batch: the samples of one step of one rank, stored column by column.

use std::sync::Arc;

use shardmill_core::Error;
use shardmill_mmap::Buffer;
use shardmill_order::Entry;

use crate::cached::SharedShard;
use shardmill_dataset::{Schema, Window};

/// The samples of one step.
#[derive(Debug)]
pub struct Batch {
    /// The step, counted from where the epoch started or was resumed.
    pub step: u64,
    /// The samples, in order. Padding samples are marked as repeated.
    pub entries: Vec<Entry>,
    /// The values of the samples.
    pub data: BatchData,
    /// The windows of the samples, if the reader has one.
    pub window: Option<BatchWindow>,
    /// Keeps the raw files whose paths are among the values from being evicted.
    pub held: Held,
}

/// Pins the raw files of a batch whose paths were returned: the cache does not evict them while this value exists.
#[derive(Clone, Debug, Default)]
pub struct Held(pub(crate) Vec<SharedShard>);

impl Held {
    /// Keeps the files in the cache after this process ends: for a minute, or until the next epoch of that `owner`
    /// begins (see [`CacheOptions::owner`](crate::CacheOptions)). A loader process calls this before it ends, because
    /// another process may still read its batches.
    ///
    /// # Errors
    ///
    /// `Storage`.
    pub fn leave_in_use(&self, owner: u64, epoch: u64) -> Result<(), Error> {
        for open in &self.0 {
            open.leave_in_use(owner, epoch)?;
        }
        Ok(())
    }

    /// Returns whether nothing is pinned: the files lie outside any cache, or no paths were returned.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The windows of the samples of a batch.
#[derive(Clone, Debug)]
pub struct BatchWindow {
    /// The offsets. A column has as many values for each sample as [`Window::places`] has positions, sample after
    /// sample. Samples that are not stored in columns are those of all offsets.
    pub window: Arc<Window>,
    /// Whether the neighbour at an offset is padding. Shape: `[samples, offsets]`.
    pub padded: Vec<bool>,
}

/// The values of the samples of a batch.
#[derive(Debug)]
pub enum BatchData {
    /// All samples have the same MDS columns. Each column has one buffer.
    Columns {
        /// The columns.
        schema: Arc<Schema>,
        /// Their values, in the order of the schema.
        columns: Vec<ColumnData>,
    },
    /// The samples are text, or have several schemas. Each is stored as its encoded bytes.
    Samples {
        /// The offset in `bytes` of each sample, then the end of the last one. Shape: `[samples + 1]`.
        offsets: Vec<u64>,
        /// The encoded samples, concatenated.
        bytes: Buffer,
        /// The columns of each sample. Shape: `[samples]`.
        schemas: Vec<Arc<Schema>>,
    },
}

/// The encoded values of one column of a batch. Numbers are little-endian and can be used without another copy.
#[derive(Debug)]
pub enum ColumnData {
    /// Every value has `size` bytes. Shape of `bytes`: `[samples, size]`.
    Fixed {
        /// The size of a value, in bytes.
        size: usize,
        /// The values.
        bytes: Buffer,
    },
    /// Each value has its own length.
    Variable {
        /// The offset in `bytes` of each value, then the end of the last one. Shape: `[samples + 1]`.
        offsets: Vec<u64>,
        /// The values, concatenated.
        bytes: Buffer,
    },
}

impl Batch {
    /// Returns the number of samples.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the batch has no samples.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the size of all values, in bytes.
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

    /// Returns the encoded value of a column of a sample. `sample` and `column` are positions in the batch and in the
    /// schema. With a window, `sample` counts the values of the column, sample after sample. Returns `None` for a position that does not exist, and if samples are not stored in columns.
    #[must_use]
    pub fn value(&self, sample: usize, column: usize) -> Option<&[u8]> {
        match &self.data {
            BatchData::Columns { columns, .. } => columns.get(column)?.value(sample),
            BatchData::Samples { .. } => None,
        }
    }

    /// Returns the encoded bytes of a sample; `None` if samples are stored in columns.
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
    /// Returns the buffer with all values.
    #[must_use]
    pub const fn buffer(&self) -> &Buffer {
        match self {
            Self::Fixed { bytes, .. } | Self::Variable { bytes, .. } => bytes,
        }
    }

    /// Returns one value; `None` for a sample that does not exist.
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

/// Returns the bytes between two neighbouring offsets.
pub(crate) fn slice_of<'a>(offsets: &[u64], bytes: &'a [u8], index: usize) -> Option<&'a [u8]> {
    let begin = usize::try_from(*offsets.get(index)?).ok()?;
    let end = usize::try_from(*offsets.get(index + 1)?).ok()?;
    bytes.get(begin..end)
}
