//! Describes values for the page in a bounded number of bytes, whatever a sample contains.

use serde_json::{Map, Value as Json, json};
use shardmill_mds::value_json::{number_text, write_items, write_json};
use shardmill_mds::{DType, NdArray, Value, f16};
use shardmill_tokenize::Tokenizer;

use crate::media::{MediaKind, bitmap, image_size, media_type};
use crate::message::UNKNOWN;
use crate::samples::{FieldValue, images};

/// How much of a value the page receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviewSize {
    /// The most bytes of a text.
    pub text_bytes: usize,
    /// The most bytes that are shown as hexadecimal digits.
    pub hex_bytes: usize,
    /// The most numbers of an array on each axis of a picture.
    pub side: usize,
    /// The most numbers of an array that are shown as text.
    pub items: usize,
}

impl PreviewSize {
    /// For one sample.
    pub const FULL: Self = Self {
        text_bytes: 64 << 10,
        hex_bytes: 4 << 10,
        side: 128,
        items: 1000,
    };

    /// For a tile of a grid.
    pub const TILE: Self = Self {
        text_bytes: 240,
        hex_bytes: 32,
        side: 24,
        items: 8,
    };
}

/// The most pixels of an image that the page opens. A browser needs four bytes for each.
const PIXELS: u64 = 64 << 20;

/// The most numbers of an array that are measured.
const MEASURED: usize = 16 << 20;

/// The most images of one value that are shown.
const IMAGES: usize = 64;

/// The most bytes of a text whose frequency is counted.
const SHORT_BYTES: usize = 100;

/// Describes a field.
pub fn preview(field: &FieldValue<'_>, size: PreviewSize, tokens: Option<&Tokenizer>) -> Json {
    let mut out = Map::new();
    out.insert("name".to_owned(), json!(field.name));
    out.insert("encoding".to_owned(), json!(field.encoding));
    out.insert("bytes".to_owned(), json!(field.stored_bytes));
    let facts = match &field.value {
        Err(message) => with(hex(field.bytes, size), json!({ "error": message })),
        Ok(value) => value_facts(field, value, size),
    };
    if let Json::Object(facts) = facts {
        out.extend(facts);
    }
    let ids = tokens.and_then(|tokens| Some((tokens, ids(field, size)?)));
    if let Some((tokens, ids)) = ids {
        let decoded = tokens.decode(&ids).unwrap_or_else(|error| error);
        let end = decoded.floor_char_boundary(size.text_bytes);
        out.insert("decoded".to_owned(), json!(decoded.get(..end)));
    }
    Json::Object(out)
}

/// Returns the first numbers of a list or an array of one dimension, if they can be token ids.
fn ids(field: &FieldValue<'_>, size: PreviewSize) -> Option<Vec<u32>> {
    let max = size.text_bytes / 4;
    let (dtype, data) = match field.value.as_ref().ok()? {
        Value::Json(text) if text.starts_with('[') => {
            let ids: Vec<u32> = serde_json::from_str(text).ok()?;
            return (!ids.is_empty()).then(|| ids.into_iter().take(max).collect());
        }
        Value::NdArray(array) if array.shape.len() == 1 => (array.dtype, array.data),
        // COMPAT: LLM Foundry stores 64-bit ids as bytes in these columns.
        Value::Bytes(bytes) if matches!(field.name, "tokens" | "input_ids" | "labels") => {
            (DType::I64, *bytes)
        }
        _ => return None,
    };
    let width = match dtype {
        DType::U8 | DType::I8 | DType::F16 | DType::F32 | DType::F64 => return None,
        dtype => usize::try_from(dtype.size_bytes()).ok()?,
    };
    if data.is_empty() || !data.len().is_multiple_of(width) {
        return None;
    }
    let id = |bytes: &[u8]| match dtype {
        DType::U16 | DType::I16 => Some(u16::from_le_bytes(bytes.try_into().ok()?).into()),
        DType::U32 | DType::I32 => Some(u32::from_le_bytes(bytes.try_into().ok()?)),
        _ => u32::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok(),
    };
    data.chunks_exact(width).take(max).map(id).collect()
}

fn value_facts(field: &FieldValue<'_>, value: &Value<'_>, size: PreviewSize) -> Json {
    match value {
        Value::Str(text) => text_facts("text", text, size),
        Value::Json(text) => json_facts(text, size),
        Value::NdArray(array) => array_facts(array, size),
        Value::Image(_) | Value::Images(_) => images_facts(field, value, size),
        Value::Bytes(bytes) => bytes_facts(bytes, field.stored_bytes, size),
        Value::Pickle(bytes) => with(
            hex(bytes, size),
            json!({ "note": "a pickle, which is never loaded because it can run code" }),
        ),
        number => text_facts("number", &number_text(number), size),
    }
}

