//! The command `shardmill gc`: finds and removes the leftovers of abandoned conversions.

use clap::Args;
use shardmill_convert::{GcEntry, GcOptions, GcReport, Part, WaitingPart, gc};
use shardmill_core::{Limits, escape, shell_word};
use shardmill_storage::Location;

use super::options;
use crate::args::duration::{self, TypedDuration};
use crate::args::{StorageArgs, TakeoverArgs, values};
use crate::error::Stop;
use crate::output::{Exit, Output, Table, bytes, count, many};
use crate::signals;

/// Show or remove the leftovers of an interrupted conversion that will not be resumed
///
/// Leftovers are shards that the journal of the conversion lists and no index does, its side files and its work folder,
/// parts that were not committed, and shards that an index no longer lists. Files that an index lists are never removed.
/// Without `--delete` nothing is removed. To finish the conversion instead, run its command again.
#[derive(Args, Debug)]
pub struct GcArgs {
    /// Directory or prefix in a store that a conversion wrote to
    #[arg(value_name = "DEST")]
    pub dest: String,

    /// Remove the leftovers
    #[arg(long)]
    pub delete: bool,

    /// Select only this uncommitted part, regardless of its age: 0/4 is the first of four
    #[arg(long, value_name = "I/N", value_parser = values::part)]
    pub part: Option<Part>,

    /// Keep files of parts that are younger than this: `90m`, `24h`, `7d`; `0` if no part is running
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration::age)]
    pub older_than: TypedDuration,

    #[command(flatten)]
    pub takeover: TakeoverArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

pub fn run(args: &GcArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let mut options = GcOptions::new(Location::parse(&args.dest)?);
    options.delete = args.delete;
    options.remote = options::remote(&args.storage)?;
    options.limits = limits;
    options.older_than = args.older_than.duration;
    options.lease_patience = args.takeover.patience();
    args.takeover.single_writer.apply(&mut options.remote);
    options.part = args.part;
    options::announce_waits(&mut options.remote, out);
    let progress = signals::cancelled_by_signals(out.console());
    let report = gc(&options, &progress)?;
    if out.wants_summary(&report)? {
        show(args, &report, out)?;
    }
    Ok(Exit::Done)
}

fn show(args: &GcArgs, report: &GcReport, out: &mut Output) -> Result<(), Stop> {
    let dest = escape(&args.dest);
    show_parts(report, out)?;
    if report.files.is_empty() && report.kept.is_empty() {
        out.line(format_args!("{dest}: no leftovers of a conversion"))?;
        return Ok(());
    }
    show_files(args, report, out)?;
    if !report.kept.is_empty() {
        out.line(format_args!(
            "{dest}: {} of parts kept, written less than {} ago; `shardmill gc {} --delete --older-than 0` removes them if no part is being written",
            amount(&report.kept),
            escape(&args.older_than.text),
            shell_word(&args.dest),
        ))?;
    }
    if !report.parts.is_empty() && !report.deleted {
        out.line(format_args!(
            "{dest}: `shardmill commit {}` publishes the parts when all of them are complete",
            shell_word(&args.dest)
        ))?;
    }
    Ok(())
}

/// Shows the parts that wait for a commit.
fn show_parts(report: &GcReport, out: &mut Output) -> Result<(), Stop> {
    if report.parts.is_empty() {
        return Ok(());
    }
    let row = |part: &WaitingPart| {
        // The first digits are enough to distinguish conversions.
        let conversion = part.conversion.get(..8).unwrap_or(&part.conversion);
        [
            part.part.clone(),
            conversion.to_owned(),
            count(part.samples),
            count(part.shards),
            bytes(part.bytes),
        ]
    };
    let headings = "uncommitted part|conversion|>samples|>shards|>bytes";
    out.text(Table::of(headings, report.parts.iter().map(row)))
}

/// Formats the number and the size of files.
fn amount(files: &[GcEntry]) -> String {
    let all = files
        .iter()
        .fold(0_u64, |all, file| all.saturating_add(file.bytes));
    format!("{} of {}", many(files.len() as u64, "file"), bytes(all))
}

/// Shows the files that were removed or would be removed.
fn show_files(args: &GcArgs, report: &GcReport, out: &mut Output) -> Result<(), Stop> {
    if report.files.is_empty() {
        return Ok(());
    }
    let dest = escape(&args.dest);
    let mut table = Table::aligned(">|");
    for file in &report.files {
        table.row([bytes(file.bytes), escape(&file.name).into_owned()]);
    }
    out.text(table)?;
    let amount = amount(&report.files);
    match report.deleted {
        true => out.line(format_args!("{dest}: {amount} removed"))?,
        false => out.line(format_args!(
            "{dest}: {amount} left over from a conversion; --delete removes them"
        ))?,
    }
    Ok(())
}
