//! The encodings of columns.

use std::fmt;

shardmill_core::named_enum! {
    /// The type of the numbers in a number column or an array; little-endian on disk.
    pub enum DType {
        /// `uint8`
        U8 = "uint8",
        /// `int8`
        I8 = "int8",
        /// `uint16`
        U16 = "uint16",
        /// `int16`
        I16 = "int16",
        /// `float16`, IEEE 754 binary16
        F16 = "float16",
        /// `uint32`
        U32 = "uint32",
        /// `int32`
        I32 = "int32",
        /// `float32`
        F32 = "float32",
        /// `uint64`
        U64 = "uint64",
        /// `int64`
        I64 = "int64",
        /// `float64`
        F64 = "float64",
    }
}

impl DType {
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

    /// Returns the type with that [`code`](Self::code).
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.code() == code)
    }

    /// Returns the type of the same numbers in NumPy files.
    #[must_use]
    pub const fn numpy(self) -> shardmill_core::DType {
        use shardmill_core::DType as Npy;
        match self {
            Self::U8 => Npy::UInt8,
            Self::I8 => Npy::Int8,
            Self::U16 => Npy::UInt16,
            Self::I16 => Npy::Int16,
            Self::F16 => Npy::Float16,
            Self::U32 => Npy::UInt32,
            Self::I32 => Npy::Int32,
            Self::F32 => Npy::Float32,
            Self::U64 => Npy::UInt64,
            Self::I64 => Npy::Int64,
            Self::F64 => Npy::Float64,
        }
    }

    /// Returns the type of the same numbers as in a NumPy file; `None` for truth values.
    #[must_use]
    pub fn from_numpy(numpy: shardmill_core::DType) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.numpy() == numpy)
    }
}

shardmill_core::named_enum! {
    /// How an image is stored.
    pub enum ImageKind {
        /// Width, height, mode and raw pixels.
        Pil = "pil",
        /// A JPEG file.
        Jpeg = "jpeg",
        /// A PNG file.
        Png = "png",
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
    /// An encoding that the program registered. Only the program can decode its values, which are opaque bytes here.
    ///
    /// No text parses to it: an index has one where [`Limits::program_encodings`] allows it.
    ///
    /// [`Limits::program_encodings`]: shardmill_core::Limits::program_encodings
    Registered {
        /// The name, which may be one of the format.
        name: Box<str>,
        /// The size of every value in bytes; `None` if each value has its own.
        size: Option<u64>,
    },
}

impl Encoding {
    /// The encodings without parameters, with the 28 names of the format.
    const PLAIN: [(&'static str, Self); 28] = [
        ("bytes", Self::Bytes),
        ("str", Self::Str),
        ("int", Self::Int),
        (
            "ndarray",
            Self::NdArray {
                dtype: None,
                shape: None,
            },
        ),
        ("uint8", Self::Number(DType::U8)),
        ("uint16", Self::Number(DType::U16)),
        ("uint32", Self::Number(DType::U32)),
        ("uint64", Self::Number(DType::U64)),
        ("int8", Self::Number(DType::I8)),
        ("int16", Self::Number(DType::I16)),
        ("int32", Self::Number(DType::I32)),
        ("int64", Self::Number(DType::I64)),
        ("float16", Self::Number(DType::F16)),
        ("float32", Self::Number(DType::F32)),
        ("float64", Self::Number(DType::F64)),
        ("str_int", Self::StrInt),
        ("str_float", Self::StrFloat),
        ("str_decimal", Self::StrDecimal),
        ("pil", Self::Image(ImageKind::Pil)),
        ("jpeg", Self::Image(ImageKind::Jpeg)),
        ("jpeg_array", Self::JpegArray { underscore: true }),
        ("jpegarray", Self::JpegArray { underscore: false }),
        ("png", Self::Image(ImageKind::Png)),
        ("list[pil]", Self::List(ImageKind::Pil)),
        ("list[jpeg]", Self::List(ImageKind::Jpeg)),
        ("list[png]", Self::List(ImageKind::Png)),
        ("pkl", Self::Pkl),
        ("json", Self::Json),
    ];

    /// Returns the 28 names of the format, without parameters.
    #[must_use]
    pub fn names() -> [&'static str; 28] {
        Self::PLAIN.map(|(name, _)| name)
    }

    /// Parses a name without parameters.
    pub(crate) fn plain(name: &str) -> Option<Self> {
        let mut all = Self::PLAIN.into_iter();
        all.find_map(|(known, encoding)| (known == name).then_some(encoding))
    }

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
            Self::Registered { size, .. } => *size,
            _ => None,
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
            Self::Registered { name, .. } => f.write_str(name),
            plain => {
                let found = Self::PLAIN.into_iter().find(|(_, known)| known == plain);
                f.write_str(found.map_or("", |(name, _)| name))
            }
        }
    }
}