/// Adds the members of one object to another.
fn with(mut facts: Json, more: Json) -> Json {
    if let (Json::Object(facts), Json::Object(more)) = (&mut facts, more) {
        facts.extend(more);
    }
    facts
}

fn text_facts(kind: &str, text: &str, size: PreviewSize) -> Json {
    let end = text.floor_char_boundary(size.text_bytes);
    let shown = text.get(..end).unwrap_or_default();
    json!({ "kind": kind, "text": shown, "truncated": end < text.len() })
}

/// Describes JSON as `cat` prints it. The page parses the text itself, because a browser rounds the numbers of JSON.
fn json_facts(text: &str, size: PreviewSize) -> Json {
    /// How many times longer than what is shown a text with whitespace may be.
    const INDENTED: usize = 8;
    let end = text.floor_char_boundary(INDENTED * size.text_bytes);
    let mut line = Vec::new();
    write_json(text.get(..end).unwrap_or_default(), &mut line);
    let facts = text_facts("json", &String::from_utf8_lossy(&line), size);
    match end < text.len() {
        true => with(facts, json!({ "truncated": true })),
        false => facts,
    }
}

fn hex(bytes: &[u8], size: PreviewSize) -> Json {
    let shown = bytes
        .get(..size.hex_bytes.min(bytes.len()))
        .unwrap_or_default();
    let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({ "kind": "bytes", "hex": digits, "truncated": shown.len() < bytes.len() })
}

/// Describes bytes by their content: media, text or anything else.
fn bytes_facts(bytes: &[u8], stored_bytes: u64, size: PreviewSize) -> Json {
    match media_type(bytes) {
        Some((MediaKind::Image, mime)) => image_facts(bytes, mime),
        Some((MediaKind::Audio, mime)) => json!({ "kind": "audio", "mime": mime }),
        Some((MediaKind::Video, mime)) => json!({ "kind": "video", "mime": mime }),
        None => {
            let head = bytes
                .get(..bytes.len().min(size.text_bytes))
                .unwrap_or_default();
            let valid = match std::str::from_utf8(head) {
                Ok(text) => text,
                // A cut character at the end is not an error of the text.
                Err(error) if error.valid_up_to() + 4 > head.len() => {
                    let valid = head.get(..error.valid_up_to());
                    valid
                        .and_then(|valid| std::str::from_utf8(valid).ok())
                        .unwrap_or_default()
                }
                Err(_) => "",
            };
            if valid.is_empty() || valid.contains('\0') {
                return hex(bytes, size);
            }
            json!({
                "kind": "text",
                "text": valid,
                "truncated": (valid.len() as u64) < stored_bytes,
                "note": "bytes, shown as text",
            })
        }
    }
}

fn image_facts(bytes: &[u8], mime: &str) -> Json {
    let size = image_size(bytes);
    let pixels = size.map(|(width, height)| u64::from(width) * u64::from(height));
    let mut facts = json!({ "kind": "image", "mime": mime });
    if let Some((width, height)) = size {
        facts = with(facts, json!({ "width": width, "height": height }));
    }
    if pixels.is_some_and(|pixels| pixels > PIXELS) {
        let note = json!({ "kind": "bytes", "hex": "", "note": "the image is too large to show" });
        facts = with(facts, note);
    }
    facts
}

fn images_facts(field: &FieldValue<'_>, value: &Value<'_>, size: PreviewSize) -> Json {
    let images = images(value);
    let Some(first) = images.first() else {
        return json!({ "kind": "text", "text": "", "note": "no images" });
    };
    let facts = match first.pil {
        Some(frame) => {
            let is_shown = matches!(frame.mode, "L" | "RGB" | "RGBA");
            let pixels = u64::from(frame.width) * u64::from(frame.height);
            let facts = match is_shown && pixels <= PIXELS {
                true => json!({ "kind": "image", "mime": "image/bmp" }),
                false => hex(frame.raw, size),
            };
            let frame = json!({ "width": frame.width, "height": frame.height, "mode": frame.mode });
            with(facts, frame)
        }
        None => bytes_facts(first.bytes, field.stored_bytes, size),
    };
    match images.len() {
        1 => facts,
        count => with(
            facts,
            json!({ "images": count.min(IMAGES), "images_stored": count }),
        ),
    }
}

