//! Errors of the MDS, JSON and XSV formats.

use std::fmt;

use shardmill_codec::CodecError;
use shardmill_core::{
    Diagnostic, ErrorKind, Format, LimitExceeded, NameError, ParseFormatError, escape,
};

use crate::encoding::{DType, Encoding};

/// A position in an index, or in the config of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The shard, counted from 0 in the order of the index; `None` outside of shards.
    pub shard: Option<u64>,
    /// The field, with a dot between the names of nested fields; empty for the whole object.
    pub field: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.shard, self.field.as_str()) {
            (None, "") => f.write_str("index"),
            (None, field) => f.write_str(&escape(field)),
            (Some(shard), "") => write!(f, "shard {shard}"),
            (Some(shard), field) => write!(f, "shard {shard}, {}", escape(field)),
        }
    }
}

/// What is wrong with a value, a shard or an index, if a sentence says all that is known about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MdsProblem {
    /// An invalid array shape in the name of an encoding.
    EncodingShape,
    /// A name that is not an encoding of the JSON and XSV formats.
    TextEncoding,
    /// Two columns with the same name.
    DuplicateColumn,
    /// A separator that cannot separate values, that differs from the fixed one, or that the format does not have.
    Separator,
    /// A newline that cannot end a line of a CSV, TSV or XSV shard.
    Newline,
    /// A newline that cannot end a line of a JSON shard.
    JsonNewline,
    /// A column name that would break the header line.
    ColumnName,
    /// A size limit beyond the range of the format's offsets.
    SizeLimit,
    /// A datum of another length than its encoding has, or a number that does not fit 32 bits.
    Size,
    /// Text that is not UTF-8.
    Utf8,
    /// Text that is not a number of the kind that its encoding requires.
    NumberText,
    /// An integer text longer than CPython converts.
    NumberDigits,
    /// An array of a type that the format does not have.
    ArrayDtype,
    /// An array that ends within its header.
    ArrayHeader,
    /// An array without numbers, or whose shape does not match its bytes.
    ArrayShape,
    /// A file that does not begin with the magic bytes of its kind.
    ImageMagic,
    /// A `pil` image of a mode that PIL does not have.
    ImageMode,
    /// A `pil` image that ends within its header, or whose size does not match its bytes.
    ImageFrame,
    /// A list that ends within its header, does not match its lengths, or does not start with 0.
    List,
    /// Anything but JSON text in UTF-8.
    NotJson,
    /// JSON that is truncated.
    IndexTruncated,
    /// Bytes after the JSON.
    Trailing,
    /// A version other than 2.
    Version,
    /// A file that belongs to two shards, or twice to one shard.
    DuplicateShard,
    /// More samples than 32 bits can count.
    TooManySamples,
    /// A header or `.meta` file of a format that does not have one.
    Part,
    /// A file whose length differs from the index.
    Length,
    /// A file that ends within its header.
    Truncated,
    /// A number of samples that differs from the index.
    Count,
    /// Samples that do not start or end at the required offset.
    Offsets,
    /// A sample that does not end with the newline of the shard.
    SampleNewline,
    /// An MDS sample that ends within its list of lengths.
    SampleHead,
    /// An MDS sample with bytes after its last column.
    SampleTrailing,
    /// A line that is not a sample of the JSON or XSV format.
    Line,
    /// A line whose columns differ from those of the shard.
    LineColumns,
    /// A config in the shard that differs from the one in the index.
    Config,
    /// A header line that does not name the columns of the index.
    HeaderLine,
}

impl MdsProblem {
    /// Builds the error with this problem.
    pub(crate) fn because(self, reason: impl Into<String>) -> MdsError {
        MdsError::Input {
            problem: self,
            reason: reason.into(),
        }
    }

    /// Builds the error of a sample with this problem.
    pub(crate) fn of_sample(self, sample: u64, reason: impl Into<String>) -> MdsError {
        MdsError::Sample {
            sample,
            problem: self,
            reason: reason.into(),
        }
    }

