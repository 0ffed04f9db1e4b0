//! From Arrow columns to the fields of WebDataset samples.

use std::fmt;
use std::str::FromStr;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{filter, is_not_null};
use arrow::datatypes::{DataType, Field};
use shardmill_core::Limits;
use shardmill_mds::{DType, Encoding, ImageKind, NdArray, Value, check_datum};
use shardmill_webdataset::{Array as Tensor, Datum, FieldError, FieldKind, encode, npy_header};

use super::datums::Datums;
use super::{
    ENCODED_KEY, ENCODING_KEY, Target, bytes_slices, is_binary, is_text, json, list, number, text,
    value_type,
};
use crate::error::{RowError, ValueReason, WriteError};

/// How a value becomes the bytes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldEncoding {
    /// Bytes as they are.
    Bytes,
    /// Text in UTF-8.
    Str,
    /// A whole number in ASCII.
    Int,
    /// JSON.
    Json,
    /// A NumPy file.
    Npy,
    /// One array in the original's own form.
    Ten,
}

impl FieldEncoding {
    /// Every encoding.
    pub const ALL: [Self; 6] = [
        Self::Bytes,
        Self::Str,
        Self::Int,
        Self::Json,
        Self::Npy,
        Self::Ten,
    ];

    /// Its name: `bytes`, `str`, `int`, `json`, `npy`, `ten`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Str => "str",
            Self::Int => "int",
            Self::Json => "json",
            Self::Npy => "npy",
            Self::Ten => "ten",
        }
    }

    /// The extension by which readers know it.
    const fn extension(self) -> Option<&'static str> {
        match self {
            Self::Bytes => None,
            Self::Str => Some("txt"),
            Self::Int => Some("cls"),
            Self::Json => Some("json"),
            Self::Npy => Some("npy"),
            Self::Ten => Some("ten"),
        }
    }
}

impl fmt::Display for FieldEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is none of the encodings of fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown encoding `{}`", shardmill_core::escape(name))]
pub struct ParseFieldEncodingError {
    /// The name as given.
    pub name: String,
}

impl FromStr for FieldEncoding {
    type Err = ParseFieldEncodingError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|encoding| encoding.name() == name)
            .ok_or_else(|| ParseFieldEncodingError {
                name: name.to_owned(),
            })
    }
}

/// The MDS encoding of the values of a column that was read from MDS shards.
fn encoded_as(field: &Field) -> Option<Encoding> {
    let is_encoded = field
        .metadata()
        .get(ENCODED_KEY)
        .is_some_and(|value| value == "true");
    let name = field.metadata().get(ENCODING_KEY)?;
    is_encoded.then(|| name.parse().ok()).flatten()
}

/// The field that a column becomes when nobody says: its name with the extension by which readers know what is in it,
/// unless it has one already; and the encoding.
///
/// # Errors
///
/// [`WriteError::TypeUnsupported`] for types without a form.
pub fn default_field(field: &Field) -> Result<(String, FieldEncoding), WriteError> {
    let unsupported = |hint: &str| WriteError::TypeUnsupported {
        column: field.name().clone(),
        data_type: field.data_type().to_string(),
        encoding: "a field of webdataset".to_owned(),
        hint: Some(hint.to_owned()),
    };
    let name = field.name();
    let with = |extension: &str, known: &[&str]| {
        let last = name.rsplit('.').next().unwrap_or(name);
        if known.contains(&last) {
            name.clone()
        } else {
            format!("{name}.{extension}")
        }
    };
    match encoded_as(field) {
        Some(Encoding::Image(ImageKind::Jpeg)) => {
            return Ok((with("jpg", &["jpg", "jpeg"]), FieldEncoding::Bytes));
        }
        Some(Encoding::Image(ImageKind::Png)) => {
            return Ok((with("png", &["png"]), FieldEncoding::Bytes));
        }
        Some(Encoding::Pkl) => {
            let name = with("pkl", &["pkl", "pickle", "pyd"]);
            return Ok((name, FieldEncoding::Bytes));
        }
        Some(Encoding::Image(ImageKind::Pil) | Encoding::JpegArray { .. } | Encoding::List(_)) => {
            return Err(unsupported(
                "only MDS knows its form: leave the column out by naming the others with --column",
            ));
        }
        _ => {}
    }
    let encoding = default_encoding(field)
        .ok_or_else(|| unsupported("leave the column out with --select or --column"))?;
    let (kind, _) = FieldKind::of(name);
    let fits = match encoding {
        FieldEncoding::Bytes => true,
        // Text is stored as it is, whatever the extension says.
        FieldEncoding::Str => kind != FieldKind::Other,
        FieldEncoding::Int => matches!(kind, FieldKind::Int | FieldKind::Json),
        FieldEncoding::Json => kind == FieldKind::Json,
        FieldEncoding::Npy => kind == FieldKind::Npy,
        FieldEncoding::Ten => kind == FieldKind::Tensors,
    };
    Ok(match encoding.extension() {
        Some(extension) if !fits => (format!("{name}.{extension}"), encoding),
        _ => (name.clone(), encoding),
    })
}