/// Returns a number or a short text as text.
pub fn short_text(field: &FieldValue<'_>) -> Option<String> {
    let text = match field.value.as_ref().ok()? {
        Value::Str(text) | Value::Json(text) => (*text).to_owned(),
        Value::Bytes(bytes) => std::str::from_utf8(bytes).ok()?.to_owned(),
        Value::NdArray(_) | Value::Image(_) | Value::Images(_) | Value::Pickle(_) => return None,
        number => number_text(number),
    };
    (text.len() <= SHORT_BYTES).then_some(text)
}

/// Describes an array: its first numbers, extremes and mean as exact text, and a picture of at most `side` rows and
/// columns, whose numbers are rounded.
///
/// One dimension is a line, which has `side` squared points at most. Of more dimensions, the picture shows the last two
/// of the first item of the others.
fn array_facts(array: &NdArray<'_>, size: PreviewSize) -> Json {
    let width = usize::try_from(array.dtype.size_bytes()).unwrap_or(8);
    let items = array.data.len() / width;
    let bytes = |at: usize| array.data.get(at * width..(at + 1) * width);
    let number = |at: usize| bytes(at).map_or(f64::NAN, |bytes| number_of(array.dtype, bytes));
    let step = items.div_ceil(MEASURED).max(1);
    // The positions of the extremes, because large integers differ by less than a float shows.
    let mut extremes: Option<(usize, usize)> = None;
    let (mut sum, mut finite, mut other) = (0.0, 0_u32, 0_u32);
    let order = |at: usize| {
        (
            number(at),
            bytes(at).map_or(0, |bytes| integer_of(array.dtype, bytes)),
        )
    };
    for at in (0..items).step_by(step) {
        let value = number(at);
        if value.is_finite() {
            let (min, max) = extremes.unwrap_or((at, at));
            extremes = Some((
                if order(at) < order(min) { at } else { min },
                if order(at) > order(max) { at } else { max },
            ));
            sum += value;
            finite += 1;
        } else {
            other += 1;
        }
    }
    let text = |at: usize| bytes(at).map(|bytes| items_text(array.dtype, bytes));
    let shown = size.items.saturating_mul(width).min(array.data.len());
    let shown = array.data.get(..shown).unwrap_or_default();
    let dims: Vec<usize> = array
        .shape
        .iter()
        .map(|dim| usize::try_from(*dim).unwrap_or(usize::MAX))
        .collect();
    let (rows, columns) = match *dims.as_slice() {
        [.., rows, columns] => (rows, columns),
        _ => (1, items),
    };
    let max_columns = match rows {
        1 => size.side * size.side / 8,
        _ => size.side,
    };
    let (row_step, column_step) = (
        rows.div_ceil(size.side).max(1),
        columns.div_ceil(max_columns).max(1),
    );
    let mut values = Vec::new();
    for row in (0..rows).step_by(row_step) {
        for column in (0..columns).step_by(column_step) {
            // JSON has no NaN and no infinities: they become null.
            values.push(json!(number(
                row.saturating_mul(columns).saturating_add(column)
            )));
        }
    }
    json!({
        "kind": "array",
        "dtype": array.dtype.to_string(),
        "shape": array.shape,
        "min": extremes.map(|(min, _)| number(min)),
        "max": extremes.map(|(_, max)| number(max)),
        "range": extremes.map(|(min, max)| [text(min), text(max)]),
        "mean": extremes.map(|_| number_text(&Value::F64(sum / f64::from(finite)))),
        "items": items_text(array.dtype, shown),
        "items_truncated": shown.len() < array.data.len(),
        "not_finite": other,
        "sampled": step > 1,
        "columns": columns.div_ceil(column_step),
        "rows": rows.div_ceil(row_step),
        "values": values,
    })
}

/// Returns numbers as text.
fn items_text(dtype: DType, data: &[u8]) -> String {
    let mut items = Vec::new();
    write_items(dtype, data, &mut items);
    // NaN and infinities are strings only in JSON.
    let items = String::from_utf8_lossy(&items).replace('"', "");
    items.trim_matches(['[', ']']).replace(',', ", ")
}

