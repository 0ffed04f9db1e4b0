//! What each verb does with what was typed: one file per verb.

mod bench;
mod cat;
mod columns;
mod completions;
mod convert;
mod dataset;
mod delta;
mod extract;
mod index;
mod inspect;
mod ls;
mod man;
mod markdown;
mod options;
mod order;
mod picture;
mod plan;
mod range;
mod requests;
mod verify;
mod world;

use crate::args::{Cli, Verb};
use crate::error::Stop;
use crate::output::{Exit, Output};

pub fn run(cli: &Cli, out: &mut Output) -> Result<Exit, Stop> {
    let limits = options::limits(&cli.global.limits)?;
    match &cli.verb {
        Verb::Convert(args) => convert::run(args, limits, out),
        Verb::Inspect(args) => inspect::run(args, limits, out),
        Verb::Ls(args) => ls::run(args, limits, out),
        Verb::Cat(args) => cat::run(args, limits, out),
        Verb::Verify(args) => verify::run(args, limits, out),
        Verb::Index(args) => index::run(args, limits, out),
        Verb::Order(args) => order::run(args, limits, out),
        Verb::Plan(args) => plan::run(args, limits, out),
        Verb::Bench(args) => bench::run(args, limits, out),
        Verb::Completions(args) => completions::run(args, out),
        Verb::Man(args) => man::run(args, out),
        Verb::MarkdownHelp => markdown::run(out),
    }
}
