//! The input of the writer: rows of a source, with nulls replaced and divided among splits.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use shardmill_core::Error;
use shardmill_source::{Rows, Source};
use shardmill_writer::{Batches, Input, InputBatch, NullPlan, RowNumbers, internal};

use crate::split::SplitPlan;

/// A source as input of the writer.
pub(crate) struct SourceInput {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) nulls: Arc<NullPlan>,
    pub(crate) split: Arc<SplitPlan>,
}

impl Input for SourceInput {
    fn units(&self) -> usize {
        self.source.units().len()
    }

    fn open(&self, unit: usize) -> Result<Box<dyn Batches>, Error> {
        let (bytes, rows) = self
            .source
            .units()
            .get(unit)
            .map_or((0, None), |unit| (unit.bytes, unit.rows));
        Ok(Box::new(SourceBatches {
            rows: self.source.open_unit(unit)?,
            nulls: Arc::clone(&self.nulls),
            split: Arc::clone(&self.split),
            unit,
            next_row: 0,
            queue: VecDeque::new(),
            bytes_left: bytes,
            bytes,
            rows_expected: rows.unwrap_or(0),
        }))
    }

    fn row_origin(&self, unit: usize, row: u64) -> String {
        self.source.row_origin(unit, row).to_string()
    }
}

struct SourceBatches {
    rows: Box<dyn Rows>,
    nulls: Arc<NullPlan>,
    split: Arc<SplitPlan>,
    unit: usize,
    next_row: u64,
    queue: VecDeque<InputBatch>,
    bytes: u64,
    bytes_left: u64,
    rows_expected: u64,
}

impl SourceBatches {
    /// Returns the share of the unit's bytes that these rows represent.
    fn spend(&mut self, rows: u64) -> u64 {
        let share =
            u128::from(self.bytes) * u128::from(rows) / u128::from(self.rows_expected.max(1));
        let spent = u64::try_from(share)
            .unwrap_or(u64::MAX)
            .min(self.bytes_left);
        self.bytes_left -= spent;
        spent
    }

    fn divide(&mut self, batch: RecordBatch) -> Result<(), Error> {
        let first = self.next_row;
        let rows = batch.num_rows() as u64;
        self.next_row += rows;
        let mut input_bytes = self.spend(rows);
        let (batch, kept) = self.nulls.apply(batch).map_err(|error| broken(&error))?;
        let mut dropped = rows - batch.num_rows() as u64;
        let number = |row: usize| {
            let kept = kept.as_ref().and_then(|kept| kept.get(row));
            first + kept.copied().unwrap_or(row) as u64
        };
        let parts = if self.split.is_single() {
            let rows = match &kept {
                None => RowNumbers::From(first),
                Some(_) => RowNumbers::Each((0..batch.num_rows()).map(number).collect()),
            };
            vec![(0, batch, rows)]
        } else {
            self.split
                .divide(&batch, self.unit, number)
                .map_err(|error| broken(&error))?
                .into_iter()
                .map(|(split, batch, rows)| {
                    (
                        split,
                        batch,
                        RowNumbers::Each(rows.into_iter().map(number).collect()),
                    )
                })
                .collect()
        };
        for (split, batch, rows) in parts {
            self.queue.push_back(InputBatch {
                split,
                batch,
                rows,
                input_bytes: std::mem::take(&mut input_bytes),
                dropped: std::mem::take(&mut dropped),
            });
        }
        Ok(())
    }
}

impl Batches for SourceBatches {
    fn next(&mut self) -> Result<Option<InputBatch>, Error> {
        loop {
            if let Some(mut batch) = self.queue.pop_front() {
                if self.queue.is_empty() && self.rows_expected == 0 {
                    // Without a row count, the first batch counts all bytes of the unit.
                    batch.input_bytes += std::mem::take(&mut self.bytes_left);
                }
                return Ok(Some(batch));
            }
            match self.rows.next_batch()? {
                Some(batch) => self.divide(batch)?,
                None => return Ok(None),
            }
        }
    }
}

/// Returns an internal error. These kernels fail only for types that the plan has excluded.
fn broken(_: &ArrowError) -> Error {
    internal("an Arrow kernel refused a type that the plan allowed")
}
