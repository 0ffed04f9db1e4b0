//! Converts a table's schema to the Arrow types of its columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use delta_kernel::engine::arrow_conversion::TryIntoArrow as _;
use delta_kernel::schema::{DataType as DeltaType, PrimitiveType, StructField, StructType};

use shardmill_core::{ENCODING_KEY, Error, escape};

use crate::error::Problem;

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    /// The column as it is read. A variant becomes JSON text.
    pub field: FieldRef,
    /// The column in the schema of the table.
    pub definition: StructField,
}

impl Column {
    /// Returns whether the column has the `void` type: all rows are null, and files do not contain it.
    #[must_use]
    pub fn is_void(&self) -> bool {
        is_void(&self.definition)
    }
}

pub(crate) fn is_void(field: &StructField) -> bool {
    *field.data_type() == DeltaType::Primitive(PrimitiveType::Void)
}

/// Returns the columns of a table in the order of its schema.
pub(crate) fn columns(table: &str, schema: &StructType) -> Result<Vec<Column>, Error> {
    let column = |definition: &StructField| {
        Ok(Column {
            field: Arc::new(field(table, definition, definition.name())?),
            definition: definition.clone(),
        })
    };
    schema.fields().map(column).collect()
}

fn field(table: &str, field: &StructField, path: &str) -> Result<Field, Error> {
    let nullable = field.is_nullable() || is_void(field);
    named(table, field.name(), field.data_type(), nullable, path)
}

/// Returns a field of a type. A variant is marked as JSON.
fn named(
    table: &str,
    name: &str,
    data_type: &DeltaType,
    nullable: bool,
    path: &str,
) -> Result<Field, Error> {
    let field = Field::new(name, arrow_type(table, data_type, path)?, nullable);
    Ok(match data_type {
        DeltaType::Variant(_) => {
            let json = [(ENCODING_KEY.to_owned(), "json".to_owned())];
            field.with_metadata(json.into())
        }
        _ => field,
    })
}

fn arrow_type(table: &str, data_type: &DeltaType, path: &str) -> Result<DataType, Error> {
    let unsupported = || {
        let reason = format!(
            "column `{}` has the type {data_type}, which is not supported",
            escape(path)
        );
        Problem::Type.at(table, reason)
    };
    Ok(match data_type {
        DeltaType::Primitive(primitive) if primitive.is_interval() => return Err(unsupported()),
        DeltaType::Variant(_) => DataType::Utf8,
        DeltaType::Struct(inner) => {
            let fields = inner
                .fields()
                .map(|own| field(table, own, &format!("{path}.{}", own.name())));
            DataType::Struct(fields.collect::<Result<_, _>>()?)
        }
        DeltaType::Array(list) => {
            let path = format!("{path}[]");
            let item = named(
                table,
                "element",
                list.element_type(),
                list.contains_null(),
                &path,
            )?;
            DataType::List(Arc::new(item))
        }
        DeltaType::Map(map) => {
            let (key, value) = (format!("{path}.key"), format!("{path}.value"));
            let key = named(table, "key", map.key_type(), false, &key)?;
            let nullable = map.value_contains_null();
            let value = named(table, "value", map.value_type(), nullable, &value)?;
            let entry = Field::new_struct("key_value", vec![key, value], false);
            DataType::Map(Arc::new(entry), false)
        }
        other => other.try_into_arrow().map_err(|_| unsupported())?,
    })
}
