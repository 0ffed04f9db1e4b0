//! The command `shardmill commit`: publishes the parts of a conversion as one dataset.

use shardmill_convert::{CommitPartsOptions, commit};
use shardmill_core::{Limits, escape};
use shardmill_writer::parts::Verify;

use super::options;
use crate::args::CommitArgs;
use crate::error::Stop;
use crate::output::{Exit, Output, bytes, many};
use crate::signals;

pub fn run(args: &CommitArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let mut options = CommitPartsOptions::new(args.dest.clone());
    options.remote = options::remote(&args.storage)?;
    options.commit.lease_patience = Some(args.takeover.patience());
    args.takeover.single_writer.apply(&mut options.remote);
    options::announce_waits(&mut options.remote, out);
    options.commit.limits = limits;
    if args.deep {
        options.commit.verify = Verify::Hashes;
    }
    let progress = signals::cancelled_by_signals(out.console());
    let report = commit(&options, &progress)?;
    if out.wants_summary(&report)? {
        let was_done = match report.was_done {
            true => "; it was published before",
            false => "",
        };
        out.line(format_args!(
            "{}: {} in {} from {}, {}{was_done}",
            escape(&report.dest),
            many(report.samples, "sample"),
            many(report.shards, "shard"),
            many(report.parts, "part"),
            bytes(report.stored_bytes),
        ))?;
    }
    Ok(Exit::Done)
}
