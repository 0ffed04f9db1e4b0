use std::fmt;
use std::str::FromStr;

use crate::error::EncodingError;
use crate::limits;

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
/// [`FromStr`] and [`Display`](fmt::Display) use the names of the format and round-trip: `str`, `int`, `uint8`,
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

    fn plain(name: &str) -> Option<Self> {
        Some(match name {
            "bytes" => Self::Bytes,
            "str" => Self::Str,
            "int" => Self::Int,
            "ndarray" => Self::NdArray {
                dtype: None,
                shape: None,
            },
            "str_int" => Self::StrInt,
            "str_float" => Self::StrFloat,
            "str_decimal" => Self::StrDecimal,
            "pil" => Self::Image(ImageKind::Pil),
            "jpeg" => Self::Image(ImageKind::Jpeg),
            "png" => Self::Image(ImageKind::Png),
            "jpeg_array" => Self::JpegArray { underscore: true },
            "jpegarray" => Self::JpegArray { underscore: false },
            "list[pil]" => Self::List(ImageKind::Pil),
            "list[jpeg]" => Self::List(ImageKind::Jpeg),
            "list[png]" => Self::List(ImageKind::Png),
            "pkl" => Self::Pkl,
            "json" => Self::Json,
            _ => Self::Number(DType::from_name(name)?),
        })
    }
}

/// Parses one dimension in the canonical form of the format: digits without sign, whitespace or leading zero, at least
/// 1. Other spellings would not round-trip.
fn parse_dim(text: &str) -> Option<u64> {
    let canonical = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    canonical.then(|| text.parse().ok()).flatten()
}

fn parse_shape(encoding: &str, dtype: DType, text: &str) -> Result<Vec<u64>, EncodingError> {
    let error = |reason| EncodingError::Shape {
        encoding: encoding.to_owned(),
        reason,
    };
    // The header of a datum could not express more dimensions either.
    if text.split(',').count() > usize::from(limits::ARRAY_HEADER_DIMS) {
        return Err(error("has more than 63 dimensions"));
    }
    let shape: Vec<u64> = text
        .split(',')
        .map(parse_dim)
        .collect::<Option<_>>()
        .ok_or_else(|| error("is not a list of dimensions of at least 1, such as 2,3"))?;
    shape
        .iter()
        .try_fold(dtype.size_bytes(), |size, dim| size.checked_mul(*dim))
        .ok_or_else(|| error("is larger than 2^64 bytes"))?;
    Ok(shape)
}

impl FromStr for Encoding {
    type Err = EncodingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(parameters) = text.strip_prefix("ndarray:") else {
            return Self::plain(text).ok_or_else(|| EncodingError::Unknown {
                encoding: text.to_owned(),
            });
        };
        let (name, shape) = match parameters.split_once(':') {
            Some((name, shape)) => (name, Some(shape)),
            None => (parameters, None),
        };
        let dtype = DType::from_name(name).ok_or_else(|| EncodingError::UnknownDtype {
            encoding: text.to_owned(),
            dtype: name.to_owned(),
        })?;
        let shape = shape
            .map(|shape| parse_shape(text, dtype, shape))
            .transpose()?;
        Ok(Self::NdArray {
            dtype: Some(dtype),
            shape,
        })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shardmill_core::{Diagnostic as _, ErrorKind};

    use super::*;

    #[test]
    fn every_name_round_trips() {
        for name in Encoding::NAMES {
            assert_eq!(name.parse::<Encoding>().unwrap().to_string(), name);
        }
        for name in ["ndarray:uint8", "ndarray:float64:1", "ndarray:int16:2,3,4"] {
            assert_eq!(name.parse::<Encoding>().unwrap().to_string(), name);
        }
        let unique: std::collections::BTreeSet<_> = Encoding::NAMES.into_iter().collect();
        assert_eq!(unique.len(), 28);
    }

