//! The `shardmill` command: convert tables and file trees to training shards, and inspect them.
//!
//! `args` defines the options, `command` parses the command line, `commands` executes the verbs, one file per verb, and
//! `output` owns standard output, standard error, progress and exit codes. Everything else is in the libraries.

mod args;
mod command;
mod commands;
mod config_file;
mod error;
#[cfg(test)]
mod manual {
    mod tests;
}
mod output;
mod signals;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind as Clap;

use error::Stop;
use output::{Console, Output, exit_code};

/// Threads of a conversion free large buffers that other threads allocated. The allocator of the system keeps a pool for
/// each thread, so its memory grows with the length of the input; that of mimalloc does not (`make bench`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    signals::survive_file_limit();
    shardmill_storage::raise_file_limit();
    let typed: Vec<OsString> = std::env::args_os().collect();
    output::set_color(command::color(&typed));
    let is_json = typed.iter().any(|word| word == "--json");
    let typed = match config_file::with_config(typed, &command::definition()) {
        Ok(typed) => typed,
        Err(error) => return failed(&error, &Console::new(is_json, false)),
    };
    let cli = match command::parse(&typed) {
        Ok(cli) => cli,
        Err(error) => return not_run(&error, &typed),
    };
    output::set_color(cli.global.color);
    let mut out = Output::new(&cli.global);
    let result = commands::run(&cli, command::definition, &mut out)
        .and_then(|exit| out.flush().map(|()| exit));
    match result {
        Ok(exit) => exit.into(),
        Err(Stop::ClosedPipe) => ExitCode::SUCCESS,
        Err(Stop::Error(error)) => {
            // Buffered output comes before the error line. Another failure is not reported.
            let _ = out.flush();
            failed(&error, out.console())
        }
    }
}

fn failed(error: &shardmill_core::Error, console: &Console) -> ExitCode {
    let signal = signals::first();
    console.error(error, signal);
    ExitCode::from(exit_code(error.kind(), signal))
}

/// Ends the process after `--help`, `--version`, or a command line that cannot be parsed.
fn not_run(error: &clap::Error, typed: &[OsString]) -> ExitCode {
    match error.kind() {
        Clap::DisplayHelp | Clap::DisplayVersion => {
            // `--help | head` closes the pipe early.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        Clap::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(exit_code(shardmill_core::ErrorKind::InvalidInput, None))
        }
        _ => {
            let options = typed.iter().skip(1).take_while(|word| *word != "--");
            let json = options.into_iter().any(|word| word == "--json");
            failed(&args::usage_error(error, typed), &Console::new(json, false))
        }
    }
}
