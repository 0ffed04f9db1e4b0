//! The options of `shardmill diff`.

use std::path::PathBuf;

use clap::Args;

use super::{StorageArgs, values};

/// Compare two datasets or sources: columns, shards, and samples
///
/// Shards are compared by the hashes in their indexes. If all are the same, no sample is read. Otherwise samples are
/// compared at the same position or, with --key-column, by the values of a column, in any order. The exit status is 0 if there
/// is no difference in columns and samples, and 5 if there is one. Different compression, shard sizes or hashes are no
/// difference. Memory is bounded: with --key-column, what does not fit is written to temporary files.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct DiffArgs {
    /// The first dataset or source, in a directory or in a store
    #[arg(value_name = "BEFORE")]
    pub before: String,

    /// The second one
    #[arg(value_name = "AFTER")]
    pub after: String,

    /// The column whose values identify samples; without it, samples at the same position are compared
    #[arg(long, alias = "key", value_name = "COLUMN", value_parser = values::not_empty)]
    pub key_column: Option<String>,

    /// The most samples to list; all differences are counted
    #[arg(long = "limit", short = 'n', value_name = "N", default_value = "10", value_parser = values::sample_count)]
    pub listed: u64,

    /// Directory for temporary files [default: the system's]
    #[arg(long, value_name = "DIR", env = "SHARDMILL_TEMP_DIR", hide_env_values = true, value_parser = values::local_path)]
    pub temp_dir: Option<PathBuf>,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Are two datasets the same?
    shardmill diff shards/ s3://bucket/shards

  Which samples did a new conversion change?
    shardmill diff monday/ tuesday/ --key-column id

  In a script: which keys are gone?
    shardmill diff monday/ tuesday/ --key-column id -n 1000000 --json |
      jq -r '.changes[] | select(.change == \"removed\") | .key'";
