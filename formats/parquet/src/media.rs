//! Images and audio as Hugging Face datasets store them: structs of bytes and a path.

use arrow::array::{Array as _, ArrayRef, AsArray as _, make_array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;

/// The names of the parts of an image.
const BYTES: &str = "bytes";
const PATH: &str = "path";

/// For a column of structs of exactly `bytes` and `path`, returns the column of their bytes. The path, which refers to
/// the original file, is dropped.
#[must_use]
pub fn media_column(field: &Field) -> Option<Field> {
    use DataType::{Binary, BinaryView, LargeBinary, Struct};

    let Struct(children) = field.data_type() else {
        return None;
    };
    let (_, bytes) = children.find(BYTES)?;
    let (_, path) = children.find(PATH)?;
    let fits = children.len() == 2
        && matches!(bytes.data_type(), Binary | LargeBinary | BinaryView)
        && path.data_type().is_string();
    let is_nullable = field.is_nullable() || bytes.is_nullable();
    let column = Field::new(field.name(), bytes.data_type().clone(), is_nullable)
        .with_metadata(field.metadata().clone());
    fits.then_some(column)
}

/// Returns the bytes of the structs of a [`media_column`]; null if the struct or its bytes are null.
///
/// # Errors
///
/// An error of Arrow if the array has no such structs.
pub fn media_bytes(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let bytes = column
        .as_struct_opt()
        .and_then(|structs| structs.column_by_name(BYTES))
        .ok_or_else(|| ArrowError::SchemaError("there are no structs of bytes".to_owned()))?;
    let nulls = NullBuffer::union(column.nulls(), bytes.nulls());
    let data = bytes.to_data().into_builder().nulls(nulls).build();
    Ok(make_array(data?))
}
