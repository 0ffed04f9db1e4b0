use std::sync::Arc;

use shardmill_convert::{GcOptions, GcReport, gc};
use shardmill_core::{Limits, Progress, escape};
use shardmill_storage::Location;

use super::options;
use crate::args::GcArgs;
use crate::error::Stop;
use crate::output::{Align, Exit, Output, Table, bytes, many};
use crate::signals;

pub fn run(args: &GcArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let mut options = GcOptions::new(Location::parse(&args.dest)?);
    options.delete = args.delete;
    options.remote = options::remote(&args.storage)?;
    options.limits = limits;
    options.older_than = options::age("older-than", &args.older_than)?;
    options.lease_patience = options::takeover_after(&args.takeover)?;
    let progress = Arc::new(Progress::new());
    signals::cancel_on_signal(&progress, out.console());
    let report = gc(&options, &progress)?;
    if out.is_json() {
        out.json(&report)?;
    } else if !out.is_quiet() {
        show(&args.dest, &report, out)?;
    }
    Ok(Exit::Done)
}

fn show(dest: &str, report: &GcReport, out: &mut Output) -> Result<(), Stop> {
    let dest = escape(dest);
    if report.files.is_empty() {
        out.line(format_args!("{dest}: nothing is left of a conversion"))?;
        return Ok(());
    }
    let mut table = Table::new(&[Align::Right, Align::Left]);
    for file in &report.files {
        table.row([bytes(file.bytes), escape(&file.name).into_owned()]);
    }
    out.text(table)?;
    let all = report
        .files
        .iter()
        .fold(0_u64, |all, file| all.saturating_add(file.bytes));
    let amount = format!(
        "{} of {}",
        many(report.files.len() as u64, "file"),
        bytes(all)
    );
    match report.deleted {
        true => out.line(format_args!("{dest}: {amount} removed"))?,
        false => out.line(format_args!(
            "{dest}: {amount} left of a conversion; --delete removes them"
        ))?,
    }
    Ok(())
}
