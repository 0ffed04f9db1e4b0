//! The command `shardmill inspect --shards`, also called `shardmill ls`: lists the shards of a dataset.

use serde::Serialize;
use shardmill_core::{Format, Limits, escape};

use super::dataset;
use super::dataset_location::DatasetLocation;
use super::samples::SampleChoice;
use super::tars::Tars;
use crate::args::LsArgs;
use crate::error::Stop;
use crate::output::{Exit, Output, bytes, count};

#[derive(Serialize)]
struct JsonShard<'a> {
    shard: usize,
    samples: u64,
    format: &'a str,
    raw_bytes: u64,
    stored_bytes: u64,
    basename: &'a str,
    meta_basename: Option<&'a str>,
    hashes: dataset::Hashes<'a>,
}

pub fn run(args: &LsArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let location = DatasetLocation::parse(&args.dataset, &args.storage)?;
    let samples = SampleChoice::read(&args.samples, &args.storage)?;
    list(&args.dataset, &location, limits, &samples, out)
}

/// Lists the shards of the dataset at `location`, which the user typed as `typed`.
pub fn list(
    typed: &str,
    location: &DatasetLocation,
    limits: Limits,
    samples: &SampleChoice,
    out: &mut Output,
) -> Result<Exit, Stop> {
    if let Some(tars) = Tars::find(location, &limits, samples)? {
        return list_tars(&tars, out);
    }
    let dataset = dataset::open(typed, location, limits, samples)?;
    for (number, shard) in dataset.index().shards.iter().enumerate() {
        let (data, meta) = dataset::stored_files(shard);
        let shard = JsonShard {
            shard: number,
            samples: dataset.samples_of(number),
            format: Format::name(shard.config.format()),
            raw_bytes: dataset::raw_bytes(shard),
            stored_bytes: dataset::stored_bytes(shard),
            basename: &data.basename,
            meta_basename: meta.map(|meta| &*meta.basename),
            hashes: dataset::Hashes(&data.hashes),
        };
        shard.show(out)?;
    }
    Ok(Exit::Done)
}

fn list_tars(tars: &Tars, out: &mut Output) -> Result<Exit, Stop> {
    for (number, shard) in tars.facts().iter().enumerate() {
        let shard = JsonShard {
            shard: number,
            samples: shard.samples,
            format: "webdataset",
            raw_bytes: shard.raw_bytes,
            stored_bytes: shard.stored_bytes,
            basename: &shard.name,
            meta_basename: None,
            hashes: dataset::Hashes(&shard.hashes),
        };
        shard.show(out)?;
    }
    Ok(Exit::Done)
}

impl JsonShard<'_> {
    /// Prints a line. Columns have a minimum width instead of an exact one, because a list can have a million lines.
    fn show(&self, out: &mut Output) -> Result<(), Stop> {
        if out.is_json() {
            return out.json(self);
        }
        let mut hashes = self.hashes.0.iter();
        let hash = hashes
            .next()
            .map(|hash| format!("  {}:{hash}", hash.algo()));
        out.line(format_args!(
            "{:>6}  {:>9} samples  {:>10} raw  {:>10} stored  {}{}",
            self.shard,
            count(self.samples),
            bytes(self.raw_bytes),
            bytes(self.stored_bytes),
            escape(self.basename),
            hash.unwrap_or_default(),
        ))
    }
}
