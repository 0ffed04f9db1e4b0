//! The options of `shardmill verify`.

use clap::Args;
use shardmill_storage::Location;
use shardmill_webdataset::Consumer;

use super::values::{self, List};
use super::{JobsArgs, StorageArgs};

/// Check a dataset: structure, lengths, hashes; with --deep every sample
///
/// Tar files are checked with or without an index.json. Every problem is one error line; the exit status is 3 if there
/// is one. With --for, what these readers of tar files refuse is a problem, and what some reader changes or skips is a
/// warning.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct VerifyArgs {
    /// The dataset, a directory of datasets, or a tar file; local or in a store
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    /// Also decode every sample, and compare them with the content hash in index.provenance
    #[arg(long)]
    pub deep: bool,

    /// Also exit with 3 if there are warnings
    #[arg(long)]
    pub strict: bool,

    /// Readers whose rules tar shards must also meet: webdataset, hf, dali, energon, wids, open_clip
    #[arg(long = "for", value_name = "READER,...", value_parser = values::consumers)]
    pub readers: Option<List<Consumer>>,

    #[command(flatten)]
    pub jobs: JobsArgs,

    /// Hash that index.json must have: `sha256:` and 64 hex digits
    #[arg(long, value_name = "sha256:HEX")]
    pub expect_index: Option<String>,

    /// Check only the shards that have samples of this view, a file of `select`
    #[arg(long, value_name = "FILE", value_parser = values::location)]
    pub view: Option<Location>,

    #[command(flatten)]
    pub storage: StorageArgs,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Check lengths and hashes of all shards:
    shardmill verify shards/

  Decode every sample as well, in a CI job:
    shardmill verify shards/ --deep --json

  Can DALI and Hugging Face datasets read these tar shards:
    shardmill verify tars/ --for dali,hf

  Against tampering: pin the index, which pins the shards by their sha256:
    shardmill verify shards/ --expect-index sha256:$(sha256sum < trusted/index.json | cut -c1-64)";
