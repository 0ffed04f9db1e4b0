use clap::Args;

use super::{StorageArgs, TakeoverArgs};

/// Publish what `convert --part` has made as one dataset
///
/// All parts have to be there, and every file as it was written. The index comes last: until then there is no dataset.
/// Killed, the same command goes on.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct CommitArgs {
    /// Directory or prefix in a store that the parts were written to
    #[arg(value_name = "DEST")]
    pub dest: String,

    /// Read every shard and compare its hash, and not only its length
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
