//! Delta tables: versions, files, deleted rows, mapped columns, types, refusals.

mod features;
mod golden;
mod mapping;
mod refusals;
mod table;
mod types;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

use crate::help::{array, batch};

fn rows(range: std::ops::Range<i64>) -> RecordBatch {
    let names = range.clone().map(|id| format!("row {id}"));
    batch(vec![
        ("id", ids(range)),
        ("name", array(StringArray::from_iter_values(names))),
    ])
}

fn ids(ids: impl IntoIterator<Item = i64>) -> ArrayRef {
    array(Int64Array::from_iter_values(ids))
}
