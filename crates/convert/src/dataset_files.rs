//! The files of datasets in a destination: which entries belong to one, and their removal.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use shardmill_core::{Diagnostic as _, Error, ErrorKind, Limits};
use shardmill_dataset::{
    COLUMNS_FOLDER, COLUMNS_NAME, LateColumns, Lengths, PROVENANCE_NAME, RECORD_NAME,
    TOMBSTONES_NAME, Videos,
};
use shardmill_storage::{DestinationEntry, StorageError};
use shardmill_writer::parts::is_shard_name;
use shardmill_writer::{
    DatasetIndex, INDEX_NAME, ShardForm, ShardFormat, ShardPattern, TABLE_INDEX_NAME,
    is_table_file_name,
};

use crate::export;
use crate::journal::Found;
use crate::options::ConvertOptions;
use crate::provenance;
use crate::target::{Target, WORK_FOLDER, in_folder, side_name};

/// The names of the indexes of all formats.
pub(crate) const INDEX_NAMES: [&str; 2] = [INDEX_NAME, TABLE_INDEX_NAME];

/// Returns whether a name is that of the provenance beside an index of any format.
pub(crate) fn is_provenance(name: &str) -> bool {
    name == PROVENANCE_NAME || name == side_name(ShardFormat::Parquet, PROVENANCE_NAME)
}

/// Returns the indexes in a folder that can be read, and whether others cannot.
fn indexes_in(
    target: Target<'_>,
    folder: &str,
    limits: &Limits,
) -> Result<(Vec<DatasetIndex>, bool), StorageError> {
    let (mut indexes, mut is_any_damaged) = (Vec::new(), false);
    for name in INDEX_NAMES {
        let text = target.read(&in_folder(folder, name), limits.index_bytes);
        match text.map(|text| text.map(|text| DatasetIndex::parse(&text, limits))) {
            Ok(None) => {}
            Ok(Some(Ok(index))) => indexes.push(index),
            Ok(Some(Err(_))) => is_any_damaged = true,
            Err(error) if error.kind() == ErrorKind::Corrupt => is_any_damaged = true,
            Err(error) => return Err(error),
        }
    }
    Ok((indexes, is_any_damaged))
}

/// Returns the files that the indexes in a folder list, or `None` if there is no index.
pub(crate) fn listed_in(
    target: Target<'_>,
    folder: &str,
    limits: &Limits,
) -> Result<Option<BTreeSet<String>>, StorageError> {
    let (indexes, is_any_damaged) = indexes_in(target, folder, limits)?;
    let files = indexes.iter().flat_map(DatasetIndex::stored_files);
    let files = files.map(|(name, _)| name.to_owned());
    Ok((is_any_damaged || !indexes.is_empty()).then(|| files.collect()))
}

/// Returns the number of the generation in the names of a new dataset, or `None` if no file of the existing datasets in its
/// folders can have one of its names.
///
/// The number is larger than those of all parts and generations in the folders. So no name is used twice while readers may
/// have an earlier dataset open.
pub(crate) fn next_generation(
    target: Target<'_>,
    folders: &[String],
    form: &ShardForm,
    limits: &Limits,
) -> Result<Option<u64>, StorageError> {
    let mut next = None;
    for folder in folders {
        let (indexes, is_any_damaged) = indexes_in(target, folder, limits)?;
        let entries = target.entries(folder)?;
        let present = form.last_number(entries.iter().map(|entry| entry.name.as_str()));
        let listed = indexes.iter().flat_map(DatasetIndex::stored_files);
        let mut listed = form.last_number(listed.map(|(name, _)| name));
        if is_any_damaged {
            listed = listed.max(present);
        }
        if listed.is_some() {
            let last = listed.max(present).unwrap_or_default();
            next = next.max(Some(last.saturating_add(1)));
        }
    }
    Ok(next)
}

/// The file names of a dataset in one folder.
struct KnownFiles {
    /// The files that an index of tar shards or of a table lists. Users can choose the names of tar shards, and other
    /// programs may write Parquet files of the same names.
    listed: BTreeSet<String>,
}

impl KnownFiles {
    fn of(target: Target<'_>, folder: &str, limits: &Limits) -> Result<Self, StorageError> {
        let (indexes, _) = indexes_in(target, folder, limits)?;
        let has_own_names = |index: &&DatasetIndex| index.format != ShardFormat::Mds;
        let indexes = indexes.iter().filter(has_own_names);
        let files = indexes.flat_map(DatasetIndex::stored_files);
        let listed = files.map(|(name, _)| name.to_owned()).collect();
        Ok(Self { listed })
    }

