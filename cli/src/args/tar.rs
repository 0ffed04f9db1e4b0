//! The options of `shardmill tar`.

use clap::{Args, Subcommand};
use shardmill_storage::Location;
use shardmill_webdataset::Consumer;

use super::values::{self, List};
use super::{JobsArgs, StorageArgs};

/// Check tar shards
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct TarArgs {
    #[command(subcommand)]
    pub verb: TarVerb,
}

#[derive(Debug, Subcommand)]
pub enum TarVerb {
    Lint(LintArgs),
}

/// Find problems that readers of tar shards have: damage, names, groups, and requirements of single readers
///
/// Only headers are read, except of compressed shards. Every finding is one line: an error if samples are lost, split
/// or mixed up, a warning if some reader returns something unintended. The exit status is 3 if there is an error.
#[derive(Args, Debug)]
#[command(after_help = LINT_AFTER_HELP)]
pub struct LintArgs {
    /// Tar files, or folders of them; local or in a store
    #[arg(required = true, value_name = "PATH", value_parser = values::locations)]
    pub paths: Vec<List<Location>>,

    /// Readers whose rules are also checked: webdataset, hf, dali, energon, wids, open_clip
    #[arg(long = "for", value_name = "READER,...", value_parser = values::consumers)]
    pub readers: Option<List<Consumer>>,

    /// Also show how each of these readers splits every member into key and field
    #[arg(long, requires = "readers")]
    pub show_keys: bool,

    #[command(flatten)]
    pub jobs: JobsArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  shardmill tar lint tars/";

const LINT_AFTER_HELP: &str = "\
EXAMPLES:
  Problems of these shards with any reader:
    shardmill tar lint tars/

  Can DALI and Hugging Face datasets read them:
    shardmill tar lint tars/ --for dali,hf

  In a store:
    shardmill tar lint s3://bucket/tars";
