use clap::{Args, Subcommand};

use super::StorageArgs;

/// Rebuild or merge index.json files, and write the indexes of other readers
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
    Export(ExportArgs),
}

/// Write index.json anew from the shards of a directory
///
/// Every shard file is read, checked and hashed with the hashes that its own header names. Tar files name none: --hashes does,
/// and a table of offsets is written beside each.
#[derive(Args, Debug)]
#[command(after_help = REBUILD_AFTER_HELP)]
pub struct RebuildArgs {
    /// The directory that holds the shards
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    /// Replace an index.json that differs, and tables of offsets that do
    #[arg(long)]
    pub force: bool,

    /// Hashes to record of tar files, separated by commas, or none [default: sha256]
    #[arg(long, value_name = "NAME,...")]
    pub hashes: Option<String>,

    /// Threads [default: one for each core]
    #[arg(long, short, allow_hyphen_values = true, value_name = "N")]
    pub jobs: Option<String>,
}

/// Write one index.json over several datasets; their shards stay where they are
///
/// With one directory, all datasets below it are merged, in the order of their paths. With several, those
/// are merged in the order given. The shards' names are relative to the directory of the new index.
#[derive(Args, Debug)]
#[command(after_help = MERGE_AFTER_HELP)]
pub struct MergeArgs {
    /// A directory with datasets below it, or the datasets
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<String>,

    /// Directory that receives index.json and holds all datasets; needed when there are several
    #[arg(long, value_name = "ROOT")]
    pub out: Option<String>,

    /// Replace an index.json that differs
    #[arg(long)]
    pub force: bool,
}

/// Write the indexes of other readers beside tar shards
///
/// `wids`: shardindex.json. `dali`: NAME.idx beside each shard. `energon`: .nv-meta and NAME.tar.idx. `open_clip`:
/// sizes.json. Only headers are read, in a store with what lies around them.
#[derive(Args, Debug)]
#[command(after_help = EXPORT_AFTER_HELP)]
pub struct ExportArgs {
    /// A folder of tar files, with or without an index.json, or a pattern of them; on this machine or in a store
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    /// The readers: wids, dali, energon, open_clip
    #[arg(long = "for", value_name = "READER,...", required = true)]
    pub readers: String,

    /// Replace files that differ
    #[arg(long)]
    pub force: bool,

    /// Threads [default: one for each core]
    #[arg(long, short, allow_hyphen_values = true, value_name = "N")]
    pub jobs: Option<String>,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  shardmill index rebuild shards/
  shardmill index merge shards/
  shardmill index export tars/ --for dali,wids";

const EXPORT_AFTER_HELP: &str = "\
EXAMPLES:
  shardmill index export tars/ --for wids,dali,energon,open_clip
  shardmill index export 'tars/train-{000000..000146}.tar' --for wids
  shardmill index export s3://bucket/tars --for wids";

const REBUILD_AFTER_HELP: &str = "\
EXAMPLES:
  The index was lost:
    shardmill index rebuild shards/

  It is there, but wrong:
    shardmill index rebuild shards/ --force

  Tar files that never had one:
    shardmill index rebuild tars/ --hashes sha256,md5";

const MERGE_AFTER_HELP: &str = "\
EXAMPLES:
  All datasets below shards/ become one:
    shardmill index merge shards/

  Two of them, in this order:
    shardmill index merge shards/train shards/extra --out shards/";
