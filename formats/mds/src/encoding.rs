//! The encodings of columns.

use std::fmt;

/// The type of the numbers in a number column or an array; little-endian on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// `uint8`
    U8,
    /// `int8`
    I8,
    /// `uint16`
    U16,
    /// `int16`
    I16,
    /// `float16`, IEEE 754 binary16
    F16,
    /// `uint32`
    U32,
    /// `int32`
    I32,
    /// `float32`
    F32,
    /// `uint64`
    U64,
    /// `int64`
    I64,
    /// `float64`
    F64,
}

impl DType {
    /// All types, in the order of their codes.
    pub const ALL: [Self; 11] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::F16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// Returns the name used in encodings, which is numpy's: `uint8` … `float64`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::F16 => "float16",
            Self::U32 => "uint32",
            Self::I32 => "int32",
            Self::F32 => "float32",
            Self::U64 => "uint64",
            Self::I64 => "int64",
            Self::F64 => "float64",
        }
    }

    /// Returns the bytes of one number: 1, 2, 4 or 8.
    #[must_use]
    pub const fn size_bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Returns the byte that identifies the type in the header of an array: the width in bits, plus 0 for unsigned, 1
    /// for signed or 2 for floating point.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::U8 => 8,
            Self::I8 => 9,
            Self::U16 => 16,
            Self::I16 => 17,
            Self::F16 => 18,
            Self::U32 => 32,
            Self::I32 => 33,
            Self::F32 => 34,
            Self::U64 => 64,
            Self::I64 => 65,
            Self::F64 => 66,
        }
    }

    /// Returns whether the numbers are floating point.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }

    /// Returns the type with that [`name`](Self::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Returns the type with that [`code`](Self::code).
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.code() == code)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How an image is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ImageKind {
    /// Width, height, mode and raw pixels.
    Pil,
    /// A JPEG file.
    Jpeg,
    /// A PNG file.
    Png,
}

impl ImageKind {
    /// All kinds, in declaration order.
    pub const ALL: [Self; 3] = [Self::Pil, Self::Jpeg, Self::Png];

    /// Returns the name used in encodings: `pil`, `jpeg`, `png`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pil => "pil",
            Self::Jpeg => "jpeg",
            Self::Png => "png",
        }
    }
}

impl fmt::Display for ImageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the values of one column are encoded as bytes.
///
/// [`FromStr`](std::str::FromStr) and [`Display`](fmt::Display) use the names of the format and round-trip: `str`, `int`, `uint8`,
/// `ndarray:float32:2,3`, `list[jpeg]`, … Names are case-sensitive, and any name outside the format is an error.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `bytes`: unchanged bytes.
    Bytes,
    /// `str`: UTF-8.
    Str,
    /// `int`: a 64-bit signed integer.
    Int,
    /// `uint8` … `float64`: one number.
    Number(DType),
    /// `ndarray`, `ndarray:<dtype>`, `ndarray:<dtype>:<d0>,<d1>,…`: what is not declared here is stored in a header
    /// before the numbers.
    ///
    /// A shape without a type has no name in the format: no text parses to it, and it should not be written.
    NdArray {
        /// The type of the numbers, if it is the same for all arrays.
        dtype: Option<DType>,
        /// The shape, if it is the same for all arrays; every dimension is at least 1.
        shape: Option<Vec<u64>>,
    },
    /// `str_int`: the decimal text of an integer of any size.
    StrInt,
    /// `str_float`: the shortest decimal text that parses to the same `f64`.
    StrFloat,
    /// `str_decimal`: the text of a decimal number, including `NaN` and `Infinity`.
    StrDecimal,
    /// `pil`, `jpeg`, `png`: one image.
    Image(ImageKind),
    /// `jpeg_array`, also spelled `jpegarray`: one or more JPEG files.
    JpegArray {
        /// Whether the name has an underscore.
        underscore: bool,
    },
    /// `list[pil]`, `list[jpeg]`, `list[png]`: any number of images.
    List(ImageKind),
    /// `pkl`: a Python pickle. It is passed on as opaque bytes, because reading one runs its code.
    Pkl,
    /// `json`: a JSON text, with `NaN`, `Infinity` and `-Infinity` allowed.
    Json,
}

impl Encoding {
    /// The 28 names of the format, without parameters.
    pub const NAMES: [&'static str; 28] = [
        "bytes",
        "str",
        "int",
        "ndarray",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "str_int",
        "str_float",
        "str_decimal",
        "pil",
        "jpeg",
        "jpeg_array",
        "jpegarray",
        "png",
        "list[pil]",
        "list[jpeg]",
        "list[png]",
        "pkl",
        "json",
    ];

    /// Returns the size in bytes of every datum, if the encoding fixes it; `None` if each datum has its own length.
    ///
    /// A shape whose product overflows gives `u64::MAX`, which no datum has.
    #[must_use]
    pub fn fixed_size(&self) -> Option<u64> {
        match self {
            Self::Int => Some(8),
            Self::Number(dtype) => Some(dtype.size_bytes()),
            Self::NdArray {
                dtype: Some(dtype),
                shape: Some(shape),
            } => Some(
                shape
                    .iter()
                    .fold(dtype.size_bytes(), |size, dim| size.saturating_mul(*dim)),
            ),
            Self::Bytes
            | Self::Str
            | Self::NdArray { .. }
            | Self::StrInt
            | Self::StrFloat
            | Self::StrDecimal
            | Self::Image(_)
            | Self::JpegArray { .. }
            | Self::List(_)
            | Self::Pkl
            | Self::Json => None,
        }
    }

    /// Returns whether reading a value can run code from the data.
    #[must_use]
    pub const fn is_unsafe(&self) -> bool {
        matches!(self, Self::Pkl)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => f.write_str("bytes"),
            Self::Str => f.write_str("str"),
            Self::Int => f.write_str("int"),
            Self::Number(dtype) => f.write_str(dtype.name()),
            Self::NdArray { dtype, shape } => {
                f.write_str("ndarray")?;
                if dtype.is_some() || shape.is_some() {
                    write!(f, ":{}", dtype.map_or("", DType::name))?;
                }
                for (axis, dim) in shape.iter().flatten().enumerate() {
                    let separator = if axis == 0 { ':' } else { ',' };
                    write!(f, "{separator}{dim}")?;
                }
                Ok(())
            }
            Self::StrInt => f.write_str("str_int"),
            Self::StrFloat => f.write_str("str_float"),
            Self::StrDecimal => f.write_str("str_decimal"),
            Self::Image(kind) => f.write_str(kind.name()),
            Self::JpegArray { underscore: true } => f.write_str("jpeg_array"),
            Self::JpegArray { underscore: false } => f.write_str("jpegarray"),
            Self::List(kind) => write!(f, "list[{kind}]"),
            Self::Pkl => f.write_str("pkl"),
            Self::Json => f.write_str("json"),
        }
    }
}
