//! Encodes values, and checks that every reader can decode them.

use shardmill_core::Limits;

use crate::decode::decode;
use crate::encoding::{DType, Encoding, ImageKind};
use crate::error::{MdsError, MdsProblem, array_empty, list_empty};
use crate::text::{check_digits, integer_digits, text};
use crate::value::{Image, Value};
use crate::{json, limits};

/// Appends the header of an array: the code of its type, if one is given, and its shape. Omit the type if the encoding
/// declares it, and the whole header if the encoding declares the shape as well.
///
/// # Errors
///
/// An array without dimensions, with an empty dimension, or with more than 32 dimensions. `out` is then unchanged.
pub fn ndarray_header(
    dtype_to_write: Option<DType>,
    shape: &[u64],
    out: &mut Vec<u8>,
) -> Result<(), MdsError> {
    Limits::check("array-dims", shape.len() as u64, limits::ARRAY_WRITE_DIMS)
        .map_err(MdsError::ValueLimit)?;
    let largest = shape.iter().copied().max().unwrap_or(0);
    if shape.is_empty() || shape.contains(&0) {
        return Err(array_empty(shape));
    }
    // All dimensions have the width of the largest one: 2^0, 2^1, 2^2 or 2^3 bytes.
    let (code, width): (u8, usize) = match largest {
        0..=0xff => (0, 1),
        0x100..=0xffff => (1, 2),
        0x1_0000..=0xffff_ffff => (2, 4),
        _ => (3, 8),
    };
    let ndim = u8::try_from(shape.len()).unwrap_or(u8::MAX);
    out.extend(dtype_to_write.map(DType::code));
    out.push((ndim << 2) | code);
    for dim in shape {
        out.extend(dim.to_le_bytes().into_iter().take(width));
    }
    Ok(())
}

fn u32_of(what: &'static str, value: usize) -> Result<u32, MdsError> {
    u32::try_from(value).map_err(|_| {
        let max = u32::MAX;
        let reason = format!("{what} is {value}, above the {max} that 32 bits express");
        MdsProblem::Size.because(reason)
    })
}

fn push_items(reserved: bool, items: &[&[u8]], out: &mut Vec<u8>) -> Result<(), MdsError> {
    let count = u32_of("the number of items of a list", items.len())?;
    for item in items {
        u32_of("the length of an item of a list", item.len())?;
    }
    let bytes: usize = items.iter().map(|item| item.len() + 4).sum();
    out.reserve(bytes + 8);
    if reserved {
        out.extend_from_slice(&[0; 4]);
    }
    out.extend_from_slice(&count.to_le_bytes());
    for item in items {
        let length = u32_of("the length of an item of a list", item.len())?;
        out.extend_from_slice(&length.to_le_bytes());
    }
    for item in items {
        out.extend_from_slice(item);
    }
    Ok(())
}

/// Appends a `jpeg_array`: the number of items, their lengths, and the items, which should be JPEG files.
///
/// # Errors
///
/// No items, which the original reader cannot read; or a number of items or a length above 32 bits. `out` is then
/// unchanged.
pub fn encode_jpeg_array(items: &[&[u8]], out: &mut Vec<u8>) -> Result<(), MdsError> {
    if items.is_empty() {
        return Err(list_empty());
    }
    push_items(false, items, out)
}

/// Appends a `list[…]`: a word 0, the number of items, their lengths, and the items, which are already encoded.
///
/// # Errors
///
/// A number of items or a length above 32 bits. `out` is then unchanged.
pub fn encode_list(items: &[&[u8]], out: &mut Vec<u8>) -> Result<(), MdsError> {
    push_items(true, items, out)
}

/// Checks that every reader can decode a datum.
///
/// Stricter than [`decode`](crate::decode()) in two points. A `jpeg` or `png` must begin with the magic bytes of its
/// format; the rest is not checked. An integer in text form, in `str_int` or JSON, may have at most as many digits as
/// CPython converts (4,300). The content of a `pkl` is not checked, because that would require running it.
///
/// # Errors
///
/// [`MdsError`], of kind `Corrupt`, as for [`decode`](crate::decode()).
pub fn check_datum(encoding: &Encoding, datum: &[u8], limits: &Limits) -> Result<(), MdsError> {
    Limits::check("sample-bytes", datum.len() as u64, limits.sample_bytes)
        .map_err(MdsError::ValueLimit)?;
    match encoding {
        // Most values are of these, and nothing else can be wrong with them.
        Encoding::Bytes | Encoding::Pkl => Ok(()),
        Encoding::Str => text(encoding, datum).map(drop),
        Encoding::Int | Encoding::Number(_)
            if encoding.fixed_size() == Some(datum.len() as u64) =>
        {
            Ok(())
        }
        Encoding::Json => {
            text(encoding, datum)?;
            check_digits(encoding, json::scan(datum, limits)?)
        }
        _ => match decode(encoding, datum, limits)? {
            Value::BigInt(digits) => check_digits(encoding, integer_digits(digits).unwrap_or(0)),
            Value::Image(image) => check_image(&image),
            Value::Images(images) => images.iter().try_for_each(check_image),
            _ => Ok(()),
        },
    }
}

const JPEG_MAGIC: &[u8] = &[0xff, 0xd8, 0xff];
const PNG_MAGIC: &[u8] = b"\x89PNG\r\n\x1a\n";

