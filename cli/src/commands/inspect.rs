//! The command `shardmill inspect`: describes a source or a dataset.

use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use shardmill_convert::{PROVENANCE_NAME, check_file_options};
use shardmill_core::{Error, ErrorKind, Format, Limits, escape};
use shardmill_dataset::{KEY_COLUMN, TarFile, View, shown_digest};
use shardmill_mds::{Index, Layout, ShardConfig};
use shardmill_source::{SourceKind, SourceOptions, VersionChoice};
use shardmill_storage::Folder;
use shardmill_webdataset::IndexShard;
use shardmill_writer::{ShardFormat, default_target};

use super::dataset::{self, Found};
use super::dataset_location::DatasetLocation;
use super::delta::DeltaTable;
use super::samples::SampleChoice;
use super::shards::{ShardFacts, Shards};
use super::tars::Tars;
use super::{options, rows, source_views};
use crate::args::{FileArgs, SampleArgs, StorageArgs, values};
use crate::error::Stop;
use crate::output::{Exit, Output, Table, amount, bytes, count, many, ratio};

/// Show the contents of a dataset, or how a source would be converted
///
/// For a dataset: format, samples, shards, columns and encodings, sizes, compression, hashes and provenance. For a
/// directory of splits: one line for each. For a Delta table, a Parquet, Arrow, CSV, JSON lines or TFRecord source or a
/// tree of files: its columns, rows and files, and the default encodings of `convert`. For a Delta table also: versions,
/// features, deleted rows and file sizes.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// A dataset, a directory of datasets, or a source; in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub location: String,

    /// List the shards of a dataset instead, one line each: number, samples, raw bytes, stored bytes, name and first hash
    #[arg(long, conflicts_with_all = ["delta_version", "delta_timestamp", "include", "exclude", "follow_links"])]
    pub shards: bool,

    /// In a Delta table: the version to inspect [default: the latest]
    #[arg(long, value_name = "N", conflicts_with = "delta_timestamp", value_parser = values::table_version)]
    pub delta_version: Option<u64>,

    /// In a Delta table: inspect the latest version at this time, such as 2026-01-31T12:00:00Z
    #[arg(long, alias = "timestamp", value_name = "TIME", value_parser = values::table_time)]
    pub delta_timestamp: Option<i64>,

    #[command(flatten)]
    pub samples: SampleArgs,

    #[command(flatten)]
    pub files: FileArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

/// The maximum size of a provenance file in bytes.
const PROVENANCE_BYTES: u64 = 64 << 20;

pub fn run(args: &InspectArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let dataset_location = DatasetLocation::parse(&args.location, &args.storage)?;
    let samples = SampleChoice::read(&args.samples, &args.storage)?;
    if args.shards {
        return list(&args.location, &dataset_location, &limits, &samples, out);
    }
    let mut read = options::source(&args.storage, limits.clone())?;
    read.delta.choice.version = args.delta_version;
    read.delta.choice.timestamp_ms = args.delta_timestamp;
    // Only a table has versions.
    let found = match read.delta.choice == VersionChoice::default() {
        false => Found::Nothing,
        true => dataset::find_any(&dataset_location, &limits)?,
    };
    args.files.apply(&mut read);
    match found {
        Found::Tars => check_file_options(SourceKind::Webdataset, &read)?,
        Found::One | Found::Splits(_) => check_file_options(SourceKind::Mds, &read)?,
        Found::Nothing => {}
    }
    let mut exit = Exit::Done;
    match found {
        Found::Tars | Found::One => {
            let summary = summary(&args.location, &dataset_location, &limits, &samples, out)?;
            out.result(&summary, |out| show(&summary, out))?;
        }
        Found::Splits(splits) => {
            let mut parts = Vec::with_capacity(splits.len());
            for (name, split) in splits {
                match summary(&split.shown(), &split, &limits, &samples, out) {
                    Ok(summary) => parts.push(Part { name, summary }),
                    // A dataset that cannot be opened does not hide the others.
                    Err(Stop::Error(error)) if error.kind() == ErrorKind::Corrupt => {
                        out.console().error(&error, None);
                        exit = Exit::Problems;
                    }
                    Err(stop) => return Err(stop),
                }
            }
            let all = Splits {
                location: &args.location,
                samples: parts.iter().map(|part| part.summary.samples).sum(),
                datasets: parts,
            };
            out.result(&all, |out| show_splits(&all, out))?;
        }
        Found::Nothing => {
            let view = samples.view.as_deref();
            source(&dataset_location, &read, view, args, out)?;
        }
    }
    Ok(exit)
}

