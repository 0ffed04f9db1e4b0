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
    /// `str_int`: an optional sign and decimal digits, any number of them.
    BigInt(&'a str),
    /// `str_float`.
    Float(f64),
    /// `str_decimal`: the text as stored; it is one that a decimal type accepts.
    Decimal(&'a str),
    /// `json`: the text as stored; its syntax has been checked.
    Json(&'a str),
    /// `ndarray` in all its forms.
    NdArray(NdArray<'a>),
    /// `pil`, `jpeg`, `png`.
    Image(Image<'a>),
    /// `jpeg_array`, `jpegarray`, `list[…]`.
    Images(Vec<Image<'a>>),
    /// `pkl`: opaque bytes. Nothing in shardmill loads them.
    Pickle(&'a [u8]),
}

/// An array of numbers in row-major (C) order, little-endian.
///
/// INVARIANT: `shape` has at least one dimension, none of them is 0, and their product times the size of
/// `dtype` is the length of `data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NdArray<'a> {
    /// The type of the numbers.
    pub dtype: DType,
    /// The dimensions, slowest first.
    pub shape: Vec<u64>,
    /// The numbers; not aligned.
    pub data: &'a [u8],
}

/// An image as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// What the column declares. A `jpeg` column may hold any image file: see [`decode()`](crate::decode()).
    pub kind: ImageKind,
    /// All bytes of the image: the file, or the frame and pixels of a `pil` image.
    pub bytes: &'a [u8],
    /// The parts of `bytes`, for [`ImageKind::Pil`] and nothing else.
    pub pil: Option<PilFrame<'a>>,
}

/// The parts of a `pil` image.
///
/// INVARIANT: `raw` has exactly the bytes that `width`, `height` and `mode` call for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PilFrame<'a> {
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// The pixel layout by PIL's name: `L`, `RGB`, `1`, …
    pub mode: &'a str,
    /// Rows from the top, pixels interleaved; mode `1` packs 8 pixels a byte, the first in the highest bit,
    /// and starts each row at a byte.
    pub raw: &'a [u8],
}
