//! Writes Arrow values as JSON in the style of the original writers: separators `", "` and `": "`, ASCII only, keys in
//! field order.

use std::collections::BTreeSet;

use arrow::array::{Array, ArrayRef, AsArray, LargeStringArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, DecimalType, Float16Type, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use shardmill_core::escape;
use shardmill_mds::{write_json_float, write_json_string};

use super::cell_text::{Texts, Unwritable, texts};
use super::encoded_column::bytes_slices;
use super::types::is_binary;

/// Returns whether values of this type can be written as JSON. Decimals, times and durations become strings, bytes
/// become base64 strings.
pub(crate) fn is_representable(data_type: &DataType) -> bool {
    obstacle(data_type, "").is_none()
}

/// Describes the part of a type that cannot be written as JSON, and why. `path` names the part.
pub(crate) fn obstacle(data_type: &DataType, path: &str) -> Option<String> {
    match data_type {
        DataType::Struct(fields) => {
            let mut seen = BTreeSet::new();
            fields.iter().find_map(|field| {
                if !seen.insert(field.name()) {
                    let name = escape(field.name());
                    return Some(format!("`{}` has two fields `{name}`", escape(path)));
                }
                obstacle(field.data_type(), &format!("{path}.{}", field.name()))
            })
        }
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            obstacle(field.data_type(), &format!("{path}[]"))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => fields
                .iter()
                .find_map(|field| obstacle(field.data_type(), &format!("{path}[]"))),
            _ => Some(no_form(path, data_type)),
        },
        DataType::Dictionary(_, values) => obstacle(values, path),
        DataType::Null
        | DataType::Boolean
        | DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_) => None,
        other if other.is_numeric() || is_binary(other) => None,
        other => Some(no_form(path, other)),
    }
}

fn no_form(path: &str, data_type: &DataType) -> String {
    format!(
        "`{}` is {data_type}, which has no form in JSON",
        escape(path)
    )
}

/// A downcast array. The downcasts are done once, so that reading a value costs only a match.
pub(crate) enum Node {
    Null,
    Bool(arrow::array::BooleanArray),
    I8(arrow::array::Int8Array),
    I16(arrow::array::Int16Array),
    I32(arrow::array::Int32Array),
    I64(arrow::array::Int64Array),
    U8(arrow::array::UInt8Array),
    U16(arrow::array::UInt16Array),
    U32(arrow::array::UInt32Array),
    U64(arrow::array::UInt64Array),
    F16(arrow::array::Float16Array),
    F32(arrow::array::Float32Array),
    F64(arrow::array::Float64Array),
    Text(Texts),
    Struct {
        array: ArrayRef,
        fields: Vec<(Vec<u8>, Node)>,
    },
    List {
        array: ArrayRef,
        bounds: Bounds,
        values: Box<Node>,
    },
    Map {
        array: ArrayRef,
        bounds: Bounds,
        keys: Texts,
        values: Box<Node>,
    },
}

pub(crate) enum Bounds {
    I32(arrow::buffer::OffsetBuffer<i32>),
    I64(arrow::buffer::OffsetBuffer<i64>),
    Fixed(usize),
}

impl Bounds {
    fn range(&self, row: usize) -> std::ops::Range<usize> {
        let usize_of = |offset: i64| usize::try_from(offset).unwrap_or(0);
        match self {
            Self::I32(offsets) => usize_of(offsets[row].into())..usize_of(offsets[row + 1].into()),
            Self::I64(offsets) => usize_of(offsets[row])..usize_of(offsets[row + 1]),
            Self::Fixed(len) => row * len..(row + 1) * len,
        }
    }
}

