//! The command `shardmill select`: selects samples of a dataset, and writes them as a view.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use serde::Serialize;
use shardmill_convert::{SelectBy, select_samples};
use shardmill_core::{Error, Limits, escape};
use shardmill_dataset::{DatasetProblem, View, ViewTarget};
use shardmill_source::{SourceKind, SourceOptions, VersionChoice};
use shardmill_storage::{FileHandle, Location, PublishMode, StorageError};

use super::convert::kinds;
use super::dataset_location::DatasetLocation;
use super::samples::SampleChoice;
use super::source_views::{self, SelectTarget};
use super::tars::tar_set;
use super::{dataset, options, rows};
use crate::args::values::{self, OrNone};
use crate::args::{JobsArgs, StorageArgs};
use crate::error::{Stop, unknown_key, unknown_sample};
use crate::output::{Exit, Output, bytes, count, many};
use crate::signals;

/// Select samples of a dataset, and write them to a small file, a view
///
/// Every command that reads datasets takes the file as `--view`, and `StreamingDataset` as `view=`. They then read and
/// number only these samples. Shards without a selected sample are not fetched. The samples of a run have the order of a
/// dataset that has only them, in shards of the remaining sizes.
///
/// Several conditions select the samples that meet all of them, or with `--any` those that meet at least one. A view names
/// its dataset by the hash of its index, and other datasets refuse it. Deleted samples stay deleted.
///
/// Tables, files and trees have views as well, for `inspect`, `head`, `stats` and `view`. They name the files and their
/// versions. `StreamingDataset(format=…, view=…)` reads a folder of Parquet files or a Delta table in place.
#[derive(Args, Debug)]
pub struct SelectArgs {
    /// The dataset, table, file or tree, in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    /// The file of the view; `-` is standard output
    #[arg(long = "out", short, value_name = "FILE", value_parser = values::local_path)]
    pub out: PathBuf,

    /// Kind of the dataset, such as `mds`, or of the table; `auto` detects it
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = kinds())]
    pub from: OrNone<SourceKind>,

    #[command(flatten)]
    pub conditions: ConditionArgs,

    /// Also number and select deleted samples; they are read only with `--with-deleted`
    #[arg(long)]
    pub with_deleted: bool,

    /// The version of a Delta table; by default the latest
    #[arg(long, value_name = "N", conflicts_with = "with_deleted")]
    pub delta_version: Option<u64>,

    /// Replace an existing file
    #[arg(long)]
    pub overwrite: bool,

    #[command(flatten)]
    pub jobs: JobsArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

// The conditions that samples meet. No doc comment: it would become the text of the verb.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("conditions").args(["filter", "keys", "samples", "views", "without"]).multiple(true).required(true)))]
pub struct ConditionArgs {
    /// Samples for which this SQL expression over their columns is true; `__sample__` is the number of the sample
    #[arg(long = "where", value_name = "SQL", value_parser = values::not_empty)]
    pub filter: Option<String>,

    /// Samples with the keys of this file, one key in each line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub keys: Option<String>,

    /// The column with the keys, for `--keys`
    #[arg(long, value_name = "NAME", default_value = "__key__")]
    pub key_column: String,

    /// Samples with the numbers of this file, one number or range `10..20` in each line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub samples: Option<String>,

    /// Samples of this view; repeatable
    #[arg(long = "view", value_name = "FILE", value_parser = values::location)]
    pub views: Vec<Location>,

    /// Samples that are not in this view; repeatable
    #[arg(long, value_name = "FILE", value_parser = values::location)]
    pub without: Vec<Location>,

    /// Samples that meet at least one condition, instead of all
    #[arg(long)]
    pub any: bool,

    /// All other samples instead
    #[arg(long)]
    pub invert: bool,
}

#[derive(Serialize)]
struct JsonView<'a> {
    view: String,
    bytes: u64,
    dataset: &'a str,
    index: String,
    /// The number of selected samples.
    samples: u64,
    /// The number of samples of the dataset, without deleted ones.
    dataset_samples: u64,
    /// The number of shards with a selected sample.
    shards: u64,
    dataset_shards: u64,
}

