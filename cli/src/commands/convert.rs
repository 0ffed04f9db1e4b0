use std::sync::Arc;

use serde::Serialize;
use shardmill_convert::{
    ColumnSpec, ConvertOptions, ConvertPlan, ConvertReport, DestState, Nulls, Outcome, SplitSpec,
    TarNames, TarOptions,
};
use shardmill_core::{Format, Limits, Progress, escape, parse_sample_count};
use shardmill_dataset::TarPattern;
use shardmill_mds::{Compression, Encoding, HashAlgo, TextEncoding};
use shardmill_source::{SchemaRule, SourceKind, TreeGroup};
use shardmill_storage::Location;
use shardmill_webdataset::TarCompression;
use shardmill_writer::{FieldEncoding, ShardFormat, ShardPattern};

use super::{columns, options};
use crate::args::{ConvertArgs, FromName, GroupName, NamesName, NullsName, SchemaName, ToName};
use crate::error::{CliError, Stop};
use crate::output::{
    Align, Display, Exit, Output, Table, bytes, count, many, rate, ratio, seconds,
};
use crate::signals;

pub fn run(args: &ConvertArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let mut options = convert_options(args, limits)?;
    options::announce_waits(&mut options.source.remote, out);
    if args.dry_run {
        let plan = shardmill_convert::plan(options)?;
        return show_plan(&plan, out);
    }
    // Signals are handled from here on, so that a signal while the source is listed is not lost.
    let progress = Arc::new(Progress::new());
    signals::cancel_on_signal(&progress, out.console());
    let plan = shardmill_convert::plan(options)?;
    let display = Display::start(&progress, out.progress_mode(), "converting", out.console());
    let report = shardmill_convert::run(plan, &progress);
    drop(display);
    show_report(&report?, out)
}

