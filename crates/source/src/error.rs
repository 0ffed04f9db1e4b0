//! The errors of sources.

use std::collections::BTreeSet;
use std::io;

use shardmill_core::{
    Diagnostic, ErrorKind, FileClass, LimitExceeded, Limits, Unfinished, escape, io_error_id,
};

use shardmill_storage::StorageError;

use crate::hints::{CsvProblem, choices, column_of, quoted};
use crate::options::SourceKind;
use crate::time::shown_time;

/// What is wrong with an input, if a sentence says all that is known about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceProblem {
    /// A location does not exist, or a pattern matches nothing.
    NotFound,
    /// A file or folder that was removed while its folder was listed.
    Removed,
    /// An option, or a combination of options, that is not valid.
    Option,
    /// A location that this crate does not read.
    Unsupported,
    /// A directory without a single file of the requested kind.
    Empty,
    /// The same file is named twice.
    Duplicate,
    /// A compressed text file that does not decompress.
    Compression,
    /// The source lies inside the destination or the destination inside the source.
    Overlap,
    /// Two columns with the same name.
    DuplicateColumn,
    /// Directories called `key=value` that do not form columns.
    Partition,
    /// A file that is not Parquet.
    ParquetMagic,
    /// A Parquet file that is cut short.
    ParquetTruncated,
    /// A Parquet footer that contradicts itself or the file.
    ParquetFooter,
    /// An encrypted Parquet file.
    ParquetEncrypted,
    /// A compression that is not supported.
    ParquetCodec,
    /// A file that is not Arrow IPC, or whose schema or footer is broken.
    ArrowFormat,
    /// A record batch of an Arrow file that does not decode.
    ArrowCorrupt,
    /// A CSV header that does not name columns.
    CsvHeader,
    /// A symbolic link in a tree.
    TreeSymlink,
    /// A directory that contains itself through links.
    TreeLoop,
    /// An entry that is neither a file nor a directory.
    TreeSpecial,
    /// A name that cannot be part of a key.
    TreeName,
    /// Directories that are nested too deep.
    TreeDepth,
    /// A tree without files.
    TreeEmpty,
    /// Two files for the same field of one sample.
    TreeCollision,
    /// A text file that is not UTF-8.
    TreeText,
    /// A directory without a table log.
    DeltaNoTable,
    /// A log that contradicts itself or the protocol.
    DeltaLog,
    /// A table that requires a reader feature that this crate does not support.
    DeltaFeature,
    /// A path in the log that is not valid.
    DeltaPath,
    /// A deletion vector that is not valid.
    DeltaDeletionVector,
    /// A data file without field ids, in a table that identifies its columns by them.
    DeltaFieldIds,
    /// A column of a data file that does not match the table.
    DeltaColumn,
    /// An expression or query that does not parse.
    SqlSyntax,
    /// An expression or query that is not valid for this source.
    SqlPlan,
    /// An expression or query that failed on the data.
    SqlRun,
    /// An SQL feature that is not supported here.
    SqlRefused,
}

impl SourceProblem {
    /// Builds the error with this problem about an object.
    pub(crate) fn at(self, object: impl Into<String>, reason: impl Into<String>) -> SourceError {
        SourceError::Input {
            problem: self,
            object: object.into(),
            reason: reason.into(),
            hint: None,
        }
    }