    #[test]
    fn sizes_are_fixed_where_the_encoding_says_so() {
        for (name, size) in [
            ("int", Some(8)),
            ("uint8", Some(1)),
            ("int16", Some(2)),
            ("float16", Some(2)),
            ("float32", Some(4)),
            ("uint64", Some(8)),
            ("ndarray:int32:2,3", Some(24)),
            ("ndarray:int32", None),
            ("ndarray", None),
            ("str", None),
            ("bytes", None),
            ("pil", None),
            ("json", None),
        ] {
            assert_eq!(
                name.parse::<Encoding>().unwrap().fixed_size(),
                size,
                "{name}"
            );
        }
        let vast = Encoding::NdArray {
            dtype: Some(DType::U64),
            shape: Some(vec![u64::MAX, 2]),
        };
        assert_eq!(vast.fixed_size(), Some(u64::MAX));
    }

    #[test]
    fn what_the_format_does_not_have_is_refused_by_name() {
        for name in [
            "",
            "Str",
            "STR",
            "bool",
            "float",
            "int:1",
            "str:",
            "jxl",
            "webp",
            "list",
            "list[str]",
            "list[jpeg",
            " str",
            "str ",
            "ndarray ",
            "uint128",
            "timestamp",
            "pickle",
            "utf8",
            "foo:1",
        ] {
            let error = name.parse::<Encoding>().unwrap_err();
            assert_eq!(error.id(), "encoding-unknown", "{name}");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.hint().unwrap().contains("ndarray, uint8"));
        }
        for name in [
            "ndarray:",
            "ndarray::",
            "ndarray::2,3",
            "ndarray:bool",
            "ndarray:2,3",
            "ndarray:UINT8",
            "ndarray:bfloat16:2",
        ] {
            assert_eq!(
                name.parse::<Encoding>().unwrap_err().id(),
                "encoding-dtype",
                "{name}"
            );
        }
        for shape in [
            "",
            ",",
            "2,",
            ",2",
            "0",
            "2,0",
            "-1",
            "+1",
            "03",
            " 3",
            "3 ",
            "1_0",
            "2:3",
            "1.5",
            "a",
            "18446744073709551616",
            "18446744073709551615,2",
            "4294967296,4294967296",
        ] {
            let name = format!("ndarray:uint8:{shape}");
            assert_eq!(
                name.parse::<Encoding>().unwrap_err().id(),
                "encoding-shape",
                "{name}"
            );
        }
        let error = "no\x1bne".parse::<Encoding>().unwrap_err();
        assert_eq!(error.to_string(), "unknown encoding `no\\u{1b}ne`");
    }

    #[test]
    fn a_shape_has_at_most_63_dimensions() {
        let name = |dims: usize| format!("ndarray:uint8:{}", vec!["1"; dims].join(","));
        assert!(name(63).parse::<Encoding>().is_ok());
        assert!(name(64).parse::<Encoding>().is_err());
    }

    #[test]
    fn types_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
            assert_eq!(u64::from(dtype.code() & !7) / 8, dtype.size_bytes());
            assert_eq!(dtype.is_float(), dtype.name().starts_with("float"));
            assert!(Encoding::NAMES.contains(&dtype.name()));
        }
        for code in (0..=255).filter(|code| DType::ALL.iter().all(|dtype| dtype.code() != *code)) {
            assert_eq!(DType::from_code(code), None);
        }
    }

    #[test]
    fn only_pickle_runs_code() {
        for name in Encoding::NAMES {
            assert_eq!(name.parse::<Encoding>().unwrap().is_unsafe(), name == "pkl");
        }
    }

    proptest! {
        #[test]
        fn what_parses_prints_the_same(text in "(ndarray(:(u?int(8|16)|float32)(:[0-9,]{0,8})?)?|[a-z_\\[\\]:]{0,10})") {
            if let Ok(encoding) = text.parse::<Encoding>() {
                prop_assert_eq!(encoding.to_string(), text);
            }
        }
    }
}
