//! Encodes columns as text: strings, numbers, times, JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeStringArray, LargeStringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type, TimeUnit, UInt64Type};
use shardmill_mds::{DType, TextEncoding, write_float, write_json_float, write_json_string};

use super::encoded_column::{EncodedColumn, Offsets};
use super::json::{self, Node, Unwritable};
use super::{gathered, is_binary, is_text, number};
use crate::error::RowError;

/// Returns whether the type is a date, a time, a timestamp or a duration, which are stored in ISO 8601.
pub(crate) const fn is_temporal(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Duration(_)
    )
}

/// Returns whether a value of the type can be written as one text: strings, times, decimals, and JSON for nested values
/// and for columns with only nulls.
pub(crate) fn is_representable(data_type: &DataType) -> bool {
    json::is_representable(data_type) && !is_binary(data_type)
}

/// Returns a string column as slices of its existing buffer.
pub(crate) fn string_slices(array: &ArrayRef) -> Option<EncodedColumn> {
    Some(match array.data_type() {
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            EncodedColumn::Sliced {
                bytes: values.values().clone(),
                offsets: Offsets::I32(values.offsets().clone()),
            }
        }
        DataType::LargeUtf8 => {
            let values = array.as_string::<i64>();
            EncodedColumn::Sliced {
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
fn render(rows: usize, mut write: impl FnMut(usize, &mut Vec<u8>)) -> EncodedColumn {
    let mut bytes = Vec::with_capacity(rows * 8);
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0);
    for row in 0..rows {
        write(row, &mut bytes);
        offsets.push(bytes.len());
    }
    EncodedColumn::rendered(bytes, offsets)
}

/// Renders every row into one buffer, and stops at the first error.
pub(crate) fn try_render(
    rows: usize,
    mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<(), RowError>,
) -> Result<EncodedColumn, RowError> {
    let mut failed = None;
    let encoded_column = render(rows, |row, out| {
        if failed.is_none() {
            failed = write(row, out).err();
        }
    });
    failed.map_or(Ok(encoded_column), Err)
}

/// Returns the error of a column whose type does not fit. The type check should have rejected it before.
fn unfit(array: &ArrayRef, encoding: &str) -> RowError {
    RowError {
        row: 0,
        reason: number::mismatch(array, encoding),
    }
}

/// A column as text.
pub(crate) struct Texts {
    array: LargeStringArray,
    /// The values that have no text, with a description of each.
    misfits: BTreeMap<usize, String>,
}

impl From<LargeStringArray> for Texts {
    fn from(array: LargeStringArray) -> Self {
        Self {
            array,
            misfits: BTreeMap::new(),
        }
    }
}

impl Texts {
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row)
    }

    /// Returns the text of value `row`.
    pub(crate) fn value(&self, row: usize) -> Result<&str, Unwritable> {
        match self.misfits.get(&row) {
            None => Ok(self.array.value(row)),
            Some(value) => Err(Unwritable::Time(value.clone())),
        }
    }
}

/// Returns the texts of a column, or `None` if the type has no text form. Times are in ISO 8601. Times outside the
/// calendar are errors only if the caller reads them.
pub(crate) fn texts(array: &ArrayRef) -> Option<Texts> {
    if let Ok(text) = cast(array, &DataType::LargeUtf8) {
        let text = text.as_string::<i64>();
        return Some(match array.data_type() {
            // A date has no time of day. If a value has one despite its type, it is kept.
            DataType::Date64 => text
                .iter()
                .map(|text| text.map(|text| text.strip_suffix("T00:00:00").unwrap_or(text)))
                .collect::<LargeStringArray>()
                .into(),
            _ => text.clone().into(),
        });
    }
    // An empty array fails to cast only because of its type: an unknown time zone.
    if !is_temporal(array.data_type()) || cast(&array.slice(0, 0), &DataType::LargeUtf8).is_err() {
        return None;
    }
    let mut builder = LargeStringBuilder::new();
    let mut misfits = BTreeMap::new();
    for row in 0..array.len() {
        let one = array.slice(row, 1);
        match texts_of_one(&one) {
            _ if array.is_null(row) => builder.append_null(),
            Some(text) => builder.append_value(text),
            None => {
                builder.append_value("");
                misfits.insert(row, beyond(&one));
            }
        }
    }
    Some(Texts {
        array: builder.finish(),
        misfits,
    })
}

/// Returns the text of the single value of an array, if it has one.
fn texts_of_one(array: &ArrayRef) -> Option<String> {
    cast(array, &DataType::LargeUtf8).ok()?;
    texts(array)?.value(0).ok().map(str::to_owned)
}

/// Describes a time outside the calendar, with its unit.
fn beyond(array: &ArrayRef) -> String {
    let number = number::to_bytes(array, DType::I64, "int64").ok();
    let number = number.and_then(|bytes| bytes.as_slice().try_into().ok());
    let number = i64::from_le_bytes(number.unwrap_or_default());
    let unit = |unit: &TimeUnit| match unit {
        TimeUnit::Second => "seconds",
        TimeUnit::Millisecond => "milliseconds",
        TimeUnit::Microsecond => "microseconds",
        TimeUnit::Nanosecond => "nanoseconds",
    };
    match array.data_type() {
        DataType::Date32 => format!("the date {number} days from 1970-01-01"),
        DataType::Date64 => format!("the date {number} milliseconds from 1970-01-01"),
        DataType::Timestamp(of, _) => format!("the time {number} {} from 1970-01-01", unit(of)),
        DataType::Time32(of) | DataType::Time64(of) => {
            format!("the time of day {number} {}", unit(of))
        }
        other => format!("a value of type {other}"),
    }
}

/// Renders any representable value: strings unchanged, times in ISO 8601, decimals in full, nested values as JSON.
/// `encoding` is for messages.
pub(crate) fn rendered(array: &ArrayRef, encoding: &str) -> Result<EncodedColumn, RowError> {
    match array.data_type() {
        data_type if is_text(data_type) => {
            string_slices(array).ok_or_else(|| unfit(array, encoding))
        }
        data_type if is_temporal(data_type) => {
            let texts = texts(array).ok_or_else(|| unfit(array, encoding))?;
            if let Some((row, value)) = texts.misfits.into_iter().next() {
                let reason = Unwritable::Time(value).reason(encoding);
                return Err(RowError { row, reason });
            }
            let array: ArrayRef = Arc::new(texts.array);
            string_slices(&array).ok_or_else(|| unfit(&array, encoding))
        }
        DataType::Decimal128(..) | DataType::Decimal256(..) => number_texts(array, encoding),
        _ => json_texts(array, encoding),
    }
}

/// Renders JSON texts. Nulls become `null`.
pub(crate) fn json_texts(array: &ArrayRef, encoding: &str) -> Result<EncodedColumn, RowError> {
    let node = Node::new(array).ok_or_else(|| unfit(array, encoding))?;
    try_render(array.len(), |row, out| {
        node.write(row, out).map_err(|error| RowError {
            row,
            reason: error.reason(encoding),
        })
    })
}

/// Formats integers and decimals like Python.
pub(crate) fn number_texts(array: &ArrayRef, encoding: &str) -> Result<EncodedColumn, RowError> {
    match array.data_type() {
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            try_render(array.len(), |row, out| {
                json::write_decimal_at(array, row, out).ok_or_else(|| unfit(array, encoding))
            })
        }
        _ => integers(array).ok_or_else(|| unfit(array, encoding)),
    }
}

