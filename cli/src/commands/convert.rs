//! The command `shardmill convert`: writes shards from tables, file trees and datasets.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Command};
use serde::Serialize;
use shardmill_convert::{
    ColumnOptions, ColumnSpec, ConvertOptions, ConvertPlan, ConvertReport, DestState, Outcome,
    Part, PlannedColumn, RunOptions, ShardOptions, SplitReport, SplitSpec, check_options,
};
use shardmill_core::{Error, Limits, escape};
use shardmill_source::{
    CopiedStream, SampleOptions, SchemaRule, SourceKind, SourceOptions, ZarrOptions,
};
use shardmill_storage::Location;
use shardmill_writer::ShardFormat;

use super::{options, rows};
use crate::args::values::{self, List, OrNone};
use crate::args::{FileArgs, JobsArgs, StorageArgs, TakeoverArgs, usage_error};
use crate::config_file::{effective_config, with_config};
use crate::error::Stop;
use crate::output::{
    Exit, Output, Table, amount, bytes, count, many, rate, ratio, seconds, show_progress,
};
use crate::signals;

/// Convert tables or a tree of files to compressed, hashed, indexed shards
///
/// The same input and options give the same bytes, whatever the number of jobs. An interrupted conversion resumes when
/// the same command is run again. A finished conversion is left unchanged. A directory with `_delta_log` is read as a
/// Delta table, one with Parquet, Arrow, CSV, JSON lines or TFRecord files as a table, tar files as WebDataset. Anything
/// else is read as a tree in which files that share a stem are one sample.
#[derive(Args, Debug)]
pub struct ConvertArgs {
    /// Files, directories or prefixes in stores to read, in this order; `-` for an Arrow stream on standard input
    #[arg(required = true, value_name = "SOURCE", value_parser = values::locations)]
    pub sources: Vec<List<Location>>,

    /// Directory or prefix in a store, such as s3://bucket/set, that receives the shards and `index.json`
    #[arg(value_name = "DEST", value_parser = values::dest)]
    pub dest: Location,

    /// Kind of the source; `auto` detects it
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = kinds())]
    pub from: OrNone<SourceKind>,

    /// Format of the shards
    #[arg(long, value_name = "FORMAT", default_value = "mds", value_parser = formats())]
    pub to: ShardFormat,

    /// A column to write: its name, `:` and an encoding, `=` and an SQL expression; repeatable
    ///
    /// With it, only the named columns are written. `*` stands for all that no other one names, in the encodings of their
    /// types: `--column '*' --column image:jpeg` changes one column. Without it, all columns are written so. A name that
    /// contains `:` or `=`, and the name `*`, are written in double quotes. With `--to webdataset` the name is the
    /// extension of the member, and encodings are bytes, str, int, json, npy and ten. A column that is not named gets the
    /// extension of its encoding (`caption` becomes `caption.txt`).
    #[arg(long = "column", value_name = "NAME[:ENCODING][=EXPR]", value_parser = values::column, help_heading = "Columns and rows")]
    pub columns: Vec<ColumnSpec>,

    #[command(flatten)]
    pub files: FileArgs,

    #[command(flatten)]
    pub query: QueryArgs,

    #[command(flatten)]
    pub csv: CsvArgs,

    #[command(flatten)]
    pub rows: ColumnOptions,

    /// Compression of the shards: zstd, gz, br, bz2 with an optional `:LEVEL`, snappy, or none [default: zstd:3,
    /// none for webdataset, which supports zstd and gz]
    #[arg(long, value_name = "NAME[:LEVEL]", help_heading = "Shards")]
    pub compression: Option<String>,

    #[command(flatten)]
    pub shards: ShardOptions,

    #[command(flatten)]
    pub run: RunArgs,

    #[command(flatten)]
    pub stores: DestArgs,
}

