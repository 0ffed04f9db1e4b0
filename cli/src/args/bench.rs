//! The options of `shardmill bench`.

use std::time::Duration;

use clap::Args;
use shardmill_mds::HashAlgo;

use super::{WorldArgs, duration, values};

/// Read a dataset as a training job would, and report how fast
///
/// Reads the batches of one rank through the same cache, order and threads as a training job. For each epoch, prints
/// samples and bytes per second, the time to the first batch, the time spent waiting for batches, and the fetched
/// shards. Data in a store, or on a slow disk, is fetched to the folder --local.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct BenchArgs {
    #[command(flatten)]
    pub world: WorldArgs,

    /// A subdirectory of each dataset, such as `train`
    #[arg(long, value_name = "NAME")]
    pub subset: Option<String>,

    #[command(flatten)]
    pub cache: BenchCacheArgs,

    /// The rank that reads
    #[arg(long, value_name = "N", default_value = "0", help_heading = "World", value_parser = values::number)]
    pub rank: u64,

    /// The loader process of the rank that reads
    #[arg(long, value_name = "N", default_value = "0", help_heading = "World", value_parser = values::number)]
    pub worker: u64,

    /// Number of epochs
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::number)]
    pub epochs: u64,

    /// The first epoch
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::number)]
    pub epoch: u64,

    /// Stop each epoch after this number of batches [default: at its end]
    #[arg(long, value_name = "N", value_parser = values::number)]
    pub max_batches: Option<u64>,

    /// Threads that prepare batches ahead; with 0, the reading thread does the work
    #[arg(long, short, value_name = "N", default_value = "1", value_parser = values::threads)]
    pub jobs: usize,

    /// Maximum number of batches to prepare ahead
    #[arg(long, value_name = "N", default_value = "16", value_parser = values::number)]
    pub queue: u64,

    /// Simulated duration of a training step, between two batches; with a unit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration::step)]
    pub step_time: Duration,

    /// Print a hash of the ids and values in their order, to compare runs
    #[arg(long)]
    pub digest: bool,
}

// The cache of fetched shards. No doc comment: it would become the text of the verb.
#[derive(Args, Debug)]
pub struct BenchCacheArgs {
    /// Fetch shards to this folder and read them there; several streams get folders 0, 1, … in it
    #[arg(long, value_name = "DIR", help_heading = "Cache")]
    pub local: Option<String>,

    /// Maximum bytes of cached shards [default: no limit]
    #[arg(long, value_name = "SIZE", help_heading = "Cache", value_parser = values::byte_size)]
    pub cache_limit: Option<u64>,

    /// Also keep the compressed files of fetched shards
    #[arg(long, help_heading = "Cache")]
    pub keep_zip: bool,

    /// Hash to check of every shard
    /// [default: the strongest hash of a fetched shard, none for a shard that was not fetched]
    #[arg(long, value_name = "HASH", help_heading = "Cache", value_parser = values::hash)]
    pub validate_hash: Option<HashAlgo>,

    /// Maximum number of samples to fetch ahead [default: limited by the space in the cache]
    #[arg(long, value_name = "N", help_heading = "Cache", value_parser = values::sample_count)]
    pub predownload: Option<u64>,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  How fast can this dataset be read, shuffled?
    shardmill bench shards/ --shuffle --batch-size 64

  From S3 with a cache of 20 GB, as rank 3 of 2 nodes with 8 ranks each, in steps of 100 ms:
    shardmill bench s3://bucket/shards --local /fast/cache --cache-limit 20GB \\
        --nodes 2 --ranks-per-node 8 --rank 3 --shuffle --step-time 100ms --epochs 2";
