//! Replaces the datasets at a destination: the old ones stay until the new ones are published, and are removed then.
//!
//! Before the first index of the new datasets is published, a note lists the files to remove. Whoever finds the note after
//! a kill removes the files of which the new index is published, and leaves the others.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use shardmill_core::{Error, Limits, WORK_FOLDER, check_relative_path};
use shardmill_dataset::{COLUMNS_NAME, Pending, RECORD_NAME, TOMBSTONES_NAME};
use shardmill_storage::StorageError;
use shardmill_writer::DatasetIndex;

use crate::dataset_files::{dataset_files, dataset_folders, remove_empty, remove_in_order};
use crate::export::publish_all;
use crate::options::ConvertOptions;
use crate::pending;
use crate::target::{Target, folder_of, in_folder, side_name};

/// The name of the note.
const NOTE_NAME: &str = ".shardmill/replaced";
/// The most bytes of a note.
const NOTE_BYTES: u64 = 4 << 30;

/// A dataset whose shards are written, and that is not published yet.
pub(crate) struct NewDataset<'a> {
    /// Its folder in the destination; `""` is the root.
    pub(crate) folder: &'a str,
    pub(crate) index: &'a DatasetIndex,
    /// Its side files, which other files may replace only together with the index.
    pub(crate) files: Vec<(&'static str, String)>,
    /// The indexes of other readers, by path.
    pub(crate) exported: Vec<(String, Vec<u8>)>,
}

/// The files that are removed when new datasets are published.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    /// The hashes of the new indexes, by their paths.
    indexes: BTreeMap<String, String>,
    /// The hashes of the new indexes of other readers, by their paths. They follow the indexes.
    exported: BTreeMap<String, String>,
    files: BTreeSet<String>,
    /// The folders of the files, which are removed if they are empty; the inner ones first.
    folders: Vec<String>,
}