/// Lists the shards of the dataset at `location`, which the user typed as `typed`.
fn list(
    typed: &str,
    location: &DatasetLocation,
    limits: &Limits,
    samples: &SampleChoice,
    out: &mut Output,
) -> Result<Exit, Stop> {
    for shard in Shards::open(typed, location, limits, samples)?.facts() {
        if out.is_json() {
            out.json(&shard)?;
            continue;
        }
        let hash = shard.hashes.iter().next();
        let hash = hash.map(|hash| format!("  {}:{hash}", hash.algo()));
        // Columns have a minimum width instead of an exact one, because a list can have a million lines.
        out.line(format_args!(
            "{:>6}  {:>9} samples  {:>10} raw  {:>10} stored  {}{}",
            shard.shard,
            count(shard.samples),
            bytes(shard.raw_bytes),
            bytes(shard.stored_bytes),
            escape(shard.basename),
            hash.unwrap_or_default(),
        ))?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Splits<'a> {
    location: &'a str,
    samples: u64,
    datasets: Vec<Part>,
}

#[derive(Serialize)]
struct Part {
    name: String,
    #[serde(flatten)]
    summary: Summary,
}

#[derive(Serialize)]
struct Summary {
    dataset: String,
    samples: u64,
    /// The number of deleted samples that are still stored.
    #[serde(skip_serializing_if = "is_zero")]
    deleted_samples: u64,
    shards: u64,
    raw_bytes: u64,
    stored_bytes: u64,
    shard_raw_bytes: Option<Spread>,
    /// The layout of the first shard, which most datasets use for all shards.
    #[serde(flatten)]
    first: Option<LayoutSummary>,
    /// The layouts of other shards.
    other_layouts: Vec<LayoutSummary>,
    /// `None` for tar shards without an index.
    index_bytes: Option<u64>,
    index_hash: Option<String>,
    provenance: Option<Value>,
}

#[derive(Serialize)]
struct Spread {
    smallest: u64,
    median: u64,
    largest: u64,
}

#[derive(Serialize)]
struct LayoutSummary {
    format: &'static str,
    columns: Vec<ColumnSummary>,
    compression: Option<String>,
    hashes: Vec<&'static str>,
    size_limit: Option<u64>,
    /// The number of shards with this layout.
    layout_shards: u64,
}

#[derive(PartialEq, Serialize)]
struct ColumnSummary {
    name: String,
    encoding: String,
    /// The size of a value, if it is fixed.
    bytes: Option<u64>,
}

impl ColumnSummary {
    fn new(name: &str, encoding: &impl ToString, bytes: Option<u64>) -> Self {
        Self {
            name: name.to_owned(),
            encoding: encoding.to_string(),
            bytes,
        }
    }
}

/// Opens a dataset. If the list of deleted samples cannot be read, shows a warning and counts all stored samples.
fn open_or_stored(
    shown: &str,
    location: &DatasetLocation,
    limits: &Limits,
    samples: &SampleChoice,
    out: &Output,
) -> Result<Shards, Stop> {
    match Shards::open(shown, location, limits, samples) {
        Err(Stop::Error(error))
            if error.id().starts_with("tombstones-") || error.id().starts_with("provenance-") =>
        {
            let opened = Shards::open(shown, location, limits, &samples.stored())?;
            // Damaged provenance is reported where it is shown.
            if error.id() != "provenance-damaged" {
                let family = error.id().split('-').next().unwrap_or_default();
                out.console().warning(&error.clone().with_id(family));
            }
            Ok(opened)
        }
        opened => opened,
    }
}

fn summary(
    shown: &str,
    location: &DatasetLocation,
    limits: &Limits,
    samples: &SampleChoice,
    out: &Output,
) -> Result<Summary, Stop> {
    let shards = open_or_stored(shown, location, limits, samples, out)?;
    let (layouts, index, sizes): (_, _, Vec<u64>) = match &shards {
        Shards::Indexed(dataset) => {
            let shards = dataset.index().shards.iter();
            (
                layouts(dataset.index()),
                Some((dataset.index_bytes(), dataset.view_target().digest)),
                shards.map(|shard| shard.raw_data.bytes).collect(),
            )
        }
        Shards::Tars(tars) => (
            tar_layouts(tars),
            tars.set
                .indexes()
                .first()
                .map(|index| (index.bytes, index.digest)),
            tars.shards()
                .map(|(_, entry)| entry.raw_data.bytes)
                .collect(),
        ),
    };
    let mut layouts = layouts.into_iter();
    let sum = |bytes: fn(&ShardFacts<'_>) -> u64| {
        shards
            .facts()
            .fold(0_u64, |sum, shard| sum.saturating_add(bytes(&shard)))
    };
    Ok(Summary {
        dataset: shown.to_owned(),
        samples: shards.samples(),
        deleted_samples: shards.deleted(),
        shards: sizes.len() as u64,
        raw_bytes: sum(|shard| shard.raw_bytes),
        stored_bytes: sum(|shard| shard.stored_bytes),
        shard_raw_bytes: spread(sizes),
        first: layouts.next(),
        other_layouts: layouts.collect(),
        index_bytes: index.map(|(bytes, _)| bytes),
        index_hash: index.map(|(_, digest)| shown_digest(&digest)),
        provenance: match location {
            // The provenance of the folder also describes other tar files.
            DatasetLocation::Pattern { .. } => None,
            _ => provenance(&location.folder_or_parent()?, out)?,
        },
    })
}

/// Returns the different configurations with their numbers of shards, by first appearance.
fn layouts(index: &Index) -> Vec<LayoutSummary> {
    let mut found: Vec<(&Arc<ShardConfig>, u64)> = Vec::new();
    for shard in &index.shards {
        match found
            .iter_mut()
            .find(|(config, _)| Arc::ptr_eq(config, &shard.config) || *config == &shard.config)
        {
            Some((_, shards)) => *shards += 1,
            None => found.push((&shard.config, 1)),
        }
    }
    found
        .into_iter()
        .map(|(config, shards)| layout(config, shards))
        .collect()
}

fn layout(config: &ShardConfig, shards: u64) -> LayoutSummary {
    let columns = match &config.layout {
        Layout::Mds { columns } => {
            let columns = columns.iter();
            columns
                .map(|one| ColumnSummary::new(&one.name, &one.encoding, one.encoding.fixed_size()))
                .collect()
        }
        Layout::Json { columns, .. } | Layout::Xsv { columns, .. } => {
            let columns = columns.iter();
            columns
                .map(|one| ColumnSummary::new(&one.name, &one.encoding, None))
                .collect()
        }
    };
    LayoutSummary {
        format: Format::name(config.format()),
        columns,
        compression: config
            .compression
            .map(|compression| compression.to_string()),
        hashes: config.hashes.iter().map(|hash| hash.name()).collect(),
        size_limit: config.size_limit,
        layout_shards: shards,
    }
}

/// Returns the different layouts of tar shards with their numbers of shards, by first appearance.
fn tar_layouts(tars: &Tars) -> Vec<LayoutSummary> {
    let mut layouts: Vec<LayoutSummary> = Vec::new();
    for (shard, entry) in tars.shards() {
        let layout = tar_layout(shard, entry);
        let same = |other: &&mut LayoutSummary| {
            other.compression == layout.compression
                && other.hashes == layout.hashes
                && other.columns == layout.columns
        };
        match layouts.iter_mut().rev().find(same) {
            Some(other) => other.layout_shards += 1,
            None => layouts.push(layout),
        }
    }
    layouts
}

fn tar_layout(shard: &TarFile, entry: &IndexShard) -> LayoutSummary {
    let column = |name: &str, encoding: &str| ColumnSummary::new(name, &encoding, None);
    let always = entry.fields.always.iter();
    let sometimes = entry.fields.sometimes.iter();
    let hashes = entry.stored().hashes.iter();
    let mut columns = vec![column(KEY_COLUMN, "str")];
    columns.extend(always.map(|field| column(field, "bytes")));
    columns.extend(sometimes.map(|field| column(field, "bytes, in some samples")));
    LayoutSummary {
        format: "webdataset",
        columns,
        // Only an index records the level.
        compression: entry.compression.map(|own| match shard.entry() {
            Some(_) => own.to_string(),
            None => own.algorithm().to_string(),
        }),
        hashes: hashes.map(|hash| hash.algo().name()).collect(),
        size_limit: None,
        layout_shards: 1,
    }
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn spread(mut sizes: Vec<u64>) -> Option<Spread> {
    sizes.sort_unstable();
    Some(Spread {
        smallest: *sizes.first()?,
        median: *sizes.get(sizes.len() / 2)?,
        largest: *sizes.last()?,
    })
}

/// Returns the provenance, if shardmill wrote the dataset. A missing provenance file is not an error; a damaged one is
/// a warning.
fn provenance(dir: &Folder, out: &Output) -> Result<Option<Value>, Stop> {
    dir.keep(PROVENANCE_NAME, PROVENANCE_BYTES)?;
    if !dir.exists(PROVENANCE_NAME)? {
        return Ok(None);
    }
    let text = dir
        .open_file(PROVENANCE_NAME)
        .and_then(|file| file.read_all(PROVENANCE_BYTES));
    let fact = match text {
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    let warning = Error::new(
        ErrorKind::Corrupt,
        "provenance",
        format!("cannot be read: {fact}"),
    );
    let path = dir.path_of(PROVENANCE_NAME).display().to_string();
    out.console().warning(&warning.about(path));
    Ok(None)
}

fn show(summary: &Summary, out: &mut Output) -> Result<(), Stop> {
    let size = amount(summary.samples, summary.shards);
    out.line(format_args!("{}: {size}", escape(&summary.dataset)))?;
    let stored = if summary.stored_bytes == summary.raw_bytes {
        bytes(summary.stored_bytes)
    } else {
        format!(
            "{}, ratio {}",
            bytes(summary.stored_bytes),
            ratio(summary.raw_bytes, summary.stored_bytes)
        )
    };
    let mut rows = vec![("raw", bytes(summary.raw_bytes)), ("stored", stored)];
    if summary.deleted_samples > 0 {
        let deleted = many(summary.deleted_samples, "sample");
        rows.push(("deleted", format!("{deleted}, which are not counted")));
    }
    if let Some(spread) = &summary.shard_raw_bytes {
        let sizes = [spread.smallest, spread.median, spread.largest];
        let [smallest, median, largest] = sizes.map(bytes);
        rows.push((
            "raw shards",
            format!("smallest {smallest}, median {median}, largest {largest}"),
        ));
    }
    rows.push((
        "index",
        match (summary.index_bytes, &summary.index_hash) {
            (Some(length), Some(hash)) => format!("{}, {hash}", bytes(length)),
            _ => "none".to_owned(),
        },
    ));
    match (&summary.first, summary.other_layouts.as_slice()) {
        (Some(layout), []) => {
            rows.extend(layout_facts(layout));
            out.text(Table::facts("  ", rows))?;
            out.text(format_args!("\n{}", columns(layout)))?;
        }
        (first, others) => {
            out.text(Table::facts("  ", rows))?;
            for layout in first.iter().chain(others) {
                let shards = many(layout.layout_shards, "shard");
                let (facts, columns) = (Table::facts("  ", layout_facts(layout)), columns(layout));
                out.text(format_args!("\n{shards}:\n{facts}\n{columns}"))?;
            }
        }
    }
    if let Some(provenance) = &summary.provenance {
        show_provenance(provenance, out)?;
    }
    Ok(())
}

fn layout_facts(layout: &LayoutSummary) -> Vec<(&'static str, String)> {
    let none = || "none".to_owned();
    let hashes = if layout.hashes.is_empty() {
        none()
    } else {
        layout.hashes.join(", ")
    };
    vec![
        ("format", layout.format.to_owned()),
        (
            "compression",
            layout.compression.clone().unwrap_or_else(none),
        ),
        ("hashes", hashes),
        ("size limit", layout.size_limit.map_or_else(none, bytes)),
    ]
}

fn columns(layout: &LayoutSummary) -> Table {
    let row = |column: &ColumnSummary| {
        [
            format!("  {}", escape(&column.name)),
            escape(&column.encoding).into_owned(),
            column.bytes.map_or_else(|| "varies".to_owned(), count),
        ]
    };
    Table::of("  column|encoding|>bytes", layout.columns.iter().map(row))
}

/// Shows the most important facts; `--json` contains all of them.
fn show_provenance(value: &Value, out: &mut Output) -> Result<(), Stop> {
    let text = |pointer: &str| {
        value
            .pointer(pointer)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
    };
    let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_u64);
    let named = |pointer: &str, name| text(pointer).map(|text| (name, text.to_owned()));
    let mut rows = Vec::new();
    rows.extend(named("/writer", "written by"));
    if let Some(kind) = text("/source/kind") {
        let files = value.pointer("/source/files").and_then(Value::as_array);
        let files = files.map_or(0, |files| files.len() as u64);
        let files = files.saturating_add(number("/source/files_not_named").unwrap_or(0));
        let facts = [
            Some(kind.to_owned()),
            Some(many(files, "file")),
            number("/source/bytes").map(bytes),
            number("/source/rows").map(|rows| many(rows, "row")),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        rows.push(("from", facts.join(", ")));
    }
    if let Some(version) = number("/source/delta/version") {
        let written = text("/source/delta/timestamp").map(|time| format!(", written {time}"));
        let written = written.unwrap_or_default();
        rows.push(("table", format!("version {version}{written}")));
    }
    rows.extend(named("/source/files/0/path", "first file"));
    rows.extend(named("/source/query", "query"));
    rows.extend(named("/source_fingerprint", "fingerprint"));
    rows.extend(named("/content", "content"));
    if let Some(generation) = number("/increment/generation") {
        let gone = number("/increment/all_tombstones").unwrap_or(0);
        let gone = format!(
            "{}, {} no longer in the table",
            count(generation),
            count(gone)
        );
        rows.push(("generation", gone));
    }
    rows.extend(named("/split", "split"));
    if let Some(dropped) = number("/dropped_rows").filter(|dropped| *dropped > 0) {
        rows.push(("dropped", format!("{} with nulls", many(dropped, "row"))));
    }
    if rows.is_empty() {
        return Ok(());
    }
    let table = Table::facts("  ", rows);
    out.text(format_args!("\n{table}"))
}

fn show_splits(splits: &Splits<'_>, out: &mut Output) -> Result<(), Stop> {
    let samples = many(splits.samples, "sample");
    let datasets = many(splits.datasets.len() as u64, "dataset");
    out.line(format_args!(
        "{}: {samples} in {datasets}",
        escape(splits.location)
    ))?;
    let row = |Part { name, summary }: &Part| {
        let format = summary.first.as_ref().map_or("-", |layout| layout.format);
        [
            format!("  {}", escape(name)),
            count(summary.samples),
            count(summary.shards),
            bytes(summary.raw_bytes),
            bytes(summary.stored_bytes),
            format.to_owned(),
        ]
    };
    let headings = "  name|>samples|>shards|>raw|>stored|format";
    out.text(Table::of(headings, splits.datasets.iter().map(row)))
}

#[derive(Serialize)]
struct SourceSummary<'a> {
    source: &'a str,
    kind: &'static str,
    files: u64,
    bytes: u64,
    rows: Option<u64>,
    fingerprint: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<DeltaTable<'a>>,
    columns: Vec<SourceColumn>,
}

#[derive(Serialize)]
struct SourceColumn {
    name: String,
    #[serde(rename = "type")]
    data_type: String,
    nullable: bool,
    /// The number of nulls, if it is known without reading the data.
    nulls: Option<u64>,
    /// The default encoding of `convert`. `None` if MDS cannot store the type.
    encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Describes a source, and what `convert` would write.
fn source(
    dataset_location: &DatasetLocation,
    options: &SourceOptions,
    view: Option<&View>,
    args: &InspectArgs,
    out: &mut Output,
) -> Result<(), Stop> {
    let shown = &args.location;
    if dataset_location.holds_shards() {
        return Err(dataset_location.no_dataset(shown).into());
    }
    let mut source = shardmill_source::open(&[dataset_location.location()], options)?;
    if let Some(view) = view {
        let version = options.delta.choice;
        let (storage, limits) = (&args.storage, &options.limits);
        let found = source_views::find(shown, dataset_location, storage, limits, None, version)?;
        let live = view.live_of(&found.target, shown.as_str())?;
        source = shardmill_convert::live_rows(source, live, shown)?;
    }
    let description = source.description();
    check_file_options(description.kind, options)?;
    let schema = source.schema();
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (index, field) in schema.fields().iter().enumerate() {
        let target = default_target(field, ShardFormat::Mds);
        columns.push(SourceColumn {
            name: field.name().clone(),
            data_type: field.data_type().to_string(),
            nullable: field.is_nullable(),
            nulls: source.null_count(index),
            encoding: target.as_ref().ok().map(|target| target.name()),
            problem: target.err().map(|error| match error.hint() {
                Some(hint) => format!("{error}; {hint}"),
                None => error.to_string(),
            }),
        });
    }
    let (files, rows_text) = rows::size_of(description);
    let summary = SourceSummary {
        source: shown,
        kind: description.kind.name(),
        files,
        bytes: description.bytes,
        rows: description.rows,
        fingerprint: &description.fingerprint,
        delta: description
            .delta
            .as_ref()
            .map(|delta| DeltaTable::of(delta, description)),
        columns,
    };
    out.result(&summary, |out| show_source(&summary, &rows_text, out))
}

fn show_source(summary: &SourceSummary<'_>, rows: &str, out: &mut Output) -> Result<(), Stop> {
    let (files, size) = (many(summary.files, "file"), bytes(summary.bytes));
    out.line(format_args!(
        "{}: {}, {files}, {size}, {rows}\n",
        escape(summary.source),
        summary.kind
    ))?;
    if let Some(delta) = &summary.delta {
        out.text(Table::facts("  ", delta.facts()))?;
        out.text(format_args!("\n{}\n", delta.sizes()))?;
    }
    let mut table = Table::headed("  column|type|>nulls|encoding");
    for column in &summary.columns {
        let nulls = match (column.nulls, column.nullable) {
            (Some(nulls), _) => count(nulls),
            (None, true) => "?".to_owned(),
            (None, false) => "0".to_owned(),
        };
        let encoding = match (&column.encoding, &column.problem) {
            (Some(encoding), _) => encoding.clone(),
            (None, problem) => format!(
                "none: {}",
                problem.as_deref().unwrap_or("it cannot be stored")
            ),
        };
        table.row([
            format!("  {}", escape(&column.name)),
            escape(&column.data_type).into_owned(),
            nulls,
            escape(&encoding).into_owned(),
        ]);
    }
    out.text(table)
}