fn check_image(Image { kind, bytes, .. }: &Image<'_>) -> Result<(), MdsError> {
    let magic = match kind {
        ImageKind::Pil => return Ok(()),
        ImageKind::Jpeg => JPEG_MAGIC,
        ImageKind::Png => PNG_MAGIC,
    };
    if !bytes.starts_with(magic) {
        let found = match bytes.get(..8).unwrap_or(bytes) {
            [] => "it is empty".to_owned(),
            found => format!("it begins with the bytes {found:02x?}"),
        };
        let reason = format!("this is not a {kind} image: {found}, not with {magic:02x?}");
        return Err(MdsProblem::ImageMagic.because(reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use shardmill_core::Diagnostic as _;

    use super::*;

    fn header(dtype: Option<DType>, shape: &[u64]) -> Vec<u8> {
        let mut out = vec![7];
        ndarray_header(dtype, shape, &mut out).unwrap();
        assert_eq!(out.remove(0), 7);
        out
    }

    #[test]
    fn ndarray_header_width_fits_the_largest_dimension() {
        for (dim, code) in [
            (1, 4),
            (0xff, 4),
            (0x100, 5),
            (0xffff, 5),
            (0x1_0000, 6),
            (0xffff_ffff, 6),
            (0x1_0000_0000, 7),
            (u64::MAX, 7),
        ] {
            let mut expected = vec![code];
            expected.extend(&dim.to_le_bytes()[..1 << (code & 3)]);
            assert_eq!(header(None, &[dim]), expected);
        }
        assert_eq!(header(Some(DType::U8), &[2, 2]), [8, 8, 2, 2]);
        assert_eq!(header(None, &[1, 300]), [9, 1, 0, 0x2c, 1]);
        assert_eq!(header(None, &[1; 32])[0], 32 << 2);
    }

    #[test]
    fn invalid_ndarray_shapes_are_rejected() {
        for (shape, id) in [
            (&[][..], "array-shape"),
            (&[3, 0], "array-shape"),
            (&[1; 33], "limit-array-dims"),
        ] {
            let mut out = vec![7];
            let error = ndarray_header(Some(DType::F64), shape, &mut out).unwrap_err();
            assert_eq!((error.id(), out), (id, vec![7]));
        }
        assert_eq!(limits::ARRAY_WRITE_DIMS, Limits::default().array_dims);
    }

    #[test]
    fn list_framing_matches_the_specification() {
        let mut out = Vec::new();
        encode_jpeg_array(&[b"AA", b"BBB"], &mut out).unwrap();
        assert_eq!(out, b"\x02\0\0\0\x02\0\0\0\x03\0\0\0AABBB");
        out.clear();
        encode_list(&[b"AA"], &mut out).unwrap();
        assert_eq!(out, b"\0\0\0\0\x01\0\0\0\x02\0\0\0AA");
    }

    fn checked(encoding: &str, datum: &[u8]) -> Result<(), MdsError> {
        check_datum(&encoding.parse().unwrap(), datum, &Limits::default())
    }

    #[test]
    fn wrong_image_magic_bytes_are_an_error() {
        let jpeg = b"\xff\xd8\xff\xe0...";
        let png = b"\x89PNG\r\n\x1a\n...";
        assert_eq!(checked("jpeg", jpeg), Ok(()));
        assert_eq!(checked("png", png), Ok(()));
        for (encoding, datum) in [
            ("jpeg", &png[..]),
            ("png", jpeg),
            ("jpeg", b""),
            ("png", b"\x89PNG"),
            ("jpeg", b"<html>"),
        ] {
            assert_eq!(checked(encoding, datum).unwrap_err().id(), "image-magic");
            let value = crate::decode(&encoding.parse().unwrap(), datum, &Limits::default());
            assert!(
                value.is_ok(),
                "the original reader opens an image by its content"
            );
        }
        let error = checked("jpeg", png).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this is not a jpeg image: it begins with the bytes [89, 50, 4e, 47, 0d, 0a, 1a, 0a], not with [ff, d8, ff]"
        );
        let mut list = Vec::new();
        encode_list(&[png, png], &mut list).unwrap();
        assert_eq!(checked("list[png]", &list), Ok(()));
        assert_eq!(
            checked("list[jpeg]", &list).unwrap_err().id(),
            "image-magic"
        );
        let mut array = Vec::new();
        encode_jpeg_array(&[jpeg, png], &mut array).unwrap();
        assert_eq!(
            checked("jpeg_array", &array).unwrap_err().id(),
            "image-magic"
        );
    }

    #[test]
    fn integers_above_the_cpython_digit_limit_are_rejected() {
        let digits = |count: usize| "9".repeat(count);
        assert_eq!(
            checked("str_int", format!("-{}", digits(4300)).as_bytes()),
            Ok(())
        );
        assert_eq!(
            checked("str_int", digits(4301).as_bytes())
                .unwrap_err()
                .id(),
            "number-digits"
        );
        assert_eq!(
            checked("json", format!("[{}]", digits(4300)).as_bytes()),
            Ok(())
        );
        assert_eq!(
            checked("json", format!("[{}.0]", digits(4301)).as_bytes()),
            Ok(())
        );
        let error = checked("json", format!("[{}]", digits(4301)).as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "an integer in a datum of encoding `json` has 4301 digits, of which CPython reads at most 4300"
        );
    }
}
