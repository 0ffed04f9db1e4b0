//! The options of `shardmill view`.

use std::path::PathBuf;

use clap::Args;

use super::{SampleArgs, StorageArgs, values};

/// Show a dataset in the browser: samples, columns, shards, order and plan
///
/// Starts a server on this machine and prints its address, which contains a random token. Nothing is written, and no other
/// machine can connect. The pages show what `inspect`, `select`, `verify`, `stats`, `order`, `which` and `plan` print,
/// with the command line and the Python line to copy. Tables and trees of files are shown as well. It runs until it is
/// interrupted.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ViewArgs {
    /// The dataset, the tar files or the source, in a directory or in a store
    #[arg(value_name = "DATASET")]
    pub location: String,

    /// The port of the server; 0 for any free one
    #[arg(
        long,
        allow_hyphen_values = true,
        value_name = "N",
        default_value = "0", value_parser = values::port)]
    pub port: u16,

    /// Also open the page in the browser of the desktop
    #[arg(long, conflicts_with = "export")]
    pub open: bool,

    /// The token of the address instead of a random one: at least 16 letters, digits, `-` or `_`
    #[arg(
        long,
        value_name = "TOKEN",
        env = "SHARDMILL_VIEW_TOKEN",
        hide_env_values = true
    )]
    pub read_only_token: Option<String>,

    /// Write a page with the first samples, statistics and shards to this file instead, which needs no server
    #[arg(long, value_name = "FILE", conflicts_with = "port", value_parser = values::local_path)]
    pub export: Option<PathBuf>,

    /// Show the text of columns of token ids with this tokenizer file (`tokenizer.json`)
    #[arg(long, value_name = "FILE", value_parser = values::local_path)]
    pub tokenizer: Option<PathBuf>,

    /// Show which shards are in this folder of a cache, the `local` of a run
    #[arg(long, value_name = "DIR", conflicts_with = "export", value_parser = values::local_path)]
    pub cache: Option<PathBuf>,

    /// Show the metrics of a running job from this address of `shardmill.metrics.serve`
    #[arg(long, value_name = "URL", conflicts_with = "export", value_parser = values::not_empty)]
    pub metrics: Option<String>,

    #[command(flatten)]
    pub samples: SampleArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Look at a dataset:
    shardmill view shards/ --open

  A dataset in a store, on a fixed port for an SSH tunnel:
    shardmill view s3://bucket/shards --port 8000

  A report to attach to a review:
    shardmill view shards/ --export report.html";
