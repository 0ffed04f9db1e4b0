//! Reads tables and file trees as ordered Arrow record batches.
//!
//! This crate decides which files a location refers to, in which order they are read and which columns they have. It
//! also validates what they contain. It reads Delta tables, Parquet, Arrow IPC, CSV, JSON lines, TFRecord,
//! windows of Zarr arrays, and trees of plain files. It selects, computes and filters columns
//! with SQL expressions, or runs a whole query. Files are in
//! directories or in stores. Objects in a store are listed once, and downloaded before they are read. The crate does
//! not know shards and writes only temporary files.
//!
//! [`open`] turns locations into a [`Source`]. A source has a schema and an ordered list of [`Unit`]s: row groups,
//! record batches, text files, or runs of small files. Any thread can open a unit, which yields [`Rows`]: record
//! batches of about [`batch_bytes`](ResourceOptions::batch_bytes). The order of units, and of rows within them, is the
//! order of the dataset. It depends only on the input and the options. Every size or count in a file is checked against
//! the file's size and a limit before it is used. A panic in a decoder becomes an ordinary error.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let location = directory.path().join("rows.csv");
//! std::fs::write(&location, "id,text\n1,one\n2,two\n3,three\n")?;
//! let mut options = shardmill_source::SourceOptions::default();
//! options.query.filter = Some("id > 1".to_owned());
//! let source = shardmill_source::open(&[location.into()], &options)?;
//! let mut count = 0;
//! for unit in 0..source.units().len() {
//!     let mut rows = source.open_unit(unit)?;
//!     while let Some(batch) = rows.next_batch()? {
//!         count += batch.num_rows();
//!     }
//! }
//! assert_eq!(count, 2);
//! # Ok(())
//! # }
//! ```
//!
//! Formats: the Delta transaction log protocol, Apache Parquet and Apache Arrow IPC as specified by their projects, RFC
//! 4180, JSON lines, TensorFlow's TFRecord, Zarr. The limits are L4 and L9 of the reliability rules.

mod base; // Batches of some columns.
mod casts; // Types that expressions cast columns to.
mod conform; // Arrays as another type.
mod csv; // CSV files.
mod csv_records; // Records of CSV files.
mod csv_values; // Types of CSV values.
mod delta; // Delta tables.
mod detect; // What a location holds.
mod direct; // Selected columns, and the bytes of images and audio.
mod distinct; // Numbers of distinct values.
mod error; // The errors of this crate.
mod exact; // Whole numbers that floats represent exactly.
mod expr; // Computed columns and filtered rows.
mod feature_columns; // Features of examples as columns.
mod file_filter; // Files that patterns select.
mod file_names; // Classes of files by their names.
mod files; // The files of a location.
mod hints; // Remedies for errors, and similar names.
mod ignored_clauses; // Clauses that the query engine ignores.
mod input; // Text files, compressed or not.
mod ipc; // Arrow IPC files and streams.
mod json; // JSON lines files.
mod json_pairs; // Escaped surrogate pairs of JSON.
mod key_files; // Rows with random keys in temporary files.
mod number_type; // The Arrow types of numbers.
mod numbered; // The numbers of rows as a column.
mod objects; // Files in stores.
mod options; // What a caller can choose.
mod parquet; // Parquet files.
mod prefetch; // Downloads of row groups ahead of their use.
mod query; // Parsing and checks of expressions and queries.
mod raw_json_fields; // Fields of JSON objects as their text.
mod shape; // Types of JSON values.
mod shape_reader; // Types of the values of one line.
mod shuffle; // Sources in a random order.
mod slices; // Large batches in slices.
mod source; // A source, its units and its rows.
mod sql; // Whole queries.
mod stream; // Copies of streams that can be read only once.
mod tfrecord; // TFRecord files.
mod tree; // Trees of plain files.
mod unite; // The columns of several files as those of one table.
mod walk; // Parallel listing of directories.
mod zarr; // Windows of Zarr arrays.

use std::sync::Arc;

use shardmill_core::Error;
use shardmill_storage::{Location, RemoteOptions};

pub use base::{map_rows, project, rows_from};
pub use delta::history as delta_history;
pub use detect::detect;
pub use distinct::{DistinctCount, DistinctValues};
pub use error::bug;
pub use options::{
    CsvOptions, DeltaOptions, FileOptions, QueryOptions, ReadAs, ResourceOptions, SampleOptions,
    SchemaOptions, SchemaRule, SelectColumn, SourceKind, SourceOptions, TextOptions, TreeGroup,
    TreeOptions, ZarrOptions,
};
pub use shardmill_delta::{
    DeltaCommit, DeltaFile, DeltaHistory, DeltaProtocol, DeltaSummary, VersionChoice,
};
pub use source::{
    ENCODING_KEY, RowOrigin, Rows, Source, SourceDescription, SourceFile, TableFacts, TreeField,
    TreeSummary, Unit, unit_rows,
};
pub use stream::CopiedStream;

pub(crate) use error::SourceProblem;

