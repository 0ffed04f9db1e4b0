//! The errors of sources.

use std::collections::BTreeSet;
use std::io;

use arrow::datatypes::{Field, Schema};
use shardmill_core::{
    Diagnostic, ErrorKind, LimitExceeded, Limits, Unfinished, escape, io_error_id,
};
use shardmill_delta::DeltaError;
use shardmill_storage::StorageError;

use crate::hints::{near_names, quoted};
use crate::options::SourceKind;

/// The most columns that a message lists.
const SHOWN_COLUMNS: usize = 20;

/// What is wrong with an input. The page of errors of the manual describes each problem under its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceProblem {
    NotFound,
    Changed,
    Option,
    Unsupported,
    Empty,
    Duplicate,
    Mixed,
    Compression,
    Overlap,
    Column,
    DuplicateColumn,
    Partition,
    Conversion,
    Type,
    SchemaMismatch(SourceKind),
    MissingColumn(SourceKind),
    ExtraColumn(SourceKind),
    ParquetMagic,
    ParquetTruncated,
    ParquetFooter,
    ParquetEncrypted,
    ParquetCodec,
    ParquetLimit,
    ParquetCorrupt,
    ArrowFormat,
    ArrowCorrupt,
    CsvHeader,
    CsvRow,
    JsonRow,
    TfrecordTruncated,
    TfrecordChecksum,
    TfrecordExample,
    TfrecordFeature,
    TreeSymlink,
    TreeLoop,
    TreeSpecial,
    TreeName,
    TreeDepth,
    TreeEmpty,
    TreeCollision,
    TreeText,
    SqlSyntax,
    SqlPlan,
    SqlRun,
    SqlMemory,
    SqlRefused,
}

impl SourceProblem {
    /// Builds the error with this problem about an object.
    pub(crate) fn at(self, object: impl AsRef<str>, message: impl Into<String>) -> SourceError {
        let (kind, id, hint) = self.facts();
        SourceError::Described {
            kind,
            id,
            object: Some(escape(object.as_ref()).into_owned()),
            message: message.into(),
            hint: hint.map(str::to_owned),
        }
    }

    /// Returns the kind, the stable id and the hint of the problem.
    const fn facts(self) -> (ErrorKind, &'static str, Option<&'static str>) {
        use ErrorKind::{Corrupt, InvalidInput, NotFound, Resource, Unsupported};
        match self {
            Self::NotFound => (NotFound, "source-not-found", None),
            Self::Changed => (
                Corrupt,
                "source-changed",
                Some("run again when nothing writes to the source"),
            ),
            Self::Option => (InvalidInput, "source-option", None),
            Self::Unsupported => (Unsupported, "source-unsupported", None),
            Self::Empty => (InvalidInput, "source-empty", None),
            Self::Duplicate => (InvalidInput, "source-duplicate", None),
            Self::Mixed => (InvalidInput, "source-mixed", None),
            Self::Compression => (Corrupt, "source-compression", None),
            Self::Overlap => (
                InvalidInput,
                "tree-overlap",
                Some("choose a destination outside the source"),
            ),
            Self::Column => (InvalidInput, "source-column", None),
            Self::DuplicateColumn => (InvalidInput, "source-duplicate-column", None),
            Self::Partition => (InvalidInput, "source-partition", None),
            Self::Conversion => (Corrupt, "source-conversion", None),
            Self::Type => (Unsupported, "type-unsupported", None),
            Self::SchemaMismatch(kind) => (
                Corrupt,
                match kind {
                    SourceKind::Arrow => "arrow-schema-mismatch",
                    SourceKind::Csv | SourceKind::Tsv => "csv-schema-mismatch",
                    SourceKind::JsonLines => "jsonl-schema-mismatch",
                    _ => "parquet-schema-mismatch",
                },
                None,
            ),
            Self::MissingColumn(kind) => (
                Corrupt,
                match kind {
                    SourceKind::Arrow => "arrow-missing-column",
                    SourceKind::Csv | SourceKind::Tsv => "csv-missing-column",
                    SourceKind::JsonLines => "jsonl-missing-column",
                    _ => "parquet-missing-column",
                },
                None,
            ),
            Self::ExtraColumn(kind) => (
                Corrupt,
                match kind {
                    SourceKind::Arrow => "arrow-extra-column",
                    SourceKind::Csv | SourceKind::Tsv => "csv-extra-column",
                    SourceKind::JsonLines => "jsonl-extra-column",
                    _ => "parquet-extra-column",
                },
                None,
            ),
            Self::ParquetMagic => (Corrupt, "parquet-magic", None),
            Self::ParquetTruncated => (
                Corrupt,
                "parquet-truncated",
                Some("the copy or the writer did not finish: fetch or write the file again"),
            ),
            Self::ParquetFooter => (Corrupt, "parquet-footer", None),
            Self::ParquetEncrypted => (Unsupported, "parquet-encrypted", None),
            Self::ParquetCodec => (Unsupported, "parquet-codec", None),
            Self::ParquetLimit => (Corrupt, "parquet-limit", None),
            Self::ParquetCorrupt => (Corrupt, "parquet-corrupt", None),
            Self::ArrowFormat => (Corrupt, "arrow-format", None),
            Self::ArrowCorrupt => (Corrupt, "arrow-corrupt", None),
            Self::CsvHeader => (Corrupt, "csv-header", None),
            Self::CsvRow => (Corrupt, "csv-row", None),
            Self::JsonRow => (Corrupt, "jsonl-row", None),
            Self::TfrecordTruncated => (
                Corrupt,
                "tfrecord-truncated",
                Some("the copy or the writer did not finish: fetch or write the file again"),
            ),
            Self::TfrecordChecksum => (Corrupt, "tfrecord-checksum", None),
            Self::TfrecordExample => (
                Unsupported,
                "tfrecord-example",
                Some("pass --from tfrecord-raw to read records as bytes"),
            ),
            Self::TfrecordFeature => (Corrupt, "tfrecord-feature", None),
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
                Some(
                    "`convert --group file` makes each file a sample with the columns `__key__` and `data`",
                ),
            ),
            Self::TreeText => (
                Corrupt,
                "tree-text",
                Some(
                    "leave the field out with --column, or write --to webdataset, which takes files as they are",
                ),
            ),
            Self::SqlSyntax => (InvalidInput, "sql-syntax", None),
            Self::SqlPlan => (InvalidInput, "sql-plan", None),
            Self::SqlRun => (Corrupt, "sql-run", None),
            Self::SqlMemory => (Resource, "sql-memory", Some("raise --memory-limit")),
            Self::SqlRefused => (InvalidInput, "sql-refused", None),
        }
    }
}

