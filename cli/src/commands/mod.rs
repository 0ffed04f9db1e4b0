//! The commands, one file for each.

mod add_column;
mod bench;
mod cat;
mod commit;
mod completions;
mod convert;
mod dataset;
mod dataset_location;
mod delta;
mod diff;
mod doctor;
mod extract;
mod gc;
mod head;
mod index;
mod inspect;
mod lint;
mod ls;
mod mixture;
mod options;
mod order;
mod plan;
mod requests;
mod rows;
mod sample_row;
mod samples;
mod select;
mod shards;
mod source_views;
mod stats;
mod tars;
mod verify;
mod view;
mod which;
mod world;

use crate::args::{Cli, TarVerb, Verb};
use crate::error::Stop;
use crate::output::{Exit, Output};

pub fn run(cli: &Cli, out: &mut Output) -> Result<Exit, Stop> {
    let limits = options::limits(&cli.global.limits);
    match &cli.verb {
        Verb::Convert(args) => convert::run(args, limits, out),
        Verb::Inspect(args) => inspect::run(args, limits, out),
        Verb::Head(args) => head::run(args, limits, out),
        Verb::Diff(args) => diff::run(args, limits, out),
        Verb::Stats(args) => stats::run(args, limits, out),
        Verb::Ls(args) => ls::run(args, limits, out),
        Verb::Cat(args) => cat::run(args, limits, out),
        Verb::AddColumn(args) => add_column::run(args, limits, out),
        Verb::Select(args) => select::run(args, limits, out),
        Verb::Verify(args) => verify::run(args, limits, out),
        Verb::View(args) => view::run(args, &cli.global, limits, out),
        Verb::Index(args) => index::run(args, limits, out),
        Verb::Tar(args) => match &args.verb {
            TarVerb::Lint(args) => lint::run(args, limits, out),
        },
        Verb::Order(args) => order::run(args, limits, out),
        Verb::Plan(args) => plan::run(args, limits, out),
        Verb::Which(args) => which::run(args, limits, out),
        Verb::Bench(args) => bench::run(args, limits, out),
        Verb::Doctor(args) => doctor::run(args, out),
        Verb::Commit(args) => commit::run(args, limits, out),
        Verb::Gc(args) => gc::run(args, limits, out),
        Verb::Completions(args) => completions::run(args, out),
    }
}
