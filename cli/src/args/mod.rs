//! The options and arguments, one file per verb. Values are parsed to the types of the libraries; the file of the same
//! name in `commands` executes the verb.

mod add_column;
mod bench;
mod cat;
mod commit;
mod completions;
mod convert;
mod doctor;
mod duration;
mod files;
mod gc;
mod head;
mod index;
mod inspect;
mod order;
mod plan;
mod range;
mod renamed;
mod samples;
mod select;
mod shared;
mod stats;
mod usage;
mod values;
mod verify;
mod view;
mod which;
mod world;

pub use add_column::AddColumnArgs;
pub use bench::BenchArgs;
pub use cat::CatArgs;
pub use commit::CommitArgs;
pub use completions::CompletionsArgs;
pub use convert::{ConvertArgs, ShardArgs, TokenArgs};
pub use doctor::DoctorArgs;
pub use files::FileArgs;
pub use gc::GcArgs;
pub use head::HeadArgs;
pub use index::{ExportArgs, IndexArgs, IndexVerb, LengthsArgs, MergeArgs, RebuildArgs};
pub use inspect::InspectArgs;
pub use order::OrderArgs;
pub use plan::PlanArgs;
pub use samples::SampleArgs;
pub use select::SelectArgs;
pub use shared::{JobsArgs, SingleWriterArgs, StorageArgs, TakeoverArgs, jobs};
pub use stats::StatsArgs;
pub use usage::usage_error;
pub use values::{location as parse_location, locations as parse_locations};
pub use verify::VerifyArgs;
pub use view::ViewArgs;
pub use which::WhichArgs;
pub use world::{Stream, WorldArgs};

use clap::{Args, Parser, Subcommand, ValueEnum};

const AFTER_HELP: &str = "\
EXAMPLES:
  Convert a Parquet dataset to MDS shards:
    shardmill convert data/ shards/

  Inspect and check it:
    shardmill inspect shards/
    shardmill verify shards/ --deep

EXIT STATUS:
  0    done
  1    a bug in shardmill
  2    usage or configuration
  3    bad or unverified data
  4    conflict: already exists, another writer, another configuration
  6    storage or network failure
  7    a local resource: disk, memory, files
  8    permission
  130  interrupted (143: terminated); run it again to continue";

/// Convert tables and file trees to training shards, and inspect them.
#[derive(Debug, Parser)]
#[command(
    name = "shardmill",
    bin_name = "shardmill",
    version,
    max_term_width = 100,
    after_help = AFTER_HELP
)]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,

    #[command(subcommand)]
    pub verb: Verb,
}

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

#[derive(Debug, Subcommand)]
pub enum Verb {
    Convert(Box<ConvertArgs>),
    Inspect(InspectArgs),
    Head(HeadArgs),
    Stats(StatsArgs),
    Cat(CatArgs),
    AddColumn(Box<AddColumnArgs>),
    Select(SelectArgs),
    Verify(VerifyArgs),
    View(ViewArgs),
    Index(IndexArgs),
    Order(Box<OrderArgs>),
    Plan(Box<PlanArgs>),
    Which(Box<WhichArgs>),
    Bench(Box<BenchArgs>),
    Doctor(DoctorArgs),
    Commit(CommitArgs),
    Gc(GcArgs),
    Completions(CompletionsArgs),
}
