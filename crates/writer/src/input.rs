//! The input of the pipeline: units of record batches, in a fixed order.

use arrow::record_batch::RecordBatch;
use shardmill_core::Error;

/// An input: units in a fixed order, each of them a sequence of batches.
///
/// Several threads read units at the same time. One thread at a time reads the batches of a unit.
pub trait Input: Sync {
    /// Returns the number of units.
    fn units(&self) -> usize;

    /// Opens a unit for reading.
    ///
    /// # Errors
    ///
    /// Returns the error of the input if the unit cannot be opened.
    fn open(&self, unit: usize) -> Result<Box<dyn Batches>, Error>;

    /// Names a row for messages, as in `row 3 of x.parquet` or `sample a/001`.
    fn row_origin(&self, unit: usize, row: u64) -> String;
}

/// The batches of one unit.
pub trait Batches: Send {
    /// Returns the next batch, or `None` at the end of the unit.
    ///
    /// # Errors
    ///
    /// Returns the error of the input if the batch cannot be read.
    fn next(&mut self) -> Result<Option<InputBatch>, Error>;
}

/// Rows that belong to one split.
#[derive(Debug)]
pub struct InputBatch {
    /// The split, an index into [`Output::splits`](crate::Output::splits).
    pub split: usize,
    /// The rows.
    pub batch: RecordBatch,
    /// The numbers of the rows within the unit, for messages.
    pub rows: RowNumbers,
    /// The stored input bytes that were read for these rows, for progress.
    pub input_bytes: u64,
    /// The number of rows dropped between the previous batch and the end of this one.
    pub dropped: u64,
}

/// The row numbers of a batch.
#[derive(Clone, Debug)]
pub enum RowNumbers {
    /// Consecutive numbers, starting at this one.
    From(u64),
    /// One number for each row.
    Each(Vec<u64>),
}

impl RowNumbers {
    /// Returns the numbers from row `row` of the batch on.
    pub(crate) fn from(&self, row: usize) -> Self {
        match self {
            Self::From(first) => Self::From(first + u64::try_from(row).unwrap_or(0)),
            Self::Each(rows) => Self::Each(rows.get(row..).unwrap_or_default().to_vec()),
        }
    }

    /// Returns the number of a row of the batch.
    #[must_use]
    pub fn get(&self, row: usize) -> u64 {
        match self {
            Self::From(first) => first + u64::try_from(row).unwrap_or(0),
            Self::Each(rows) => rows.get(row).copied().unwrap_or(0),
        }
    }
}
