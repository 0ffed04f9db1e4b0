//! Selects and orders columns, unchanged.

use std::sync::Arc;

use crate::base::{open_columns, project};
use crate::expr::expanded;
use crate::{RowOrigin, Rows, SelectColumn, Source, SourceError, TableFacts};

/// Returns a source with the named columns, or with all of them.
pub(crate) fn selected(
    source: Arc<dyn Source>,
    wanted: &[SelectColumn],
) -> Result<Arc<dyn Source>, SourceError> {
    let own = source.facts();
    if wanted.is_empty() {
        let all: Vec<usize> = (0..own.schema.fields().len()).collect();
        source.check_columns(&all)?;
        return Ok(source);
    }
    let mut columns = Vec::with_capacity(wanted.len());
    for column in expanded(wanted, &own.schema) {
        let (index, _) = own
            .schema
            .column_with_name(&column.name)
            .ok_or_else(|| SourceError::no_column("--column", &column.name, &own.schema))?;
        if columns.contains(&index) {
            return Err(SourceError::duplicate_column("--column", &column.name));
        }
        columns.push(index);
    }
    source.check_columns(&columns)?;
    let null_counts = columns.iter().map(|column| source.null_count(*column));
    let facts = own.with_columns(project(&own.schema, &columns), null_counts.collect());
    Ok(Arc::new(Selected {
        facts,
        columns,
        source,
    }))
}

/// Some columns of a source.
struct Selected {
    source: Arc<dyn Source>,
    facts: TableFacts,
    /// For each column, its number in the source.
    columns: Vec<usize>,
}

impl Source for Selected {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        let own = columns.iter();
        let own: Vec<usize> = own
            .filter_map(|at| self.columns.get(*at).copied())
            .collect();
        open_columns(self.source.as_ref(), unit, &own)
    }

    fn unit_null_count(&self, unit: usize, column: usize) -> Option<u64> {
        self.source
            .unit_null_count(unit, *self.columns.get(column)?)
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        self.source.row_origin(unit, row)
    }
}
