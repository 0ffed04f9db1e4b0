//! The options of `shardmill order`.

use std::path::PathBuf;

use clap::Args;

use super::WorldArgs;
use super::range::IndexRange;
use super::values::{self, List};

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
    after_help = AFTER_HELP,
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

const AFTER_HELP: &str = "\
EXAMPLES:
  The first three batches of every rank:
    shardmill order shards/ --shuffle --ranks-per-node 8 --batch-size 32 --batches ..3

  A mix of two datasets, as JSON:
    shardmill order --stream web,proportion=0.7 --stream code,proportion=0.3 --shuffle --json

  How a stopped run resumes with half the machines:
    shardmill order shards/ --shuffle --nodes 2 --resume state.json --batches 0

  Without data, from shard sizes:
    shardmill order --shards 4,3,5 --batch-size 2

  Many configurations:
    shardmill order --json < configurations.jsonl";
