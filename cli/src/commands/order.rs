//! The command `shardmill order`: prints the samples of each rank.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use shardmill_core::{Error, ErrorKind, Limits};
use shardmill_order::{Cursor, Entry, Epoch, EpochConfig, StreamConfig, World};
use shardmill_reader::RunState;

use super::dataset_location::DatasetLocation;
use super::shards::Shards;
use super::{requests, world};
use crate::args::WorldArgs;
use crate::args::range::IndexRange;
use crate::args::values::{self, List};
use crate::error::Stop;
use crate::output::{Exit, Output, count, many};

/// Print the samples that every rank receives, batch by batch
///
/// Prints one line for each rank and batch, with the numbers of its samples in order. Samples with a `*` are repeated
/// to fill the last batches. The same options give the same numbers on every machine, and the algorithms of MosaicML
/// Streaming give the same numbers as MosaicML Streaming. With --json, one object per line: `rank`, `batch`, `worker`,
/// `samples`, and in `repeated` the positions of the repeated samples.
///
/// With --json and without a dataset, configurations are read from standard input, one JSON object per line. Each is
/// answered with one line as soon as it is ready: `{"id": …, "orders": [rank][worker] → samples}` or
/// `{"id": …, "error": …}`. A configuration has an `id`, `streams` (each with `shards`, a list of sizes, and at most
/// one of `proportion`, `repeat`, `choose`), the options below with underscores, `epoch`, and `resume`: null or a state.
#[derive(Args, Debug)]
#[command(
    mut_arg("datasets", |arg| arg.required_unless_present(clap::builder::Resettable::Reset).conflicts_with("shards"))
)]
pub struct OrderArgs {
    #[command(flatten)]
    pub world: WorldArgs,

    /// Sizes of the shards of a stream, instead of a dataset; repeatable
    #[arg(long, value_name = "N,...", conflicts_with = "streams", help_heading = "Order", value_parser = values::sizes)]
    pub shards: Vec<List<u64>>,

    /// The epoch
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Order", value_parser = values::number)]
    pub epoch: u64,

    /// Resume from a state, a JSON file as returned by `state_dict`
    #[arg(long, value_name = "FILE", conflicts_with = "epoch", help_heading = "Order", value_parser = values::local_path)]
    pub resume: Option<PathBuf>,

    /// Only this rank, counted from 0 over all nodes
    #[arg(long, value_name = "R", value_parser = values::number)]
    pub rank: Option<u64>,

    /// Only these batches: `7`, `-1` (the last), `10..20` (20 not included), `10..`, `..20`; 0 is the first batch, or the
    /// next one after a state
    #[arg(long, value_name = "A..B", value_parser = IndexRange::parse)]
    pub batches: Option<IndexRange>,

    /// Threads that answer the configurations on standard input [default: one for each core]
    #[arg(long, short, value_name = "N", conflicts_with_all = ["datasets", "streams", "shards"], value_parser = values::jobs)]
    pub jobs: Option<usize>,
}

#[derive(Serialize)]
struct JsonBatch<'a> {
    rank: u64,
    batch: u64,
    worker: u64,
    samples: &'a [u64],
    repeated: &'a [usize],
}

pub fn run(args: &OrderArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let mut config = world::epoch_config(&args.world, Vec::new())?;
    config.epoch = args.epoch;
    let (rank, batches) = (args.rank, args.batches);

    if world::streams(&args.world).is_empty() && args.shards.is_empty() {
        if !out.is_json() {
            let hint = "name a dataset, pass sizes with --shards, or pass configurations on standard input with --json";
            let error = Error::usage("usage-missing-argument", "missing: <DATASET>...");
            return Err(error.with_hint(hint).into());
        }
        let nothing = EpochConfig::new(Vec::new(), config.batch_size, World::SINGLE);
        if config != nothing || rank.is_some() || batches.is_some() || args.resume.is_some() {
            let message = "without a dataset, standard input describes the orders, and options have no effect";
            let error = Error::usage("usage-conflict", message);
            return Err(error
                .with_hint("name a dataset, or omit the options")
                .into());
        }
        return requests::run(args.jobs, out);
    }

    let state = args.resume.as_deref().map(load).transpose()?;
    config.streams = streams(args, &limits)?;
    if let (Some(state), Some(path)) = (state, &args.resume) {
        resume(&mut config, &state, path)?;
    }
    let epoch = Epoch::new(&config)?;
    let batches = match batches {
        Some(batches) => batches.batches_of(epoch.batches())?,
        None => 0..epoch.batches(),
    };
    let repeats = print(&epoch, &config, rank, batches.clone(), out)?;
    summary(&epoch, &config, &batches, repeats, out)?;
    Ok(Exit::Done)
}

/// Returns the streams: those of the datasets, or those given by shard sizes.
fn streams(args: &OrderArgs, limits: &Limits) -> Result<Vec<StreamConfig>, Stop> {
    let sizes = args.shards.iter();
    let mut streams: Vec<_> = sizes.map(|sizes| StreamConfig::new(sizes)).collect();
    for stream in world::streams(&args.world) {
        let (storage, samples) = (&args.world.storage, world::samples(&args.world, &stream)?);
        let location = DatasetLocation::parse(&stream.location, storage)?;
        let shards = Shards::open(&stream.location, &location, limits, &samples)?;
        streams.push(shards.stream_config().with_weight(stream.weight));
    }
    Ok(streams)
}

