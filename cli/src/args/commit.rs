//! The options of `shardmill commit`.

use clap::Args;
use shardmill_storage::Location;

use super::{StorageArgs, TakeoverArgs, values};

/// Publish the parts that `convert --part` wrote as one dataset
///
/// All parts must exist, and all their files must be unchanged. The index is published last: before that, the dataset
/// does not exist. If the commit is interrupted, the same command resumes it.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct CommitArgs {
    /// Directory or prefix in a store with the parts
    #[arg(value_name = "DEST", value_parser = values::dest)]
    pub dest: Location,

    /// Read every shard and check its hash, not only its length
    #[arg(long)]
    pub deep: bool,

    #[command(flatten)]
    pub takeover: TakeoverArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Four machines, or four tasks of a job array, and one commit when all are done:
    shardmill convert data/ s3://bucket/set --part 0/4
    shardmill convert data/ s3://bucket/set --part 1/4
    shardmill convert data/ s3://bucket/set --part 2/4
    shardmill convert data/ s3://bucket/set --part 3/4
    shardmill commit s3://bucket/set";