    /// Returns the kind, the stable id and the hint of the problem.
    const fn facts(self) -> (ErrorKind, &'static str, Option<&'static str>) {
        use ErrorKind::{Corrupt, InvalidInput, NotFound, Unsupported};
        match self {
            Self::NotFound => (NotFound, "source-not-found", None),
            Self::Removed => (Corrupt, "source-changed", Some(CHANGED_HINT)),
            Self::Option => (InvalidInput, "source-option", None),
            Self::Unsupported => (Unsupported, "source-unsupported", None),
            Self::Empty => (InvalidInput, "source-empty", None),
            Self::Duplicate => (InvalidInput, "source-duplicate", None),
            Self::Compression => (Corrupt, "source-compression", None),
            Self::Overlap => (
                InvalidInput,
                "tree-overlap",
                Some("choose a destination outside the source"),
            ),
            Self::DuplicateColumn => (InvalidInput, "source-duplicate-column", None),
            Self::Partition => (InvalidInput, "source-partition", None),
            Self::ParquetMagic => (Corrupt, "parquet-magic", None),
            Self::ParquetTruncated => (
                Corrupt,
                "parquet-truncated",
                Some("the copy or the writer did not finish: fetch or write the file again"),
            ),
            Self::ParquetFooter => (Corrupt, "parquet-footer", None),
            Self::ParquetEncrypted => (Unsupported, "parquet-encrypted", None),
            Self::ParquetCodec => (Unsupported, "parquet-codec", None),
            Self::ArrowFormat => (Corrupt, "arrow-format", None),
            Self::ArrowCorrupt => (Corrupt, "arrow-corrupt", None),
            Self::CsvHeader => (Corrupt, "csv-header", None),
            Self::TreeSymlink => (
                InvalidInput,
                "tree-symlink",
                Some("pass --follow-links to read what it points to"),
            ),
            Self::TreeLoop => (InvalidInput, "tree-loop", None),
            Self::TreeSpecial => (InvalidInput, "tree-special", None),
            Self::TreeName => (InvalidInput, "tree-name", None),
            Self::TreeDepth => (InvalidInput, "tree-depth", None),
            Self::TreeEmpty => (InvalidInput, "tree-empty", None),
            Self::TreeCollision => (
                InvalidInput,
                "tree-collision",
                Some("pass --group file to make each file a sample"),
            ),
            Self::TreeText => (
                Corrupt,
                "tree-text",
                Some(
                    "leave the field out with --column, or write --to webdataset, which takes files as they are",
                ),
            ),
            Self::DeltaNoTable => (NotFound, "delta-no-table", None),
            Self::DeltaLog => (Corrupt, "delta-log", None),
            Self::DeltaFeature => (Unsupported, "delta-feature", None),
            Self::DeltaPath => (Corrupt, "delta-path", None),
            Self::DeltaDeletionVector => (Corrupt, "delta-deletion-vector", None),
            Self::DeltaFieldIds => (
                Corrupt,
                "delta-field-ids",
                Some(
                    "the file was not written for this table: write its rows again with a writer that knows column mapping",
                ),
            ),
            Self::DeltaColumn => (Corrupt, "delta-column", None),
            Self::SqlSyntax => (InvalidInput, "sql-syntax", None),
            Self::SqlPlan => (InvalidInput, "sql-plan", None),
            Self::SqlRun => (Corrupt, "sql-run", None),
            Self::SqlRefused => (InvalidInput, "sql-refused", None),
        }
    }
}

const CHANGED_HINT: &str = "run again when nothing writes to the source";