pub fn load(path: &Path) -> Result<RunState, Stop> {
    RunState::load(path).map_err(|error| of_state(error, path))
}

/// Makes a run resume from the state in a file.
pub fn resume(config: &mut EpochConfig, state: &RunState, path: &Path) -> Result<(), Stop> {
    let resumed = state
        .resume_mixture(config)
        .and_then(|()| state.resume(config));
    config.resume = Some(resumed.map_err(|error| of_state(error, path))?);
    Ok(())
}

/// Adds the name of the state file to an error.
fn of_state(error: Error, path: &Path) -> Stop {
    // Errors of the order are about the options.
    match error.object() {
        Some("state") if error.kind() != ErrorKind::InvalidInput => {
            error.about(path.display().to_string()).into()
        }
        _ => error.into(),
    }
}

/// Prints batches. Returns whether some of their samples are repeated.
fn print(
    epoch: &Epoch,
    config: &EpochConfig,
    rank: Option<u64>,
    batches: Range<u64>,
    out: &mut Output,
) -> Result<bool, Stop> {
    let replicas = config.replication.unwrap_or(1);
    let part = usize::try_from(config.batch_size).unwrap_or(usize::MAX);
    let mut reader = match rank {
        Some(rank) => epoch.rank(rank)?,
        None => epoch.all_ranks(),
    };
    let mut ranks = Vec::new();
    let mut entries = Vec::new();
    let mut repeats = false;
    for batch in batches {
        let worker = batch % config.world.workers_per_rank;
        let mut show = |rank: u64, part: &[Entry]| -> Result<(), Stop> {
            repeats |= part.iter().any(|entry| entry.repeated);
            line(rank, batch, worker, part, out)
        };
        reader.read(batch, &mut entries);
        if let Some(rank) = rank {
            show(rank, &entries)?;
            continue;
        }
        if entries.len() as u64 == epoch.global_batch() {
            for (rank, part) in (0_u64..).zip(entries.chunks_exact(part)) {
                for replica in 0..replicas {
                    show(rank * replicas + replica, part)?;
                }
            }
            continue;
        }
        // Only some ranks may lack samples.
        if ranks.is_empty() {
            ranks = each_rank(epoch, config)?;
        }
        for (rank, cursor) in (0_u64..).zip(&mut ranks) {
            cursor.read(batch, &mut entries);
            show(rank, &entries)?;
        }
    }
    Ok(repeats)
}

/// Creates a cursor for each rank, to read the last batches. Together they use as much memory as one with a full
/// window.
fn each_rank(epoch: &Epoch, config: &EpochConfig) -> Result<Vec<Cursor>, Error> {
    let ranks = config.world.ranks();
    let window = ((1 << 17) / ranks.max(1)).max(1 << 8);
    let cursors = (0..ranks).map(|rank| Ok(epoch.rank(rank)?.with_window(window)));
    cursors.collect()
}

fn line(rank: u64, batch: u64, worker: u64, part: &[Entry], out: &mut Output) -> Result<(), Stop> {
    if out.is_json() {
        let samples: Vec<u64> = part.iter().map(|entry| entry.sample.0).collect();
        let repeated = part.iter().enumerate();
        let repeated: Vec<usize> = repeated
            .filter(|(_, entry)| entry.repeated)
            .map(|(index, _)| index)
            .collect();
        return out.json(&JsonBatch {
            rank,
            batch,
            worker,
            samples: &samples,
            repeated: &repeated,
        });
    }
    let mut text = format!("rank {rank} batch {batch}:");
    for entry in part {
        text.push(' ');
        text.push_str(&entry.sample.0.to_string());
        if entry.repeated {
            text.push('*');
        }
    }
    out.line(text)
}

/// Prints a summary of the printed order to standard error.
fn summary(
    epoch: &Epoch,
    config: &EpochConfig,
    batches: &Range<u64>,
    repeats: bool,
    out: &mut Output,
) -> Result<(), Stop> {
    let resolved = epoch.resolved();
    let from = match resolved.sample_in_epoch {
        0 => String::new(),
        sample => format!(" from sample {} on", count(sample)),
    };
    let shown = if *batches == (0..epoch.batches()) {
        String::new()
    } else {
        format!("{} of ", count(batches.end - batches.start))
    };
    let repeats = if repeats {
        "; * marks repeated samples that fill a batch"
    } else {
        ""
    };
    out.note(format_args!(
        "epoch {}{from}: {}, {shown}{} of {}, {}, {}{repeats}",
        resolved.epoch,
        many(epoch.samples(), "sample"),
        many(epoch.batches(), "batch"),
        count(epoch.global_batch()),
        many(config.world.ranks(), "rank"),
        many(resolved.canonical_nodes, "canonical node"),
    ))
}