// How the sources are read. No doc comment: it would become the text of the verb. So for the groups that follow.
#[derive(Args, Debug)]
#[command(next_help_heading = "Columns and rows")]
pub struct QueryArgs {
    /// SQL expressions to read, as between SELECT and FROM
    #[arg(long, value_name = "EXPRS", conflicts_with = "sql", value_parser = values::not_empty)]
    pub select: Option<String>,

    /// Keep the rows for which this SQL expression is true
    #[arg(long = "where", value_name = "EXPR", conflicts_with = "sql", value_parser = values::not_empty)]
    pub filter: Option<String>,

    /// A whole SQL query; the table is called `source`
    #[arg(long, value_name = "QUERY", value_parser = values::not_empty)]
    pub sql: Option<String>,

    /// In a Delta table: the version to read [default: the latest]
    #[arg(long, value_name = "N", conflicts_with = "delta_timestamp", value_parser = values::table_version)]
    pub delta_version: Option<u64>,

    /// In a Delta table: read the latest version at this time, such as 2026-01-31T12:00:00Z
    ///
    /// A time without a zone is UTC. A date means its first instant. The time of a version is that of its commit, if
    /// the table records it, and otherwise the modification time of the commit's file.
    #[arg(long, alias = "timestamp", value_name = "TIME", value_parser = values::table_time)]
    pub delta_timestamp: Option<i64>,

    /// Column with the keys of the samples; trees and tar files as sources have one. Without it, the samples of
    /// `--to webdataset` are numbered
    #[arg(long, alias = "key", value_name = "COLUMN", default_value = "__key__", value_parser = values::not_empty)]
    pub key_column: String,

    /// If Parquet or Arrow files have different columns: widen numbers and times to a type that holds the values of
    /// all files (`widen`), also read columns that a file lacks as null (`union`), or reject every difference
    /// (`strict`)
    #[arg(long, value_name = "RULE", default_value = "widen", value_parser = values::named(&SchemaRule::ALL, SchemaRule::name))]
    pub schema: SchemaRule,

    #[command(flatten)]
    pub zarr: ZarrArgs,
}

// How CSV and JSON lines are read.
#[derive(Args, Debug)]
#[command(next_help_heading = "Columns and rows")]
pub struct CsvArgs {
    /// In CSV: the byte between two values; `\t` for a tab [default: a comma, and a tab in `.tsv` files]
    #[arg(long, value_name = "CHAR", value_parser = values::csv_delimiter)]
    pub csv_delimiter: Option<u8>,

    /// In CSV: an unquoted text that means null, such as `NA`; repeatable [default: an empty text]
    #[arg(long, value_name = "TEXT")]
    pub csv_null: Vec<String>,

    /// In CSV: the first line is data; columns are called column_1, column_2, …
    #[arg(long)]
    pub csv_no_header: bool,

    /// In CSV, JSON lines and TFRecord: rows of each file above 64 MiB from which column types are inferred
    #[arg(long, value_name = "N", default_value = "100000", value_parser = values::infer_rows)]
    pub infer_rows: usize,
}

// Which windows of a Zarr store are read.
#[derive(Args, Debug)]
#[command(next_help_heading = "Columns and rows")]
pub struct ZarrArgs {
    /// With `--from zarr`: an array of the store, whose windows become a column; repeatable
    #[arg(long = "variable", value_name = "NAME", value_parser = values::not_empty)]
    pub variables: Vec<String>,

    /// With `--from zarr`: the size of a window along dimensions, such as time=24,lat=64,lon=64
    ///
    /// Each window is a sample. The last dimension moves first. A window has all of the other dimensions. Windows that
    /// do not fit at the end are left out.
    #[arg(long, value_name = "DIMENSION=SIZE,...", value_parser = values::windows)]
    pub window: Option<List<(String, u64)>>,

    /// With `--from zarr`: how far windows move along dimensions [default: their size]
    #[arg(long, value_name = "DIMENSION=STEP,...", requires = "window", value_parser = values::windows)]
    pub stride: Option<List<(String, u64)>>,

