//! The options that `fix` and `repair` share.

use std::path::PathBuf;

use clap::Args;
use shardmill_mds::HashAlgo;

use super::values::{self, List};

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

    /// Threads [default: one for each core]
    #[arg(long, short, allow_hyphen_values = true, value_name = "N", env = "SHARDMILL_JOBS", hide_env_values = true, value_parser = values::jobs)]
    pub jobs: Option<usize>,
}
