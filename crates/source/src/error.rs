//! The errors of sources.

use std::collections::BTreeSet;
use std::io;

use arrow::datatypes::{Field, Schema};
use shardmill_core::{
    Error, ErrorKind, LimitExceeded, Limits, Unfinished, escape, omit_option, shell_word, sql_name,
};

use crate::hints::near_names;
use crate::options::SourceKind;

/// The most columns that a message lists.
const SHOWN_COLUMNS: usize = 20;

shardmill_core::problems! {
    /// What is wrong with an input. The page of errors of the manual describes each problem under its id.
    pub(crate) enum SourceProblem -> Error {
        NotFound => (NotFound, "source-not-found"),
        Changed => (Corrupt, "source-changed", "run again when nothing writes to the source"),
        Option => (InvalidInput, "source-option"),
        Unsupported => (Unsupported, "source-unsupported"),
        Empty => (InvalidInput, "source-empty"),
        Duplicate => (InvalidInput, "source-duplicate"),
        Mixed => (InvalidInput, "source-mixed"),
        Compression => (Corrupt, "source-compression"),
        Overlap => (InvalidInput, "tree-overlap", "choose a destination outside the source"),
        Column => (InvalidInput, "source-column"),
        DuplicateColumn => (InvalidInput, "source-duplicate-column"),
        Partition => (InvalidInput, "source-partition"),
        Conversion => (Corrupt, "source-conversion"),
        Type => (Unsupported, "type-unsupported"),
        ArrowSchemaMismatch => (Corrupt, "arrow-schema-mismatch"),
        CsvSchemaMismatch => (Corrupt, "csv-schema-mismatch"),
        JsonlSchemaMismatch => (Corrupt, "jsonl-schema-mismatch"),
        ParquetSchemaMismatch => (Corrupt, "parquet-schema-mismatch"),
        ArrowMissingColumn => (Corrupt, "arrow-missing-column"),
        CsvMissingColumn => (Corrupt, "csv-missing-column"),
        JsonlMissingColumn => (Corrupt, "jsonl-missing-column"),
        ParquetMissingColumn => (Corrupt, "parquet-missing-column"),
        ArrowExtraColumn => (Corrupt, "arrow-extra-column"),
        CsvExtraColumn => (Corrupt, "csv-extra-column"),
        JsonlExtraColumn => (Corrupt, "jsonl-extra-column"),
        ParquetExtraColumn => (Corrupt, "parquet-extra-column"),
        ParquetMagic => (Corrupt, "parquet-magic"),
        ParquetTruncated => (Corrupt, "parquet-truncated", "the copy or the writer did not finish: fetch or write the file again"),
        ParquetFooter => (Corrupt, "parquet-footer"),
        ParquetEncrypted => (Unsupported, "parquet-encrypted"),
        ParquetCodec => (Unsupported, "parquet-codec"),
        ParquetLimit => (Corrupt, "parquet-limit"),
        ParquetCorrupt => (Corrupt, "parquet-corrupt"),
        ArrowFormat => (Corrupt, "arrow-format"),
        ArrowCorrupt => (Corrupt, "arrow-corrupt"),
        CsvHeader => (Corrupt, "csv-header"),
        CsvRow => (Corrupt, "csv-row"),
        JsonRow => (Corrupt, "jsonl-row"),
        TfrecordTruncated => (Corrupt, "tfrecord-truncated", "the copy or the writer did not finish: fetch or write the file again"),
        TfrecordChecksum => (Corrupt, "tfrecord-checksum"),
        TfrecordExample => (Unsupported, "tfrecord-example", "pass --from tfrecord-raw to read records as bytes"),
        TfrecordFeature => (Corrupt, "tfrecord-feature"),
        ZarrVariable => (NotFound, "zarr-variable"),
        ZarrWindow => (InvalidInput, "zarr-window"),
        ZarrMetadata => (Corrupt, "zarr-metadata"),
        ZarrCodec => (Unsupported, "zarr-codec", "write the array again with a codec such as zstd"),
        ZarrChunk => (Corrupt, "zarr-chunk"),
        ZarrTime => (Unsupported, "zarr-time", "pass --raw-values to keep the stored numbers, or write the store again with `convert_calendar` of xarray"),
        TreeSymlink => (InvalidInput, "tree-symlink", "pass --follow-links to read what it points to"),
        TreeLoop => (InvalidInput, "tree-loop"),
        TreeSpecial => (InvalidInput, "tree-special"),
        TreeName => (InvalidInput, "tree-name"),
        TreeDepth => (InvalidInput, "tree-depth"),
        TreeEmpty => (InvalidInput, "tree-empty"),
        TreeCollision => (InvalidInput, "tree-collision", "--group file makes each file a sample with the columns `__key__` and `data`"),
        TreeText => (Corrupt, "tree-text"),
        SqlSyntax => (InvalidInput, "sql-syntax"),
        SqlPlan => (InvalidInput, "sql-plan"),
        SqlRun => (Corrupt, "sql-run"),
        SqlMemory => (Resource, "sql-memory", "raise it with --memory-limit SIZE"),
        SqlRefused => (InvalidInput, "sql-refused"),
        Bug => (Bug, "bug"),
    }
}