impl Node {
    /// Prepares an array. Returns `None` for types that [`is_representable`] does not support.
    pub(crate) fn new(array: &ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bool(array.as_boolean().clone()),
            DataType::Int8 => Self::I8(array.as_primitive::<Int8Type>().clone()),
            DataType::Int16 => Self::I16(array.as_primitive::<Int16Type>().clone()),
            DataType::Int32 => Self::I32(array.as_primitive::<Int32Type>().clone()),
            DataType::Int64 => Self::I64(array.as_primitive::<Int64Type>().clone()),
            DataType::UInt8 => Self::U8(array.as_primitive::<UInt8Type>().clone()),
            DataType::UInt16 => Self::U16(array.as_primitive::<UInt16Type>().clone()),
            DataType::UInt32 => Self::U32(array.as_primitive::<UInt32Type>().clone()),
            DataType::UInt64 => Self::U64(array.as_primitive::<UInt64Type>().clone()),
            DataType::Float16 => Self::F16(array.as_primitive::<Float16Type>().clone()),
            DataType::Float32 => Self::F32(array.as_primitive::<Float32Type>().clone()),
            DataType::Float64 => Self::F64(array.as_primitive::<Float64Type>().clone()),
            DataType::Struct(fields) => {
                let columns = array.as_struct();
                let mut nodes = Vec::with_capacity(fields.len());
                for (field, column) in fields.iter().zip(columns.columns()) {
                    let mut key = Vec::new();
                    write_json_string(field.name(), &mut key);
                    key.extend_from_slice(b": ");
                    nodes.push((key, Self::new(column)?));
                }
                Self::Struct {
                    array: ArrayRef::clone(array),
                    fields: nodes,
                }
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Self::list(array, Bounds::I32(list.offsets().clone()), list.values())?
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                Self::list(array, Bounds::I64(list.offsets().clone()), list.values())?
            }
            DataType::FixedSizeList(_, len) => {
                let len = usize::try_from(*len).ok()?;
                Self::list(
                    array,
                    Bounds::Fixed(len),
                    array.as_fixed_size_list().values(),
                )?
            }
            DataType::Map(..) => {
                let map = array.as_map();
                Self::Map {
                    array: ArrayRef::clone(array),
                    bounds: Bounds::I32(map.offsets().clone()),
                    keys: match binary_texts(map.keys()) {
                        Some(keys) => keys.into(),
                        None => texts(map.keys())?,
                    },
                    values: Box::new(Self::new(map.values())?),
                }
            }
            DataType::Dictionary(_, values) => Self::new(&cast(array, values).ok()?)?,
            DataType::Decimal128(..) | DataType::Decimal256(..) => {
                Self::Text(decimals(array)?.into())
            }
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(..)
            | DataType::Duration(_) => Self::Text(texts(array)?),
            _ => Self::Text(binary_texts(array)?.into()),
        })
    }

    fn list(array: &ArrayRef, bounds: Bounds, values: &ArrayRef) -> Option<Self> {
        Some(Self::List {
            array: ArrayRef::clone(array),
            bounds,
            values: Box::new(Self::new(values)?),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(array) => array.is_null(row),
            Self::I8(array) => array.is_null(row),
            Self::I16(array) => array.is_null(row),
            Self::I32(array) => array.is_null(row),
            Self::I64(array) => array.is_null(row),
            Self::U8(array) => array.is_null(row),
            Self::U16(array) => array.is_null(row),
            Self::U32(array) => array.is_null(row),
            Self::U64(array) => array.is_null(row),
            Self::F16(array) => array.is_null(row),
            Self::F32(array) => array.is_null(row),
            Self::F64(array) => array.is_null(row),
            Self::Text(texts) => texts.is_null(row),
            Self::Struct { array, .. } | Self::List { array, .. } | Self::Map { array, .. } => {
                array.is_null(row)
            }
        }
    }

    /// Appends the JSON text of value `row`.
    pub(crate) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Unwritable> {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        match self {
            Self::Null => {}
            Self::Bool(array) => {
                out.extend_from_slice(if array.value(row) { b"true" } else { b"false" })
            }
            Self::I8(array) => write_integer(array.value(row).into(), out),
            Self::I16(array) => write_integer(array.value(row).into(), out),
            Self::I32(array) => write_integer(array.value(row).into(), out),
            Self::I64(array) => write_integer(array.value(row).into(), out),
            Self::U8(array) => write_integer(array.value(row).into(), out),
            Self::U16(array) => write_integer(array.value(row).into(), out),
            Self::U32(array) => write_integer(array.value(row).into(), out),
            Self::U64(array) => write_integer(array.value(row).into(), out),
            Self::F16(array) => write_json_float(array.value(row).to_f64(), out),
            Self::F32(array) => write_json_float(array.value(row).into(), out),
            Self::F64(array) => write_json_float(array.value(row), out),
            Self::Text(texts) => write_json_string(texts.value(row)?, out),
            Self::Struct { fields, .. } => {
                out.push(b'{');
                for (position, (key, node)) in fields.iter().enumerate() {
                    if position > 0 {
                        out.extend_from_slice(b", ");
                    }
                    out.extend_from_slice(key);
                    node.write(row, out)?;
                }
                out.push(b'}');
            }
            Self::List { bounds, values, .. } => {
                out.push(b'[');
                for (position, at) in bounds.range(row).enumerate() {
                    if position > 0 {
                        out.extend_from_slice(b", ");
                    }
                    values.write(at, out)?;
                }
                out.push(b']');
            }
            Self::Map {
                bounds,
                keys,
                values,
                ..
            } => {
                let mut seen = BTreeSet::new();
                out.push(b'{');
                for (position, at) in bounds.range(row).enumerate() {
                    if position > 0 {
                        out.extend_from_slice(b", ");
                    }
                    let key = keys.value(at)?;
                    if !seen.insert(key) {
                        return Err(Unwritable::Key(key.to_owned()));
                    }
                    write_json_string(key, out);
                    out.extend_from_slice(b": ");
                    values.write(at, out)?;
                }
                out.push(b'}');
            }
        }
        Ok(())
    }
}