    /// Returns whether a file name can belong to a dataset.
    fn has(&self, name: &str, options: &ConvertOptions) -> bool {
        let (pattern, default) = (options.shards.tar.pattern(), ShardPattern::default());
        let is_table = options.shards.to == ShardFormat::Parquet;
        INDEX_NAMES.contains(&name)
            || is_provenance(name)
            || name == RECORD_NAME
            || name == TOMBSTONES_NAME
            || name == COLUMNS_NAME
            || Lengths::is_file_name(name)
            || Videos::is_file_name(name)
            || name == WORK_FOLDER
            || is_shard_name(name)
            || self.listed.contains(name)
            || (options.shards.to == ShardFormat::Webdataset && pattern.matches(name))
            || (is_table && is_table_file_name(name))
            || default.matches(name)
            || export::is_exported(name, &[&pattern, &default], self.listed.iter())
    }
}

/// Returns an entry of the destination that belongs neither to a dataset nor to an interrupted run.
pub(crate) fn unknown_entry(
    target: Target<'_>,
    folders: &[String],
    options: &ConvertOptions,
) -> Result<Option<String>, StorageError> {
    let limits = &options.source.limits;
    let ours = KnownFiles::of(target, "", limits)?;
    let interrupted = Found::read(target, limits)?;
    let interrupted = interrupted.map_or_else(Vec::new, |found| found.folders());
    for entry in target.entries("")? {
        if is_state_folder(&entry) || (entry.is_folder && is_side_folder(target, &entry.name)?) {
            continue;
        }
        if entry.is_folder {
            let inner = target.entries(&entry.name)?;
            let ours = KnownFiles::of(target, &entry.name, limits)?;
            for inner in &inner {
                let known = if inner.is_folder {
                    inner.name == WORK_FOLDER
                        || is_side_folder(target, &in_folder(&entry.name, &inner.name))?
                } else {
                    ours.has(&inner.name, options)
                };
                if !known {
                    return Ok(Some(format!("{}/{}", entry.name, inner.name)));
                }
            }
            // The folder must be a split of this conversion, of an interrupted one, or of a published one. Any other
            // folder is a separate dataset or unknown.
            if !inner.is_empty()
                && !folders.contains(&entry.name)
                && !interrupted.contains(&entry.name)
                && !provenance::is_split(target, &entry.name)
            {
                return Ok(Some(entry.name));
            }
            // A run that was killed before it wrote into the folder of a split leaves the folder empty.
            continue;
        }
        if !ours.has(&entry.name, options) {
            return Ok(Some(entry.name));
        }
    }
    Ok(None)
}

/// Returns whether an entry is the work folder of conversions, or a folder `.NAME.shardmill`, in which readers keep their
/// state beside the dataset `NAME`.
pub(crate) fn is_state_folder(entry: &DestinationEntry) -> bool {
    entry.is_folder && entry.name.starts_with('.') && entry.name.ends_with(WORK_FOLDER)
}

/// Returns whether a folder contains only shards of late columns.
fn is_side_folder(target: Target<'_>, name: &str) -> Result<bool, StorageError> {
    Ok(late_shards(target, name)?.is_some())
}

/// Returns the shards of late columns that no list names, if the destination holds a dataset.
pub(crate) fn orphan_columns(target: Target<'_>, limits: &Limits) -> Result<Vec<String>, Error> {
    let Some(folders) = late_shards(target, COLUMNS_FOLDER)? else {
        return Ok(Vec::new());
    };
    if folders.is_empty() || target.file_version(INDEX_NAME)?.is_none() {
        return Ok(Vec::new());
    }
    let list = target.read(COLUMNS_NAME, limits.index_bytes)?;
    let list = list.map(|text| LateColumns::parse(&text, Path::new(COLUMNS_NAME), limits));
    let list = list.transpose()?;
    let named: BTreeSet<&str> = list.iter().flat_map(LateColumns::files).collect();
    let shards = folders.into_values().flatten();
    Ok(shards
        .filter(|name| !named.contains(name.as_str()))
        .collect())
}

/// Returns the shards in the folders of splits that no index lists. A run that was killed before it recorded them leaves
/// them.
pub(crate) fn orphan_shards(
    target: Target<'_>,
    limits: &Limits,
) -> Result<Vec<String>, StorageError> {
    let mut orphans = Vec::new();
    let default = ShardPattern::default();
    for folder in dataset_folders(target)? {
        if folder.is_empty() || !provenance::is_split(target, &folder) {
            continue;
        }
        // Without all indexes, it is not known which shards belong to a dataset.
        let (indexes, is_any_damaged) = indexes_in(target, &folder, limits)?;
        if is_any_damaged || indexes.is_empty() {
            continue;
        }
        let listed = indexes.iter().flat_map(DatasetIndex::stored_files);
        let listed: BTreeSet<&str> = listed.map(|(name, _)| name).collect();
        let entries = target.entries(&folder)?.into_iter();
        let is_orphan = |entry: &DestinationEntry| {
            // Other programs may write Parquet files with the names of ours.
            let is_shard = is_shard_name(&entry.name) || default.matches(&entry.name);
            !entry.is_folder && is_shard && !listed.contains(entry.name.as_str())
        };
        let found = entries.filter(is_orphan);
        orphans.extend(found.map(|entry| in_folder(&folder, &entry.name)));
    }
    Ok(orphans)
}

