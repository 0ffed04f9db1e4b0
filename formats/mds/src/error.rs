//! Errors of the MDS, JSON and XSV formats.

use std::fmt;

use shardmill_codec::CodecError;
use shardmill_core::{
    Diagnostic, ErrorKind, Format, LimitExceeded, NameError, ParseFormatError, escape,
};

use crate::encoding::{DType, Encoding, ImageKind};

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

/// The reason why a value, a shard or an index cannot be written or read.
///
/// Samples are numbered from 0 within their shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MdsError {
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
    /// An invalid array shape.
    #[error("the shape of encoding `{}` {reason}", escape(encoding))]
    EncodingShape {
        /// The text as given.
        encoding: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A name that is not an encoding of the JSON and XSV formats.
    #[error("unknown text encoding `{}`", escape(name))]
    UnknownTextEncoding {
        /// The name as given.
        name: String,
    },

    // Configurations to write.
    /// Two columns with the same name.
    #[error("there are two columns `{}`", escape(name))]
    DuplicateColumn {
        /// The name.
        name: String,
    },
    /// No columns: samples would have no bytes, and the original reader cannot read them.
    #[error("there are no columns")]
    NoColumns,
    /// A format other than CSV, TSV and XSV.
    #[error("{format} has no separator between values")]
    NotXsv {
        /// The format.
        format: Format,
    },
    /// A separator that cannot separate values, or that differs from the fixed one of CSV or TSV.
    #[error("`{}` cannot be the separator of {format}", escape(separator))]
    Separator {
        /// The format.
        format: Format,
        /// The separator.
        separator: String,
    },
    /// A newline that cannot end a line of the format.
    #[error("`{}` cannot be the newline of {format}", escape(newline))]
    Newline {
        /// The format.
        format: Format,
        /// The newline.
        newline: String,
    },
    /// A column name that would break the header line.
    #[error("the name of column `{}` contains the {what}", escape(name))]
    ColumnName {
        /// The column.
        name: String,
        /// `separator` or `newline`.
        what: &'static str,
    },
    /// A size limit beyond the range of the format's offsets.
    #[error("the size limit of a shard is {size_limit} bytes; it has to be below 4294967296")]
    SizeLimit {
        /// The requested limit.
        size_limit: u64,
    },

    // Values.
    /// A value exceeds a limit.
    #[error("{_0}")]
    ValueLimit(LimitExceeded),
    /// A datum whose length differs from the fixed one of its encoding.
    #[error("a datum of encoding `{encoding}` has {found} bytes instead of {needed}")]
    DatumSize {
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
    #[error("a list starts with the number {found} instead of 0")]
    ListReserved {
        /// The word.
        found: u32,
    },
    /// A JPEG array without images, which the original reader cannot read.
    #[error("a jpeg_array has no images")]
    ListEmpty,
    /// A number that does not fit 32 bits.
    #[error("{what} is {value}, above the {} that 32 bits express", u32::MAX)]
    Above32Bits {
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

    // Indexes, and configs in shards.
    /// No bytes, or only whitespace.
    #[error("the index is empty")]
    IndexEmpty,
    /// Anything but JSON text in UTF-8.
    #[error("the index is not JSON: {reason}")]
    NotJson {
        /// What the file looks like, or the position of the syntax error.
        reason: String,
    },
    /// JSON that is truncated.
    #[error("the index ends after line {line}, byte {column}")]
    IndexTruncated {
        /// The line in which it ends, from 1.
        line: u64,
        /// The bytes of that line.
        column: u64,
    },
    /// Bytes after the JSON.
    #[error("something follows the index at line {line}, byte {column}")]
    Trailing {
        /// The line, from 1.
        line: u64,
        /// The byte in that line, from 1.
        column: u64,
    },
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
    /// A version other than 2.
    #[error("the version is {found}; only version 2 is supported")]
    Version {
        /// The version.
        found: u64,
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
    /// A file that belongs to two shards, or twice to one shard.
    #[error(
        "the file `{}` is also `{first_field}` of shard {first}",
        escape(basename)
    )]
    DuplicateShard {
        /// The first shard with that file.
        first: u64,
        /// The field of that shard.
        first_field: &'static str,
        /// The name of the file.
        basename: String,
    },
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
    /// More samples than 32 bits can count.
    #[error("the shard would have {samples} samples, but counts to 4294967295")]
    TooManySamples {
        /// The number of samples.
        samples: u64,
    },
    /// A header or `.meta` file of a format that does not have one.
    #[error("a shard of format {format} has no {part}")]
    Part {
        /// The format.
        format: Format,
        /// `header of samples` or `.meta file`.
        part: &'static str,
    },
    /// A shard without the `.meta` file that its format needs.
    #[error("the .meta file of the shard is missing")]
    NoMeta,
    /// A file whose length differs from the index.
    #[error("the {file} has {found} bytes, but the index says {expected}")]
    Length {
        /// `shard` or `.meta file`.
        file: &'static str,
        /// The length in the index.
        expected: u64,
        /// The length of the file.
        found: u64,
    },
    /// A file that ends within its header.
    #[error("the {file} has {found} bytes, but its header alone needs {needed}")]
    Truncated {
        /// `shard` or `.meta file`.
        file: &'static str,
        /// The bytes of the header, as far as known.
        needed: u64,
        /// The bytes of the file.
        found: u64,
    },
    /// A number of samples that differs from the index.
    #[error("the shard has {found} samples, but the index says {expected}")]
    Count {
        /// The number of samples in the index.
        expected: u64,
        /// The number of samples in the header.
        found: u64,
    },
    /// Samples that do not start at the required offset.
    #[error("the first sample starts at byte {found}, but has to start at byte {expected}")]
    FirstOffset {
        /// The required offset, or the lowest one allowed.
        expected: u64,
        /// The offset of the first sample.
        found: u64,
    },
    /// A sample that ends before it starts.
    #[error("sample {sample} starts at byte {begin} and ends at byte {end}")]
    Offsets {
        /// The sample.
        sample: u64,
        /// Its first byte.
        begin: u64,
        /// The byte after its last.
        end: u64,
    },
    /// Samples that do not end at the end of the file.
    #[error("the last sample ends at byte {found}, but the file has {expected} bytes")]
    LastOffset {
        /// The length of the file.
        expected: u64,
        /// The end of the last sample.
        found: u64,
    },
    /// A config in the shard that is not valid.
    #[error("the config in the shard is wrong{}: {problem}", config_place(problem))]
    ShardConfig {
        /// What is wrong.
        problem: Box<Self>,
    },
    /// A config in the shard that differs from the one in the index.
    #[error(
        "the config in the shard has {field} {}, but the index says {}",
        escape(found),
        escape(expected)
    )]
    ConfigMismatch {
        /// The field.
        field: &'static str,
        /// Its value in the index, shortened if it is long.
        expected: String,
        /// Its value in the shard, shortened if it is long.
        found: String,
    },
    /// A header line that does not name the columns of the index.
    #[error(
        "the shard starts with `{}` instead of the header line `{}`",
        escape(found),
        escape(expected)
    )]
    HeaderLine {
        /// The header line according to the index, shortened if it is long.
        expected: String,
        /// The start of the shard, shortened if it is long.
        found: String,
    },
    /// A sample that does not end with the newline of the shard.
    #[error("sample {sample} does not end with the newline of the shard")]
    SampleNewline {
        /// The sample.
        sample: u64,
    },
    /// A sample number beyond the end of the shard.
    #[error("there is no sample {sample} in a shard of {samples}")]
    NoSample {
        /// The requested sample.
        sample: u64,
        /// The number of samples in the shard.
        samples: u64,
    },
    /// An MDS sample that ends within its list of lengths.
    #[error(
        "sample {sample} has {found} bytes, but the lengths of its columns alone need {needed}"
    )]
    SampleHead {
        /// The sample.
        sample: u64,
        /// Bytes of the lengths.
        needed: u64,
        /// Bytes of the sample.
        found: u64,
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
    /// An MDS sample with bytes after its last column.
    #[error("sample {sample} has {bytes} bytes after its last column")]
    SampleTrailing {
        /// The sample.
        sample: u64,
        /// The number of these bytes.
        bytes: u64,
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
    /// A line that is not a sample of the JSON or XSV format.
    #[error("sample {sample} {problem}")]
    Line {
        /// The sample.
        sample: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A line whose columns differ from those of the shard.
    #[error("sample {sample} {problem}")]
    LineColumns {
        /// The sample.
        sample: u64,
        /// What is wrong with them.
        problem: String,
    },
}

/// Displays a byte count that may be beyond 64 bits.
struct Needed(Option<u64>);

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{bytes}"),
            None => f.write_str("more than 2^64"),
        }
    }
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
            Self::UnknownEncoding { .. }
            | Self::UnknownDtype { .. }
            | Self::EncodingShape { .. }
            | Self::UnknownTextEncoding { .. }
            | Self::Version { .. }
            | Self::Format(_)
            | Self::Limit(_) => ErrorKind::Unsupported,
            Self::DuplicateColumn { .. }
            | Self::NoColumns
            | Self::NotXsv { .. }
            | Self::Separator { .. }
            | Self::Newline { .. }
            | Self::ColumnName { .. }
            | Self::SizeLimit { .. }
            | Self::ShardTooLarge { .. }
            | Self::TooManySamples { .. }
            | Self::NoMeta
            | Self::NoSample { .. } => ErrorKind::InvalidInput,
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
            Self::UnknownEncoding { .. } | Self::UnknownTextEncoding { .. } => "encoding-unknown",
            Self::UnknownDtype { .. } => "encoding-dtype",
            Self::EncodingShape { .. } => "encoding-shape",
            Self::DuplicateColumn { .. } => "config-duplicate-column",
            Self::NoColumns => "config-no-columns",
            Self::NotXsv { .. } | Self::Separator { .. } => "config-separator",
            Self::Newline { .. } => "config-newline",
            Self::ColumnName { .. } => "config-column-name",
            Self::SizeLimit { .. } => "config-size-limit",
            Self::DatumSize { .. } | Self::Above32Bits { .. } => "sample-size",
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
            Self::IndexEmpty => "index-empty",
            Self::NotJson { .. } => "index-not-json",
            Self::IndexTruncated { .. } => "index-truncated",
            Self::Trailing { .. } => "index-trailing",
            Self::Read { .. } => "io",
            Self::Version { .. } => "index-version",
            Self::Field(_) => "index-field",
            Self::UnknownField => "index-unknown-field",
            Self::MissingField => "index-missing-field",
            Self::DuplicateField => "index-duplicate-field",
            Self::DuplicateShard { .. } => "index-duplicate-shard",
            Self::Columns(_) => "index-columns",
            Self::Format(_) => "index-format",
            Self::Codec(problem) => problem.id(),
            Self::Path { problem, .. } => problem.id(),
            Self::Limit(problem) | Self::ValueLimit(problem) => problem.id(),
            Self::ShardTooLarge { .. } => "shard-too-large",
            Self::TooManySamples { .. } => "shard-too-many-samples",
            Self::Part { .. } => "shard-format",
            Self::NoMeta => "shard-meta",
            Self::Length { .. } => "shard-length",
            Self::Truncated { .. } => "shard-truncated",
            Self::Count { .. } => "shard-count",
            Self::FirstOffset { .. } | Self::Offsets { .. } | Self::LastOffset { .. } => {
                "shard-offsets"
            }
            Self::ShardConfig { .. } | Self::ConfigMismatch { .. } => "shard-config",
            Self::HeaderLine { .. } => "shard-header",
            Self::SampleNewline { .. } => "sample-newline",
            Self::NoSample { .. } => "sample-range",
            Self::SampleHead { .. } | Self::SampleEnd { .. } => "sample-truncated",
            Self::SampleTrailing { .. } => "sample-trailing",
            Self::Line { .. } => "sample-line",
            Self::LineColumns { .. } => "sample-columns",
            Self::At { problem, .. } | Self::Value { problem, .. } => problem.id(),
        }
    }

    fn object(&self) -> Option<String> {
        self.place().map(ToString::to_string)
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
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
            Self::EncodingShape { .. } => "write the shape as in ndarray:uint8:28,28",
            Self::UnknownTextEncoding { .. } => "columns of this format are str, int or float",
            Self::DuplicateColumn { .. } | Self::ColumnName { .. } => "rename the column",
            Self::SizeLimit { .. } => "64mb is the usual limit; 0 means none",
            Self::Newline {
                format: Format::Json,
                ..
            } => "a JSON line ends with spaces, tabs, carriage returns or line feeds",
            Self::JsonKeyTwice { .. } => {
                "let each key be there once: readers keep one of the values"
            }
            Self::IndexEmpty | Self::IndexTruncated { .. } => {
                "fetch the index again, or rebuild it from the shards"
            }
            Self::ShardTooLarge { .. } | Self::TooManySamples { .. } => {
                "set a size limit for shards"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
