//! The options of `shardmill inspect`.

use clap::Args;

use super::{FileArgs, SampleArgs, StorageArgs, values};

/// Show the contents of a dataset, or how a source would be converted
///
/// For a dataset: format, samples, shards, columns and encodings, sizes, compression, hashes and provenance. For a
/// directory of splits: one line for each. For a Delta table, a Parquet, Arrow, CSV, JSON lines or TFRecord source or a
/// tree of files: its columns, rows and files, and the default encodings of `convert`. For a Delta table also: versions,
/// features, deleted rows and file sizes.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP, after_long_help = AFTER_LONG_HELP)]
pub struct InspectArgs {
    /// A dataset, a directory of datasets, or a source; in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub location: String,

    /// List the shards of a dataset instead, one line each: number, samples, raw bytes, stored bytes, name and first hash
    #[arg(long, conflicts_with_all = ["delta_version", "delta_timestamp", "include", "exclude", "follow_links"])]
    pub shards: bool,

    /// In a Delta table: the version to inspect [default: the latest]
    #[arg(long, value_name = "N", conflicts_with = "delta_timestamp", value_parser = values::table_version)]
    pub delta_version: Option<u64>,

    /// In a Delta table: inspect the latest version at this time, such as 2026-01-31T12:00:00Z
    #[arg(long, alias = "timestamp", value_name = "TIME", value_parser = values::table_time)]
    pub delta_timestamp: Option<i64>,

    #[command(flatten)]
    pub samples: SampleArgs,

    #[command(flatten)]
    pub files: FileArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  shardmill inspect shards/
  shardmill inspect shards/ --json | jq .samples
  shardmill inspect photos/ --group key --exclude 'drafts/**'";

const AFTER_LONG_HELP: &str = "\
EXAMPLES:
  Inspect a dataset:
    shardmill inspect shards/

  The number of samples, for a script:
    shardmill inspect shards/ --json | jq .samples

  The names of the shards with less than 100 samples:
    shardmill inspect shards/ --shards --json | jq -r 'select(.samples < 100) | .basename'

  The versions and features of a Delta table:
    shardmill inspect events/

  How convert would encode a Parquet file:
    shardmill inspect data/part-0.parquet

  The samples of a tree whose files are grouped by the part of their names before the first dot:
    shardmill inspect photos/ --group key --exclude 'drafts/**'

  A dataset in a store:
    shardmill inspect s3://bucket/shards";
