//! The commands `shardmill tar fix` and `shardmill tar repair`: write tar files anew.

use serde::Serialize;
use shardmill_convert::{RewriteKind, RewriteOptions, Rewritten};
use shardmill_core::{ErrorKind, Limits, escape};

use crate::args::RewriteArgs;
use crate::error::{CliError, Stop};
use crate::output::{Exit, Output, many};
use crate::signals;

#[derive(Serialize)]
struct JsonReport<'a> {
    dest: &'a str,
    ok: bool,
    #[serde(flatten)]
    report: &'a Rewritten,
}

pub fn run(
    args: &RewriteArgs,
    kind: RewriteKind,
    limits: Limits,
    out: &mut Output,
) -> Result<Exit, Stop> {
    let options = RewriteOptions {
        kind,
        hashes: args.hashes.clone(),
        jobs: args.jobs.count(),
        limits,
    };
    let report = signals::with_progress("rewriting", out, |progress| {
        shardmill_convert::rewrite_tars(args.source.clone(), &args.dest, &options, progress)
    })?;
    let ok = report.lost.is_empty();
    let dest = &*args.dest.to_string_lossy();
    let json = JsonReport {
        dest,
        ok,
        report: &report,
    };
    out.result(&json, |out| show(dest, &report, out))?;
    Ok(if ok { Exit::Done } else { Exit::Problems })
}

fn show(dest: &str, report: &Rewritten, out: &mut Output) -> Result<(), Stop> {
    for lost in &report.lost {
        let what = match &lost.key {
            Some(key) => format!("sample `{}` is lost: {}", escape(key), lost.message),
            None => format!(
                "bytes {} to {} are lost: {}",
                lost.begin, lost.end, lost.message
            ),
        };
        let cli_error = CliError::new(ErrorKind::Corrupt, lost.id, &what).about(&lost.shard);
        out.console().error(&cli_error, None);
    }
    if out.is_quiet() {
        return Ok(());
    }
    for change in &report.changes {
        out.line(format_args!(
            "{}: `{}`: {}",
            escape(&change.shard),
            escape(&change.member),
            change.message
        ))?;
    }
    out.line(format_args!(
        "{}: {} in {}, {}, {} lost",
        escape(dest),
        many(report.samples, "sample"),
        many(report.shards, "shard"),
        many(report.changes.len() as u64, "change"),
        many(report.lost.len() as u64, "place")
    ))
}
