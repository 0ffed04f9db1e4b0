//! Decoded values.

use std::borrow::Cow;

use half::f16;

use crate::encoding::{DType, ImageKind};

/// A decoded value; it borrows from the bytes of the sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// `bytes`.
    Bytes(&'a [u8]),
    /// `str`.
    Str(&'a str),
    /// `int`.
    Int(i64),
    /// `uint8`.
    U8(u8),
    /// `int8`.
    I8(i8),
    /// `uint16`.
    U16(u16),
    /// `int16`.
    I16(i16),
    /// `float16`.
    F16(f16),
    /// `uint32`.
    U32(u32),
    /// `int32`.
    I32(i32),
    /// `float32`.
    F32(f32),
    /// `uint64`.
    U64(u64),
    /// `int64`.
    I64(i64),
    /// `float64`.
    F64(f64),
    /// `str_int`: an optional sign and any number of decimal digits.
    BigInt(&'a str),
    /// `str_float`.
    Float(f64),
    /// `str_decimal`: the text as stored, which a decimal type accepts.
    Decimal(&'a str),
    /// `json`: the text as stored, with its syntax checked.
    Json(&'a str),
    /// `ndarray` in all its forms.
    NdArray(NdArray<'a>),
    /// `pil`, `jpeg`, `png`.
    Image(Image<'a>),
    /// `jpeg_array`, `jpegarray`, `list[…]`.
    Images(Vec<Image<'a>>),
    /// `pkl`: opaque bytes, which shardmill never loads.
    Pickle(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Returns a text or an integer as text, so that keys of different types can be compared; `None` for other values.
    #[must_use]
    pub fn key_text(&self) -> Option<Cow<'a, str>> {
        let number = match self {
            Self::Str(text) | Self::BigInt(text) => return Some(Cow::Borrowed(text)),
            Self::Int(number) | Self::I64(number) => number.to_string(),
            Self::U8(number) => number.to_string(),
            Self::I8(number) => number.to_string(),
            Self::U16(number) => number.to_string(),
            Self::I16(number) => number.to_string(),
            Self::U32(number) => number.to_string(),
            Self::I32(number) => number.to_string(),
            Self::U64(number) => number.to_string(),
            _ => return None,
        };
        Some(Cow::Owned(number))
    }
}

/// An array of numbers in row-major (C) order, little-endian.
///
/// INVARIANT: `shape` has at least one dimension, none of them is 0, and their product times the size of
/// `dtype` is the length of `data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NdArray<'a> {
    /// The type of the numbers.
    pub dtype: DType,
    /// The dimensions, slowest-varying first.
    pub shape: Vec<u64>,
    /// The bytes of the numbers, not aligned.
    pub data: &'a [u8],
}

/// An image as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// The kind that the column declares. A `jpeg` column may contain any image file: see
    /// [`decode()`](crate::decode()).
    pub kind: ImageKind,
    /// All bytes of the image: the file, or the frame and pixels of a `pil` image.
    pub bytes: &'a [u8],
    /// The parts of `bytes`; only for [`ImageKind::Pil`].
    pub pil: Option<PilFrame<'a>>,
}

/// The parts of a `pil` image.
///
/// INVARIANT: `raw` has exactly as many bytes as `width`, `height` and `mode` require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PilFrame<'a> {
    /// The number of pixels in a row.
    pub width: u32,
    /// The number of rows.
    pub height: u32,
    /// The pixel layout by PIL's name: `L`, `RGB`, `1`, …
    pub mode: &'a str,
    /// Rows from the top, with interleaved pixels. Mode `1` packs 8 pixels into a byte, the first in the highest bit,
    /// and starts each row at a new byte.
    pub raw: &'a [u8],
}
