//! The command `shardmill completions`: prints the completion script of a shell.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::error::Stop;
use crate::output::{Exit, Output};

/// Print the completion script of a shell
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

pub fn run(args: &CompletionsArgs, whole: &Command, out: &mut Output) -> Result<Exit, Stop> {
    // clap_complete panics if its writer fails. Writing to memory does not fail.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(whole), "shardmill", &mut script);
    out.bytes(&script)?;
    Ok(Exit::Done)
}

/// Returns the command line without the hidden commands.
fn visible(whole: &Command) -> Command {
    let verbs = whole.get_subcommands().filter(|verb| is_shown(verb));
    Command::new("shardmill")
        .args(whole.get_arguments().cloned())
        .subcommands(verbs.cloned())
}

/// Returns whether the reference and the completions have a verb. They leave out the `help` of clap.
pub fn is_shown(verb: &Command) -> bool {
    verb.get_name() != "help"
}
