use shardmill_core::{Diagnostic, ErrorKind, escape};

use crate::delta::time::shown_time;

/// An error in a Delta table, or in the request for one of its versions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// A directory without a table log.
    #[error("has no `_delta_log` with a version in it")]
    NoTable {
        /// The table.
        table: String,
    },
    /// A version that does not exist.
    #[error("there is no version {asked}: versions {earliest} to {latest} can be read")]
    Version {
        /// The table.
        table: String,
        /// The requested version.
        asked: u64,
        /// The oldest version that can be read.
        earliest: u64,
        /// The latest version.
        latest: u64,
    },
    /// A time before the first version.
    #[error(
        "no version that can be read is as old as {}: the oldest is version {earliest}{}",
        shown_time(*asked_ms),
        earliest_ms.map(|at| format!(" of {}", shown_time(at))).unwrap_or_default()
    )]
    Timestamp {
        /// The table.
        table: String,
        /// The requested time, in milliseconds since 1970.
        asked_ms: i64,
        /// The oldest version that can be read.
        earliest: u64,
        /// Its time.
        earliest_ms: Option<i64>,
    },
    /// A table that requires a reader feature that this crate does not support.
    #[error("needs {feature}, which is not supported")]
    Feature {
        /// The table.
        table: String,
        /// The feature, by its name in the protocol.
        feature: String,
        /// What to do instead.
        hint: Option<&'static str>,
    },
    /// A log that contradicts itself or the protocol.
    #[error("table log: {reason}")]
    Log {
        /// The table.
        table: String,
        /// What is wrong.
        reason: String,
    },
    /// A path in the log that is not valid.
    #[error("the log names the file `{}`, {reason}", escape(path))]
    Path {
        /// The table.
        table: String,
        /// The path as in the log.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A data file or deletion vector that the log lists and that no longer exists.
    #[error(
        "version {version} of the table consists of this file among others, and it does not exist: vacuumed?"
    )]
    FileMissing {
        /// The file.
        file: String,
        /// The version of the table.
        version: u64,
    },
    /// A deletion vector that is not valid.
    #[error("deletion vector: {reason}")]
    DeletionVector {
        /// The data file that it belongs to.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A data file whose number of rows differs from the log.
    #[error("has {found} rows, and the table log says {claimed}")]
    RowCount {
        /// The file.
        file: String,
        /// Rows according to the log.
        claimed: u64,
        /// Rows according to the file.
        found: u64,
    },
    /// A data file without field ids, in a table that identifies its columns by them.
    #[error(
        "has no field ids, and the columns of the table are found by them (column mapping mode `id`)"
    )]
    FieldIds {
        /// The file.
        file: String,
    },
    /// A column of a data file that does not match the table.
    #[error("column `{}`: {reason}", escape(column))]
    Column {
        /// The file.
        file: String,
        /// The column; for a nested one, the path to it.
        column: String,
        /// What is wrong.
        reason: String,
    },
    /// A partition value that does not parse as the type of its column.
    #[error(
        "the table log gives the partition column `{}` the value `{}`, which is no {data_type}",
        escape(column),
        escape(value)
    )]
    PartitionValue {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The value as in the log.
        value: String,
        /// The column's type.
        data_type: String,
    },
}

impl Diagnostic for DeltaError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoTable { .. } | Self::FileMissing { .. } => ErrorKind::NotFound,
            Self::Version { .. } | Self::Timestamp { .. } => ErrorKind::InvalidInput,
            Self::Feature { .. } => ErrorKind::Unsupported,
            Self::Log { .. }
            | Self::Path { .. }
            | Self::DeletionVector { .. }
            | Self::RowCount { .. }
            | Self::FieldIds { .. }
            | Self::Column { .. }
            | Self::PartitionValue { .. } => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::NoTable { .. } => "delta-no-table",
            Self::Version { .. } => "delta-version",
            Self::Timestamp { .. } => "delta-timestamp",
            Self::Feature { .. } => "delta-feature",
            Self::Log { .. } => "delta-log",
            Self::Path { .. } => "delta-path",
            Self::FileMissing { .. } => "delta-file-missing",
            Self::DeletionVector { .. } => "delta-deletion-vector",
            Self::RowCount { .. } => "delta-row-count",
            Self::FieldIds { .. } => "delta-field-ids",
            Self::Column { .. } => "delta-column",
            Self::PartitionValue { .. } => "delta-partition-value",
        }
    }

    fn object(&self) -> Option<String> {
        let object = match self {
            Self::NoTable { table }
            | Self::Version { table, .. }
            | Self::Timestamp { table, .. }
            | Self::Feature { table, .. }
            | Self::Log { table, .. }
            | Self::Path { table, .. } => table,
            Self::FileMissing { file, .. }
            | Self::DeletionVector { file, .. }
            | Self::RowCount { file, .. }
            | Self::FieldIds { file }
            | Self::Column { file, .. }
            | Self::PartitionValue { file, .. } => file,
        };
        Some(escape(object).into_owned())
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Version { .. } | Self::Timestamp { .. } => {
                "`shardmill inspect` shows which versions there are"
            }
            Self::Feature { hint, .. } => (*hint)?,
            Self::FileMissing { .. } => {
                "read a later version with --version, or bring the file back from a backup"
            }
            Self::FieldIds { .. } => {
                "the file was not written for this table: write its rows again with a writer that knows column mapping"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
