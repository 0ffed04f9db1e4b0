//! Handles images and audio as Hugging Face datasets store them: structs of bytes and a path.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use shardmill_parquet::{media_bytes, media_column};

use crate::base::{batch, map_rows, project};
use crate::{RowOrigin, Rows, Source, SourceError, TableFacts};

/// Replaces each such struct with its bytes. The path, which refers to the original file, is dropped.
pub(crate) fn bytes_of_media(source: Arc<dyn Source>) -> Arc<dyn Source> {
    let own = source.facts();
    let found = own.schema.fields().iter().map(|field| media_column(field));
    let found: Vec<Option<Field>> = found.collect();
    if found.iter().all(Option::is_none) {
        return source;
    }
    let are_media: Vec<bool> = found.iter().map(Option::is_some).collect();
    // The source counts structs that are null, but the bytes in a struct can be null as well.
    let null_counts = own.null_counts.iter().zip(&are_media);
    let null_counts = null_counts.map(|(count, is_media)| count.filter(|_| !is_media));
    let fields = own.schema.fields().iter().zip(found);
    let fields: Vec<Arc<Field>> = fields
        .map(|(field, bytes)| bytes.map_or_else(|| Arc::clone(field), Arc::new))
        .collect();
    Arc::new(Media {
        facts: own.with_columns(Arc::new(Schema::new(fields)), null_counts.collect()),
        are_media,
        source,
    })
}

struct Media {
    source: Arc<dyn Source>,
    facts: TableFacts,
    /// Whether each column has such structs.
    are_media: Vec<bool>,
}

impl Media {
    fn is_media(&self, column: usize) -> bool {
        self.are_media.get(column) == Some(&true)
    }
}

impl Source for Media {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        let schema = project(&self.facts.schema, columns);
        let are_media: Vec<bool> = columns.iter().map(|at| self.is_media(*at)).collect();
        Ok(map_rows(self.source.open(unit, columns)?, move |found| {
            let columns = found.columns().iter().zip(&are_media);
            let columns = columns.map(|(column, is_media)| match is_media {
                true => media_bytes(column).map_err(|error| SourceError::bug(error.to_string())),
                false => Ok(Arc::clone(column)),
            });
            let columns: Result<_, SourceError> = columns.collect();
            batch(&schema, columns?, found.num_rows())
        }))
    }

    fn unit_null_count(&self, unit: usize, column: usize) -> Option<u64> {
        if self.is_media(column) {
            return None;
        }
        self.source.unit_null_count(unit, column)
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        self.source.row_origin(unit, row)
    }
}
