use clap::Args;

use super::RewriteArgs;

/// Save the samples of damaged tar shards that are whole
///
/// What is complete goes into new shards, member by member as it was; what is lost is listed. The exit status is 3
/// when something is.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct RepairArgs {
    #[command(flatten)]
    pub rewrite: RewriteArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  A download broke off:
    shardmill repair shard-000007.tar saved/";