/// Appends an integer in plain decimal.
pub(crate) fn write_integer(value: i128, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing to a `Vec` cannot fail.
    let _ = write!(out, "{value}");
}

/// Encodes a binary column as base64 with padding. Returns `None` for other types.
fn binary_texts(array: &ArrayRef) -> Option<LargeStringArray> {
    let bytes = bytes_slices(array)?;
    let rows = 0..array.len();
    let texts = rows.map(|row| {
        array
            .is_valid(row)
            .then(|| STANDARD.encode(bytes.value(row).1))
    });
    Some(texts.collect())
}

/// Formats decimals like Python's `str(Decimal)`.
pub(crate) fn decimals(array: &ArrayRef) -> Option<LargeStringArray> {
    let rows = array.len();
    let mut builder = arrow::array::LargeStringBuilder::with_capacity(rows, rows * 8);
    let mut text = Vec::new();
    for row in 0..rows {
        if array.is_null(row) {
            builder.append_null();
            continue;
        }
        text.clear();
        write_decimal_at(array, row, &mut text)?;
        builder.append_value(std::str::from_utf8(&text).ok()?);
    }
    Some(builder.finish())
}

/// Appends one decimal, formatted like Python's `str(Decimal)`.
pub(crate) fn write_decimal_at(array: &ArrayRef, row: usize, out: &mut Vec<u8>) -> Option<()> {
    let (unscaled, scale) = match array.data_type() {
        DataType::Decimal128(precision, scale) => {
            let value = array.as_primitive::<Decimal128Type>().value(row);
            (Decimal128Type::format_decimal(value, *precision, 0), *scale)
        }
        DataType::Decimal256(precision, scale) => {
            let value = array.as_primitive::<Decimal256Type>().value(row);
            (Decimal256Type::format_decimal(value, *precision, 0), *scale)
        }
        _ => return None,
    };
    let (negative, digits) = match unscaled.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, unscaled.as_str()),
    };
    shardmill_mds::write_decimal(negative, digits, i32::from(scale), out);
    Some(())
}
