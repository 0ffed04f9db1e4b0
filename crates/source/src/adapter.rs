//! Adapts a source of another crate, so that column selection, filters and queries apply to it as well.

use std::sync::Arc;

use crate::base::{Base, TableFacts, picked, project};
use crate::{RowOrigin, Rows, Source, SourceError};

/// Presents a [`Source`] as a native reader.
pub(crate) struct SourceAdapter {
    source: Arc<dyn Source>,
    facts: TableFacts,
}

impl SourceAdapter {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        let schema = source.schema();
        let columns = 0..schema.fields().len();
        Self {
            facts: TableFacts {
                null_counts: columns.map(|column| source.null_count(column)).collect(),
                schema,
                units: source.units().to_vec(),
                description: source.description().clone(),
            },
            source,
        }
    }
}

impl Base for SourceAdapter {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        if let Some(rows) = self.source.open_columns(unit, columns)? {
            return Ok(rows);
        }
        let rows = self.source.open_unit(unit)?;
        Ok(picked(
            rows,
            columns.to_vec(),
            project(self.schema(), columns),
        ))
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        self.source.row_origin(unit, row)
    }
}