/// An error that occurs when a source is opened or read.
///
/// Paths are as opened. Rows and row groups count from 0, lines from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// An input that is not valid, not supported or not found.
    #[error("{reason}")]
    Input {
        /// What is wrong.
        problem: SourceProblem,
        /// The location, file, column, option or clause.
        object: String,
        /// What is wrong, with the facts.
        reason: String,
        /// What to do about it, if the problem alone does not tell.
        hint: Option<&'static str>,
    },
    /// The operating system reported an error.
    #[error("cannot {action}")]
    Io {
        /// What was attempted: `open`, `read`, `list`.
        action: &'static str,
        /// The path.
        path: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A source of another crate failed.
    #[error("{message}")]
    Foreign {
        /// The kind of the error.
        kind: ErrorKind,
        /// Its stable id.
        id: &'static str,
        /// The object of the error.
        object: Option<String>,
        /// The message, with its causes.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A store reported an error, or has a name that cannot be a file name.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The destination of an unfinished conversion: it does not contain all of its data.
    #[error("{found}")]
    Unfinished {
        /// The folder.
        location: String,
        /// What the conversion has left in the folder.
        found: Unfinished,
    },
    /// A broken invariant inside this crate.
    #[error("{what}")]
    Bug {
        /// What went wrong.
        what: String,
    },
    /// A limit of [`Limits`](shardmill_core::Limits) is exceeded.
    #[error("{limit}")]
    Limit {
        /// The file or column.
        object: String,
        /// Which limit, and by how much.
        limit: LimitExceeded,
    },
    /// Locations hold different kinds of data.
    #[error("holds {second_kind}, but {} holds {first_kind}", escape(first))]
    Mixed {
        /// The first location.
        first: String,
        /// What it holds.
        first_kind: SourceKind,
        /// The location that differs.
        second: String,
        /// What the second location holds.
        second_kind: SourceKind,
    },
    /// A folder whose files are of several classes.
    #[error(
        "holds {} such as {}, and {} such as {}",
        classes[0].name(), escape(&examples[0]), classes[1].name(), escape(&examples[1])
    )]
    MixedFiles {
        /// The folder.
        location: String,
        /// Two of the classes.
        classes: [FileClass; 2],
        /// A file of each.
        examples: [String; 2],
    },
    /// A file differs from its state when it was listed.
    #[error("had {listed_bytes} bytes when it was listed and has {found_bytes}{}", if *touched { ", and was modified since" } else { "" })]
    Changed {
        /// The path.
        path: String,
        /// Its size when it was listed.
        listed_bytes: u64,
        /// Its size now.
        found_bytes: u64,
        /// Whether its modification time differs.
        touched: bool,
    },
    /// A requested column does not exist.
    #[error("there is no column `{}`", escape(column))]
    ColumnNotFound {
        /// The option that names it.
        clause: &'static str,
        /// The name as given.
        column: String,
        /// Existing names that are spelled alike.
        near: Vec<String>,
    },
    /// A column has another type than in the first file.
    #[error(
        "column `{}` is {found}, but {expected} in {}",
        escape(column),
        escape(first_file)
    )]
    SchemaMismatch {
        /// The kind of source.
        kind: SourceKind,
        /// The file that differs.
        file: Box<str>,
        /// The file that it is compared with.
        first_file: Box<str>,
        /// The column.
        column: Box<str>,
        /// The type in the first file.
        expected: Box<str>,
        /// The type in this file.
        found: Box<str>,
        /// What to do about it.
        hint: Box<str>,
    },
    /// A value of a file that does not fit the column's type in the table.
    #[error("column `{}` is read as {data_type}: {reason}", escape(column))]
    Conversion {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The type in the table.
        data_type: String,
        /// What does not fit.
        reason: String,
    },
    /// A file lacks a column.
    #[error("lacks the column `{}` of {}", escape(column), escape(first_file))]
    MissingColumn {
        /// The kind of source.
        kind: SourceKind,
        /// The file.
        file: String,
        /// The file that has it.
        first_file: String,
        /// The column.
        column: String,
    },
    /// A file has a column that the first file does not have.
    #[error(
        "has a column `{}` that {} does not have",
        escape(column),
        escape(first_file)
    )]
    ExtraColumn {
        /// The kind of source.
        kind: SourceKind,
        /// The file.
        file: String,
        /// The first file.
        first_file: String,
        /// The column.
        column: String,
    },
    /// A type that cannot be read.
    #[error(
        "column `{}` has the type {data_type}, which is not supported",
        escape(column)
    )]
    TypeUnsupported {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The type.
        data_type: String,
    },
    /// A size in Parquet metadata that exceeds a limit.
    #[error("{what} is {} bytes, above the limit of {}", limit.value, limit.limit)]
    ParquetLimit {
        /// The file, with row group and column where known.
        object: String,
        /// What is too large, such as a page.
        what: &'static str,
        /// The limit in bytes, and the claimed size.
        limit: LimitExceeded,
    },
    /// Parquet data that does not decode.
    #[error("{reason}")]
    ParquetCorrupt {
        /// The file.
        file: String,
        /// The row group.
        row_group: usize,
        /// The column, where known.
        column: Option<String>,
        /// What is wrong.
        reason: String,
    },
    /// A CSV line that does not fit.
    #[error("{reason}")]
    CsvRow {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// The column, where known.
        column: Option<String>,
        /// What is wrong.
        reason: String,
        /// The category of the error.
        problem: CsvProblem,
    },
    /// A JSON line that does not fit.
    #[error("{reason}")]
    JsonRow {
        /// The file.
        file: String,
        /// The line.
        line: u64,
        /// What is wrong, with the column.
        reason: String,
    },
    /// A version that does not exist.
    #[error("there is no version {asked}: versions {earliest} to {latest} can be read")]
    DeltaVersion {
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
    DeltaTimestamp {
        /// The table.
        table: String,
        /// The requested time, in milliseconds since 1970.
        asked_ms: i64,
        /// The oldest version that can be read.
        earliest: u64,
        /// Its time.
        earliest_ms: Option<i64>,
    },
    /// A data file or deletion vector that the log lists and that no longer exists.
    #[error(
        "version {version} of the table consists of this file among others, and it does not exist: vacuumed?"
    )]
    DeltaFileMissing {
        /// The file.
        file: String,
        /// The version of the table.
        version: u64,
    },
    /// A data file whose number of rows differs from the log.
    #[error("has {found} rows, and the table log says {claimed}")]
    DeltaRowCount {
        /// The file.
        file: String,
        /// Rows according to the log.
        claimed: u64,
        /// Rows according to the file.
        found: u64,
    },
    /// A partition value that does not parse as the type of its column.
    #[error(
        "the table log gives the partition column `{}` the value `{}`, which is no {data_type}",
        escape(column),
        escape(value)
    )]
    DeltaPartitionValue {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The value as in the log.
        value: String,
        /// The column's type.
        data_type: String,
    },
    /// A query that exceeds its memory limit.
    #[error("the query needs more memory than its limit of {limit_bytes} bytes: {reason}")]
    SqlMemory {
        /// The limit in bytes.
        limit_bytes: u64,
        /// The operator that requested the memory.
        reason: String,
    },
}

