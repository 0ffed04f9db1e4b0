use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use shardmill_core::{Diagnostic, ErrorKind};
use shardmill_storage::{Dir, PublishMode};

use super::options;
use crate::args::{Cli, ManArgs};
use crate::error::Stop;
use crate::output::{Exit, Output};

pub fn run(args: &ManArgs, out: &mut Output) -> Result<Exit, Stop> {
    let pages = pages()?;
    let Some(dir) = &args.out else {
        for (_, page) in &pages {
            out.bytes(page)?;
        }
        return Ok(Exit::Done);
    };
    let dir = Dir::create(&options::location(dir)?)?;
    for (name, page) in &pages {
        dir.publish_bytes(None, name, page, PublishMode::Replace)?;
    }
    Ok(Exit::Done)
}

/// File name and roff text of every page.
fn pages() -> Result<Vec<(String, Vec<u8>)>, PageError> {
    let mut command = Cli::command();
    command.build();
    let mut pages = Vec::new();
    collect(&command, "shardmill", &mut pages)?;
    Ok(pages)
}

fn collect(
    command: &Command,
    name: &str,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), PageError> {
    let page = command.clone();
    let mut roff = Vec::new();
    Man::new(page)
        .manual("shardmill")
        .render(&mut roff)
        .map_err(PageError)?;
    pages.push((format!("{name}.1"), roff));
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        collect(verb, &format!("{name}-{}", verb.get_name()), pages)?;
    }
    Ok(())
}

/// Writing to memory failed.
#[derive(Debug, thiserror::Error)]
#[error("a manual page cannot be made")]
struct PageError(#[source] std::io::Error);

impl Diagnostic for PageError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Bug
    }

    fn id(&self) -> &'static str {
        "bug"
    }
}
