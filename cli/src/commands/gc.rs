//! The command `shardmill gc`: finds and removes the leftovers of abandoned conversions.

use shardmill_convert::{GcEntry, GcOptions, GcReport, gc};
use shardmill_core::{Limits, escape, shell_word};
use shardmill_storage::Location;

use super::options;
use crate::args::GcArgs;
use crate::error::Stop;
use crate::output::{Exit, Output, Table, bytes, count, many};
use crate::signals;

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
    let mut table = Table::headed("uncommitted part|conversion|>samples|>shards|>bytes");
    for part in &report.parts {
        // The first digits are enough to distinguish conversions.
        let conversion = part.conversion.get(..8).unwrap_or(&part.conversion);
        table.row([
            part.part.clone(),
            conversion.to_owned(),
            count(part.samples),
            count(part.shards),
            bytes(part.bytes),
        ]);
    }
    out.text(table)
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
