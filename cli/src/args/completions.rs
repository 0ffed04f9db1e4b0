//! The options of `shardmill completions`.

use clap::Args;
use clap_complete::Shell;

/// Print the completion script of a shell
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

const AFTER_HELP: &str = "\
EXAMPLES:
  shardmill completions bash > ~/.local/share/bash-completion/completions/shardmill
  shardmill completions zsh > ~/.zfunc/_shardmill
  shardmill completions fish > ~/.config/fish/completions/shardmill.fish";
