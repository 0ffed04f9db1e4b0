//! Splits large batches into slices of about a given size.

use arrow::array::{Array as _, RecordBatch};

/// Returns a batch in slices, in order, without copying.
pub(crate) struct Slices {
    bytes: usize,
    rest: Option<RecordBatch>,
    rows: usize,
}

impl Slices {
    /// Creates slices of about `bytes` each.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            bytes: bytes.max(1),
            rest: None,
            rows: 0,
        }
    }

    /// Adds the next batch. The previous one must be used up.
    pub(crate) fn push(&mut self, batch: RecordBatch) {
        let rows = batch.num_rows();
        let per_row = (used_bytes(&batch) / rows.max(1)).max(1);
        self.rows = (self.bytes / per_row).max(1);
        self.rest = (rows > 0).then_some(batch);
    }

    /// Returns the next slice.
    pub(crate) fn next(&mut self) -> Option<RecordBatch> {
        let batch = self.rest.take()?;
        // Avoid a last slice of only a few rows.
        if batch.num_rows() <= self.rows.saturating_add(self.rows / 4) {
            return Some(batch);
        }
        let slice = batch.slice(0, self.rows);
        self.rest = Some(batch.slice(self.rows, batch.num_rows() - self.rows));
        Some(slice)
    }
}

/// Returns the bytes that a batch uses, not those allocated: columns may share one large buffer.
pub(crate) fn used_bytes(batch: &RecordBatch) -> usize {
    let bytes = batch.columns().iter().map(|column| {
        let data = column.to_data();
        data.get_slice_memory_size()
            .unwrap_or_else(|_| column.get_array_memory_size())
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array};
    use std::sync::Arc;

    #[test]
    fn slices_cover_the_batch_in_order() {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let batch = RecordBatch::try_from_iter([("v", values)]).unwrap();
        let mut slices = Slices::new(batch.get_array_memory_size() / 10);
        slices.push(batch.clone());
        let mut rows = 0;
        let mut count = 0;
        while let Some(slice) = slices.next() {
            assert_eq!(slice, batch.slice(rows, slice.num_rows()));
            rows += slice.num_rows();
            count += 1;
        }
        assert_eq!(rows, 1000);
        assert!((9..=11).contains(&count), "{count}");
    }
}