fn integers(array: &ArrayRef) -> Option<EncodedColumn> {
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

/// Formats floats like Python's `str(float)`. Like Python, it widens single and half precision first.
pub(crate) fn float_texts(array: &ArrayRef, encoding: &str) -> Result<EncodedColumn, RowError> {
    floats(array, write_float).ok_or_else(|| unfit(array, encoding))
}

fn floats(array: &ArrayRef, write: fn(f64, &mut Vec<u8>)) -> Option<EncodedColumn> {
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

/// Encodes values for a JSON line.
pub(crate) fn json_values(
    array: &ArrayRef,
    encoding: TextEncoding,
) -> Result<EncodedColumn, RowError> {
    let name = encoding.to_string();
    let unfit = || unfit(array, &name);
    match encoding {
        TextEncoding::Int => integers(array).ok_or_else(unfit),
        TextEncoding::Float => floats(array, write_json_float).ok_or_else(unfit),
        TextEncoding::Str => {
            let texts = rendered(array, &name)?;
            try_render(array.len(), |row, out| {
                let text = std::str::from_utf8(texts.value(row).1).map_err(|_| unfit())?;
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
    let unfit = || unfit(array, &name);
    match encoding {
        TextEncoding::Int => integers(array).ok_or_else(unfit),
        TextEncoding::Float => floats(array, write_float).ok_or_else(unfit),
        TextEncoding::Str => rendered(array, &name),
    }
}
