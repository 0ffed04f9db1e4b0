use clap::{Command, CommandFactory as _};

use crate::args::{Cli, CompletionsArgs};
use crate::error::Stop;
use crate::output::{Exit, Output};

pub fn run(args: &CompletionsArgs, out: &mut Output) -> Result<Exit, Stop> {
    // clap_complete panics when its writer fails; memory does not.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(), "shardmill", &mut script);
    out.bytes(&script)?;
    Ok(Exit::Done)
}

/// The command line without the verbs that `--help` does not show either.
fn visible() -> Command {
    let whole = Cli::command();
    let verbs = whole.get_subcommands().filter(|verb| !verb.is_hide_set());
    Command::new("shardmill")
        .disable_help_subcommand(true)
        .args(whole.get_arguments().cloned())
        .subcommands(verbs.cloned())
}
