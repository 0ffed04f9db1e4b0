use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, escape};
use shardmill_mds::ValueError;
use shardmill_storage::StorageError;

/// The error of a write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The type of a column cannot be stored with the requested encoding.
    #[error("a column of type {data_type} cannot be stored as {encoding}")]
    TypeUnsupported {
        /// The column.
        column: String,
        /// Its Arrow type.
        data_type: String,
        /// The requested encoding, or the format if no encoding was requested.
        encoding: String,
        /// An alternative that works.
        hint: Option<String>,
    },
    /// A value does not fit the encoding of its column.
    #[error("row {row}: {reason}")]
    Value {
        /// The column.
        column: String,
        /// The location of the row: a file and a row number, or a row of the result.
        row: String,
        /// What is wrong with it.
        reason: ValueReason,
    },
    /// A value is null, and no option says what to do with nulls.
    #[error("row {row} is null")]
    Null {
        /// The column.
        column: String,
        /// The location of the row.
        row: String,
        /// The options that handle nulls.
        hint: String,
    },
    /// A sample is larger than the format or the limit allows.
    #[error(
        "row {row}: the sample has {bytes} bytes, more than the {limit} that a sample may have"
    )]
    SampleTooLarge {
        /// The location of the row.
        row: String,
        /// Its encoded length.
        bytes: u64,
        /// The maximum length.
        limit: u64,
    },
    /// The format cannot store this set of columns.
    #[error("{reason}")]
    Columns {
        /// The column.
        column: String,
        /// What is wrong.
        reason: String,
    },
    /// A shard cannot be encoded in its format.
    #[error("shard {shard} could not be encoded")]
    Format {
        /// The number of the shard.
        shard: u64,
        /// The cause.
        #[source]
        source: shardmill_mds::ShardError,
    },
    /// A shard cannot be compressed.
    #[error("shard {shard} could not be compressed")]
    Compression {
        /// The number of the shard.
        shard: u64,
        /// The cause.
        #[source]
        source: shardmill_mds::CodecError,
    },
    /// A tar file cannot have this key or field.
    #[error("row {row}")]
    Sample {
        /// The column that holds the key, or the field.
        column: String,
        /// The location of the row.
        row: String,
        /// The cause.
        #[source]
        source: shardmill_webdataset::WriteError,
    },
    /// Two samples have the same key.
    #[error("row {row}: the key `{}` was there before", escape(key))]
    DuplicateKey {
        /// The column that holds the key.
        column: String,
        /// The location of the row.
        row: String,
        /// The key.
        key: String,
    },
    /// Member names that are too long, or not ASCII, leave no space for the part number and the sample number.
    #[error(
        "names beyond ASCII, and of more than 100 bytes, have no room for the numbers of samples in parts"
    )]
    NumberedNames,
    /// A storage operation failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The operating system could not start a thread.
    #[error("no thread could be started")]
    Thread {
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A sample was added after the writer was finished or had failed.
    #[error("nothing can be written any more: the writer was finished or failed before")]
    Closed,
    /// The run was interrupted.
    #[error("stopped after {samples} samples")]
    Interrupted {
        /// The number of samples that were packed into shards.
        samples: u64,
    },
    /// An invariant of the program does not hold.
    #[error("internal error: {what}")]
    Bug {
        /// The invariant.
        what: &'static str,
    },
}

