//! The interface of the native readers: columns by number, units, and no computed columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{FieldRef, Fields, Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;

use crate::source::null_row;
use crate::{RowPlace, Rows, SourceDescription, SourceError, Unit};

/// A native reader: the layer below column selection, filters and queries.
pub(crate) trait Base: Send + Sync {
    /// All columns.
    fn schema(&self) -> &SchemaRef;

    /// The units in order.
    fn units(&self) -> &[Unit];

    /// Checks that columns can be read from all files. If files disagree about a column, that is an error only if the
    /// column is read.
    fn check_columns(&self, columns: &[usize]) -> Result<(), SourceError> {
        let _ = columns;
        Ok(())
    }

    /// Starts to read some columns of a unit. `columns` are ascending and distinct. Batches have these columns in this
    /// order; without columns, they only have a number of rows.
    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError>;

    /// As [`Source::null_count`](crate::Source::null_count).
    fn null_count(&self, column: usize) -> Option<u64>;

    /// Returns the number of nulls of a column in one unit, if statistics record it.
    fn unit_null_count(&self, unit: usize, column: usize) -> Option<u64> {
        let _ = (unit, column);
        None
    }

    /// As [`Source::first_null`](crate::Source::first_null).
    fn first_null(&self, column: usize) -> Result<Option<RowPlace>, SourceError> {
        find_null(self, column)
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
    fn place(&self, unit: usize, row: u64) -> RowPlace {
        let file = self.units().get(unit).and_then(|unit| unit.file);
        let file = file.and_then(|file| self.description().files.get(file));
        RowPlace {
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

    /// Describes what was opened.
    fn description(&self) -> &SourceDescription;
}

/// Implements [`Base::schema`], [`Base::units`] and [`Base::description`] for a reader with fields of these names.
macro_rules! described_by_fields {
    () => {
        fn schema(&self) -> &SchemaRef {
            &self.schema
        }

        fn units(&self) -> &[Unit] {
            &self.units
        }

        fn description(&self) -> &SourceDescription {
            &self.description
        }
    };
}

pub(crate) use described_by_fields;

/// Finds the first null of a column: skips units whose statistics rule nulls out, and reads the others.
fn find_null<B: Base + ?Sized>(base: &B, column: usize) -> Result<Option<RowPlace>, SourceError> {
    if base.null_count(column) == Some(0) {
        return Ok(None);
    }
    for number in 0..base.units().len() {
        if base.unit_null_count(number, column) == Some(0) {
            continue;
        }
        let mut rows = base.open(number, &[column])?;
        if let Some(row) = null_row(rows.as_mut(), 0)? {
            return Ok(Some(base.place(number, row)));
        }
    }
    Ok(None)
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
    let places = columns.iter();
    let places = places.filter_map(|column| ascending.binary_search(column).ok());
    Ok(Box::new(Picked {
        rows,
        places: places.collect(),
        schema: project(base.schema(), columns),
    }))
}

/// Rows with some of their columns, in any order.
pub(crate) struct Picked {
    pub rows: Box<dyn Rows>,
    /// The positions of the columns.
    pub places: Vec<usize>,
    pub schema: SchemaRef,
}

impl Rows for Picked {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let found = self.rows.next_batch()?;
        found
            .map(|found| pick(&found, &self.places, &self.schema))
            .transpose()
    }
}

/// Returns the columns of a batch at these positions.
pub(crate) fn pick(
    found: &RecordBatch,
    places: &[usize],
    schema: &SchemaRef,
) -> Result<RecordBatch, SourceError> {
    let columns = places.iter();
    let columns = columns.filter_map(|place| found.columns().get(*place).cloned());
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
        let place = own
            .get(field.name())
            .and_then(|place| found.columns().get(*place));
        place
            .cloned()
            .unwrap_or_else(|| new_null_array(field.data_type(), found.num_rows()))
    };
    wanted.iter().map(column).collect()
}