impl SourceProblem {
    /// Returns the problem of a format, from those of Arrow, CSV, JSON lines and Parquet files.
    const fn of_format(kind: SourceKind, problems: [Self; 4]) -> Self {
        let [arrow, csv, jsonl, parquet] = problems;
        match kind {
            SourceKind::Arrow => arrow,
            SourceKind::Csv | SourceKind::Tsv => csv,
            SourceKind::JsonLines => jsonl,
            _ => parquet,
        }
    }

    /// Returns the problem of a column whose type differs between the files of a format.
    pub(crate) const fn schema_mismatch(kind: SourceKind) -> Self {
        let problems = [
            Self::ArrowSchemaMismatch,
            Self::CsvSchemaMismatch,
            Self::JsonlSchemaMismatch,
            Self::ParquetSchemaMismatch,
        ];
        Self::of_format(kind, problems)
    }
}

/// Builds an error of the operating system about a path. `action` is what was attempted: `open`, `read`, `list`.
pub(crate) fn io(action: &'static str, path: impl AsRef<str>, source: io::Error) -> Error {
    Error::io(format!("cannot {action}"), source).about(path)
}

/// Builds an error about a broken invariant.
#[must_use]
pub fn bug(what: impl Into<String>) -> Error {
    SourceProblem::Bug.error(what)
}

/// Builds the error about a unit that does not exist.
pub(crate) fn no_unit(unit: usize) -> Error {
    bug(format!("there is no unit {unit}"))
}

/// Builds the error about a location that does not exist.
pub(crate) fn not_found(location: impl AsRef<str>) -> Error {
    SourceProblem::NotFound.at(location, "no such file or directory")
}

/// Builds the error about two columns with the same name.
pub(crate) fn duplicate_column(object: impl AsRef<str>, name: &str) -> Error {
    let reason = format!("has two columns called `{}`", escape(name));
    SourceProblem::DuplicateColumn.at(object, reason)
}

/// Builds the error about a requested column that a schema does not have. `clause` is the option that names it.
pub(crate) fn no_column(clause: &str, name: &str, schema: &Schema) -> Error {
    let error = SourceProblem::Column.at(clause, format!("there is no column `{}`", escape(name)));
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
    let hint = (!known.is_empty()).then(|| format!("the columns are {}", known.join(", ")));
    error.with_any_hint(hint)
}

