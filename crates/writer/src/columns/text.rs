//! Encodes columns as text: strings, numbers, times, JSON.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type};
use shardmill_mds::{TextEncoding, write_float, write_json_float, write_json_string};

use super::cell_text::{Unwritable, texts};
use super::encoded_column::EncodedColumn;
use super::json::{self, Node};
use super::types::is_temporal;
use crate::error::RowError;

/// Returns whether a value of the type can be written as one text: strings, times, decimals, and JSON for nested values
/// and for columns with only nulls.
pub(crate) fn is_representable(data_type: &DataType) -> bool {
    json::is_representable(data_type) && !data_type.is_binary()
}

/// Renders any representable value: strings unchanged, times in ISO 8601, decimals in full, nested values as JSON.
/// `encoding` is for messages.
pub(crate) fn rendered(array: &ArrayRef, encoding: &str) -> Result<EncodedColumn, RowError> {
    match array.data_type() {
        data_type if data_type.is_string() => {
            EncodedColumn::texts(array).ok_or_else(|| RowError::unfit(array.data_type(), encoding))
        }
        data_type if is_temporal(data_type) => {
            let texts = texts(array).ok_or_else(|| RowError::unfit(array.data_type(), encoding))?;
            if let Some((row, value)) = texts.misfits.into_iter().next() {
                let reason = Unwritable::Time(value).reason(encoding);
                return Err(RowError { row, reason });
            }
            let array: ArrayRef = Arc::new(texts.array);
            EncodedColumn::texts(&array).ok_or_else(|| RowError::unfit(array.data_type(), encoding))
        }
        DataType::Decimal128(..) | DataType::Decimal256(..) => number_texts(array, encoding),
        _ => json_texts(array, encoding),
    }
}

/// Renders JSON texts. Nulls become `null`.
pub(crate) fn json_texts(array: &ArrayRef, encoding: &str) -> Result<EncodedColumn, RowError> {
    let node = Node::new(array).ok_or_else(|| RowError::unfit(array.data_type(), encoding))?;
    EncodedColumn::try_render(array.len(), |row, out| {
        node.write(row, out)
            .map_err(|error| RowError::at(row)(error.reason(encoding)))
    })
}

/// Formats integers and decimals like Python.
pub(crate) fn number_texts(array: &ArrayRef, encoding: &str) -> Result<EncodedColumn, RowError> {
    let unfit = || RowError::unfit(array.data_type(), encoding);
    match array.data_type() {
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            EncodedColumn::try_render(array.len(), |row, out| {
                json::write_decimal_at(array, row, out).ok_or_else(unfit)
            })
        }
        DataType::UInt64 => json_texts(array, encoding),
        // Booleans become 0 and 1.
        _ => json_texts(
            &cast(array, &DataType::Int64).map_err(|_| unfit())?,
            encoding,
        ),
    }
}

/// Formats floats like Python's `str(float)`. Like Python, it widens single and half precision first.
pub(crate) fn float_texts(array: &ArrayRef, encoding: &str) -> Result<EncodedColumn, RowError> {
    floats(array, encoding, write_float)
}

fn floats(
    array: &ArrayRef,
    encoding: &str,
    write: fn(f64, &mut Vec<u8>),
) -> Result<EncodedColumn, RowError> {
    let data_type = array.data_type();
    let is_number = data_type.is_floating() || data_type.is_integer();
    let wide = is_number.then(|| cast(array, &DataType::Float64).ok());
    let wide = wide.flatten();
    let wide = wide.ok_or_else(|| RowError::unfit(data_type, encoding))?;
    let values = wide.as_primitive::<Float64Type>();
    Ok(EncodedColumn::render(array.len(), |row, out| {
        write(values.value(row), out)
    }))
}

/// Encodes values for a JSON line.
pub(crate) fn json_values(
    array: &ArrayRef,
    encoding: TextEncoding,
) -> Result<EncodedColumn, RowError> {
    let name = encoding.to_string();
    match encoding {
        TextEncoding::Int => number_texts(array, &name),
        TextEncoding::Float => floats(array, &name, write_json_float),
        TextEncoding::Str => {
            let texts = rendered(array, &name)?;
            EncodedColumn::try_render(array.len(), |row, out| {
                let text = std::str::from_utf8(texts.value(row).1)
                    .map_err(|_| RowError::unfit(array.data_type(), &name))?;
                write_json_string(text, out);
                Ok(())
            })
        }
    }
}

/// Encodes values for a line of separated values.
pub(crate) fn plain_values(
    array: &ArrayRef,
    encoding: TextEncoding,
) -> Result<EncodedColumn, RowError> {
    let name = encoding.to_string();
    match encoding {
        TextEncoding::Int => number_texts(array, &name),
        TextEncoding::Float => float_texts(array, &name),
        TextEncoding::Str => rendered(array, &name),
    }
}
