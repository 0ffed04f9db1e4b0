use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, escape};
use shardmill_mds::ValueError;
use shardmill_storage::StorageError;

/// Why batches could not become shards.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A column's type cannot be stored with the encoding that was asked for.
    #[error("a column of type {data_type} cannot be stored as {encoding}")]
    TypeUnsupported {
        /// The column.
        column: String,
        /// Its Arrow type.
        data_type: String,
        /// The encoding, or the format when no encoding was asked for.
        encoding: String,
        /// What would work.
        hint: Option<String>,
    },
    /// A value does not fit the encoding of its column.
    #[error("row {row}: {reason}")]
    Value {
        /// The column.
        column: String,
        /// Where the row stands: a file and a row number, or a row of the result.
        row: String,
        /// What is wrong with it.
        reason: ValueReason,
    },
    /// A value is null and nothing says what to do with nulls.
    #[error("row {row} is null")]
    Null {
        /// The column.
        column: String,
        /// Where the row stands.
        row: String,
        /// The options that say what to do with it.
        hint: String,
    },
    /// A sample does not fit the format.
    #[error(
        "row {row}: the sample has {bytes} bytes, more than the {limit} that a sample may have"
    )]
    SampleTooLarge {
        /// Where the row stands.
        row: String,
        /// Its encoded length.
        bytes: u64,
        /// What would fit.
        limit: u64,
    },
    /// The column set is not one that the format can store.
    #[error("{reason}")]
    Columns {
        /// The column.
        column: String,
        /// What is wrong.
        reason: String,
    },
    /// The format refused.
    #[error("shard {shard} could not be encoded")]
    Format {
        /// The number of the shard.
        shard: u64,
        /// Why.
        #[source]
        source: shardmill_mds::ShardError,
    },
    /// The compressor refused.
    #[error("shard {shard} could not be compressed")]
    Compression {
        /// The number of the shard.
        shard: u64,
        /// Why.
        #[source]
        source: shardmill_mds::CompressionError,
    },
    /// The compressor of tar files refused.
    #[error("shard {shard} could not be compressed")]
    TarCompression {
        /// The number of the shard.
        shard: u64,
        /// Why.
        #[source]
        source: shardmill_webdataset::CompressionError,
    },
    /// A key, or a field, that a tar file cannot have.
    #[error("row {row}")]
    Sample {
        /// The column that holds the key, or the field.
        column: String,
        /// Where the row stands.
        row: String,
        /// Why.
        #[source]
        source: shardmill_webdataset::WriteError,
    },
    /// A key that another sample has.
    #[error("row {row}: the key `{}` was there before", escape(key))]
    DuplicateKey {
        /// The column that holds the key.
        column: String,
        /// Where the row stands.
        row: String,
        /// The key.
        key: String,
    },
    /// Names of members that cannot take the number of a sample with that of its part in front.
    #[error(
        "names beyond ASCII, and of more than 100 bytes, have no room for the numbers of samples in parts"
    )]
    NumberedNames,
    /// The disk refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The system gave no thread.
    #[error("no thread could be started")]
    Thread {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Samples after the end, or after a failure.
    #[error("nothing can be written any more: the writer was finished or failed before")]
    Closed,
    /// Stopped before the end.
    #[error("stopped after {samples} samples")]
    Interrupted {
        /// Samples that had been packed into shards.
        samples: u64,
    },
    /// A broken invariant.
    #[error("internal error: {what}")]
    Bug {
        /// Which.
        what: &'static str,
    },
}

/// What is wrong with a value.
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
    /// A list without elements, which an array encoding cannot store.
    #[error("the list is empty, and {encoding} cannot store an empty array")]
    EmptyArray {
        /// The encoding.
        encoding: String,
    },
    /// A null inside a list.
    #[error("the list has a null inside")]
    NullInside,
    /// Lists of lists whose lengths differ.
    #[error("the nested lists have different lengths ({first} and {other})")]
    Ragged {
        /// Length of the first.
        first: usize,
        /// Length of one that differs.
        other: usize,
    },
    /// The shape is not the declared one.
    #[error("the array has shape {found:?}, the encoding says {expected:?}")]
    Shape {
        /// The value's shape.
        found: Vec<u64>,
        /// The declared shape.
        expected: Vec<u64>,
    },
    /// The number of bytes is not that of the encoding.
    #[error("the value has {found} bytes, {encoding} needs {expected}")]
    Length {
        /// Bytes of the value.
        found: usize,
        /// Bytes of the encoding.
        expected: u64,
        /// The encoding.
        encoding: String,
    },
    /// The text contains the separator or the newline, which the format cannot quote.
    #[error("the text contains the {what} {} or its beginning, which {format} cannot quote", quoted(.text))]
    Separator {
        /// `separator` or `newline`.
        what: &'static str,
        /// The separator.
        text: String,
        /// The format.
        format: String,
    },
    /// The bytes are not what the encoding's readers accept.
    #[error(transparent)]
    Datum(#[from] ValueError),
    /// The value cannot become a field of a sample.
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
            Self::TarCompression { source, .. } => source.kind(),
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
            Self::TarCompression { source, .. } => source.id(),
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
            Self::TarCompression { source, .. } => source.object(),
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
            Self::TarCompression { source, .. } => source.hint(),
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

/// A value that does not fit, by its row within the batch; the engine adds where the batch came from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowError {
    pub(crate) row: usize,
    pub(crate) reason: ValueReason,
}