/// Returns a 64-bit integer, or 0 for a number that a float represents exactly.
fn integer_of(dtype: DType, bytes: &[u8]) -> i128 {
    let number = match dtype {
        DType::U64 => bytes
            .try_into()
            .map(|bytes| u64::from_le_bytes(bytes).into()),
        DType::I64 => bytes
            .try_into()
            .map(|bytes| i64::from_le_bytes(bytes).into()),
        _ => return 0,
    };
    number.unwrap_or(0)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a picture shows about three digits"
)]
fn number_of(dtype: DType, bytes: &[u8]) -> f64 {
    macro_rules! of {
        ($type:ty) => {
            bytes.try_into().map(<$type>::from_le_bytes)
        };
    }
    let number = match dtype {
        DType::U8 => of!(u8).map(f64::from),
        DType::I8 => of!(i8).map(f64::from),
        DType::U16 => of!(u16).map(f64::from),
        DType::I16 => of!(i16).map(f64::from),
        DType::F16 => of!(f16).map(f16::to_f64),
        DType::U32 => of!(u32).map(f64::from),
        DType::I32 => of!(i32).map(f64::from),
        DType::F32 => of!(f32).map(f64::from),
        DType::U64 => of!(u64).map(|number| number as f64),
        DType::I64 => of!(i64).map(|number| number as f64),
        DType::F64 => of!(f64),
    };
    number.unwrap_or(f64::NAN)
}

/// Returns the bytes of a value that a browser can open or save, and their media type. `item` selects one of several
/// images.
pub fn raw(field: &FieldValue<'_>, item: usize) -> Option<(&'static str, Vec<u8>)> {
    if let Ok(value @ (Value::Image(_) | Value::Images(_))) = &field.value {
        let image = images(value).get(item)?;
        if let Some(frame) = image.pil {
            let file = bitmap(frame.width, frame.height, frame.mode, frame.raw);
            return Some(match file {
                Some(file) => ("image/bmp", file),
                None => (UNKNOWN, image.bytes.to_vec()),
            });
        }
        return Some((media(image.bytes), image.bytes.to_vec()));
    }
    let bytes = field.content();
    (item == 0).then(|| (media(bytes), bytes.to_vec()))
}

