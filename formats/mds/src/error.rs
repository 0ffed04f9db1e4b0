use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, escape};

use crate::encoding::{DType, Encoding, ImageKind};

/// A text that is not the name of an encoding, or an encoding that may not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodingError {
    /// A name that the format does not have, or parameters that the encoding does not take.
    #[error("unknown encoding `{}`", escape(encoding))]
    Unknown {
        /// The text as given.
        encoding: String,
    },
    /// An array of a type that the format does not have.
    #[error(
        "unknown number type `{}` in encoding `{}`",
        escape(dtype),
        escape(encoding)
    )]
    UnknownDtype {
        /// The text as given.
        encoding: String,
        /// The part of it that should be a number type.
        dtype: String,
    },
    /// An invalid array shape.
    #[error("the shape of encoding `{}` {reason}", escape(encoding))]
    Shape {
        /// The text as given.
        encoding: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An encoding whose values run code when they are read.
    #[error("encoding `{encoding}` runs code from the data when it is read")]
    Unsafe {
        /// The encoding.
        encoding: Encoding,
    },
}

impl Diagnostic for EncodingError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Unsupported
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "encoding-unknown",
            Self::UnknownDtype { .. } => "encoding-dtype",
            Self::Shape { .. } => "encoding-shape",
            Self::Unsafe { .. } => "encoding-unsafe",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { .. } => {
                Some(format!("the encodings are {}", Encoding::NAMES.join(", ")))
            }
            Self::UnknownDtype { .. } => Some(format!(
                "the number types are {}",
                DType::ALL.map(DType::name).join(", ")
            )),
            Self::Shape { .. } => Some("write the shape as in ndarray:uint8:28,28".to_owned()),
            Self::Unsafe { .. } => None,
        }
    }
}