/// Opens locations (files, directories, patterns) as one source.
///
/// The order of the dataset is: locations as given, the files of each location by the bytes of their relative paths,
/// and rows as in their file.
///
/// # Errors
///
/// `InvalidInput`, `NotFound`, `Corrupt` or `Unsupported` when an option, a location or its metadata is not usable.
pub fn open(locations: &[Location], options: &SourceOptions) -> Result<Arc<dyn Source>, Error> {
    check_options(options)?;
    let kind = match options.kind {
        Some(kind) => kind,
        None => detect::detect_all(locations, options)?,
    };
    check_travel(kind, options)?;
    if options.samples.view.is_some() {
        let fact = format!("selects samples of a dataset, and the source holds {kind}");
        return Err(SourceProblem::Option.at("--view", fact));
    }
    let options = &casts::with_casts(options)?;
    let open = || -> Result<Arc<dyn Source>, Error> {
        Ok(match kind {
            SourceKind::Delta => Arc::new(delta::open(locations, options)?),
            SourceKind::Parquet => Arc::new(parquet::open(locations, options)?),
            SourceKind::Arrow => Arc::new(ipc::open(locations, options)?),
            SourceKind::Csv | SourceKind::Tsv => Arc::new(csv::open(locations, kind, options)?),
            SourceKind::JsonLines => Arc::new(json::open(locations, options)?),
            SourceKind::Tfrecord | SourceKind::TfrecordRaw => {
                Arc::new(tfrecord::open(locations, kind, options)?)
            }
            SourceKind::Zarr => Arc::new(zarr::open(locations, options)?),
            SourceKind::Tree => Arc::new(tree::open(locations, options)?),
            SourceKind::Mds | SourceKind::Webdataset => {
                let shown = locations.first().map(files::shown_location);
                let reason = "holds shards, which the reader opens and not the source";
                let error = SourceProblem::Unsupported.at(shown.unwrap_or_default(), reason);
                return Err(error.with_hint("open it as a dataset"));
            }
        })
    };
    let source = walk::on_pool(options.resources.jobs, open)??;
    with_options(source, options)
}

/// Replaces each pattern with its matches, in order.
///
/// # Errors
///
/// `InvalidInput` or `NotFound` for a pattern that is invalid or matches nothing.
pub fn expand_patterns(
    locations: &[Location],
    remote: &RemoteOptions,
) -> Result<Vec<Location>, Error> {
    let options = SourceOptions {
        remote: remote.clone(),
        ..SourceOptions::default()
    };
    let mut found = Vec::with_capacity(locations.len());
    for location in locations {
        match location {
            Location::Remote(remote) if !file_names::is_pattern(remote.prefix()) => {
                found.push(location.clone());
            }
            _ => {
                let matches = files::find(location, &options)?;
                found.extend(matches.iter().map(objects::Found::location));
            }
        }
    }
    Ok(found)
}

/// Applies column selection, filters or a query to a source of another crate, as [`open`] does to its own. Options
/// about reading files have no effect.
///
/// # Errors
///
/// `InvalidInput` when an option is not usable.
pub fn over(source: Arc<dyn Source>, options: &SourceOptions) -> Result<Arc<dyn Source>, Error> {
    check_options(options)?;
    check_travel(source.description().kind, options)?;
    with_options(source, options)
}

/// Returns the rows of a source in a random order that depends only on the source and the seed.
///
/// [`Source::prepare`], or opening the first unit, reads the whole source and writes its rows, uncompressed, to unnamed
/// files in [`temp_dir`](ResourceOptions::temp_dir). Each thread holds at most 64 MiB of rows, or a quarter of its share
/// of [`memory_limit`](ResourceOptions::memory_limit), but at least 1 MiB and one row.
#[must_use]
pub fn shuffled(source: Arc<dyn Source>, seed: u64, options: &ResourceOptions) -> Arc<dyn Source> {
    Arc::new(shuffle::Shuffled::new(source, seed, options))
}

/// Parses a timestamp into milliseconds since 1970. Accepts RFC 3339, or a date with or without a time, which is
/// interpreted as UTC.
///
/// # Errors
///
/// `InvalidInput` for any other text.
pub fn parse_timestamp(text: &str) -> Result<i64, Error> {
    shardmill_delta::parse_time(text)
        .map_err(|reason| SourceProblem::Option.at("--delta-timestamp", reason))
}

fn with_options(
    source: Arc<dyn Source>,
    options: &SourceOptions,
) -> Result<Arc<dyn Source>, Error> {
    let source: Arc<dyn Source> = match &options.query.number {
        Some(name) => Arc::new(numbered::Numbered::new(source, name)?),
        None => source,
    };
    let source: Arc<dyn Source> = if options.query.sql.is_some() {
        Arc::new(sql::Query::new(source, options)?)
    } else if options.query.computes() {
        Arc::new(expr::Computed::new(source, options)?)
    } else {
        return direct::selected(source, &options.query.columns);
    };
    let all = (0..source.facts().schema.fields().len()).collect();
    Ok(direct::bytes_of_media(source, all))
}

/// Refuses `--delta-version` and `--delta-timestamp` for anything but a Delta table.
fn check_travel(kind: SourceKind, options: &SourceOptions) -> Result<(), Error> {
    let option = match (
        options.delta.choice.version,
        options.delta.choice.timestamp_ms,
    ) {
        (Some(_), _) => "--delta-version",
        (None, Some(_)) => "--delta-timestamp",
        (None, None) => return Ok(()),
    };
    if kind == SourceKind::Delta {
        return Ok(());
    }
    Err(SourceProblem::Option.at(
        option,
        format!("applies only to a Delta table, and the source contains {kind}"),
    ))
}

fn check_options(options: &SourceOptions) -> Result<(), Error> {
    let wrong = |option, reason: &str| Err(SourceProblem::Option.at(option, reason));
    if options.query.sql.is_some() && options.query.filter.is_some() {
        return wrong(
            "--where",
            "cannot be combined with --sql: write it in the query",
        );
    }
    if options.query.sql.is_some() && options.query.select.is_some() {
        return wrong(
            "--select",
            "cannot be combined with --sql: write it in the query",
        );
    }
    if matches!(options.csv.delimiter, Some(b'\n' | b'\r' | b'"')) {
        return wrong("--csv-delimiter", "may not be a quote or the end of a line");
    }
    if options.tree.key_column.is_empty() {
        return wrong("--key-column", "needs a name");
    }
    Ok(())
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
