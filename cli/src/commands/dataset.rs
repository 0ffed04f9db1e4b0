//! Helpers for datasets that several commands use.

use std::ops::Range;
use std::path::Path;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use shardmill_core::{ErrorKind, Limits};
use shardmill_dataset::{Dataset, OpenOptions, splits_in};
use shardmill_mds::{FileHashes, FileInfo, Layout, ShardConfig, ShardEntry};
use shardmill_order::StreamConfig;
use shardmill_storage::Folder;
use shardmill_writer::INDEX_NAME;

use super::dataset_location::DatasetLocation;
use super::samples::SampleChoice;
use crate::args::StorageArgs;
use crate::error::{Fault, Stop};
use crate::output::Output;

/// Opens the dataset at a location. `location` is the text that the user typed.
pub fn open(
    location: &str,
    dataset_location: &DatasetLocation,
    limits: Limits,
    samples: &SampleChoice,
) -> Result<Dataset, Stop> {
    match open_dataset_location(dataset_location, limits, samples) {
        Err(Stop::Fault(fault)) if fault.kind == ErrorKind::NotFound => {
            match find(dataset_location) {
                Ok(Found::Splits(splits)) => Err(several(location, splits)),
                _ => Err(Stop::Fault(fault)),
            }
        }
        opened => opened,
    }
}

/// Rejects a location that contains several datasets, where one is expected.
pub fn refuse_several(location: &str, storage: &StorageArgs) -> Result<(), Stop> {
    match find(&DatasetLocation::parse(location, storage)?) {
        Ok(Found::Splits(splits)) => Err(several(location, splits)),
        _ => Ok(()),
    }
}

pub fn several(location: &str, splits: Vec<(String, DatasetLocation)>) -> Stop {
    let folder = location.trim_end_matches('/');
    let names: Vec<String> = splits
        .into_iter()
        .map(|(name, _)| format!("{folder}/{name}"))
        .collect();
    let message = "it is a folder of datasets, and this command reads one";
    Fault::usage("several-datasets", message)
        .about(location)
        .with_hint(&format!("name one of them: {}", names.join(", ")))
        .into()
}

/// Opens the dataset at a location, with these of its samples.
pub fn open_dataset_location(
    dataset_location: &DatasetLocation,
    limits: Limits,
    samples: &SampleChoice,
) -> Result<Dataset, Stop> {
    let options = OpenOptions {
        limits,
        with_deleted: samples.with_deleted,
        view: samples.view.clone(),
        ..OpenOptions::default()
    };
    dataset_location.dataset(&options)
}

/// Returns the number of live samples of each shard, and a digest of the others.
pub fn stream_config(dataset: &Dataset) -> StreamConfig {
    let shards = 0..dataset.index().shards.len();
    let sizes: Vec<u64> = shards.map(|shard| dataset.samples_of(shard)).collect();
    StreamConfig::new(&sizes).with_deleted(dataset.live().digest())
}

/// The datasets found at a location.
pub enum Found {
    /// Tar files.
    Tars,
    /// One dataset with an index.
    One,
    /// A directory without an index whose subdirectories are datasets: their names and locations.
    Splits(Vec<(String, DatasetLocation)>),
    /// No dataset.
    Nothing,
}

/// Finds tar files or datasets at a location. Patterns of other files and missing paths contain none.
pub fn find_any(location: &DatasetLocation, limits: &Limits) -> Result<Found, Stop> {
    let may_exist = match location {
        DatasetLocation::Local(path) => path.symlink_metadata().is_ok(),
        DatasetLocation::Store(store) => !store.is_source(),
        DatasetLocation::Pattern(_) => true,
    };
    match may_exist {
        false => Ok(Found::Nothing),
        true if location.holds_tars(limits)? => Ok(Found::Tars),
        true => find(location),
    }
}

/// Finds datasets with an index at a location.
pub fn find(location: &DatasetLocation) -> Result<Found, Stop> {
    match location {
        DatasetLocation::Local(path) if path.is_file() => Ok(match path.ends_with(INDEX_NAME) {
            true => Found::One,
            false => Found::Nothing,
        }),
        DatasetLocation::Pattern(_) => Ok(Found::One),
        _ if location.file().is_some() => Ok(Found::One),
        _ => {
            let folder = location.folder()?;
            if folder.exists(INDEX_NAME)? {
                return Ok(Found::One);
            }
            match folder.can_list() {
                true => splits(location, &folder),
                false => Ok(Found::Nothing),
            }
        }
    }
}

