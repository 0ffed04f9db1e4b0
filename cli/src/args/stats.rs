//! The options of `shardmill stats`.

use clap::Args;
use shardmill_storage::Location;

use super::{JobsArgs, StorageArgs, values};

/// Measure the columns of a dataset or a source: counts, nulls, distinct values, extremes, means, histograms
///
/// Every sample is read once. Numbers are measured by their values; texts in characters, bytes and images in bytes,
/// arrays and lists in items. NaN and infinities are counted apart. All numbers are exact and do not depend on `--jobs`,
/// except more than 4096 distinct values, which are estimated to about 1 %, and means of floats, whose sum has 106 bits.
/// Values that `--nulls mask` of `convert` replaced count as nulls. The bins of a histogram have the same width, a power
/// of two.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct StatsArgs {
    /// The dataset or source, in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub location: String,

    /// Measure only this column; repeatable, in the order given
    #[arg(long = "column", short, value_name = "NAME")]
    pub columns: Vec<String>,

    /// Read only the first samples
    #[arg(long = "limit", short = 'n', value_name = "N", value_parser = values::sample_count)]
    pub samples: Option<u64>,

    #[command(flatten)]
    pub jobs: JobsArgs,

    /// Read only the samples of this view, a file of `select`
    #[arg(long, value_name = "FILE", value_parser = values::location)]
    pub view: Option<Location>,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  All columns of a dataset:
    shardmill stats shards/

  Quickly, from the first samples:
    shardmill stats s3://bucket/shards -n 10000

  How long are the captions?
    shardmill stats shards/ --column caption

  Which columns have nulls?
    shardmill stats events/ --json | jq -r '.columns[] | select(.nulls > 0) | .name'";
