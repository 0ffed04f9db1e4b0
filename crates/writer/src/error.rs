//! The errors of writing.

use std::fmt::Display;

use arrow::datatypes::DataType;
use shardmill_core::{Diagnostic as _, Error, ErrorKind, Limits, column_option, escape, sql_name};
use shardmill_mds::{CodecError, MdsError, MdsProblem};
use shardmill_webdataset::WebdatasetError;

use crate::table::TableError;

const REWRITE: &str = "write the part again";

shardmill_core::problems! {
    /// What is wrong with a job, a part or a destination, if a sentence says all that is known about it.
    #[non_exhaustive]
    pub enum WriteProblem -> Error {
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
        /// The type of a column cannot be stored with the requested encoding.
        Type => (Unsupported, "type-unsupported"),
        /// A value is null, and no option says what to do with nulls.
        Null => (Corrupt, "value-null"),
        /// A sample is larger than the format or the limit allows.
        SampleTooLarge => (Corrupt, "limit-sample-bytes"),
        /// The format cannot store this set of columns.
        Columns => (InvalidInput, "config-columns"),
        /// A file of a table cannot be encoded.
        Table => (Unsupported, "parquet-encode"),
        /// Two samples have the same key.
        DuplicateKey => (Corrupt, "sample-key-twice", "choose a column whose values differ with --key-column, or omit it to number the samples"),
        /// A part is missing.
        PartMissing => (InvalidInput, "part-missing"),
        /// The operating system could not start a thread.
        Thread => (Resource, "thread"),
        /// A sample was added after the writer was finished or had failed.
        Closed => (InvalidInput, "writer-closed"),
        /// The run was interrupted.
        Interrupted => (Interrupted, "interrupted", "run the same command again to continue"),
        /// The index of a table is invalid.
        Index => (Corrupt, "index-syntax"),
        /// An invariant of the program does not hold.
        Bug => (Bug, "internal"),
    }
}

impl WriteProblem {
    /// Builds the error for the index of a table that is invalid.
    #[must_use]
    pub fn table_index(reason: &str) -> Error {
        Self::Index.error(format!("the index of a table is invalid: {reason}"))
    }
}

/// Builds the error for a sample that is added after the writer was finished or had failed.
pub(crate) fn closed() -> Error {
    let reason = "nothing can be written any more: the writer was finished or failed before";
    WriteProblem::Closed.error(reason)
}

/// Builds the error for a run that was interrupted after this number of samples was packed into shards.
#[must_use]
pub fn interrupted(samples: u64) -> Error {
    WriteProblem::Interrupted.error(format!("stopped after {samples} samples"))
}

/// Builds the error for an invariant of the program that does not hold.
#[must_use]
pub fn internal(what: &str) -> Error {
    WriteProblem::Bug.error(format!("internal error: {what}"))
}

/// Builds the error for a column whose type cannot be stored with an encoding, or in a format.
#[must_use]
pub fn type_unsupported(column: &str, data_type: &DataType, encoding: impl Display) -> Error {
    let reason = format!("a column of type {data_type} cannot be stored as {encoding}");
    WriteProblem::Type.at(of_column(column), reason)
}

/// Builds the error for a value that is null.
pub(crate) fn null(column: &str, row: &str) -> Error {
    WriteProblem::Null.at(of_column(column), format!("{row} is null"))
}

/// Builds the error for a shard that cannot be encoded in its format.
pub(crate) fn not_encoded(shard: u64, source: MdsError) -> Error {
    Error::from(source).within(format!("shard {shard} could not be encoded"))
}

/// Builds the error for a shard that cannot be compressed.
pub(crate) fn not_compressed(shard: u64, source: CodecError) -> Error {
    Error::from(source).within(format!("shard {shard} could not be compressed"))
}

/// Builds the error for a file of a table that cannot be encoded.
#[must_use]
pub fn table_not_encoded(file: u64, source: TableError) -> Error {
    let reason = format!("file {file} could not be encoded");
    WriteProblem::Table.error(reason).because(source)
}

/// Builds the error for a tar file that cannot have this key or field.
pub(crate) fn sample(column: &str, row: String, source: WebdatasetError) -> Error {
    let hint = match source.hint() {
        Some(_) => "make the key shorter, or write --names any, which not every reader understands",
        None => {
            "compute another key with --select '*, EXPR AS KEY' --key-column KEY; --names any allows what webdataset itself reads"
        }
    };
    Error::new(ErrorKind::Corrupt, source.id(), row)
        .about(of_column(column))
        .with_hint(hint)
        .because(source)
}

/// Builds the error for an existing index that cannot be read.
#[must_use]
pub fn index_error(location: &str, source: Error) -> Error {
    source.within("the index cannot be read").about(location)
}

/// Names a column as the object of an error.
pub(crate) fn of_column(column: &str) -> String {
    format!("column {column}")
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
    Field(#[from] WebdatasetError),
}

fn quoted(text: &str) -> String {
    format!("{text:?}")
}

impl ValueReason {
    fn facts(&self) -> (ErrorKind, &'static str) {
        match self {
            Self::Range { .. } => (ErrorKind::Corrupt, "value-range"),
            Self::EmptyArray { .. } => (ErrorKind::Corrupt, "array-empty"),
            Self::NullInside => (ErrorKind::Corrupt, "array-null"),
            Self::Ragged { .. } => (ErrorKind::Corrupt, "array-ragged"),
            Self::Array { .. } | Self::Shape { .. } => (ErrorKind::Corrupt, "array-shape"),
            Self::Length { .. } => (ErrorKind::Corrupt, "value-length"),
            Self::Separator { .. } => (ErrorKind::Corrupt, "value-separator"),
            Self::Datum(error) => (ErrorKind::Corrupt, error.id()),
            Self::Field(error) => (ErrorKind::Corrupt, error.id()),
        }
    }

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
    pub(crate) fn locate(self, column: &str, describe_row: impl Fn(usize) -> String) -> Error {
        let (kind, id) = self.reason.facts();
        let message = format!("{}: {}", describe_row(self.row), self.reason);
        Error::new(kind, id, message)
            .about(of_column(column))
            .with_any_hint(self.reason.hint(column))
    }
}

/// Checks the encoded length of a sample. `row` describes its location.
pub(crate) fn check_size(bytes: usize, limit: u64, row: impl Fn() -> String) -> Result<(), Error> {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    Limits::check("sample-bytes", bytes, limit).map_err(|exceeded| {
        let reason = format!(
            "{}: the sample has {bytes} bytes, more than the {limit} that a sample may have",
            row()
        );
        WriteProblem::SampleTooLarge
            .error(reason)
            .with_hint(exceeded.hint())
    })
}
