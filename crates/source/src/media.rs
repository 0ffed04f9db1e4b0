//! Handles images and audio as Hugging Face datasets store them: structs of bytes and a path.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use shardmill_parquet::{media_bytes, media_column};

use crate::base::{batch, map_rows};
use crate::source::first_null_by_reading;
use crate::{RowOrigin, Rows, Source, SourceDescription, SourceError, Unit};

/// Replaces each such struct with its bytes. The path, which refers to the original file, is dropped.
pub(crate) fn bytes_of_media(source: Arc<dyn Source>) -> Arc<dyn Source> {
    let schema = source.schema();
    let found = schema.fields().iter().map(|field| media_column(field));
    let found: Vec<Option<Field>> = found.collect();
    if found.iter().all(Option::is_none) {
        return source;
    }
    let are_media = found.iter().map(Option::is_some).collect();
    let fields = schema.fields().iter().zip(found);
    let fields: Vec<Arc<Field>> = fields
        .map(|(field, bytes)| bytes.map_or_else(|| Arc::clone(field), Arc::new))
        .collect();
    Arc::new(Media {
        source,
        schema: Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())),
        are_media,
    })
}

struct Media {
    source: Arc<dyn Source>,
    schema: SchemaRef,
    /// Whether each column has such structs.
    are_media: Arc<[bool]>,
}

impl Media {
    fn is_media(&self, column: usize) -> bool {
        self.are_media.get(column) == Some(&true)
    }
}

impl Source for Media {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn units(&self) -> &[Unit] {
        self.source.units()
    }

    fn open_unit(&self, unit: usize) -> Result<Box<dyn Rows>, SourceError> {
        let (schema, are_media) = (Arc::clone(&self.schema), Arc::clone(&self.are_media));
        Ok(map_rows(self.source.open_unit(unit)?, move |found| {
            let columns = found.columns().iter().zip(are_media.iter());
            let columns = columns.map(|(column, is_media)| match is_media {
                true => media_bytes(column).map_err(|error| SourceError::bug(error.to_string())),
                false => Ok(Arc::clone(column)),
            });
            let columns: Result<_, SourceError> = columns.collect();
            batch(&schema, columns?, found.num_rows())
        }))
    }

    fn null_count(&self, column: usize) -> Option<u64> {
        // The source counts structs that are null, but the bytes in a struct can be null as well.
        if self.is_media(column) {
            return None;
        }
        self.source.null_count(column)
    }

    fn first_null(&self, column: usize) -> Result<Option<RowOrigin>, SourceError> {
        if self.is_media(column) {
            return first_null_by_reading(self, column);
        }
        self.source.first_null(column)
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        self.source.row_origin(unit, row)
    }

    fn description(&self) -> &SourceDescription {
        self.source.description()
    }
}
