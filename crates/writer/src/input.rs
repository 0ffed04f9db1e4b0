//! What shards are made from: units of batches, in a fixed order.

use arrow::record_batch::RecordBatch;
use shardmill_core::Diagnostic;

/// What the engine needs from an input: units in a fixed order, each a run of batches. Units are read by
/// several threads at once; the batches of one unit by one thread at a time.
pub trait Input: Sync {
    /// Why reading failed.
    type Error: Diagnostic + Send + 'static;

    /// The number of units.
    fn units(&self) -> usize;

    /// Starts to read a unit.
    ///
    /// # Errors
    ///
    /// Whatever the input cannot do.
    fn open(&self, unit: usize) -> Result<Box<dyn Batches<Error = Self::Error>>, Self::Error>;

    /// Names a row for a person: a file and a number.
    fn place(&self, unit: usize, row: u64) -> String;
}

/// The batches of one unit.
pub trait Batches: Send {
    /// Why reading failed.
    type Error;

    /// The next batch, `None` at the end of the unit.
    ///
    /// # Errors
    ///
    /// Whatever the input cannot do.
    fn next(&mut self) -> Result<Option<InputBatch>, Self::Error>;
}

/// Rows that go to one split.
#[derive(Debug)]
pub struct InputBatch {
    /// The split, an index into [`Output::splits`](crate::Output::splits).
    pub split: usize,
    /// The rows.
    pub batch: RecordBatch,
    /// Their numbers within the unit, for messages.
    pub rows: RowNumbers,
    /// Stored bytes of input that reading them took, for progress.
    pub input_bytes: u64,
    /// Rows left out between the previous batch and the end of this one.
    pub dropped: u64,
}

/// The row numbers of a batch.
#[derive(Clone, Debug)]
pub enum RowNumbers {
    /// Consecutive, from this one.
    From(u64),
    /// One by one.
    Each(Vec<u64>),
}

impl RowNumbers {
    /// Those of the rows behind the first ones.
    pub(crate) fn from(&self, row: usize) -> Self {
        match self {
            Self::From(first) => Self::From(first + u64::try_from(row).unwrap_or(0)),
            Self::Each(rows) => Self::Each(rows.get(row..).unwrap_or_default().to_vec()),
        }
    }

    pub(crate) fn get(&self, row: usize) -> u64 {
        match self {
            Self::From(first) => first + u64::try_from(row).unwrap_or(0),
            Self::Each(rows) => rows.get(row).copied().unwrap_or(0),
        }
    }
}
