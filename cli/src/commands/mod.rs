//! The verbs, one file for each: its options, what it does, and its output.

mod add_column;
mod bench;
mod cat;
mod commit;
mod completions;
mod convert;
mod dataset;
mod dataset_location;
mod delta;
mod doctor;
mod extract;
mod gc;
mod head;
mod index;
mod inspect;
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

#[cfg(test)]
pub use completions::is_shown;

use clap::{Arg, Command, Parser, Subcommand};

use crate::args::GlobalArgs;
use crate::error::{Stop, one_line};
use crate::output::{Exit, Output};

/// Convert tables and file trees to training shards, and inspect them.
#[derive(Debug, Parser)]
#[command(
    name = "shardmill",
    bin_name = "shardmill",
    version,
    max_term_width = 100
)]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,

    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    Convert(Box<convert::ConvertArgs>),
    Inspect(inspect::InspectArgs),
    Head(head::HeadArgs),
    Stats(stats::StatsArgs),
    Cat(cat::CatArgs),
    AddColumn(Box<add_column::AddColumnArgs>),
    Select(select::SelectArgs),
    Verify(verify::VerifyArgs),
    View(view::ViewArgs),
    Index(index::IndexArgs),
    Order(Box<order::OrderArgs>),
    Plan(Box<plan::PlanArgs>),
    Which(Box<which::WhichArgs>),
    Bench(Box<bench::BenchArgs>),
    Doctor(doctor::DoctorArgs),
    Commit(commit::CommitArgs),
    Gc(gc::GcArgs),
    Completions(completions::CompletionsArgs),
}

/// Runs the verb. The hint of an error names only options that the verb has. `definition` returns the command line.
pub fn run(cli: &Cli, definition: fn() -> Command, out: &mut Output) -> Result<Exit, Stop> {
    run_verb(cli, definition, out).map_err(|stop| match stop {
        Stop::Error(error) => match error.hint().map(one_line) {
            Some(hint) => Stop::Error(error.with_hint(fitted(hint, &cli.verb, definition))),
            None => Stop::Error(error),
        },
        Stop::ClosedPipe => stop,
    })
}

/// Adapts the hint of a source, which is written for a conversion of all columns, to a verb.
fn fitted(hint: String, verb: &Verb, definition: fn() -> Command) -> String {
    const REST: &str = "--column '*' ";
    let name = match verb {
        // A column of the hint replaces the typed one of its name.
        Verb::Convert(args) if !args.columns.is_empty() => return hint.replace(REST, ""),
        Verb::AddColumn(args) if !args.columns.is_empty() => return hint.replace(REST, ""),
        Verb::Head(_) => "head",
        Verb::Stats(_) => "stats",
        Verb::Select(_) => "select",
        Verb::View(_) => "view",
        _ => return hint,
    };
    let command = definition();
    let known = command.find_subcommand(name);
    let verbs = [Some(&command), known].into_iter().flatten();
    let options: Vec<&str> = verbs
        .flat_map(Command::get_arguments)
        .filter_map(Arg::get_long)
        .collect();
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    let mut named = hint.split(' ').filter_map(|word| word.strip_prefix("--"));
    let is_foreign = hint.contains(REST)
        || named.any(|word| !options.contains(&word.trim_end_matches(|c| !is_letter(c))));
    match is_foreign && !hint.contains("`shardmill ") {
        true => format!("`shardmill convert` can read it: {hint}"),
        false => hint,
    }
}

fn run_verb(cli: &Cli, definition: fn() -> Command, out: &mut Output) -> Result<Exit, Stop> {
    let limits = options::limits(&cli.global.limits);
    match &cli.verb {
        Verb::Convert(args) => convert::run(args, limits, definition, out),
        Verb::Inspect(args) => inspect::run(args, limits, out),
        Verb::Head(args) => head::run(args, limits, out),
        Verb::Stats(args) => stats::run(args, limits, out),
        Verb::Cat(args) => cat::run(args, limits, out),
        Verb::AddColumn(args) => add_column::run(args, limits, out),
        Verb::Select(args) => select::run(args, limits, out),
        Verb::Verify(args) => verify::run(args, limits, out),
        Verb::View(args) => view::run(args, &cli.global, limits, out),
        Verb::Index(args) => index::run(args, limits, out),
        Verb::Order(args) => order::run(args, limits, out),
        Verb::Plan(args) => plan::run(args, limits, out),
        Verb::Which(args) => which::run(args, limits, out),
        Verb::Bench(args) => bench::run(args, limits, out),
        Verb::Doctor(args) => doctor::run(args, out),
        Verb::Commit(args) => commit::run(args, limits, out),
        Verb::Gc(args) => gc::run(args, limits, out),
        Verb::Completions(args) => completions::run(args, &definition(), out),
    }
}