/// Why a value cannot be stored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueReason {
    /// The number is outside the range of the encoding, or not exactly representable in it.
    #[error("{value} does not fit {encoding}")]
    Range {
        /// The number as text.
        value: String,
        /// The encoding.
        encoding: String,
    },
    /// An array encoding cannot store a list without elements.
    #[error("the list is empty, and {encoding} cannot store an empty array")]
    EmptyArray {
        /// The encoding.
        encoding: String,
    },
    /// A list contains a null.
    #[error("the list has a null inside")]
    NullInside,
    /// Nested lists have different lengths.
    #[error("the nested lists have different lengths ({first} and {other})")]
    Ragged {
        /// The length of the first list.
        first: usize,
        /// The length of a list that differs.
        other: usize,
    },
    /// The shape of an array differs from the declared shape.
    #[error("the array has shape {found:?}, the encoding says {expected:?}")]
    Shape {
        /// The shape of the value.
        found: Vec<u64>,
        /// The declared shape.
        expected: Vec<u64>,
    },
    /// The number of bytes differs from the size of the encoding.
    #[error("the value has {found} bytes, {encoding} needs {expected}")]
    Length {
        /// The length of the value in bytes.
        found: usize,
        /// The length that the encoding needs, in bytes.
        expected: u64,
        /// The encoding.
        encoding: String,
    },
    /// The text contains the separator or the newline, or ends with the start of one. The format cannot quote it.
    #[error("the text contains the {what} {} or its beginning, which {format} cannot quote", quoted(.text))]
    Separator {
        /// `separator` or `newline`.
        what: &'static str,
        /// The separator or the newline itself.
        text: String,
        /// The format.
        format: String,
    },
    /// Readers of the encoding do not accept these bytes.
    #[error(transparent)]
    Datum(#[from] ValueError),
    /// The value cannot be a field of a sample.
    #[error(transparent)]
    Field(#[from] shardmill_webdataset::FieldError),
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

impl Diagnostic for WriteError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::TypeUnsupported { .. } => ErrorKind::Unsupported,
            Self::Value { .. } | Self::Null { .. } | Self::SampleTooLarge { .. } => {
                ErrorKind::Corrupt
            }
            Self::Columns { .. } | Self::Closed => ErrorKind::InvalidInput,
            Self::Thread { .. } => ErrorKind::Resource,
            Self::Format { source, .. } => source.kind(),
            Self::Compression { source, .. } => source.kind(),
            Self::Sample { .. } | Self::DuplicateKey { .. } => ErrorKind::Corrupt,
            Self::NumberedNames => ErrorKind::InvalidInput,
            Self::Storage(source) => source.kind(),
            Self::Interrupted { .. } => ErrorKind::Interrupted,
            Self::Bug { .. } => ErrorKind::Bug,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::TypeUnsupported { .. } => "type-unsupported",
            Self::Value { reason, .. } => match reason {
                ValueReason::Range { .. } => "value-range",
                ValueReason::EmptyArray { .. } => "array-empty",
                ValueReason::NullInside => "array-null",
                ValueReason::Ragged { .. } => "array-ragged",
                ValueReason::Shape { .. } => "array-shape",
                ValueReason::Length { .. } => "value-length",
                ValueReason::Separator { .. } => "value-separator",
                ValueReason::Datum(error) => error.id(),
                ValueReason::Field(error) => error.id(),
            },
            Self::Null { .. } => "value-null",
            Self::SampleTooLarge { .. } => "limit-sample-bytes",
            Self::Columns { .. } => "config-columns",
            Self::Format { source, .. } => source.id(),
            Self::Compression { source, .. } => source.id(),
            Self::Sample { source, .. } => source.id(),
            Self::DuplicateKey { .. } => "sample-key-twice",
            Self::NumberedNames => "tar-long-name",
            Self::Storage(source) => source.id(),
            Self::Thread { .. } => "thread",
            Self::Closed => "writer-closed",
            Self::Interrupted { .. } => "interrupted",
            Self::Bug { .. } => "internal",
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::TypeUnsupported { column, .. }
            | Self::Value { column, .. }
            | Self::Null { column, .. }
            | Self::Sample { column, .. }
            | Self::DuplicateKey { column, .. }
            | Self::Columns { column, .. } => Some(format!("column {}", escape(column))),
            Self::Storage(source) => source.object(),
            Self::Format { source, .. } => source.object(),
            Self::Compression { source, .. } => source.object(),
            Self::SampleTooLarge { .. }
            | Self::NumberedNames
            | Self::Thread { .. }
            | Self::Closed
            | Self::Interrupted { .. }
            | Self::Bug { .. } => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::TypeUnsupported { hint, .. } => hint.clone(),
            Self::Value {
                reason: ValueReason::EmptyArray { .. } | ValueReason::Ragged { .. },
                column,
                ..
            } => Some(format!(
                "store the lists as JSON with --column {}:json",
                escape(column)
            )),
            Self::Value {
                reason: ValueReason::NullInside,
                column,
                ..
            } => Some(format!(
                "JSON keeps nulls: name the columns to write, with --column {}:json for this one",
                escape(column)
            )),
            Self::Value {
                reason: ValueReason::Separator { .. },
                ..
            } => Some(
                "choose --to mds or jsonl, or --to xsv with a --separator that is in no value"
                    .to_owned(),
            ),
            Self::Value {
                reason: ValueReason::Datum(ValueError::JsonSyntax { .. }),
                column,
                ..
            } => Some(format!(
                "what is no JSON is stored with the encoding str, in tar files under a name like {}.txt",
                escape(column)
            )),
            Self::Value {
                reason: ValueReason::Datum(error),
                ..
            } => error.hint(),
            Self::Null { hint, .. } => Some(hint.clone()),
            Self::SampleTooLarge { bytes, .. } => Some(
                LimitExceeded {
                    name: "sample-bytes",
                    value: *bytes,
                    limit: 0,
                }
                .hint(),
            ),
            Self::Storage(source) => source.hint(),
            Self::Format { source, .. } => source.hint(),
            Self::Compression { source, .. } => source.hint(),
            Self::Sample { source, .. } => Some(match source.hint() {
                Some(_) => "make the key shorter, or write --names any, which not every reader understands".to_owned(),
                None => "compute another key: --column KEY=EXPR --key KEY; --names any allows what webdataset itself reads".to_owned(),
            }),
            Self::DuplicateKey { .. } => Some(
                "choose a column whose values differ with --key, or leave --key out to number the samples".to_owned(),
            ),
            Self::NumberedNames => Some("name a column of keys with --key".to_owned()),
            Self::Interrupted { .. } => Some("run the same command again to continue".to_owned()),
            Self::Columns { .. }
            | Self::Value { .. }
            | Self::Thread { .. }
            | Self::Closed
            | Self::Bug { .. } => None,
        }
    }
}

/// A value error with the row's position in the batch. The caller adds the location of the batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowError {
    pub(crate) row: usize,
    pub(crate) reason: ValueReason,
}