/// A datum that is not valid for its encoding, or a value that cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// A limit is exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// A datum whose length differs from the fixed one of its encoding.
    #[error("a datum of encoding `{encoding}` has {found} bytes instead of {needed}")]
    Size {
        /// The encoding.
        encoding: Encoding,
        /// The fixed size of a datum in bytes.
        needed: u64,
        /// The actual bytes.
        found: u64,
    },
    /// Text that is not UTF-8.
    #[error("a datum of encoding `{encoding}` is not UTF-8 from byte {offset} of {length}")]
    Utf8 {
        /// The encoding.
        encoding: Encoding,
        /// The first byte that is not part of a character, from the start of the datum.
        offset: u64,
        /// The bytes of the datum.
        length: u64,
    },
    /// Text that is not a number of the kind that its encoding requires.
    #[error(
        "a datum of encoding `{encoding}` is not the text of a number: `{}`",
        escape(found)
    )]
    NumberText {
        /// The encoding.
        encoding: Encoding,
        /// The text, at most its first 40 characters.
        found: String,
    },
    /// An integer text longer than CPython converts.
    #[error(
        "an integer in a datum of encoding `{encoding}` has {digits} digits, of which CPython reads at most {limit}"
    )]
    NumberDigits {
        /// The encoding.
        encoding: Encoding,
        /// The number of its digits.
        digits: u64,
        /// The most that CPython reads by default.
        limit: u64,
    },
    /// An array of a type that the format does not have.
    #[error("an array has the unknown number type {code}")]
    ArrayDtype {
        /// The code in front of the array.
        code: u8,
    },
    /// An array that ends within its header.
    #[error("an array has {found} bytes, but its header alone needs {needed}")]
    ArrayHeader {
        /// The bytes that the header needs, as far as known.
        needed: u64,
        /// The actual bytes.
        found: u64,
    },
    /// An array without dimensions, or with an empty one.
    #[error(
        "an array of shape {shape:?} has no numbers or no dimensions, which the format cannot express"
    )]
    ArrayEmpty {
        /// The shape.
        shape: Vec<u64>,
    },
    /// An array whose shape does not match its bytes.
    #[error("an array of {dtype} of shape {shape:?} has {found} bytes of numbers instead of {}", Needed(*needed))]
    ArrayShape {
        /// The type of its numbers.
        dtype: DType,
        /// Its shape.
        shape: Vec<u64>,
        /// The required bytes; `None` if they are more than 2⁶⁴.
        needed: Option<u64>,
        /// The actual bytes.
        found: u64,
    },
    /// A file that does not begin with the magic bytes of its kind.
    #[error("a {kind} image starts with the bytes {found:02x?}")]
    ImageMagic {
        /// The kind that the column declares.
        kind: ImageKind,
        /// The first bytes, at most 8.
        found: Vec<u8>,
    },
    /// A `pil` image that ends within its header.
    #[error("a pil image has {found} bytes, but its header alone needs {needed}")]
    ImageHeader {
        /// The bytes that the header needs.
        needed: u64,
        /// The actual bytes.
        found: u64,
    },
    /// A `pil` image of a mode that PIL does not have.
    #[error("a pil image has the unknown mode `{}`", escape(mode))]
    ImageMode {
        /// The mode, with replacement characters where it is not UTF-8; at most its first 40 characters.
        mode: String,
    },
    /// A `pil` image whose size does not match its bytes.
    #[error("a pil image of {width}x{height} pixels of mode `{mode}` has {found} bytes of pixels instead of {}", Needed(*needed))]
    ImagePixels {
        /// Its width in pixels.
        width: u32,
        /// Its height in pixels.
        height: u32,
        /// Its mode.
        mode: String,
        /// The required bytes; `None` if they are more than 2⁶⁴.
        needed: Option<u64>,
        /// The actual bytes.
        found: u64,
    },
    /// A list that ends within its header.
    #[error("a list of {items} items has {found} bytes, but its header alone needs {needed}")]
    ListHeader {
        /// The number of items that it claims; 0 if it ends before that number.
        items: u64,
        /// The bytes that the header needs.
        needed: u64,
        /// The actual bytes.
        found: u64,
    },
    /// A list whose lengths do not match its bytes.
    #[error("a list of {items} items has {found} bytes of items instead of {needed}")]
    ListItems {
        /// The number of its items.
        items: u64,
        /// The bytes that they claim.
        needed: u64,
        /// The actual bytes.
        found: u64,
    },
    /// A list whose first word is not 0.
    #[error("a list starts with the word {found} instead of 0")]
    ListReserved {
        /// The word.
        found: u32,
    },
    /// A JPEG array without images, which the original reader cannot read.
    #[error("a jpeg_array has no images")]
    ListEmpty,
    /// A number that does not fit 32 bits.
    #[error("{what} is {value}, above the {} that 32 bits express", u32::MAX)]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A text that is not JSON.
    #[error("a JSON text has {} at byte {offset} where {expected} should be", Found(*found))]
    JsonSyntax {
        /// The offset from the start of the text.
        offset: u64,
        /// What is expected instead.
        expected: &'static str,
        /// The byte at the offset; `None` at the end of the text.
        found: Option<u8>,
    },
    /// A JSON object with a repeated key, of which readers keep only one.
    #[error("a JSON object has the key `{}` twice", escape(key))]
    JsonKeyTwice {
        /// The key.
        key: String,
    },
}

/// Displays a byte count that may be beyond 64 bits.
struct Needed(Option<u64>);

impl std::fmt::Display for Needed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{bytes}"),
            None => f.write_str("more than 2^64"),
        }
    }
}

/// Displays a byte of a JSON text, or its end.
struct Found(Option<u8>);

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(byte) if byte.is_ascii_graphic() => write!(f, "`{}`", char::from(byte)),
            Some(byte) => write!(f, "byte 0x{byte:02x}"),
            None => f.write_str("its end"),
        }
    }
}

impl Diagnostic for ValueError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Corrupt
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Limit(limit) => limit.id(),
            Self::Size { .. } | Self::TooLarge { .. } => "sample-size",
            Self::Utf8 { .. } => "sample-utf8",
            Self::NumberText { .. } => "number-text",
            Self::NumberDigits { .. } => "number-digits",
            Self::ArrayDtype { .. } => "array-dtype",
            Self::ArrayHeader { .. } => "array-header",
            Self::ArrayEmpty { .. } | Self::ArrayShape { .. } => "array-shape",
            Self::ImageMagic { .. } => "image-magic",
            Self::ImageMode { .. } => "image-mode",
            Self::ImageHeader { .. } | Self::ImagePixels { .. } => "image-frame",
            Self::ListHeader { .. }
            | Self::ListItems { .. }
            | Self::ListReserved { .. }
            | Self::ListEmpty => "list-frame",
            Self::JsonSyntax { .. } | Self::JsonKeyTwice { .. } => "json-syntax",
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Limit(limit) => Some(limit.hint()),
            Self::JsonKeyTwice { .. } => {
                Some("let each key be there once: readers keep one of the values".to_owned())
            }
            _ => None,
        }
    }
}
