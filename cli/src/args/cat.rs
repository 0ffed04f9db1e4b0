//! The options of `shardmill cat`.

use std::path::PathBuf;

use clap::Args;

use super::range::IndexRange;
use super::{SampleArgs, StorageArgs, values};

/// Print samples as JSON lines, or write their fields as files
///
/// Numbers are JSON numbers: 64-bit integers exactly, floats in the shortest text that reads back to the
/// same value (float16 as float32 would); NaN and the infinities are the strings "NaN", "Infinity" and
/// "-Infinity", decimals are strings. Bytes are {"bytes", "base64"}; arrays {"dtype", "shape", "data"}
/// with the values in row order; images {"format", "bytes", "base64"}; pickles {"pickle_bytes",
/// "base64"}, never run. Columns of encoding json appear as the JSON they hold.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct CatArgs {
    /// The dataset, in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    /// Which samples: `7`, `-1` (the last), `10..20` (20 not included), `10..`, `..20`
    /// [default: the first 10]
    #[arg(value_name = "INDEX|A..B", value_parser = IndexRange::parse)]
    pub range: Option<IndexRange>,

    /// Print the first sample with this key; reads the dataset from the start
    #[arg(long, value_name = "KEY", conflicts_with = "range")]
    pub key: Option<String>,

    /// Print at most this number of samples of the range
    #[arg(long, value_name = "N", conflicts_with = "key", value_parser = values::samples)]
    pub limit: Option<u64>,

    /// The column with the keys, for `--key` and `--by-key`
    #[arg(long, value_name = "NAME", default_value = "__key__")]
    pub key_column: String,

    /// Print only this column; repeatable, in the order given
    #[arg(long = "column", short, value_name = "NAME")]
    pub columns: Vec<String>,

    /// Write the stored bytes of one column of one sample to standard output
    #[arg(long, conflicts_with = "extract")]
    pub raw: bool,

    /// Write fields as files to this directory: `7/image.jpg`; existing files are not overwritten
    #[arg(long, value_name = "DIR", value_parser = values::local_path)]
    pub extract: Option<PathBuf>,

    /// With `--extract`: name the files by key, as in a tree of files: `a/001.jpg`
    #[arg(long, requires = "extract")]
    pub by_key: bool,

    /// Shorten strings, bytes, arrays, images and JSON of more than this many bytes
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["raw", "extract"], value_parser = values::byte_size)]
    pub max_bytes: Option<u64>,

    #[command(flatten)]
    pub samples: SampleArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  The first 10 samples, without long values:
    shardmill cat shards/ --max-bytes 64

  The first 100 samples:
    shardmill cat shards/ --limit 100

  One sample; a range; the last one:
    shardmill cat shards/ 7
    shardmill cat shards/ 1000..1010 --column label
    shardmill cat shards/ -1

  An image by its key:
    shardmill cat shards/ --key a/001 --column jpg --raw > 001.jpg

  All samples back into files:
    shardmill cat shards/ 0.. --extract photos/ --by-key";
