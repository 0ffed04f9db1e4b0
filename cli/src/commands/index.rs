//! The command `shardmill index`: rebuilds, merges and exports indexes.

use std::path::Path;

use serde::Serialize;
use shardmill_convert::{ExportOptions, LengthsOptions, ReindexOptions, WrittenLengths};
use shardmill_core::{ErrorKind, Limits, Progress, WORK_FOLDER, escape};
use shardmill_dataset::DatasetProblem;
use shardmill_dataset::{Merged, PROVENANCE_NAME, RebuildOptions, TOMBSTONES_NAME, TarPattern};
use shardmill_mds::{HashAlgo, PENDING_NAME, Pending};
use shardmill_storage::{Dir, PublishMode, StorageError};
use shardmill_writer::INDEX_NAME;

use super::options;
use crate::args::{
    ExportArgs, IndexArgs, IndexVerb, LengthsArgs, MergeArgs, RebuildArgs, parse_location,
};
use crate::error::{CliError, Stop};
use crate::output::{DatasetReport, Exit, Output, count, many};
use crate::signals;

#[derive(Serialize)]
struct JsonReport<'a> {
    index: &'a str,
    outcome: Outcome,
    samples: u64,
    shards: u64,
}

/// What happened to the index file.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Written,
    Unchanged,
}

pub fn run(args: &IndexArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    match &args.verb {
        IndexVerb::Rebuild(args) => rebuild(args, limits, out),
        IndexVerb::Merge(args) => merge(args, &limits, out),
        IndexVerb::Lengths(args) => lengths(args, limits, out),
        IndexVerb::Export(args) => export(args, limits, out),
    }
}

fn rebuild(args: &RebuildArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let options = RebuildOptions {
        limits,
        jobs: args.jobs.count(),
    };
    let (text, samples, shards) =
        signals::with_progress("reading", out, |progress| made(args, options, progress))?;
    let outcome = publish(&args.dataset, &text, args.force)?;
    show(&args.dataset, outcome, samples, shards, out)
}

/// Returns the text of the index, and its numbers of samples and shards.
fn made(
    args: &RebuildArgs,
    options: RebuildOptions,
    progress: &Progress,
) -> Result<(String, u64, u64), Stop> {
    let is_none = match shardmill_dataset::rebuild_index(&args.dataset, &options, progress) {
        Err(error) if error.problem() == Some(DatasetProblem::NoShards) => error,
        Err(error) if error.is_unfinished() => return Err(error.into()),
        _ if args.hashes.is_some() => {
            let fact = "the headers of these shards say which hashes their index has";
            return Err(CliError::option("hashes", fact, "omit it").into());
        }
        index => {
            let index = index?;
            return Ok((index.to_json(), index.samples(), index.shards.len() as u64));
        }
    };
    let options = ReindexOptions {
        hashes: args
            .hashes
            .clone()
            .unwrap_or_else(|| vec![HashAlgo::Sha256]),
        jobs: options.jobs,
        replace: args.force,
        limits: options.limits,
    };
    let index =
        shardmill_convert::reindex_tars(&args.dataset, &options, progress)?.ok_or(is_none)?;
    let (samples, shards) = (index.samples(), index.shards.len() as u64);
    Ok((index.to_json(), samples, shards))
}

fn merge(args: &MergeArgs, limits: &Limits, out: &mut Output) -> Result<Exit, Stop> {
    let (root, merged) = match (args.dirs.as_slice(), &args.out) {
        ([root], None) => (root, shardmill_dataset::merge_indexes(root, limits)?),
        (_, Some(root)) => {
            let merged = shardmill_dataset::merge_index_list(&args.dirs, root, limits)?;
            (root, merged)
        }
        (_, None) => {
            let fact = format!("there are {} directories to merge", args.dirs.len());
            return Err(CliError::option(
                "out",
                &fact,
                "name the directory of the merged index with --out",
            )
            .into());
        }
    };
    let outcome = publish_merged(root, &merged, args.force)?;
    let index = &merged.index;
    let samples = index.samples().saturating_sub(merged.deleted);
    show(root, outcome, samples, index.shards.len() as u64, out)?;
    if merged.deleted > 0 {
        out.note(format_args!(
            "{} are deleted, and listed in {TOMBSTONES_NAME}",
            many(merged.deleted, "sample")
        ))?;
    }
    Ok(Exit::Done)
}

/// Publishes a merged index, then its side files. Until these are there, readers take them from a note.
fn publish_merged(path: &Path, merged: &Merged, force: bool) -> Result<Outcome, Stop> {
    let text = merged.index.to_merged_json();
    let dir = Dir::open(path)?;
    let text_of = |name: &str| {
        let own = merged.files.iter().find(|(own, _)| *own == name);
        own.map(|(_, text)| text.as_str())
    };
    let mut stale: Vec<&'static str> = Vec::new();
    for name in [TOMBSTONES_NAME, PROVENANCE_NAME] {
        let is_right = match text_of(name) {
            Some(text) => is_same(&dir, name, text)? == Some(true),
            None => !dir.exists(name)?,
        };
        if !is_right {
            stale.push(name);
        }
    }
    let is_refused = !force && is_same(&dir, INDEX_NAME, &text)? == Some(false);
    if stale.is_empty() || is_refused {
        return publish(path, &text, force);
    }
    let files = stale
        .iter()
        .map(|name| (*name, text_of(name).map(str::to_owned)));
    let note = serde_json::to_string(&Pending::new(&text, files)).unwrap_or_default();
    let mode = PublishMode::Replace;
    let work = dir.make_dir(WORK_FOLDER)?;
    dir.publish_bytes(Some(WORK_FOLDER), PENDING_NAME, note.as_bytes(), mode)?;
    publish(path, &text, force)?;
    for name in stale {
        match text_of(name) {
            Some(text) => dir.publish_bytes(None, name, text.as_bytes(), mode)?,
            None => {
                dir.remove(name)?;
            }
        }
    }
    dir.sync()?;
    dir.remove(PENDING_NAME)?;
    if work.entries()?.is_empty() {
        dir.remove_dir(WORK_FOLDER)?;
    }
    Ok(Outcome::Written)
}