/// The encoding that follows from the type.
pub(crate) fn default_encoding(field: &Field) -> Option<FieldEncoding> {
    let data_type = value_type(field.data_type());
    Some(match (data_type, encoded_as(field)) {
        (_, Some(Encoding::NdArray { .. })) => FieldEncoding::Npy,
        (_, Some(Encoding::Json)) => FieldEncoding::Json,
        (other, _) if is_binary(other) => FieldEncoding::Bytes,
        (other, _) if is_text(other) || text::is_temporal(other) => FieldEncoding::Str,
        (DataType::Boolean, _) => FieldEncoding::Int,
        (DataType::Decimal128(..) | DataType::Decimal256(..), _) => FieldEncoding::Str,
        (other, _) if other.is_integer() => FieldEncoding::Int,
        (other, _) if other.is_floating() => FieldEncoding::Json,
        (DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..), _) => {
            let (leaf, levels) = list::leaf_type(data_type);
            let is_array = number::dtype_of(leaf).is_some()
                && (levels == 1 || list::static_shape(data_type).is_some());
            match is_array {
                true => FieldEncoding::Npy,
                false if json::is_representable(data_type) => FieldEncoding::Json,
                false => return None,
            }
        }
        (other, _) if *other != DataType::Null && json::is_representable(other) => {
            FieldEncoding::Json
        }
        _ => return None,
    })
}

/// Whether values of that type can become a field.
pub(super) fn is_storable(field: &Field, data_type: &DataType, encoding: FieldEncoding) -> bool {
    match encoding {
        FieldEncoding::Bytes => is_binary(data_type) || is_text(data_type),
        FieldEncoding::Str => {
            is_binary(data_type)
                || is_text(data_type)
                || text::is_temporal(data_type)
                || data_type.is_numeric()
        }
        FieldEncoding::Int => {
            is_text(data_type) || data_type.is_integer() || *data_type == DataType::Boolean
        }
        FieldEncoding::Json => {
            is_binary(data_type)
                || (*data_type != DataType::Null && json::is_representable(data_type))
        }
        FieldEncoding::Npy | FieldEncoding::Ten => {
            let (leaf, levels) = list::leaf_type(data_type);
            matches!(encoded_as(field), Some(Encoding::NdArray { .. }))
                || (levels > 0 && number::dtype_of(leaf).is_some())
        }
    }
}

/// What a column of values needs to become a field.
#[derive(Clone, Debug)]
pub(super) struct FieldEncoder {
    encoding: FieldEncoding,
    /// The MDS encoding that the values have now.
    encoded: Option<Encoding>,
}

impl FieldEncoder {
    pub(super) fn new(field: &Field, encoding: FieldEncoding) -> Self {
        Self {
            encoding,
            encoded: encoded_as(field),
        }
    }