fn media(bytes: &[u8]) -> &'static str {
    media_type(bytes).map_or(UNKNOWN, |(_, mime)| mime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field<'a>(bytes: &'a [u8], value: Value<'a>) -> FieldValue<'a> {
        FieldValue {
            name: "a",
            encoding: "".into(),
            bytes,
            stored_bytes: bytes.len() as u64,
            value: Ok(value),
        }
    }

    #[test]
    fn markup_is_previewed_as_text() {
        let svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>";
        let shown = preview(&field(svg, Value::Bytes(svg)), PreviewSize::FULL, None);
        assert_eq!(shown["kind"], "text");
        assert_eq!(raw(&field(svg, Value::Bytes(svg)), 0).unwrap().0, UNKNOWN);
    }

    #[test]
    fn long_values_are_truncated() {
        let text = "é".repeat(1 << 20);
        let shown = preview(
            &field(text.as_bytes(), Value::Str(&text)),
            PreviewSize::FULL,
            None,
        );
        assert_eq!(
            shown["text"].as_str().unwrap().len(),
            PreviewSize::FULL.text_bytes
        );
        assert_eq!(shown["truncated"], true);
        let shown = preview(
            &field(text.as_bytes(), Value::Bytes(text.as_bytes())),
            PreviewSize::TILE,
            None,
        );
        assert_eq!(
            (&shown["kind"], &shown["truncated"]),
            (&json!("text"), &json!(true))
        );
        let bytes = vec![0xff_u8; 1 << 20];
        let shown = preview(
            &field(&bytes, Value::Bytes(&bytes)),
            PreviewSize::FULL,
            None,
        );
        assert_eq!(
            shown["hex"].as_str().unwrap().len(),
            2 * PreviewSize::FULL.hex_bytes
        );
    }

    #[test]
    fn large_images_are_not_decoded() {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        png.extend_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
        let shown = preview(&field(&png, Value::Bytes(&png)), PreviewSize::FULL, None);
        assert_eq!(
            (&shown["kind"], &shown["width"]),
            (&json!("bytes"), &json!(65536))
        );
    }

    #[test]
    fn array_previews_are_downsampled() {
        let mut data = Vec::new();
        for number in 0..3_000_000_u32 {
            data.extend_from_slice(&f64::from(number).to_le_bytes());
        }
        data[..8].copy_from_slice(&f64::NAN.to_le_bytes());
        let array = |shape: Vec<u64>| {
            Value::NdArray(NdArray {
                dtype: DType::F64,
                shape,
                data: &data,
            })
        };
        for shape in [
            vec![3_000_000],
            vec![3000, 1000],
            vec![2, 1500, 1000],
            vec![1, 3_000_000],
        ] {
            let shown = preview(&field(&data, array(shape)), PreviewSize::FULL, None);
            let values = shown["values"].as_array().unwrap();
            assert!(values.len() <= 128 * 128, "{}", values.len());
            let (rows, columns) = (shown["rows"].as_u64(), shown["columns"].as_u64());
            assert_eq!(rows.unwrap() * columns.unwrap(), values.len() as u64);
            assert_eq!((&values[0], &shown["not_finite"]), (&Json::Null, &json!(1)));
            assert_eq!(
                (&shown["min"], &shown["max"]),
                (&json!(1.0), &json!(2_999_999.0))
            );
            assert_eq!(shown["range"], json!(["1.0", "2999999.0"]));
            let items = shown["items"].as_str().unwrap();
            assert!(items.starts_with("NaN, 1.0, 2.0, "), "{items}");
            assert_eq!(items.split(", ").count(), PreviewSize::FULL.items);
            assert_eq!(shown["items_truncated"], true);
        }
    }

    #[test]
    fn extremes_of_large_integers_are_exact() {
        let data: Vec<u8> = [u64::MAX - 1, u64::MAX, u64::MAX - 2]
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .collect();
        let (dtype, shape) = (DType::U64, vec![3]);
        let array = Value::NdArray(NdArray {
            dtype,
            shape,
            data: &data,
        });
        let shown = preview(&field(&data, array), PreviewSize::TILE, None);
        let (least, most) = ("18446744073709551613", "18446744073709551615");
        assert_eq!(shown["range"], json!([least, most]));
        assert_eq!(
            shown["items"],
            format!("18446744073709551614, {most}, {least}")
        );
    }

    #[test]
    fn numbers_and_json_are_shown_as_cat_prints_them() {
        let long = "9".repeat(PreviewSize::TILE.text_bytes + 1);
        let truncated = &long[1..];
        for (value, text, is_truncated) in [
            (Value::F64(1.0), "1.0", false),
            (Value::F32(f32::NEG_INFINITY), "-Infinity", false),
            (Value::Decimal("1.50"), "1.50", false),
            (Value::BigInt(&long), truncated, true),
            (
                Value::Json("{ \"b\" : 9007199254740993,\n \"1\": [1.0, \"a  b\"] }"),
                "{\"b\":9007199254740993,\"1\":[1.0,\"a  b\"]}",
                false,
            ),
            (
                Value::Json(&format!("1.0{}", " ".repeat(1 << 20))),
                "1.0",
                true,
            ),
        ] {
            let shown = preview(&field(b"", value), PreviewSize::TILE, None);
            assert_eq!(
                (&shown["text"], &shown["truncated"]),
                (&json!(text), &json!(is_truncated))
            );
        }
    }

    #[test]
    fn token_ids_are_read_from_one_dimensional_values() {
        let array = |dtype, shape: Vec<u64>, data| Value::NdArray(NdArray { dtype, shape, data });
        let found = |value: Value<'_>| ids(&field(b"", value), PreviewSize::FULL);
        let data = [1, 0, 0, 0, 2, 0, 0, 0];
        assert_eq!(found(array(DType::U32, vec![2], &data)), Some(vec![1, 2]));
        assert_eq!(
            found(array(DType::I16, vec![4], &data)),
            Some(vec![1, 0, 2, 0])
        );
        assert_eq!(found(array(DType::U32, vec![1, 2], &data)), None);
        assert_eq!(found(array(DType::F32, vec![2], &data)), None);
        assert_eq!(found(Value::Json("[7, 8]")), Some(vec![7, 8]));
        assert_eq!(found(Value::Json("[7, \"a\"]")), None);
        assert_eq!(found(Value::Bytes(&data)), None);
        let tokens = FieldValue {
            name: "tokens",
            ..field(&data, Value::Bytes(&data))
        };
        // A number beyond 32 bits is no id.
        assert_eq!(ids(&tokens, PreviewSize::FULL), None);
        let tokens = FieldValue {
            value: Ok(Value::Bytes(&[5, 0, 0, 0, 0, 0, 0, 0])),
            ..tokens
        };
        assert_eq!(ids(&tokens, PreviewSize::FULL), Some(vec![5]));
    }
}
