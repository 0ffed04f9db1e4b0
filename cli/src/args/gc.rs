//! The options of `shardmill gc`.

use clap::Args;
use shardmill_convert::Part;

use super::duration::{self, TypedDuration};
use super::{StorageArgs, TakeoverArgs, values};

/// Show or remove the leftovers of an interrupted conversion that will not be resumed
///
/// Leftovers are shards that the journal of the conversion lists and no index does, its side files and its work folder,
/// parts that were not committed, and shards that an index no longer lists. Files that an index lists are never removed.
/// Without `--delete` nothing is removed. To finish the conversion instead, run its command again.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct GcArgs {
    /// Directory or prefix in a store that a conversion wrote to
    #[arg(value_name = "DEST")]
    pub dest: String,

    /// Remove the leftovers
    #[arg(long)]
    pub delete: bool,

    /// Select only this uncommitted part, regardless of its age: 0/4 is the first of four
    #[arg(long, value_name = "I/N", value_parser = values::part)]
    pub part: Option<Part>,

    /// Keep files of parts that are younger than this: `90m`, `24h`, `7d`; `0` if no part is running
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration::age)]
    pub older_than: TypedDuration,

    #[command(flatten)]
    pub takeover: TakeoverArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  The leftovers of an abandoned conversion:
    shardmill gc s3://bucket/sets/train

  Remove them:
    shardmill gc s3://bucket/sets/train --delete

  Remove one part, to write it again:
    shardmill gc s3://bucket/sets/train --part 1/4 --delete";