    /// With `--from zarr`: keep the stored numbers [default: decode them by the CF conventions]
    ///
    /// By default, values are those of xarray: missing ones are NaN, packed ones are unpacked, and times are timestamps.
    #[arg(long)]
    pub raw_values: bool,
}

// What the run does.
#[derive(Args, Debug)]
#[command(next_help_heading = "Running")]
pub struct RunArgs {
    #[command(flatten)]
    pub jobs: JobsArgs,

    /// Memory for waiting samples and for queries [default: what the shards of all jobs need]
    #[arg(long, value_name = "SIZE", env = "SHARDMILL_MEMORY_LIMIT", hide_env_values = true, value_parser = values::memory_limit)]
    pub memory_limit: Option<u64>,

    /// Read options from this TOML file, under their names on the command line; typed options win
    ///
    /// `sources` is a list, `dest` a text. The table `[columns]` maps the names of columns to encodings, or to
    /// `{ encoding = "...", expr = "..." }`. Options without a value are `true` or `false`.
    #[arg(long, value_name = "FILE", value_parser = values::local_path)]
    pub config: Option<PathBuf>,

    /// Print all options as such a file, and convert nothing
    #[arg(long)]
    pub print_config: bool,

    /// Print the plan and write nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Replace an existing dataset at the destination
    ///
    /// The old dataset stays until the new one is published. The new shards have the number of the replacement in their
    /// names: `shard.00001-00000.mds`.
    #[arg(long)]
    pub overwrite: bool,

    /// Bring the dataset up to date with its Delta table: add new rows, list deleted ones
    ///
    /// The first run converts the table, and records which samples came from which of its files. Later runs read the
    /// files that were added since, append shards, and list the samples whose rows were deleted or changed in
    /// `index.tombstones`. Changed rows are added as new samples.
    #[arg(long)]
    pub incremental: bool,

    /// Also convert samples of a dataset that were deleted from its table
    ///
    /// A dataset that follows a Delta table lists them in `index.tombstones`. By default they are left out.
    #[arg(long)]
    pub with_deleted: bool,

    /// Convert only the samples of this view of a dataset, a file of `select`
    #[arg(long, value_name = "FILE", value_parser = values::location, help_heading = "Running")]
    pub view: Option<Location>,

    /// Write one of several parts, counted from 0; `shardmill commit` publishes all of them
    ///
    /// Parts may be written on different machines, at any time, and again after a failure. The source is divided among
    /// them at the ends of files and row groups.
    #[arg(long, value_name = "I/N", value_parser = values::part)]
    pub part: Option<Part>,
}

// Access to stores.
#[derive(Args, Debug)]
#[command(next_help_heading = "Stores")]
pub struct DestArgs {
    /// Directory for temporary files of uploads and downloads [default: the system's]
    #[arg(long, value_name = "DIR", env = "SHARDMILL_TEMP_DIR", hide_env_values = true, value_parser = values::local_path)]
    pub temp_dir: Option<PathBuf>,

