//! Assigns rows to splits.

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::compute::{can_cast_types, cast, take_record_batch};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use xxhash_rust::xxh3::xxh3_64;

use crate::options::SplitSpec;

/// Divides rows by a hash, so that a row goes to the same split in every run.
#[derive(Clone, Debug)]
pub(crate) struct SplitPlan {
    /// The upper bound of each split's range of hashes.
    bounds: Vec<u64>,
    /// The column whose value is hashed.
    key: Option<usize>,
}

impl SplitPlan {
    pub(crate) fn new(splits: &[SplitSpec], key: Option<usize>) -> Self {
        const RANGE: f64 = 18_446_744_073_709_551_616.0;
        let mut sum = 0.0;
        let mut bounds: Vec<u64> = splits
            .iter()
            .map(|split| {
                sum += split.share;
                // The cast saturates at the end of the range, which is the last bound.
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "saturating is meant"
                )]
                let bound = (sum * RANGE) as u64;
                bound
            })
            .collect();
        // The last split gets the rest of the range, so rounding loses nothing.
        if let Some(last) = bounds.last_mut() {
            *last = u64::MAX;
        }
        Self { bounds, key }
    }

    /// Returns whether all rows go to one dataset.
    pub(crate) fn is_single(&self) -> bool {
        self.bounds.len() <= 1
    }

    fn of(&self, hash: u64) -> usize {
        self.bounds
            .iter()
            .position(|bound| hash <= *bound)
            .unwrap_or(0)
    }

    /// Returns the rows of each split, in order. `number` returns a row's number within its unit.
    pub(crate) fn divide(
        &self,
        batch: &RecordBatch,
        unit: usize,
        number: impl Fn(usize) -> u64,
    ) -> Result<Vec<(usize, RecordBatch, Vec<usize>)>, ArrowError> {
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); self.bounds.len().max(1)];
        let keys = self
            .key
            .and_then(|key| batch.columns().get(key))
            .map(key_bytes)
            .transpose()?;
        for row in 0..batch.num_rows() {
            let hash = match &keys {
                Some(keys) => xxh3_64(if keys.is_null(row) {
                    &[]
                } else {
                    keys.as_binary::<i64>().value(row)
                }),
                None => {
                    let mut bytes = [0; 16];
                    bytes[..8].copy_from_slice(&u64::try_from(unit).unwrap_or(0).to_le_bytes());
                    bytes[8..].copy_from_slice(&number(row).to_le_bytes());
                    xxh3_64(&bytes)
                }
            };
            if let Some(rows) = rows.get_mut(self.of(hash)) {
                rows.push(row);
            }
        }
        let mut parts = Vec::new();
        for (split, rows) in rows
            .into_iter()
            .enumerate()
            .filter(|(_, rows)| !rows.is_empty())
        {
            let indices = UInt64Array::from_iter_values(
                rows.iter().map(|row| u64::try_from(*row).unwrap_or(0)),
            );
            parts.push((split, take_record_batch(batch, &indices)?, rows));
        }
        Ok(parts)
    }
}

/// Returns whether [`key_bytes`] supports a type.
pub(crate) fn can_be_key(data_type: &DataType) -> bool {
    can_cast_types(data_type, &DataType::LargeUtf8) || data_type.is_binary()
}

/// Returns the bytes to hash for each key: binary values unchanged, other values as text.
fn key_bytes(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type().is_binary() {
        true => cast(column, &DataType::LargeBinary),
        false => cast(&cast(column, &DataType::LargeUtf8)?, &DataType::LargeBinary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};
    use std::sync::Arc;

    fn plan(shares: &[f64], key: Option<usize>) -> SplitPlan {
        let splits: Vec<SplitSpec> = shares
            .iter()
            .map(|share| SplitSpec {
                name: String::new(),
                share: *share,
            })
            .collect();
        SplitPlan::new(&splits, key)
    }

    #[test]
    fn split_shares_are_met_and_no_row_is_lost() {
        let batch = RecordBatch::try_from_iter([(
            "a",
            Arc::new(Int64Array::from_iter_values(0..10_000)) as ArrayRef,
        )])
        .unwrap();
        let parts = plan(&[0.9, 0.1], None)
            .divide(&batch, 3, |row| row as u64)
            .unwrap();
        let sizes: Vec<usize> = parts.iter().map(|(_, batch, _)| batch.num_rows()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 10_000);
        assert!((8800..9200).contains(&sizes[0]), "{sizes:?}");
    }

    #[test]
    fn rows_with_equal_split_keys_stay_together() {
        let keys: Vec<String> = (0..1000).map(|row| format!("user{}", row % 50)).collect();
        let batch =
            RecordBatch::try_from_iter([("k", Arc::new(StringArray::from(keys)) as ArrayRef)])
                .unwrap();
        let parts = plan(&[0.5, 0.5], Some(0))
            .divide(&batch, 0, |row| row as u64)
            .unwrap();
        let sets: Vec<std::collections::BTreeSet<String>> = parts
            .iter()
            .map(|(_, batch, _)| {
                batch
                    .column(0)
                    .as_string::<i32>()
                    .iter()
                    .flatten()
                    .map(str::to_owned)
                    .collect()
            })
            .collect();
        assert!(sets[0].is_disjoint(&sets[1]));
        assert_eq!(sets[0].len() + sets[1].len(), 50);
    }
}
