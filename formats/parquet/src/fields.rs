//! The Arrow columns of a file.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema};
use parquet::file::metadata::ParquetMetaData;
use shardmill_core::catch_panic::attempt;
use shardmill_core::escape;

use crate::extension::with_logical_types;
use crate::int96::in_microseconds;

/// Why the columns of a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldsProblem {
    /// Two columns have this name.
    #[error("has two columns called `{}`", escape(.0))]
    Repeated(String),
    /// A column has a type that Arrow does not have.
    #[error("column `{}` has the type {data_type}, which is not supported", escape(.column))]
    Unsupported {
        /// The name of the column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// The schema is damaged.
    #[error("footer: {0}")]
    Damaged(String),
}

/// Returns the Arrow fields of a file. They follow the embedded Arrow schema, with plain values instead of dictionaries
/// and views, and with the extension types of UUIDs, JSON and variants.
///
/// # Errors
///
/// [`FieldsProblem`]
pub fn arrow_fields(metadata: &Arc<ParquetMetaData>) -> Result<Fields, FieldsProblem> {
    let footer = metadata.file_metadata();
    let schema = footer.schema_descr();
    let roots = schema.root_schema().get_fields();
    let mut seen = BTreeSet::new();
    if let Some(repeated) = roots.iter().find(|field| !seen.insert(field.name())) {
        return Err(FieldsProblem::Repeated(repeated.name().to_owned()));
    }
    let convert = |embedded| attempt(|| parquet_to_arrow_schema(schema, embedded));
    if let Ok(embedded) = convert(footer.key_value_metadata()) {
        let plain: Fields = embedded.fields().iter().map(plain_field).collect();
        let plain = in_microseconds(schema, &plain);
        if plain == *embedded.fields() {
            return Ok(with_logical_types(schema, &plain));
        }
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(plain.clone())));
        if attempt(|| ArrowReaderMetadata::try_new(Arc::clone(metadata), options)).is_ok() {
            return Ok(with_logical_types(schema, &plain));
        }
    }
    // Fall back to the Parquet schema if the embedded Arrow schema does not match it.
    match convert(None) {
        Ok(found) => {
            let found = in_microseconds(schema, found.fields());
            Ok(with_logical_types(schema, &found))
        }
        Err(reason) => Err(unsupported_type(metadata).unwrap_or(FieldsProblem::Damaged(reason))),
    }
}

/// Returns the first column that has no Arrow type.
fn unsupported_type(metadata: &ParquetMetaData) -> Option<FieldsProblem> {
    let schema = metadata.file_metadata().schema_descr();
    let mut roots = schema.root_schema().get_fields().iter().enumerate();
    roots.find_map(|(root, column)| {
        let mask = ProjectionMask::roots(schema, [root]);
        if attempt(|| parquet_to_arrow_field_levels(schema, mask, None)).is_ok() {
            return None;
        }
        let info = column.get_basic_info();
        let physical = if column.is_primitive() {
            column.get_physical_type().to_string()
        } else {
            "group".to_owned()
        };
        let data_type = match info.logical_type_ref() {
            Some(logical) => format!("{physical} ({logical:?})"),
            None => format!("{physical} ({})", info.converted_type()),
        };
        Some(FieldsProblem::Unsupported {
            column: column.name().to_owned(),
            data_type,
        })
    })
}

/// Returns a field without dictionaries, views and run ends.
#[must_use]
pub fn plain_field(field: &FieldRef) -> FieldRef {
    let plain = plain_type(field.data_type());
    if &plain == field.data_type() {
        return Arc::clone(field);
    }
    Arc::new(Field::clone(field).with_data_type(plain))
}

/// Returns a type without dictionaries, views and run ends.
fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => plain_type(value),
        DataType::RunEndEncoded(_, value) => plain_type(value.data_type()),
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(field) | DataType::ListView(field) => DataType::List(plain_field(field)),
        DataType::LargeList(field) | DataType::LargeListView(field) => {
            DataType::LargeList(plain_field(field))
        }
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(plain_field(field), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        DataType::Map(field, sorted) => DataType::Map(plain_field(field), *sorted),
        other => other.clone(),
    }
}