pub fn run(args: &SelectArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let out_file = match args.out.as_os_str() == "-" {
        true => None,
        false => {
            let hint = "pass the path of a file: good.view";
            Some(options::folder_of("config-out", &args.out, hint)?)
        }
    };
    if let Some((dir, name)) = &out_file
        && !args.overwrite
        && dir.exists(name)?
    {
        let path = args.out.clone();
        return Err(StorageError::Exists { path }.into());
    }
    let dataset = open(args, &limits)?;
    let view = select(args, &dataset, &limits, out)?;
    // The rows were read from the dataset of this index, if it is the same before and after.
    if args.conditions.filter.is_some() || args.conditions.keys.is_some() {
        let after = open(args, &limits)?;
        if after.target != dataset.target {
            let reason = "the dataset changed while its samples were read";
            return Err(DatasetProblem::FileChanged
                .at(&*args.dataset, reason)
                .into());
        }
    }
    let live = view.live_of(&dataset.target, &*args.dataset)?;
    let file = view.to_bytes();
    let Some((dir, name)) = out_file else {
        out.bytes(&file)?;
        return Ok(Exit::Done);
    };
    let mode = match args.overwrite {
        true => PublishMode::Replace,
        false => PublishMode::CreateNew,
    };
    dir.publish_bytes(None, name, &file, mode)?;
    let mut first = 0;
    let mut shards = 0;
    for stored in &dataset.shards {
        let next = first + stored;
        shards += u64::from(live.count_in(&(first..next)) > 0);
        first = next;
    }
    let found = JsonView {
        view: args.out.display().to_string(),
        bytes: file.len() as u64,
        dataset: &args.dataset,
        index: view.index(),
        samples: live.len(),
        dataset_samples: dataset.target.live.len(),
        shards,
        dataset_shards: dataset.shards.len() as u64,
    };
    // Files and trees that are read in place have no shards.
    let in_shards = match found.dataset_shards {
        0 => String::new(),
        all => format!(", in {} of {}", count(shards), many(all, "shard")),
    };
    if out.wants_summary(&found)? {
        out.line(format_args!(
            "{}: {} of {} samples{} ({})",
            escape(&found.view),
            count(found.samples),
            count(found.dataset_samples),
            in_shards,
            bytes(found.bytes),
        ))?;
    }
    Ok(Exit::Done)
}

fn open(args: &SelectArgs, limits: &Limits) -> Result<SelectTarget, Stop> {
    let location = DatasetLocation::parse(&args.dataset, &args.storage)?;
    let samples = SampleChoice {
        with_deleted: args.with_deleted,
        view: None,
    };
    let found = match args.from {
        None => rows::find(&args.dataset, &location, limits)?,
        from => from,
    };
    match found {
        Some(SourceKind::Webdataset) => {
            let set = tar_set(&location, &samples, limits)?;
            let (target, shards) = set.view_target(limits)?;
            Ok(SelectTarget {
                target,
                shards,
                kind: SourceKind::Webdataset,
            })
        }
        Some(SourceKind::Mds) => {
            let dataset = dataset::open(&args.dataset, &location, limits.clone(), &samples)?;
            Ok(SelectTarget {
                target: dataset.view_target(),
                shards: dataset
                    .index()
                    .shards
                    .iter()
                    .map(|shard| shard.samples)
                    .collect(),
                kind: SourceKind::Mds,
            })
        }
        _ => {
            let version = VersionChoice {
                version: args.delta_version,
                timestamp_ms: None,
            };
            let (text, storage) = (&args.dataset, &args.storage);
            source_views::find(text, &location, storage, limits, args.from, version)
        }
    }
}

/// Selects the samples that meet the conditions.
fn select(
    args: &SelectArgs,
    dataset: &SelectTarget,
    limits: &Limits,
    out: &Output,
) -> Result<View, Stop> {
    let target = &dataset.target;
    let remote = options::remote(&args.storage)?;
    let all = View::of_live(target);
    let mut found: Option<View> = None;
    let mut add = |view: View| -> Result<(), Stop> {
        found = Some(match (found.take(), args.conditions.any) {
            (None, _) => view,
            (Some(found), true) => found.or(&view)?,
            (Some(found), false) => found.and(&view)?,
        });
        Ok(())
    };
    // What needs no data comes first, so that its errors do.
    let views = args.conditions.views.iter().map(|view| (view, false));
    let without = args.conditions.without.iter().map(|view| (view, true));
    for (location, is_inverted) in views.chain(without) {
        let view = View::read(location, &remote)?;
        view.live_of(target, &*args.dataset)?;
        add(if is_inverted { view.inverted() } else { view })?;
    }
    if let Some(file) = &args.conditions.samples {
        add(View::new(target, numbers(args, file, target)?))?;
    }
    let keys = args.conditions.keys.as_deref().map(keys_of).transpose()?;
    let by_keys = keys.as_ref().map(|keys| SelectBy::Keys {
        column: &args.conditions.key_column,
        keys,
    });
    let by_where = args.conditions.filter.as_deref().map(SelectBy::Where);
    for by in by_keys.into_iter().chain(by_where) {
        add(View::new(target, read(args, dataset, by, limits, out)?))?;
    }
    let found = found.unwrap_or_else(|| all.clone());
    Ok(match args.conditions.invert {
        true => all.minus(&found)?,
        false => all.and(&found)?,
    })
}

