//! The errors of writing.

use arrow::datatypes::DataType;
use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, column_option, escape, sql_name};
use shardmill_mds::{MdsError, MdsProblem};
use shardmill_storage::StorageError;

use crate::entry::IndexProblem;

const REWRITE: &str = "write the part again";

shardmill_core::problems! {
    /// What is wrong with a job, a part or a destination, if a sentence says all that is known about it.
    #[non_exhaustive]
    pub enum WriteProblem {
        /// Member names that are too long, or not ASCII, leave no space for the part number and the sample number.
        NumberedNames => (InvalidInput, "tar-long-name", "name a column of keys with --key-column"),
        /// A dataset already exists.
        DatasetExists => (Conflict, "dest-exists", "choose another place, or append or overwrite"),
        /// The dataset has changed since the job began.
        DatasetChanged => (Conflict, "dest-changed", "run the job again on the current dataset"),
        /// The existing dataset has shards of another format.
        DatasetFormat => (Conflict, "dest-format", "append shards of the same format and columns, or overwrite"),
        /// The text is not a valid name of a job or an attempt.
        Token => (InvalidInput, "config-value"),
        /// The text of a manifest or a staging description is invalid.
        ManifestSyntax => (Corrupt, "manifest-syntax"),
        /// A part was given more than once.
        PartTwice => (InvalidInput, "part-twice", "commit one attempt of each part"),
        /// The number of a part is too large, or there are more parts than expected.
        PartNumber => (InvalidInput, "limit-parts"),
        /// A manifest belongs to another job.
        PartJob => (InvalidInput, "part-job"),
        /// The shards of two parts have different forms.
        PartForm => (InvalidInput, "part-form", "write all parts with the same columns, encodings and options; name an encoding where values differ in shape"),
        /// The shards do not have the names that the job declared.
        PartNames => (InvalidInput, "part-form"),
        /// A file of a part is missing.
        PartFileMissing => (Corrupt, "part-file-missing", REWRITE),
        /// A file of a part does not have the length that was written.
        PartFileLength => (Corrupt, "part-file-length", REWRITE),
        /// A file of a part does not have the hash that was written.
        PartFileHash => (Corrupt, "part-file-hash", REWRITE),
        /// Two files would have the same name.
        NameTwice => (Corrupt, "path-duplicate"),
        /// The store does not report the age of an object.
        NoAges => (Unsupported, "store-unsupported", "see to it that no job is at work, and remove what there is whatever its age"),
        /// A file that no index lists has the name of a new file. It may belong to another commit.
        FileInTheWay => (Conflict, "dest-not-empty", "the file system has no locks, so another commit may be running; if none is, gc removes the file"),
    }
}

impl WriteProblem {
    /// Builds the error with this problem.
    pub(crate) fn at(
        self,
        location: impl Into<Option<String>>,
        reason: impl Into<String>,
    ) -> WriteError {
        WriteError::Input {
            problem: self,
            location: location.into(),
            reason: reason.into(),
        }
    }
}

