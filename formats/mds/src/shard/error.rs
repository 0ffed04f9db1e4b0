//! Errors of a shard.

use shardmill_core::{Diagnostic, ErrorKind, Format, LimitExceeded, escape};

use crate::error::ValueError;
use crate::index::IndexError;

/// The reason why a shard cannot be written or read.
///
/// Samples are numbered from 0 within their shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// More bytes than 32-bit offsets can address.
    #[error("the shard would have {bytes} bytes, but its offsets end at 4294967295")]
    TooLarge {
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
    #[error("the .meta file of the shard is not there")]
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
    Config {
        /// What is wrong.
        problem: Box<IndexError>,
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
    Newline {
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
        problem: ValueError,
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
    /// A limit is exceeded.
    #[error("{problem}")]
    Limit {
        /// The limit.
        problem: LimitExceeded,
    },
}

fn config_place(problem: &IndexError) -> String {
    problem
        .place()
        .map_or_else(String::new, |place| format!(" at {place}"))
}

impl From<LimitExceeded> for ShardError {
    fn from(problem: LimitExceeded) -> Self {
        Self::Limit { problem }
    }
}

impl Diagnostic for ShardError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLarge { .. }
            | Self::TooManySamples { .. }
            | Self::NoMeta
            | Self::NoSample { .. } => ErrorKind::InvalidInput,
            Self::Config { problem } => problem.kind(),
            Self::Value { problem, .. } => problem.kind(),
            Self::Limit { .. } => ErrorKind::Unsupported,
            Self::Part { .. }
            | Self::Length { .. }
            | Self::Truncated { .. }
            | Self::Count { .. }
            | Self::FirstOffset { .. }
            | Self::Offsets { .. }
            | Self::LastOffset { .. }
            | Self::ConfigMismatch { .. }
            | Self::HeaderLine { .. }
            | Self::Newline { .. }
            | Self::SampleHead { .. }
            | Self::SampleEnd { .. }
            | Self::SampleTrailing { .. }
            | Self::Line { .. }
            | Self::LineColumns { .. } => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "shard-too-large",
            Self::TooManySamples { .. } => "shard-too-many-samples",
            Self::Part { .. } => "shard-format",
            Self::NoMeta => "shard-meta",
            Self::Length { .. } => "shard-length",
            Self::Truncated { .. } => "shard-truncated",
            Self::Count { .. } => "shard-count",
            Self::FirstOffset { .. } | Self::Offsets { .. } | Self::LastOffset { .. } => {
                "shard-offsets"
            }
            Self::Config { .. } | Self::ConfigMismatch { .. } => "shard-config",
            Self::HeaderLine { .. } => "shard-header",
            Self::Newline { .. } => "sample-newline",
            Self::NoSample { .. } => "sample-range",
            Self::SampleHead { .. } | Self::SampleEnd { .. } => "sample-truncated",
            Self::SampleTrailing { .. } => "sample-trailing",
            Self::Value { problem, .. } => problem.id(),
            Self::Line { .. } => "sample-line",
            Self::LineColumns { .. } => "sample-columns",
            Self::Limit { problem } => problem.id(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::TooLarge { .. } | Self::TooManySamples { .. } => {
                Some("set a size limit for shards".to_owned())
            }
            Self::Config { problem } => problem.hint(),
            Self::Value { problem, .. } => problem.hint(),
            Self::Limit { problem } => Some(problem.hint()),
            _ => None,
        }
    }
}
