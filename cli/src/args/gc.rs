use clap::Args;

use super::{StorageArgs, TakeoverArgs};

/// Show or remove what an interrupted conversion left and nobody is going to finish
///
/// Shards that the journal of the conversion names and no index does, its side files and its work folder; parts that were
/// not committed; shards that an index has dropped. What an index names is never touched. Without `--delete` nothing is
/// removed. To finish the conversion instead, run its command again.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct GcArgs {
    /// Directory or prefix in a store that a conversion wrote to
    #[arg(value_name = "DEST")]
    pub dest: String,

    /// Remove it
    #[arg(long)]
    pub delete: bool,

    /// Only this uncommitted part, whatever its age: 0/4 is the first of four
    #[arg(long, value_name = "I/N")]
    pub part: Option<String>,

    /// Leave what parts have written since: `90m`, `24h`, `7d`; `0` when no part is at work
    #[arg(long, value_name = "AGE", default_value = "24h")]
    pub older_than: String,

    #[command(flatten)]
    pub takeover: TakeoverArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  What is left of a conversion that was given up:
    shardmill gc s3://bucket/sets/train

  Remove it:
    shardmill gc s3://bucket/sets/train --delete

  Remove one part of several, to make it again:
    shardmill gc s3://bucket/sets/train --part 1/4 --delete";
