//! Adapts a source of another crate, so that column selection, filters and queries apply to it as well.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use crate::base::{Base, batch, project};
use crate::{Rows, Source, SourceDescription, SourceError, Unit};

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
        Ok(Box::new(Chosen {
            rows: self.source.open_unit(unit)?,
            schema: project(&self.schema, columns),
            columns: columns.to_vec(),
        }))
    }

    fn null_count(&self, column: usize) -> Option<u64> {
        self.source.null_count(column)
    }

    fn description(&self) -> &SourceDescription {
        self.source.description()
    }
}

/// Batches of a source, projected to some of its columns.
struct Chosen {
    rows: Box<dyn Rows>,
    schema: SchemaRef,
    columns: Vec<usize>,
}

impl Rows for Chosen {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let Some(all) = self.rows.next_batch()? else {
            return Ok(None);
        };
        let columns = self
            .columns
            .iter()
            .filter_map(|column| all.columns().get(*column).cloned())
            .collect();
        batch(&self.schema, columns, all.num_rows()).map(Some)
    }
}
