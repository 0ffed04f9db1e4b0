//! The error of this crate.

use std::io;

use shardmill_core::{Diagnostic, ErrorKind, escape, io_error_id};
use shardmill_storage::StorageError;

/// What is wrong with a table. The page of errors of the manual describes each problem under its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    NoTable,
    Log,
    Feature,
    Path,
    Version,
    Timestamp,
    FileMissing,
    FileTwice,
    RowCount,
    PartitionValue,
    DeletionVector,
    FieldIds,
    Column,
    Type,
    Footer,
    DuplicateColumn,
}

impl Problem {
    /// Builds the error with this problem about an object.
    pub(crate) fn at(self, object: impl AsRef<str>, message: impl Into<String>) -> DeltaError {
        let (_, _, hint) = self.facts();
        DeltaError::Table {
            problem: DeltaProblem(self),
            object: escape(object.as_ref()).into_owned(),
            message: message.into(),
            hint,
        }
    }

    /// Returns the kind, the stable id and the hint of the problem.
    const fn facts(self) -> (ErrorKind, &'static str, Option<&'static str>) {
        use ErrorKind::{Corrupt, InvalidInput, NotFound, Unsupported};
        match self {
            Self::NoTable => (NotFound, "delta-no-table", None),
            Self::Log => (Corrupt, "delta-log", None),
            Self::Feature => (Unsupported, "delta-feature", None),
            Self::Path => (Corrupt, "delta-path", None),
            Self::Version => (InvalidInput, "delta-version", Some(VERSIONS)),
            Self::Timestamp => (InvalidInput, "delta-timestamp", Some(VERSIONS)),
            Self::FileMissing => (
                NotFound,
                "delta-file-missing",
                Some("read a later version, or bring the file back from a backup"),
            ),
            Self::FileTwice => (InvalidInput, "source-duplicate", None),
            Self::RowCount => (Corrupt, "delta-row-count", None),
            Self::PartitionValue => (Corrupt, "delta-partition-value", None),
            Self::DeletionVector => (Corrupt, "delta-deletion-vector", None),
            Self::FieldIds => (
                Corrupt,
                "delta-field-ids",
                Some(
                    "the file was not written for this table: write its rows again with a writer that knows column mapping",
                ),
            ),
            Self::Column => (Corrupt, "delta-column", None),
            Self::Type => (Unsupported, "type-unsupported", None),
            Self::Footer => (Corrupt, "parquet-footer", None),
            Self::DuplicateColumn => (InvalidInput, "source-duplicate-column", None),
        }
    }
}

const VERSIONS: &str = "`shardmill inspect` shows which versions there are";

/// The category of a [`DeltaError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaProblem(Problem);

/// An error of reading the log of a Delta table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// A table, or a file of it, that cannot be used.
    #[error("{message}")]
    Table {
        /// The category.
        problem: DeltaProblem,
        /// The table or file, escaped.
        object: String,
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// The operating system reported an error.
    #[error("cannot {action}")]
    Io {
        /// What was attempted: `open`, `read`.
        action: &'static str,
        /// The path.
        path: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A store reported an error.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl DeltaError {
    /// Builds an error of the operating system about a path.
    pub(crate) fn io(action: &'static str, path: impl Into<String>, source: io::Error) -> Self {
        let path = path.into();
        Self::Io {
            action,
            path,
            source,
        }
    }

    /// Replaces the hint.
    pub(crate) fn with_hint(mut self, text: &'static str) -> Self {
        if let Self::Table { hint, .. } = &mut self {
            *hint = Some(text);
        }
        self
    }
}

impl Diagnostic for DeltaError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Table { problem, .. } => problem.0.facts().0,
            Self::Io { source, .. } => source.into(),
            Self::Storage(error) => error.kind(),
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Table { problem, .. } => problem.0.facts().1,
            Self::Io { source, .. } => io_error_id(source),
            Self::Storage(error) => error.id(),
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Table { object, .. } => Some(object.clone()),
            Self::Io { path, .. } => Some(escape(path).into_owned()),
            Self::Storage(error) => error.object(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Table { hint, .. } => hint.map(str::to_owned),
            Self::Storage(error) => error.hint(),
            Self::Io { .. } => None,
        }
    }
}
