//! Encodes Arrow columns as fields of WebDataset samples.

use arrow::array::{Array, ArrayRef};
use arrow::compute::{filter, is_not_null};
use arrow::datatypes::{DataType, Field};
use shardmill_core::{Error, Limits, escape, omit_option};
use shardmill_mds::{DType, Encoding, ImageKind, NdArray, TextEncoding, Value};
use shardmill_webdataset::{FieldKind, WebdatasetError, deflate, encode_ten, npy_header};

use super::encoded_column::{EncodedColumn, checked};
use super::list;
use super::target::FieldEncoding;
use super::types::{
    ENCODING_KEY, encoded_as, is_integer_text, is_json, is_temporal, metadata, stored_type,
};
use super::{hint, json, number, text};
use crate::error::{RowError, type_unsupported};

/// Returns the default name and encoding of the field for a column.
///
/// The name gets the extension by which readers recognise the content, unless it already has a matching one. For
/// example, text in a column `id` becomes `id.txt`, because readers parse `id` as a number. Bytes keep the name of the
/// column, because they are files of a tree or of another tar file.
///
/// The name can also select JSON or tensors: text in a column `json` must be JSON.
///
/// # Errors
///
/// `Unsupported` if the format cannot store the type.
pub fn default_field(field: &Field) -> Result<(String, FieldEncoding), Error> {
    let unsupported = |hint: &str| {
        type_unsupported(field.name(), field.data_type(), "a field of webdataset")
            .with_hint(hint::with_obstacle(field, hint))
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
            return Err(unsupported(&format!(
                "only MDS knows its form: omit the column with {}",
                omit_option(name)
            )));
        }
        _ => {}
    }
    let encoding = default_encoding(field)
        .ok_or_else(|| unsupported(&format!("omit the column with {}", omit_option(name))))?;
    let (kind, _) = FieldKind::of(name);
    let encoding = called_for(kind, field, encoding);
    let has_extension = match encoding {
        FieldEncoding::Bytes => true,
        FieldEncoding::Str => kind == FieldKind::Text,
        FieldEncoding::Int => matches!(kind, FieldKind::Int | FieldKind::Json),
        FieldEncoding::Json => kind == FieldKind::Json,
        FieldEncoding::Npy => kind == FieldKind::Npy,
        FieldEncoding::Ten => kind == FieldKind::Tensors,
    };
    Ok(match encoding.extension() {
        Some(extension) if !has_extension => (format!("{name}.{extension}"), encoding),
        _ => (name.clone(), encoding),
    })
}

/// Returns the encoding that the extension of the column name asks for. The original writer encodes by extension.
fn called_for(kind: FieldKind, field: &Field, encoding: FieldEncoding) -> FieldEncoding {
    let requested = match (kind, encoding) {
        (FieldKind::Json, FieldEncoding::Str | FieldEncoding::Npy) => FieldEncoding::Json,
        (FieldKind::Tensors, FieldEncoding::Npy) => FieldEncoding::Ten,
        _ => return encoding,
    };
    let data_type = stored_type(field.data_type());
    // MDS arrays are stored as bytes, which are not JSON.
    let is_possible = requested == FieldEncoding::Ten || !data_type.is_binary();
    match is_possible && is_storable(field, &data_type, requested) {
        true => requested,
        false => encoding,
    }
}

