//! The error of this crate.

use std::io;

use shardmill_core::{Diagnostic, ErrorKind, escape, io_error_id};
use shardmill_storage::StorageError;

shardmill_core::problems! {
    /// What is wrong with a table. The page of errors of the manual describes each problem under its id.
    pub(crate) enum Problem {
        NoTable => (NotFound, "delta-no-table"),
        Log => (Corrupt, "delta-log"),
        Feature => (Unsupported, "delta-feature"),
        Path => (Corrupt, "delta-path"),
        Version => (InvalidInput, "delta-version", VERSIONS),
        Timestamp => (InvalidInput, "delta-timestamp", VERSIONS),
        FileMissing => (NotFound, "delta-file-missing", "read a later version, or bring the file back from a backup"),
        FileTwice => (InvalidInput, "source-duplicate"),
        RowCount => (Corrupt, "delta-row-count"),
        PartitionValue => (Corrupt, "delta-partition-value"),
        DeletionVector => (Corrupt, "delta-deletion-vector"),
        FieldIds => (Corrupt, "delta-field-ids", "the file was not written for this table: write its rows again with a writer that knows column mapping"),
        Column => (Corrupt, "delta-column"),
        Type => (Unsupported, "type-unsupported"),
        Footer => (Corrupt, "parquet-footer"),
        DuplicateColumn => (InvalidInput, "source-duplicate-column"),
    }
}

impl Problem {
    /// Builds the error with this problem about an object.
    pub(crate) fn at(self, object: impl AsRef<str>, message: impl Into<String>) -> DeltaError {
        let (kind, id, hint) = self.facts();
        DeltaError::Table {
            kind,
            id,
            object: escape(object.as_ref()).into_owned(),
            message: message.into(),
            hint,
        }
    }
}

const VERSIONS: &str = "`shardmill inspect` shows which versions there are";

/// An error of reading the log of a Delta table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum DeltaError {
    /// A table, or a file of it, that cannot be used.
    #[error("{message}")]
    Table {
        kind: ErrorKind,
        id: &'static str,
        /// The table or file, escaped.
        object: String,
        message: String,
        hint: Option<&'static str>,
    },
    /// The operating system reported an error.
    #[error("cannot {action}")]
    Io {
        /// What was attempted: `open`, `read`.
        action: &'static str,
        path: String,
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
        Self::Io {
            action,
            path: path.into(),
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
            Self::Table { kind, .. } => *kind,
            Self::Io { source, .. } => source.into(),
            Self::Storage(error) => error.kind(),
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Table { id, .. } => id,
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
