//! Errors of the MDS, JSON and XSV formats.

use std::fmt;

use shardmill_codec::CodecError;
use shardmill_core::{
    Diagnostic, ErrorKind, Format, LimitExceeded, NameError, ParseFormatError, escape,
};

use crate::encoding::{DType, Encoding};

/// A position in an index, or in the config of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexPosition {
    /// The shard, counted from 0 in the order of the index; `None` outside of shards.
    pub shard: Option<u64>,
    /// The field, with a dot between the names of nested fields; empty for the whole object.
    pub field: String,
}

impl fmt::Display for IndexPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.shard, self.field.as_str()) {
            (None, "") => f.write_str("index"),
            (None, field) => f.write_str(&escape(field)),
            (Some(shard), "") => write!(f, "shard {shard}"),
            (Some(shard), field) => write!(f, "shard {shard}, {}", escape(field)),
        }
    }
}

shardmill_core::problems! {
    /// What is wrong with a value, a shard or an index, if a sentence says all that is known about it.
    #[non_exhaustive]
    pub enum MdsProblem {
        /// An invalid array shape in the name of an encoding.
        EncodingShape => (Unsupported, "encoding-shape", "write the shape as in ndarray:uint8:28,28"),
        /// A name that is not an encoding of the JSON and XSV formats.
        TextEncoding => (Unsupported, "encoding-unknown", "columns of this format are str, int or float"),
        /// No columns: samples would have no bytes, and the original reader cannot read them.
        NoColumns => (InvalidInput, "config-no-columns"),
        /// Two columns with the same name.
        DuplicateColumn => (InvalidInput, "config-duplicate-column", "rename the column"),
        /// A separator that cannot separate values, that differs from the fixed one, or that the format does not have.
        Separator => (InvalidInput, "config-separator"),
        /// A newline that cannot end a line of a CSV, TSV or XSV shard.
        Newline => (InvalidInput, "config-newline"),
        /// A newline that cannot end a line of a JSON shard.
        JsonNewline => (InvalidInput, "config-newline", "a JSON line ends with spaces, tabs, carriage returns or line feeds"),
        /// A column name that would break the header line.
        ColumnName => (InvalidInput, "config-column-name", "rename the column"),
        /// A size limit beyond the range of the format's offsets.
        SizeLimit => (InvalidInput, "config-size-limit", "64mb is the usual limit; 0 means none"),
        /// A datum of another length than its encoding has, or a number that does not fit 32 bits.
        Size => (Corrupt, "sample-size"),
        /// Text that is not UTF-8.
        Utf8 => (Corrupt, "sample-utf8"),
        /// Text that is not a number of the kind that its encoding requires.
        NumberText => (Corrupt, "number-text"),
        /// An integer text longer than CPython converts.
        NumberDigits => (Corrupt, "number-digits"),
        /// An array of a type that the format does not have.
        ArrayDtype => (Corrupt, "array-dtype"),
        /// An array that ends within its header.
        ArrayHeader => (Corrupt, "array-header"),
        /// An array without numbers, or whose shape does not match its bytes.
        ArrayShape => (Corrupt, "array-shape"),
        /// A file that does not begin with the magic bytes of its kind.
        ImageMagic => (Corrupt, "image-magic"),
        /// A `pil` image of a mode that PIL does not have.
        ImageMode => (Corrupt, "image-mode"),
        /// A `pil` image that ends within its header, or whose size does not match its bytes.
        ImageFrame => (Corrupt, "image-frame"),
        /// A list that ends within its header, does not match its lengths, or does not start with 0; a JPEG array without
        /// images.
        List => (Corrupt, "list-frame"),
        /// A text that is not JSON.
        JsonSyntax => (Corrupt, "json-syntax"),
        /// A JSON object with a repeated key, of which readers keep only one.
        JsonKeyTwice => (Corrupt, "json-syntax", "remove the repeated key: readers keep only one of its values"),
        /// No bytes, or only whitespace.
        IndexEmpty => (Corrupt, "index-empty", "fetch the index again, or rebuild it from the shards"),
        /// Anything but JSON text in UTF-8.
        NotJson => (Corrupt, "index-not-json"),
        /// JSON that is truncated.
        IndexTruncated => (Corrupt, "index-truncated", "fetch the index again, or rebuild it from the shards"),
        /// Bytes after the JSON.
        Trailing => (Corrupt, "index-trailing"),
        /// A value of the wrong type, or one that does not match another field.
        Field => (Corrupt, "index-field"),
        /// A key that this format does not have. The original reader refuses it, too.
        UnknownField => (Corrupt, "index-unknown-field"),
        /// A missing key.
        MissingField => (Corrupt, "index-missing-field", "if this is not an index of MDS or WebDataset, set the format of the source with --from, such as parquet"),
        /// A repeated key, whose value depends on the reader.
        DuplicateField => (Corrupt, "index-duplicate-field"),
        /// Columns that contradict each other.
        Columns => (Corrupt, "index-columns"),
        /// A version other than 2.
        Version => (Unsupported, "index-version"),
        /// A file that belongs to two shards, or twice to one shard.
        DuplicateShard => (Corrupt, "index-duplicate-shard"),
        /// More samples than 32 bits can count.
        TooManySamples => (InvalidInput, "shard-too-many-samples", "set a size limit for shards"),
        /// More bytes than 32-bit offsets can address.
        ShardTooLarge => (InvalidInput, "shard-too-large", "set a size limit for shards"),
        /// A shard without the `.meta` file that its format needs.
        NoMeta => (InvalidInput, "shard-meta"),
        /// A sample number beyond the end of the shard.
        NoSample => (InvalidInput, "sample-range"),
        /// A header or `.meta` file of a format that does not have one.
        Part => (Corrupt, "shard-format"),
        /// A file whose length differs from the index.
        Length => (Corrupt, "shard-length"),
        /// A file that ends within its header.
        Truncated => (Corrupt, "shard-truncated"),
        /// A number of samples that differs from the index.
        Count => (Corrupt, "shard-count"),
        /// Samples that do not start or end at the required offset.
        Offsets => (Corrupt, "shard-offsets"),
        /// A sample that does not end with the newline of the shard.
        SampleNewline => (Corrupt, "sample-newline"),
        /// An MDS sample that ends within its list of lengths.
        SampleHead => (Corrupt, "sample-truncated"),
        /// An MDS sample with bytes after its last column.
        SampleTrailing => (Corrupt, "sample-trailing"),
        /// A line that is not a sample of the JSON or XSV format.
        Line => (Corrupt, "sample-line"),
        /// A line whose columns differ from those of the shard.
        LineColumns => (Corrupt, "sample-columns"),
        /// A config in the shard that differs from the one in the index.
        Config => (Corrupt, "shard-config"),
        /// A header line that does not name the columns of the index.
        HeaderLine => (Corrupt, "shard-header"),
    }
}