    #[command(flatten)]
    pub takeover: TakeoverArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

pub fn kinds() -> impl TypedValueParser<Value = Option<SourceKind>> {
    let kinds = SourceKind::ALL.map(|kind| (kind.name(), Some(kind)));
    values::choice(std::iter::once(("auto", None)).chain(kinds))
}

fn formats() -> impl TypedValueParser<Value = ShardFormat> {
    values::choice([
        ("mds", ShardFormat::Mds),
        ("webdataset", ShardFormat::Webdataset),
        ("parquet", ShardFormat::Parquet),
    ])
}

pub fn run(
    args: &ConvertArgs,
    limits: Limits,
    definition: fn() -> Command,
    out: &mut Output,
) -> Result<Exit, Stop> {
    if args.run.print_config {
        return print_config(&definition(), out);
    }
    let mut options = convert_options(args, limits)?;
    options::announce_waits(&mut options.source.remote, out);
    let input = standard_input(args, out)?;
    if let Some(input) = &input {
        options.sources = vec![input.location()];
        options.source.kind = Some(SourceKind::Arrow);
    }
    if args.run.dry_run {
        let plan = shardmill_convert::plan(options)?;
        return show_plan(&plan, out);
    }
    // Signals are handled from here on, so that a signal while the source is listed is not lost.
    let progress = signals::cancelled_by_signals(out.console());
    let plan = shardmill_convert::plan(options)?;
    let (mode, console) = (out.progress_mode(), out.console());
    let run = || shardmill_convert::run(plan, &progress);
    let report = show_progress(&progress, mode, "converting", console, run)?;
    show_report(&report, out)
}

/// Reads standard input, if it is the source.
fn standard_input(args: &ConvertArgs, out: &Output) -> Result<Option<CopiedStream>, Stop> {
    const NAME: &str = "-";
    if args.sources.concat() != [Location::Local(NAME.into())] {
        return Ok(None);
    }
    let refused = |fact, hint| {
        Error::usage("config-source", fact)
            .about(NAME)
            .with_hint(hint)
    };
    if !matches!(args.from, None | Some(SourceKind::Arrow)) {
        let fact = "standard input is read as an Arrow stream only";
        return Err(refused(fact, "omit --from, or convert a file").into());
    }
    if io::stdin().is_terminal() {
        let fact = "standard input is a terminal";
        return Err(refused(fact, "pipe an Arrow stream into it").into());
    }
    let progress = signals::cancelled_by_signals(out.console());
    let temp_dir = args.stores.temp_dir.as_deref();
    let copied = CopiedStream::read(io::stdin(), "standard input", temp_dir, &progress)?;
    Ok(Some(copied))
}

/// Prints the options of the command line and of its file.
fn print_config(command: &Command, out: &mut Output) -> Result<Exit, Stop> {
    let words = with_config(std::env::args_os().collect(), command)?;
    let text = effective_config(&words, command).map_err(|error| usage_error(&error, &words))?;
    out.text(text)?;
    Ok(Exit::Done)
}

/// Returns the options of the library. Nothing is read here.
fn convert_options(args: &ConvertArgs, limits: Limits) -> Result<ConvertOptions, Stop> {
    let mut options = ConvertOptions {
        sources: args.sources.concat(),
        dest: args.dest.clone(),
        source: source_options(args, limits)?,
        columns: args.rows.clone(),
        shards: args.shards.clone(),
        run: RunOptions {
            overwrite: args.run.overwrite,
            incremental: args.run.incremental,
            part: args.run.part,
            lease_patience: args.stores.takeover.patience(),
        },
    };
    if let Some(tokenize) = &options.columns.tokenize {
        values::local_path(&tokenize.file.to_string_lossy())?;
    }
    options.columns.specs.clone_from(&args.columns);
    options
        .shards
        .set_format(args.to, args.compression.as_deref())?;
    check_options(&options)?;
    Ok(options)
}

fn source_options(args: &ConvertArgs, limits: Limits) -> Result<SourceOptions, Stop> {
    let (query, csv) = (&args.query, &args.csv);
    let mut read = SourceOptions {
        kind: args.from,
        samples: SampleOptions {
            with_deleted: args.run.with_deleted,
            view: args.run.view.clone(),
            zarr: ZarrOptions {
                variables: query.zarr.variables.clone(),
                window: query.zarr.window.clone().unwrap_or_default(),
                stride: query.zarr.stride.clone().unwrap_or_default(),
                raw_values: query.zarr.raw_values,
            },
        },
        limits,
        remote: options::remote(&args.stores.storage)?,
        ..SourceOptions::default()
    };
    args.stores.takeover.single_writer.apply(&mut read.remote);
    args.files.apply(&mut read);
    read.query.select.clone_from(&query.select);
    read.query.filter.clone_from(&query.filter);
    read.query.sql.clone_from(&query.sql);
    read.schema.rule = query.schema;
    read.delta.choice.version = query.delta_version;
    read.delta.choice.timestamp_ms = query.delta_timestamp;
    read.tree.key_column.clone_from(&query.key_column);
    read.text.infer_rows = csv.infer_rows;
    read.csv.delimiter = csv.csv_delimiter;
    read.csv.header = !csv.csv_no_header;
    if !csv.csv_null.is_empty() {
        read.csv.nulls.clone_from(&csv.csv_null);
    }
    read.resources.jobs = args.run.jobs.count();
    read.resources.memory_limit = args.run.memory_limit;
    read.resources.temp_dir.clone_from(&args.stores.temp_dir);
    Ok(read)
}

fn show_plan(plan: &ConvertPlan, out: &mut Output) -> Result<Exit, Stop> {
    if out.is_json() {
        out.json(&plan.to_json())?;
        return Ok(Exit::Done);
    }
    let (source, form) = (plan.source(), plan.form());
    let none = || "none".to_owned();
    let (files, rows) = rows::size_of(source);
    let state = match plan.dest_state {
        DestState::Empty => "empty".to_owned(),
        DestState::Interrupted { shards } => format!(
            "continues after {} that the previous run completed",
            many(shards as u64, "shard")
        ),
        DestState::Done => "already converted, nothing to write".to_owned(),
        DestState::Replaced => "replaces the existing dataset".to_owned(),
        DestState::Behind => behind(plan),
    };
    let hashes: Vec<&str> = form.hashes().iter().map(|hash| hash.name()).collect();
    let mut facts = Vec::new();
    let mut row = |name, value| facts.push((name, value));
    row(
        "source",
        format!(
            "{}, {}, {}, {rows}",
            source.kind,
            many(files, "file"),
            bytes(source.bytes)
        ),
    );
    if let Some(query) = &source.query {
        row("query", query.clone());
    }
    row("destination", format!("{}: {state}", plan.options.dest));
    let splits = plan.options.columns.splits();
    if !splits.is_empty() {
        let share = |split: &SplitSpec| format!("{}={}", split.name, split.share);
        row(
            "split",
            splits.iter().map(share).collect::<Vec<_>>().join(", "),
        );
    }
    row("format", form.format().to_string());
    row("compression", form.compression().unwrap_or_else(none));
    row(
        "hashes",
        if hashes.is_empty() {
            none()
        } else {
            hashes.join(", ")
        },
    );
    row("size limit", form.size_limit().map_or_else(none, bytes));
    if form.format() == ShardFormat::Parquet {
        let max = plan.options.shards.row_group_bytes();
        row("row group size", bytes(max));
    }
    if form.format() == ShardFormat::Webdataset {
        row("shards", plan.options.shards.tar.pattern().to_string());
        row("keys", plan.key_source());
    }
    if let Some(samples) = plan.options.shards.samples_per_shard {
        row("samples per shard", count(samples));
    }
    if plan.options.shards.keep_row_groups {
        row("shards", "the row groups of the source".to_owned());
    }
    if let Some((file, ids)) = plan.tokenizer() {
        row("tokenizer", format!("{file}, {} ids", count(ids)));
    }
    row("nulls", plan.options.columns.nulls.name().to_owned());
    row("jobs", count(plan.options.source.resources.jobs as u64));
    out.text(Table::facts("", facts))?;
    let row = |column: &PlannedColumn| {
        [
            escape(&column.name).into_owned(),
            escape(&column.data_type).into_owned(),
            column.nulls.map_or_else(|| "?".to_owned(), count),
            escape(&column.encoding).into_owned(),
        ]
    };
    let table = Table::of("column|type|>nulls|encoding", plan.columns.iter().map(row));
    out.text(format_args!("\n{table}"))?;
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct JsonReport<'a> {
    #[serde(flatten)]
    report: &'a ConvertReport,
    samples: u64,
    shards: u64,
    raw_bytes: u64,
    stored_bytes: u64,
}

/// Describes the work that brings a dataset up to date.
fn behind(plan: &ConvertPlan) -> String {
    let Some(planned) = plan.increment() else {
        return String::new();
    };
    let (from, to) = (planned.from_version, planned.version);
    let read = many(planned.files as u64, "file");
    match planned.samples {
        0 => format!("has version {from} of the table, adds {read} of version {to}"),
        samples => format!(
            "has version {from} of the table, compares {} with {read} of version {to}",
            many(samples, "sample")
        ),
    }
}

fn show_report(report: &ConvertReport, out: &mut Output) -> Result<Exit, Stop> {
    let (samples, shards) = (report.samples(), report.shards());
    let (raw_bytes, stored_bytes) = (report.raw_bytes(), report.stored_bytes());
    let json = JsonReport {
        report,
        samples,
        shards,
        raw_bytes,
        stored_bytes,
    };
    if !out.wants_summary(&json)? {
        return Ok(Exit::Done);
    }
    let dest = escape(&report.dest);
    let whole = amount(samples, shards);
    match report.outcome {
        Outcome::AlreadyDone => {
            let done = match &report.increment {
                Some(increment) if increment.restored_tombstones => {
                    let version = increment.version;
                    out.line(format_args!(
                        "{dest}: nothing is new since version {version}, {whole}; index.tombstones was restored"
                    ))?;
                    return Ok(Exit::Done);
                }
                None => "this conversion is already complete".to_owned(),
                Some(increment) => format!("nothing is new since version {}", increment.version),
            };
            out.line(format_args!("{dest}: {done}, {whole}; nothing was written"))?;
            return Ok(Exit::Done);
        }
        Outcome::Converted => out.line(format_args!("{dest}: {whole}"))?,
        Outcome::Resumed { reused_shards } => {
            let kept = format!("{} of them from the previous run", count(reused_shards));
            out.line(format_args!("{dest}: {whole}, {kept}"))?;
        }
    }
    let is_verbose = out.is_verbose();
    let mut rows = Vec::new();
    let mut row = |name, value| rows.push((name, value));
    if let Some(increment) = &report.increment
        && let Some(from) = increment.from_version
    {
        let added = amount(increment.added_samples, increment.added_shards);
        let version = increment.version;
        row(
            "added",
            format!("{added}, from version {from} to {version}"),
        );
        let deleted = many(increment.tombstones, "sample");
        row(
            "deleted",
            match increment.all_tombstones {
                0 => deleted,
                all => format!(
                    "{deleted} since version {from}, {} in all; they are not counted above",
                    count(all)
                ),
            },
        );
    }
    row("raw", bytes(raw_bytes));
    let ratio = ratio(raw_bytes, stored_bytes);
    row("stored", format!("{}, ratio {ratio}", bytes(stored_bytes)));
    row(
        "time",
        format!(
            "{} at {}",
            seconds(report.elapsed_seconds),
            rate(raw_bytes, report.elapsed_seconds)
        ),
    );
    if is_verbose {
        let idle = seconds(report.idle_seconds);
        row("idle", format!("{idle} of core time at the end"));
    }
    if report.dropped_rows > 0 {
        row(
            "dropped",
            format!("{} with nulls", many(report.dropped_rows, "row")),
        );
    }
    if report.deleted_samples > 0 {
        let deleted = many(report.deleted_samples, "sample");
        row(
            "deleted",
            format!("{deleted} of the source left out; --with-deleted converts them too"),
        );
    }
    if (report.increment.as_ref()).is_some_and(|increment| increment.restored_tombstones) {
        row("restored", "index.tombstones".to_owned());
    }
    out.text(Table::facts("  ", rows))?;
    if report.splits.iter().any(|split| !split.name.is_empty()) {
        let row = |split: &SplitReport| {
            [
                format!("  {}", escape(&split.name)),
                count(split.samples),
                count(split.shards),
                bytes(split.raw_bytes),
                bytes(split.stored_bytes),
            ]
        };
        let headings = "  split|>samples|>shards|>raw|>stored";
        let table = Table::of(headings, report.splits.iter().map(row));
        out.text(format_args!("\n{table}"))?;
    }
    Ok(Exit::Done)
}
