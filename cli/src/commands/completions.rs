//! The command `shardmill completions`: prints the completion script of a shell.

use clap::Command;

use crate::args::CompletionsArgs;
use crate::command::{self, is_shown};
use crate::error::Stop;
use crate::output::{Exit, Output};

pub fn run(args: &CompletionsArgs, out: &mut Output) -> Result<Exit, Stop> {
    // clap_complete panics if its writer fails. Writing to memory does not fail.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(), "shardmill", &mut script);
    out.bytes(&script)?;
    Ok(Exit::Done)
}

/// Returns the command line without the hidden commands.
fn visible() -> Command {
    let whole = command::command();
    let verbs = whole.get_subcommands().filter(|verb| is_shown(verb));
    Command::new("shardmill")
        .args(whole.get_arguments().cloned())
        .subcommands(verbs.cloned())
}