    /// Returns the kind, the stable id and the hint of the problem.
    const fn facts(self) -> (ErrorKind, &'static str, Option<&'static str>) {
        use ErrorKind::{Corrupt, InvalidInput, Unsupported};
        match self {
            Self::EncodingShape => (
                Unsupported,
                "encoding-shape",
                Some("write the shape as in ndarray:uint8:28,28"),
            ),
            Self::TextEncoding => (
                Unsupported,
                "encoding-unknown",
                Some("columns of this format are str, int or float"),
            ),
            Self::DuplicateColumn => (
                InvalidInput,
                "config-duplicate-column",
                Some("rename the column"),
            ),
            Self::Separator => (InvalidInput, "config-separator", None),
            Self::Newline => (InvalidInput, "config-newline", None),
            Self::JsonNewline => (
                InvalidInput,
                "config-newline",
                Some("a JSON line ends with spaces, tabs, carriage returns or line feeds"),
            ),
            Self::ColumnName => (
                InvalidInput,
                "config-column-name",
                Some("rename the column"),
            ),
            Self::SizeLimit => (
                InvalidInput,
                "config-size-limit",
                Some("64mb is the usual limit; 0 means none"),
            ),
            Self::Size => (Corrupt, "sample-size", None),
            Self::Utf8 => (Corrupt, "sample-utf8", None),
            Self::NumberText => (Corrupt, "number-text", None),
            Self::NumberDigits => (Corrupt, "number-digits", None),
            Self::ArrayDtype => (Corrupt, "array-dtype", None),
            Self::ArrayHeader => (Corrupt, "array-header", None),
            Self::ArrayShape => (Corrupt, "array-shape", None),
            Self::ImageMagic => (Corrupt, "image-magic", None),
            Self::ImageMode => (Corrupt, "image-mode", None),
            Self::ImageFrame => (Corrupt, "image-frame", None),
            Self::List => (Corrupt, "list-frame", None),
            Self::NotJson => (Corrupt, "index-not-json", None),
            Self::IndexTruncated => (
                Corrupt,
                "index-truncated",
                Some("fetch the index again, or rebuild it from the shards"),
            ),
            Self::Trailing => (Corrupt, "index-trailing", None),
            Self::Version => (Unsupported, "index-version", None),
            Self::DuplicateShard => (Corrupt, "index-duplicate-shard", None),
            Self::TooManySamples => (
                InvalidInput,
                "shard-too-many-samples",
                Some("set a size limit for shards"),
            ),
            Self::Part => (Corrupt, "shard-format", None),
            Self::Length => (Corrupt, "shard-length", None),
            Self::Truncated => (Corrupt, "shard-truncated", None),
            Self::Count => (Corrupt, "shard-count", None),
            Self::Offsets => (Corrupt, "shard-offsets", None),
            Self::SampleNewline => (Corrupt, "sample-newline", None),
            Self::SampleHead => (Corrupt, "sample-truncated", None),
            Self::SampleTrailing => (Corrupt, "sample-trailing", None),
            Self::Line => (Corrupt, "sample-line", None),
            Self::LineColumns => (Corrupt, "sample-columns", None),
            Self::Config => (Corrupt, "shard-config", None),
            Self::HeaderLine => (Corrupt, "shard-header", None),
        }
    }
}

