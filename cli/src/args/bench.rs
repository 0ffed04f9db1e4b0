use clap::Args;

use super::WorldArgs;

/// Read a dataset as a training job would, and tell how fast
///
/// Reads the batches of one rank, epoch by epoch, through the same cache, order and threads as a training job, and
/// prints for each epoch samples and bytes a second, the time to the first batch, the time spent waiting for batches,
/// and what was fetched. Data in a store, or on a slower disk, is fetched to the folder --local.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct BenchArgs {
    #[command(flatten)]
    pub world: WorldArgs,

    /// A folder beneath each dataset, such as `train`
    #[arg(long, value_name = "NAME")]
    pub split: Option<String>,

    /// Fetch shards to this folder and read them there; several streams get folders 0, 1, … in it
    #[arg(long, value_name = "DIR", help_heading = "Cache")]
    pub local: Option<String>,

    /// Most bytes of fetched shards that are kept [default: no limit]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "SIZE",
        help_heading = "Cache"
    )]
    pub cache_limit: Option<String>,

    /// Keep the compressed files of fetched shards as well
    #[arg(long, help_heading = "Cache")]
    pub keep_zip: bool,

    /// Hash that every shard has to pass
    /// [default: the strongest that a fetched shard has, none of one that lies there]
    #[arg(long, value_name = "HASH", help_heading = "Cache")]
    pub validate_hash: Option<String>,

    /// Samples that are fetched ahead at most [default: as the cache has room]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        help_heading = "Cache"
    )]
    pub predownload: Option<String>,

    /// Which rank reads
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "0",
        help_heading = "World"
    )]
    pub rank: String,

    /// Which loader process of the rank reads
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "0",
        help_heading = "World"
    )]
    pub worker: String,

    /// Epochs
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "1"
    )]
    pub epochs: String,

    /// The first epoch
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "0"
    )]
    pub epoch: String,

    /// Stop each epoch after so many batches [default: at its end]
    #[arg(long, allow_hyphen_values = true, value_name = "N")]
    pub batches: Option<String>,

    /// Threads that fill batches ahead
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "1"
    )]
    pub threads: String,

    /// Batches that are filled ahead at most
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "16"
    )]
    pub queue: String,

    /// Milliseconds that a step of the training takes, spent between one batch and the next
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "MS",
        default_value = "0"
    )]
    pub step_time: String,

    /// Print a hash over the ids and values in their order: equal where two readings are equal
    #[arg(long)]
    pub digest: bool,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  How fast can this dataset be read, shuffled?
    shardmill bench shards/ --shuffle --batch-size 64

  From S3 with a cache of 20 GB, as rank 3 of 2 nodes with 8 ranks each, in steps of 100 ms:
    shardmill bench s3://bucket/shards --local /fast/cache --cache-limit 20GB \\
        --nodes 2 --ranks-per-node 8 --rank 3 --shuffle --step-time 100 --epochs 2";
