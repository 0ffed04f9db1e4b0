//! The command `shardmill index`: rebuilds, merges and exports indexes.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use shardmill_convert::{ExportOptions, LengthsOptions, ReindexOptions, WrittenLengths};
use shardmill_core::{Error, ErrorKind, Limits, Progress, WORK_FOLDER, escape};
use shardmill_dataset::{
    DatasetProblem, Merged, PROVENANCE_NAME, RebuildOptions, TOMBSTONES_NAME, TarPattern,
};
use shardmill_mds::{HashAlgo, PENDING_NAME, Pending};
use shardmill_storage::{Dir, Location, PublishMode, StorageError};
use shardmill_webdataset::Consumer;
use shardmill_writer::INDEX_NAME;

use super::options;
use crate::args::values::{self, List};
use crate::args::{JobsArgs, StorageArgs};
use crate::error::Stop;
use crate::output::{DatasetReport, Exit, Output, amount, count, many};
use crate::signals;

/// Rebuild or merge index.json, and write lengths and the indexes of other readers
#[derive(Args, Debug)]
pub struct IndexArgs {
    #[command(subcommand)]
    pub verb: IndexVerb,
}

#[derive(Debug, Subcommand)]
pub enum IndexVerb {
    Rebuild(RebuildArgs),
    Merge(MergeArgs),
    Lengths(LengthsArgs),
    Export(ExportArgs),
}

/// Rebuild index.json from the shards of a directory
///
/// Every shard file is read, checked and hashed with the algorithms that its header lists. The headers of tar files list
/// none, so --hashes selects them, and a table of offsets is written next to each.
#[derive(Args, Debug)]
pub struct RebuildArgs {
    /// The directory with the shards
    #[arg(value_name = "DATASET", value_parser = values::local_path)]
    pub dataset: PathBuf,

    /// Replace an index.json or tables of offsets that differ
    #[arg(long)]
    pub force: bool,

    /// Hashes to record for tar files, separated by commas, or none [default: sha256]
    #[arg(long, value_name = "NAME,...", value_parser = values::hashes)]
    pub hashes: Option<List<HashAlgo>>,

    #[command(flatten)]
    pub jobs: JobsArgs,
}

/// Write one index.json over several datasets; their shards stay where they are
///
/// With one directory, all datasets in its subdirectories are merged, in the order of their paths. Several directories
/// are merged in the given order. The shard names are relative to the directory of the new index.
#[derive(Args, Debug)]
pub struct MergeArgs {
    /// A directory with datasets in subdirectories, or the datasets
    #[arg(required = true, value_name = "DIR", value_parser = values::local_path)]
    pub dirs: Vec<PathBuf>,

    /// Directory that receives index.json and contains all datasets; required if there are several
    #[arg(long, value_name = "ROOT", value_parser = values::local_path)]
    pub out: Option<PathBuf>,

    /// Replace an index.json that differs
    #[arg(long)]
    pub force: bool,
}

/// Write the lengths of columns of an MDS dataset beside its index
///
/// `index.lengths.COLUMN` has a number for every sample: the elements of an array, or the bytes of text and other values.
/// It names the index that it belongs to, and is refused for any other one. Of uncompressed shards in a local directory,
/// only offsets and the beginnings of values are read.
#[derive(Args, Debug)]
pub struct LengthsArgs {
    /// The directory of the dataset, or its prefix in a store
    #[arg(value_name = "DATASET", value_parser = values::location)]
    pub dataset: Location,

    /// A column of text, bytes or arrays; repeatable
    #[arg(long = "column", value_name = "COLUMN", required = true, value_parser = values::not_empty)]
    pub columns: Vec<String>,

    #[command(flatten)]
    pub jobs: JobsArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

/// Write the indexes of other readers next to tar shards
///
/// `wids`: shardindex.json. `dali`: NAME.idx next to each shard. `open_clip`: sizes.json. Only headers are read; in a store,
/// also the bytes around them.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// A folder of tar files, with or without an index.json, or a pattern of them; on this machine or in a store
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    /// The readers: wids, dali, open_clip
    #[arg(long = "for", value_name = "READER,...", required = true, value_parser = values::consumers)]
    pub readers: List<Consumer>,

    /// Replace files that differ
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub jobs: JobsArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

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
            return Err(Error::option_hint("config-hashes", fact, "omit it").into());
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
            return Err(Error::option_hint(
                "config-out",
                fact,
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

fn differs(index: &Path) -> Error {
    Error::new(
        ErrorKind::Conflict,
        "index-exists",
        "a different index exists",
    )
    .about(index.display().to_string())
    .with_hint("replace it with --force")
}

const fn state(is_written: bool) -> &'static str {
    match is_written {
        true => "written",
        false => "is already correct",
    }
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
        let what = state(matches!(outcome, Outcome::Written));
        let amount = amount(samples, shards);
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
            out.line(format_args!(
                "{}: {}: {}: {} {} in {}",
                escape(&dataset),
                column.file,
                state(column.written),
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
        None => values::location(&args.dataset)?,
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
            "{}: {} of {}",
            escape(&args.dataset),
            many(report.files.len() as u64, "file"),
            amount(report.samples, report.shards)
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