/// The reason why a value, a shard or an index cannot be written or read.
///
/// Samples are numbered from 0 within their shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MdsError {
    /// A sentence says all that is known about the problem.
    #[error("{reason}")]
    Input {
        /// What is wrong.
        problem: MdsProblem,
        /// What is wrong, with the facts.
        reason: String,
    },

    // Names of encodings.
    /// A name that the format does not have, or parameters that the encoding does not take.
    #[error("unknown encoding `{}`", escape(encoding))]
    UnknownEncoding {
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

    // Configurations to write.
    /// No columns: samples would have no bytes, and the original reader cannot read them.
    #[error("there are no columns")]
    NoColumns,

    // Values.
    /// A value exceeds a limit.
    #[error("{_0}")]
    ValueLimit(LimitExceeded),
    /// A JPEG array without images, which the original reader cannot read.
    #[error("a jpeg_array has no images")]
    ListEmpty,
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

    // Indexes, and configs in shards.
    /// No bytes, or only whitespace.
    #[error("the index is empty")]
    IndexEmpty,
    /// Reading the bytes failed.
    #[error("the index cannot be read: {reason}")]
    Read {
        /// The kind of the error.
        kind: ErrorKind,
        /// The reader's message.
        reason: String,
    },
    /// An error at a position in an index, or in the config of a shard.
    #[error("{problem}")]
    At {
        /// The position.
        place: Place,
        /// What is wrong.
        problem: Box<Self>,
    },
    /// A value of the wrong type, or one that does not match another field.
    #[error("{_0}")]
    Field(String),
    /// A key that this format does not have. The original reader refuses it, too.
    #[error("the field is unknown")]
    UnknownField,
    /// A missing key.
    #[error("the field is missing")]
    MissingField,
    /// A repeated key, whose value depends on the reader.
    #[error("the field occurs twice")]
    DuplicateField,
    /// Columns that contradict each other.
    #[error("{_0}")]
    Columns(String),
    /// A shard format that does not exist.
    #[error(transparent)]
    Format(#[from] ParseFormatError),
    /// A hash or a compression that is not valid.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A name that may not be used as a path.
    #[error("{problem}: `{}`", escape(name))]
    Path {
        /// The name, shortened if it is long.
        name: String,
        /// What is wrong with it.
        problem: NameError,
    },
    /// A limit is exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),

    // Shards.
    /// More bytes than 32-bit offsets can address.
    #[error("the shard would have {bytes} bytes, but its offsets end at 4294967295")]
    ShardTooLarge {
        /// The bytes of the file.
        bytes: u64,
    },
    /// A shard without the `.meta` file that its format needs.
    #[error("the .meta file of the shard is missing")]
    NoMeta,
    /// A sample that is not valid.
    #[error("sample {sample} {reason}")]
    Sample {
        /// The sample.
        sample: u64,
        /// What is wrong with it.
        problem: MdsProblem,
        /// What is wrong with it, with the facts.
        reason: String,
    },
    /// A config in the shard that is not valid.
    #[error("the config in the shard is wrong{}: {problem}", config_place(problem))]
    ShardConfig {
        /// What is wrong.
        problem: Box<Self>,
    },
    /// A sample number beyond the end of the shard.
    #[error("there is no sample {sample} in a shard of {samples}")]
    NoSample {
        /// The requested sample.
        sample: u64,
        /// The number of samples in the shard.
        samples: u64,
    },
    /// An MDS sample that ends within the value of a column.
    #[error(
        "column `{}` of sample {sample} needs {needed} bytes, but {left} are left",
        escape(column)
    )]
    SampleEnd {
        /// The sample.
        sample: u64,
        /// The column.
        column: String,
        /// Bytes of its value.
        needed: u64,
        /// Bytes left in the sample.
        left: u64,
    },
    /// A value that is not valid for its encoding.
    #[error("column `{}` of sample {sample}: {problem}", escape(column))]
    Value {
        /// The sample.
        sample: u64,
        /// The column.
        column: String,
        /// What is wrong.
        problem: Box<Self>,
    },
}

/// Builds the error for a part of a shard that its format does not have.
pub(crate) fn no_part(format: Format, part: &str) -> MdsError {
    MdsProblem::Part.because(format!("a shard of format {format} has no {part}"))
}

/// Builds the error for an array without dimensions, or with an empty one.
pub(crate) fn array_empty(shape: &[u64]) -> MdsError {
    MdsProblem::ArrayShape.because(format!(
        "an array of shape {shape:?} has no numbers or no dimensions, which the format cannot express"
    ))
}

/// Builds the error for an index that is not JSON.
pub(crate) fn not_json(reason: impl fmt::Display) -> MdsError {
    MdsProblem::NotJson.because(format!("the index is not JSON: {reason}"))
}

