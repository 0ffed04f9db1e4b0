//! The command `shardmill commit`: publishes the parts of a conversion as one dataset.

use clap::Args;
use shardmill_convert::{CommitPartsOptions, commit};
use shardmill_core::{Limits, escape};
use shardmill_storage::Location;
use shardmill_writer::parts::Verify;

use super::options;
use crate::args::{StorageArgs, TakeoverArgs, values};
use crate::error::Stop;
use crate::output::{Exit, Output, amount, bytes, many};
use crate::signals;

/// Publish the parts that `convert --part` wrote as one dataset
///
/// All parts must exist, and all their files must be unchanged. The index is published last: before that, the dataset
/// does not exist. If the commit is interrupted, the same command resumes it.
#[derive(Args, Debug)]
pub struct CommitArgs {
    /// Directory or prefix in a store with the parts
    #[arg(value_name = "DEST", value_parser = values::dest)]
    pub dest: Location,

    /// Read every shard and check its hash, not only its length
    #[arg(long)]
    pub deep: bool,

    #[command(flatten)]
    pub takeover: TakeoverArgs,

    #[command(flatten)]
    pub storage: StorageArgs,
}

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
            "{}: {} from {}, {}{was_done}",
            escape(&report.dest),
            amount(report.samples, report.shards),
            many(report.parts, "part"),
            bytes(report.stored_bytes),
        ))?;
    }
    Ok(Exit::Done)
}
