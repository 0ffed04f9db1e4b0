//! The command `shardmill index export`.

use serde::Serialize;
use shardmill_convert::{ExportOptions, Exported};
use shardmill_core::{Limits, escape};
use shardmill_dataset::TarPattern;

use super::options;
use crate::args::{ExportArgs, parse_location};
use crate::error::Stop;
use crate::output::{Exit, Output, many};
use crate::signals;

#[derive(Serialize)]
struct JsonReport<'a> {
    dataset: &'a str,
    #[serde(flatten)]
    report: &'a Exported,
}

pub fn run(args: &ExportArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let pattern = TarPattern::parse(&args.dataset)?;
    let location = match &pattern {
        Some(pattern) => pattern.folder().clone(),
        None => parse_location(&args.dataset)?,
    };
    let options = ExportOptions {
        readers: args.readers.clone(),
        jobs: args.jobs.count(),
        replace: args.force,
        limits,
        remote: options::remote(&args.storage)?,
    };
    let report = signals::with_progress("reading", out, |progress| match &pattern {
        Some(pattern) => shardmill_convert::export_pattern(pattern, &options, progress),
        None => shardmill_convert::export(&location, &options, progress),
    })?;
    if out.is_json() {
        out.json(&JsonReport {
            dataset: &args.dataset,
            report: &report,
        })?;
    } else if !out.is_quiet() {
        out.line(format_args!(
            "{}: {} of {} in {}",
            escape(&args.dataset),
            many(report.files.len() as u64, "file"),
            many(report.samples, "sample"),
            many(report.shards, "shard")
        ))?;
        for file in &report.files {
            out.line(format_args!("  {}", escape(file)))?;
        }
        if report.deleted_samples > 0 {
            out.flush()?;
            out.console().note(format_args!(
                "{} are deleted, and other readers deliver them; `shardmill convert` leaves them out",
                many(report.deleted_samples, "sample")
            ));
        }
    }
    Ok(Exit::Done)
}