/// Converts the typed options to library options. Nothing is read here.
fn convert_options(args: &ConvertArgs, limits: Limits) -> Result<ConvertOptions, Stop> {
    let mut sources = Vec::new();
    for source in &args.sources {
        match TarPattern::parse(source)? {
            Some(pattern) => sources.extend(pattern.locations()),
            None => sources.push(options::place(source)?),
        }
    }
    let takeover = options::takeover_after(&args.takeover)?;
    let to = match args.to {
        ToName::Mds => Format::Mds.into(),
        ToName::Jsonl => Format::Json.into(),
        ToName::Csv => Format::Csv.into(),
        ToName::Tsv => Format::Tsv.into(),
        ToName::Xsv => Format::Xsv.into(),
        ToName::Webdataset => ShardFormat::Webdataset,
    };
    let mut options = ConvertOptions::new(sources, Location::parse(&args.dest)?);
    options.source.remote = options::remote(&args.storage)?;
    options.run.part = args.part.as_deref().map(options::part).transpose()?;
    options.run.lease_patience = takeover;
    options.source.resources.temp_dir = args
        .temp_dir
        .as_deref()
        .map(options::location)
        .transpose()?;
    options.source.kind = match args.from {
        FromName::Auto => None,
        FromName::Delta => Some(SourceKind::Delta),
        FromName::Parquet => Some(SourceKind::Parquet),
        FromName::Arrow => Some(SourceKind::Arrow),
        FromName::Csv => Some(SourceKind::Csv),
        FromName::Tsv => Some(SourceKind::Tsv),
        FromName::Jsonl => Some(SourceKind::JsonLines),
        FromName::Tree => Some(SourceKind::Tree),
        FromName::Mds => Some(SourceKind::Mds),
        FromName::Webdataset => Some(SourceKind::Webdataset),
    };
    options.shards.to = to;
    options.columns.specs = column_specs(&args.columns, to)?;
    options.source.query.select = options::not_blank("select", args.select.as_ref())?;
    options.source.query.filter = options::not_blank("where", args.filter.as_ref())?;
    options.source.query.sql = options::not_blank("sql", args.sql.as_ref())?;
    options.source.delta.version = args
        .version
        .as_deref()
        .map(options::table_version)
        .transpose()?;
    options.source.delta.timestamp_ms = args
        .timestamp
        .as_deref()
        .map(options::table_time)
        .transpose()?;
    options.source.tree.key_column =
        options::not_blank("key", Some(&args.key))?.unwrap_or_default();
    options.source.schema.rule = match args.schema {
        SchemaName::Widen => SchemaRule::Widen,
        SchemaName::Union => SchemaRule::Union,
        SchemaName::Strict => SchemaRule::Strict,
    };
    options.source.tree.group = match args.group {
        GroupName::Stem => TreeGroup::Stem,
        GroupName::Key => TreeGroup::Key,
        GroupName::File => TreeGroup::File,
    };
    options.source.tree.follow_links = args.follow_links;
    let delimiter = args.csv_delimiter.as_deref();
    options.source.csv.delimiter = delimiter.map(csv_delimiter).transpose()?;
    if !args.csv_null.is_empty() {
        options.source.csv.nulls.clone_from(&args.csv_null);
    }
    options.source.csv.header = !args.csv_no_header;
    options.source.text.infer_rows = infer_rows(&args.infer_rows)?;
    let splits = args
        .split
        .as_deref()
        .map_or(Ok(Vec::new()), columns::split)?;
    options.columns.split = splits
        .into_iter()
        .map(|(name, share)| SplitSpec { name, share })
        .collect();
    options.columns.split_key = options::not_blank("split-key", args.split_key.as_ref())?;
    match to {
        ShardFormat::Streaming(_) => {
            if let Some(text) = &args.compression {
                options.shards.compression = compression(text)?;
            }
            no_tar_options(args, to)?;
        }
        ShardFormat::Webdataset => options.shards.tar = tar_options(args)?,
    }
    options.shards.hashes = hashes(&args.hashes)?;
    options.shards.size_limit = size_limit(&args.size_limit, to)?;
    options.shards.samples_per_shard = args
        .samples_per_shard
        .as_deref()
        .map(samples_per_shard)
        .transpose()?;
    options.columns.nulls = match args.nulls {
        NullsName::Error => Nulls::Error,
        NullsName::Mask => Nulls::Mask,
        NullsName::Drop => Nulls::Drop,
        NullsName::Omit => Nulls::Omit,
    };
    options.columns.null_as = columns::null_as(&args.null_as)?;
    options.source.resources.jobs = options::jobs(args.jobs.as_deref())?;
    options.source.resources.memory_limit =
        args.memory_limit.as_deref().map(memory_limit).transpose()?;
    options.run.overwrite = args.overwrite;
    options.run.incremental = args.incremental;
    options.source.with_deleted = args.with_deleted;
    options.shards.separator = separator(args.separator.as_deref(), to)?;
    if let Some(newline) = newline(args.newline.as_deref(), to)? {
        options.shards.newline = newline;
    }
    options.source.limits = limits;
    Ok(options)
}