/// Returns the folders and files of late columns in a folder; `None` for any other folder.
fn late_shards(
    target: Target<'_>,
    name: &str,
) -> Result<Option<BTreeMap<String, Vec<String>>>, StorageError> {
    if name.rsplit('/').next() != Some(COLUMNS_FOLDER) {
        return Ok(None);
    }
    let mut found = BTreeMap::new();
    for entry in target.entries(name)? {
        let folder = in_folder(name, &entry.name);
        let is_hash = entry.name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !entry.is_folder || !is_hash {
            return Ok(None);
        }
        let shards = target.entries(&folder)?;
        if shards
            .iter()
            .any(|file| file.is_folder || !is_shard_name(&file.name))
        {
            return Ok(None);
        }
        let shards = shards.iter().map(|file| in_folder(&folder, &file.name));
        found.insert(folder.clone(), shards.collect());
    }
    Ok(Some(found))
}

/// The files of the datasets in a destination, and their folders.
#[derive(Debug, Default)]
pub(crate) struct DatasetFiles {
    pub(crate) files: Vec<String>,
    /// The folders of the files except the root; the inner ones first.
    pub(crate) folders: Vec<String>,
}

/// Finds the files of all datasets in a destination: that of the root, and its splits.
pub(crate) fn dataset_files(
    target: Target<'_>,
    options: &ConvertOptions,
) -> Result<DatasetFiles, StorageError> {
    let mut found = DatasetFiles::default();
    for folder in dataset_folders(target)? {
        found.add(target, &folder, options)?;
        if !folder.is_empty() {
            found.folders.push(folder);
        }
    }
    Ok(found)
}

/// Returns whether a destination holds the index of a dataset, in the root or in a split.
pub(crate) fn holds_dataset(target: Target<'_>) -> Result<bool, StorageError> {
    for folder in dataset_folders(target)? {
        for name in INDEX_NAMES {
            if target.file_version(&in_folder(&folder, name))?.is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns the folders that may hold a dataset: the root and those of splits.
pub(crate) fn dataset_folders(target: Target<'_>) -> Result<Vec<String>, StorageError> {
    let mut folders = vec![String::new()];
    for entry in target.entries("")? {
        if entry.is_folder && !is_state_folder(&entry) && entry.name != COLUMNS_FOLDER {
            folders.push(entry.name);
        }
    }
    Ok(folders)
}

impl DatasetFiles {
    /// Adds the files of the dataset in one folder.
    pub(crate) fn add(
        &mut self,
        target: Target<'_>,
        folder: &str,
        options: &ConvertOptions,
    ) -> Result<(), StorageError> {
        let ours = KnownFiles::of(target, folder, &options.source.limits)?;
        for entry in target.entries(folder)? {
            let name = in_folder(folder, &entry.name);
            if entry.is_folder
                && let Some(folders) = late_shards(target, &name)?
            {
                for (folder, shards) in folders {
                    self.files.extend(shards);
                    self.folders.push(folder);
                }
                self.folders.push(name);
            } else if ours.has(&entry.name, options) && !entry.is_folder {
                self.files.push(name);
            }
        }
        Ok(())
    }

    /// Removes the files, and the folders that are empty then.
    pub(crate) fn remove(&self, target: Target<'_>) -> Result<(), StorageError> {
        remove_in_order(target, &self.files)?;
        remove_empty(target, &self.folders)
    }
}

/// Removes files of datasets: the indexes first, so that no reader finds an incomplete dataset, and the provenance last, so
/// that the next run still recognises an interrupted removal.
pub(crate) fn remove_in_order(
    target: Target<'_>,
    names: &[impl AsRef<str>],
) -> Result<(), StorageError> {
    let mut steps = [const { Vec::new() }; 3];
    let [indexes, files, provenance] = &mut steps;
    for name in names.iter().map(AsRef::as_ref) {
        match name.rsplit('/').next().unwrap_or(name) {
            last if INDEX_NAMES.contains(&last) => indexes.push(name),
            last if is_provenance(last) => provenance.push(name),
            _ => files.push(name),
        }
    }
    for names in steps {
        if !names.is_empty() {
            target.remove_all(&names)?;
            target.destination.sync()?;
        }
    }
    Ok(())
}

/// Removes the folders that are empty.
pub(crate) fn remove_empty(target: Target<'_>, folders: &[String]) -> Result<(), StorageError> {
    for folder in folders {
        if target.entries(folder)?.is_empty() {
            target.destination.remove_folder(folder)?;
        }
    }
    target.destination.sync()
}
