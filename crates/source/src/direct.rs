//! Selects and orders the columns of a native reader, unchanged.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::base::{Base, open_columns, project};
use crate::expr::expanded;
use crate::{RowOrigin, Rows, SelectColumn, Source, SourceDescription, SourceError, Unit};

/// A native reader as a source.
pub(crate) struct DirectSource {
    base: Arc<dyn Base>,
    schema: SchemaRef,
    /// For each column of the source, its number in the reader.
    columns: Vec<usize>,
}

impl DirectSource {
    /// Selects all columns, or the named ones.
    pub(crate) fn new(base: Arc<dyn Base>, wanted: &[SelectColumn]) -> Result<Self, SourceError> {
        let schema = base.schema();
        let mut columns = Vec::with_capacity(wanted.len());
        for column in expanded(wanted, schema) {
            let (index, _) = schema
                .column_with_name(&column.name)
                .ok_or_else(|| SourceError::no_column("--column", &column.name, schema))?;
            if columns.contains(&index) {
                return Err(SourceError::duplicate_column("--column", &column.name));
            }
            columns.push(index);
        }
        if wanted.is_empty() {
            columns.extend(0..schema.fields().len());
        }
        base.check_columns(&columns)?;
        Ok(Self {
            schema: project(schema, &columns),
            columns,
            base,
        })
    }
}

impl Source for DirectSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn units(&self) -> &[Unit] {
        self.base.units()
    }

    fn open_unit(&self, unit: usize) -> Result<Box<dyn Rows>, SourceError> {
        open_columns(self.base.as_ref(), unit, &self.columns)
    }

    fn null_count(&self, column: usize) -> Option<u64> {
        self.base.null_count(*self.columns.get(column)?)
    }

    fn first_null(&self, column: usize) -> Result<Option<RowOrigin>, SourceError> {
        match self.columns.get(column) {
            Some(column) => self.base.first_null(*column),
            None => Ok(None),
        }
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        self.base.row_origin(unit, row)
    }

    fn description(&self) -> &SourceDescription {
        self.base.description()
    }
}
