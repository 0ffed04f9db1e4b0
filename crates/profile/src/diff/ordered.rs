//! Compares the rows at the same position of two sources.

use arrow::array::{Array as _, RecordBatch};
use shardmill_core::Progress;
use shardmill_source::{Rows, Source, SourceError};

use super::common::Common;
use super::hashes::hash;
use super::report::{ChangeKind, Diff, RowChange};
use crate::stats::cancelled;

/// The rows of a source from one unit to the next.
struct Cursor<'a> {
    source: &'a dyn Source,
    /// The unit after the one that is being read.
    next_unit: usize,
    rows: Option<Box<dyn Rows>>,
    batch: Option<RecordBatch>,
    read: u64,
}

impl<'a> Cursor<'a> {
    const fn new(source: &'a dyn Source) -> Self {
        Self {
            source,
            next_unit: 0,
            rows: None,
            batch: None,
            read: 0,
        }
    }

    /// Returns the number of rows that can be taken; 0 at the end.
    fn ready(&mut self, progress: &Progress) -> Result<usize, SourceError> {
        loop {
            if progress.is_cancelled() {
                return Err(cancelled());
            }
            if let Some(batch) = self.batch.as_ref().filter(|batch| batch.num_rows() > 0) {
                return Ok(batch.num_rows());
            }
            let Some(rows) = &mut self.rows else {
                let Some(unit) = self.source.units().get(self.next_unit) else {
                    return Ok(0);
                };
                self.rows = Some(self.source.open_unit(self.next_unit)?);
                self.next_unit += 1;
                progress.add_input_bytes(unit.bytes);
                continue;
            };
            self.batch = rows.next_batch()?;
            if self.batch.is_none() {
                self.rows = None;
            }
        }
    }

    /// Takes rows of the current batch.
    fn take(&mut self, rows: usize, progress: &Progress) -> Option<RecordBatch> {
        let batch = self.batch.take()?;
        let taken = batch.slice(0, rows);
        self.batch = Some(batch.slice(rows, batch.num_rows() - rows));
        self.read += rows as u64;
        progress.add_samples(rows as u64);
        Some(taken)
    }
}

pub(super) fn compare(
    sources: [&dyn Source; 2],
    common: &Common,
    listed: usize,
    found: &mut Diff,
    progress: &Progress,
) -> Result<(), SourceError> {
    let [mut before, mut after] = sources.map(Cursor::new);
    loop {
        let (a, b) = (before.ready(progress)?, after.ready(progress)?);
        let row = before.read.max(after.read);
        let change = match (a, b) {
            (0, 0) => break,
            (_, 0) => ChangeKind::Removed,
            (0, _) => ChangeKind::Added,
            _ => ChangeKind::Changed,
        };
        let rows = match change {
            ChangeKind::Changed => a.min(b),
            _ => a.max(b),
        };
        let taken = (
            (a > 0).then(|| before.take(rows, progress)).flatten(),
            (b > 0).then(|| after.take(rows, progress)).flatten(),
        );
        if let (Some(a), Some(b)) = taken {
            compare_batches(&a, &b, row, common, listed, found);
            continue;
        }
        match change {
            ChangeKind::Removed => found.removed += rows as u64,
            _ => found.added += rows as u64,
        }
        for number in (row..).take(rows.min(listed.saturating_sub(found.changes.len()))) {
            found.changes.push(RowChange {
                change,
                key: None,
                before: (change == ChangeKind::Removed).then_some(number),
                after: (change == ChangeKind::Added).then_some(number),
                columns: Vec::new(),
            });
        }
    }
    found.rows = (before.read, after.read);
    Ok(())
}

fn compare_batches(
    a: &RecordBatch,
    b: &RecordBatch,
    first: u64,
    common: &Common,
    listed: usize,
    found: &mut Diff,
) {
    let mut differing: Vec<Vec<usize>> = vec![Vec::new(); a.num_rows()];
    for (at, (left, right)) in common.positions.iter().enumerate() {
        let (left, right) = (a.column(*left), b.column(*right));
        if left.data_type() == right.data_type() && left.to_data() == right.to_data() {
            continue;
        }
        let hashes = hash(left).into_iter().zip(hash(right));
        for ((left, right), differing) in hashes.zip(&mut differing) {
            if left != right {
                differing.push(at);
            }
        }
    }
    for (row, differing) in (first..).zip(differing) {
        if differing.is_empty() {
            found.same += 1;
            continue;
        }
        found.changed += 1;
        if found.changes.len() < listed {
            let names = differing.into_iter().filter_map(|at| common.names.get(at));
            found.changes.push(RowChange {
                change: ChangeKind::Changed,
                key: None,
                before: Some(row),
                after: Some(row),
                columns: names.cloned().collect(),
            });
        }
    }
}
