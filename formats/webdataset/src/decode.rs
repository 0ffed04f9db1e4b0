//! Compresses the bytes of a field, and decodes them into a value.

use std::borrow::Cow;
use std::io::{Read as _, Write as _};

use serde::de::IgnoredAny;
use shardmill_core::{LimitExceeded, Limits, escape};

use crate::array::{Array, Npy, read_npy, read_ten};
use crate::error::{WebdatasetError, WebdatasetProblem};
use crate::field::FieldKind;

/// The value of a field, borrowing its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Bytes that this crate does not interpret: images, sounds, `mp`, `cbor`, unknown extensions; and `npz`, which
    /// [`read_npz`](crate::read_npz) decodes.
    Bytes(&'a [u8]),
    /// Text.
    Text(&'a str),
    /// A whole number.
    Int(i64),
    /// A whole number beyond 64 bits: digits with an optional sign.
    BigInt(&'a str),
    /// JSON text.
    Json(&'a str),
    /// An array.
    Array(Array<'a>),
    /// A NumPy file that [`Array`] cannot describe: one in Fortran order, big-endian, or of text, times, complex
    /// numbers or records. Its header and length are valid; NumPy reads the rest without unpickling.
    NumPy(&'a [u8]),
    /// Arrays.
    Arrays(Vec<Array<'a>>),
}

/// Decompresses the bytes of a field whose name ends in `.gz`. Only such a field is copied.
///
/// # Errors
///
/// [`WebdatasetProblem::Gzip`] (`Corrupt`); [`WebdatasetError::Limit`] (`Unsupported`) above the limits on a sample or on
/// expansion.
pub fn inflate<'a>(
    field: &str,
    bytes: &'a [u8],
    limits: &Limits,
) -> Result<Cow<'a, [u8]>, WebdatasetError> {
    if !FieldKind::of(field).1 {
        return Ok(Cow::Borrowed(bytes));
    }
    let ratio = (bytes.len() as u64).saturating_mul(limits.expansion.ratio);
    let max = limits.sample_bytes.min(limits.expansion.bytes).min(ratio);
    let mut out = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes)
        .take(max.saturating_add(1))
        .read_to_end(&mut out)
        .map_err(|error| {
            WebdatasetProblem::Gzip.of_field(field, format!("is damaged gzip: {error}"))
        })?;
    if out.len() as u64 > max {
        return Err(WebdatasetError::Limit(LimitExceeded {
            name: "expansion-bytes",
            value: out.len() as u64,
            limit: max,
        }));
    }
    Ok(Cow::Owned(out))
}

/// Appends the bytes of a field, compressed with gzip if its name ends in `.gz`, else unchanged: the inverse of
/// [`inflate`]. Equal input gives equal bytes.
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

/// Decodes the bytes of a field, as returned by [`inflate`], by the field's extension.
///
/// The original writes `class`, `count`, `html`, `msgpack` and `tenbin` but reads them as bytes. Here they are decoded.
///
/// # Errors
///
/// [`WebdatasetError`]: `Corrupt` for bytes that do not match the extension; `Unsupported` for pickles, which
/// [`FieldKind::of`] detects in advance.
pub fn decode<'a>(
    field: &str,
    bytes: &'a [u8],
    limits: &Limits,
) -> Result<Value<'a>, WebdatasetError> {
    let array_error = |reason: String| WebdatasetProblem::Array.of_field(field, reason);
    Ok(match FieldKind::of(field).0 {
        FieldKind::Int => int(field, bytes)?,
        FieldKind::Text => Value::Text(text(field, bytes)?),
        FieldKind::Json => {
            let text = text(field, bytes)?;
            check_json(field, text)?;
            Value::Json(text)
        }
        FieldKind::Npy => match read_npy(bytes, limits).map_err(array_error)? {
            Npy::Plain(array) => Value::Array(array),
            Npy::Other => Value::NumPy(bytes),
        },
        FieldKind::Tensors => Value::Arrays(read_ten(bytes, limits).map_err(array_error)?),
        FieldKind::Pickle => {
            let reason = "holds a pickle, which runs code when it is read";
            return Err(WebdatasetProblem::Pickle.of_field(field, reason));
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

fn text<'a>(field: &str, bytes: &'a [u8]) -> Result<&'a str, WebdatasetError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let (offset, length) = (error.valid_up_to(), bytes.len());
        let reason = format!("is not UTF-8 from byte {offset} of {length}");
        WebdatasetProblem::Utf8.of_field(field, reason)
    })
}

/// The most digits that Python converts; more are an error there, too.
const MAX_DIGITS: usize = 4300;

/// Parses a number as Python's `int` does from ASCII, but without `_` between digits, which no writer produces.
fn int<'a>(field: &str, bytes: &'a [u8]) -> Result<Value<'a>, WebdatasetError> {
    // Python's whitespace is that of ASCII plus the vertical tab.
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let begin = bytes.iter().position(|byte| !is_blank(byte)).unwrap_or(0);
    let end = bytes.iter().rposition(|byte| !is_blank(byte));
    let digits = end.and_then(|end| bytes.get(begin..=end));
    digits
        .and_then(|digits| {
            let text = std::str::from_utf8(digits).ok()?;
            text.parse().map(Value::Int).ok().or_else(|| {
                let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
                let is_number = !bare.is_empty()
                    && bare.len() <= MAX_DIGITS
                    && bare.bytes().all(|byte| byte.is_ascii_digit());
                is_number.then_some(Value::BigInt(text))
            })
        })
        .ok_or_else(|| {
            let found: String = String::from_utf8_lossy(bytes).chars().take(40).collect();
            let reason = format!("is not a whole number of 64 bits: `{}`", escape(&found));
            WebdatasetProblem::FieldNumber.of_field(field, reason)
        })
}

