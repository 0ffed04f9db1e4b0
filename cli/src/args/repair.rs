//! The options of `shardmill tar repair`.

use clap::Args;

use super::RewriteArgs;

/// Save the intact samples of damaged tar shards
///
/// Copies intact samples to new shards, with unchanged members, and lists what is lost. The exit status is 3 if
/// something is lost.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct RepairArgs {
    #[command(flatten)]
    pub rewrite: RewriteArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  An incomplete download:
    shardmill tar repair shard-000007.tar saved/";