/// Finds the datasets in the subfolders of a folder without an index.
fn splits(dataset_location: &DatasetLocation, folder: &Folder) -> Result<Found, Stop> {
    let mut splits = Vec::new();
    for name in splits_in(folder)? {
        let split = dataset_location.beneath(&name)?;
        splits.push((name, split));
    }
    Ok(match splits.is_empty() {
        true => Found::Nothing,
        false => Found::Splits(splits),
    })
}

/// Returns the datasets at a location: the dataset itself, or those in its subdirectories. `true` means that there may be
/// several.
pub fn find_all(
    location: &str,
    dataset_location: &DatasetLocation,
) -> Result<(Vec<DatasetLocation>, bool), Stop> {
    match find(dataset_location)? {
        Found::Tars | Found::One => Ok((vec![dataset_location.clone()], false)),
        Found::Splits(splits) => Ok((
            splits
                .into_iter()
                .map(|(_, dataset_location)| dataset_location)
                .collect(),
            true,
        )),
        Found::Nothing => Err(dataset_location.no_dataset(location).into()),
    }
}

/// The samples of a dataset, and the requested columns.
pub trait Samples {
    /// Returns the number of samples.
    fn total(&self) -> u64;

    /// Checks that at least one sample has the column.
    fn check_column(&self, column: &str) -> Result<(), Fault>;

    /// Returns the number of the first sample with this key.
    fn find(&self, key: &str) -> Result<u64, Stop>;

    /// Prints samples as lines of JSON.
    fn print(
        &self,
        range: Range<u64>,
        max_bytes: Option<usize>,
        out: &mut Output,
    ) -> Result<(), Stop>;

    /// Writes the stored bytes of the requested columns of a sample.
    fn raw(&self, number: u64, out: &mut Output) -> Result<(), Stop>;

    /// Writes the fields of samples as files. Returns the number of files.
    fn extract(&self, range: Range<u64>, dir: &Path, by_key: bool) -> Result<u64, Stop>;
}

/// Returns the stored files of a shard: the data, and the offsets if they are a separate file.
pub fn stored_files(shard: &ShardEntry) -> (&FileInfo, Option<&FileInfo>) {
    let data = shard.zip_data.as_ref().unwrap_or(&shard.raw_data);
    (data, shard.zip_meta.as_ref().or(shard.raw_meta.as_ref()))
}

/// Returns the stored size of a shard in bytes.
pub fn stored_bytes(shard: &ShardEntry) -> u64 {
    let (data, meta) = stored_files(shard);
    data.bytes.saturating_add(meta.map_or(0, |meta| meta.bytes))
}

/// Returns the uncompressed size of a shard in bytes.
pub fn raw_bytes(shard: &ShardEntry) -> u64 {
    shard
        .raw_data
        .bytes
        .saturating_add(shard.raw_meta.as_ref().map_or(0, |meta| meta.bytes))
}

/// Returns the columns of a shard: name, encoding, and the size of a value if it is fixed.
pub fn columns(config: &ShardConfig) -> Vec<(&str, String, Option<u64>)> {
    match &config.layout {
        Layout::Mds { columns } => {
            let column = columns.iter();
            column
                .map(|column| {
                    (
                        column.name.as_str(),
                        column.encoding.to_string(),
                        column.encoding.fixed_size(),
                    )
                })
                .collect()
        }
        Layout::Json { columns, .. } | Layout::Xsv { columns, .. } => columns
            .iter()
            .map(|column| (column.name.as_str(), column.encoding.to_string(), None))
            .collect(),
    }
}

/// Serializes hashes as a JSON object.
pub struct Hashes<'a>(pub &'a FileHashes);

impl Serialize for Hashes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for digest in self.0.iter() {
            map.serialize_entry(digest.algo().name(), &digest.to_string())?;
        }
        map.end()
    }
}
