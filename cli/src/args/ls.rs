use clap::Args;

/// List the shards of a data set, one line each
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct LsArgs {
    /// The data set
    #[arg(value_name = "DATASET")]
    pub dataset: String,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Number, samples, raw bytes, stored bytes, name and first hash of each shard:
    shardmill ls shards/

  The names of the shards with less than 100 samples:
    shardmill ls shards/ --json | jq -r 'select(.samples < 100) | .basename'";
