//! The options of `shardmill ls`, a short name of `inspect --shards`.

use clap::Args;

use super::{SampleArgs, StorageArgs};

/// List the shards of a dataset, one line each, like `inspect --shards`
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct LsArgs {
    /// The dataset, in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    #[command(flatten)]
    pub samples: SampleArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Number, samples, raw bytes, stored bytes, name and first hash of each shard:
    shardmill ls shards/

  The names of the shards with less than 100 samples:
    shardmill ls shards/ --json | jq -r 'select(.samples < 100) | .basename'";