impl SourceError {
    /// Builds an error of the operating system about a path.
    pub(crate) fn io(action: &'static str, path: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.into(),
            source,
        }
    }

    /// Builds an error about a broken invariant of this crate.
    pub(crate) fn bug(what: impl Into<String>) -> Self {
        Self::Bug { what: what.into() }
    }

    /// Builds the error about a unit that does not exist.
    pub(crate) fn no_unit(unit: usize) -> Self {
        Self::bug(format!("there is no unit {unit}"))
    }

    /// Builds the error about a location that does not exist.
    pub(crate) fn not_found(location: impl Into<String>) -> Self {
        SourceProblem::NotFound.at(location, "no such file or directory")
    }

    /// Builds the error about two columns with the same name.
    pub(crate) fn duplicate_column(object: impl Into<String>, name: &str) -> Self {
        let reason = format!("has two columns called `{}`", escape(name));
        SourceProblem::DuplicateColumn.at(object, reason)
    }

    /// Adds what to do about the error, which replaces the hint of its problem.
    pub(crate) fn with_hint(mut self, text: impl Into<Option<&'static str>>) -> Self {
        if let Self::Input { hint, .. } = &mut self {
            *hint = text.into();
        }
        self
    }

    /// Checks that no two columns have the same name.
    pub(crate) fn check_names<'a>(
        names: impl IntoIterator<Item = &'a str>,
        object: impl FnOnce() -> String,
    ) -> Result<(), Self> {
        let mut seen = BTreeSet::new();
        match names.into_iter().find(|name| !seen.insert(*name)) {
            None => Ok(()),
            Some(name) => Err(Self::duplicate_column(object(), name)),
        }
    }

    /// Checks a limit of [`Limits`](shardmill_core::Limits).
    pub(crate) fn check_limit(
        name: &'static str,
        value: u64,
        limit: u64,
        object: impl FnOnce() -> String,
    ) -> Result<(), Self> {
        Limits::check(name, value, limit).map_err(|limit| Self::Limit {
            object: object(),
            limit,
        })
    }
}