    /// Encodes the values of one batch. What comes out for a null is arbitrary.
    pub(super) fn prepare(
        &self,
        array: &ArrayRef,
        name: &str,
        limits: &Limits,
    ) -> Result<Datums, RowError> {
        let target = Target::Field(self.encoding);
        let unfit = || RowError {
            row: 0,
            reason: ValueReason::Range {
                value: format!("a value of type {}", array.data_type()),
                encoding: target.name(),
            },
        };
        let data_type = array.data_type();
        let plain = || bytes_slices(array).or_else(|| text::string_slices(array));
        match self.encoding {
            FieldEncoding::Bytes => plain().ok_or_else(unfit),
            FieldEncoding::Str if is_binary(data_type) => {
                checked(plain().ok_or_else(unfit)?, array, &Encoding::Str, limits)
            }
            FieldEncoding::Str if data_type.is_floating() => {
                text::float_texts(array).ok_or_else(unfit)
            }
            FieldEncoding::Str if data_type.is_integer() => {
                text::number_texts(array).ok_or_else(unfit)
            }
            FieldEncoding::Str => text::rendered(array).ok_or_else(unfit),
            FieldEncoding::Int => match text::string_slices(array) {
                Some(datums) => checked(datums, array, &Encoding::StrInt, limits),
                None => {
                    text::plain_values(array, shardmill_mds::TextEncoding::Int).ok_or_else(unfit)
                }
            },
            FieldEncoding::Json => match plain() {
                Some(datums) if self.encoded.is_some() => Ok(datums),
                Some(datums) => checked(datums, array, &Encoding::Json, limits),
                None => text::json_texts(array).ok_or_else(unfit),
            },
            FieldEncoding::Npy | FieldEncoding::Ten if array.null_count() > 0 => {
                self.spread(array, name, limits, unfit)
            }
            FieldEncoding::Npy => match &self.encoded {
                Some(encoding) => from_mds(array, encoding, limits, |value, out| {
                    npy_header(name, npy_type(value.dtype), &value.shape, out)?;
                    out.extend_from_slice(value.data);
                    Ok(())
                }),
                None => list::npy(array, name),
            },
            FieldEncoding::Ten => match &self.encoded {
                Some(encoding) => from_mds(array, encoding, limits, |value, out| {
                    tensor(name, npy_type(value.dtype), &value.shape, value.data, out)
                }),
                None => list::ten(array, name),
            },
        }
    }

    /// Arrays, with nothing where there is a null.
    fn spread(
        &self,
        array: &ArrayRef,
        name: &str,
        limits: &Limits,
        unfit: impl Fn() -> RowError,
    ) -> Result<Datums, RowError> {
        let present = is_not_null(array).map_err(|_| unfit())?;
        let values = filter(array, &present).map_err(|_| unfit())?;
        let rows: Vec<usize> = (0..array.len())
            .filter(|row| array.is_valid(*row))
            .collect();
        let datums = self
            .prepare(&values, name, limits)
            .map_err(|error| RowError {
                row: rows.get(error.row).copied().unwrap_or(error.row),
                reason: error.reason,
            })?;
        let mut bytes = Vec::new();
        let mut offsets = vec![0];
        let mut next = 0;
        for row in 0..array.len() {
            if array.is_valid(row) {
                let (prefix, value) = datums.value(next);
                bytes.extend_from_slice(prefix);
                bytes.extend_from_slice(value);
                next += 1;
            }
            offsets.push(bytes.len());
        }
        Ok(Datums::rendered(bytes, offsets))
    }
}

/// Values that have to be what their encoding says.
fn checked(
    datums: Datums,
    array: &ArrayRef,
    encoding: &Encoding,
    limits: &Limits,
) -> Result<Datums, RowError> {
    for row in (0..array.len()).filter(|row| array.is_valid(*row)) {
        let (_, value) = datums.value(row);
        check_datum(encoding, value, limits).map_err(|error| RowError {
            row,
            reason: error.into(),
        })?;
    }
    Ok(datums)
}