/// Builds the error about a column that `lacking` lacks and `having` has.
pub(crate) fn lacking_column(kind: SourceKind, column: &str, files: [&str; 2]) -> Error {
    let problems = [
        SourceProblem::ArrowMissingColumn,
        SourceProblem::CsvMissingColumn,
        SourceProblem::JsonlMissingColumn,
        SourceProblem::ParquetMissingColumn,
    ];
    let (name, having) = (escape(column), escape(files[1]));
    let reason = format!("lacks the column `{name}` of {having}");
    let error = SourceProblem::of_format(kind, problems).at(files[0], reason);
    error.with_hint(missing_hint(kind, column))
}

/// Builds the error about a column of a file that the first file does not have.
pub(crate) fn extra_column(kind: SourceKind, column: &str, files: [&str; 2]) -> Error {
    let problems = [
        SourceProblem::ArrowExtraColumn,
        SourceProblem::CsvExtraColumn,
        SourceProblem::JsonlExtraColumn,
        SourceProblem::ParquetExtraColumn,
    ];
    let (name, first) = (escape(column), escape(files[1]));
    let reason = format!("has a column `{name}` that {first} does not have");
    let error = SourceProblem::of_format(kind, problems).at(files[0], reason);
    error.with_hint(missing_hint(kind, column))
}

/// Builds the error about a value of a file that does not fit the column of the table.
pub(crate) fn conversion(file: &str, field: &Field, reason: &str) -> Error {
    let reason = format!(
        "column `{}` is read as {}: {reason}",
        escape(field.name()),
        field.data_type()
    );
    let name = sql_name(field.name());
    let list = format!("* EXCEPT ({name}), CAST({name} AS VARCHAR) AS {name}");
    SourceProblem::Conversion
        .at(file, reason)
        .with_hint(format!(
            "read all files as another type, as in --select {}",
            shell_word(&list)
        ))
}

/// Builds the error about a size in Parquet metadata that exceeds a limit.
pub(crate) fn parquet_limit(object: &str, what: &str, limit: &LimitExceeded) -> Error {
    let (value, max) = (limit.value, limit.limit);
    let reason = format!("{what} is {value} bytes, above the limit of {max}");
    let error = SourceProblem::ParquetLimit.at(object, reason);
    error.with_hint(limit.hint())
}

/// Builds the error about a file that has changed since it was listed.
pub(crate) fn changed(path: &str, listed: u64, found: u64, touched: bool) -> Error {
    let touched = if touched {
        ", and was modified since"
    } else {
        ""
    };
    let reason = format!("had {listed} bytes when it was listed and has {found}{touched}");
    SourceProblem::Changed.at(path, reason)
}

/// Builds the error about the destination of an unfinished conversion, which does not contain all of its data.
pub(crate) fn unfinished(location: &str, found: Unfinished) -> Error {
    Error::new(ErrorKind::Conflict, found.id(), found.to_string())
        .about(location)
        .with_hint(found.hint(location))
}

/// Checks that no two columns have the same name.
pub(crate) fn check_names<'a>(
    names: impl IntoIterator<Item = &'a str>,
    object: impl FnOnce() -> String,
) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(name) => Err(duplicate_column(object(), name)),
    }
}

/// Builds the error about a number above a limit of [`Limits`](shardmill_core::Limits).
pub(crate) fn limit(limit: &LimitExceeded, object: &str) -> Error {
    Error::new(ErrorKind::Corrupt, limit.id(), limit.to_string())
        .about(object)
        .with_hint(limit.hint())
}

/// Checks a limit of [`Limits`](shardmill_core::Limits).
pub(crate) fn check_limit(
    name: &'static str,
    value: u64,
    max: u64,
    object: impl FnOnce() -> String,
) -> Result<(), Error> {
    Limits::check(name, value, max).map_err(|exceeded| limit(&exceeded, &object()))
}

/// Returns a hint for a column that some files lack.
fn missing_hint(kind: SourceKind, column: &str) -> String {
    match kind {
        SourceKind::Parquet | SourceKind::Arrow => format!(
            "pass --schema union --nulls mask to read it as null where it is missing, or omit it, with {}",
            omit_option(column)
        ),
        _ => "convert these files apart".to_owned(),
    }
}
