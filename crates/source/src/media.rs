//! Handles images and audio as Hugging Face datasets store them: structs of bytes and a path.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, make_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::base::{batch, map_rows};
use crate::source::first_null_by_reading;
use crate::{RowOrigin, Rows, Source, SourceDescription, SourceError, Unit};

/// Replaces each such struct with its bytes. The path, which refers to the original file, is dropped.
pub(crate) fn bytes_of_media(source: Arc<dyn Source>) -> Arc<dyn Source> {
    let schema = source.schema();
    let found: Vec<_> = schema.fields().iter().map(|field| media(field)).collect();
    if found.iter().all(Option::is_none) {
        return source;
    }
    let positions = found.iter().map(|found| Some(found.as_ref()?.0)).collect();
    let fields = schema.fields().iter().zip(found);
    let fields: Vec<Arc<Field>> = fields
        .map(|(field, found)| found.map_or_else(|| Arc::clone(field), |(_, bytes)| Arc::new(bytes)))
        .collect();
    Arc::new(Media {
        source,
        schema: Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())),
        positions,
    })
}

/// For a struct of exactly `bytes` and `path`, returns the position of the bytes and the resulting column.
fn media(field: &Field) -> Option<(usize, Field)> {
    use DataType::{Binary, BinaryView, LargeBinary, Struct};

    let Struct(children) = field.data_type() else {
        return None;
    };
    let (position, bytes) = children.find("bytes")?;
    let (_, path) = children.find("path")?;
    let fits = children.len() == 2
        && matches!(bytes.data_type(), Binary | LargeBinary | BinaryView)
        && path.data_type().is_string();
    let is_nullable = field.is_nullable() || bytes.is_nullable();
    let column = Field::new(field.name(), bytes.data_type().clone(), is_nullable)
        .with_metadata(field.metadata().clone());
    fits.then_some((position, column))
}

struct Media {
    source: Arc<dyn Source>,
    schema: SchemaRef,
    /// For each such column, the position of the bytes in its struct.
    positions: Arc<[Option<usize>]>,
}

impl Media {
    fn is_media(&self, column: usize) -> bool {
        self.positions.get(column).is_some_and(Option::is_some)
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
        let (schema, positions) = (Arc::clone(&self.schema), Arc::clone(&self.positions));
        Ok(map_rows(self.source.open_unit(unit)?, move |found| {
            let columns = found.columns().iter().zip(positions.iter());
            let columns = columns.map(|(column, position)| match position {
                Some(position) => bytes_of(column, *position),
                None => Ok(Arc::clone(column)),
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

/// Returns the bytes of structs; null if the struct or its bytes are null.
fn bytes_of(column: &ArrayRef, position: usize) -> Result<ArrayRef, SourceError> {
    let bug = |what: &str| SourceError::bug(format!("bytes of a struct: {what}"));
    let structs = column.as_struct_opt().ok_or_else(|| bug("no struct"))?;
    let bytes = structs.columns().get(position);
    let bytes = bytes.ok_or_else(|| bug("no such child"))?;
    let nulls = NullBuffer::union(column.nulls(), bytes.nulls());
    let data = bytes.to_data().into_builder().nulls(nulls).build();
    Ok(make_array(data.map_err(|error| bug(&error.to_string()))?))
}
