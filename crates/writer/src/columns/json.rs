//! Writes Arrow values as JSON in the style of the original writers: separators `", "` and `": "`, ASCII only, keys in
//! field order.

use std::collections::BTreeSet;
use std::io::Write as _;

use arrow::array::{Array, ArrayRef, AsArray, LargeStringArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, DecimalType, Field, Float16Type,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use shardmill_core::{Limits, escape};
use shardmill_mds::{check_new_json, write_json_float, write_json_string};

use super::cell_text::{Texts, Unwritable, texts};
use super::encoded_column::{EncodedColumn, Offsets};
use super::types::{is_json, is_temporal};

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
        DataType::Null | DataType::Boolean => None,
        other if other.is_string() || is_temporal(other) => None,
        other if other.is_numeric() || other.is_binary() => None,
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
    /// Booleans and numbers, with the function that writes a value.
    Plain {
        array: ArrayRef,
        write: fn(&dyn Array, usize, &mut Vec<u8>),
    },
    Text(Texts),
    /// Texts that are JSON.
    Json(Texts),
    Struct {
        array: ArrayRef,
        fields: Vec<(Vec<u8>, Node)>,
    },
    List {
        array: ArrayRef,
        bounds: Offsets,
        values: Box<Node>,
    },
    Map {
        array: ArrayRef,
        bounds: Offsets,
        keys: Texts,
        values: Box<Node>,
    },
}

impl Node {
    /// Prepares an array inside of another one.
    fn child(array: &ArrayRef, field: &Field) -> Option<Self> {
        Some(match Self::new(array)? {
            Self::Text(texts) if is_json(field) && field.data_type().is_string() => {
                Self::Json(texts)
            }
            node => node,
        })
    }

    /// Prepares an array. Returns `None` for types that [`is_representable`] does not support.
    pub(crate) fn new(array: &ArrayRef) -> Option<Self> {
        let plain = |write| Self::Plain {
            array: ArrayRef::clone(array),
            write,
        };
        Some(match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Boolean => plain(|array, row, out| {
                let value = array.as_boolean().value(row);
                out.extend_from_slice(if value { b"true" } else { b"false" });
            }),
            DataType::Int8 => plain(write_int::<Int8Type>),
            DataType::Int16 => plain(write_int::<Int16Type>),
            DataType::Int32 => plain(write_int::<Int32Type>),
            DataType::Int64 => plain(write_int::<Int64Type>),
            DataType::UInt8 => plain(write_int::<UInt8Type>),
            DataType::UInt16 => plain(write_int::<UInt16Type>),
            DataType::UInt32 => plain(write_int::<UInt32Type>),
            DataType::UInt64 => plain(write_int::<UInt64Type>),
            DataType::Float16 => plain(write_number::<Float16Type>),
            DataType::Float32 => plain(write_number::<Float32Type>),
            DataType::Float64 => plain(write_number::<Float64Type>),
            DataType::Struct(fields) => {
                let columns = array.as_struct();
                let mut nodes = Vec::with_capacity(fields.len());
                for (field, column) in fields.iter().zip(columns.columns()) {
                    let mut key = Vec::new();
                    write_json_string(field.name(), &mut key);
                    key.extend_from_slice(b": ");
                    nodes.push((key, Self::child(column, field)?));
                }
                Self::Struct {
                    array: ArrayRef::clone(array),
                    fields: nodes,
                }
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                let (bounds, values) = Offsets::of_lists(array)?;
                Self::List {
                    array: ArrayRef::clone(array),
                    bounds,
                    values: Box::new(Self::child(values, item)?),
                }
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let (_, value) = map.entries_fields();
                Self::Map {
                    array: ArrayRef::clone(array),
                    bounds: Offsets::I32(map.offsets().clone()),
                    keys: match binary_texts(map.keys()) {
                        Some(keys) => keys.into(),
                        None => texts(map.keys())?,
                    },
                    values: Box::new(Self::child(map.values(), value)?),
                }
            }
            DataType::Dictionary(_, values) => Self::new(&cast(array, values).ok()?)?,
            DataType::Decimal128(..) | DataType::Decimal256(..) => plain(write_decimal_string),
            other if other.is_string() || is_temporal(other) => Self::Text(texts(array)?),
            _ => Self::Text(binary_texts(array)?.into()),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Null => true,
            Self::Text(texts) | Self::Json(texts) => texts.is_null(row),
            Self::Plain { array, .. }
            | Self::Struct { array, .. }
            | Self::List { array, .. }
            | Self::Map { array, .. } => array.is_null(row),
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
            Self::Plain { array, write } => write(array, row, out),
            Self::Text(texts) => write_json_string(texts.value(row)?, out),
            Self::Json(texts) => {
                let text = texts.value(row)?.trim_ascii();
                check_new_json(text.as_bytes(), &Limits::default()).map_err(Unwritable::Json)?;
                out.extend_from_slice(text.as_bytes());
            }
            Self::Struct { fields, .. } => {
                out.push(b'{');
                for (position, (key, node)) in fields.iter().enumerate() {
                    separate(position, out);
                    out.extend_from_slice(key);
                    node.write(row, out)?;
                }
                out.push(b'}');
            }
            Self::List { bounds, values, .. } => {
                out.push(b'[');
                for (position, at) in bounds.range(row).enumerate() {
                    separate(position, out);
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
                    separate(position, out);
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

/// Appends the separator before every element except the first.
fn separate(position: usize, out: &mut Vec<u8>) {
    if position > 0 {
        out.extend_from_slice(b", ");
    }
}

fn write_int<T: ArrowPrimitiveType<Native: Into<i128>>>(
    array: &dyn Array,
    row: usize,
    out: &mut Vec<u8>,
) {
    let value: i128 = array.as_primitive::<T>().value(row).into();
    // Writing to a `Vec` cannot fail.
    let _ = write!(out, "{value}");
}

fn write_number<T: ArrowPrimitiveType<Native: Into<f64>>>(
    array: &dyn Array,
    row: usize,
    out: &mut Vec<u8>,
) {
    write_json_float(array.as_primitive::<T>().value(row).into(), out);
}

/// Encodes a binary column as base64 with padding. Returns `None` for other types.
fn binary_texts(array: &ArrayRef) -> Option<LargeStringArray> {
    let is_binary = array.data_type().is_binary();
    let bytes = is_binary.then(|| EncodedColumn::slices(array))??;
    let text = |row| STANDARD.encode(bytes.value(row).1);
    let texts = (0..array.len()).map(|row| array.is_valid(row).then(|| text(row)));
    Some(texts.collect())
}

/// Appends one decimal as a JSON string.
fn write_decimal_string(array: &dyn Array, row: usize, out: &mut Vec<u8>) {
    out.push(b'"');
    // INVARIANT: the array holds decimals.
    let _ = write_decimal_at(array, row, out);
    out.push(b'"');
}

/// Appends one decimal, formatted like Python's `str(Decimal)`.
pub(crate) fn write_decimal_at(array: &dyn Array, row: usize, out: &mut Vec<u8>) -> Option<()> {
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
