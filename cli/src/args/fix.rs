//! The options of `shardmill tar fix`.

use clap::Args;

use super::RewriteArgs;

/// Rewrite tar shards to the form that every reader understands
///
/// The new shards have plain headers, contiguous samples with sorted fields in lower case, and no members outside of
/// samples. They are not compressed, and have an `index.json`. Damaged shards are rejected: see `tar repair`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct FixArgs {
    #[command(flatten)]
    pub rewrite: RewriteArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  shardmill tar fix tars/ fixed/
  shardmill tar lint fixed/ --for hf,dali,energon,wids";
