//! Datasets as more than one verb needs them.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use shardmill_core::{ErrorKind, Limits};
use shardmill_mds::{FileHashes, FileInfo, Layout, ShardConfig, ShardEntry};
use shardmill_order::StreamConfig;
use shardmill_reader::{Dataset, MOST_SPLITS, OpenOptions};
use shardmill_storage::{Dir, EntryKind, Folder};

use super::dataset_location::DatasetLocation;
use crate::args::StorageArgs;
use crate::error::{CliError, Stop};

pub const INDEX_NAME: &str = "index.json";

/// Opens the dataset at a location; `location` is what was typed.
pub fn open(
    location: &str,
    dataset_location: &DatasetLocation,
    limits: Limits,
    with_deleted: bool,
) -> Result<Dataset, Stop> {
    match open_dataset_location(dataset_location, limits, with_deleted) {
        Err(Stop::Fault(fault)) if fault.kind == ErrorKind::NotFound => {
            match find(dataset_location) {
                Ok(Found::Splits(splits)) => Err(several(location, splits)),
                _ => Err(Stop::Fault(fault)),
            }
        }
        opened => opened,
    }
}

/// Refuses a location whose directories are datasets, where one of them was meant.
pub fn refuse_several(location: &str, storage: &StorageArgs) -> Result<(), Stop> {
    match find(&DatasetLocation::parse(location, storage)?) {
        Ok(Found::Splits(splits)) => Err(several(location, splits)),
        _ => Ok(()),
    }
}

fn several(location: &str, splits: Vec<(String, DatasetLocation)>) -> Stop {
    CliError::SeveralDatasets {
        location: location.to_owned(),
        names: splits.into_iter().map(|(name, _)| name).collect(),
    }
    .into()
}

/// The same for a location as typed.
pub fn open_typed(
    location: &str,
    storage: &StorageArgs,
    limits: Limits,
    with_deleted: bool,
) -> Result<Dataset, Stop> {
    let dataset_location = DatasetLocation::parse(location, storage)?;
    open(location, &dataset_location, limits, with_deleted)
}

/// Opens the dataset at a site, with the samples that its table no longer has or without.
pub fn open_dataset_location(
    dataset_location: &DatasetLocation,
    limits: Limits,
    with_deleted: bool,
) -> Result<Dataset, Stop> {
    let options = OpenOptions {
        limits,
        with_deleted,
        ..OpenOptions::default()
    };
    dataset_location.dataset(&options)
}

/// How many samples of each shard count, and a digest of those that do not.
pub fn stream_config(dataset: &Dataset) -> StreamConfig {
    let shards = 0..dataset.index().shards.len();
    let sizes: Vec<u64> = shards.map(|shard| dataset.samples_of(shard)).collect();
    StreamConfig::new(&sizes).with_deleted(dataset.live().digest())
}

/// What lies at a location.
pub enum Found {
    /// One dataset.
    One,
    /// A directory without an index whose sub-directories are datasets: their names and places.
    Splits(Vec<(String, DatasetLocation)>),
    /// Neither.
    Nothing,
}

pub fn find(dataset_location: &DatasetLocation) -> Result<Found, Stop> {
    let path = match (dataset_location, dataset_location.store()) {
        (DatasetLocation::Local(path), _) => path,
        (DatasetLocation::Pattern(_), _) => return Ok(Found::One),
        (_, Some(folder)) => return find_in_store(dataset_location, folder),
        _ => return Ok(Found::Nothing),
    };
    if path.is_file() {
        let index = path
            .extension()
            .is_some_and(|extension| extension == "json");
        return Ok(
            if index && path.file_name().is_some_and(|name| name == INDEX_NAME) {
                Found::One
            } else {
                Found::Nothing
            },
        );
    }
    let dir = Dir::open(path)?;
    if dir.exists(INDEX_NAME)? {
        return Ok(Found::One);
    }
    let mut splits = Vec::new();
    for entry in dir.entries()? {
        let Some(name) = entry.name.to_str() else {
            continue;
        };
        if entry.kind != EntryKind::Directory || name.starts_with('.') {
            continue;
        }
        // A name that breaks the rules for names is not a split of ours.
        if matches!(dir.exists(&format!("{name}/{INDEX_NAME}")), Ok(true)) {
            splits.push((name.to_owned(), dataset_location.beneath(name)?));
        }
    }
    Ok(found_of(splits))
}

/// The same for a store.
fn find_in_store(dataset_location: &DatasetLocation, folder: &Folder) -> Result<Found, Stop> {
    if dataset_location.file().is_some() || folder.exists(INDEX_NAME)? {
        return Ok(Found::One);
    }
    if !folder.can_list() {
        return Ok(Found::Nothing);
    }
    let mut splits = Vec::new();
    let entries = folder.entries()?.into_iter();
    for entry in entries.filter(|entry| entry.is_folder).take(MOST_SPLITS) {
        if entry.name.starts_with('.') {
            continue;
        }
        // A name that breaks the rules for names is not a split of ours.
        let index = format!("{}/{INDEX_NAME}", entry.name);
        if matches!(folder.exists(&index), Ok(true)) {
            let split = dataset_location.beneath(&entry.name)?;
            splits.push((entry.name, split));
        }
    }
    Ok(found_of(splits))
}

fn found_of(splits: Vec<(String, DatasetLocation)>) -> Found {
    if splits.is_empty() {
        Found::Nothing
    } else {
        Found::Splits(splits)
    }
}

/// The datasets at a location: the one that is there, or those in the directories beneath it. `true` says
/// that there may be several.
pub fn find_all(
    location: &str,
    dataset_location: &DatasetLocation,
) -> Result<(Vec<DatasetLocation>, bool), Stop> {
    match find(dataset_location)? {
        Found::One => Ok((vec![dataset_location.clone()], false)),
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

/// The files of a shard as they are stored: data, and offsets where they are a file of their own.
pub fn stored_files(shard: &ShardEntry) -> (&FileInfo, Option<&FileInfo>) {
    let data = shard.zip_data.as_ref().unwrap_or(&shard.raw_data);
    (data, shard.zip_meta.as_ref().or(shard.raw_meta.as_ref()))
}

/// Bytes of a shard on the disk.
pub fn stored_bytes(shard: &ShardEntry) -> u64 {
    let (data, meta) = stored_files(shard);
    data.bytes.saturating_add(meta.map_or(0, |meta| meta.bytes))
}

/// Bytes of a shard without compression.
pub fn raw_bytes(shard: &ShardEntry) -> u64 {
    shard
        .raw_data
        .bytes
        .saturating_add(shard.raw_meta.as_ref().map_or(0, |meta| meta.bytes))
}

/// The columns of a shard: name, encoding, bytes of a value where they are fixed.
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

/// Hashes as a JSON object.
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
