use shardmill_core::{Diagnostic, ErrorKind, escape};

use crate::delta::time::shown_time;

/// What is wrong with a Delta table, or with what was asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// A directory without a table log.
    #[error("has no `_delta_log` with a version in it")]
    NoTable {
        /// The table.
        table: String,
    },
    /// A version that is not there.
    #[error("there is no version {asked}: versions {earliest} to {latest} can be read")]
    Version {
        /// The table.
        table: String,
        /// The version that was asked for.
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
        /// The time that was asked for, in milliseconds since 1970.
        asked_ms: i64,
        /// The oldest version that can be read.
        earliest: u64,
        /// Its time.
        earliest_ms: Option<i64>,
    },
    /// A table that needs something of its readers that this one does not have.
    #[error("needs {feature}, which is not supported")]
    Feature {
        /// The table.
        table: String,
        /// What it needs, by the name that the protocol gives it.
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
    /// A path of the log that cannot be followed.
    #[error("the log names the file `{}`, {reason}", escape(path))]
    Path {
        /// The table.
        table: String,
        /// The path as in the log.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A data file or a deletion vector that the log names and that is gone.
    #[error(
        "version {version} of the table consists of this file among others, and it does not exist: vacuumed?"
    )]
    FileMissing {
        /// The file.
        file: String,
        /// The version of the table.
        version: u64,
    },
    /// A deletion vector that cannot be right.
    #[error("deletion vector: {reason}")]
    DeletionVector {
        /// The data file that it belongs to.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A data file with another number of rows than the log says.
    #[error("has {found} rows, and the table log says {claimed}")]
    RowCount {
        /// The file.
        file: String,
        /// Rows according to the log.
        claimed: u64,
        /// Rows according to the file.
        found: u64,
    },
    /// A data file without field ids in a table whose columns are found by them.
    #[error(
        "has no field ids, and the columns of the table are found by them (column mapping mode `id`)"
    )]
    FieldIds {
        /// The file.
        file: String,
    },
    /// A column of a data file that does not fit the table.
    #[error("column `{}`: {reason}", escape(column))]
    Column {
        /// The file.
        file: String,
        /// The column, with the path to it where it is nested.
        column: String,
        /// What is wrong.
        reason: String,
    },
    /// A partition value that is not of the type of its column.
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
