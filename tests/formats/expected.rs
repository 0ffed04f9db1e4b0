//! Compares decoded values with those that the original reader returned. The README of the fixtures describes the
//! format.

use serde_json::Value as Json;
use shardmill_mds::{Image, TextValue, Value, write_float};

/// Decodes base64 (standard alphabet, padded). Implemented here to avoid a dependency.
pub fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("not base64: {byte}"),
    };
    assert_eq!(text.len() % 4, 0, "base64 without its padding");
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.as_bytes().chunks(4) {
        let padding = group.iter().filter(|byte| **byte == b'=').count();
        let word = group.iter().fold(0, |word, byte| {
            (word << 6) | if *byte == b'=' { 0 } else { digit(*byte) }
        });
        out.extend_from_slice(&word.to_be_bytes()[1..4 - padding]);
    }
    out
}

fn text<'a>(tag: &'a Json, key: &str) -> Option<&'a str> {
    tag.get(key).map(|value| {
        value
            .as_str()
            .unwrap_or_else(|| panic!("{key} is no string in {tag}"))
    })
}

fn data(tag: &Json, key: &str) -> Option<Vec<u8>> {
    text(tag, key).map(base64)
}

fn numbers(tag: &Json, key: &str) -> Vec<u64> {
    tag[key]
        .as_array()
        .unwrap()
        .iter()
        .map(|value| value.as_u64().unwrap())
        .collect()
}

/// Returns whether the original reader refused the value.
pub fn is_unreadable(tag: &Json) -> bool {
    tag.get("unreadable").is_some()
}

/// Returns an integer as Python prints it: no plus sign, no leading zeros.
fn integer(text: &str) -> String {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => format!("{sign}{digits}"),
    }
}

fn python_float(value: f64) -> String {
    let mut out = Vec::new();
    write_float(value, &mut out);
    String::from_utf8(out).unwrap()
}

/// Compares a float with Python's text of it. Python prints the shortest text that parses to the same float, so equal
/// texts are equal floats. NaNs of the text formats all have the same bits.
fn same_float(value: f64, text: &str) -> bool {
    let expected: f64 = text.parse().unwrap();
    python_float(value) == text
        && (value.is_nan() && expected.is_nan() || value.to_bits() == expected.to_bits())
}

fn same_image(image: &Image<'_>, tag: &Json) -> bool {
    if image.kind.name() != text(tag, "kind").unwrap() {
        return false;
    }
    match image.pil {
        None => data(tag, "bytes").as_deref() == Some(image.bytes),
        Some(frame) => {
            numbers(tag, "size") == [u64::from(frame.width), u64::from(frame.height)]
                && text(tag, "mode") == Some(frame.mode)
                && data(tag, "raw").as_deref() == Some(frame.raw)
        }
    }
}

fn same_number(name: &str, bytes: &[u8], shown: Option<String>, tag: &Json) -> bool {
    text(tag, "number") == Some(name)
        && data(tag, "bytes").as_deref() == Some(bytes)
        && shown.is_none_or(|shown| text(tag, "text") == Some(&shown))
}

/// Returns whether a value of an MDS shard equals the one that the original reader returned.
pub fn same_value(value: &Value<'_>, tag: &Json) -> bool {
    match value {
        Value::Bytes(bytes) => data(tag, "bytes").as_deref() == Some(*bytes),
        Value::Str(value) => text(tag, "str") == Some(*value),
        Value::Int(value) => text(tag, "int") == Some(&value.to_string()),
        Value::U8(x) => same_number("uint8", &x.to_le_bytes(), Some(x.to_string()), tag),
        Value::I8(x) => same_number("int8", &x.to_le_bytes(), Some(x.to_string()), tag),
        Value::U16(x) => same_number("uint16", &x.to_le_bytes(), Some(x.to_string()), tag),
        Value::I16(x) => same_number("int16", &x.to_le_bytes(), Some(x.to_string()), tag),
        Value::U32(x) => same_number("uint32", &x.to_le_bytes(), Some(x.to_string()), tag),
        Value::I32(x) => same_number("int32", &x.to_le_bytes(), Some(x.to_string()), tag),
        Value::U64(x) => same_number("uint64", &x.to_le_bytes(), Some(x.to_string()), tag),
        Value::I64(x) => same_number("int64", &x.to_le_bytes(), Some(x.to_string()), tag),
        Value::F16(x) => same_number("float16", &x.to_le_bytes(), None, tag),
        Value::F32(x) => same_number("float32", &x.to_le_bytes(), None, tag),
        Value::F64(x) => same_number("float64", &x.to_le_bytes(), None, tag),
        Value::BigInt(value) => text(tag, "int") == Some(&integer(value)),
        Value::Float(value) => text(tag, "float").is_some_and(|text| same_float(*value, text)),
        Value::Decimal(value) => text(tag, "decimal") == Some(*value),
        Value::Json(value) => match data(tag, "datum") {
            Some(datum) => datum == value.as_bytes(),
            None => text(tag, "json") == Some(*value),
        },
        Value::NdArray(array) => tag.get("ndarray").is_some_and(|tag| {
            text(tag, "dtype") == Some(array.dtype.name())
                && numbers(tag, "shape") == array.shape
                && data(tag, "data").as_deref() == Some(array.data)
        }),
        Value::Image(image) => tag.get("image").is_some_and(|tag| same_image(image, tag)),
        Value::Images(images) => tag
            .get("images")
            .and_then(Json::as_array)
            .is_some_and(|tags| {
                images.len() == tags.len()
                    && images
                        .iter()
                        .zip(tags)
                        .all(|(image, tag)| same_image(image, tag))
            }),
        Value::Pickle(bytes) => data(tag, "pkl").as_deref() == Some(*bytes),
    }
}

/// Returns whether a value of a JSON or XSV shard equals the one that the original reader returned.
pub fn same_text_value(value: &TextValue<'_>, tag: &Json) -> bool {
    match value {
        TextValue::Str(value) => text(tag, "str") == Some(value.as_ref()),
        TextValue::Int(value) => text(tag, "int") == Some(&value.to_string()),
        TextValue::BigInt(value) => text(tag, "int") == Some(&integer(value)),
        TextValue::Float(value) => text(tag, "float").is_some_and(|text| same_float(*value, text)),
        TextValue::Json(value) => match tag.get("bool") {
            Some(expected) => value.parse().ok() == expected.as_bool(),
            None => text(tag, "json") == Some(*value),
        },
    }
}

#[test]
fn base64_is_decoded_at_every_length() {
    for (text, bytes) in [
        ("", &b""[..]),
        ("Zg==", b"f"),
        ("Zm8=", b"fo"),
        ("Zm9v", b"foo"),
        ("+/8=", b"\xfb\xff"),
    ] {
        assert_eq!(base64(text), bytes);
    }
}
