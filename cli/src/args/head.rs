//! The options of `shardmill head`.

use clap::Args;
use shardmill_storage::Location;

use super::{StorageArgs, values};

/// Show the first samples of a dataset, or the first rows of a source, as a table
///
/// A dataset is MDS shards or tar files; a source is a Delta table, Parquet, Arrow, CSV, JSON lines or TFRecord files, or
/// a tree of files. The table fits the width of the terminal: long values are cut, bytes are shown as type and size, and control
/// characters are escaped. With `--json`, every sample is one line with its whole values, in the form of `cat`. Only the
/// shards or files with these samples are read.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct HeadArgs {
    /// The dataset or source, in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub location: String,

    /// The number of samples
    #[arg(long = "limit", short = 'n', value_name = "N", default_value = "5", value_parser = values::sample_count)]
    pub samples: u64,

    /// Show only this column; repeatable, in the order given
    #[arg(long = "column", short, value_name = "NAME")]
    pub columns: Vec<String>,

    /// Read only the samples of this view, a file of `select`
    #[arg(long, value_name = "FILE", value_parser = values::location)]
    pub view: Option<Location>,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  The first five samples of a dataset:
    shardmill head shards/

  The first rows of a table, before its conversion:
    shardmill head -n 20 events/ --column id --column text

  As JSON lines, for another program:
    shardmill head -n 100 shards/ --json | jq .caption";
