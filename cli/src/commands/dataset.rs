//! Helpers for datasets that several commands use.

use std::sync::Arc;

use shardmill_core::{Error, ErrorKind, Limits};
use shardmill_dataset::{Dataset, OpenOptions, splits_in};
use shardmill_mds::{FileInfo, ShardEntry};
use shardmill_order::StreamConfig;
use shardmill_writer::INDEX_NAME;

use super::dataset_location::DatasetLocation;
use super::samples::SampleChoice;
use crate::args::StorageArgs;
use crate::error::{Stop, unknown_column};

/// Opens the dataset at a location, with these of its samples. `location` is the text that the user typed.
pub fn open(
    location: &str,
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
    match dataset_location.dataset(&options) {
        Err(Stop::Error(error)) if error.kind() == ErrorKind::NotFound => {
            match find(dataset_location) {
                Ok(Found::Splits(splits)) => Err(several(location, splits)),
                _ => Err(Stop::Error(error)),
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
    Error::usage("several-datasets", message)
        .about(location)
        .with_hint(format!("name one of them: {}", names.join(", ")))
        .into()
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
        _ => !location.is_source_in_store(),
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
        DatasetLocation::Pattern { .. } | DatasetLocation::Store { file: Some(_), .. } => {
            Ok(Found::One)
        }
        _ => {
            let folder = location.folder()?;
            if folder.exists(INDEX_NAME)? {
                return Ok(Found::One);
            }
            let mut splits = Vec::new();
            if folder.can_list() {
                for name in splits_in(&folder)? {
                    let split = location.join(&name)?;
                    splits.push((name, split));
                }
            }
            Ok(match splits.is_empty() {
                true => Found::Nothing,
                false => Found::Splits(splits),
            })
        }
    }
}

/// Returns the stored files of a shard: the data, and the offsets if they are a separate file.
pub fn stored_files(shard: &ShardEntry) -> (&FileInfo, Option<&FileInfo>) {
    let data = shard.zip_data.as_ref().unwrap_or(&shard.raw_data);
    (data, shard.zip_meta.as_ref().or(shard.raw_meta.as_ref()))
}

/// Checks that at least one sample has the column. `name` is the dataset, for errors.
pub fn check_column(name: &str, dataset: &Dataset, column: &str) -> Result<(), Error> {
    let shards = &dataset.index().shards;
    let mut configs = shards.iter().map(|shard| &shard.config);
    // Shards with equal configs share one, so a million of them are compared by address.
    let mut seen = None;
    let found = configs.any(|config| {
        let address = Arc::as_ptr(config);
        let new = seen.replace(address) != Some(address);
        new && config.column_names().any(|name| name == column)
    });
    match shards.first() {
        Some(first) if !found => {
            let known = first.config.column_names();
            Err(unknown_column(name, column, known))
        }
        _ => Ok(()),
    }
}
