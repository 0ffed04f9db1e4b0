//! Writes a decoded value as JSON on one line. Numbers are exact: a float has the shortest text that reads back as the
//! same number, and keeps its `.0`.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use half::f16;

use crate::{DType, Image, NdArray, Value};

/// Appends `value` as JSON. Values longer than `max_bytes` are shortened and marked as such.
pub fn write_value(value: &Value<'_>, max_bytes: Option<usize>, out: &mut Vec<u8>) {
    let max = max_bytes.unwrap_or(usize::MAX);
    match value {
        Value::Bytes(bytes) => {
            out.push(b'{');
            write_blob("bytes", bytes, max, out);
            out.push(b'}');
        }
        Value::Str(text) => write_text(text, max, out),
        Value::Int(number) => write_number(number, out),
        Value::U8(number) => write_number(number, out),
        Value::I8(number) => write_number(number, out),
        Value::U16(number) => write_number(number, out),
        Value::I16(number) => write_number(number, out),
        Value::U32(number) => write_number(number, out),
        Value::I32(number) => write_number(number, out),
        Value::U64(number) => write_number(number, out),
        Value::I64(number) => write_number(number, out),
        Value::F16(number) => write_f32(number.to_f32(), out),
        Value::F32(number) => write_f32(*number, out),
        Value::F64(number) | Value::Float(number) => write_f64(*number, out),
        Value::BigInt(digits) => write_big_int(digits, out),
        Value::Decimal(text) => write_string(text, out),
        Value::Json(text) => write_json_value(text, max, out),
        Value::NdArray(array) => write_array(array, max, out),
        Value::Image(image) => write_image(image, max, out),
        Value::Images(images) => {
            write_list(images, out, |image, out| write_image(image, max, out));
        }
        Value::Pickle(bytes) => {
            out.push(b'{');
            write_blob("pickle_bytes", bytes, max, out);
            out.push(b'}');
        }
    }
}

/// Returns a number as text: as in JSON, where only NaN, infinities and decimals are in quotes.
#[must_use]
pub fn number_text(value: &Value<'_>) -> String {
    let mut json = Vec::new();
    write_value(value, None, &mut json);
    let json = String::from_utf8_lossy(&json);
    let inner = json
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(&json).to_owned()
}

fn write_json_value(text: &str, max: usize, out: &mut Vec<u8>) {
    if text.len() <= max {
        return write_json(text, out);
    }
    out.extend_from_slice(b"{\"json_bytes\":");
    write_number(text.len(), out);
    out.extend_from_slice(b",\"text\":");
    write_text(text, max, out);
    out.push(b'}');
}

/// Appends the name of the next entry of a JSON object, which begins with `{`.
pub fn begin_entry(name: &str, out: &mut Vec<u8>) {
    if !out.ends_with(b"{") {
        out.push(b',');
    }
    write_string(name, out);
    out.push(b':');
}

/// Appends a JSON string.
fn write_string(text: &str, out: &mut Vec<u8>) {
    // Writing a string to a `Vec` cannot fail.
    let _ = serde_json::to_writer(&mut *out, text);
}

