//! The commands `shardmill man` and `shardmill completions`: print what shells and readers need of the command line.

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use shardmill_core::ErrorKind;
use shardmill_storage::{Dir, PublishMode};

use super::markdown::headed;
use crate::args::{CompletionsArgs, ManArgs};
use crate::command::{self, is_shown};
use crate::error::{CliError, Stop};
use crate::output::{Exit, Output};

pub fn run(args: &ManArgs, out: &mut Output) -> Result<Exit, Stop> {
    let mut command = command::command();
    command.build();
    let mut pages = Vec::new();
    collect(&command, "shardmill", &mut pages)?;
    let Some(dir) = &args.out else {
        for (_, page) in &pages {
            out.bytes(page)?;
        }
        return Ok(Exit::Done);
    };
    let dir = Dir::create(dir)?;
    for (name, page) in &pages {
        dir.publish_bytes(None, name, page, PublishMode::Replace)?;
    }
    Ok(Exit::Done)
}

/// Collects the file name and the roff text of every page.
fn collect(
    command: &Command,
    name: &str,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), CliError> {
    let roff = page(command).map_err(|error| {
        let message = format!("a manual page cannot be made: {error}");
        CliError::new(ErrorKind::Bug, "bug", &message)
    })?;
    pages.push((format!("{name}.1"), roff));
    for verb in command.get_subcommands().filter(|verb| is_shown(verb)) {
        collect(verb, &format!("{name}-{}", verb.get_name()), pages)?;
    }
    Ok(())
}

/// Renders one page. By default, clap_mangen would put the examples into a section EXTRA and fill their lines.
fn page(command: &Command) -> Result<Vec<u8>, std::io::Error> {
    let version = concat!("shardmill ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone())
        .manual("shardmill")
        .source(version);
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    if command.get_subcommands().any(|verb| !verb.is_hide_set()) {
        page.render_subcommands_section(&mut out)?;
    }
    for (title, text) in headed(command) {
        let mut roff = Roff::default();
        roff.control("SH", [title.to_ascii_uppercase().as_str()]);
        roff.control("nf", []);
        for line in text.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
        roff.to_writer(&mut out)?;
    }
    Ok(out)
}

/// Prints completions for a shell.
pub fn completions(args: &CompletionsArgs, out: &mut Output) -> Result<Exit, Stop> {
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
