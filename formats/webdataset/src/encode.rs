//! Encodes values as the bytes of a field.

use std::io::Write as _;

use shardmill_core::escape;

use crate::array::{Array, write_npy, write_ten};
use crate::error::{WebdatasetError, WebdatasetProblem};
use crate::field::FieldKind;

/// A value to write into a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum<'a> {
    /// Bytes: stored unchanged, in any field.
    Bytes(&'a [u8]),
    /// Text: stored as UTF-8, in any field. In `json`, too, it is stored without quotes.
    Text(&'a str),
    /// A whole number, for `cls` and similar extensions.
    Int(i64),
    /// JSON text, for `json` and `jsn`; stored unchanged.
    Json(&'a str),
    /// An array, for `npy`, or as the only one in `ten`.
    Array(Array<'a>),
    /// Arrays, for `ten` and `tb`.
    Arrays(Vec<Array<'a>>),
}

impl Datum<'_> {
    const fn name(&self) -> &'static str {
        match self {
            Self::Bytes(_) => "value of bytes",
            Self::Text(_) => "text",
            Self::Int(_) => "number",
            Self::Json(_) => "JSON value",
            Self::Array(_) => "array",
            Self::Arrays(_) => "list of arrays",
        }
    }
}

/// Appends a value in the encoding that the extension of the field requires. If the field ends in `.gz`, the result is
/// compressed with gzip, except for bytes and text, which are stored unchanged.
///
/// The bytes are those of the original, except in gzip: the original stores the time of compression, and this function
/// stores 0.
///
/// # Errors
///
/// [`WebdatasetProblem::NoEncoder`] (`InvalidInput`) if the extension has no encoding for such a value, which includes
/// pickles; [`WebdatasetProblem::Array`] for arrays that are inconsistent or that the encoding cannot represent.
pub fn encode(field: &str, datum: &Datum<'_>, out: &mut Vec<u8>) -> Result<(), WebdatasetError> {
    let (kind, is_gzip) = FieldKind::of(field);
    match datum {
        Datum::Bytes(bytes) => out.extend_from_slice(bytes),
        Datum::Text(text) => out.extend_from_slice(text.as_bytes()),
        _ if is_gzip => {
            let mut raw = Vec::new();
            encode_plain(field, kind, datum, &mut raw)?;
            deflate(field, &raw, out)?;
        }
        _ => encode_plain(field, kind, datum, out)?,
    }
    Ok(())
}

/// Appends the bytes of a field, compressed with gzip if its name ends in `.gz`, else unchanged: the inverse of
/// [`inflate`](crate::inflate). Equal input gives equal bytes.
///
/// # Errors
///
/// [`WebdatasetProblem::Gzip`], which does not occur when writing to memory.
pub fn deflate(field: &str, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), WebdatasetError> {
    if !FieldKind::of(field).1 {
        out.extend_from_slice(bytes);
        return Ok(());
    }
    let mut encoder = flate2::GzBuilder::new()
        .mtime(0)
        .write(out, flate2::Compression::new(9));
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.try_finish())
        .map_err(|error| {
            WebdatasetProblem::Gzip.of_field(field, format!("is damaged gzip: {error}"))
        })
}

fn encode_plain(
    field: &str,
    kind: FieldKind,
    datum: &Datum<'_>,
    out: &mut Vec<u8>,
) -> Result<(), WebdatasetError> {
    let array_error = |reason: String| WebdatasetProblem::Array.of_field(field, reason);
    let check = |arrays: &[Array<'_>]| match arrays.iter().find(|array| !array.is_consistent()) {
        None => Ok(()),
        Some(array) => Err(array_error(format!(
            "has {} bytes of numbers for an array of {} of shape {:?}",
            array.data.len(),
            array.dtype.short(),
            array.shape
        ))),
    };
    match (kind, datum) {
        (FieldKind::Int, Datum::Int(value)) => {
            out.extend_from_slice(value.to_string().as_bytes());
            Ok(())
        }
        (FieldKind::Json, Datum::Json(text)) => {
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
        // A number is valid JSON as well.
        (FieldKind::Json, Datum::Int(value)) => {
            out.extend_from_slice(value.to_string().as_bytes());
            Ok(())
        }
        (FieldKind::Npy, Datum::Array(array)) => {
            check(std::slice::from_ref(array))?;
            write_npy(array, out).map_err(array_error)
        }
        (FieldKind::Tensors, Datum::Array(array)) => {
            check(std::slice::from_ref(array))?;
            write_ten(std::slice::from_ref(array), out).map_err(array_error)
        }
        (FieldKind::Tensors, Datum::Arrays(arrays)) => {
            check(arrays)?;
            write_ten(arrays, out).map_err(array_error)
        }
        _ => {
            let (value, field) = (datum.name(), escape(field));
            let reason = format!("a {value} cannot be written as field `{field}`");
            Err(WebdatasetProblem::NoEncoder.because(reason))
        }
    }
}
