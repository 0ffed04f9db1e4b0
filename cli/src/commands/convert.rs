//! The command `shardmill convert`: writes shards from tables, file trees and datasets.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _};
use std::str::FromStr;

use serde::Serialize;
use shardmill_convert::{
    ColumnOptions, ColumnSpec, ConvertOptions, ConvertPlan, ConvertReport, DestState, Outcome,
    RunOptions, ShardOptions, SplitSpec, TarNames, TarOptions, TokenizeOptions, table_type,
};
use shardmill_core::{Limits, escape};
use shardmill_mds::Encoding;
use shardmill_source::{CopiedStream, SampleOptions, SourceKind, SourceOptions, ZarrOptions};
use shardmill_storage::Location;
use shardmill_writer::{FieldEncoding, ShardFormat};

use super::options;
use crate::args::{ConvertArgs, ShardArgs, TokenArgs, usage_error};
use crate::config_file::{effective_config, with_config};
use crate::error::{CliError, Stop};
use crate::output::{Exit, Output, Table, bytes, count, many, rate, ratio, seconds, show_progress};
use crate::signals;

pub fn run(args: &ConvertArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    if args.run.print_config {
        return print_config(out);
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
        CliError::usage("config-source", fact)
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
fn print_config(out: &mut Output) -> Result<Exit, Stop> {
    let words = with_config(std::env::args_os().collect())?;
    let text = effective_config(&words).map_err(|error| usage_error(&error, &words))?;
    out.text(text)?;
    Ok(Exit::Done)
}

/// Returns the options of the library. Nothing is read here.
fn convert_options(args: &ConvertArgs, limits: Limits) -> Result<ConvertOptions, Stop> {
    check_columns(&args.columns, args.to)?;
    check_unique("lengths", args.rows.lengths.iter())?;
    check_unique("video", args.rows.video.iter())?;
    check_unique("null-as", args.rows.null_as.iter().map(|(name, _)| name))?;
    Ok(ConvertOptions {
        sources: args.sources.concat(),
        dest: args.dest.clone(),
        source: source_options(args, limits)?,
        columns: ColumnOptions {
            specs: args.columns.clone(),
            nulls: args.rows.nulls,
            null_as: args.rows.null_as.clone(),
            lengths: args.rows.lengths.clone(),
            videos: args.rows.video.clone(),
            tokenize: tokenize_options(&args.rows.tokens),
            shuffle: args.rows.shuffle,
            split: args.rows.split.clone().unwrap_or_default(),
            split_key: args.rows.split_key.clone(),
        },
        shards: shard_options(&args.shards, args.to)?,
        run: RunOptions {
            overwrite: args.run.overwrite,
            incremental: args.run.incremental,
            part: args.run.part,
            lease_patience: args.stores.takeover.patience(),
        },
    })
}

fn tokenize_options(args: &TokenArgs) -> Option<TokenizeOptions> {
    let options = TokenizeOptions::new(args.tokenize.as_ref()?);
    Some(TokenizeOptions {
        text: args.text.clone(),
        tokens: args.tokens.clone().unwrap_or(options.tokens),
        special_tokens: args.special_tokens,
        prepend: args.prepend.clone(),
        append: args.append.clone(),
        keep_text: args.keep_text,
        ..options
    })
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

fn shard_options(args: &ShardArgs, to: ShardFormat) -> Result<ShardOptions, CliError> {
    check_format(args, to)?;
    let default = ShardOptions::default();
    let typed = args.compression.as_deref();
    let named = typed.filter(|name| *name != "none");
    let (mut compression, mut tar_compression) = (None, None);
    match to {
        ShardFormat::Mds | ShardFormat::Parquet if typed.is_none() => {
            compression = default.compression;
        }
        ShardFormat::Mds | ShardFormat::Parquet => {
            let known =
                "zstd:1 to zstd:22, gz:0 to gz:9, br:0 to br:11, bz2:1 to bz2:9, snappy or none";
            compression = parse_compression(named, "", known)?;
        }
        ShardFormat::Webdataset => {
            let known = "zstd:1 to zstd:22, gz:0 to gz:9, or none";
            tar_compression = parse_compression(named, " of webdataset", known)?;
        }
    }
    Ok(ShardOptions {
        to,
        compression,
        tar: TarOptions {
            compression: tar_compression,
            pattern: args.shard_pattern.clone().unwrap_or_default(),
            names: args.names,
            index_for: args.index_for.clone().unwrap_or_default(),
        },
        hashes: args.hashes.clone(),
        size_limit: args.size_limit,
        row_group_bytes: args.row_group_size.unwrap_or(default.row_group_bytes),
        samples_per_shard: args.samples_per_shard,
        keep_row_groups: args.keep_row_groups,
    })
}

fn parse_compression<T: FromStr>(
    name: Option<&str>,
    of: &str,
    known: &str,
) -> Result<Option<T>, CliError> {
    let Some(name) = name else {
        return Ok(None);
    };
    let parsed = name.parse().map(Some);
    parsed.map_err(|_| {
        let fact = format!("`{}` is not a compression{of}", escape(name));
        CliError::option("compression", &fact, &format!("choose {known}"))
    })
}

/// Checks that the format has what the options are about.
fn check_format(args: &ShardArgs, to: ShardFormat) -> Result<(), CliError> {
    let is_tar = to == ShardFormat::Webdataset;
    let nothing = || format!("{to} has nothing to choose there");
    let tar_hint = "omit it, or write --to webdataset";
    let refused = match () {
        () if !is_tar && args.shard_pattern.is_some() => ("shard-pattern", nothing(), tar_hint),
        () if !is_tar && args.names != TarNames::Portable => ("names", nothing(), tar_hint),
        () if !is_tar && args.index_for.is_some() => ("index-for", nothing(), tar_hint),
        () if to != ShardFormat::Parquet && args.row_group_size.is_some() => (
            "row-group-size",
            format!("{to} has no row groups"),
            "omit it, or write --to parquet",
        ),
        () if to == ShardFormat::Mds && args.size_limit > Some(u64::from(u32::MAX)) => (
            "size-limit",
            format!(
                "{} bytes are more than a shard can address",
                args.size_limit.unwrap_or_default()
            ),
            "choose at most 4294967295 bytes, or none",
        ),
        () => return Ok(()),
    };
    let (option, fact, hint) = refused;
    Err(CliError::option(option, &fact, hint))
}

/// Checks that no column is given twice.
fn check_unique<'a>(
    option: &'static str,
    mut names: impl Iterator<Item = &'a String>,
) -> Result<(), CliError> {
    let mut seen = BTreeSet::new();
    match names.find(|name| !seen.insert(*name)) {
        Some(name) => {
            let fact = format!("`{}` is given twice", escape(name));
            Err(CliError::option(option, &fact, "name each column once"))
        }
        None => Ok(()),
    }
}

/// Checks that no column is given twice, and that the format has the encodings.
fn check_columns(columns: &[ColumnSpec], to: ShardFormat) -> Result<(), CliError> {
    let named = |is_rest| {
        let names = columns
            .iter()
            .filter(move |column| column.is_rest == is_rest);
        check_unique("column", names.map(|column| &column.name))
    };
    named(false)?;
    named(true)?;
    for column in columns {
        let Some(encoding) = &column.encoding else {
            continue;
        };
        let unknown = || format!("unknown encoding `{}`", escape(encoding));
        let (fact, hint) = match to {
            ShardFormat::Webdataset => {
                let names = FieldEncoding::ALL.map(FieldEncoding::name).join(", ");
                let hint = format!("the encodings of webdataset are {names}");
                (
                    encoding
                        .parse::<FieldEncoding>()
                        .err()
                        .map(|fact| fact.to_string()),
                    hint,
                )
            }
            ShardFormat::Parquet => {
                let hint = "columns of parquet are bytes, str, int or float".to_owned();
                (table_type(encoding).is_none().then(unknown), hint)
            }
            ShardFormat::Mds => {
                let hint = format!("the encodings of MDS are {}", Encoding::names().join(", "));
                (
                    encoding
                        .parse::<Encoding>()
                        .err()
                        .map(|fact| fact.to_string()),
                    hint,
                )
            }
        };
        if let Some(fact) = fact {
            let message = format!("column {}: {fact}", escape(&column.name));
            return Err(CliError::option("column", &message, &hint));
        }
    }
    Ok(())
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
    if form.format() == ShardFormat::Parquet {
        let max = plan.options.shards.row_group_bytes;
        row("row group size", bytes(max));
    }
    if form.format() == ShardFormat::Webdataset {
        row("shards", plan.options.shards.tar.pattern.to_string());
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
    let mut table = Table::headed("column|type|>nulls|encoding");
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
                None => "this conversion is already complete".to_owned(),
                Some(increment) => format!("nothing is new since version {}", increment.version),
            };
            out.line(format_args!(
                "{dest}: {done}, {amount}; nothing was written"
            ))?;
            return Ok(Exit::Done);
        }
        Outcome::Converted => out.line(format_args!("{dest}: {amount}"))?,
        Outcome::Resumed { reused_shards } => {
            let kept = format!("{} of them from the previous run", count(reused_shards));
            out.line(format_args!("{dest}: {amount}, {kept}"))?;
        }
    }
    let is_verbose = out.is_verbose();
    let mut rows = Vec::new();
    let mut row = |name, value| rows.push((name, value));
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
        let mut table = Table::headed("  split|>samples|>shards|>raw|>stored");
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
