use clap::Args;

use super::RewriteArgs;

/// Rewrite tar shards to the form that every reader understands
///
/// Plain headers, each sample in one run with its fields in order and in lower case, nothing that is no part of a
/// sample. Shards that are damaged are refused: see `repair`. The new shards are not compressed, and have an
/// `index.json`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct FixArgs {
    #[command(flatten)]
    pub rewrite: RewriteArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  shardmill fix tars/ fixed/
  shardmill lint fixed/ --for hf,dali,energon,wids";
