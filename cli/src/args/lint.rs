use clap::Args;

use super::StorageArgs;

/// Look for what readers of tar shards trip over: damage, names, groups, and what single readers need
///
/// Only headers are read, except of compressed shards. Every finding is one line: an error where samples are lost,
/// torn or mixed up, a warning where some reader gives something else than was meant. The exit status is 3 when there
/// is an error.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct LintArgs {
    /// Tar files, or folders of them; on this machine or in a store
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<String>,

    /// Readers whose rules count too: webdataset, hf, dali, energon, wids, open_clip
    #[arg(long = "for", value_name = "READER,...")]
    pub readers: Option<String>,

    /// Show as well how each of these readers would split every member into key and field
    #[arg(long, requires = "readers")]
    pub splits: bool,

    /// Threads [default: one for each core]
    #[arg(long, short, allow_hyphen_values = true, value_name = "N")]
    pub jobs: Option<String>,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  What is wrong with these shards, whoever reads them:
    shardmill lint tars/

  Will DALI and Hugging Face datasets read them:
    shardmill lint tars/ --for dali,hf

  In a store:
    shardmill lint s3://bucket/tars";
