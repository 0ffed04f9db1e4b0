//! Decodes the bytes of a value.

use half::f16;
use shardmill_core::Limits;

use crate::encoding::{DType, Encoding, ImageKind};
use crate::error::{MdsError, MdsProblem, list_empty};
use crate::frame::{Items, len_u64, parse_array, parse_pil};
use crate::json;
use crate::text::{is_decimal_text, is_integer_text, not_a_number, parse_float_text, text};
use crate::value::{Image, Value};

/// Decodes a datum. The value borrows from it.
///
/// It accepts what the original reader accepts, with these exceptions: wrong lengths, trailing bytes, whitespace or `_`
/// in the text of a number, and arrays without numbers are errors here. Images must be handled as leniently as in the
/// original, which detects their format from the content: a `jpeg` column may contain PNG files. An [`Image`] other
/// than `pil` is therefore returned unchecked. [`check_datum`] is strict.
///
/// [`check_datum`]: crate::check_datum
///
/// # Errors
///
/// [`MdsError`], of kind `Corrupt`, for a datum that is not a value of the encoding, or that exceeds `limits`
/// (`sample_bytes`, `array_dims`, `json_depth`). No datum causes a panic, and decoding allocates at most
/// `sample_bytes`.
pub fn decode<'a>(
    encoding: &Encoding,
    datum: &'a [u8],
    limits: &Limits,
) -> Result<Value<'a>, MdsError> {
    Limits::check("sample-bytes", len_u64(datum), limits.sample_bytes)
        .map_err(MdsError::ValueLimit)?;
    Ok(match encoding {
        Encoding::Bytes | Encoding::Registered { .. } => Value::Bytes(datum),
        Encoding::Str => Value::Str(text(encoding, datum)?),
        Encoding::Int => Value::Int(i64::from_le_bytes(number(encoding, datum)?)),
        Encoding::Number(dtype) => match dtype {
            DType::U8 => Value::U8(u8::from_le_bytes(number(encoding, datum)?)),
            DType::I8 => Value::I8(i8::from_le_bytes(number(encoding, datum)?)),
            DType::U16 => Value::U16(u16::from_le_bytes(number(encoding, datum)?)),
            DType::I16 => Value::I16(i16::from_le_bytes(number(encoding, datum)?)),
            DType::F16 => Value::F16(f16::from_le_bytes(number(encoding, datum)?)),
            DType::U32 => Value::U32(u32::from_le_bytes(number(encoding, datum)?)),
            DType::I32 => Value::I32(i32::from_le_bytes(number(encoding, datum)?)),
            DType::F32 => Value::F32(f32::from_le_bytes(number(encoding, datum)?)),
            DType::U64 => Value::U64(u64::from_le_bytes(number(encoding, datum)?)),
            DType::I64 => Value::I64(i64::from_le_bytes(number(encoding, datum)?)),
            DType::F64 => Value::F64(f64::from_le_bytes(number(encoding, datum)?)),
        },
        Encoding::NdArray { dtype, shape } => {
            Value::NdArray(parse_array(*dtype, shape.as_deref(), datum, limits)?)
        }
        Encoding::StrInt => {
            let digits = text(encoding, datum)?;
            if !is_integer_text(digits) {
                return Err(not_a_number(encoding, datum));
            }
            Value::BigInt(digits)
        }
        Encoding::StrFloat => {
            let value = parse_float_text(text(encoding, datum)?);
            Value::Float(value.ok_or_else(|| not_a_number(encoding, datum))?)
        }
        Encoding::StrDecimal => {
            let decimal = text(encoding, datum)?;
            if !is_decimal_text(decimal) {
                return Err(not_a_number(encoding, datum));
            }
            Value::Decimal(decimal)
        }
        Encoding::Image(kind) => Value::Image(image(*kind, datum)?),
        Encoding::JpegArray { .. } => {
            let items = Items::parse(datum, false)?;
            if items.len() == 0 {
                return Err(list_empty());
            }
            Value::Images(images(ImageKind::Jpeg, items, limits)?)
        }
        Encoding::List(kind) => Value::Images(images(*kind, Items::parse(datum, true)?, limits)?),
        Encoding::Pkl => Value::Pickle(datum),
        Encoding::Json => {
            let json = text(encoding, datum)?;
            json::scan(json.as_bytes(), limits)?;
            Value::Json(json)
        }
    })
}

