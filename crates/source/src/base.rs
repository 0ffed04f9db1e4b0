//! The interface of the native readers: columns by number, units, and no computed columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{FieldRef, Fields, Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;

use crate::source::null_row;
use crate::{RowOrigin, Rows, SourceDescription, SourceError, Unit};

/// What is known of a table before its rows are read.
pub(crate) struct TableFacts {
    /// All columns.
    pub schema: SchemaRef,
    /// The units in order.
    pub units: Vec<Unit>,
    /// For each column, as [`Source::null_count`](crate::Source::null_count).
    pub null_counts: Vec<Option<u64>>,
    /// Describes what was opened.
    pub description: SourceDescription,
}

/// A native reader: the layer below column selection, filters and queries.
pub(crate) trait Base: Send + Sync {
    /// Returns what is known of the table.
    fn facts(&self) -> &TableFacts;

    fn schema(&self) -> &SchemaRef {
        &self.facts().schema
    }

    fn units(&self) -> &[Unit] {
        &self.facts().units
    }

    fn description(&self) -> &SourceDescription {
        &self.facts().description
    }

    fn null_count(&self, column: usize) -> Option<u64> {
        self.facts().null_counts.get(column).copied().flatten()
    }

    /// Checks that columns can be read from all files. If files disagree about a column, that is an error only if the
    /// column is read.
    fn check_columns(&self, columns: &[usize]) -> Result<(), SourceError> {
        let _ = columns;
        Ok(())
    }

    /// Starts to read some columns of a unit. `columns` are ascending and distinct. Batches have these columns in this
    /// order; without columns, they only have a number of rows.
    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError>;

    /// Returns the number of nulls of a column in one unit, if statistics record it.
    fn unit_null_count(&self, unit: usize, column: usize) -> Option<u64> {
        let _ = (unit, column);
        None
    }

    /// As [`Source::first_null`](crate::Source::first_null).
    fn first_null(&self, column: usize) -> Result<Option<RowOrigin>, SourceError> {
        if self.null_count(column) == Some(0) {
            return Ok(None);
        }
        // Statistics rule nulls out in some units.
        for number in 0..self.units().len() {
            if self.unit_null_count(number, column) == Some(0) {
                continue;
            }
            let mut rows = self.open(number, &[column])?;
            if let Some(row) = null_row(rows.as_mut(), 0)? {
                return Ok(Some(self.row_origin(number, row)));
            }
        }
        Ok(None)
    }

    /// Returns the row number within the file, before any filter, of a row of a unit.
    fn file_row(&self, unit: usize, row: u64) -> u64 {
        let first = self.units().get(unit).and_then(|unit| unit.first_row);
        first.unwrap_or(0) + row
    }

    /// Returns the key of a row of a unit. Only trees have keys.
    fn key(&self, unit: usize, row: u64) -> Option<String> {
        let _ = (unit, row);
        None
    }

    /// Returns the file, row and key of a row of a unit.
    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        let file = self.units().get(unit).and_then(|unit| unit.file);
        let file = file.and_then(|file| self.description().files.get(file));
        RowOrigin {
            file: file.map(|file| file.path.clone()),
            row: self.file_row(unit, row),
            key: self.key(unit, row),
        }
    }

    /// Returns which units may have rows that meet a condition over [`Base::schema`]; `None` if statistics cannot tell.
    fn may_match(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<Vec<bool>> {
        let _ = condition;
        None
    }

    /// Announces which units will be opened, ascending. It is not called if all of them will be.
    fn will_read(&self, units: &[usize]) {
        let _ = units;
    }
}

/// Adds the nulls of one more file or unit; unknown if either count is.
pub(crate) fn add_nulls(total: &mut Option<u64>, own: Option<u64>) {
    *total = total
        .zip(own)
        .and_then(|(total, own)| total.checked_add(own));
}

/// Starts to read some columns of a unit, in any order.
pub(crate) fn open_columns(
    base: &dyn Base,
    unit: usize,
    columns: &[usize],
) -> Result<Box<dyn Rows>, SourceError> {
    let mut ascending = columns.to_vec();
    ascending.sort_unstable();
    ascending.dedup();
    let rows = base.open(unit, &ascending)?;
    if ascending == columns {
        return Ok(rows);
    }
    let positions = columns.iter();
    let positions = positions.filter_map(|column| ascending.binary_search(column).ok());
    Ok(picked(
        rows,
        positions.collect(),
        project(base.schema(), columns),
    ))
}

/// Returns the columns of rows at these positions.
pub(crate) fn picked(
    rows: Box<dyn Rows>,
    positions: Vec<usize>,
    schema: SchemaRef,
) -> Box<dyn Rows> {
    map_rows(rows, move |found| pick(&found, &positions, &schema))
}

/// The rows that a function returns until it fails or has no more.
struct Pulled<F>(Option<F>);

impl<F: FnMut() -> Result<Option<RecordBatch>, SourceError> + Send> Rows for Pulled<F> {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
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
pub(crate) fn rows_from(
    pull: impl FnMut() -> Result<Option<RecordBatch>, SourceError> + Send + 'static,
) -> Box<dyn Rows> {
    Box::new(Pulled(Some(pull)))
}

/// Converts each batch of rows.
pub(crate) fn map_rows(
    mut rows: Box<dyn Rows>,
    mut convert: impl FnMut(RecordBatch) -> Result<RecordBatch, SourceError> + Send + 'static,
) -> Box<dyn Rows> {
    rows_from(move || rows.next_batch()?.map(&mut convert).transpose())
}

/// Returns the columns of a batch at these positions.
pub(crate) fn pick(
    found: &RecordBatch,
    positions: &[usize],
    schema: &SchemaRef,
) -> Result<RecordBatch, SourceError> {
    let columns = positions.iter();
    let columns = columns.filter_map(|position| found.columns().get(*position).cloned());
    batch(schema, columns.collect(), found.num_rows())
}

/// Returns the schema of some columns.
pub(crate) fn project(schema: &SchemaRef, columns: &[usize]) -> SchemaRef {
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
) -> Result<RecordBatch, SourceError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| SourceError::bug(format!("columns do not fit their schema: {error}")))
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