fn column_specs(typed: &[String], to: ShardFormat) -> Result<Vec<ColumnSpec>, CliError> {
    let columns = columns::columns(typed)?;
    for column in &columns {
        let Some(encoding) = &column.encoding else {
            continue;
        };
        let error = |fact: String, hint: Option<String>| CliError::Option {
            option: "column",
            message: format!("column {}: {fact}", escape(&column.name)),
            hint,
        };
        let to = match to {
            ShardFormat::Streaming(to) => to,
            ShardFormat::Webdataset => {
                let parsed: Result<FieldEncoding, _> = encoding.parse();
                let names = FieldEncoding::ALL.map(FieldEncoding::name).join(", ");
                parsed.map(drop).map_err(|fact| {
                    error(
                        fact.to_string(),
                        Some(format!("the encodings of webdataset are {names}")),
                    )
                })?;
                continue;
            }
        };
        match to {
            Format::Mds => {
                let parsed: Result<Encoding, _> = encoding.parse();
                let names = || {
                    Some(format!(
                        "the encodings of MDS are {}",
                        Encoding::NAMES.join(", ")
                    ))
                };
                parsed
                    .map(drop)
                    .map_err(|fact| error(fact.to_string(), names()))?;
            }
            Format::Json | Format::Csv | Format::Tsv | Format::Xsv => {
                let parsed: Result<TextEncoding, _> = encoding.parse();
                let names = || Some(format!("columns of {to} are str, int or float"));
                parsed
                    .map(drop)
                    .map_err(|fact| error(fact.to_string(), names()))?;
            }
        }
    }
    let specs = columns.into_iter().map(|column| ColumnSpec {
        name: column.name,
        encoding: column.encoding,
        expr: column.expr,
    });
    Ok(specs.collect())
}

fn compression(text: &str) -> Result<Option<Compression>, CliError> {
    if text == "none" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        CliError::option(
            "compression",
            format!("`{}` is not a compression", escape(text)),
            "choose zstd:1 to zstd:22, gz:0 to gz:9, br:0 to br:11, bz2:1 to bz2:9, snappy or none",
        )
    })
}

/// Rejects options that apply only to tar files.
fn no_tar_options(args: &ConvertArgs, to: ShardFormat) -> Result<(), CliError> {
    let given = [
        ("shard-pattern", args.shard_pattern.is_some()),
        ("names", args.names != NamesName::Portable),
        ("index-for", args.index_for.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(CliError::option(
            option,
            format!("{to} has nothing to choose there"),
            "leave it out, or write --to webdataset",
        )),
        None => Ok(()),
    }
}

fn tar_options(args: &ConvertArgs) -> Result<TarOptions, CliError> {
    let compression = match args.compression.as_deref() {
        None | Some("none") => None,
        Some(text) => Some(text.parse::<TarCompression>().map_err(|_| {
            CliError::option(
                "compression",
                format!("`{}` is not a compression of webdataset", escape(text)),
                "choose zstd:1 to zstd:22, gz:0 to gz:9, or none",
            )
        })?),
    };
    let pattern = match args.shard_pattern.as_deref() {
        None => ShardPattern::default(),
        Some(text) => text
            .parse()
            .map_err(|error: shardmill_writer::PatternError| {
                CliError::option(
                    "shard-pattern",
                    error.to_string(),
                    "write a name such as train-%06d.tar",
                )
            })?,
    };
    let index_for = match &args.index_for {
        None => Vec::new(),
        Some(text) => options::consumers("index-for", text)?,
    };
    Ok(TarOptions {
        compression,
        pattern,
        names: match args.names {
            NamesName::Portable => TarNames::Portable,
            NamesName::Any => TarNames::Any,
        },
        index_for,
    })
}

pub fn hashes(text: &str) -> Result<Vec<HashAlgo>, CliError> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let mut hashes = Vec::new();
    for name in text.split(',').map(str::trim) {
        let hash: HashAlgo = name.parse().map_err(|_| {
            let known = HashAlgo::ALL.map(HashAlgo::name).join(", ");
            CliError::option(
                "hashes",
                format!("`{}` is not a hash", escape(name)),
                format!("choose from {known}, or none"),
            )
        })?;
        hashes.push(hash);
    }
    Ok(hashes)
}

fn size_limit(text: &str, to: ShardFormat) -> Result<Option<u64>, CliError> {
    if text == "none" {
        return Ok(None);
    }
    match options::byte_size("size-limit", text)? {
        0 => Ok(None),
        limit if limit > u64::from(u32::MAX) && to != ShardFormat::Webdataset => {
            Err(CliError::option(
                "size-limit",
                format!("{limit} bytes are more than a shard can address"),
                "choose at most 4294967295 bytes, or none",
            ))
        }
        limit => Ok(Some(limit)),
    }
}

