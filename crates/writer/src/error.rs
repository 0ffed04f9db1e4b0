//! The errors of writing.

use arrow::datatypes::DataType;
use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, escape};
use shardmill_mds::MdsError;
use shardmill_storage::StorageError;

use crate::entry::IndexProblem;

/// The error of writing shards, parts and indexes.
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
        reason: Box<ValueReason>,
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
        source: shardmill_mds::MdsError,
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
        source: Box<shardmill_webdataset::WebdatasetError>,
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
    /// A dataset already exists.
    #[error("there is a dataset already")]
    DatasetExists {
        /// The index.
        place: String,
    },
    /// The dataset has changed since the job began.
    #[error("the dataset was changed since the job began")]
    DatasetChanged {
        /// The index.
        place: String,
    },
    /// The existing index cannot be read.
    #[error("the index cannot be read")]
    Index {
        /// The index.
        place: String,
        /// The cause.
        #[source]
        source: Box<IndexProblem>,
    },
    /// The existing dataset has shards of another format.
    #[error("the dataset has shards of {found}, the job writes {expected}")]
    DatasetFormat {
        /// The index.
        place: String,
        /// The format of the existing dataset.
        found: String,
        /// The format of the job.
        expected: String,
    },
    /// The text is not a valid name of a job or an attempt.
    #[error(
        "`{}` is not the name of {what}: it needs 1 to 40 letters and digits",
        escape(text)
    )]
    Token {
        /// `job` or `attempt`.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// The text of a manifest or a staging description is invalid.
    #[error("{what} cannot be read: {reason}")]
    ManifestSyntax {
        /// The kind of text that was expected.
        what: &'static str,
        /// The cause.
        reason: String,
    },
    /// A part is missing.
    #[error("part {part} is missing: {given} of {parts} parts are there")]
    PartMissing {
        /// The root of the dataset.
        place: String,
        /// The first missing part.
        part: u64,
        /// The number of given parts.
        given: u64,
        /// The number of expected parts.
        parts: u64,
    },
    /// A part was given more than once.
    #[error("part {part} is there twice, from the attempts {first} and {second}")]
    PartTwice {
        /// The part.
        part: u64,
        /// One of the attempts.
        first: String,
        /// The other attempt.
        second: String,
    },
    /// The number of a part is too large.
    #[error("part {part} is above the limit of {most}")]
    PartNumber {
        /// The part.
        part: u64,
        /// The largest allowed number.
        most: u64,
    },
    /// A manifest belongs to another job.
    #[error("part {part} is of job {found}, not of {expected}")]
    PartJob {
        /// The part.
        part: u64,
        /// The job of the manifest.
        found: String,
        /// The job of the commit.
        expected: String,
    },
    /// The shards of two parts have different forms.
    #[error("the shards of part {part} have another form than those of part {first}: {difference}")]
    PartForm {
        /// One part.
        part: u64,
        /// Another.
        first: u64,
        /// The settings that differ.
        difference: String,
    },
    /// There are more parts than expected.
    #[error("part {part} is one too many: there have to be {parts}")]
    PartSurplus {
        /// The part.
        part: u64,
        /// The number of expected parts.
        parts: u64,
    },
    /// The shards do not have the names that the job declared.
    #[error("the job was begun for shards of {expected}, not of {found}")]
    PartNames {
        /// The names that the job declared.
        expected: String,
        /// The names of the shards.
        found: String,
    },
    /// A file of a part is missing.
    #[error("a file of part {part} is missing")]
    PartFileMissing {
        /// The file.
        place: String,
        /// The part.
        part: u64,
    },
    /// A file of a part does not have the length that was written.
    #[error("a file of part {part} has {found} bytes, {expected} were written")]
    PartFileLength {
        /// The file.
        place: String,
        /// The part.
        part: u64,
        /// The length of the file.
        found: u64,
        /// The length that was written.
        expected: u64,
    },
    /// A file of a part does not have the hash that was written.
    #[error("a file of part {part} has another hash ({found}) than what was written ({expected})")]
    PartFileHash {
        /// The file.
        place: String,
        /// The part.
        part: u64,
        /// The hash of the file.
        found: String,
        /// The hash that was written.
        expected: String,
    },
    /// Two files would have the same name.
    #[error("two files would be called `{}`", escape(name))]
    NameTwice {
        /// The name.
        name: String,
    },
    /// The store does not report the age of an object.
    #[error("how old it is is not known: the store does not list times")]
    NoAges {
        /// The object.
        place: String,
    },
    /// A file that no index lists has the name of a new file. It may belong to another commit.
    #[error("a file that no index names is in the way")]
    FileInTheWay {
        /// The file.
        place: String,
    },
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
            Self::TypeUnsupported { .. } | Self::NoAges { .. } => ErrorKind::Unsupported,
            Self::Value { .. }
            | Self::Null { .. }
            | Self::SampleTooLarge { .. }
            | Self::Sample { .. }
            | Self::DuplicateKey { .. }
            | Self::ManifestSyntax { .. }
            | Self::PartFileMissing { .. }
            | Self::PartFileLength { .. }
            | Self::PartFileHash { .. }
            | Self::NameTwice { .. } => ErrorKind::Corrupt,
            Self::Columns { .. }
            | Self::Closed
            | Self::NumberedNames
            | Self::Token { .. }
            | Self::PartMissing { .. }
            | Self::PartTwice { .. }
            | Self::PartNumber { .. }
            | Self::PartSurplus { .. }
            | Self::PartJob { .. }
            | Self::PartForm { .. }
            | Self::PartNames { .. } => ErrorKind::InvalidInput,
            Self::DatasetExists { .. }
            | Self::DatasetChanged { .. }
            | Self::DatasetFormat { .. }
            | Self::FileInTheWay { .. } => ErrorKind::Conflict,
            Self::Thread { .. } => ErrorKind::Resource,
            Self::Interrupted { .. } => ErrorKind::Interrupted,
            _ => self.inner().map_or(ErrorKind::Bug, Diagnostic::kind),
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::TypeUnsupported { .. } => "type-unsupported",
            Self::Value { reason, .. } => match &**reason {
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
            Self::Sample { source, .. } => source.id(),
            Self::DuplicateKey { .. } => "sample-key-twice",
            Self::NumberedNames => "tar-long-name",
            Self::DatasetExists { .. } => "dest-exists",
            Self::DatasetChanged { .. } => "dest-changed",
            Self::DatasetFormat { .. } => "dest-format",
            Self::Token { .. } => "config-value",
            Self::ManifestSyntax { .. } => "manifest-syntax",
            Self::PartMissing { .. } => "part-missing",
            Self::PartTwice { .. } => "part-twice",
            Self::PartNumber { .. } | Self::PartSurplus { .. } => "limit-parts",
            Self::PartJob { .. } => "part-job",
            Self::PartForm { .. } | Self::PartNames { .. } => "part-form",
            Self::PartFileMissing { .. } => "part-file-missing",
            Self::PartFileLength { .. } => "part-file-length",
            Self::PartFileHash { .. } => "part-file-hash",
            Self::NameTwice { .. } => "path-duplicate",
            Self::FileInTheWay { .. } => "dest-not-empty",
            Self::NoAges { .. } => "store-unsupported",
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
            Self::DatasetExists { place }
            | Self::DatasetChanged { place }
            | Self::DatasetFormat { place, .. }
            | Self::Index { place, .. }
            | Self::PartMissing { place, .. }
            | Self::PartFileMissing { place, .. }
            | Self::PartFileLength { place, .. }
            | Self::PartFileHash { place, .. }
            | Self::NoAges { place }
            | Self::FileInTheWay { place } => Some(place.clone()),
            _ => self.inner().and_then(Diagnostic::object),
        }
    }

    fn hint(&self) -> Option<String> {
        let text = match self {
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
                    "compute another key: --column KEY=EXPR --key KEY; --names any allows what webdataset itself reads"
                }
            },
            Self::DuplicateKey { .. } => {
                "choose a column whose values differ with --key, or leave --key out to number the samples"
            }
            Self::NumberedNames => "name a column of keys with --key",
            Self::Interrupted { .. } => "run the same command again to continue",
            Self::DatasetExists { .. } => "choose another place, or append or overwrite",
            Self::DatasetChanged { .. } => "run the job again on what is there now",
            Self::DatasetFormat { .. } => {
                "append shards of the same format and columns, or overwrite"
            }
            Self::PartForm { .. } => {
                "write all parts with the same columns, encodings and options; name an encoding where values differ in shape"
            }
            Self::PartMissing { parts, .. } => {
                return Some(format!(
                    "make the missing parts as the others were made, and commit all {parts} together"
                ));
            }
            Self::PartTwice { .. } => "commit one attempt of each part",
            Self::PartFileMissing { .. }
            | Self::PartFileLength { .. }
            | Self::PartFileHash { .. } => "write the part again",
            Self::NoAges { .. } => {
                "see to it that no job is at work, and remove what there is whatever its age"
            }
            Self::FileInTheWay { .. } => {
                "the file system has no locks, so another commit may be running; if none is, gc removes the file"
            }
            _ => return self.inner().and_then(Diagnostic::hint),
        };
        Some(text.to_owned())
    }
}

impl ValueReason {
    fn hint(&self, column: &str) -> Option<String> {
        let column = escape(column);
        Some(match self {
            Self::EmptyArray { .. } | Self::Ragged { .. } => {
                format!("store the lists as JSON with --column {column}:json")
            }
            Self::NullInside => format!(
                "JSON keeps nulls: name the columns to write, with --column {column}:json for this one"
            ),
            Self::Separator { .. } => {
                "choose --to mds or jsonl, or --to xsv with a --separator that is in no value"
                    .to_owned()
            }
            Self::Datum(MdsError::JsonSyntax { .. }) => format!(
                "what is no JSON is stored with the encoding str, in tar files under a name like {column}.txt"
            ),
            Self::Datum(error) => return error.hint(),
            _ => return None,
        })
    }
}

/// A value error with the row's position in the batch. The caller adds the location of the batch.
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

    /// Adds the column and the location of the row.
    pub(crate) fn locate(self, column: &str, place: impl Fn(usize) -> String) -> WriteError {
        WriteError::Value {
            column: column.to_owned(),
            row: place(self.row),
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