/// Checks that readers will not misinterpret the content because of the extension.
///
/// # Errors
///
/// `Unsupported`, which names a matching extension.
pub(super) fn check_extension(
    field: &Field,
    data_type: &DataType,
    encoding: FieldEncoding,
) -> Result<(), Error> {
    let name = field.name();
    let (kind, is_gzip) = FieldKind::of(name);
    // Existing bytes are assumed to match the name.
    if encoding == FieldEncoding::Bytes && data_type.is_binary() {
        return Ok(());
    }
    let expected = match (kind, encoding) {
        (FieldKind::Other, _)
        | (
            FieldKind::Text,
            FieldEncoding::Bytes | FieldEncoding::Str | FieldEncoding::Int | FieldEncoding::Json,
        )
        | (FieldKind::Int, FieldEncoding::Int)
        | (FieldKind::Json, FieldEncoding::Json)
        | (FieldKind::Npy, FieldEncoding::Npy)
        | (FieldKind::Tensors, FieldEncoding::Ten) => return Ok(()),
        // A number is valid JSON, but a text of digits may start with zeros.
        (FieldKind::Json, FieldEncoding::Int) if !data_type.is_string() => return Ok(()),
        (FieldKind::Text, _) => "text",
        (FieldKind::Int, _) => "a whole number",
        (FieldKind::Json, _) => "JSON",
        (FieldKind::Npy, _) => "a NumPy file",
        (FieldKind::Npz, _) => "NumPy files in a ZIP file",
        (FieldKind::Tensors, _) => "tensors",
        (FieldKind::MessagePack, _) => "MessagePack",
        (FieldKind::Cbor, _) => "CBOR",
        (FieldKind::Image, _) => "an image",
        (FieldKind::Video, _) => "a video",
        (FieldKind::Audio, _) => "sound",
        (FieldKind::Pickle, _) => "a pickle",
    };
    let rest = if is_gzip {
        name.strip_suffix(".gz").unwrap_or(name)
    } else {
        name
    };
    let extension = encoding.extension().unwrap_or("txt");
    let other = match rest.rsplit_once('.') {
        Some((before, _)) => format!("{before}.{extension}"),
        None => extension.to_owned(),
    };
    let mut hint = format!(
        "readers expect {expected} there: call the field `{}`",
        escape(&other)
    );
    match kind {
        FieldKind::Int if data_type.is_string() => {
            hint.push_str(", or store texts of digits with the encoding `int`");
        }
        FieldKind::Text if json::is_representable(data_type) => {
            hint.push_str(", or store it as text with the encoding `json`");
        }
        _ => {}
    }
    let encoding = format!("{encoding} in a field of that name");
    Err(type_unsupported(field.name(), field.data_type(), encoding).with_hint(hint))
}

/// Returns the default encoding of the column's type.
pub(crate) fn default_encoding(field: &Field) -> Option<FieldEncoding> {
    if is_integer_text(field) {
        return Some(FieldEncoding::Int);
    }
    let data_type = &stored_type(field.data_type());
    Some(match (data_type, encoded_as(field)) {
        (_, Some(Encoding::NdArray { .. })) => FieldEncoding::Npy,
        (_, Some(Encoding::Json)) => FieldEncoding::Json,
        (other, _) if other.is_string() && is_json(field) => FieldEncoding::Json,
        (other, _) if other.is_binary() => FieldEncoding::Bytes,
        (other, _) if other.is_string() || is_temporal(other) => FieldEncoding::Str,
        (DataType::Boolean, _) => FieldEncoding::Int,
        (DataType::Decimal128(..) | DataType::Decimal256(..), _) => FieldEncoding::Str,
        (other, _) if other.is_integer() => FieldEncoding::Int,
        (other, _) if other.is_floating() => FieldEncoding::Json,
        (DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..), _) => {
            let (leaf, levels) = list::leaf_type(data_type);
            let declared = metadata(field, ENCODING_KEY).and_then(|name| name.parse().ok());
            let is_tensor = matches!(declared, Some(Encoding::NdArray { .. }));
            let is_array = number::dtype_of(leaf).is_some()
                && (levels == 1 || is_tensor || list::static_shape(data_type).is_some());
            match is_array {
                true => FieldEncoding::Npy,
                false if json::is_representable(data_type) => FieldEncoding::Json,
                false => return None,
            }
        }
        (other, _) if json::is_representable(other) => FieldEncoding::Json,
        _ => return None,
    })
}

/// Returns whether values of this type can be stored with the encoding.
pub(super) fn is_storable(field: &Field, data_type: &DataType, encoding: FieldEncoding) -> bool {
    match encoding {
        FieldEncoding::Bytes => data_type.is_binary() || data_type.is_string(),
        FieldEncoding::Str => {
            data_type.is_binary()
                || data_type.is_string()
                || is_temporal(data_type)
                || data_type.is_numeric()
        }
        FieldEncoding::Int => {
            data_type.is_string() || data_type.is_integer() || *data_type == DataType::Boolean
        }
        FieldEncoding::Json => data_type.is_binary() || json::is_representable(data_type),
        FieldEncoding::Npy | FieldEncoding::Ten => {
            let dtype = match encoded_as(field) {
                Some(Encoding::NdArray { dtype: None, .. }) => return true,
                Some(Encoding::NdArray { dtype, .. }) => dtype,
                _ => match list::leaf_type(data_type) {
                    (leaf, 1..) => number::dtype_of(leaf),
                    _ => None,
                },
            };
            // Tensors do not support `uint32`.
            let is_tensor = encoding == FieldEncoding::Ten;
            dtype.is_some_and(|dtype| !is_tensor || dtype != DType::U32)
        }
    }
}

