use clap::Args;

use super::WorldArgs;

/// Tell what a training run will fetch, hit, pad and wait for
///
/// Only the indexes are read. Every node is gone through event by event: which shards it needs when, what its
/// cache keeps, how long its batches wait for the line. Shown are the figures of each node and epoch, what they
/// would be with a cache that lets go what was used longest ago, and what to change.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct PlanArgs {
    #[command(flatten)]
    pub world: WorldArgs,

    /// Epochs of the run
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "3",
        help_heading = "Run"
    )]
    pub epochs: String,

    /// Most bytes that the cache of a node may take up [default: no limit]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "SIZE",
        help_heading = "Run"
    )]
    pub cache_limit: Option<String>,

    /// What reaches a node: a size for each second
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "SIZE/s",
        default_value = "1GB/s",
        help_heading = "Run"
    )]
    pub bandwidth: String,

    /// Time from a request to its first byte
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "TIME",
        default_value = "30ms",
        help_heading = "Run"
    )]
    pub latency: String,

    /// Shards that a node fetches at a time
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "64",
        help_heading = "Run"
    )]
    pub connections: String,

    /// Time of a step, without waiting for data
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "TIME",
        default_value = "100ms",
        help_heading = "Run"
    )]
    pub step_time: String,

    /// Draw resident bytes, fetch rate and waiting over time into this file
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    pub svg: Option<String>,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Four machines of eight devices, a cache of 500 GB on each:
    shardmill plan shards/ --nodes 4 --ranks-per-node 8 --batch-size 16 --shuffle --cache-limit 500GB

  A slow line and fast steps, with a picture:
    shardmill plan shards/ --shuffle --bandwidth 200MB/s --step-time 40ms --svg plan.svg

  A mix of two datasets, seven parts of the one and three of the other:
    shardmill plan --stream web/,proportion=0.7 --stream books/,proportion=0.3 --shuffle

  Seconds that the nodes wait in each epoch, for a script:
    shardmill plan shards/ --json | jq '.nodes[].belady.epochs[].wait_seconds'";
