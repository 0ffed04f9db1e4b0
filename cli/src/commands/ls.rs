//! The command `shardmill inspect --shards`, also called `shardmill ls`: lists the shards of a dataset.

use shardmill_core::{Limits, escape};

use super::dataset_location::DatasetLocation;
use super::samples::SampleChoice;
use super::shards::Shards;
use crate::args::LsArgs;
use crate::error::Stop;
use crate::output::{Exit, Output, bytes, count};

pub fn run(args: &LsArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let location = DatasetLocation::parse(&args.dataset, &args.storage)?;
    let samples = SampleChoice::read(&args.samples, &args.storage)?;
    list(&args.dataset, &location, &limits, &samples, out)
}

/// Lists the shards of the dataset at `location`, which the user typed as `typed`.
pub fn list(
    typed: &str,
    location: &DatasetLocation,
    limits: &Limits,
    samples: &SampleChoice,
    out: &mut Output,
) -> Result<Exit, Stop> {
    for shard in Shards::open(typed, location, limits, samples)?.facts() {
        if out.is_json() {
            out.json(&shard)?;
            continue;
        }
        let hash = shard.hashes.iter().next();
        let hash = hash.map(|hash| format!("  {}:{hash}", hash.algo()));
        // Columns have a minimum width instead of an exact one, because a list can have a million lines.
        out.line(format_args!(
            "{:>6}  {:>9} samples  {:>10} raw  {:>10} stored  {}{}",
            shard.shard,
            count(shard.samples),
            bytes(shard.raw_bytes),
            bytes(shard.stored_bytes),
            escape(shard.basename),
            hash.unwrap_or_default(),
        ))?;
    }
    Ok(Exit::Done)
}
