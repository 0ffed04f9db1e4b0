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

/// An error that occurs when a source is opened or read.
///
/// Paths are as opened. Rows and row groups count from 0, lines from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A location does not exist, or a pattern matches nothing.
    #[error("no such file or directory")]
    NotFound {
        /// The location as given.
        location: String,
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
    /// A file or folder that was removed while its folder was listed.
    #[error("it was removed while the source was listed")]
    Removed {
        /// The file.
        path: String,
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
    /// An option, or a combination of options, that is not valid.
    #[error("{reason}")]
    Option {
        /// The option as spelled on the command line.
        option: &'static str,
        /// What is wrong with it.
        reason: String,
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
    /// A location that this crate does not read.
    #[error("{what}")]
    Unsupported {
        /// The location.
        location: String,
        /// What it is and that it is not supported.
        what: &'static str,
        /// What to do instead.
        hint: &'static str,
    },
    /// A directory without a single file of the requested kind.
    #[error("holds no {wanted}")]
    Empty {
        /// The location as given.
        location: String,
        /// The kind of file that was expected.
        wanted: &'static str,
    },
    /// The same file is named twice.
    #[error("is part of the source twice")]
    Duplicate {
        /// The path.
        path: String,
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
    /// The source lies inside the destination or the destination inside the source.
    #[error("the {inner} lies inside the {outer} {}", escape(container))]
    Overlap {
        /// The location that lies inside.
        location: String,
        /// The directory that contains it.
        container: String,
        /// `source` or `destination`.
        inner: &'static str,
        /// `destination` or `source`.
        outer: &'static str,
    },
    /// A compressed text file that does not decompress.
    #[error("does not decompress: {reason}")]
    Compression {
        /// The file.
        file: String,
        /// The decompressor's message.
        reason: String,
    },

    /// Two columns with the same name.
    #[error("has two columns called `{}`", escape(column))]
    DuplicateColumn {
        /// The file or clause.
        object: String,
        /// The name.
        column: String,
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
    /// Directories called `key=value` that do not form columns.
    #[error("{reason}")]
    Partition {
        /// The file or column.
        object: String,
        /// What is wrong.
        reason: String,
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

    /// A file that is not Parquet.
    #[error("does not begin with PAR1: not a Parquet file")]
    ParquetMagic {
        /// The file.
        file: String,
    },
    /// A Parquet file that is cut short.
    #[error("is cut short: {reason}")]
    ParquetTruncated {
        /// The file.
        file: String,
        /// What is missing.
        reason: String,
    },
    /// A Parquet footer that contradicts itself or the file.
    #[error("footer: {reason}")]
    ParquetFooter {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// An encrypted Parquet file.
    #[error("is encrypted, which is not supported")]
    ParquetEncrypted {
        /// The file.
        file: String,
    },
    /// A compression that is not supported.
    #[error(
        "column `{}` is compressed with {codec}, which is not supported",
        escape(column)
    )]
    ParquetCodec {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The codec's name.
        codec: String,
    },
    /// A size in Parquet metadata that exceeds a limit.
    #[error("{what} is {value} bytes, above the limit of {limit}")]
    ParquetLimit {
        /// The file, with row group and column where known.
        object: String,
        /// What is too large, such as a page.
        what: &'static str,
        /// The name of the limit.
        name: &'static str,
        /// Its claimed size in bytes.
        value: u64,
        /// The limit in bytes.
        limit: u64,
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

    /// A file that is not Arrow IPC, or whose schema or footer is broken.
    #[error("{reason}")]
    ArrowFormat {
        /// The file.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A record batch of an Arrow file that does not decode.
    #[error("record batch {batch}: {reason}")]
    ArrowCorrupt {
        /// The file.
        file: String,
        /// The batch.
        batch: usize,
        /// What is wrong.
        reason: String,
    },
    /// A CSV header that does not name columns.
    #[error("header: {reason}")]
    CsvHeader {
        /// The file.
        file: String,
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

    /// A symbolic link in a tree.
    #[error("is a symbolic link")]
    TreeSymlink {
        /// The path.
        path: String,
    },
    /// A directory that contains itself through links.
    #[error("is a link to a directory that contains it")]
    TreeLoop {
        /// The path.
        path: String,
    },
    /// An entry that is neither a file nor a directory.
    #[error("is a {what}, not a file")]
    TreeSpecial {
        /// The path.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// A name that cannot be part of a key.
    #[error("the name {reason}")]
    TreeName {
        /// The path, escaped.
        path: String,
        /// What is wrong with its name.
        reason: &'static str,
    },
    /// Directories that are nested too deep.
    #[error("lies more than {limit} directories deep")]
    TreeDepth {
        /// The path.
        path: String,
        /// The deepest nesting allowed.
        limit: usize,
    },
    /// A tree without files.
    #[error("holds no file")]
    TreeEmpty {
        /// The location as given.
        location: String,
    },
    /// Two files for the same field of one sample.
    #[error("{reason}")]
    TreeCollision {
        /// The file or field.
        object: String,
        /// What collides.
        reason: String,
    },
    /// A text file that is not UTF-8.
    #[error("is not UTF-8 at byte {at}")]
    TreeText {
        /// The file.
        path: String,
        /// The first byte that is not UTF-8.
        at: usize,
    },

    /// A directory without a table log.
    #[error("has no `_delta_log` with a version in it")]
    DeltaNoTable {
        /// The table.
        table: String,
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
    /// A table that requires a reader feature that this crate does not support.
    #[error("needs {feature}, which is not supported")]
    DeltaFeature {
        /// The table.
        table: String,
        /// The feature, by its name in the protocol.
        feature: String,
        /// What to do instead.
        hint: Option<&'static str>,
    },
    /// A log that contradicts itself or the protocol.
    #[error("table log: {reason}")]
    DeltaLog {
        /// The table.
        table: String,
        /// What is wrong.
        reason: String,
    },
    /// A path in the log that is not valid.
    #[error("the log names the file `{}`, {reason}", escape(path))]
    DeltaPath {
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
    DeltaFileMissing {
        /// The file.
        file: String,
        /// The version of the table.
        version: u64,
    },
    /// A deletion vector that is not valid.
    #[error("deletion vector: {reason}")]
    DeltaDeletionVector {
        /// The data file that it belongs to.
        file: String,
        /// What is wrong.
        reason: String,
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
    /// A data file without field ids, in a table that identifies its columns by them.
    #[error(
        "has no field ids, and the columns of the table are found by them (column mapping mode `id`)"
    )]
    DeltaFieldIds {
        /// The file.
        file: String,
    },
    /// A column of a data file that does not match the table.
    #[error("column `{}`: {reason}", escape(column))]
    DeltaColumn {
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

    /// An expression or query that does not parse.
    #[error("{reason}")]
    SqlSyntax {
        /// The option it was given to.
        clause: &'static str,
        /// The parser's message.
        reason: String,
    },
    /// An expression or query that is not valid for this source.
    #[error("{reason}")]
    SqlPlan {
        /// The option it was given to.
        clause: &'static str,
        /// The planner's message.
        reason: String,
    },
    /// An expression or query that failed on the data.
    #[error("{reason}")]
    SqlRun {
        /// The option it was given to.
        clause: &'static str,
        /// The engine's message.
        reason: String,
    },
    /// An SQL feature that is not supported here.
    #[error("{what}")]
    SqlRefused {
        /// The option it was given to.
        clause: &'static str,
        /// What is refused.
        what: String,
        /// What to do instead.
        hint: &'static str,
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

    /// Checks that no two columns have the same name.
    pub(crate) fn check_names<'a>(
        names: impl IntoIterator<Item = &'a str>,
        object: impl FnOnce() -> String,
    ) -> Result<(), Self> {
        let mut seen = BTreeSet::new();
        match names.into_iter().find(|name| !seen.insert(*name)) {
            None => Ok(()),
            Some(name) => Err(Self::DuplicateColumn {
                object: object(),
                column: name.to_owned(),
            }),
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

impl Diagnostic for SourceError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } | Self::DeltaNoTable { .. } | Self::DeltaFileMissing { .. } => {
                ErrorKind::NotFound
            }
            Self::Io { source, .. } => ErrorKind::from(source),
            Self::Bug { .. } => ErrorKind::Bug,
            Self::Unfinished { .. } => ErrorKind::Conflict,
            Self::Foreign { kind, .. } => *kind,
            Self::Storage(error) => error.kind(),
            Self::Unsupported { .. }
            | Self::ParquetEncrypted { .. }
            | Self::ParquetCodec { .. }
            | Self::TypeUnsupported { .. }
            | Self::DeltaFeature { .. } => ErrorKind::Unsupported,
            Self::SqlMemory { .. } => ErrorKind::Resource,
            Self::Option { .. }
            | Self::Mixed { .. }
            | Self::MixedFiles { .. }
            | Self::Empty { .. }
            | Self::Duplicate { .. }
            | Self::Overlap { .. }
            | Self::DuplicateColumn { .. }
            | Self::ColumnNotFound { .. }
            | Self::Partition { .. }
            | Self::TreeSymlink { .. }
            | Self::TreeLoop { .. }
            | Self::TreeSpecial { .. }
            | Self::TreeName { .. }
            | Self::TreeDepth { .. }
            | Self::TreeEmpty { .. }
            | Self::TreeCollision { .. }
            | Self::DeltaVersion { .. }
            | Self::DeltaTimestamp { .. }
            | Self::SqlSyntax { .. }
            | Self::SqlPlan { .. }
            | Self::SqlRefused { .. } => ErrorKind::InvalidInput,
            Self::Limit { .. }
            | Self::Changed { .. }
            | Self::Removed { .. }
            | Self::Compression { .. }
            | Self::SchemaMismatch { .. }
            | Self::Conversion { .. }
            | Self::MissingColumn { .. }
            | Self::ExtraColumn { .. }
            | Self::ParquetMagic { .. }
            | Self::ParquetTruncated { .. }
            | Self::ParquetFooter { .. }
            | Self::ParquetLimit { .. }
            | Self::ParquetCorrupt { .. }
            | Self::ArrowFormat { .. }
            | Self::ArrowCorrupt { .. }
            | Self::CsvHeader { .. }
            | Self::CsvRow { .. }
            | Self::JsonRow { .. }
            | Self::TreeText { .. }
            | Self::DeltaLog { .. }
            | Self::DeltaPath { .. }
            | Self::DeltaDeletionVector { .. }
            | Self::DeltaRowCount { .. }
            | Self::DeltaFieldIds { .. }
            | Self::DeltaColumn { .. }
            | Self::DeltaPartitionValue { .. }
            | Self::SqlRun { .. } => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "source-not-found",
            Self::Io { source, .. } => io_error_id(source),
            Self::Bug { .. } => "bug",
            Self::Foreign { id, .. } => id,
            Self::Storage(error) => error.id(),
            Self::Limit { limit, .. } => limit.id(),
            Self::Option { .. } => "source-option",
            Self::Mixed { .. } | Self::MixedFiles { .. } => "source-mixed",
            Self::Unsupported { .. } => "source-unsupported",
            Self::Empty { .. } => "source-empty",
            Self::Duplicate { .. } => "source-duplicate",
            Self::Changed { .. } | Self::Removed { .. } => "source-changed",
            Self::Unfinished { found, .. } => found.id(),
            Self::Overlap { .. } => "tree-overlap",
            Self::Compression { .. } => "source-compression",
            Self::DuplicateColumn { .. } => "source-duplicate-column",
            Self::ColumnNotFound { .. } => "source-column",
            Self::SchemaMismatch { kind, .. } => by_kind(
                *kind,
                [
                    "parquet-schema-mismatch",
                    "arrow-schema-mismatch",
                    "csv-schema-mismatch",
                    "jsonl-schema-mismatch",
                ],
            ),
            Self::MissingColumn { kind, .. } => by_kind(
                *kind,
                [
                    "parquet-missing-column",
                    "arrow-missing-column",
                    "csv-missing-column",
                    "jsonl-missing-column",
                ],
            ),
            Self::ExtraColumn { kind, .. } => by_kind(
                *kind,
                [
                    "parquet-extra-column",
                    "arrow-extra-column",
                    "csv-extra-column",
                    "jsonl-extra-column",
                ],
            ),
            Self::Conversion { .. } => "source-conversion",
            Self::Partition { .. } => "source-partition",
            Self::TypeUnsupported { .. } => "type-unsupported",
            Self::ParquetMagic { .. } => "parquet-magic",
            Self::ParquetTruncated { .. } => "parquet-truncated",
            Self::ParquetFooter { .. } => "parquet-footer",
            Self::ParquetEncrypted { .. } => "parquet-encrypted",
            Self::ParquetCodec { .. } => "parquet-codec",
            Self::ParquetLimit { .. } => "parquet-limit",
            Self::ParquetCorrupt { .. } => "parquet-corrupt",
            Self::ArrowFormat { .. } => "arrow-format",
            Self::ArrowCorrupt { .. } => "arrow-corrupt",
            Self::CsvHeader { .. } => "csv-header",
            Self::CsvRow { .. } => "csv-row",
            Self::JsonRow { .. } => "jsonl-row",
            Self::TreeSymlink { .. } => "tree-symlink",
            Self::TreeLoop { .. } => "tree-loop",
            Self::TreeSpecial { .. } => "tree-special",
            Self::TreeName { .. } => "tree-name",
            Self::TreeDepth { .. } => "tree-depth",
            Self::TreeEmpty { .. } => "tree-empty",
            Self::TreeCollision { .. } => "tree-collision",
            Self::TreeText { .. } => "tree-text",
            Self::DeltaNoTable { .. } => "delta-no-table",
            Self::DeltaVersion { .. } => "delta-version",
            Self::DeltaTimestamp { .. } => "delta-timestamp",
            Self::DeltaFeature { .. } => "delta-feature",
            Self::DeltaLog { .. } => "delta-log",
            Self::DeltaPath { .. } => "delta-path",
            Self::DeltaFileMissing { .. } => "delta-file-missing",
            Self::DeltaDeletionVector { .. } => "delta-deletion-vector",
            Self::DeltaRowCount { .. } => "delta-row-count",
            Self::DeltaFieldIds { .. } => "delta-field-ids",
            Self::DeltaColumn { .. } => "delta-column",
            Self::DeltaPartitionValue { .. } => "delta-partition-value",
            Self::SqlSyntax { .. } => "sql-syntax",
            Self::SqlPlan { .. } => "sql-plan",
            Self::SqlRun { .. } => "sql-run",
            Self::SqlRefused { .. } => "sql-refused",
            Self::SqlMemory { .. } => "sql-memory",
        }
    }

    fn object(&self) -> Option<String> {
        let shown = match self {
            Self::Foreign { object, .. } => return object.clone(),
            Self::Storage(error) => return error.object(),
            Self::NotFound { location }
            | Self::Unsupported { location, .. }
            | Self::Empty { location, .. }
            | Self::Overlap { location, .. }
            | Self::Unfinished { location, .. }
            | Self::TreeEmpty { location } => location,
            Self::Io { path, .. }
            | Self::Duplicate { path }
            | Self::Changed { path, .. }
            | Self::Removed { path }
            | Self::TreeSymlink { path }
            | Self::TreeLoop { path }
            | Self::TreeSpecial { path, .. }
            | Self::TreeName { path, .. }
            | Self::TreeDepth { path, .. }
            | Self::TreeText { path, .. } => path,
            Self::Limit { object, .. }
            | Self::DuplicateColumn { object, .. }
            | Self::Partition { object, .. }
            | Self::ParquetLimit { object, .. }
            | Self::TreeCollision { object, .. } => object,
            Self::DeltaNoTable { table }
            | Self::DeltaVersion { table, .. }
            | Self::DeltaTimestamp { table, .. }
            | Self::DeltaFeature { table, .. }
            | Self::DeltaLog { table, .. }
            | Self::DeltaPath { table, .. } => table,
            Self::DeltaFileMissing { file, .. }
            | Self::DeltaDeletionVector { file, .. }
            | Self::DeltaRowCount { file, .. }
            | Self::DeltaFieldIds { file }
            | Self::DeltaColumn { file, .. }
            | Self::DeltaPartitionValue { file, .. } => file,
            Self::Mixed { second, .. } => second,
            Self::MixedFiles { location, .. } => location,
            Self::Compression { file, .. }
            | Self::Conversion { file, .. }
            | Self::MissingColumn { file, .. }
            | Self::ExtraColumn { file, .. }
            | Self::TypeUnsupported { file, .. }
            | Self::ParquetMagic { file }
            | Self::ParquetTruncated { file, .. }
            | Self::ParquetFooter { file, .. }
            | Self::ParquetEncrypted { file }
            | Self::ParquetCodec { file, .. }
            | Self::ArrowFormat { file, .. }
            | Self::ArrowCorrupt { file, .. }
            | Self::CsvHeader { file, .. } => file,
            Self::ParquetCorrupt {
                file,
                row_group,
                column,
                ..
            } => {
                let place = format!("{} row group {row_group}", escape(file));
                return Some(match column {
                    Some(column) => format!("{place} column `{}`", escape(column)),
                    None => place,
                });
            }
            Self::CsvRow {
                file, line, column, ..
            } => {
                let place = format!("{} line {line}", escape(file));
                return Some(match column {
                    Some(column) => format!("{place} column `{}`", escape(column)),
                    None => place,
                });
            }
            Self::JsonRow { file, line, .. } => {
                return Some(format!("{} line {line}", escape(file)));
            }
            Self::SchemaMismatch { file, .. } => return Some(escape(file).into_owned()),
            Self::Option { option, .. } => return Some((*option).to_owned()),
            Self::ColumnNotFound { clause, .. }
            | Self::SqlSyntax { clause, .. }
            | Self::SqlPlan { clause, .. }
            | Self::SqlRun { clause, .. }
            | Self::SqlRefused { clause, .. } => return Some((*clause).to_owned()),
            Self::SqlMemory { .. } => return Some("--sql".to_owned()),
            Self::Bug { .. } => return None,
        };
        Some(escape(shown).into_owned())
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Foreign { hint, .. } => return hint.clone(),
            Self::Storage(error) => return error.hint(),
            Self::Limit { limit, .. } => return Some(limit.hint()),
            Self::Unfinished { location, found } => return Some(found.hint(location)),
            Self::ColumnNotFound { near, .. } if !near.is_empty() => {
                let names: Vec<String> = near
                    .iter()
                    .map(|name| format!("`{}`", escape(name)))
                    .collect();
                return Some(format!("did you mean {}?", names.join(", ")));
            }
            Self::Unsupported { hint, .. } | Self::SqlRefused { hint, .. } => hint,
            Self::DeltaVersion { .. } | Self::DeltaTimestamp { .. } => {
                "`shardmill inspect` shows which versions there are"
            }
            Self::DeltaFeature { hint, .. } => (*hint)?,
            Self::DeltaFileMissing { .. } => {
                "read a later version with --version, or bring the file back from a backup"
            }
            Self::DeltaFieldIds { .. } => {
                "the file was not written for this table: write its rows again with a writer that knows column mapping"
            }
            Self::TreeText { .. } => {
                "leave the field out with --column, or write --to webdataset, which takes files as they are"
            }
            Self::MixedFiles { classes, .. } => return Some(choices(*classes)),
            Self::Mixed { .. } => "convert them one by one, or say what they hold with --from",
            Self::Changed { .. } | Self::Removed { .. } => {
                "run again when nothing writes to the source"
            }
            Self::Overlap { .. } => "choose a destination outside the source",
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
            Self::TreeSymlink { .. } => "pass --follow-links to read what it points to",
            Self::TreeCollision { .. } => "pass --group file to make each file a sample",
            Self::ParquetTruncated { .. } => {
                "the copy or the writer did not finish: fetch or write the file again"
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
            Self::ParquetLimit {
                name, value, limit, ..
            } => {
                let limit = LimitExceeded {
                    name,
                    value: *value,
                    limit: *limit,
                };
                return Some(limit.hint());
            }
            Self::SqlMemory { .. } => "raise --memory-limit",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
