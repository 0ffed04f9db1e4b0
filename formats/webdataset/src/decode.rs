//! The bytes of a field become a value.

use std::borrow::Cow;
use std::io::Read as _;

use serde::de::IgnoredAny;
use shardmill_core::{LimitExceeded, Limits};

use crate::array::{Array, read_npy, read_ten};
use crate::field::{FieldError, FieldKind};

/// What a field holds, borrowing its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Bytes that have no other meaning here: images, sounds, `npz`, `mp`, `cbor`, unknown extensions.
    Bytes(&'a [u8]),
    /// Text.
    Text(&'a str),
    /// A whole number.
    Int(i64),
    /// JSON text.
    Json(&'a str),
    /// An array.
    Array(Array<'a>),
    /// Arrays.
    Arrays(Vec<Array<'a>>),
}

/// The bytes of a field without the gzip that a trailing `.gz` stands for. Only such a field is copied.
///
/// # Errors
///
/// [`FieldError::Gzip`] (`Corrupt`), [`FieldError::Limit`] (`Unsupported`) above the limits on a sample or on expansion.
pub fn inflate<'a>(
    field: &str,
    bytes: &'a [u8],
    limits: &Limits,
) -> Result<Cow<'a, [u8]>, FieldError> {
    if !FieldKind::of(field).1 {
        return Ok(Cow::Borrowed(bytes));
    }
    let ratio = (bytes.len() as u64).saturating_mul(limits.expansion_ratio);
    let most = limits.sample_bytes.min(limits.expansion_bytes).min(ratio);
    let mut out = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes)
        .take(most.saturating_add(1))
        .read_to_end(&mut out)
        .map_err(|error| FieldError::Gzip {
            field: field.to_owned(),
            reason: error.to_string(),
        })?;
    if out.len() as u64 > most {
        return Err(FieldError::Limit(LimitExceeded {
            name: "expansion-bytes",
            value: out.len() as u64,
            limit: most,
        }));
    }
    Ok(Cow::Owned(out))
}

/// The value that the bytes of a field are, by the extension of the field. The bytes are those of [`inflate`].
///
/// A `class`, `count`, `html`, `msgpack` or `tenbin`, which the original writes but hands out as bytes, is read for what it
/// is.
///
/// # Errors
///
/// [`FieldError`]: bytes that are not what the extension says (`Corrupt`); pickles (`Unsupported`), which
/// [`FieldKind::of`] tells in advance.
pub fn decode<'a>(field: &str, bytes: &'a [u8], limits: &Limits) -> Result<Value<'a>, FieldError> {
    let array_error = |reason| FieldError::Array {
        field: field.to_owned(),
        reason,
    };
    Ok(match FieldKind::of(field).0 {
        FieldKind::Int => Value::Int(int(field, bytes)?),
        FieldKind::Text => Value::Text(text(field, bytes)?),
        FieldKind::Json => {
            let text = text(field, bytes)?;
            check_json(field, text)?;
            Value::Json(text)
        }
        FieldKind::Npy => Value::Array(read_npy(bytes, limits).map_err(array_error)?),
        FieldKind::Tensors => Value::Arrays(read_ten(bytes, limits).map_err(array_error)?),
        FieldKind::Pickle => {
            return Err(FieldError::Pickle {
                field: field.to_owned(),
            });
        }
        FieldKind::Npz
        | FieldKind::MessagePack
        | FieldKind::Cbor
        | FieldKind::Image
        | FieldKind::Video
        | FieldKind::Audio
        | FieldKind::Other => Value::Bytes(bytes),
    })
}

fn text<'a>(field: &str, bytes: &'a [u8]) -> Result<&'a str, FieldError> {
    std::str::from_utf8(bytes).map_err(|error| FieldError::Utf8 {
        field: field.to_owned(),
        offset: error.valid_up_to() as u64,
        length: bytes.len() as u64,
    })
}

/// A number as `int` of Python reads it from ASCII, but without `_` between digits, which nobody writes.
fn int(field: &str, bytes: &[u8]) -> Result<i64, FieldError> {
    // Python's blanks are those of ASCII and the vertical tab.
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let begin = bytes.iter().position(|byte| !is_blank(byte)).unwrap_or(0);
    let end = bytes.iter().rposition(|byte| !is_blank(byte));
    let digits = end.and_then(|end| bytes.get(begin..=end));
    digits
        .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
        .ok_or_else(|| FieldError::Number {
            field: field.to_owned(),
            found: String::from_utf8_lossy(bytes).chars().take(40).collect(),
        })
}

/// Whether text is JSON. Python also writes and reads `NaN` and `Infinity`; text that holds these words is not looked at
/// further.
fn check_json(field: &str, text: &str) -> Result<(), FieldError> {
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(()),
        Err(_) if text.contains("NaN") || text.contains("Infinity") => Ok(()),
        Err(error) => Err(FieldError::Json {
            field: field.to_owned(),
            reason: error.to_string(),
        }),
    }
}
