//! The error of this crate.

use shardmill_core::{Diagnostic, ErrorKind, escape};
use shardmill_dataset::DatasetError;
use shardmill_delta::DeltaError;
use shardmill_parquet::{FieldsProblem, FooterProblem};
use shardmill_writer::WriteError;

shardmill_core::problems! {
    /// A problem with a file of a table.
    pub(crate) enum Problem {
        Truncated => (Corrupt, "parquet-truncated"),
        Encrypted => (Unsupported, "parquet-encrypted"),
        Footer => (Corrupt, "parquet-footer"),
        Limit => (Corrupt, "parquet-limit", "raise the limit"),
        Corrupt => (Corrupt, "parquet-corrupt"),
        Type => (Unsupported, "type-unsupported"),
        Drift => (
            Corrupt,
            "table-drift",
            "choose columns that all files have with the same type, or convert the table"
        ),
        Columns => (InvalidInput, "table-columns", "name columns of the table"),
        Delta => (InvalidInput, "table-delta", "open it with the format `delta`"),
        Partition => (InvalidInput, "source-partition"),
        List => (Corrupt, "table-list", "remove the file; it is written again"),
    }
}

impl Problem {
    /// Builds the error with this problem. `object` is what it is about.
    pub(crate) fn at(self, object: impl AsRef<str>, reason: impl Into<String>) -> TableError {
        let (kind, id, hint) = self.facts();
        TableError::Table {
            kind,
            id,
            object: escape(object.as_ref()).into_owned(),
            reason: reason.into(),
            hint,
        }
    }
}

/// An error of reading a table in place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum TableError {
    /// A file that cannot be used, or options that do not fit the table.
    #[error("{reason}")]
    Table {
        kind: ErrorKind,
        id: &'static str,
        /// The file, row group or column, escaped.
        object: String,
        reason: String,
        hint: Option<&'static str>,
    },
    /// A value that cannot be encoded as that of a sample.
    #[error(transparent)]
    Value(#[from] WriteError),
    /// A Delta table that cannot be read.
    #[error(transparent)]
    Delta(#[from] DeltaError),
}

impl TableError {
    /// Builds the error for a footer that cannot be used.
    pub(crate) fn footer(file: &str, problem: &FooterProblem) -> Self {
        let of = match problem {
            FooterProblem::Short(_) | FooterProblem::Magic => Problem::Truncated,
            FooterProblem::Encrypted => Problem::Encrypted,
            FooterProblem::Large(_) => Problem::Limit,
            FooterProblem::Damaged(_) => Problem::Footer,
        };
        of.at(file, problem.to_string())
    }

    /// Builds the error for columns that cannot be read.
    pub(crate) fn fields(file: &str, problem: &FieldsProblem) -> Self {
        let of = match problem {
            FieldsProblem::Unsupported { .. } => Problem::Type,
            FieldsProblem::Repeated(_) | FieldsProblem::Damaged(_) => Problem::Footer,
        };
        of.at(file, problem.to_string())
    }
}

impl Diagnostic for TableError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Table { kind, .. } => *kind,
            Self::Value(source) => source.kind(),
            Self::Delta(source) => source.kind(),
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Table { id, .. } => id,
            Self::Value(source) => source.id(),
            Self::Delta(source) => source.id(),
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Table { object, .. } => Some(object.clone()),
            Self::Value(source) => source.object(),
            Self::Delta(source) => source.object(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Table { hint, .. } => hint.map(str::to_owned),
            Self::Value(WriteError::Null { .. }) => Some(
                "choose other columns, or convert the table with shardmill convert --nulls mask"
                    .to_owned(),
            ),
            Self::Value(source) => source.hint(),
            Self::Delta(source) => source.hint(),
        }
    }
}

impl From<TableError> for DatasetError {
    fn from(error: TableError) -> Self {
        Self::Described(Box::new(error))
    }
}
