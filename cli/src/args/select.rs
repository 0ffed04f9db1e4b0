//! The options of `shardmill select`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use shardmill_source::SourceKind;
use shardmill_storage::Location;

use super::convert::kinds;
use super::values::{self, OrNone};
use super::{JobsArgs, StorageArgs};

/// Select samples of a dataset, and write them to a small file, a view
///
/// Every command that reads datasets takes the file as `--view`, and `StreamingDataset` as `view=`. They then read and
/// number only these samples. Shards without a selected sample are not fetched. The samples of a run have the order of a
/// dataset that has only them, in shards of the remaining sizes.
///
/// Several conditions select the samples that meet all of them, or with `--any` those that meet at least one. A view names
/// its dataset by the hash of its index, and other datasets refuse it. Deleted samples stay deleted.
///
/// Tables, files and trees have views as well, for `inspect`, `head`, `stats` and `view`. They name the files and their
/// versions. `StreamingDataset(format=…, view=…)` reads a folder of Parquet files or a Delta table in place.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct SelectArgs {
    /// The dataset, table, file or tree, in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    /// The file of the view; `-` is standard output
    #[arg(long = "out", short, value_name = "FILE", value_parser = values::local_path)]
    pub out: PathBuf,

    /// Kind of the dataset, such as `mds`, or of the table; `auto` detects it
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = kinds())]
    pub from: OrNone<SourceKind>,

    #[command(flatten)]
    pub conditions: ConditionArgs,

    /// Also number and select deleted samples; they are read only with `--with-deleted`
    #[arg(long)]
    pub with_deleted: bool,

    /// The version of a Delta table; by default the latest
    #[arg(long, value_name = "N", conflicts_with = "with_deleted")]
    pub delta_version: Option<u64>,

    /// Replace an existing file
    #[arg(long)]
    pub overwrite: bool,

    #[command(flatten)]
    pub jobs: JobsArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

// The conditions that samples meet. No doc comment: it would become the text of the verb.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("conditions").args(["filter", "keys", "samples", "views", "without"]).multiple(true).required(true)))]
pub struct ConditionArgs {
    /// Samples for which this SQL expression over their columns is true; `__sample__` is the number of the sample
    #[arg(long = "where", value_name = "SQL", value_parser = values::not_empty)]
    pub filter: Option<String>,

    /// Samples with the keys of this file, one key in each line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub keys: Option<String>,

    /// The column with the keys, for `--keys`
    #[arg(long, value_name = "NAME", default_value = "__key__")]
    pub key_column: String,

    /// Samples with the numbers of this file, one number or range `10..20` in each line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub samples: Option<String>,

    /// Samples of this view; repeatable
    #[arg(long = "view", value_name = "FILE", value_parser = values::location)]
    pub views: Vec<Location>,

    /// Samples that are not in this view; repeatable
    #[arg(long, value_name = "FILE", value_parser = values::location)]
    pub without: Vec<Location>,

    /// Samples that meet at least one condition, instead of all
    #[arg(long)]
    pub any: bool,

    /// All other samples instead
    #[arg(long)]
    pub invert: bool,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  The samples that meet a condition:
    shardmill select shards/ --where \"label = 3 AND length(text) > 100\" -o three.view
    shardmill select s3://bucket/table --where \"label = 3\" -o three-in-place.view

  How many are they, and the first of them:
    shardmill inspect shards/ --view three.view
    shardmill head shards/ --view three.view

  Without the samples of a list of keys:
    shardmill select shards/ --keys duplicates.txt --invert -o unique.view

  Both of these views; one of them, but not a third:
    shardmill select shards/ --view three.view --view unique.view -o both.view
    shardmill select shards/ --view a.view --without b.view -o rest.view";