impl MdsProblem {
    /// Builds the error with this problem.
    #[must_use]
    pub fn because(self, reason: impl Into<String>) -> MdsError {
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
}

/// The reason why a value, a shard or an index cannot be written or read.
///
/// Samples are numbered from 0 within their shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum MdsError {
    /// A sentence says all that is known about the problem.
    #[error("{reason}")]
    Input {
        problem: MdsProblem,
        /// What is wrong, with the facts.
        reason: String,
    },

    // Names of encodings.
    /// A name that the format does not have, or parameters that the encoding does not take.
    #[error("unknown encoding `{}`", escape(encoding))]
    UnknownEncoding { encoding: String },
    /// An array of a type that the format does not have.
    #[error(
        "unknown number type `{}` in encoding `{}`",
        escape(dtype),
        escape(encoding)
    )]
    UnknownDtype { encoding: String, dtype: String },

    // Values.
    /// A value exceeds a limit.
    #[error("{_0}")]
    ValueLimit(LimitExceeded),

    // Indexes, and configs in shards.
    /// An error at a position in an index, or in the config of a shard.
    #[error("{problem}")]
    At {
        position: IndexPosition,
        problem: Box<Self>,
    },
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
        problem: NameError,
    },
    /// A limit is exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),

    // Shards.
    /// A sample that is not valid.
    #[error("sample {sample} {reason}")]
    Sample {
        sample: u64,
        problem: MdsProblem,
        /// What is wrong with it, with the facts.
        reason: String,
    },
    /// A config in the shard that is not valid.
    #[error(
        "the config in the shard is wrong{}: {problem}",
        config_position(problem)
    )]
    ShardConfig { problem: Box<Self> },
    /// An MDS sample that ends within the value of a column.
    #[error(
        "column `{}` of sample {sample} needs {needed} bytes, but {left} are left",
        escape(column)
    )]
    SampleEnd {
        sample: u64,
        column: String,
        needed: u64,
        left: u64,
    },
    /// A value that is not valid for its encoding.
    #[error("column `{}` of sample {sample}: {problem}", escape(column))]
    Value {
        sample: u64,
        column: String,
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

/// Builds the error for a JPEG array without images, which the original reader cannot read.
pub(crate) fn list_empty() -> MdsError {
    MdsProblem::List.because("a jpeg_array has no images")
}

/// Builds the error for an index that is not JSON.
pub(crate) fn not_json(reason: impl fmt::Display) -> MdsError {
    MdsProblem::NotJson.because(format!("the index is not JSON: {reason}"))
}

/// Formats a byte count that may be beyond 64 bits.
pub(crate) fn needed_bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "more than 2^64".to_owned(), |bytes| bytes.to_string())
}