/// Publishes new datasets in the place of the existing ones, and removes those.
pub(crate) fn publish(
    target: Target<'_>,
    new: &[NewDataset<'_>],
    options: &ConvertOptions,
) -> Result<(), Error> {
    let note = Note::of(target, new, options)?;
    let text = serde_json::to_string(&note).unwrap_or_default();
    target.publish(NOTE_NAME, text.as_bytes())?;
    let to = options.shards.to;
    for dataset in new {
        let own = dataset.files.iter().map(|(name, _)| *name);
        let own: Vec<&str> = own.collect();
        let mut files: Vec<_> = (dataset.files.iter())
            .map(|(name, text)| (*name, Some(text.clone())))
            .collect();
        for name in [RECORD_NAME, TOMBSTONES_NAME, COLUMNS_NAME] {
            let path = in_folder(dataset.folder, &side_name(to, name));
            if !own.contains(&name) && target.file_version(&path)?.is_some() {
                files.push((name, None));
            }
        }
        let index = dataset.index.to_json();
        pending::publish(target, dataset.folder, to, &index, files)?;
    }
    for dataset in new {
        publish_all(target, Some(WORK_FOLDER), &dataset.exported, true)?;
    }
    Ok(finish(target, options.source.limits.index_bytes)?)
}

/// Completes or discards the pending changes of killed runs in all folders. The caller must hold the lease.
pub(crate) fn recover(target: Target<'_>, index_bytes: u64) -> Result<(), StorageError> {
    for folder in dataset_folders(target)? {
        pending::recover(target, &folder, index_bytes)?;
    }
    Ok(())
}

/// Removes the files of replaced datasets, if new ones are published. The caller must hold the lease.
pub(crate) fn finish(target: Target<'_>, index_bytes: u64) -> Result<(), StorageError> {
    let Some(note) = Note::read(target)? else {
        return Ok(());
    };
    let published = note.published(target, index_bytes)?;
    remove_in_order(target, &note.removable(&published))?;
    if published.len() < note.indexes.len() {
        return Ok(());
    }
    // After a kill, an index of another reader may name old shards.
    for (name, hash) in &note.exported {
        let bytes = target.read(name, index_bytes)?;
        if bytes.is_some_and(|bytes| Pending::hash(&bytes) != *hash) {
            target.remove(name)?;
        }
    }
    remove_empty(target, &note.folders)?;
    target.remove(NOTE_NAME)
}

/// Returns the files that [`finish`] would remove.
pub(crate) fn leftovers(target: Target<'_>, index_bytes: u64) -> Result<Vec<String>, StorageError> {
    let Some(note) = Note::read(target)? else {
        return Ok(Vec::new());
    };
    let published = note.published(target, index_bytes)?;
    let names = note.removable(&published).into_iter();
    Ok(names.map(str::to_owned).collect())
}

/// Returns whether a replacement was interrupted after it began to publish.
pub(crate) fn is_noted(target: Target<'_>) -> Result<bool, StorageError> {
    Ok(target.file_version(NOTE_NAME)?.is_some())
}

/// Returns whether a replacement has published an index, and did not remove all old files yet.
pub(crate) fn has_published(target: Target<'_>, index_bytes: u64) -> Result<bool, StorageError> {
    match Note::read(target)? {
        Some(note) => Ok(!note.published(target, index_bytes)?.is_empty()),
        None => Ok(false),
    }
}

/// The new indexes that are published: the files that each lists, by the folder of the index.
type Published<'a> = BTreeMap<&'a str, BTreeSet<String>>;

impl Note {
    fn of(
        target: Target<'_>,
        new: &[NewDataset<'_>],
        options: &ConvertOptions,
    ) -> Result<Self, StorageError> {
        let to = options.shards.to;
        let mut note = Self::default();
        let mut kept = BTreeSet::new();
        for dataset in new {
            let at = |name: &str| in_folder(dataset.folder, name);
            let index = at(to.index_name());
            let hash = Pending::hash(dataset.index.to_json().as_bytes());
            note.indexes.insert(index.clone(), hash);
            kept.insert(index);
            let stored = dataset.index.stored_files().into_iter();
            kept.extend(stored.map(|(name, _)| at(name)));
            let files = dataset.files.iter();
            kept.extend(files.map(|(name, _)| at(&side_name(to, name))));
            for (path, bytes) in &dataset.exported {
                kept.insert(path.clone());
                note.exported.insert(path.clone(), Pending::hash(bytes));
            }
        }
        let old = dataset_files(target, options)?;
        note.files.extend(old.files);
        note.folders = old.folders;
        // The index with the names of the old files may be replaced already.
        if let Some(earlier) = Self::read(target)? {
            note.files.extend(earlier.files);
            note.folders.extend(earlier.folders);
        }
        note.files.retain(|name| !kept.contains(name));
        Ok(note)
    }

    /// Reads the note, if there is one. Invalid bytes are a torn write, before which nothing was published.
    fn read(target: Target<'_>) -> Result<Option<Self>, StorageError> {
        let text = target.read(NOTE_NAME, NOTE_BYTES)?;
        let note = text.and_then(|text| serde_json::from_slice::<Self>(&text).ok());
        let is_valid = |note: &Self| {
            let mut names = note.files.iter().chain(&note.folders);
            names.all(|name| check_relative_path(name).is_ok() && !name.starts_with(WORK_FOLDER))
        };
        Ok(note.filter(is_valid))
    }

    fn published(
        &self,
        target: Target<'_>,
        index_bytes: u64,
    ) -> Result<Published<'_>, StorageError> {
        let mut published = Published::new();
        for (name, hash) in &self.indexes {
            let Some(text) = target.read(name, index_bytes)? else {
                continue;
            };
            if Pending::hash(&text) != *hash {
                continue;
            }
            let folder = folder_of(name);
            let index = DatasetIndex::parse(&text, &Limits::default());
            let stored = index.iter().flat_map(DatasetIndex::stored_files);
            let stored = stored.map(|(name, _)| in_folder(folder, name));
            published.insert(folder, stored.collect());
        }
        Ok(published)
    }

    /// Returns the files that belong to no dataset. Old files in the folder of a new index are removed after that index is
    /// published, all others after all indexes are.
    fn removable(&self, published: &Published<'_>) -> Vec<&str> {
        let folders: BTreeSet<&str> = self.indexes.keys().map(|name| folder_of(name)).collect();
        let is_all = published.len() == self.indexes.len();
        let is_free = |name: &&str| {
            let mut at = *name;
            while !at.is_empty() {
                at = folder_of(at);
                if folders.contains(at) {
                    let listed = published.get(at);
                    return listed.is_some_and(|listed| !listed.contains(*name));
                }
            }
            is_all
        };
        let names = self.files.iter().map(String::as_str);
        names.filter(is_free).collect()
    }
}
