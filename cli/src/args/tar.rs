//! The options of `shardmill tar`.

use clap::{Args, Subcommand};

use super::{FixArgs, LintArgs, RepairArgs};

/// Check, fix and repair tar shards
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct TarArgs {
    #[command(subcommand)]
    pub verb: TarVerb,
}

#[derive(Debug, Subcommand)]
pub enum TarVerb {
    Lint(LintArgs),
    Fix(FixArgs),
    Repair(RepairArgs),
}

const AFTER_HELP: &str = "\
EXAMPLES:
  shardmill tar lint tars/
  shardmill tar fix tars/ fixed/
  shardmill tar repair shard-000007.tar saved/";