/// Arrays of MDS as NumPy files.
fn from_mds(
    array: &ArrayRef,
    encoding: &Encoding,
    limits: &Limits,
    write: impl Fn(&NdArray<'_>, &mut Vec<u8>) -> Result<(), FieldError>,
) -> Result<Datums, RowError> {
    let mut bytes = Vec::new();
    let mut offsets = Vec::with_capacity(array.len() + 1);
    offsets.push(0);
    for row in 0..array.len() {
        let fail = |reason| RowError { row, reason };
        let datum = match array.data_type() {
            DataType::Binary => array.as_binary::<i32>().value(row),
            DataType::LargeBinary => array.as_binary::<i64>().value(row),
            DataType::BinaryView => array.as_binary_view().value(row),
            _ => &[],
        };
        let value =
            shardmill_mds::decode(encoding, datum, limits).map_err(|error| fail(error.into()))?;
        if let Value::NdArray(value) = value {
            write(&value, &mut bytes).map_err(|error| fail(error.into()))?;
        }
        offsets.push(bytes.len());
    }
    Ok(Datums::rendered(bytes, offsets))
}

/// Appends an array in the original's own form.
pub(super) fn tensor(
    name: &str,
    dtype: shardmill_webdataset::DType,
    shape: &[u64],
    data: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), FieldError> {
    let array = Tensor {
        dtype,
        shape: shape.to_vec(),
        data,
    };
    // The column may be called otherwise.
    encode("ten", &Datum::Array(array), out).map_err(|error| match error {
        FieldError::Array { reason, .. } => FieldError::Array {
            field: name.to_owned(),
            reason,
        },
        other => other,
    })
}

/// The same type of numbers, as NumPy files know it.
pub(super) const fn npy_type(dtype: DType) -> shardmill_webdataset::DType {
    use shardmill_webdataset::DType as Npy;
    match dtype {
        DType::U8 => Npy::UInt8,
        DType::I8 => Npy::Int8,
        DType::U16 => Npy::UInt16,
        DType::I16 => Npy::Int16,
        DType::F16 => Npy::Float16,
        DType::U32 => Npy::UInt32,
        DType::I32 => Npy::Int32,
        DType::F32 => Npy::Float32,
        DType::U64 => Npy::UInt64,
        DType::I64 => Npy::Int64,
        DType::F64 => Npy::Float64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn columns_become_fields_that_readers_know() {
        let list = |item| DataType::new_list(item, false);
        for (name, data_type, expected) in [
            ("jpg", DataType::Binary, ("jpg", "bytes")),
            ("image", DataType::LargeBinary, ("image", "bytes")),
            ("caption", DataType::Utf8, ("caption.txt", "str")),
            ("txt", DataType::Utf8View, ("txt", "str")),
            ("json", DataType::Utf8, ("json", "str")),
            ("label", DataType::Int32, ("label.cls", "int")),
            ("cls", DataType::UInt64, ("cls", "int")),
            ("ok", DataType::Boolean, ("ok.cls", "int")),
            ("score", DataType::Float32, ("score.json", "json")),
            ("day", DataType::Date32, ("day.txt", "str")),
            ("v", list(DataType::Float32), ("v.npy", "npy")),
            ("npy", list(DataType::Int8), ("npy", "npy")),
            ("tags", list(DataType::Utf8), ("tags.json", "json")),
            ("n", list(list(DataType::Int8)), ("n.json", "json")),
        ] {
            let (field, encoding) = default_field(&Field::new(name, data_type, true)).unwrap();
            assert_eq!((field.as_str(), encoding.name()), expected);
            assert_eq!(encoding.name().parse(), Ok(encoding));
        }
        for (encoding, expected) in [
            ("jpeg", Some("x.jpg")),
            ("png", Some("x.png")),
            ("pkl", Some("x.pkl")),
            ("ndarray:float32", Some("x.npy")),
            ("bytes", Some("x")),
            ("pil", None),
            ("list[jpeg]", None),
        ] {
            let metadata = HashMap::from([
                (ENCODING_KEY.to_owned(), encoding.to_owned()),
                (ENCODED_KEY.to_owned(), "true".to_owned()),
            ]);
            let field = Field::new("x", DataType::Binary, false).with_metadata(metadata);
            let name = default_field(&field).ok().map(|(name, _)| name);
            assert_eq!(name.as_deref(), expected, "{encoding}");
        }
        assert!(default_field(&Field::new("x", DataType::Null, true)).is_err());
    }
}
