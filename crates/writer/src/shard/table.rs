//! Files of tables.

use shardmill_core::Error;

use arrow::compute::concat_batches;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use super::files::Files;
use super::slices::{Layout, Side, TableRows};
use crate::error;
use crate::form::TableForm;
use crate::pack::{CutShard, ShardSpan};
use crate::table::TableFile;

/// Keeps the rows until the file is encoded.
pub(super) fn lay_out(cut: CutShard) -> Layout {
    Layout {
        segments: vec![Vec::new()],
        side: Side::default(),
        table: Some(TableRows {
            pieces: cut.pieces,
            sizes: cut.sizes,
        }),
    }
}

/// Encodes and writes the file, and creates its index entry.
pub(super) fn finish(
    form: &TableForm,
    span: &ShardSpan,
    rows: TableRows,
    name: String,
    files: &mut Files<'_>,
) -> Result<TableFile, Error> {
    let raw_bytes = rows.bytes();
    let row_bytes = raw_bytes / rows.sizes.len().max(1);
    let row_groups = row_groups(&rows.sizes, form.row_group_bytes);
    drop(rows.sizes);
    let mut pieces = rows.pieces.into_iter();
    let mut rest = None;
    let mut groups = row_groups
        .iter()
        .map(|rows| take_rows(*rows, &mut rest, || pieces.next()?.table_rows()));
    let file = form.encoder.encode(&mut groups, row_bytes);
    let file = file.map_err(|source| error::table_not_encoded(span.shard, source))?;
    Ok(TableFile {
        file: files.write(name, [file])?,
        rows: span.samples,
        raw_bytes: raw_bytes as u64,
        row_groups: row_groups.into_iter().map(|rows| rows as u64).collect(),
    })
}

/// Divides rows into groups whose sizes are at most `most` bytes, or one row. Returns the number of rows of each group.
fn row_groups(sizes: &[u32], max: u64) -> Vec<usize> {
    let mut groups = Vec::new();
    let (mut rows, mut bytes) = (0, 0_u64);
    for size in sizes {
        let size = u64::from(*size);
        if rows > 0 && bytes.saturating_add(size) > max {
            groups.push(rows);
            (rows, bytes) = (0, 0);
        }
        rows += 1;
        bytes = bytes.saturating_add(size);
    }
    if rows > 0 {
        groups.push(rows);
    }
    groups
}

/// Returns the next `rows` rows as one batch.
///
/// INVARIANT: the encoder gets one batch for each group, so that the bytes do not depend on how the source divided its
/// rows into batches, or on where an earlier run was interrupted.
fn take_rows(
    mut rows: usize,
    rest: &mut Option<RecordBatch>,
    mut next: impl FnMut() -> Option<RecordBatch>,
) -> Result<RecordBatch, ArrowError> {
    let mut batches = Vec::new();
    while rows > 0 {
        let Some(batch) = rest.take().or_else(&mut next) else {
            let reason = "the rows of a file are fewer than their sizes".to_owned();
            return Err(ArrowError::InvalidArgumentError(reason));
        };
        let taken = rows.min(batch.num_rows());
        rows -= taken;
        if taken < batch.num_rows() {
            *rest = Some(batch.slice(taken, batch.num_rows() - taken));
        }
        batches.push(batch.slice(0, taken));
    }
    match batches.as_slice() {
        [batch] => Ok(batch.clone()),
        [first, ..] => concat_batches(&first.schema(), &batches),
        [] => Err(ArrowError::InvalidArgumentError(
            "a row group has no rows".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Int32Array};
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn row_groups_stay_within_the_byte_limit() {
        assert_eq!(row_groups(&[], 10), Vec::<usize>::new());
        assert_eq!(row_groups(&[4, 4, 4, 4, 4], 10), [2, 2, 1]);
        assert_eq!(row_groups(&[5, 5, 1], 10), [2, 1]);
        assert_eq!(row_groups(&[1, 99, 1], 10), [1, 1, 1]);
    }

    #[test]
    fn row_groups_span_batches() {
        let batch = |numbers: &[i32]| {
            let column: ArrayRef = Arc::new(Int32Array::from(numbers.to_vec()));
            RecordBatch::try_from_iter([("a", column)]).unwrap()
        };
        let mut batches = [batch(&[1, 2, 3]), batch(&[4]), batch(&[5, 6])].into_iter();
        let mut rest = None;
        let mut take = |rows| take_rows(rows, &mut rest, || batches.next());
        let values = |batch: RecordBatch| {
            batch
                .column(0)
                .as_primitive::<Int32Type>()
                .values()
                .to_vec()
        };
        assert_eq!(values(take(2).unwrap()), [1, 2]);
        assert_eq!(values(take(3).unwrap()), [3, 4, 5]);
        assert_eq!(values(take(1).unwrap()), [6]);
        assert!(take(1).is_err());
    }
}
