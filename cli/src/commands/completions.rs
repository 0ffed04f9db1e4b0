use clap::CommandFactory as _;

use crate::args::{Cli, CompletionsArgs};
use crate::error::Stop;
use crate::output::{Exit, Output};

pub fn run(args: &CompletionsArgs, out: &mut Output) -> Result<Exit, Stop> {
    // clap_complete panics when its writer fails; memory does not.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "shardmill", &mut script);
    out.bytes(&script)?;
    Ok(Exit::Done)
}
