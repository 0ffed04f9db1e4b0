//! Batches of some columns, and rows from functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardmill_core::Error;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{FieldRef, Fields, Schema, SchemaRef};

use crate::error;
use crate::{Rows, Source};

/// Adds the nulls of one more file or unit; unknown if either count is.
pub(crate) fn add_nulls(total: &mut Option<u64>, own: Option<u64>) {
    *total = total
        .zip(own)
        .and_then(|(total, own)| total.checked_add(own));
}

/// Starts to read some columns of a unit, in any order.
pub(crate) fn open_columns(
    source: &dyn Source,
    unit: usize,
    columns: &[usize],
) -> Result<Box<dyn Rows>, Error> {
    let mut ascending = columns.to_vec();
    ascending.sort_unstable();
    ascending.dedup();
    let rows = source.open(unit, &ascending)?;
    if ascending == columns {
        return Ok(rows);
    }
    let positions = columns.iter();
    let positions = positions.filter_map(|column| ascending.binary_search(column).ok());
    let positions: Vec<usize> = positions.collect();
    let schema = project(&source.facts().schema, columns);
    Ok(map_rows(rows, move |found| {
        pick(&found, &positions, &schema)
    }))
}

/// The rows that a function returns until it fails or has no more.
struct Pulled<F>(Option<F>);

impl<F: FnMut() -> Result<Option<RecordBatch>, Error> + Send> Rows for Pulled<F> {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        let Some(pull) = &mut self.0 else {
            return Ok(None);
        };
        let result = pull();
        if !matches!(result, Ok(Some(_))) {
            self.0 = None;
        }
        result
    }
}

/// Returns the batches of a function as rows. After an error or the end, the function is dropped.
pub fn rows_from(
    pull: impl FnMut() -> Result<Option<RecordBatch>, Error> + Send + 'static,
) -> Box<dyn Rows> {
    Box::new(Pulled(Some(pull)))
}

/// Converts each batch of rows.
pub fn map_rows(
    mut rows: Box<dyn Rows>,
    mut convert: impl FnMut(RecordBatch) -> Result<RecordBatch, Error> + Send + 'static,
) -> Box<dyn Rows> {
    rows_from(move || rows.next_batch()?.map(&mut convert).transpose())
}

/// Returns the columns of a batch at these positions.
pub(crate) fn pick(
    found: &RecordBatch,
    positions: &[usize],
    schema: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let columns = positions.iter();
    let columns = columns.filter_map(|position| found.columns().get(*position).cloned());
    batch(schema, columns.collect(), found.num_rows())
}

/// Returns the schema of some columns.
#[must_use]
pub fn project(schema: &SchemaRef, columns: &[usize]) -> SchemaRef {
    let fields: Vec<_> = columns
        .iter()
        .filter_map(|column| schema.fields().get(*column).cloned())
        .collect();
    Arc::new(Schema::new(fields))
}

/// Builds a batch of these columns. Without columns, the batch only has a number of rows.
pub(crate) fn batch(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, Error> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| error::bug(format!("columns do not fit their schema: {error}")))
}

/// Returns columns of a file by name, in the order of a schema. Columns that the file lacks are null.
pub(crate) fn by_name(
    found: &RecordBatch,
    own: &BTreeMap<String, usize>,
    wanted: &Fields,
) -> Vec<ArrayRef> {
    let column = |field: &FieldRef| {
        let array = own
            .get(field.name())
            .and_then(|index| found.columns().get(*index));
        array
            .cloned()
            .unwrap_or_else(|| new_null_array(field.data_type(), found.num_rows()))
    };
    wanted.iter().map(column).collect()
}
