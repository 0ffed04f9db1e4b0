use clap::{Args, Subcommand};

/// Rebuild or merge index.json files
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct IndexArgs {
    #[command(subcommand)]
    pub verb: IndexVerb,
}

#[derive(Debug, Subcommand)]
pub enum IndexVerb {
    Rebuild(RebuildArgs),
    Merge(MergeArgs),
}

/// Write index.json anew from the shards of a directory
///
/// Every shard file is read, checked and hashed with the hashes that its own header names.
#[derive(Args, Debug)]
#[command(after_help = REBUILD_AFTER_HELP)]
pub struct RebuildArgs {
    /// The directory that holds the shards
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    /// Replace an index.json that differs
    #[arg(long)]
    pub force: bool,

    /// Threads [default: one for each core]
    #[arg(long, short, allow_hyphen_values = true, value_name = "N")]
    pub jobs: Option<String>,
}

/// Write one index.json over several data sets; their shards stay where they are
///
/// With one directory, all data sets below it are merged, in the order of their paths. With several, those
/// are merged in the order given. The shards' names are relative to the directory of the new index.
#[derive(Args, Debug)]
#[command(after_help = MERGE_AFTER_HELP)]
pub struct MergeArgs {
    /// A directory with data sets below it, or the data sets
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<String>,

    /// Directory that receives index.json and holds all data sets; needed when there are several
    #[arg(long, value_name = "ROOT")]
    pub out: Option<String>,

    /// Replace an index.json that differs
    #[arg(long)]
    pub force: bool,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  shardmill index rebuild shards/
  shardmill index merge shards/";

const REBUILD_AFTER_HELP: &str = "\
EXAMPLES:
  The index was lost:
    shardmill index rebuild shards/

  It is there, but wrong:
    shardmill index rebuild shards/ --force";

const MERGE_AFTER_HELP: &str = "\
EXAMPLES:
  All data sets below shards/ become one:
    shardmill index merge shards/

  Two of them, in this order:
    shardmill index merge shards/train shards/extra --out shards/";