/// Formats a byte count that may be beyond 64 bits.
pub(crate) fn needed_bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "more than 2^64".to_owned(), |bytes| bytes.to_string())
}

/// Displays a byte of a JSON text, or its end.
struct Found(Option<u8>);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(byte) if byte.is_ascii_graphic() => write!(f, "`{}`", char::from(byte)),
            Some(byte) => write!(f, "byte 0x{byte:02x}"),
            None => f.write_str("its end"),
        }
    }
}

/// Returns where in a config a problem is, for a message.
fn config_place(problem: &MdsError) -> String {
    problem
        .place()
        .map_or_else(String::new, |place| format!(" at {place}"))
}

impl MdsError {
    /// Returns the position in the index or the config, if the error has one.
    #[must_use]
    pub const fn place(&self) -> Option<&Place> {
        match self {
            Self::At { place, .. } => Some(place),
            _ => None,
        }
    }

    /// Adds the position in an index or a config.
    pub(crate) fn at(self, place: Place) -> Self {
        Self::At {
            place,
            problem: Box::new(self),
        }
    }
}

impl Diagnostic for MdsError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Input { problem, .. } | Self::Sample { problem, .. } => problem.facts().0,
            Self::UnknownEncoding { .. }
            | Self::UnknownDtype { .. }
            | Self::Format(_)
            | Self::Limit(_) => ErrorKind::Unsupported,
            Self::NoColumns | Self::ShardTooLarge { .. } | Self::NoMeta | Self::NoSample { .. } => {
                ErrorKind::InvalidInput
            }
            Self::Read { kind, .. } => *kind,
            Self::Codec(problem) => problem.kind(),
            Self::At { problem, .. }
            | Self::ShardConfig { problem }
            | Self::Value { problem, .. } => problem.kind(),
            _ => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Input { problem, .. } | Self::Sample { problem, .. } => problem.facts().1,
            Self::UnknownEncoding { .. } => "encoding-unknown",
            Self::UnknownDtype { .. } => "encoding-dtype",
            Self::NoColumns => "config-no-columns",
            Self::ListEmpty => "list-frame",
            Self::JsonSyntax { .. } | Self::JsonKeyTwice { .. } => "json-syntax",
            Self::IndexEmpty => "index-empty",
            Self::Read { .. } => "io",
            Self::Field(_) => "index-field",
            Self::UnknownField => "index-unknown-field",
            Self::MissingField => "index-missing-field",
            Self::DuplicateField => "index-duplicate-field",
            Self::Columns(_) => "index-columns",
            Self::Format(_) => "index-format",
            Self::Codec(problem) => problem.id(),
            Self::Path { problem, .. } => problem.id(),
            Self::Limit(problem) | Self::ValueLimit(problem) => problem.id(),
            Self::ShardTooLarge { .. } => "shard-too-large",
            Self::NoMeta => "shard-meta",
            Self::ShardConfig { .. } => "shard-config",
            Self::NoSample { .. } => "sample-range",
            Self::SampleEnd { .. } => "sample-truncated",
            Self::At { problem, .. } | Self::Value { problem, .. } => problem.id(),
        }
    }

    fn object(&self) -> Option<String> {
        self.place().map(ToString::to_string)
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Input { problem, .. } => problem.facts().2?,
            Self::UnknownEncoding { .. } => {
                return Some(format!("the encodings are {}", Encoding::NAMES.join(", ")));
            }
            Self::UnknownDtype { .. } => {
                let names = DType::ALL.map(DType::name);
                return Some(format!("the number types are {}", names.join(", ")));
            }
            Self::Limit(problem) | Self::ValueLimit(problem) => return Some(problem.hint()),
            Self::Codec(problem) => return problem.hint(),
            Self::At { problem, .. }
            | Self::ShardConfig { problem }
            | Self::Value { problem, .. } => return problem.hint(),
            Self::JsonKeyTwice { .. } => {
                "let each key be there once: readers keep one of the values"
            }
            Self::IndexEmpty => "fetch the index again, or rebuild it from the shards",
            Self::ShardTooLarge { .. } => "set a size limit for shards",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
