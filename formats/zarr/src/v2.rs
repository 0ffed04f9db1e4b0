//! Metadata of version 2: `.zarray` and `.zattrs`.

use serde_json::{Map, Value};
use shardmill_core::Limits;

use crate::array::{Keys, ZarrArray};
use crate::codec::{Codecs, Packer};
use crate::consolidated::attributes as attributes_of;
use crate::dtype::{ElementType, fill_bytes, parse_v2, text_of};
use crate::error::ZarrError;
use crate::json::json;

impl ZarrArray {
    /// Parses the metadata of version 2: the bytes of `.zarray`, and of `.zattrs` if the array has it, which names the
    /// dimensions under `_ARRAY_DIMENSIONS`.
    ///
    /// # Errors
    ///
    /// [`ZarrError`] for metadata that is not valid, and for types and codecs that are not supported.
    pub fn parse_v2(
        array: &[u8],
        attributes: Option<&[u8]>,
        limits: &Limits,
    ) -> Result<Self, ZarrError> {
        let array = json(array, ".zarray")?;
        if array.get("zarr_format").and_then(Value::as_u64) != Some(2) {
            return Err(ZarrError::metadata("`.zarray` is not of version 2"));
        }
        let ElementType {
            dtype,
            big_endian,
            numpy_time,
        } = parse_v2(field(&array, "dtype")?)?;
        let shape = numbers(&array, "shape")?;
        let axes = match field(&array, "order")?.as_str() {
            Some("C") => None,
            Some("F") => Some((0..shape.len()).rev().collect()),
            _ => return Err(ZarrError::metadata("`order` is neither C nor F")),
        };
        let filters = array.get("filters").and_then(Value::as_array);
        let packers = filters.into_iter().flatten().chain(array.get("compressor"));
        let packers = packers.filter(|own| !own.is_null()).map(|own| {
            let id = own.get("id").and_then(Value::as_str);
            Packer::named(id.ok_or_else(|| ZarrError::metadata("a compressor has no `id`"))?)
        });
        let separator = array.get("dimension_separator");
        let mut attributes = match attributes {
            Some(bytes) => attributes_of(bytes, ".zattrs")?,
            None => Map::new(),
        };
        let dimensions = names(attributes.remove("_ARRAY_DIMENSIONS").as_ref())?;
        let fill_value = array.get("fill_value").unwrap_or(&Value::Null);
        let fill = fill_bytes(dtype, fill_value)?;
        if !fill_value.is_null() {
            // As for xarray, the fill value of version 2 is the missing value of its attributes.
            attributes.insert("_FillValue".to_owned(), fill_value.clone());
        }
        Self {
            dimensions,
            dtype,
            chunk_shape: numbers(&array, "chunks")?,
            shard: None,
            mask: (!fill_value.is_null()).then(|| fill.clone()),
            fill,
            attributes,
            numpy_time,
            codecs: Codecs {
                axes,
                big_endian,
                packers: packers.collect::<Result<_, _>>()?,
            },
            keys: Keys {
                has_prefix: false,
                separator: separator_of(separator, '.')?,
            },
            shape,
        }
        .checked(limits)
    }
}

pub(crate) fn field<'a>(value: &'a Value, name: &str) -> Result<&'a Value, ZarrError> {
    let found = value.get(name);
    found.ok_or_else(|| ZarrError::metadata(format!("has no `{name}`")))
}

/// Returns a list of whole numbers.
pub(crate) fn numbers(value: &Value, name: &str) -> Result<Vec<u64>, ZarrError> {
    let list = field(value, name)?.as_array();
    let all: Option<Vec<u64>> = list.and_then(|list| list.iter().map(Value::as_u64).collect());
    all.ok_or_else(|| ZarrError::metadata(format!("`{name}` is no list of whole numbers")))
}

/// Returns the names of dimensions. A dimension without a name has an empty one.
pub(crate) fn names(value: Option<&Value>) -> Result<Option<Vec<String>>, ZarrError> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let name = |name: &Value| match name {
        Value::Null => Some(String::new()),
        name => name.as_str().map(str::to_owned),
    };
    let all: Option<Vec<String>> = value
        .as_array()
        .and_then(|list| list.iter().map(name).collect());
    let all =
        all.ok_or_else(|| ZarrError::metadata("the names of the dimensions are no list of texts"))?;
    Ok(Some(all))
}

/// Returns the character between the numbers in the name of a chunk.
pub(crate) fn separator_of(value: Option<&Value>, default: char) -> Result<char, ZarrError> {
    match value {
        None | Some(Value::Null) => Ok(default),
        Some(value) if value == "." => Ok('.'),
        Some(value) if value == "/" => Ok('/'),
        Some(value) => {
            let text = text_of(value);
            Err(ZarrError::metadata(format!(
                "the separator of chunks is {text}, not `.` or `/`"
            )))
        }
    }
}