/// Appends a JSON array. `write` appends an item.
pub fn write_list<T>(
    items: impl IntoIterator<Item = T>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(T, &mut Vec<u8>),
) {
    out.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

fn write_number(number: impl std::fmt::Display, out: &mut Vec<u8>) {
    let _ = write!(out, "{number}");
}

/// Appends a special float as a string, because JSON has no literal for it.
fn write_special(positive: bool, nan: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(match (nan, positive) {
        (true, _) => b"\"NaN\"",
        (false, true) => b"\"Infinity\"",
        (false, false) => b"\"-Infinity\"",
    });
}

fn write_f32(number: f32, out: &mut Vec<u8>) {
    if number.is_finite() {
        let _ = serde_json::to_writer(&mut *out, &number);
    } else {
        write_special(number > 0.0, number.is_nan(), out);
    }
}

fn write_f64(number: f64, out: &mut Vec<u8>) {
    if number.is_finite() {
        let _ = serde_json::to_writer(&mut *out, &number);
    } else {
        write_special(number > 0.0, number.is_nan(), out);
    }
}

/// Appends digits unchanged if they are a JSON number, otherwise as a string (`007`, `+1`).
fn write_big_int(text: &str, out: &mut Vec<u8>) {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty();
    if plain && (digits == "0" || !digits.starts_with('0')) {
        out.extend_from_slice(text.as_bytes());
    } else {
        write_string(text, out);
    }
}

fn write_text(text: &str, max: usize, out: &mut Vec<u8>) {
    if text.len() <= max {
        return write_string(text, out);
    }
    let end = text.floor_char_boundary(max);
    let shortened = format!("{}…", text.get(..end).unwrap_or_default());
    write_string(&shortened, out);
}

/// Appends `"name":N,"base64":"…"`, and `"shortened":true` if the value was shortened.
fn write_blob(name: &str, bytes: &[u8], max: usize, out: &mut Vec<u8>) {
    let _ = write!(out, "\"{name}\":{},\"base64\":\"", bytes.len());
    let shown = bytes.get(..max).unwrap_or(bytes);
    let start = out.len();
    let length = base64::encoded_len(shown.len(), true).unwrap_or(0);
    out.resize(start + length, 0);
    if let Some(space) = out.get_mut(start..) {
        // The space has exactly the encoded length. With a shorter one, nothing would be written.
        let _ = STANDARD.encode_slice(shown, space);
    }
    out.push(b'"');
    if shown.len() < bytes.len() {
        out.extend_from_slice(b",\"shortened\":true");
    }
}

fn write_image(image: &Image<'_>, max: usize, out: &mut Vec<u8>) {
    let _ = write!(out, "{{\"format\":\"{}\",", image.kind);
    match &image.pil {
        Some(frame) => {
            let _ = write!(
                out,
                "\"width\":{},\"height\":{},\"mode\":",
                frame.width, frame.height
            );
            write_string(frame.mode, out);
            out.push(b',');
            write_blob("bytes", frame.raw, max, out);
        }
        None => write_blob("bytes", image.bytes, max, out),
    }
    out.push(b'}');
}

fn write_array(array: &NdArray<'_>, max: usize, out: &mut Vec<u8>) {
    let _ = write!(out, "{{\"dtype\":\"{}\",\"shape\":", array.dtype);
    write_list(&array.shape, out, write_number);
    out.extend_from_slice(b",\"data\":");
    let shown = array.data.get(..max).unwrap_or(array.data);
    write_items(array.dtype, shown, out);
    if shown.len() < array.data.len() {
        out.extend_from_slice(b",\"shortened\":true");
    }
    out.push(b'}');
}

/// Appends the complete items in `data` as a JSON array.
pub fn write_items(dtype: DType, data: &[u8], out: &mut Vec<u8>) {
    match dtype {
        DType::U8 => items(data, u8::from_le_bytes, write_number, out),
        DType::I8 => items(data, i8::from_le_bytes, write_number, out),
        DType::U16 => items(data, u16::from_le_bytes, write_number, out),
        DType::I16 => items(data, i16::from_le_bytes, write_number, out),
        DType::F16 => items(data, |b| f16::from_le_bytes(b).to_f32(), write_f32, out),
        DType::U32 => items(data, u32::from_le_bytes, write_number, out),
        DType::I32 => items(data, i32::from_le_bytes, write_number, out),
        DType::F32 => items(data, f32::from_le_bytes, write_f32, out),
        DType::U64 => items(data, u64::from_le_bytes, write_number, out),
        DType::I64 => items(data, i64::from_le_bytes, write_number, out),
        DType::F64 => items(data, f64::from_le_bytes, write_f64, out),
    }
}

fn items<const N: usize, T>(
    data: &[u8],
    read: fn([u8; N]) -> T,
    write: fn(T, &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let (chunks, _) = data.as_chunks::<N>();
    write_list(chunks, out, |chunk, out| write(read(*chunk), out));
}

/// Appends JSON text without whitespace. The three constants that Python adds to JSON become strings, so the output is
/// one line of valid JSON. Everything else is copied: key order, duplicates, digits.
pub fn write_json(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        match first {
            b'"' => {
                let end = string_end(tail);
                let (string, after) = tail.split_at_checked(end).unwrap_or((tail, &[]));
                out.push(b'"');
                out.extend_from_slice(string);
                rest = after;
            }
            b' ' | b'\t' | b'\n' | b'\r' => rest = tail,
            _ => {
                let word = [&b"-Infinity"[..], b"Infinity", b"NaN"]
                    .into_iter()
                    .find_map(|word| rest.strip_prefix(word).map(|after| (word, after)));
                match word {
                    Some((word, after)) => {
                        out.push(b'"');
                        out.extend_from_slice(word);
                        out.push(b'"');
                        rest = after;
                    }
                    None => {
                        out.push(*first);
                        rest = tail;
                    }
                }
            }
        }
    }
}

/// Returns the length of the rest of a string, including the closing quote.
fn string_end(rest: &[u8]) -> usize {
    let mut escaped = false;
    for (offset, byte) in rest.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return offset + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ImageKind, PilFrame};

    fn shown(value: &Value<'_>, max: Option<usize>) -> String {
        let mut out = Vec::new();
        write_value(value, max, &mut out);
        let text = String::from_utf8(out).unwrap();
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(&text);
        assert!(parsed.is_ok(), "not JSON: {text}");
        assert!(!text.contains('\n'), "not a line: {text}");
        text
    }

    #[test]
    fn numbers_are_formatted_exactly() {
        for (value, text) in [
            (Value::U64(u64::MAX), "18446744073709551615"),
            (Value::I64(i64::MIN), "-9223372036854775808"),
            (Value::F32(0.1), "0.1"),
            (Value::F64(0.1), "0.1"),
            (Value::F64(-0.0), "-0.0"),
            (Value::F16(f16::from_f32(1.5)), "1.5"),
            (Value::F64(f64::NAN), "\"NaN\""),
            (Value::F32(f32::INFINITY), "\"Infinity\""),
            (Value::Float(f64::NEG_INFINITY), "\"-Infinity\""),
            (
                Value::BigInt("-123456789012345678901234567890"),
                "-123456789012345678901234567890",
            ),
            (Value::BigInt("007"), "\"007\""),
            (Value::BigInt("0"), "0"),
            (Value::Decimal("1.50"), "\"1.50\""),
        ] {
            assert_eq!(shown(&value, None), text);
        }
    }

    #[test]
    fn numbers_and_decimals_are_plain_text() {
        for (value, text) in [
            (Value::I32(-5), "-5"),
            (Value::F64(1.0), "1.0"),
            (Value::F64(f64::NAN), "NaN"),
            (Value::Decimal("1.50"), "1.50"),
        ] {
            assert_eq!(number_text(&value), text);
        }
    }

    #[test]
    fn json_keeps_key_order_and_digits() {
        let text = " {\"b\" : [1e400, NaN, -Infinity],\n \"a\": \"NaN \\\" {\", \"c\": 12345678901234567890123} ";
        let mut out = Vec::new();
        write_json(text, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"b":[1e400,"NaN","-Infinity"],"a":"NaN \" {","c":12345678901234567890123}"#
        );
    }

    #[test]
    fn bytes_are_shown_with_length_and_base64() {
        assert_eq!(
            shown(&Value::Bytes(b"abcd"), None),
            r#"{"bytes":4,"base64":"YWJjZA=="}"#
        );
        assert_eq!(
            shown(&Value::Bytes(b"abcd"), Some(3)),
            r#"{"bytes":4,"base64":"YWJj","shortened":true}"#
        );
        assert_eq!(
            shown(&Value::Pickle(b"\x80\x04"), None),
            r#"{"pickle_bytes":2,"base64":"gAQ="}"#
        );
        assert_eq!(shown(&Value::Str("aéé"), Some(2)), "\"a…\"");
        assert_eq!(
            shown(&Value::Json("[1, 2, 3]"), Some(4)),
            r#"{"json_bytes":9,"text":"[1, …"}"#
        );
    }

    #[test]
    fn arrays_are_shown_flat_with_shape() {
        let array = NdArray {
            dtype: DType::I16,
            shape: vec![1, 2],
            data: &[1, 0, 0xff, 0xff],
        };
        assert_eq!(
            shown(&Value::NdArray(array.clone()), None),
            r#"{"dtype":"int16","shape":[1,2],"data":[1,-1]}"#
        );
        assert_eq!(
            shown(&Value::NdArray(array), Some(3)),
            r#"{"dtype":"int16","shape":[1,2],"data":[1],"shortened":true}"#
        );
    }

    #[test]
    fn images_are_shown_with_their_format() {
        let jpeg = Image {
            kind: ImageKind::Jpeg,
            bytes: b"\xff\xd8",
            pil: None,
        };
        let pil = Image {
            kind: ImageKind::Pil,
            bytes: b"not shown",
            pil: Some(PilFrame {
                width: 1,
                height: 1,
                mode: "L",
                raw: &[7],
            }),
        };
        assert_eq!(
            shown(&Value::Images(vec![jpeg, pil]), None),
            r#"[{"format":"jpeg","bytes":2,"base64":"/9g="},{"format":"pil","width":1,"height":1,"mode":"L","bytes":1,"base64":"Bw=="}]"#
        );
    }
}