/// Returns the bytes of a number of fixed size.
fn number<const N: usize>(encoding: &Encoding, datum: &[u8]) -> Result<[u8; N], MdsError> {
    datum.try_into().map_err(|_| {
        let found = datum.len();
        MdsProblem::Size.because(format!(
            "a datum of encoding `{encoding}` has {found} bytes instead of {N}"
        ))
    })
}

fn image(kind: ImageKind, bytes: &[u8]) -> Result<Image<'_>, MdsError> {
    let pil = match kind {
        ImageKind::Pil => Some(parse_pil(bytes)?),
        ImageKind::Jpeg | ImageKind::Png => None,
    };
    Ok(Image { kind, bytes, pil })
}

fn images<'a>(
    kind: ImageKind,
    items: Items<'a>,
    limits: &Limits,
) -> Result<Vec<Image<'a>>, MdsError> {
    // An empty item takes 4 bytes in the datum, but 16 times that in memory.
    let bytes = items.len().saturating_mul(size_of::<Image<'_>>()) as u64;
    Limits::check("sample-bytes", bytes, limits.sample_bytes).map_err(MdsError::ValueLimit)?;
    items.map(|item| image(kind, item)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::Diagnostic as _;

    use super::*;
    use crate::testdata::{encodings, lines, unhex};
    use crate::value::{NdArray, PilFrame};
    use crate::{check_datum, encode_jpeg_array, encode_list, ndarray_header};

    fn decoded<'a>(encoding: &str, datum: &'a [u8]) -> Result<Value<'a>, MdsError> {
        decode(&encoding.parse().unwrap(), datum, &Limits::default())
    }

    fn refused(encoding: &str, datum: &[u8]) -> (&'static str, String) {
        let error = decoded(encoding, datum).unwrap_err();
        assert_eq!(error.kind(), shardmill_core::ErrorKind::Corrupt);
        (error.id(), error.to_string())
    }

    /// Encodes a value with the functions that writers use; the inverse of [`decode`].
    fn encode(encoding: &Encoding, value: &Value<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        match value {
            Value::Bytes(bytes) | Value::Pickle(bytes) => out.extend_from_slice(bytes),
            Value::Str(text) | Value::BigInt(text) | Value::Decimal(text) | Value::Json(text) => {
                out.extend_from_slice(text.as_bytes())
            }
            Value::Int(number) | Value::I64(number) => out.extend(number.to_le_bytes()),
            Value::U8(number) => out.extend(number.to_le_bytes()),
            Value::I8(number) => out.extend(number.to_le_bytes()),
            Value::U16(number) => out.extend(number.to_le_bytes()),
            Value::I16(number) => out.extend(number.to_le_bytes()),
            Value::F16(number) => out.extend(number.to_le_bytes()),
            Value::U32(number) => out.extend(number.to_le_bytes()),
            Value::I32(number) => out.extend(number.to_le_bytes()),
            Value::F32(number) => out.extend(number.to_le_bytes()),
            Value::U64(number) => out.extend(number.to_le_bytes()),
            Value::F64(number) => out.extend(number.to_le_bytes()),
            Value::Float(number) => crate::write_float(*number, &mut out),
            Value::NdArray(array) => {
                let Encoding::NdArray { dtype, shape } = encoding else {
                    panic!("{encoding}")
                };
                let code = dtype.is_none().then_some(array.dtype);
                if shape.is_none() {
                    ndarray_header(code, &array.shape, &mut out).unwrap();
                }
                out.extend_from_slice(array.data);
            }
            Value::Image(image) => encode_image(image, &mut out),
            Value::Images(images) => {
                let items: Vec<Vec<u8>> = images
                    .iter()
                    .map(|image| {
                        let mut item = Vec::new();
                        encode_image(image, &mut item);
                        item
                    })
                    .collect();
                let items: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
                match encoding {
                    Encoding::List(_) => encode_list(&items, &mut out).unwrap(),
                    _ => encode_jpeg_array(&items, &mut out).unwrap(),
                }
            }
        }
        out
    }

    fn encode_image(image: &Image<'_>, out: &mut Vec<u8>) {
        match image.pil {
            Some(PilFrame {
                width,
                height,
                mode,
                raw,
            }) => {
                for word in [width, height, u32::try_from(mode.len()).unwrap()] {
                    out.extend(word.to_le_bytes());
                }
                out.extend_from_slice(&[mode.as_bytes(), raw].concat());
            }
            None => out.extend_from_slice(image.bytes),
        }
    }

    #[test]
    fn specification_scalars_decode_and_encode() {
        for (encoding, hex, value) in [
            ("int", "ffffffffffffffff", Value::Int(-1)),
            ("uint16", "0201", Value::U16(258)),
            ("float16", "003e", Value::F16(f16::from_f32(1.5))),
            ("float32", "0000c03f", Value::F32(1.5)),
            ("uint64", "0000000000000080", Value::U64(1 << 63)),
            ("int8", "80", Value::I8(-128)),
            ("str", "c3a9", Value::Str("é")),
            (
                "pkl",
                "80044b012e",
                Value::Pickle(&[0x80, 4, 0x4b, 1, 0x2e]),
            ),
            ("str_int", "2d3132", Value::BigInt("-12")),
            ("str_float", "31652b3136", Value::Float(1e16)),
            ("str_decimal", "302e3530", Value::Decimal("0.50")),
            ("bytes", "-", Value::Bytes(b"")),
        ] {
            let datum = unhex(hex);
            assert_eq!(decoded(encoding, &datum), Ok(value.clone()), "{encoding}");
            assert_eq!(
                encode(&encoding.parse().unwrap(), &value),
                datum,
                "{encoding}"
            );
        }
        let zero = decoded("float64", &[0, 0, 0, 0, 0, 0, 0, 0x80]).unwrap();
        assert!(matches!(zero, Value::F64(value) if value.to_bits() == 1 << 63));
        let json = r#"{"b": [1, 2.5, null, "\u00e9"], "a": NaN}"#;
        assert_eq!(decoded("json", json.as_bytes()), Ok(Value::Json(json)));
    }

    #[test]
    fn specification_arrays_decode_and_encode() {
        let counting: Vec<u8> = (0..300_i16).flat_map(i16::to_le_bytes).collect();
        let mut int16 = unhex("11052c01");
        int16.extend_from_slice(&counting);
        assert_eq!(int16.len(), 604);
        let wide = [1_i64, 2, 3, 4].map(i64::to_le_bytes).concat();
        for (encoding, datum, dtype, shape, data) in [
            (
                "ndarray",
                unhex("0808020201020304"),
                DType::U8,
                vec![2, 2],
                &[1, 2, 3, 4][..],
            ),
            ("ndarray", int16, DType::I16, vec![300], &counting),
            (
                "ndarray:float32",
                unhex("04010000c03f"),
                DType::F32,
                vec![1],
                &[0, 0, 0xc0, 0x3f],
            ),
            (
                "ndarray:int64:2,2",
                wide.clone(),
                DType::I64,
                vec![2, 2],
                &wide,
            ),
            (
                "ndarray:uint8:3",
                vec![1, 2, 3],
                DType::U8,
                vec![3],
                &[1, 2, 3],
            ),
        ] {
            let value = Value::NdArray(NdArray { dtype, shape, data });
            assert_eq!(decoded(encoding, &datum), Ok(value.clone()), "{encoding}");
            assert_eq!(
                encode(&encoding.parse().unwrap(), &value),
                datum,
                "{encoding}"
            );
        }
    }

    #[test]
    fn specification_images_and_lists_decode() {
        let rgb = unhex("020000000100000003000000524742010203010203");
        let Ok(Value::Image(image)) = decoded("pil", &rgb) else {
            panic!()
        };
        let frame = image.pil.unwrap();
        assert_eq!(
            (frame.width, frame.height, frame.mode, frame.raw),
            (2, 1, "RGB", &[1, 2, 3, 1, 2, 3][..])
        );
        assert_eq!(image.bytes, rgb);
        let packed = unhex("09000000020000000100000031ff80ff80");
        assert!(
            matches!(decoded("pil", &packed), Ok(Value::Image(Image { pil: Some(frame), .. })) if frame.raw.len() == 4)
        );

        let blobs = unhex("0200000002000000030000004141424242");
        for encoding in ["jpeg_array", "jpegarray"] {
            let Ok(Value::Images(images)) = decoded(encoding, &blobs) else {
                panic!()
            };
            let bytes: Vec<_> = images.iter().map(|image| image.bytes).collect();
            assert_eq!(bytes, [b"AA".as_slice(), b"BBB"]);
            assert!(
                images
                    .iter()
                    .all(|image| image.kind == ImageKind::Jpeg && image.pil.is_none())
            );
        }
        assert_eq!(decoded("list[png]", &[0; 8]), Ok(Value::Images(vec![])));
        let mut list = Vec::new();
        encode_list(&[&rgb, &packed], &mut list).unwrap();
        let Ok(Value::Images(images)) = decoded("list[pil]", &list) else {
            panic!()
        };
        assert_eq!(
            images
                .iter()
                .map(|image| image.pil.unwrap().mode)
                .collect::<Vec<_>>(),
            ["RGB", "1"]
        );
    }

    #[test]
    fn wrong_size_of_fixed_size_datum_is_an_error() {
        for (encoding, size) in [
            ("int", 8),
            ("uint8", 1),
            ("float16", 2),
            ("int32", 4),
            ("float64", 8),
        ] {
            for found in (0..20).filter(|found| *found != size) {
                let (id, message) = refused(encoding, &vec![0; found]);
                assert_eq!(id, "sample-size");
                assert_eq!(
                    message,
                    format!("a datum of encoding `{encoding}` has {found} bytes instead of {size}")
                );
            }
        }
    }

    #[test]
    fn invalid_text_datum_is_an_error() {
        let cases = [
            (
                "str",
                &b"ab\xed\xa0\x80"[..],
                "sample-utf8",
                "a datum of encoding `str` is not UTF-8 from byte 2 of 5",
            ),
            (
                "str",
                b"\xc0\x80",
                "sample-utf8",
                "a datum of encoding `str` is not UTF-8 from byte 0 of 2",
            ),
            (
                "json",
                b"[1",
                "json-syntax",
                "a JSON text has its end at byte 2 where `,` or `]` should be",
            ),
            (
                "str_int",
                b"True",
                "number-text",
                "a datum of encoding `str_int` is not the text of a number: `True`",
            ),
            (
                "str_int",
                b"",
                "number-text",
                "a datum of encoding `str_int` is not the text of a number: ``",
            ),
            (
                "str_float",
                b"1\x1b",
                "number-text",
                "a datum of encoding `str_float` is not the text of a number: `1\\u{1b}`",
            ),
            (
                "str_decimal",
                b"1E",
                "number-text",
                "a datum of encoding `str_decimal` is not the text of a number: `1E`",
            ),
        ];
        for (encoding, datum, id, message) in cases {
            assert_eq!(refused(encoding, datum), (id, message.to_owned()));
        }
        let (_, message) = refused("str_int", "é".repeat(1000).as_bytes());
        assert!(
            message.ends_with(&format!("`{}`", "é".repeat(40))),
            "{message}"
        );
    }

    #[test]
    fn inconsistent_array_headers_are_rejected() {
        for (hex, id, message) in [
            (
                "-",
                "array-header",
                "an array has 0 bytes, but its header alone needs 1",
            ),
            (
                "08",
                "array-header",
                "an array has 1 bytes, but its header alone needs 2",
            ),
            (
                "080402",
                "array-shape",
                "an array of uint8 of shape [2] has 0 bytes of numbers instead of 2",
            ),
            (
                "0808",
                "array-header",
                "an array has 2 bytes, but its header alone needs 4",
            ),
            (
                "08ff01",
                "limit-array-dims",
                "array-dims is 63, above the limit of 32",
            ),
            (
                "0704020102",
                "array-dtype",
                "an array has the unknown number type 7",
            ),
            (
                "08000a",
                "array-shape",
                "an array of shape [] has no numbers or no dimensions, which the format cannot express",
            ),
            (
                "080802000102",
                "array-shape",
                "an array of shape [2, 0] has no numbers or no dimensions, which the format cannot express",
            ),
            (
                "080402010203",
                "array-shape",
                "an array of uint8 of shape [2] has 3 bytes of numbers instead of 2",
            ),
            (
                "080bffffffffffffffffffffffffffffffff",
                "array-shape",
                "an array of uint8 of shape [18446744073709551615, 18446744073709551615] has 0 bytes of numbers instead of more than 2^64",
            ),
        ] {
            assert_eq!(
                refused("ndarray", &unhex(hex)),
                (id, message.to_owned()),
                "{hex}"
            );
        }
        assert_eq!(refused("ndarray:uint8:3", &[1, 2]).0, "array-shape");
        assert_eq!(refused("ndarray:uint8:3", &[1, 2, 3, 4]).0, "array-shape");
        assert_eq!(refused("ndarray:uint16", &[4, 1, 0]).0, "array-shape");
        let dims = format!("ndarray:uint8:{}", vec!["1"; 33].join(","));
        assert_eq!(refused(&dims, &[1]).0, "limit-array-dims");
        // A dimension that is stored with more bytes than needed is unusual but unambiguous.
        assert!(decoded("ndarray", &[8, 5, 2, 0, 1, 2]).is_ok());
    }

    #[test]
    fn unparseable_ndarray_encodings_do_not_panic() {
        for shape in [vec![], vec![0], vec![u64::MAX, 2], vec![2, 3], vec![1; 100]] {
            for dtype in [None, Some(DType::F64)] {
                let encoding = Encoding::NdArray {
                    dtype,
                    shape: Some(shape.clone()),
                };
                for datum in [&[][..], &[8], &[8, 1, 2, 3, 4, 5, 6]] {
                    let decodes = decode(&encoding, datum, &Limits::default()).is_ok();
                    assert_eq!(
                        decodes,
                        dtype.is_none() && shape == [2, 3] && datum.len() == 7
                    );
                }
                let _ = encoding.to_string();
            }
        }
    }

    #[test]
    fn inconsistent_raw_image_headers_are_rejected() {
        let pil = |width: u32, height: u32, mode: &[u8], raw: usize| {
            let mut datum = Vec::new();
            datum.extend(width.to_le_bytes());
            datum.extend(height.to_le_bytes());
            datum.extend(u32::try_from(mode.len()).unwrap().to_le_bytes());
            datum.extend_from_slice(mode);
            datum.resize(datum.len() + raw, 0);
            datum
        };
        for (datum, id, message) in [
            (
                vec![0; 11],
                "image-frame",
                "a pil image has 11 bytes, but its header alone needs 12",
            ),
            (
                [[0; 8], [0xff; 8]].concat(),
                "image-frame",
                "a pil image has 16 bytes, but its header alone needs 4294967307",
            ),
            (
                pil(1, 1, b"XXX", 3),
                "image-mode",
                "a pil image has the unknown mode `XXX`",
            ),
            (
                pil(1, 1, b"\xff\xfe", 3),
                "image-mode",
                "a pil image has the unknown mode `\u{fffd}\u{fffd}`",
            ),
            (
                pil(2, 1, b"RGB", 7),
                "image-frame",
                "a pil image of 2x1 pixels of mode `RGB` has 7 bytes of pixels instead of 6",
            ),
            (
                pil(9, 2, b"1", 3),
                "image-frame",
                "a pil image of 9x2 pixels of mode `1` has 3 bytes of pixels instead of 4",
            ),
            (
                pil(u32::MAX, u32::MAX, b"RGBA", 0),
                "image-frame",
                "a pil image of 4294967295x4294967295 pixels of mode `RGBA` has 0 bytes of pixels instead of more than 2^64",
            ),
        ] {
            assert_eq!(refused("pil", &datum), (id, message.to_owned()));
        }
        assert!(decoded("pil", &pil(0, 7, b"L", 0)).is_ok());
    }

    #[test]
    fn inconsistent_list_headers_are_rejected() {
        for (encoding, hex, message) in [
            (
                "jpeg_array",
                "-",
                "a list of 0 items has 0 bytes, but its header alone needs 4",
            ),
            ("jpeg_array", "00000000", "a jpeg_array has no images"),
            (
                "jpeg_array",
                "01000000",
                "a list of 1 items has 4 bytes, but its header alone needs 8",
            ),
            (
                "jpeg_array",
                "ffffffff00000000",
                "a list of 4294967295 items has 8 bytes, but its header alone needs 17179869184",
            ),
            (
                "jpeg_array",
                "01000000030000004141",
                "a list of 1 items has 2 bytes of items instead of 3",
            ),
            (
                "jpeg_array",
                "01000000010000004141",
                "a list of 1 items has 2 bytes of items instead of 1",
            ),
            (
                "list[jpeg]",
                "00000000",
                "a list of 0 items has 4 bytes, but its header alone needs 8",
            ),
            (
                "list[png]",
                "0100000000000000",
                "a list starts with the number 1 instead of 0",
            ),
            (
                "list[png]",
                "000000000000000041",
                "a list of 0 items has 1 bytes of items instead of 0",
            ),
        ] {
            assert_eq!(
                refused(encoding, &unhex(hex)),
                ("list-frame", message.to_owned()),
                "{hex}"
            );
        }
    }

    #[test]
    fn datum_above_sample_bytes_limit_is_an_error() {
        let mut limits = Limits::default();
        limits.sample_bytes = 4;
        for encoding in encodings() {
            let error = decode(&encoding, &[0; 5], &limits).unwrap_err();
            assert_eq!(error.id(), "limit-sample-bytes");
            assert_eq!(check_datum(&encoding, &[0; 5], &limits), Err(error));
        }
    }

    #[test]
    fn list_of_many_empty_items_is_limited() {
        let mut limits = Limits::default();
        limits.sample_bytes = 1 << 20;
        let list = |items: u32| {
            [
                &[0; 4],
                &items.to_le_bytes()[..],
                &vec![0; 4 * items as usize],
            ]
            .concat()
        };
        let encoding = Encoding::List(ImageKind::Jpeg);
        assert!(decode(&encoding, &list(16 << 10), &limits).is_ok());
        let error = decode(&encoding, &list((16 << 10) + 1), &limits).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sample-bytes is 1048640, above the limit of 1048576"
        );
    }

    #[test]
    fn decoder_agrees_with_mosaicml_streaming_on_damaged_values() {
        let (mut whole, mut damaged, mut stricter) = (0, 0, 0);
        for line in lines(include_str!("testdata/values.txt")) {
            let encoding: Encoding = line[0].parse().unwrap();
            let datum = unhex(line[1]);
            let value = decode(&encoding, &datum, &Limits::default());
            let checked = check_datum(&encoding, &datum, &Limits::default());
            if line[2] == "whole" {
                assert_eq!(line[3], "1");
                assert_eq!(checked, Ok(()), "{line:?}");
                assert_eq!(encode(&encoding, &value.unwrap()), datum, "{line:?}");
                whole += 1;
                continue;
            }
            damaged += 1;
            // The original opens these files eagerly, so only it notices damage further inside them.
            let files = matches!(
                encoding,
                Encoding::Image(ImageKind::Jpeg | ImageKind::Png)
                    | Encoding::List(ImageKind::Jpeg | ImageKind::Png)
                    | Encoding::JpegArray { .. }
            );
            let original = line[3] == "1";
            assert!(
                files || original || value.is_err(),
                "accepted here only: {line:?} {value:?}"
            );
            stricter += i32::from(original && value.is_err());
        }
        assert!(whole > 100 && damaged > 200, "{whole} {damaged}");
        assert!(stricter > 0);
    }

    fn datum() -> impl Strategy<Value = Vec<u8>> {
        let small = prop_oneof![Just(0_u8), Just(1), Just(4), Just(8), any::<u8>()];
        let header = (0..3_u32, 0..4_u32, 0..6_u32)
            .prop_map(|words| [words.0, words.1, words.2].map(u32::to_le_bytes).concat());
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..64),
            prop::collection::vec(small, 0..40),
            (header, prop::collection::vec(any::<u8>(), 0..24))
                .prop_map(|(head, tail)| [head, tail].concat()),
            "[-+0-9.eEnaifNI]{0,12}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn arbitrary_bytes_give_an_error_or_round_trip(datum in datum()) {
            for encoding in encodings() {
                let value = decode(&encoding, &datum, &Limits::default());
                let checked = check_datum(&encoding, &datum, &Limits::default());
                match value {
                    // Every datum that the original reader can decode must decode here.
                    Err(error) => {
                        let _ = (error.to_string(), error.id(), error.hint());
                        prop_assert_eq!(checked, Err(error), "{}", encoding);
                    }
                    // An array header that is wider than needed, or another spelling of a float, is rewritten in
                    // canonical form.
                    Ok(Value::NdArray(array)) if !datum.ends_with(array.data) => unreachable!(),
                    Ok(Value::NdArray(_) | Value::Float(_)) => prop_assert_eq!(checked, Ok(())),
                    Ok(value) => prop_assert_eq!(&encode(&encoding, &value), &datum, "{}", encoding),
                }
            }
        }

        #[test]
        fn arrays_round_trip(code in 0..11_usize, shape in prop::collection::vec(1..4_u64, 0..4), last in prop_oneof![1..4_u64, Just(300)], dynamic: bool) {
            let shape = [shape, vec![last]].concat();
            let dtype = DType::ALL[code];
            let bytes = usize::try_from(shape.iter().product::<u64>() * dtype.size_bytes()).unwrap();
            let data: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut datum = Vec::new();
            ndarray_header(dynamic.then_some(dtype), &shape, &mut datum).unwrap();
            datum.extend_from_slice(&data);
            let encoding = Encoding::NdArray { dtype: (!dynamic).then_some(dtype), shape: None };
            let value = decode(&encoding, &datum, &Limits::default());
            prop_assert_eq!(value, Ok(Value::NdArray(NdArray { dtype, shape: shape.clone(), data: &data })));
            let fixed = Encoding::NdArray { dtype: Some(dtype), shape: Some(shape.clone()) };
            prop_assert_eq!(fixed.fixed_size(), Some(bytes as u64));
            let value = decode(&fixed, &data, &Limits::default());
            prop_assert_eq!(value, Ok(Value::NdArray(NdArray { dtype, shape, data: &data })));
        }

        #[test]
        fn lists_round_trip(items in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..6)) {
            let slices: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
            let mut datum = Vec::new();
            encode_list(&slices, &mut datum).unwrap();
            let Ok(Value::Images(images)) = decoded("list[png]", &datum) else { panic!() };
            prop_assert_eq!(images.iter().map(|image| image.bytes).collect::<Vec<_>>(), slices.clone());
            datum.clear();
            match encode_jpeg_array(&slices, &mut datum) {
                Err(error) => prop_assert!(items.is_empty() && error == list_empty()),
                Ok(()) => {
                    let Ok(Value::Images(images)) = decoded("jpegarray", &datum) else { panic!() };
                    prop_assert_eq!(images.iter().map(|image| image.bytes).collect::<Vec<_>>(), slices);
                }
            }
        }
    }
}
