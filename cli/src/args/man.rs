//! The options of `shardmill man` and `shardmill completions`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

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

/// Print the completion script of a shell
#[derive(Args, Debug)]
#[command(after_help = COMPLETIONS_AFTER_HELP)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

const COMPLETIONS_AFTER_HELP: &str = "\
EXAMPLES:
  shardmill completions bash > ~/.local/share/bash-completion/completions/shardmill
  shardmill completions zsh > ~/.zfunc/_shardmill
  shardmill completions fish > ~/.config/fish/completions/shardmill.fish";
