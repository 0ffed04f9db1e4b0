//! Selects and orders columns. Images and audio, which Hugging Face datasets store as structs of bytes and a path, become
//! their bytes; the path, which refers to the original file, is dropped.

use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef, Fields, Schema};
use shardmill_core::Error;
use shardmill_parquet::{media_bytes, media_column};

use crate::base::{batch, map_rows, open_columns, project};
use crate::error;
use crate::expr::expanded;
use crate::{RowOrigin, Rows, SelectColumn, Source, TableFacts};

/// Returns a source with the named columns, or with all of them.
pub(crate) fn selected(
    source: Arc<dyn Source>,
    wanted: &[SelectColumn],
) -> Result<Arc<dyn Source>, Error> {
    let schema = source.schema();
    let mut columns = Vec::with_capacity(wanted.len());
    for column in expanded(wanted, &schema) {
        let (index, _) = schema
            .column_with_name(&column.name)
            .ok_or_else(|| error::no_column("--column", &column.name, &schema))?;
        if columns.contains(&index) {
            return Err(error::duplicate_column("--column", &column.name));
        }
        columns.push(index);
    }
    if wanted.is_empty() {
        columns.extend(0..schema.fields().len());
    }
    source.check_columns(&columns)?;
    Ok(bytes_of_media(source, columns))
}

/// Returns some columns of a source.
pub(crate) fn bytes_of_media(source: Arc<dyn Source>, columns: Vec<usize>) -> Arc<dyn Source> {
    let own = source.facts();
    let chosen = project(&own.schema, &columns);
    let media: Vec<Option<Field>> = chosen
        .fields()
        .iter()
        .map(|own| media_column(own))
        .collect();
    let are_media: Vec<bool> = media.iter().map(Option::is_some).collect();
    if !are_media.contains(&true) && columns.iter().copied().eq(0..own.schema.fields().len()) {
        return source;
    }
    // The source counts structs that are null, but the bytes in a struct can be null as well.
    let null_counts = columns.iter().zip(&are_media);
    let null_counts =
        null_counts.map(|(column, is_media)| source.null_count(*column).filter(|_| !is_media));
    let fields = chosen.fields().iter().zip(media);
    let fields: Fields = fields
        .map(|(field, bytes)| -> FieldRef { bytes.map_or_else(|| Arc::clone(field), Arc::new) })
        .collect();
    Arc::new(Selected {
        facts: own.with_columns(Arc::new(Schema::new(fields)), null_counts.collect()),
        columns,
        are_media,
        source,
    })
}

/// Some columns of a source.
struct Selected {
    source: Arc<dyn Source>,
    facts: TableFacts,
    /// For each column, its number in the source.
    columns: Vec<usize>,
    /// Whether each column has structs of bytes and a path in the source.
    are_media: Vec<bool>,
}

impl Selected {
    fn is_media(&self, column: usize) -> bool {
        self.are_media.get(column) == Some(&true)
    }
}

impl Source for Selected {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let own = columns.iter();
        let own: Vec<usize> = own
            .filter_map(|at| self.columns.get(*at).copied())
            .collect();
        let rows = open_columns(self.source.as_ref(), unit, &own)?;
        let are_media: Vec<bool> = columns.iter().map(|at| self.is_media(*at)).collect();
        if !are_media.contains(&true) {
            return Ok(rows);
        }
        let schema = project(&self.facts.schema, columns);
        Ok(map_rows(rows, move |found| {
            let columns = found.columns().iter().zip(&are_media);
            let columns = columns.map(|(column, is_media)| match is_media {
                true => media_bytes(column).map_err(|error| error::bug(error.to_string())),
                false => Ok(Arc::clone(column)),
            });
            let columns: Result<_, Error> = columns.collect();
            batch(&schema, columns?, found.num_rows())
        }))
    }

    fn unit_null_count(&self, unit: usize, column: usize) -> Option<u64> {
        let own = self.columns.get(column).filter(|_| !self.is_media(column));
        self.source.unit_null_count(unit, *own?)
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        self.source.row_origin(unit, row)
    }
}