/// Returns where in a config a problem is, for a message.
fn config_position(problem: &MdsError) -> String {
    problem
        .place()
        .map_or_else(String::new, |position| format!(" at {position}"))
}

impl MdsError {
    /// Returns the position in the index or the config, if the error has one.
    #[must_use]
    pub const fn place(&self) -> Option<&IndexPosition> {
        match self {
            Self::At { position, .. } => Some(position),
            _ => None,
        }
    }

    /// Builds the error for a shard of more bytes than its offsets can address.
    #[must_use]
    pub fn shard_too_large(bytes: u64) -> Self {
        let reason =
            format!("the shard would have {bytes} bytes, but its offsets end at 4294967295");
        MdsProblem::ShardTooLarge.because(reason)
    }

    /// Builds the error for a JSON object with a repeated key.
    #[must_use]
    pub fn json_key_twice(key: &str) -> Self {
        let reason = format!("a JSON object has the key `{}` twice", escape(key));
        MdsProblem::JsonKeyTwice.because(reason)
    }

    /// Adds the position in an index or a config.
    pub(crate) fn at(self, position: IndexPosition) -> Self {
        Self::At {
            position,
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
            Self::Format(_) => "index-format",
            Self::Codec(problem) => problem.id(),
            Self::Path { problem, .. } => problem.id(),
            Self::Limit(problem) | Self::ValueLimit(problem) => problem.id(),
            Self::ShardConfig { .. } => "shard-config",
            Self::SampleEnd { .. } => "sample-truncated",
            Self::At { problem, .. } | Self::Value { problem, .. } => problem.id(),
        }
    }

    fn object(&self) -> Option<String> {
        self.place().map(ToString::to_string)
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Input { problem, .. } => problem.facts().2.map(str::to_owned),
            Self::UnknownEncoding { .. } => Some(format!(
                "the encodings are {}",
                Encoding::names().join(", ")
            )),
            Self::UnknownDtype { .. } => {
                let names = DType::ALL.map(DType::name);
                Some(format!("the number types are {}", names.join(", ")))
            }
            Self::Limit(problem) | Self::ValueLimit(problem) => Some(problem.hint()),
            Self::Codec(problem) => problem.hint(),
            Self::At { problem, .. }
            | Self::ShardConfig { problem }
            | Self::Value { problem, .. } => problem.hint(),
            _ => None,
        }
    }
}