/// Encodes the values of a column as fields.
#[derive(Clone, Debug)]
pub(super) struct FieldEncoder {
    encoding: FieldEncoding,
    /// The MDS encoding of the input values.
    encoded: Option<Encoding>,
    /// Whether each value is compressed, because the name ends in `.gz`. Bytes are not compressed again.
    is_gzip: bool,
}

impl FieldEncoder {
    pub(super) fn new(field: &Field, data_type: &DataType, encoding: FieldEncoding) -> Self {
        let are_files = encoding == FieldEncoding::Bytes && data_type.is_binary();
        Self {
            encoding,
            encoded: encoded_as(field),
            is_gzip: FieldKind::of(field.name()).1 && !are_files,
        }
    }

    /// Encodes the values of one batch. The result for a null is arbitrary.
    pub(super) fn prepare(
        &self,
        array: &ArrayRef,
        name: &str,
        limits: &Limits,
    ) -> Result<EncodedColumn, RowError> {
        let encoded_column = self.values(array, name, limits)?;
        if !self.is_gzip {
            return Ok(encoded_column);
        }
        let mut raw = Vec::new();
        EncodedColumn::try_render(array.len(), |row, out| {
            raw.clear();
            encoded_column.append_to(row, &mut raw);
            deflate(name, &raw, out).map_err(RowError::at(row))
        })
    }

    fn values(
        &self,
        array: &ArrayRef,
        name: &str,
        limits: &Limits,
    ) -> Result<EncodedColumn, RowError> {
        let target = self.encoding.name();
        let unfit = || RowError::unfit(array.data_type(), target);
        let data_type = array.data_type();
        let slices = || EncodedColumn::slices(array);
        match self.encoding {
            FieldEncoding::Bytes => slices().ok_or_else(unfit),
            FieldEncoding::Str if data_type.is_binary() => {
                checked(slices().ok_or_else(unfit)?, array, &Encoding::Str, limits)
            }
            FieldEncoding::Str if data_type.is_floating() => text::float_texts(array, target),
            FieldEncoding::Str if data_type.is_integer() => text::number_texts(array, target),
            FieldEncoding::Str => text::rendered(array, target),
            FieldEncoding::Int => match EncodedColumn::texts(array) {
                Some(encoded_column) => checked(encoded_column, array, &Encoding::StrInt, limits),
                None => text::plain_values(array, TextEncoding::Int),
            },
            FieldEncoding::Json => match slices() {
                Some(encoded_column) if self.encoded == Some(Encoding::Json) => Ok(encoded_column),
                Some(encoded_column) => checked(encoded_column, array, &Encoding::Json, limits),
                None => text::json_texts(array, target),
            },
            FieldEncoding::Npy | FieldEncoding::Ten if array.null_count() > 0 => {
                self.spread(array, name, limits, unfit)
            }
            FieldEncoding::Npy => match &self.encoded {
                Some(encoding) => from_mds(array, encoding, limits, |value, out| {
                    npy_header(name, value.dtype.numpy(), &value.shape, out)?;
                    out.extend_from_slice(value.data);
                    Ok(())
                }),
                None => list::npy(array, name),
            },
            FieldEncoding::Ten => match &self.encoded {
                Some(encoding) => from_mds(array, encoding, limits, |value, out| {
                    encode_ten(name, value.dtype.numpy(), &value.shape, value.data, out)
                }),
                None => list::ten(array, name),
            },
        }
    }

