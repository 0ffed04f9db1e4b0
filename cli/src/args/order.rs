use clap::Args;

use super::WorldArgs;

/// Print which samples every rank is given, batch by batch
///
/// One line for each rank and batch, with the numbers of its samples in the order in which they are given; those with
/// a `*` were given before and fill the last batches up. The same options give the same numbers on every machine, and
/// the algorithms of MosaicML Streaming the numbers that it gives. With --json, one object a line: `rank`, `batch`,
/// `worker`, `samples`, and in `repeated` the places of those that fill up.
///
/// With --json and without a dataset, configurations are read from standard input, one JSON object a line, and
/// answered with one line each, as soon as they are ready: `{"id": …, "orders": [rank][worker] → samples}` or
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
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N,...",
        conflicts_with = "streams",
        help_heading = "Order"
    )]
    pub shards: Vec<String>,

    /// Which epoch
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "0",
        help_heading = "Order"
    )]
    pub epoch: String,

    /// Go on from a state, a JSON file as `state_dict` gives it
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "epoch",
        help_heading = "Order"
    )]
    pub resume: Option<String>,

    /// Only this rank, counted from 0 through all nodes
    #[arg(long, allow_hyphen_values = true, value_name = "R")]
    pub rank: Option<String>,

    /// Only these batches: `7`, `10..20` (20 not included), `10..`, `..20`; 0 is the first, or the next one of a state
    #[arg(long, allow_hyphen_values = true, value_name = "A..B")]
    pub batches: Option<String>,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  The first three batches of every rank:
    shardmill order shards/ --shuffle --ranks-per-node 8 --batch-size 32 --batches ..3

  A mix of two datasets, as JSON:
    shardmill order --stream web,proportion=0.7 --stream code,proportion=0.3 --shuffle --json

  Where a stopped run goes on, with half the machines:
    shardmill order shards/ --shuffle --nodes 2 --resume state.json --batches 0

  Without any data, from sizes:
    shardmill order --shards 4,3,5 --batch-size 2

  Many configurations:
    shardmill order --json < configurations.jsonl";
