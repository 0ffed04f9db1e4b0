//! The options of `shardmill index`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use shardmill_mds::HashAlgo;
use shardmill_storage::Location;
use shardmill_webdataset::Consumer;

use super::values::{self, List};
use super::{JobsArgs, StorageArgs};

/// Rebuild or merge index.json, and write lengths and the indexes of other readers
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
    Lengths(LengthsArgs),
    Export(ExportArgs),
}

/// Rebuild index.json from the shards of a directory
///
/// Every shard file is read, checked and hashed with the algorithms that its header lists. The headers of tar files list
/// none, so --hashes selects them, and a table of offsets is written next to each.
#[derive(Args, Debug)]
#[command(after_help = REBUILD_AFTER_HELP)]
pub struct RebuildArgs {
    /// The directory with the shards
    #[arg(value_name = "DATASET", value_parser = values::local_path)]
    pub dataset: PathBuf,

    /// Replace an index.json or tables of offsets that differ
    #[arg(long)]
    pub force: bool,

    /// Hashes to record for tar files, separated by commas, or none [default: sha256]
    #[arg(long, value_name = "NAME,...", value_parser = values::hashes)]
    pub hashes: Option<List<HashAlgo>>,

    #[command(flatten)]
    pub jobs: JobsArgs,
}

/// Write one index.json over several datasets; their shards stay where they are
///
/// With one directory, all datasets in its subdirectories are merged, in the order of their paths. Several directories
/// are merged in the given order. The shard names are relative to the directory of the new index.
#[derive(Args, Debug)]
#[command(after_help = MERGE_AFTER_HELP)]
pub struct MergeArgs {
    /// A directory with datasets in subdirectories, or the datasets
    #[arg(required = true, value_name = "DIR", value_parser = values::local_path)]
    pub dirs: Vec<PathBuf>,

    /// Directory that receives index.json and contains all datasets; required if there are several
    #[arg(long, value_name = "ROOT", value_parser = values::local_path)]
    pub out: Option<PathBuf>,

    /// Replace an index.json that differs
    #[arg(long)]
    pub force: bool,
}

/// Write the lengths of columns of an MDS dataset beside its index
///
/// `index.lengths.COLUMN` has a number for every sample: the elements of an array, or the bytes of text and other values.
/// It names the index that it belongs to, and is refused for any other one. Of uncompressed shards in a local directory,
/// only offsets and the beginnings of values are read.
#[derive(Args, Debug)]
#[command(after_help = LENGTHS_AFTER_HELP)]
pub struct LengthsArgs {
    /// The directory of the dataset, or its prefix in a store
    #[arg(value_name = "DATASET", value_parser = values::location)]
    pub dataset: Location,

    /// A column of text, bytes or arrays; repeatable
    #[arg(long = "column", value_name = "COLUMN", required = true, value_parser = values::not_empty)]
    pub columns: Vec<String>,

    #[command(flatten)]
    pub jobs: JobsArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

/// Write the indexes of other readers next to tar shards
///
/// `wids`: shardindex.json. `dali`: NAME.idx next to each shard. `open_clip`: sizes.json. Only headers are read; in a store,
/// also the bytes around them.
#[derive(Args, Debug)]
#[command(after_help = EXPORT_AFTER_HELP)]
pub struct ExportArgs {
    /// A folder of tar files, with or without an index.json, or a pattern of them; on this machine or in a store
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    /// The readers: wids, dali, open_clip
    #[arg(long = "for", value_name = "READER,...", required = true, value_parser = values::consumers)]
    pub readers: List<Consumer>,

    /// Replace files that differ
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub jobs: JobsArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  shardmill index rebuild shards/
  shardmill index merge shards/
  shardmill index lengths shards/ --column tokens
  shardmill index export tars/ --for dali,wids";

const LENGTHS_AFTER_HELP: &str = "\
EXAMPLES:
  shardmill index lengths shards/ --column tokens
  shardmill index lengths s3://bucket/set --column text --column tokens";

const EXPORT_AFTER_HELP: &str = "\
EXAMPLES:
  shardmill index export tars/ --for wids,dali,open_clip
  shardmill index export 'tars/train-{000000..000146}.tar' --for wids
  shardmill index export s3://bucket/tars --for wids";

const REBUILD_AFTER_HELP: &str = "\
EXAMPLES:
  The index was lost:
    shardmill index rebuild shards/

  The index is wrong:
    shardmill index rebuild shards/ --force

  Tar files that never had one:
    shardmill index rebuild tars/ --hashes sha256,md5";

const MERGE_AFTER_HELP: &str = "\
EXAMPLES:
  Merge all datasets in subdirectories of shards/:
    shardmill index merge shards/

  Two of them, in this order:
    shardmill index merge shards/train shards/extra --out shards/";
