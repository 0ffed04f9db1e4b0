//! Tests Delta tables: versions, files, deleted rows, mapped columns, types and refusals.

mod features;
mod fixtures;
mod golden;
mod mapping;
mod refusals;
mod stores;
mod table;
mod types;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

use crate::help::array;

fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let names = range.clone().map(|id| format!("row {id}"));
    nullable(vec![
        ("id", ids(range)),
        ("name", array(StringArray::from_iter_values(names))),
    ])
}

/// Builds a batch of nullable columns, like those of a table.
fn nullable(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn ids(ids: impl IntoIterator<Item = i64>) -> ArrayRef {
    array(Int64Array::from_iter_values(ids))
}
