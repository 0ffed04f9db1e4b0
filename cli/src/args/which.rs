//! The options of `shardmill which`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::{WorldArgs, values};

/// Name the samples of a training step, or the steps that delivered a sample
///
/// The order of the samples is computed again, so no log is needed. A step is a batch of all ranks, counted from 0 at
/// the start of the epoch or, with --state, at the position of the state. For each sample, prints its number, its
/// shard and the position in it, its key, and the file and row of the source as far as the dataset records them.
///
/// Options of the order that are left out are taken from the state, if shardmill made it. The batch size and the
/// numbers of nodes and ranks are not part of a state: give those of the run that continued from it.
#[derive(Args, Debug)]
#[command(
    after_help = AFTER_HELP,
    group = ArgGroup::new("question").args(["step", "sample"]).required(true)
)]
pub struct WhichArgs {
    #[command(flatten)]
    pub world: WorldArgs,

    /// Name the samples of this step
    #[arg(long, value_name = "N", value_parser = values::number)]
    pub step: Option<u64>,

    /// Name the steps that delivered this sample
    #[arg(long, value_name = "K", value_parser = values::number)]
    pub sample: Option<u64>,

    /// Only this rank, counted from 0 over all nodes
    #[arg(long, value_name = "R", value_parser = values::number)]
    pub rank: Option<u64>,

    /// The epoch
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Order", value_parser = values::number)]
    pub epoch: u64,

    /// Count steps from a state, a JSON file as returned by `state_dict`
    #[arg(long, value_name = "FILE", conflicts_with = "epoch", help_heading = "Order", value_parser = values::local_path)]
    pub state: Option<PathBuf>,

    /// Number of epochs to search for a sample
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "step", help_heading = "Order", value_parser = values::up_to(1000))]
    pub epochs: u64,

    /// The column with the keys
    #[arg(long, value_name = "NAME", default_value = "__key__")]
    pub key_column: String,

    /// Do not read keys, which are in the shards; everything else is in the index and its side files
    #[arg(long)]
    pub no_keys: bool,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  The samples of step 1200 after a checkpoint, of all ranks:
    shardmill which shards/ --state state.json --step 1200 --nodes 2 --ranks-per-node 8 --batch-size 32

  Those of rank 3 in the first epoch:
    shardmill which shards/ --shuffle --ranks-per-node 8 --step 1200 --rank 3

  When a sample was delivered in the first ten epochs:
    shardmill which shards/ --shuffle --ranks-per-node 8 --sample 90125 --epochs 10

  The rows of the source behind a step, for a script:
    shardmill which shards/ --shuffle --step 7 --json | jq '.samples[] | [.key, .file, .row]'";