fn samples_per_shard(text: &str) -> Result<u64, CliError> {
    match parse_sample_count(text) {
        Ok(samples) if samples > 0 => Ok(samples),
        _ => Err(CliError::option(
            "samples-per-shard",
            format!("`{}` is not a number of samples above 0", escape(text)),
            "write 1000, 10k or 1.5m",
        )),
    }
}

fn memory_limit(text: &str) -> Result<u64, CliError> {
    match options::byte_size("memory-limit", text)? {
        0 => Err(CliError::option(
            "memory-limit",
            "0 bytes are not enough",
            "leave it out, or write a size such as 2GiB",
        )),
        limit => Ok(limit),
    }
}

fn separator(typed: Option<&str>, to: ShardFormat) -> Result<Option<String>, CliError> {
    const XSV: ShardFormat = ShardFormat::Streaming(Format::Xsv);
    match (typed, to) {
        (Some(text), XSV) => options::unescape("separator", text).map(Some),
        (Some(_), _) => Err(CliError::option(
            "separator",
            format!("{to} has none to choose"),
            "leave it out, or write --to xsv",
        )),
        (None, XSV) => Err(CliError::option(
            "separator",
            "xsv needs one",
            "write e.g. --separator '|'",
        )),
        (None, _) => Ok(None),
    }
}

fn newline(typed: Option<&str>, to: ShardFormat) -> Result<Option<String>, CliError> {
    match (typed, to) {
        (None, _) => Ok(None),
        (Some(_), ShardFormat::Streaming(Format::Mds) | ShardFormat::Webdataset) => {
            Err(CliError::option(
                "newline",
                format!("{to} has no lines"),
                "leave it out, or write --to jsonl",
            ))
        }
        (Some(text), _) => options::unescape("newline", text).map(Some),
    }
}