/// Reads the dataset, and returns the stored numbers of the samples that it finds.
fn read(
    args: &SelectArgs,
    dataset: &SelectTarget,
    by: SelectBy<'_>,
    limits: &Limits,
    out: &Output,
) -> Result<Vec<u64>, Stop> {
    let mut source = match dataset.kind {
        SourceKind::Mds | SourceKind::Webdataset => SourceOptions {
            limits: limits.clone(),
            remote: options::remote(&args.storage)?,
            ..SourceOptions::default()
        },
        _ => options::source(&args.storage, limits.clone())?,
    };
    source.kind = Some(dataset.kind);
    source.delta.choice.version = args.delta_version;
    source.samples.with_deleted = args.with_deleted;
    source.resources.jobs = args.jobs.count();
    let locations = values::locations(&args.dataset)?;
    let selected = signals::with_progress("selecting", out, |progress| {
        select_samples(&locations, by, &source, progress)
    })?;
    if let (Some(first), SelectBy::Keys { column, keys }) = (selected.missing.first(), by) {
        let missing = selected.missing.len();
        let more = format!("; it is the first of {missing} such keys of {}", keys.len());
        return Err(unknown_key(&args.dataset, first, column, &more).into());
    }
    let live = &dataset.target.live;
    let numbers = selected.samples.into_iter();
    Ok(numbers.map(|number| live.stored_number(number)).collect())
}

/// Calls `take` with the lines of a file that are not empty, and their numbers from 1.
fn each_line(file: &str, mut take: impl FnMut(u64, &str) -> Result<(), Stop>) -> Result<(), Stop> {
    let opened = match file {
        "-" => None,
        path => Some(FileHandle::open(Path::new(path))?),
    };
    let reader: Box<dyn Read> = match &opened {
        Some(file) => Box::new(file.reader()),
        None => Box::new(std::io::stdin()),
    };
    for (number, line) in (1_u64..).zip(BufReader::new(reader).lines()) {
        let line = line.map_err(|source| StorageError::Io {
            action: "read",
            path: file.into(),
            source,
        })?;
        if !line.is_empty() {
            take(number, &line)?;
        }
    }
    Ok(())
}

fn keys_of(file: &str) -> Result<HashSet<String>, Stop> {
    let mut keys = HashSet::new();
    each_line(file, |_, line| {
        keys.insert(line.to_owned());
        Ok(())
    })?;
    Ok(keys)
}

/// Returns the stored numbers of the samples that a file lists.
fn numbers(args: &SelectArgs, file: &str, target: &ViewTarget) -> Result<Vec<u64>, Stop> {
    let samples = target.live.len();
    let mut stored = Vec::new();
    each_line(file, |number, line| {
        let wrong = || {
            let fact = format!(
                "line {number} of {}: `{}` is neither a number nor a range",
                escape(file),
                escape(line)
            );
            let hint = "write one number, or one range such as 10..20, in each line";
            Error::option_hint("config-samples", fact, hint)
        };
        let parse = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
        let range = match line.split_once("..") {
            Some((from, to)) => parse(from)?..parse(to)?,
            None => {
                let number = parse(line)?;
                number..number.saturating_add(1)
            }
        };
        if range.end > samples {
            let last = range.end.saturating_sub(1);
            return Err(unknown_sample(&args.dataset, last, samples).into());
        }
        stored.extend(range.map(|number| target.live.stored_number(number)));
        Ok(())
    })?;
    Ok(stored)
}