/// An error that occurs when a source is opened or read.
///
/// Paths are as opened. Rows and row groups count from 0, lines from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// An input that is not valid, not supported or not found, or any failure of a source of another crate.
    #[error("{message}")]
    Described {
        /// The kind of the error.
        kind: ErrorKind,
        /// Its stable id.
        id: &'static str,
        /// The location, file, column, option or clause, escaped.
        object: Option<String>,
        /// What is wrong, with the facts and the causes.
        message: String,
        /// What to do about it.
        hint: Option<String>,
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
    /// A store reported an error, or has a name that cannot be a file name.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A broken invariant inside this crate.
    #[error("{what}")]
    Bug {
        /// What went wrong.
        what: String,
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
    pub(crate) fn not_found(location: impl AsRef<str>) -> Self {
        SourceProblem::NotFound.at(location, "no such file or directory")
    }

    /// Builds the error about two columns with the same name.
    pub(crate) fn duplicate_column(object: impl AsRef<str>, name: &str) -> Self {
        let reason = format!("has two columns called `{}`", escape(name));
        SourceProblem::DuplicateColumn.at(object, reason)
    }

    /// Builds the error about a requested column that a schema does not have. `clause` is the option that names it.
    pub(crate) fn no_column(clause: &str, name: &str, schema: &Schema) -> Self {
        let error =
            SourceProblem::Column.at(clause, format!("there is no column `{}`", escape(name)));
        let near = near_names(name, schema);
        if !near.is_empty() {
            let near = near.iter().map(|name| format!("`{}`", escape(name)));
            let near: Vec<_> = near.collect();
            return error.with_hint(format!("did you mean {}?", near.join(", ")));
        }
        let fields = schema.fields();
        let mut known: Vec<_> = fields.iter().map(|field| escape(field.name())).collect();
        if known.len() > SHOWN_COLUMNS {
            known.truncate(SHOWN_COLUMNS);
            known.push("…".into());
        }
        match known.is_empty() {
            true => error,
            false => error.with_hint(format!("the columns are {}", known.join(", "))),
        }
    }

    /// Builds the error about a column that `lacking` lacks and `having` has.
    pub(crate) fn lacking_column(kind: SourceKind, column: &str, files: [&str; 2]) -> Self {
        let [lacking, having] = files;
        let name = escape(column);
        let reason = format!("lacks the column `{name}` of {}", escape(having));
        SourceProblem::MissingColumn(kind)
            .at(lacking, reason)
            .with_hint(missing_hint(kind, column))
    }

    /// Builds the error about a column of a file that the first file does not have.
    pub(crate) fn extra_column(kind: SourceKind, column: &str, files: [&str; 2]) -> Self {
        let [having, first] = files;
        let name = escape(column);
        let reason = format!("has a column `{name}` that {} does not have", escape(first));
        SourceProblem::ExtraColumn(kind)
            .at(having, reason)
            .with_hint(missing_hint(kind, column))
    }

    /// Builds the error about a column whose type is not supported.
    pub(crate) fn unsupported_type(file: &str, column: &str, data_type: &str) -> Self {
        let column = escape(column);
        let reason = format!("column `{column}` has the type {data_type}, which is not supported");
        SourceProblem::Type.at(file, reason)
    }

    /// Builds the error about a value of a file that does not fit the column of the table.
    pub(crate) fn conversion(file: &str, field: &Field, reason: &str) -> Self {
        let reason = format!(
            "column `{}` is read as {}: {reason}",
            escape(field.name()),
            field.data_type()
        );
        let name = quoted(field.name());
        SourceProblem::Conversion
            .at(file, reason)
            .with_hint(format!(
                "read all files as another type, as in --select '* EXCEPT ({name}), CAST({name} AS VARCHAR) AS {name}'"
            ))
    }

    /// Builds the error about Parquet data that does not decode.
    pub(crate) fn parquet_corrupt(
        file: &str,
        group: usize,
        column: Option<&str>,
        reason: impl Into<String>,
    ) -> Self {
        let mut object = format!("{file} row group {group}");
        if let Some(column) = column {
            object = format!("{object} column `{column}`");
        }
        SourceProblem::ParquetCorrupt.at(object, reason)
    }

    /// Builds the error about a size in Parquet metadata that exceeds a limit.
    pub(crate) fn parquet_limit(object: &str, what: &str, limit: &LimitExceeded) -> Self {
        let LimitExceeded {
            value, limit: most, ..
        } = limit;
        let reason = format!("{what} is {value} bytes, above the limit of {most}");
        SourceProblem::ParquetLimit
            .at(object, reason)
            .with_hint(limit.hint())
    }

    /// Builds the error about a file that has changed since it was listed.
    pub(crate) fn changed(path: &str, listed: u64, found: u64, touched: bool) -> Self {
        let touched = if touched {
            ", and was modified since"
        } else {
            ""
        };
        SourceProblem::Changed.at(
            path,
            format!("had {listed} bytes when it was listed and has {found}{touched}"),
        )
    }

    /// Builds the error about the destination of an unfinished conversion, which does not contain all of its data.
    pub(crate) fn unfinished(location: &str, found: Unfinished) -> Self {
        Self::Described {
            kind: ErrorKind::Conflict,
            id: found.id(),
            object: Some(escape(location).into_owned()),
            message: found.to_string(),
            hint: Some(found.hint(location)),
        }
    }

    /// Adds what to do about the error, which replaces the hint of its problem.
    pub(crate) fn with_hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Described { hint, .. } = &mut self {
            *hint = Some(text.into());
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
        Limits::check(name, value, limit).map_err(|limit| Self::Described {
            kind: ErrorKind::Corrupt,
            id: limit.id(),
            object: Some(escape(&object()).into_owned()),
            message: limit.to_string(),
            hint: Some(limit.hint()),
        })
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
    /// Returns the kind and the stable id of the error.
    fn facts(&self) -> (ErrorKind, &'static str) {
        use ErrorKind::Bug;
        match self {
            Self::Described { kind, id, .. } => (*kind, id),
            Self::Io { source, .. } => (source.into(), io_error_id(source)),
            Self::Storage(error) => (error.kind(), error.id()),
            Self::Bug { .. } => (Bug, "bug"),
        }
    }
}

impl From<DeltaError> for SourceError {
    fn from(error: DeltaError) -> Self {
        match error {
            DeltaError::Storage(error) => error.into(),
            DeltaError::Io {
                action,
                path,
                source,
            } => Self::io(action, path, source),
            error => Self::Described {
                kind: error.kind(),
                id: error.id(),
                object: error.object(),
                message: error.to_string(),
                hint: error.hint(),
            },
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
        match self {
            Self::Described { object, .. } => object.clone(),
            Self::Io { path, .. } => Some(escape(path).into_owned()),
            Self::Storage(error) => error.object(),
            Self::Bug { .. } => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Described { hint, .. } => hint.clone(),
            Self::Storage(error) => error.hint(),
            Self::Io { .. } | Self::Bug { .. } => None,
        }
    }
}
