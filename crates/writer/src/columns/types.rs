//! Properties of column types, and the field metadata by which sources describe encoded values.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use shardmill_mds::Encoding;

pub use shardmill_core::ENCODING_KEY;

/// The field metadata key of the SQL expression that computes a column, for messages.
pub const EXPRESSION_KEY: &str = "shardmill:expression";

/// The field metadata key that describes how the values of a column are already encoded.
///
/// It is [`ENCODED_TEXT`] if a string column holds the decimal texts of integers of any size. It is `"true"` if the
/// bytes of a binary column already are values of the suggested encoding, read from another dataset.
pub const ENCODED_KEY: &str = "shardmill:encoded";

/// The value of [`ENCODED_KEY`] for integers of any size as text.
pub const ENCODED_TEXT: &str = "text";

/// Returns the text of a metadata key of a field.
pub(super) fn metadata<'a>(field: &'a Field, key: &str) -> Option<&'a str> {
    field.metadata().get(key).map(String::as_str)
}

pub(super) fn is_integer_text(field: &Field) -> bool {
    metadata(field, ENCODED_KEY) == Some(ENCODED_TEXT)
}

/// Returns whether the source declares the texts of a column as JSON.
pub(super) fn is_json(field: &Field) -> bool {
    metadata(field, ENCODING_KEY).is_some_and(|name| name.parse() == Ok(Encoding::Json))
}

/// Returns the MDS encoding of the values, if the column was read from MDS shards.
#[must_use]
pub fn encoded_as(field: &Field) -> Option<Encoding> {
    let name = metadata(field, ENCODING_KEY)?;
    (metadata(field, ENCODED_KEY) == Some("true")).then(|| name.parse().ok())?
}

/// Returns the type in which values are stored: dictionaries become their values, list views become lists, and decimals
/// get one width. [`ColumnEncoder`](super::ColumnEncoder) casts to it.
pub(super) fn stored_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        other => plain_type(other),
    }
}

/// Returns [`stored_type`] of an inner type, which keeps its dictionaries.
fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        other => with_children(other, plain_type),
    }
}

/// Returns a type with changed types inside it, in which list views are lists. A type without others inside it stays as
/// it is.
pub(super) fn with_children(data_type: &DataType, change: fn(&DataType) -> DataType) -> DataType {
    let child = |field: &FieldRef| -> FieldRef {
        let data_type = change(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    };
    match data_type {
        DataType::List(field) | DataType::ListView(field) => DataType::List(child(field)),
        DataType::LargeList(field) | DataType::LargeListView(field) => {
            DataType::LargeList(child(field))
        }
        DataType::FixedSizeList(field, len) => DataType::FixedSizeList(child(field), *len),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(child).collect()),
        DataType::Map(entries, sorted) => DataType::Map(child(entries), *sorted),
        other => other.clone(),
    }
}

/// Returns whether the type is a date, a time, a timestamp or a duration, which are stored in ISO 8601.
pub(super) fn is_temporal(data_type: &DataType) -> bool {
    data_type.is_temporal() && !matches!(data_type, DataType::Interval(_))
}
