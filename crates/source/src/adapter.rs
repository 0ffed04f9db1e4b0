//! Adapts a source of another crate, so that column selection, filters and queries apply to it as well.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::base::{Base, Picked, project};
use crate::{RowPlace, Rows, Source, SourceDescription, SourceError, Unit};

/// Presents a [`Source`] as a native reader.
pub(crate) struct SourceAdapter {
    source: Arc<dyn Source>,
    schema: SchemaRef,
}

impl SourceAdapter {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        Self {
            schema: source.schema(),
            source,
        }
    }
}

impl Base for SourceAdapter {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn units(&self) -> &[Unit] {
        self.source.units()
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        if let Some(rows) = self.source.open_columns(unit, columns)? {
            return Ok(rows);
        }
        Ok(Box::new(Picked {
            rows: self.source.open_unit(unit)?,
            schema: project(&self.schema, columns),
            places: columns.to_vec(),
        }))
    }

    fn null_count(&self, column: usize) -> Option<u64> {
        self.source.null_count(column)
    }

    fn place(&self, unit: usize, row: u64) -> RowPlace {
        self.source.place(unit, row)
    }

    fn description(&self) -> &SourceDescription {
        self.source.description()
    }
}
