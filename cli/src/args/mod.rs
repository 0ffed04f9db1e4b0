//! The options and arguments that verbs share. Values are parsed to the types of the libraries.

pub mod duration;
mod files;
pub mod range;
mod renamed;
mod samples;
mod shared;
mod usage;
pub mod values;
mod world;

pub use files::FileArgs;
pub use samples::SampleArgs;
pub use shared::{JobsArgs, SingleWriterArgs, StorageArgs, TakeoverArgs, jobs};
pub use usage::usage_error;
pub use world::{Stream, WorldArgs};

use clap::{Args, ValueEnum};

#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Print results as JSON on standard output and errors as JSON on standard error
    #[arg(long, global = true)]
    pub json: bool,

    /// Print no progress, summaries or notes
    #[arg(long, short, global = true)]
    pub quiet: bool,

    /// Print more details in summaries, such as the idle time of cores
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    pub verbose: bool,

    /// How progress is shown on standard error; `auto` means `bar` on a terminal, otherwise `none` with --json
    /// and `plain` without it
    #[arg(long, global = true, hide_short_help = true, value_name = "HOW", value_enum, default_value_t = ProgressName::Auto, env = "SHARDMILL_PROGRESS", hide_env_values = true)]
    pub progress: ProgressName,

    /// When errors, warnings and help have colors; `auto` means on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, hide_short_help = true, value_name = "WHEN", value_enum, default_value_t = ColorName::Auto, env = "SHARDMILL_COLOR", hide_env_values = true)]
    pub color: ColorName,

    /// Raise or lower a limit for reading files, e.g. `shard-bytes=32GiB`; repeatable
    #[arg(long = "safety-limit", global = true, hide_short_help = true, value_name = "NAME=VALUE", value_parser = values::limit)]
    pub limits: Vec<(String, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressName {
    Auto,
    Bar,
    Plain,
    Json,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorName {
    Auto,
    Always,
    Never,
}
