//! The values of Arrow rows in the form of the values of samples.

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Field, Float16Type, Float32Type, Float64Type, Schema};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use shardmill_core::catch_panic::catch;
use shardmill_mds::Value;
use shardmill_mds::value_json::{begin_entry, write_list, write_value};
use shardmill_source::ENCODING_KEY;

/// A value of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowValue<'a> {
    /// The name of the column.
    pub name: &'a str,
    /// The value. Lists, structs and maps are JSON.
    pub value: &'a Value<'a>,
    /// The bytes of a text, of bytes, and of the text of a decimal or a time; empty for other values.
    pub bytes: &'a [u8],
}

/// Calls `show` with each value of a row. `schema` is that of the source.
pub fn show_row(
    schema: &Schema,
    batch: &RecordBatch,
    row: usize,
    show: &mut dyn FnMut(RowValue<'_>),
) {
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let (mut json, mut room) = (Vec::new(), String::new());
        let is_nested = write_nested(column, row, &mut json);
        let json = String::from_utf8_lossy(&json);
        let (value, bytes) = if is_nested {
            (Value::Json(&json), &[][..])
        } else {
            value_of(field, column, row, &mut room)
        };
        show(RowValue {
            name: field.name(),
            value: &value,
            bytes,
        });
    }
}

/// Appends a list, a struct or a map as JSON. Returns `false` for any other value.
fn write_nested(array: &ArrayRef, row: usize, out: &mut Vec<u8>) -> bool {
    if array.is_null(row) {
        return false;
    }
    let (item, values) = match array.data_type() {
        DataType::List(item) => (item, array.as_list::<i32>().value(row)),
        DataType::LargeList(item) => (item, array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(item, _) => (item, array.as_fixed_size_list().value(row)),
        DataType::ListView(item) => (item, array.as_list_view::<i32>().value(row)),
        DataType::LargeListView(item) => (item, array.as_list_view::<i64>().value(row)),
        DataType::Struct(fields) => {
            out.push(b'{');
            for (field, values) in fields.iter().zip(array.as_struct().columns()) {
                begin_entry(field.name(), out);
                write_item(field, values, row, out);
            }
            out.push(b'}');
            return true;
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let ([keys, values], [_, field]) = (entries.columns(), &**entries.fields()) else {
                return false;
            };
            out.push(b'{');
            for at in 0..entries.len() {
                begin_entry(&text(keys, at), out);
                write_item(field, values, at, out);
            }
            out.push(b'}');
            return true;
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys().get(row).copied();
            return key.is_some_and(|key| write_nested(dictionary.values(), key, out));
        }
        _ => return false,
    };
    write_list(0..values.len(), out, |at, out| {
        write_item(item, &values, at, out);
    });
    true
}

fn write_item(field: &Field, array: &ArrayRef, row: usize, out: &mut Vec<u8>) {
    if !write_nested(array, row, out) {
        write_value(
            &value_of(field, array, row, &mut String::new()).0,
            None,
            out,
        );
    }
}

/// Returns a value that is not nested, and its bytes. `room` holds the text of a value that Arrow does not store as text.
fn value_of<'a>(
    field: &Field,
    array: &'a ArrayRef,
    row: usize,
    room: &'a mut String,
) -> (Value<'a>, &'a [u8]) {
    let value = match array.data_type() {
        _ if array.is_null(row) => Value::Json("null"),
        DataType::Null => Value::Json("null"),
        DataType::Boolean if array.as_boolean().value(row) => Value::Json("true"),
        DataType::Boolean => Value::Json("false"),
        DataType::Float16 => Value::F32(array.as_primitive::<Float16Type>().value(row).to_f32()),
        DataType::Float32 => Value::F32(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => Value::F64(array.as_primitive::<Float64Type>().value(row)),
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            match dictionary.normalized_keys().get(row) {
                Some(key) => return value_of(field, dictionary.values(), *key, room),
                None => Value::Json("null"),
            }
        }
        integer if integer.is_integer() => {
            *room = text(array, row);
            Value::BigInt(room)
        }
        _ => {
            if let Some(text) = text_of(array, row) {
                let encoding = field.metadata().get(ENCODING_KEY);
                let value = if encoding.is_some_and(|name| name == "json") {
                    Value::Json(text)
                } else {
                    Value::Str(text)
                };
                return (value, text.as_bytes());
            }
            if let Some(bytes) = bytes_of(array, row) {
                return (Value::Bytes(bytes), bytes);
            }
            *room = text(array, row);
            let room: &str = room;
            return (Value::Decimal(room), room.as_bytes());
        }
    };
    (value, &[])
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