/// Checks that text is JSON. Python also writes and reads `NaN` and `Infinity`; text with these words is not checked
/// further.
fn check_json(field: &str, text: &str) -> Result<(), WebdatasetError> {
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(()),
        Err(_) if text.contains("NaN") || text.contains("Infinity") => Ok(()),
        Err(error) => Err(WebdatasetProblem::Json.of_field(field, format!("is not JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::Diagnostic;

    use super::*;
    use crate::array::{encode_ten, npy_header};
    use shardmill_core::DType;

    fn array<'a>(dtype: DType, shape: &[u64], data: &'a [u8]) -> Array<'a> {
        Array {
            dtype,
            shape: shape.to_vec(),
            data,
        }
    }

    /// Returns arrays as `npy` or `ten`, compressed if the field is.
    fn encoded(field: &str, arrays: &[Array<'_>]) -> Result<Vec<u8>, WebdatasetError> {
        let mut raw = Vec::new();
        for Array { dtype, shape, data } in arrays {
            if field.contains("npy") {
                npy_header(field, *dtype, shape, &mut raw)?;
                raw.extend_from_slice(data);
            } else {
                encode_ten(field, *dtype, shape, data, &mut raw)?;
            }
        }
        let mut out = Vec::new();
        deflate(field, &raw, &mut out)?;
        Ok(out)
    }

    #[test]
    fn values_round_trip() {
        let limits = Limits::default();
        let data: Vec<u8> = (0..24).collect();
        let one = array(DType::Float32, &[2, 3], &data);
        let two = array(DType::UInt8, &[24], &data);
        let none = array(DType::Int64, &[0], &[]);
        let scalar = array(DType::Float64, &[], &data[..8]);
        let arrays = vec![one.clone(), two.clone(), none.clone(), scalar.clone()];
        for (field, arrays, value) in [
            ("npy", vec![one.clone()], Value::Array(one)),
            ("x.npy", vec![none.clone()], Value::Array(none)),
            ("npy", vec![scalar.clone()], Value::Array(scalar)),
            ("ten", arrays.clone(), Value::Arrays(arrays)),
            ("tb", vec![two.clone()], Value::Arrays(vec![two])),
        ] {
            let plain = encoded(field, &arrays).unwrap();
            assert_eq!(decode(field, &plain, &limits), Ok(value.clone()), "{field}");
            let zipped = format!("{field}.gz");
            let zip = encoded(&zipped, &arrays).unwrap();
            let raw = inflate(&zipped, &zip, &limits).unwrap();
            assert_eq!(
                (&raw[..], decode(&zipped, &raw, &limits)),
                (&plain[..], Ok(value))
            );
        }
        for (field, bytes, value) in [
            ("cls", "-7", Value::Int(-7)),
            ("a.id", "-9223372036854775808", Value::Int(i64::MIN)),
            ("txt", "é", Value::Text("é")),
            ("json", "{\"a\": NaN}", Value::Json("{\"a\": NaN}")),
            ("jpg", "data", Value::Bytes(b"data")),
            ("unknown", "data", Value::Bytes(b"data")),
        ] {
            assert_eq!(
                decode(field, bytes.as_bytes(), &limits),
                Ok(value),
                "{field}"
            );
        }
    }

    #[test]
    fn unsupported_ten_arrays_are_rejected() {
        for (dtype, shape, data) in [
            (DType::UInt8, &[2][..], &[1][..]),
            (DType::UInt8, &[u64::MAX, 2], &[1]),
            (DType::UInt32, &[0], &[]),
            (DType::Bool, &[0], &[]),
            (DType::UInt8, &[1; 10], &[1]),
        ] {
            let error = encode_ten("ten", dtype, shape, data, &mut Vec::new()).unwrap_err();
            assert_eq!(error.id(), "field-array", "{dtype} {shape:?}");
        }
    }

    #[test]
    fn value_not_matching_its_extension_is_an_error() {
        let limits = Limits::default();
        let id = |field: &str, bytes: &[u8]| decode(field, bytes, &limits).unwrap_err().id();
        assert_eq!(id("txt", b"\xff"), "field-utf8");
        for text in [
            "",
            " ",
            "1.0",
            "1_0",
            "0x1",
            "-+99999999999999999999",
            &"9".repeat(4301),
            "1 2",
            "\u{663}",
        ] {
            assert_eq!(id("cls", text.as_bytes()), "field-number", "{text}");
        }
        assert_eq!(decode("cls", b"\n +7\x0b ", &limits), Ok(Value::Int(7)));
        for text in ["18446744073709551615", "-9223372036854775809"] {
            assert_eq!(
                decode("cls", format!(" {text}\n").as_bytes(), &limits),
                Ok(Value::BigInt(text))
            );
        }
        for text in ["", "{", "{} x", "{'a': 1}"] {
            assert_eq!(id("json", text.as_bytes()), "json-syntax", "{text}");
        }
        assert_eq!(id("json", &vec![b'['; 100_000]), "json-syntax");
        assert_eq!(id("pkl", b"\x80\x04."), "encoding-unsafe");
        assert_eq!(id("seg.pth", b""), "encoding-unsafe");
        let gzip = inflate("txt.gz", b"none", &limits).unwrap_err();
        assert_eq!(gzip.id(), "compression-damaged");
        let bomb = encoded(
            "npy.gz",
            &[array(DType::UInt8, &[1 << 20], &vec![0; 1 << 20])],
        );
        let mut small = Limits::default();
        small.expansion.ratio = 10;
        let bomb = inflate("npy.gz", &bomb.unwrap(), &small).unwrap_err();
        assert_eq!(bomb.id(), "limit-expansion");
    }

    #[test]
    fn npy_headers_are_parsed_strictly() {
        let limits = Limits::default();
        let npy = |header: &str, data: &[u8]| {
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend_from_slice(&u16::try_from(header.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(data);
            bytes
        };
        let data = [1, 0, 2, 0];
        for header in [
            "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }",
            "{\"shape\":(2,),\"descr\":\"<i2\",\"fortran_order\":False}\n",
            "{'descr': '<i2', 'fortran_order': True, 'shape': (2L,), }",
            "{'descr': '=i2', 'fortran_order': False, 'shape': (1, 2), }",
        ] {
            let bytes = npy(header, &data);
            let value = decode("npy", &bytes, &limits).unwrap();
            assert!(matches!(value, Value::Array(_)), "{header}");
        }
        for (descr, shape) in [
            ("'>i2'", "(2,)"),
            ("'>i2'", "(2, 1)"),
            ("'>f4'", "()"),
            ("'|S2'", "(2,)"),
            ("'|S0'", "(2, 0)"),
            ("'<U1'", "(1,)"),
            ("'|V4'", "(1, 1, 1)"),
            ("'f4'", "(1,)"),
            ("[('a', '<i2')]", "(2,)"),
            ("[('a', '|S1'), ('b', '|u1', (3,))]", "(1,)"),
            ("[('a', '|S1'), ('b\\'\"', '|u1', 3)]", "(1,)"),
            (
                "[('é', [('x', '>i2'), ('', '|V1')]), (('title', 'z'), '|b1')]",
                "(1,)",
            ),
        ] {
            let header =
                format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
            let data = if shape.contains('0') {
                &data[..0]
            } else {
                &data
            };
            let bytes = npy(&header, data);
            assert_eq!(
                decode("npy", &bytes, &limits),
                Ok(Value::NumPy(&bytes)),
                "{header}"
            );
        }
        for (descr, size) in [
            ("<c8", 8),
            (">c16", 16),
            ("<M8[25s]", 8),
            ("<m8", 8),
            ("<f16", 16),
        ] {
            let header =
                format!("{{'descr': '{descr}', 'fortran_order': True, 'shape': (3, 2), }}");
            let bytes = npy(&header, &vec![1; size * 6]);
            assert_eq!(
                decode("npy", &bytes, &limits),
                Ok(Value::NumPy(&bytes)),
                "{header}"
            );
        }
        let turned = npy(
            "{'descr': '<i2', 'fortran_order': True, 'shape': (1, 2, 1), }",
            &data,
        );
        assert!(matches!(
            decode("npy", &turned, &limits),
            Ok(Value::Array(_))
        ));
        let turned = npy(
            "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2), }",
            &data,
        );
        assert_eq!(decode("npy", &turned, &limits), Ok(Value::NumPy(&turned)));
        // Field names are Latin-1 if possible.
        let mut latin = npy(
            "{'descr': [('~', '<i2')], 'fortran_order': False, 'shape': (2,), }",
            &data,
        );
        for byte in latin.iter_mut().filter(|byte| **byte == b'~') {
            *byte = 0xe9;
        }
        assert_eq!(decode("npy", &latin, &limits), Ok(Value::NumPy(&latin)));
        latin[6] = 3;
        assert!(decode("npy", &latin, &limits).is_err());
        let deep = format!(
            "{{'descr': '|u1', 'fortran_order': False, 'shape': ({}) }}",
            "1,".repeat(33)
        );
        for header in [
            "",
            "{}",
            "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '|O8', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '>i2', 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '<i3', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<S', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<i2[s]', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '|S0', 'fortran_order': False, 'shape': (99999999999999, ), }",
            "{'descr': '<U9999999999999999999', 'fortran_order': False, 'shape': (2,), }",
            "{'descr': [('a', '<i2'), ('b', '<i3')], 'fortran_order': False, 'shape': (2,), }",
            "{'descr': [('a', '<i2'], 'fortran_order': False, 'shape': (2,), }",
            "{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,), }",
            "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 2), }",
            &format!(
                "{{'descr': {}'<i2'{}, 'fortran_order': False, 'shape': (2,), }}",
                "[('a', ".repeat(3000),
                ")]".repeat(3000)
            ),
            "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }",
            "{'descr': '<i2', 'fortran_order': False, 'shape': (-1,), }",
            "{'descr': '<i2', 'fortran_order': False, 'shape': (99999999999999999999,), }",
            "{'descr': '<i2', 'fortran_order': False, 'shape': (9999999999, 9999999999), }",
            "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), 'x': 1}",
            "{'descr': '<i2', 'descr': '<i2', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<i2', 'fortran_order': False, 'shape': (2,)} print()",
            &deep,
        ] {
            assert!(
                decode("npy", &npy(header, &data), &limits).is_err(),
                "{header}"
            );
        }
    }

    proptest! {
        #[test]
        fn damaged_npy_headers_give_a_value_or_an_error(
            changes in proptest::collection::vec((0..80_usize, 32..127_u8), 0..6),
        ) {
            let mut header = *b"{'descr': [('a', '<i2', (2,)), ('b', [('c', '|S4')])], 'fortran_order': True, 'shape': (1, 2), }";
            for (at, to) in changes {
                header[at] = to;
            }
            let length = u16::try_from(header.len()).unwrap().to_le_bytes();
            let bytes = [b"\x93NUMPY\x01\x00", &length[..], &header, &[0; 16]].concat();
            let value = decode("npy", &bytes, &Limits::default());
            let is_right = match &value {
                Ok(value) => matches!(value, Value::NumPy(_) | Value::Array(_)),
                Err(error) => error.id() == "field-array",
            };
            prop_assert!(is_right, "{:?}", value);
        }

        #[test]
        fn damaged_arrays_give_a_value_or_an_error(
            cut in 0..500_usize,
            changes in proptest::collection::vec((0..500_usize, any::<u8>()), 0..4),
        ) {
            let numbers = [7; 60];
            let one = array(DType::Int16, &[5, 6], &numbers);
            for field in ["npy", "ten"] {
                let mut bytes = encoded(field, std::slice::from_ref(&one)).unwrap();
                for (at, to) in &changes {
                    let at = at % bytes.len();
                    bytes[at] = *to;
                }
                bytes.truncate(cut);
                if let Ok(Value::Array(found)) = decode(field, &bytes, &Limits::default()) {
                    prop_assert!(found.data.len() <= bytes.len());
                }
            }
        }
    }
}
