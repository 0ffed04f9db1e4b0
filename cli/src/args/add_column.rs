//! The options of `shardmill add-column`.

use std::path::PathBuf;

use clap::Args;
use shardmill_convert::ColumnSpec;
use shardmill_storage::Location;

use super::values::{self, List};
use super::{JobsArgs, SingleWriterArgs, StorageArgs};

/// Add the columns of a table to an MDS dataset that exists
///
/// The rows of the table may have any order. Every sample needs one row with its key, and every row a sample; deleted
/// samples need none. The files of the dataset do not change, and neither do the numbers and the order of its samples. The
/// values are written to shards in the folder `columns`, and `index.columns` lists them. Removing that file removes the
/// columns.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct AddColumnArgs {
    /// The directory of the dataset, or its prefix in a store
    #[arg(value_name = "DATASET", value_parser = values::location)]
    pub dataset: Location,

    /// Files, directories or prefixes in stores with the rows of the table
    #[arg(required = true, value_name = "SOURCE", value_parser = values::locations)]
    pub sources: Vec<List<Location>>,

    /// The column with the keys of the samples, text or whole numbers, in the dataset and in the table
    #[arg(long, value_name = "COLUMN", value_parser = values::not_empty)]
    pub on: String,

    /// A column to add: its name, `:` and an encoding, `=` and an SQL expression; repeatable [default: all columns]
    #[arg(long = "column", value_name = "NAME[:ENCODING][=EXPR]", value_parser = values::column)]
    pub columns: Vec<ColumnSpec>,

    #[command(flatten)]
    pub jobs: JobsArgs,

    /// Directory for the table in another form, and for temporary files [default: the system's]
    #[arg(long, value_name = "DIR", env = "SHARDMILL_TEMP_DIR", hide_env_values = true, value_parser = values::local_path)]
    pub temp_dir: Option<PathBuf>,

    #[command(flatten)]
    pub single_writer: SingleWriterArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Add the scores of a Parquet file, whose column `id` names samples:
    shardmill add-column shards/ scores.parquet --on id

  Only one of its columns, with an encoding:
    shardmill add-column shards/ scores.parquet --on id --column quality:float32

  Remove all added columns:
    rm -r shards/index.columns shards/columns";