const fn by_kind(kind: SourceKind, ids: [&'static str; 4]) -> &'static str {
    let [parquet, arrow, csv, jsonl] = ids;
    match kind {
        SourceKind::Arrow => arrow,
        SourceKind::Csv | SourceKind::Tsv => csv,
        SourceKind::JsonLines => jsonl,
        _ => parquet,
    }
}

/// Returns a hint for a column that some files lack.
fn missing_hint(kind: SourceKind, column: &str) -> String {
    match kind {
        SourceKind::Parquet | SourceKind::Arrow => format!(
            "pass --schema union to read it as null where it is missing, or leave it out, with --select '* EXCEPT ({})'",
            quoted(column)
        ),
        _ => "convert these files apart".to_owned(),
    }
}

impl SourceError {
    /// Returns the kind and the stable id of the error, and the file, location, option or clause that it is about.
    fn facts(&self) -> (ErrorKind, &'static str, &str) {
        use ErrorKind::{Bug, Conflict, Corrupt, InvalidInput, NotFound, Resource, Unsupported};
        match self {
            Self::Input {
                problem, object, ..
            } => (problem.facts().0, problem.facts().1, object),
            Self::Io { source, path, .. } => (source.into(), io_error_id(source), path),
            Self::Foreign {
                kind, id, object, ..
            } => (*kind, id, object.as_deref().unwrap_or_default()),
            Self::Storage(error) => (error.kind(), error.id(), ""),
            Self::Bug { .. } => (Bug, "bug", ""),
            Self::Unfinished { location, found } => (Conflict, found.id(), location),
            Self::Limit { object, limit } => (Corrupt, limit.id(), object),
            Self::Mixed { second, .. } => (InvalidInput, "source-mixed", second),
            Self::MixedFiles { location, .. } => (InvalidInput, "source-mixed", location),
            Self::Changed { path, .. } => (Corrupt, "source-changed", path),
            Self::ColumnNotFound { clause, .. } => (InvalidInput, "source-column", clause),
            Self::SchemaMismatch { kind, file, .. } => (
                Corrupt,
                by_kind(
                    *kind,
                    [
                        "parquet-schema-mismatch",
                        "arrow-schema-mismatch",
                        "csv-schema-mismatch",
                        "jsonl-schema-mismatch",
                    ],
                ),
                file,
            ),
            Self::MissingColumn { kind, file, .. } => (
                Corrupt,
                by_kind(
                    *kind,
                    [
                        "parquet-missing-column",
                        "arrow-missing-column",
                        "csv-missing-column",
                        "jsonl-missing-column",
                    ],
                ),
                file,
            ),
            Self::ExtraColumn { kind, file, .. } => (
                Corrupt,
                by_kind(
                    *kind,
                    [
                        "parquet-extra-column",
                        "arrow-extra-column",
                        "csv-extra-column",
                        "jsonl-extra-column",
                    ],
                ),
                file,
            ),
            Self::Conversion { file, .. } => (Corrupt, "source-conversion", file),
            Self::TypeUnsupported { file, .. } => (Unsupported, "type-unsupported", file),
            Self::ParquetLimit { object, .. } => (Corrupt, "parquet-limit", object),
            Self::ParquetCorrupt { file, .. } => (Corrupt, "parquet-corrupt", file),
            Self::CsvRow { file, .. } => (Corrupt, "csv-row", file),
            Self::JsonRow { file, .. } => (Corrupt, "jsonl-row", file),
            Self::DeltaVersion { table, .. } => (InvalidInput, "delta-version", table),
            Self::DeltaTimestamp { table, .. } => (InvalidInput, "delta-timestamp", table),
            Self::DeltaFileMissing { file, .. } => (NotFound, "delta-file-missing", file),
            Self::DeltaRowCount { file, .. } => (Corrupt, "delta-row-count", file),
            Self::DeltaPartitionValue { file, .. } => (Corrupt, "delta-partition-value", file),
            Self::SqlMemory { .. } => (Resource, "sql-memory", "--sql"),
        }
    }
}

impl Diagnostic for SourceError {
    fn kind(&self) -> ErrorKind {
        self.facts().0
    }

    fn id(&self) -> &'static str {
        self.facts().1
    }

    fn object(&self) -> Option<String> {
        let object = escape(self.facts().2).into_owned();
        let (place, column) = match self {
            Self::Foreign { object, .. } => return object.clone(),
            Self::Storage(error) => return error.object(),
            Self::Bug { .. } => return None,
            Self::ParquetCorrupt {
                row_group, column, ..
            } => (format!("{object} row group {row_group}"), column.as_ref()),
            Self::CsvRow { line, column, .. } => (format!("{object} line {line}"), column.as_ref()),
            Self::JsonRow { line, .. } => (format!("{object} line {line}"), None),
            _ => (object, None),
        };
        Some(match column {
            Some(column) => format!("{place} column `{}`", escape(column)),
            None => place,
        })
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Foreign { hint, .. } => return hint.clone(),
            Self::Storage(error) => return error.hint(),
            Self::Limit { limit, .. } | Self::ParquetLimit { limit, .. } => {
                return Some(limit.hint());
            }
            Self::Unfinished { location, found } => return Some(found.hint(location)),
            Self::ColumnNotFound { near, .. } if !near.is_empty() => {
                let names: Vec<String> = near
                    .iter()
                    .map(|name| format!("`{}`", escape(name)))
                    .collect();
                return Some(format!("did you mean {}?", names.join(", ")));
            }
            Self::Input { problem, hint, .. } => hint.or(problem.facts().2)?,
            Self::DeltaVersion { .. } | Self::DeltaTimestamp { .. } => {
                "`shardmill inspect` shows which versions there are"
            }
            Self::DeltaFileMissing { .. } => {
                "read a later version with --delta-version, or bring the file back from a backup"
            }
            Self::MixedFiles { classes, .. } => return Some(choices(*classes)),
            Self::Mixed { .. } => "convert them one by one, or say what they hold with --from",
            Self::Changed { .. } => CHANGED_HINT,
            Self::SchemaMismatch { hint, .. } => hint,
            Self::MissingColumn { kind, column, .. } | Self::ExtraColumn { kind, column, .. } => {
                return Some(missing_hint(*kind, column));
            }
            Self::Conversion { column, .. } => {
                let name = quoted(column);
                return Some(format!(
                    "read all files as another type, as in --select '* EXCEPT ({name}), CAST({name} AS VARCHAR) AS {name}'"
                ));
            }
            Self::JsonRow { reason, .. } if reason.contains(": a whole number that ") => {
                let (column, is_nested) = column_of(reason);
                let encoding = if is_nested { "json" } else { "str" };
                return Some(format!(
                    "read the column as it is written with --column {column}:{encoding}"
                ));
            }
            Self::JsonRow { reason, .. } if reason.contains(" here, and ") => {
                let (column, _) = column_of(reason);
                return Some(format!(
                    "values without a type in common can be kept as they are: --column {column}:json"
                ));
            }
            Self::CsvRow {
                problem, column, ..
            } => return Some(problem.hint(column.as_deref())),
            Self::SqlMemory { .. } => "raise --memory-limit",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