/// Returns whether a file has this text; `None` if there is no such file.
fn is_same(dir: &Dir, name: &str, text: &str) -> Result<Option<bool>, StorageError> {
    match dir.open_file(name) {
        Ok(file) if file.len() != text.len() as u64 => Ok(Some(false)),
        Ok(file) => Ok(Some(file.read_all(file.len())? == text.as_bytes())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Publishes the index. An existing index is kept unless it is to be replaced. An identical one counts as success.
fn publish(path: &Path, text: &str, force: bool) -> Result<Outcome, Stop> {
    let dir = Dir::open(path)?;
    match is_same(&dir, INDEX_NAME, text)? {
        Some(true) => return Ok(Outcome::Unchanged),
        Some(false) if !force => return Err(differs(&dir.path_of(INDEX_NAME)).into()),
        _ => {}
    }
    let mode = if force {
        PublishMode::Replace
    } else {
        PublishMode::CreateNew
    };
    match dir.publish_bytes(None, INDEX_NAME, text.as_bytes(), mode) {
        // Another process has published an index in the meantime.
        Err(StorageError::Exists { path }) => Err(differs(&path).into()),
        published => {
            published?;
            Ok(Outcome::Written)
        }
    }
}

fn differs(index: &Path) -> CliError {
    CliError::new(
        ErrorKind::Conflict,
        "index-exists",
        "a different index exists",
    )
    .about(&index.display().to_string())
    .with_hint("replace it with --force")
}

fn show(
    root: &Path,
    outcome: Outcome,
    samples: u64,
    shards: u64,
    out: &mut Output,
) -> Result<Exit, Stop> {
    let path = root.join(INDEX_NAME).display().to_string();
    let json = JsonReport {
        index: &path,
        outcome,
        samples,
        shards,
    };
    if out.wants_summary(&json)? {
        let what = match outcome {
            Outcome::Written => "written",
            Outcome::Unchanged => "is already correct",
        };
        let amount = format!("{} in {}", many(samples, "sample"), many(shards, "shard"));
        out.line(format_args!("{}: {what}: {amount}", escape(&path)))?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct JsonLengths<'a> {
    dataset: &'a str,
    columns: &'a [WrittenLengths],
}

fn lengths(args: &LengthsArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let options = LengthsOptions {
        columns: args.columns.clone(),
        jobs: args.jobs.count(),
        limits,
        remote: options::remote(&args.storage)?,
    };
    let columns = signals::with_progress("measuring", out, |progress| {
        shardmill_convert::write_lengths(&args.dataset, &options, progress)
    })?;
    let dataset = args.dataset.to_string();
    let json = JsonLengths {
        dataset: &dataset,
        columns: &columns,
    };
    if out.wants_summary(&json)? {
        for column in &columns {
            let state = match column.written {
                true => "written",
                false => "is already correct",
            };
            out.line(format_args!(
                "{}: {}: {state}: {} {} in {}",
                escape(&dataset),
                column.file,
                count(column.total),
                column.unit,
                many(column.samples, "sample")
            ))?;
        }
    }
    Ok(Exit::Done)
}

fn export(args: &ExportArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let pattern = TarPattern::parse(&args.dataset)?;
    let location = match &pattern {
        Some(pattern) => pattern.folder().clone(),
        None => parse_location(&args.dataset)?,
    };
    let options = ExportOptions {
        readers: args.readers.clone(),
        jobs: args.jobs.count(),
        replace: args.force,
        limits,
        remote: options::remote(&args.storage)?,
    };
    let report = signals::with_progress("reading", out, |progress| match &pattern {
        Some(pattern) => shardmill_convert::export_pattern(pattern, &options, progress),
        None => shardmill_convert::export(&location, &options, progress),
    })?;
    let json = DatasetReport {
        dataset: &args.dataset,
        report: &report,
    };
    if out.wants_summary(&json)? {
        out.line(format_args!(
            "{}: {} of {} in {}",
            escape(&args.dataset),
            many(report.files.len() as u64, "file"),
            many(report.samples, "sample"),
            many(report.shards, "shard")
        ))?;
        for file in &report.files {
            out.line(format_args!("  {}", escape(file)))?;
        }
        if report.deleted_samples > 0 {
            out.note(format_args!(
                "{} are deleted, and other readers deliver them; `shardmill convert` leaves them out",
                many(report.deleted_samples, "sample")
            ))?;
        }
    }
    Ok(Exit::Done)
}