    /// Encodes arrays. Nulls become empty values.
    fn spread(
        &self,
        array: &ArrayRef,
        name: &str,
        limits: &Limits,
        unfit: impl Fn() -> RowError,
    ) -> Result<EncodedColumn, RowError> {
        let present = is_not_null(array).map_err(|_| unfit())?;
        let values = filter(array, &present).map_err(|_| unfit())?;
        let mut rows = (0..array.len()).filter(|row| array.is_valid(*row));
        let encoded_column = self.values(&values, name, limits);
        let encoded_column = encoded_column.map_err(|error| RowError {
            row: rows.nth(error.row).unwrap_or(error.row),
            reason: error.reason,
        })?;
        let mut next = 0;
        Ok(EncodedColumn::render(array.len(), |row, out| {
            if array.is_valid(row) {
                encoded_column.append_to(next, out);
                next += 1;
            }
        }))
    }
}

/// Converts MDS arrays to NumPy files.
fn from_mds(
    array: &ArrayRef,
    encoding: &Encoding,
    limits: &Limits,
    write: impl Fn(&NdArray<'_>, &mut Vec<u8>) -> Result<(), WebdatasetError>,
) -> Result<EncodedColumn, RowError> {
    let values = EncodedColumn::slices(array);
    let values = values.ok_or_else(|| RowError::unfit(array.data_type(), encoding))?;
    EncodedColumn::try_render(array.len(), |row, out| {
        let datum = values.value(row).1;
        let value = shardmill_mds::decode(encoding, datum, limits).map_err(RowError::at(row))?;
        match value {
            Value::NdArray(value) => write(&value, out).map_err(RowError::at(row)),
            _ => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::types::ENCODED_KEY;
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn default_field_is_derived_from_column_name_and_type() {
        let list = |item| DataType::new_list(item, false);
        for (name, data_type, expected) in [
            ("jpg", DataType::Binary, ("jpg", "bytes")),
            ("image", DataType::LargeBinary, ("image", "bytes")),
            ("caption", DataType::Utf8, ("caption.txt", "str")),
            ("txt", DataType::Utf8View, ("txt", "str")),
            ("json", DataType::Utf8, ("json", "json")),
            ("json", DataType::Date32, ("json", "json")),
            ("json", list(DataType::Int8), ("json", "json")),
            ("id", DataType::Utf8, ("id.txt", "str")),
            ("inx", DataType::Utf8View, ("inx.txt", "str")),
            ("a.count", DataType::LargeUtf8, ("a.count.txt", "str")),
            ("class", DataType::Date32, ("class.txt", "str")),
            ("npy", DataType::Utf8, ("npy.txt", "str")),
            ("mp", DataType::Utf8, ("mp.txt", "str")),
            ("pth", DataType::Utf8, ("pth.txt", "str")),
            ("image", DataType::Utf8, ("image.txt", "str")),
            ("id", DataType::Int64, ("id", "int")),
            ("id", DataType::Binary, ("id", "bytes")),
            ("cls", DataType::Binary, ("cls", "bytes")),
            ("cls", DataType::Float32, ("cls.json", "json")),
            ("ten", list(DataType::Int16), ("ten", "ten")),
            ("ten", list(DataType::UInt32), ("ten.npy", "npy")),
            ("npz", list(DataType::Int16), ("npz.npy", "npy")),
            ("cost", DataType::Decimal64(9, 2), ("cost.txt", "str")),
            ("label", DataType::Int32, ("label.cls", "int")),
            ("cls", DataType::UInt64, ("cls", "int")),
            ("ok", DataType::Boolean, ("ok.cls", "int")),
            ("score", DataType::Float32, ("score.json", "json")),
            ("day", DataType::Date32, ("day.txt", "str")),
            ("v", list(DataType::Float32), ("v.npy", "npy")),
            ("npy", list(DataType::Int8), ("npy", "npy")),
            ("tags", list(DataType::Utf8), ("tags.json", "json")),
            ("n", list(list(DataType::Int8)), ("n.json", "json")),
            ("none", DataType::Null, ("none.json", "json")),
            ("parts", list(DataType::Binary), ("parts.json", "json")),
            (
                "took",
                DataType::Duration(arrow::datatypes::TimeUnit::Second),
                ("took.txt", "str"),
            ),
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
            ("json", Some("x.json")),
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
    }
}
