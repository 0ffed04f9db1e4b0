//! Columns that become text: strings, numbers, times, JSON.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type, UInt64Type};
use shardmill_mds::{TextEncoding, write_float, write_json_float, write_json_string};

use super::datums::{Datums, Offsets};
use super::json::{self, Node};
use super::{gathered, is_text};

/// Whether the type is a date, a time or a moment, which is stored in ISO 8601.
pub(crate) const fn is_temporal(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(..)
    )
}

/// Whether values of the type can stand as one text: strings, times, decimals, and JSON for what is nested.
pub(crate) fn is_representable(data_type: &DataType) -> bool {
    json::is_representable(data_type) && *data_type != DataType::Null
}

/// String columns as slices of the buffer they have.
pub(crate) fn string_slices(array: &ArrayRef) -> Option<Datums> {
    Some(match array.data_type() {
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            Datums::Sliced {
                bytes: values.values().clone(),
                offsets: Offsets::I32(values.offsets().clone()),
            }
        }
        DataType::LargeUtf8 => {
            let values = array.as_string::<i64>();
            Datums::Sliced {
                bytes: values.values().clone(),
                offsets: Offsets::I64(values.offsets().clone()),
            }
        }
        DataType::Utf8View => {
            let values = array.as_string_view();
            gathered((0..values.len()).map(|row| values.value(row).as_bytes()))
        }
        _ => return None,
    })
}

/// Renders every row into one buffer.
fn render(rows: usize, mut write: impl FnMut(usize, &mut Vec<u8>)) -> Datums {
    let mut bytes = Vec::with_capacity(rows * 8);
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0);
    for row in 0..rows {
        write(row, &mut bytes);
        offsets.push(bytes.len());
    }
    Datums::rendered(bytes, offsets)
}

/// The text of any representable value: strings as they are, times in ISO 8601, decimals in full, anything
/// nested as JSON.
pub(crate) fn rendered(array: &ArrayRef) -> Option<Datums> {
    match array.data_type() {
        data_type if is_text(data_type) => string_slices(array),
        data_type if is_temporal(data_type) => {
            string_slices(&cast(array, &DataType::LargeUtf8).ok()?)
        }
        DataType::Decimal128(..) | DataType::Decimal256(..) => number_texts(array),
        _ => json_texts(array),
    }
}

/// JSON texts, `null` for nulls.
pub(crate) fn json_texts(array: &ArrayRef) -> Option<Datums> {
    let node = Node::new(array)?;
    Some(render(array.len(), |row, out| node.write(row, out)))
}

/// Integers and decimals in Python's spelling.
pub(crate) fn number_texts(array: &ArrayRef) -> Option<Datums> {
    match array.data_type() {
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            let mut fit = true;
            let datums = render(array.len(), |row, out| {
                fit &= json::write_decimal_at(array, row, out).is_some()
            });
            fit.then_some(datums)
        }
        _ => integers(array),
    }
}

fn integers(array: &ArrayRef) -> Option<Datums> {
    if *array.data_type() == DataType::UInt64 {
        let values = array.as_primitive::<UInt64Type>();
        return Some(render(array.len(), |row, out| {
            json::write_integer(values.value(row).into(), out)
        }));
    }
    let wide = cast(array, &DataType::Int64).ok()?;
    let values = wide.as_primitive::<arrow::datatypes::Int64Type>();
    Some(render(array.len(), |row, out| {
        json::write_integer(values.value(row).into(), out)
    }))
}

/// Floats in the spelling of Python's `str(float)`. Single and half precision are widened first, as Python
/// widens them.
pub(crate) fn float_texts(array: &ArrayRef) -> Option<Datums> {
    floats(array, write_float)
}

fn floats(array: &ArrayRef, write: fn(f64, &mut Vec<u8>)) -> Option<Datums> {
    let rows = array.len();
    Some(match array.data_type() {
        DataType::Float16 => {
            let values = array.as_primitive::<Float16Type>();
            render(rows, |row, out| write(values.value(row).to_f64(), out))
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            render(rows, |row, out| write(values.value(row).into(), out))
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            render(rows, |row, out| write(values.value(row), out))
        }
        data_type if data_type.is_integer() => {
            let wide = cast(array, &DataType::Float64).ok()?;
            let values = wide.as_primitive::<Float64Type>();
            render(rows, |row, out| write(values.value(row), out))
        }
        _ => return None,
    })
}

/// Values for a JSON line.
pub(crate) fn json_values(array: &ArrayRef, encoding: TextEncoding) -> Option<Datums> {
    match encoding {
        TextEncoding::Int => integers(array),
        TextEncoding::Float => floats(array, write_json_float),
        TextEncoding::Str => {
            let texts = rendered(array)?;
            let mut fit = true;
            let datums = render(array.len(), |row, out| {
                match std::str::from_utf8(texts.value(row).1) {
                    Ok(text) => write_json_string(text, out),
                    Err(_) => fit = false,
                }
            });
            fit.then_some(datums)
        }
    }
}

/// Values for a line of separated values.
pub(crate) fn plain_values(array: &ArrayRef, encoding: TextEncoding) -> Option<Datums> {
    match encoding {
        TextEncoding::Int => integers(array),
        TextEncoding::Float => floats(array, write_float),
        TextEncoding::Str => rendered(array),
    }
}
