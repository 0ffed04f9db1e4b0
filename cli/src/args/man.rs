//! The options of `shardmill man`.

use std::path::PathBuf;

use clap::Args;

use super::values;

/// Print the manual pages
///
/// Without --out, all pages are written to standard output.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ManArgs {
    /// Write one file per page to this directory: shardmill.1, shardmill-convert.1, ...
    #[arg(long, value_name = "DIR", value_parser = values::local_path)]
    pub out: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  Read it:
    shardmill man | man -l -

  Install the pages:
    shardmill man --out ~/.local/share/man/man1";
