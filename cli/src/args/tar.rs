//! The options of `shardmill tar`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use shardmill_mds::HashAlgo;
use shardmill_storage::Location;
use shardmill_webdataset::Consumer;

use super::values::{self, List};
use super::{JobsArgs, StorageArgs};

/// Check, fix and repair tar shards
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct TarArgs {
    #[command(subcommand)]
    pub verb: TarVerb,
}

#[derive(Debug, Subcommand)]
pub enum TarVerb {
    Lint(LintArgs),
    /// Rewrite tar shards to the form that every reader understands
    ///
    /// The new shards have plain headers, contiguous samples with sorted fields in lower case, and no members outside of
    /// samples. They are not compressed, and have an `index.json`. Damaged shards are rejected: see `tar repair`.
    #[command(after_help = FIX_AFTER_HELP)]
    Fix(RewriteArgs),
    /// Save the intact samples of damaged tar shards
    ///
    /// Copies intact samples to new shards, with unchanged members, and lists what is lost. The exit status is 3 if
    /// something is lost.
    #[command(after_help = REPAIR_AFTER_HELP)]
    Repair(RewriteArgs),
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

// No text here: it would become that of the verbs.
#[derive(Args, Debug)]
pub struct RewriteArgs {
    /// A tar file, or a folder of them
    #[arg(value_name = "SRC", value_parser = values::local_path)]
    pub source: PathBuf,

    /// Folder that receives the new shards; it must be empty or not exist
    #[arg(value_name = "DST", value_parser = values::local_path)]
    pub dest: PathBuf,

    /// Hashes to record, separated by commas, or none
    #[arg(long, value_name = "NAME,...", default_value = "sha256", value_parser = values::hashes)]
    pub hashes: List<HashAlgo>,

    #[command(flatten)]
    pub jobs: JobsArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  shardmill tar lint tars/
  shardmill tar fix tars/ fixed/
  shardmill tar repair shard-000007.tar saved/";

const LINT_AFTER_HELP: &str = "\
EXAMPLES:
  Problems of these shards with any reader:
    shardmill tar lint tars/

  Can DALI and Hugging Face datasets read them:
    shardmill tar lint tars/ --for dali,hf

  In a store:
    shardmill tar lint s3://bucket/tars";

const FIX_AFTER_HELP: &str = "\
EXAMPLES:
  shardmill tar fix tars/ fixed/
  shardmill tar lint fixed/ --for hf,dali,energon,wids";

const REPAIR_AFTER_HELP: &str = "\
EXAMPLES:
  An incomplete download:
    shardmill tar repair shard-000007.tar saved/";
