//! Single values of Arrow columns as values that need no Arrow.

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch};
use arrow::datatypes::{
    DataType, Field, Fields, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use shardmill_core::catch_panic::catch;
use shardmill_source::{ENCODING_KEY, Source};

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// No value.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A 16-bit or 32-bit float.
    Float32(f32),
    /// A 64-bit float.
    Float(f64),
    /// Text.
    Text(String),
    /// JSON as it was written.
    Json(String),
    /// A decimal, date, time or interval as text.
    Literal(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// The values of a list.
    List(Vec<Cell>),
    /// The fields of a struct, or the entries of a map, by their names.
    Struct(Vec<(String, Cell)>),
}

impl Cell {
    /// Returns the value of a row of a column, whose texts may be JSON.
    fn in_field(field: &Field, array: &ArrayRef, row: usize) -> Self {
        let is_json = field
            .metadata()
            .get(ENCODING_KEY)
            .is_some_and(|name| name == "json");
        match Self::of(array, row) {
            Self::Text(text) if is_json => Self::Json(text),
            cell => cell,
        }
    }

    /// Returns the value of a row.
    #[must_use]
    pub fn of(array: &ArrayRef, row: usize) -> Self {
        if array.is_null(row) {
            return Self::Null;
        }
        match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bool(array.as_boolean().value(row)),
            DataType::Float16 => {
                Self::Float32(array.as_primitive::<Float16Type>().value(row).to_f32())
            }
            DataType::Float32 => Self::Float32(array.as_primitive::<Float32Type>().value(row)),
            DataType::Float64 => Self::Float(array.as_primitive::<Float64Type>().value(row)),
            DataType::List(item) => list(item, &array.as_list::<i32>().value(row)),
            DataType::LargeList(item) => list(item, &array.as_list::<i64>().value(row)),
            DataType::FixedSizeList(item, _) => list(item, &array.as_fixed_size_list().value(row)),
            DataType::ListView(item) => list(item, &array.as_list_view::<i32>().value(row)),
            DataType::LargeListView(item) => list(item, &array.as_list_view::<i64>().value(row)),
            DataType::Struct(fields) => {
                let values = array.as_struct().columns();
                let values = fields.iter().zip(values);
                Self::Struct(
                    values
                        .map(|(field, values)| {
                            (field.name().clone(), Self::in_field(field, values, row))
                        })
                        .collect(),
                )
            }
            DataType::Map(..) => {
                let entries = array.as_map().value(row);
                match (entries.columns(), &**entries.fields()) {
                    ([keys, values], [_, field]) => Self::Struct(
                        (0..entries.len())
                            .map(|at| (text(keys, at), Self::in_field(field, values, at)))
                            .collect(),
                    ),
                    _ => Self::Null,
                }
            }
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                match dictionary.normalized_keys().get(row) {
                    Some(key) => Self::of(dictionary.values(), *key),
                    None => Self::Null,
                }
            }
            _ => match (
                text_of(array, row),
                bytes_of(array, row),
                int_of(array, row),
            ) {
                (Some(text), _, _) => Self::Text(text.to_owned()),
                (_, Some(bytes), _) => Self::Bytes(bytes.to_owned()),
                (_, _, Some(number)) => Self::Int(number),
                _ => Self::Literal(text(array, row)),
            },
        }
    }
}

/// The columns of a source.
#[derive(Clone, Debug)]
pub(crate) struct RowShape {
    /// Their names.
    pub(crate) names: Vec<String>,
    fields: Fields,
}

impl RowShape {
    pub(crate) fn of(source: &dyn Source) -> Self {
        let schema = source.schema();
        let names = schema.fields().iter().map(|field| field.name().clone());
        Self {
            names: names.collect(),
            fields: schema.fields().clone(),
        }
    }

    /// Returns the values of a row, one for each column.
    pub(crate) fn cells(&self, batch: &RecordBatch, row: usize) -> Vec<Cell> {
        let columns = self.fields.iter().zip(batch.columns());
        let cells = columns.map(|(field, column)| Cell::in_field(field, column, row));
        cells.collect()
    }
}

fn list(item: &Field, values: &ArrayRef) -> Cell {
    let cells = (0..values.len()).map(|at| Cell::in_field(item, values, at));
    Cell::List(cells.collect())
}

/// Returns a value as text, in the form of Arrow.
pub(crate) fn text(array: &dyn Array, row: usize) -> String {
    let options = FormatOptions::default();
    // A time whose local time is outside the calendar makes the formatter panic.
    let shown = catch(|| match ArrayFormatter::try_new(array, &options) {
        Ok(formatter) => formatter.value(row).to_string(),
        Err(error) => error.to_string(),
    });
    shown.unwrap_or_else(|reason| reason)
}

/// Returns the value of a column of text.
pub(crate) fn text_of(array: &dyn Array, row: usize) -> Option<&str> {
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row),
        DataType::Utf8View => array.as_string_view().value(row),
        _ => return None,
    })
}

/// Returns the value of a column of bytes.
pub(crate) fn bytes_of(array: &dyn Array, row: usize) -> Option<&[u8]> {
    Some(match array.data_type() {
        DataType::Binary => array.as_binary::<i32>().value(row),
        DataType::LargeBinary => array.as_binary::<i64>().value(row),
        DataType::BinaryView => array.as_binary_view().value(row),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value(row),
        _ => return None,
    })
}

/// Returns the value of a column of integers.
pub(crate) fn int_of(array: &dyn Array, row: usize) -> Option<i128> {
    Some(match array.data_type() {
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        _ => return None,
    })
}
