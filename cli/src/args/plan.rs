//! The options of `shardmill plan`.

use std::time::Duration;

use clap::Args;

use super::{WorldArgs, duration, values};

/// Predict fetches, cache hits, padding and waiting times of a training run
///
/// Only the indexes are read. Every node is simulated: when it needs which shards, what its cache holds, and how long
/// its batches wait for the network. Prints the results for each node and epoch, the hit rate of an LRU cache for
/// comparison, and advice.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct PlanArgs {
    #[command(flatten)]
    pub world: WorldArgs,

    /// Number of epochs
    #[arg(long, value_name = "N", default_value = "3", help_heading = "Run", value_parser = values::up_to(1000))]
    pub epochs: u64,

    /// Maximum bytes of the cache of a node [default: no limit]
    #[arg(long, value_name = "SIZE", help_heading = "Run", value_parser = values::byte_size)]
    pub cache_limit: Option<u64>,

    /// Nodes share their caches, as with `peers=` of `StreamingDataset`: each shard is fetched from the store by one node,
    /// and by the others from that node
    #[arg(long, help_heading = "Run")]
    pub peers: bool,

    /// Network bandwidth of a node: a size per second
    #[arg(long, value_name = "SIZE/s", default_value = "1GB/s", help_heading = "Run", value_parser = values::bandwidth)]
    pub bandwidth: u64,

    /// Time from a request to its first byte
    #[arg(long, value_name = "TIME", default_value = "30ms", help_heading = "Run", value_parser = duration::up_to_an_hour)]
    pub latency: Duration,

    /// Number of shards that a node fetches at a time
    #[arg(long, value_name = "N", default_value = "64", help_heading = "Run", value_parser = values::up_to(10_000))]
    pub connections: u64,

    /// Duration of a training step, without waiting for data
    #[arg(long, value_name = "TIME", default_value = "100ms", help_heading = "Run", value_parser = duration::up_to_an_hour)]
    pub step_time: Duration,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Four machines of eight devices, a cache of 500 GB on each:
    shardmill plan shards/ --nodes 4 --ranks-per-node 8 --batch-size 16 --shuffle --cache-limit 500GB

  A slow network and fast steps:
    shardmill plan shards/ --shuffle --bandwidth 200MB/s --step-time 40ms

  A mix of two datasets, seven parts of the one and three of the other:
    shardmill plan --stream web/,proportion=0.7 --stream books/,proportion=0.3 --shuffle

  The waiting time of the nodes in each epoch, for a script:
    shardmill plan shards/ --json | jq '.nodes[].belady.epochs[].wait_seconds'";