/// The error of writing shards, parts and indexes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum WriteError {
    /// A sentence says all that is known about the problem.
    #[error("{reason}")]
    Input {
        problem: WriteProblem,
        /// The file or location that it is about, if there is one.
        location: Option<String>,
        /// What is wrong, with the facts.
        reason: String,
    },
    /// The type of a column cannot be stored with the requested encoding.
    #[error("a column of type {data_type} cannot be stored as {encoding}")]
    TypeUnsupported {
        column: String,
        data_type: String,
        /// The requested encoding, or the format if no encoding was requested.
        encoding: String,
        hint: Option<String>,
    },
    /// A value does not fit the encoding of its column.
    #[error("{row}: {reason}")]
    Value {
        column: String,
        /// The row, as in `row 3 of x.parquet` or `sample a/001`.
        row: String,
        reason: Box<ValueReason>,
    },
    /// A value is null, and no option says what to do with nulls.
    #[error("{row} is null")]
    Null {
        column: String,
        row: String,
        hint: String,
    },
    /// A sample is larger than the format or the limit allows.
    #[error("{row}: the sample has {bytes} bytes, more than the {limit} that a sample may have")]
    SampleTooLarge { row: String, bytes: u64, limit: u64 },
    /// The format cannot store this set of columns.
    #[error("{reason}")]
    Columns { column: String, reason: String },
    /// A shard cannot be encoded in its format.
    #[error("shard {shard} could not be encoded")]
    Format {
        shard: u64,
        #[source]
        source: shardmill_mds::MdsError,
    },
    /// A shard cannot be compressed.
    #[error("shard {shard} could not be compressed")]
    Compression {
        shard: u64,
        #[source]
        source: shardmill_mds::CodecError,
    },
    /// A file of a table cannot be encoded.
    #[error("file {shard} could not be encoded")]
    Table {
        shard: u64,
        #[source]
        source: crate::table::TableError,
    },
    /// A tar file cannot have this key or field.
    #[error("{row}")]
    Sample {
        /// The column that holds the key, or the field.
        column: String,
        row: String,
        #[source]
        source: Box<shardmill_webdataset::WebdatasetError>,
    },
    /// Two samples have the same key.
    #[error("{row}: the key `{}` was there before", escape(key))]
    DuplicateKey {
        column: String,
        row: String,
        key: String,
    },
    /// A storage operation failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The existing index cannot be read.
    #[error("the index cannot be read")]
    Index {
        location: String,
        #[source]
        source: Box<IndexProblem>,
    },
    /// A part is missing.
    #[error("part {part} is missing: {given} of {parts} parts are there")]
    PartMissing {
        location: String,
        part: u64,
        given: u64,
        parts: u64,
    },
    /// The operating system could not start a thread.
    #[error("no thread could be started")]
    Thread {
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
    #[error("internal error: {0}")]
    Bug(&'static str),
}

/// Why a value cannot be stored.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum ValueReason {
    /// The number is outside the range of the encoding, or not exactly representable in it.
    #[error("{value} does not fit {encoding}")]
    Range { value: String, encoding: String },
    /// An array encoding cannot store a list without elements.
    #[error("the list is empty, and {encoding} cannot store an empty array")]
    EmptyArray { encoding: String },
    /// A list contains a null.
    #[error("the list has a null inside")]
    NullInside,
    /// Nested lists have different lengths.
    #[error("the nested lists have different lengths ({first} and {other})")]
    Ragged { first: usize, other: usize },
    /// The array does not have the type and the number of dimensions of its column.
    #[error("the array is {found}, the column holds arrays that are {expected}")]
    Array { found: String, expected: String },
    /// The shape of an array differs from the declared shape.
    #[error("the array has shape {found:?}, the encoding says {expected:?}")]
    Shape { found: Vec<u64>, expected: Vec<u64> },
    /// The number of bytes differs from the size of the encoding.
    #[error("the value has {found} bytes, {encoding} needs {expected}")]
    Length {
        found: usize,
        expected: u64,
        encoding: String,
    },
    /// The text contains the separator or the newline, or ends with the start of one. The format cannot quote it.
    #[error("the text contains the {what} {} or its beginning, which {format} cannot quote", quoted(.text))]
    Separator {
        /// `separator` or `newline`.
        what: &'static str,
        text: String,
        format: String,
    },
    /// Readers of the encoding do not accept these bytes.
    #[error(transparent)]
    Datum(#[from] MdsError),
    /// The value cannot be a field of a sample.
    #[error(transparent)]
    Field(#[from] shardmill_webdataset::WebdatasetError),
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

impl WriteError {
    /// Returns the cause, if it decides the kind and the id.
    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Format { source, .. } => Some(source),
            Self::Compression { source, .. } => Some(source),
            Self::Storage(source) => Some(source),
            Self::Index { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

impl Diagnostic for WriteError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Input { problem, .. } => problem.facts().0,
            Self::TypeUnsupported { .. } | Self::Table { .. } => ErrorKind::Unsupported,
            Self::Value { .. }
            | Self::Null { .. }
            | Self::SampleTooLarge { .. }
            | Self::Sample { .. }
            | Self::DuplicateKey { .. } => ErrorKind::Corrupt,
            Self::Columns { .. } | Self::Closed | Self::PartMissing { .. } => {
                ErrorKind::InvalidInput
            }
            Self::Thread { .. } => ErrorKind::Resource,
            Self::Interrupted { .. } => ErrorKind::Interrupted,
            _ => self.inner().map_or(ErrorKind::Bug, Diagnostic::kind),
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Input { problem, .. } => problem.facts().1,
            Self::TypeUnsupported { .. } => "type-unsupported",
            Self::Value { reason, .. } => match &**reason {
                ValueReason::Range { .. } => "value-range",
                ValueReason::EmptyArray { .. } => "array-empty",
                ValueReason::NullInside => "array-null",
                ValueReason::Ragged { .. } => "array-ragged",
                ValueReason::Array { .. } | ValueReason::Shape { .. } => "array-shape",
                ValueReason::Length { .. } => "value-length",
                ValueReason::Separator { .. } => "value-separator",
                ValueReason::Datum(error) => error.id(),
                ValueReason::Field(error) => error.id(),
            },
            Self::Null { .. } => "value-null",
            Self::Table { .. } => "parquet-encode",
            Self::SampleTooLarge { .. } => "limit-sample-bytes",
            Self::Columns { .. } => "config-columns",
            Self::Sample { source, .. } => source.id(),
            Self::DuplicateKey { .. } => "sample-key-twice",
            Self::PartMissing { .. } => "part-missing",
            Self::Thread { .. } => "thread",
            Self::Closed => "writer-closed",
            Self::Interrupted { .. } => "interrupted",
            _ => self.inner().map_or("internal", Diagnostic::id),
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
            Self::Input { location, .. } => location.clone(),
            Self::Index { location, .. } | Self::PartMissing { location, .. } => {
                Some(location.clone())
            }
            _ => self.inner().and_then(Diagnostic::object),
        }
    }

    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Input { problem, .. } => problem.facts().2?,
            Self::TypeUnsupported { hint, .. } => return hint.clone(),
            Self::Value { column, reason, .. } => return reason.hint(column),
            Self::Null { hint, .. } => hint,
            Self::SampleTooLarge { bytes, .. } => {
                let exceeded = LimitExceeded {
                    name: "sample-bytes",
                    value: *bytes,
                    limit: 0,
                };
                return Some(exceeded.hint());
            }
            Self::Sample { source, .. } => match source.hint() {
                Some(_) => {
                    "make the key shorter, or write --names any, which not every reader understands"
                }
                None => {
                    "compute another key with --select '*, EXPR AS KEY' --key-column KEY; --names any allows what webdataset itself reads"
                }
            },
            Self::DuplicateKey { .. } => {
                "choose a column whose values differ with --key-column, or omit it to number the samples"
            }
            Self::Interrupted { .. } => "run the same command again to continue",
            Self::PartMissing { parts, .. } => {
                return Some(format!(
                    "make the missing parts as the others were made, and commit all {parts} together"
                ));
            }
            _ => return self.inner().and_then(Diagnostic::hint),
        };
        Some(text.to_owned())
    }
}

