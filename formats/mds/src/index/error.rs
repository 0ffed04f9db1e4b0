//! Errors of an index.

use std::fmt;

use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, NameError, ParseFormatError, escape};

use crate::config::TextEncodingError;
use crate::error::EncodingError;
use shardmill_codec::CodecError;

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

/// The reason why an index, or the config of a shard, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// No bytes, or only whitespace.
    #[error("the index is empty")]
    Empty,
    /// Anything but JSON text in UTF-8.
    #[error("the index is not JSON: {reason}")]
    NotJson {
        /// What the file looks like, or the position of the syntax error.
        reason: String,
    },
    /// JSON that is truncated.
    #[error("the index breaks off after line {line}, byte {column}")]
    Truncated {
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
    /// A version other than 2.
    #[error("the version is {found}, of which only 2 is known")]
    Version {
        /// The position.
        place: Place,
        /// The version.
        found: u64,
    },
    /// A value of the wrong type, or one that does not match another field.
    #[error("{problem}")]
    Field {
        /// The position.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// A key that this format does not have. The original reader refuses it, too.
    #[error("the field is unknown")]
    UnknownField {
        /// The position.
        place: Place,
    },
    /// A missing key.
    #[error("the field is missing")]
    MissingField {
        /// The position.
        place: Place,
    },
    /// A repeated key, whose value depends on the reader.
    #[error("the field is there twice")]
    DuplicateField {
        /// The position.
        place: Place,
    },
    /// A file that belongs to two shards, or twice to one shard.
    #[error(
        "the file `{}` is also `{first_field}` of shard {first}",
        escape(basename)
    )]
    DuplicateShard {
        /// The position of the second occurrence.
        place: Place,
        /// The first shard with that file.
        first: u64,
        /// The field of that shard.
        first_field: &'static str,
        /// The name of the file.
        basename: String,
    },
    /// Columns that contradict each other.
    #[error("{problem}")]
    Columns {
        /// The position.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// A shard format that does not exist.
    #[error("{problem}")]
    Format {
        /// The position.
        place: Place,
        /// The error.
        problem: ParseFormatError,
    },
    /// An encoding that does not exist.
    #[error("{problem}")]
    Encoding {
        /// The position.
        place: Place,
        /// The error.
        problem: EncodingError,
    },
    /// An encoding that the JSON and XSV formats do not have.
    #[error("{problem}")]
    TextEncoding {
        /// The position.
        place: Place,
        /// The error.
        problem: TextEncodingError,
    },
    /// An unknown hash algorithm, or a text that is not a hash.
    #[error("{problem}")]
    Hash {
        /// The position.
        place: Place,
        /// What is wrong.
        problem: CodecError,
    },
    /// A compression that does not exist.
    #[error("{problem}")]
    Compression {
        /// The position.
        place: Place,
        /// The error.
        problem: CodecError,
    },
    /// A name that may not be used as a path.
    #[error("{problem}: `{}`", escape(name))]
    Path {
        /// The position.
        place: Place,
        /// The name, shortened if it is long.
        name: String,
        /// What is wrong with it.
        problem: NameError,
    },
    /// A limit is exceeded.
    #[error("{problem}")]
    Limit {
        /// The position.
        place: Place,
        /// The limit.
        problem: LimitExceeded,
    },
}

impl IndexError {
    /// Returns the position in the index, if the error has one.
    #[must_use]
    pub const fn place(&self) -> Option<&Place> {
        match self {
            Self::Empty
            | Self::NotJson { .. }
            | Self::Truncated { .. }
            | Self::Trailing { .. }
            | Self::Read { .. } => None,
            Self::Version { place, .. }
            | Self::Field { place, .. }
            | Self::UnknownField { place }
            | Self::MissingField { place }
            | Self::DuplicateField { place }
            | Self::DuplicateShard { place, .. }
            | Self::Columns { place, .. }
            | Self::Format { place, .. }
            | Self::Encoding { place, .. }
            | Self::TextEncoding { place, .. }
            | Self::Hash { place, .. }
            | Self::Compression { place, .. }
            | Self::Path { place, .. }
            | Self::Limit { place, .. } => Some(place),
        }
    }
}

impl Diagnostic for IndexError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { kind, .. } => *kind,
            Self::Version { .. } | Self::Format { .. } | Self::Limit { .. } => {
                ErrorKind::Unsupported
            }
            Self::Encoding { problem, .. } => problem.kind(),
            Self::TextEncoding { problem, .. } => problem.kind(),
            Self::Hash { problem, .. } => problem.kind(),
            Self::Compression { problem, .. } => problem.kind(),
            _ => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Empty => "index-empty",
            Self::NotJson { .. } => "index-not-json",
            Self::Truncated { .. } => "index-truncated",
            Self::Trailing { .. } => "index-trailing",
            Self::Read { .. } => "io",
            Self::Version { .. } => "index-version",
            Self::Field { .. } => "index-field",
            Self::UnknownField { .. } => "index-unknown-field",
            Self::MissingField { .. } => "index-missing-field",
            Self::DuplicateField { .. } => "index-duplicate-field",
            Self::DuplicateShard { .. } => "index-duplicate-shard",
            Self::Columns { .. } => "index-columns",
            Self::Format { .. } => "index-format",
            Self::Encoding { problem, .. } => problem.id(),
            Self::TextEncoding { problem, .. } => problem.id(),
            Self::Hash { problem, .. } => problem.id(),
            Self::Compression { problem, .. } => problem.id(),
            Self::Path { problem, .. } => problem.id(),
            Self::Limit { problem, .. } => problem.id(),
        }
    }

    fn object(&self) -> Option<String> {
        self.place().map(ToString::to_string)
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Limit { problem, .. } => Some(problem.hint()),
            Self::Encoding { problem, .. } => problem.hint(),
            Self::TextEncoding { problem, .. } => problem.hint(),
            Self::Hash { problem, .. } => problem.hint(),
            Self::Compression { problem, .. } => problem.hint(),
            Self::Empty | Self::Truncated { .. } => {
                Some("fetch the index again, or rebuild it from the shards".to_owned())
            }
            _ => None,
        }
    }
}
