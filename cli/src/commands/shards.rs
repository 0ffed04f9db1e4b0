//! The shards of a dataset, and their samples: MDS, JSON and XSV shards that an index lists, or tar files.

use std::ops::Range;

use serde::ser::{SerializeMap as _, Serializer};
use shardmill_core::{Error, Format, Limits};
use shardmill_dataset::{Dataset, KEY_COLUMN};
use shardmill_mds::FileHashes;
use shardmill_order::StreamConfig;

use super::dataset;
use super::dataset_location::DatasetLocation;
use super::sample_row::SampleRow;
use super::samples::SampleChoice;
use super::tars::Tars;
use crate::error::{Stop, unknown_column};

/// The number of samples of one shard from which the whole shard is read.
const WHOLE: u64 = 8;

/// The shards of a dataset.
pub enum Shards {
    Indexed(Box<Dataset>),
    Tars(Box<Tars>),
}

/// What is known of a shard without reading its samples.
#[derive(serde::Serialize)]
pub struct ShardFacts<'a> {
    pub shard: usize,
    pub samples: u64,
    pub format: &'static str,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    pub basename: &'a str,
    pub meta_basename: Option<&'a str>,
    #[serde(serialize_with = "serialize_hashes")]
    pub hashes: &'a FileHashes,
    #[serde(skip)]
    pub is_compressed: bool,
}

impl Shards {
    /// Opens the shards at a location, with these of their samples. `typed` is the text that the user typed.
    pub fn open(
        typed: &str,
        location: &DatasetLocation,
        limits: &Limits,
        samples: &SampleChoice,
    ) -> Result<Self, Stop> {
        Ok(match Tars::find(location, limits, samples)? {
            Some(tars) => Self::Tars(Box::new(tars)),
            None => {
                let dataset = dataset::open(typed, location, limits.clone(), samples)?;
                Self::Indexed(Box::new(dataset))
            }
        })
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        match self {
            Self::Indexed(dataset) => dataset.len(),
            Self::Tars(tars) => live_sizes(tars).sum(),
        }
    }

    /// Returns the number of deleted samples that are still stored.
    pub fn deleted(&self) -> u64 {
        match self {
            Self::Indexed(dataset) => dataset.deleted(),
            Self::Tars(tars) => tars.set.deleted(),
        }
    }

    /// Returns the number of live samples of each shard, and a digest of the deleted ones.
    pub fn stream_config(&self) -> StreamConfig {
        match self {
            Self::Indexed(dataset) => dataset::stream_config(dataset),
            Self::Tars(tars) => {
                let sizes: Vec<u64> = live_sizes(tars).collect();
                let deleted = tars.set.deleted_digests();
                StreamConfig::new(&sizes).with_deleted(deleted.first().copied())
            }
        }
    }

    /// Describes each shard.
    pub fn facts(&self) -> Box<dyn Iterator<Item = ShardFacts<'_>> + '_> {
        match self {
            Self::Indexed(dataset) => {
                let shards = dataset.index().shards.iter().enumerate();
                Box::new(shards.map(|(number, shard)| {
                    let (data, meta) = dataset::stored_files(shard);
                    let raw_meta = shard.raw_meta.as_ref().map_or(0, |meta| meta.bytes);
                    ShardFacts {
                        shard: number,
                        samples: dataset.samples_of(number),
                        format: Format::name(shard.config.format()),
                        raw_bytes: shard.raw_data.bytes.saturating_add(raw_meta),
                        stored_bytes: data.bytes.saturating_add(meta.map_or(0, |meta| meta.bytes)),
                        basename: &data.basename,
                        meta_basename: meta.map(|meta| &*meta.basename),
                        hashes: &data.hashes,
                        is_compressed: shard.zip_data.is_some(),
                    }
                }))
            }
            Self::Tars(tars) => {
                let shards = tars.shards().enumerate();
                Box::new(shards.map(|(number, (shard, entry))| ShardFacts {
                    shard: number,
                    samples: shard.live_samples(entry.samples),
                    format: "webdataset",
                    raw_bytes: entry.raw_data.bytes,
                    stored_bytes: entry.stored().bytes,
                    basename: shard.name(),
                    meta_basename: None,
                    hashes: &entry.stored().hashes,
                    is_compressed: entry.compression.is_some(),
                }))
            }
        }
    }

    /// Checks that at least one sample has the column. `name` is the dataset, for errors.
    pub fn check_column(&self, name: &str, column: &str) -> Result<(), Error> {
        let tars = match self {
            Self::Indexed(dataset) => return dataset::check_column(name, dataset, column),
            Self::Tars(tars) => tars,
        };
        let mut known = vec![KEY_COLUMN];
        for (_, entry) in tars.shards() {
            for field in entry.fields.always.iter().chain(&entry.fields.sometimes) {
                if !known.contains(&&**field) {
                    known.push(field);
                }
            }
        }
        match known.contains(&column) {
            true => Ok(()),
            false => Err(unknown_column(name, column, known)),
        }
    }

    /// Calls `show` with each sample in the range, until it returns `false`.
    pub fn each(
        &self,
        range: Range<u64>,
        show: &mut dyn FnMut(&SampleRow<'_>) -> Result<bool, Stop>,
    ) -> Result<(), Stop> {
        let dataset = match self {
            Self::Indexed(dataset) => dataset,
            Self::Tars(tars) => return tars.each(range, show),
        };
        let mut shard = None;
        for number in range.clone() {
            let (this, _) = dataset.locate(number)?;
            if shard != Some(this) {
                shard = Some(this);
                let end = dataset.first_sample(this + 1).min(range.end);
                let is_first = number == dataset.first_sample(this);
                let is_whole = is_first && end == dataset.first_sample(this + 1);
                if end - number >= WHOLE || is_whole {
                    // The dataset caches the last shard that it read.
                    dataset.shard(this)?;
                }
            }
            if !show(&SampleRow::of(dataset, &dataset.sample(number)?)?)? {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the numbers of live samples of tar shards.
fn live_sizes(tars: &Tars) -> impl Iterator<Item = u64> {
    let shards = tars.shards();
    shards.map(|(shard, entry)| shard.live_samples(entry.samples))
}

/// Serializes hashes as a JSON object.
fn serialize_hashes<S: Serializer>(hashes: &FileHashes, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for digest in hashes.iter() {
        map.serialize_entry(digest.algo().name(), &digest.to_string())?;
    }
    map.end()
}