impl ValueReason {
    fn hint(&self, column: &str) -> Option<String> {
        let as_json = || match column.strip_suffix(".npy") {
            // The field of a tar file, whose column has no extension.
            Some(name) => column_option(&format!("{name}.json"), &format!("={}", sql_name(name))),
            None => column_option(column, ":json"),
        };
        Some(match self {
            Self::EmptyArray { .. } | Self::Ragged { .. } => {
                format!("store the lists as JSON with {}", as_json())
            }
            Self::Array { .. } => {
                format!(
                    "keep the bytes of MDS with {}",
                    column_option(column, ":bytes")
                )
            }
            Self::NullInside => format!(
                "choose --nulls mask to store 0 for it, or keep it as JSON with {}",
                as_json()
            ),
            Self::Separator { .. } => {
                "choose MDS, JSON, or a separator that is in no value".to_owned()
            }
            Self::Datum(MdsError::Input {
                problem: MdsProblem::JsonSyntax,
                ..
            }) => {
                let column = escape(column);
                format!(
                    "what is no JSON is stored with the encoding str, in tar files under a name like {column}.txt"
                )
            }
            Self::Datum(error) => return error.hint(),
            _ => return None,
        })
    }
}

/// A value error with the row's position in the batch. The caller adds the description of the row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowError {
    pub(crate) row: usize,
    pub(crate) reason: ValueReason,
}

impl RowError {
    /// Returns a function that adds the row to a reason.
    pub(crate) fn at<E: Into<ValueReason>>(row: usize) -> impl FnOnce(E) -> Self {
        move |reason| Self {
            row,
            reason: reason.into(),
        }
    }

    /// Returns the error of a column whose type does not fit the encoding. The type check should have rejected it
    /// before.
    pub(crate) fn unfit(data_type: &DataType, encoding: impl ToString) -> Self {
        Self {
            row: 0,
            reason: ValueReason::Range {
                value: format!("a value of type {data_type}"),
                encoding: encoding.to_string(),
            },
        }
    }

    /// Adds the column and the description of the row.
    pub(crate) fn locate(self, column: &str, describe_row: impl Fn(usize) -> String) -> WriteError {
        WriteError::Value {
            column: column.to_owned(),
            row: describe_row(self.row),
            reason: Box::new(self.reason),
        }
    }
}

/// Checks the encoded length of a sample. `row` describes its location.
pub(crate) fn check_size(
    bytes: usize,
    limit: u64,
    row: impl Fn() -> String,
) -> Result<(), WriteError> {
    match u64::try_from(bytes).unwrap_or(u64::MAX) {
        bytes if bytes <= limit => Ok(()),
        bytes => Err(WriteError::SampleTooLarge {
            row: row(),
            bytes,
            limit,
        }),
    }
}
