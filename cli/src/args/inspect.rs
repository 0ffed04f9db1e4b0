use clap::Args;

use super::StorageArgs;

/// Show what a dataset holds, or what a source would become
///
/// For a dataset: format, samples, shards, columns and encodings, sizes, compression, hashes and where it
/// came from. For a directory of splits: one line for each. For a Delta table, a Parquet, Arrow, CSV or JSON
/// lines source or a tree of files: its columns, rows and files, and the encodings that `convert` would
/// choose. For a Delta table also: versions, features, deleted rows and sizes of files.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct InspectArgs {
    /// A dataset, a directory of datasets, or a source; in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub location: String,

    /// In a Delta table: the version to look at [default: the latest]
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        conflicts_with = "timestamp"
    )]
    pub version: Option<String>,

    /// In a Delta table: look at the latest version of this time, such as 2026-01-31T12:00:00Z
    #[arg(long, allow_hyphen_values = true, value_name = "TIME")]
    pub timestamp: Option<String>,

    /// Count samples that their table no longer has like all others
    #[arg(long)]
    pub with_deleted: bool,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Look at a dataset:
    shardmill inspect shards/

  The number of samples, for a script:
    shardmill inspect shards/ --json | jq .samples

  The versions and features of a Delta table:
    shardmill inspect events/

  What convert would make of a Parquet file:
    shardmill inspect data/part-0.parquet

  A dataset in a store:
    shardmill inspect s3://bucket/shards";