fn show_plan(plan: &ConvertPlan, out: &mut Output) -> Result<Exit, Stop> {
    if out.is_json() {
        out.json(&plan.to_json())?;
        return Ok(Exit::Done);
    }
    let (source, form) = (plan.source(), plan.form());
    let none = || "none".to_owned();
    let rows = source
        .rows
        .map_or_else(|| "rows not counted".to_owned(), |rows| many(rows, "row"));
    let files = source
        .tree
        .as_ref()
        .map_or(source.files.len() as u64, |tree| tree.files);
    let state = match plan.dest_state {
        DestState::Empty => "nothing there yet".to_owned(),
        DestState::Interrupted { shards } => format!(
            "continues after {} that are complete",
            many(shards as u64, "shard")
        ),
        DestState::Done => "done already, nothing to write".to_owned(),
        DestState::Replaced => "replaces the dataset that is there".to_owned(),
        DestState::Behind => behind(plan),
    };
    let hashes: Vec<&str> = form.hashes().iter().map(|hash| hash.name()).collect();
    let mut table = Table::new(&[Align::Left, Align::Left]);
    let mut row =
        |name: &str, value: String| table.row([name.to_owned(), escape(&value).into_owned()]);
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
    if !plan.options.columns.split.is_empty() {
        let share = |split: &SplitSpec| format!("{}={}", split.name, split.share);
        row(
            "split",
            plan.options
                .columns
                .split
                .iter()
                .map(share)
                .collect::<Vec<_>>()
                .join(", "),
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
    if form.format() == ShardFormat::Webdataset {
        row("shards", plan.options.shards.tar.pattern.to_string());
        row("keys", plan.key_source());
    }
    if let Some(samples) = plan.options.shards.samples_per_shard {
        row("samples per shard", count(samples));
    }
    row("nulls", plan.options.columns.nulls.name().to_owned());
    row("jobs", count(plan.options.source.resources.jobs as u64));
    out.text(table)?;
    let mut table = Table::with_heading(&[
        ("column", Align::Left),
        ("type", Align::Left),
        ("nulls", Align::Right),
        ("encoding", Align::Left),
    ]);
    for column in &plan.columns {
        table.row([
            escape(&column.name).into_owned(),
            escape(&column.data_type).into_owned(),
            column.nulls.map_or_else(|| "?".to_owned(), count),
            escape(&column.encoding).into_owned(),
        ]);
    }
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
    if out.is_json() {
        out.json(&JsonReport {
            report,
            samples,
            shards,
            raw_bytes,
            stored_bytes,
        })?;
        return Ok(Exit::Done);
    }
    if out.is_quiet() {
        return Ok(Exit::Done);
    }
    let dest = escape(&report.dest);
    let amount = format!("{} in {}", many(samples, "sample"), many(shards, "shard"));
    match report.outcome {
        Outcome::AlreadyDone => {
            let done = match &report.increment {
                Some(increment) if increment.restored_tombstones => {
                    let version = increment.version;
                    out.line(format_args!(
                        "{dest}: nothing is new since version {version}, {amount}; index.tombstones was restored"
                    ))?;
                    return Ok(Exit::Done);
                }
                None => "this conversion was done already".to_owned(),
                Some(increment) => format!("nothing is new since version {}", increment.version),
            };
            out.line(format_args!(
                "{dest}: {done}, {amount}; nothing was written"
            ))?;
            return Ok(Exit::Done);
        }
        Outcome::Converted => out.line(format_args!("{dest}: {amount}"))?,
        Outcome::Resumed { reused_shards } => {
            let kept = format!("{} of them from the run before", count(reused_shards));
            out.line(format_args!("{dest}: {amount}, {kept}"))?;
        }
    }
    let is_verbose = out.is_verbose();
    let mut table = Table::new(&[Align::Left, Align::Left]);
    let mut row = |name: &str, value: String| table.row([format!("  {name}"), value]);
    if let Some(increment) = &report.increment
        && let Some(from) = increment.from_version
    {
        let added = many(increment.added_samples, "sample");
        let shards = many(increment.added_shards, "shard");
        let version = increment.version;
        row(
            "added",
            format!("{added} in {shards}, from version {from} to {version}"),
        );
        let (gone, all) = (count(increment.tombstones), count(increment.all_tombstones));
        row("gone", format!("{gone}, in index.tombstones {all}"));
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
        row("idle", format!("{idle} of cores at the end"));
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
    out.text(table)?;
    if report.splits.iter().any(|split| !split.name.is_empty()) {
        let mut table = Table::with_heading(&[
            ("  split", Align::Left),
            ("samples", Align::Right),
            ("shards", Align::Right),
            ("raw", Align::Right),
            ("stored", Align::Right),
        ]);
        for split in &report.splits {
            table.row([
                format!("  {}", escape(&split.name)),
                count(split.samples),
                count(split.shards),
                bytes(split.raw_bytes),
                bytes(split.stored_bytes),
            ]);
        }
        out.text(format_args!("\n{table}"))?;
    }
    Ok(Exit::Done)
}

/// Parses the delimiter: one byte, except a quote or a line break.
fn csv_delimiter(text: &str) -> Result<u8, CliError> {
    match options::unescape("csv-delimiter", text)?.as_bytes() {
        [byte] if !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err(CliError::option(
            "csv-delimiter",
            format!("`{}` cannot stand between values", escape(text)),
            "write one ASCII character, such as ; or \\t",
        )),
    }
}

fn infer_rows(text: &str) -> Result<usize, CliError> {
    let rows = super::world::number("infer-rows", text)?;
    match usize::try_from(rows) {
        Ok(rows) if rows > 0 => Ok(rows),
        _ => Err(CliError::option(
            "infer-rows",
            "types cannot be told from no rows",
            "write a number of rows, such as 100000",
        )),
    }
}
