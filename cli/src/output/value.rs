//! Shows decoded values in the cells of tables.

use shardmill_mds::value_json::{number_text, write_items, write_json};
use shardmill_mds::{Image, Value};

/// The most items of an array that are shown in a table.
const SHOWN_ITEMS: usize = 8;

/// The most bytes of a text that are shown in a table. More than the widest terminal has room for.
const SHOWN_BYTES: usize = 1024;

/// Returns a value for a cell of a table: bytes as type and size, arrays as type and shape.
pub fn cell_text(value: &Value<'_>) -> String {
    match value {
        Value::Str(text) | Value::BigInt(text) | Value::Decimal(text) => shortened(text),
        Value::Bytes(bytes) => blob_text(content_type(bytes), bytes.len()),
        Value::Pickle(bytes) => blob_text("pickle", bytes.len()),
        Value::Image(image) => image_text(image),
        Value::Images(images) => {
            let images: Vec<String> = images.iter().take(SHOWN_ITEMS).map(image_text).collect();
            format!("[{}]", images.join(", "))
        }
        Value::NdArray(array) => {
            let shape: Vec<String> = array.shape.iter().map(ToString::to_string).collect();
            let mut text = format!("{}[{}]", array.dtype, shape.join("x"));
            let shown = SHOWN_ITEMS * usize::try_from(array.dtype.size_bytes()).unwrap_or(1);
            let (shown, rest) = array
                .data
                .split_at_checked(shown)
                .unwrap_or((array.data, &[]));
            if !shown.is_empty() {
                let mut items = Vec::new();
                write_items(array.dtype, shown, &mut items);
                let items = String::from_utf8_lossy(&items).replace(',', " ");
                text.push(' ');
                text.push_str(items.trim_matches(['[', ']']));
                text.push_str(if rest.is_empty() { "" } else { " …" });
            }
            text
        }
        Value::Json(text) => json_text(text),
        _ => number_text(value),
    }
}

fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(SHOWN_BYTES);
    text.get(..end).unwrap_or_default().to_owned()
}

fn json_text(text: &str) -> String {
    let mut json = Vec::new();
    write_json(&shortened(text), &mut json);
    String::from_utf8_lossy(&json).into_owned()
}

fn blob_text(content: &str, length: usize) -> String {
    format!("{content} {}", super::bytes(length as u64))
}

fn image_text(image: &Image<'_>) -> String {
    match &image.pil {
        Some(frame) => format!(
            "{} {}x{} {}",
            image.kind, frame.width, frame.height, frame.mode
        ),
        None => blob_text(&image.kind.to_string(), image.bytes.len()),
    }
}

/// Returns the type of a file by its first bytes; `bytes` for an unknown one.
fn content_type(bytes: &[u8]) -> &'static str {
    const TYPES: [(usize, &[u8], &str); 13] = [
        (0, b"\xff\xd8\xff", "jpeg"),
        (0, b"\x89PNG\r\n\x1a\n", "png"),
        (0, b"GIF8", "gif"),
        (8, b"WEBP", "webp"),
        (8, b"WAVE", "wav"),
        (4, b"ftyp", "mp4"),
        (0, b"fLaC", "flac"),
        (0, b"OggS", "ogg"),
        (0, b"ID3", "mp3"),
        (0, b"%PDF-", "pdf"),
        (0, b"\x93NUMPY", "npy"),
        (0, b"PK\x03\x04", "zip"),
        (0, b"\x28\xb5\x2f\xfd", "zstd"),
    ];
    let found = TYPES.iter().find(|(at, magic, _)| {
        let rest = bytes.get(*at..);
        rest.is_some_and(|rest| rest.starts_with(magic))
    });
    found.map_or("bytes", |(_, _, name)| name)
}
