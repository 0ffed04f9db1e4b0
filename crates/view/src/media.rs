//! Recognizes images, sounds and videos by their first bytes, and finds out how large an image is.
//!
//! The server declares only types of this list, and browsers are forbidden to guess others. SVG and HTML can contain
//! scripts and are not in the list.

/// The bytes that show what kind of media a value is.
pub const MEDIA_HEAD_BYTES: u64 = 64;

/// What a browser can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// An image.
    Image,
    /// A sound.
    Audio,
    /// A video.
    Video,
}

/// The types: the position and the value of their identifying bytes.
const TYPES: [(usize, &[u8], MediaKind, &str); 14] = [
    (0, b"\xff\xd8\xff", MediaKind::Image, "image/jpeg"),
    (0, b"\x89PNG\r\n\x1a\n", MediaKind::Image, "image/png"),
    (0, b"GIF8", MediaKind::Image, "image/gif"),
    (8, b"WEBP", MediaKind::Image, "image/webp"),
    (4, b"ftypavif", MediaKind::Image, "image/avif"),
    (8, b"WAVE", MediaKind::Audio, "audio/wav"),
    (0, b"fLaC", MediaKind::Audio, "audio/flac"),
    (0, b"OggS", MediaKind::Audio, "audio/ogg"),
    (0, b"ID3", MediaKind::Audio, "audio/mpeg"),
    (0, b"\xff\xfb", MediaKind::Audio, "audio/mpeg"),
    (0, b"\xff\xf3", MediaKind::Audio, "audio/mpeg"),
    (4, b"ftypM4A ", MediaKind::Audio, "audio/mp4"),
    (4, b"ftyp", MediaKind::Video, "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", MediaKind::Video, "video/webm"),
];

/// Returns the kind and the media type of a file.
pub fn media_type(bytes: &[u8]) -> Option<(MediaKind, &'static str)> {
    let found = TYPES.iter().find(|(at, magic, ..)| {
        let rest = bytes.get(*at..);
        rest.is_some_and(|rest| rest.starts_with(magic))
    });
    found.map(|(_, _, kind, name)| (*kind, *name))
}

/// Returns the width and the height of an image, from its header.
pub fn image_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let big = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let little = |at: usize| {
        let number = u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
        Some(u32::from(number))
    };
    match media_type(bytes)?.1 {
        "image/png" => Some((big(16)?, big(20)?)),
        "image/gif" => Some((little(6)?, little(8)?)),
        "image/jpeg" => jpeg_size(bytes),
        "image/webp" => match bytes.get(12..16)? {
            b"VP8X" => {
                let three = |at: usize| {
                    let bytes = bytes.get(at..at + 3)?;
                    Some(
                        bytes
                            .iter()
                            .rev()
                            .fold(1, |all, byte| (all << 8) | u32::from(*byte)),
                    )
                };
                // Both are stored less one; the leading 1 of the fold is at bit 24.
                Some((three(24)? - (1 << 24) + 1, three(27)? - (1 << 24) + 1))
            }
            b"VP8L" => {
                let bits = u32::from_le_bytes(bytes.get(21..25)?.try_into().ok()?);
                Some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1))
            }
            _ => Some((little(26)? & 0x3fff, little(28)? & 0x3fff)),
        },
        _ => None,
    }
}

/// Finds the frame header of a JPEG file.
fn jpeg_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let short = |at: usize| {
        let number = u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
        Some(u32::from(number))
    };
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        match *bytes.get(at + 1)? {
            // Fill bytes and markers without a length.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            0xc4 | 0xc8 | 0xcc | 0x00..=0xbf | 0xda..=0xfe => {
                at = at.checked_add(2 + usize::try_from(short(at + 2)?).ok()?)?;
            }
            0xc0..=0xcf => return Some((short(at + 7)?, short(at + 5)?)),
            0xd9 => return None,
        }
    }
}

/// Returns a BMP file with the pixels of a `pil` image, for the modes that browsers can show.
pub fn bitmap(width: u32, height: u32, mode: &str, raw: &[u8]) -> Option<Vec<u8>> {
    let channels = match mode {
        "L" => 1,
        "RGB" => 3,
        "RGBA" => 4,
        _ => return None,
    };
    let (columns, rows) = (usize::try_from(width).ok()?, usize::try_from(height).ok()?);
    let row_bytes = columns.checked_mul(channels)?;
    let row_padding = (4 - columns * 3 % 4) % 4;
    let size = rows.checked_mul(columns.checked_mul(3)?.checked_add(row_padding)?)?;
    if raw.len() != rows.checked_mul(row_bytes)? || row_bytes == 0 {
        return None;
    }
    let mut out = Vec::with_capacity(54 + size);
    out.extend_from_slice(b"BM");
    let file_bytes = u32::try_from(54 + size).ok()?;
    for number in [
        file_bytes,
        0,
        54,
        40,
        width,
        height,
        1 | (24 << 16),
        0,
        0,
        2835,
        2835,
        0,
        0,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for row in raw.chunks_exact(row_bytes).rev() {
        for pixel in row.chunks_exact(channels) {
            match *pixel {
                [red, green, blue] | [red, green, blue, _] => out.extend([blue, green, red]),
                [gray] => out.extend([gray; 3]),
                _ => return None,
            }
        }
        out.extend(std::iter::repeat_n(0, row_padding));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_of_markup_is_none() {
        for bytes in [
            &b"<svg xmlns='http://www.w3.org/2000/svg'/>"[..],
            b"<html>",
            b"GIF",
            b"",
        ] {
            assert_eq!(media_type(bytes), None);
        }
    }

    #[test]
    fn image_size_is_parsed_from_headers() {
        let png = [
            &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..],
            &[0, 0, 1, 0, 0, 0, 0, 2],
        ]
        .concat();
        let gif = b"GIF89a\x03\0\x04\0";
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x0b\x08\0\x07\0\x05\x01";
        let lossless = [
            &b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f"[..],
            &[0x04, 0x40, 0x01, 0],
        ]
        .concat();
        let extended = [
            &b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0"[..],
            &[1, 1, 0, 9, 0, 0],
        ]
        .concat();
        for (bytes, size) in [
            (&png[..], (256, 2)),
            (gif, (3, 4)),
            (jpeg, (5, 7)),
            (&lossless, (5, 6)),
            (&extended, (258, 10)),
        ] {
            assert_eq!(image_size(bytes), Some(size));
            for end in 0..bytes.len() {
                // A cut header is no error and no panic.
                let _ = image_size(&bytes[..end]);
            }
        }
    }

    #[test]
    fn bitmap_stores_rows_bottom_up() {
        let file = bitmap(1, 2, "RGB", &[1, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(file[54..], [6, 5, 4, 0, 3, 2, 1, 0]);
        assert_eq!(bitmap(1, 2, "RGB", &[1, 2, 3]), None);
        assert_eq!(bitmap(1, 1, "CMYK", &[1, 2, 3, 4]), None);
    }
}
