//! Inspects the destination, and decides what a conversion may do with it.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_core::{ErrorKind, Progress, Unfinished, shell_word};
use shardmill_dataset::{
    COLUMNS_FOLDER, COLUMNS_NAME, Lengths, PROVENANCE_NAME, RECORD_NAME, TOMBSTONES_NAME, Videos,
    check_sides,
};
use shardmill_storage::{Destination, DestinationEntry, StorageError};
use shardmill_writer::parts::is_shard_name;
use shardmill_writer::{
    DatasetIndex, INDEX_NAME, MEGATRON_FILES, ShardFormat, ShardPattern, TABLE_INDEX_NAME,
    is_table_file_name,
};

use crate::error::ConvertError;
use crate::export;
use crate::identity::Identity;
use crate::journal::Found;
use crate::options::ConvertOptions;
use crate::part_manifest;
use crate::provenance;
use crate::target::{Target, WORK_FOLDER, in_folder, side_name};

/// The state of the destination.
#[derive(Debug)]
pub(crate) enum Dest {
    /// The destination is empty, or holds only an unused work folder.
    Empty,
    /// The destination holds an interrupted run of the same conversion.
    Interrupted(Found),
    /// The destination holds the finished result of the same conversion.
    Done(Vec<DatasetIndex>),
    /// The destination holds a dataset that `overwrite` may remove.
    Replaceable,
}

/// Inspects the destination without changing it.
pub(crate) fn inspect(
    folders: &[String],
    identity: &Identity,
    options: &ConvertOptions,
    progress: &Progress,
) -> Result<Dest, ConvertError> {
    let destination =
        match Destination::open(&options.dest, &options.source.remote, options.spool()) {
            Ok(destination) => destination,
            Err(error) if error.is_not_found() => return Ok(Dest::Empty),
            Err(StorageError::NotDirectory { .. }) => {
                return Err(ConvertError::conflict(
                    options.dest_text(),
                    "dest-not-directory",
                    "it is a file, not a directory",
                    "choose another destination",
                ));
            }
            Err(error) => return Err(error.into()),
        };
    inspect_target(
        Target::new(&destination, progress),
        folders,
        identity,
        options,
    )
}

/// Inspects an open destination, like [`look`].
pub(crate) fn inspect_target(
    target: Target<'_>,
    folders: &[String],
    identity: &Identity,
    options: &ConvertOptions,
) -> Result<Dest, ConvertError> {
    let limits = &options.source.limits;
    let conflict = |id, reason: String, hint: &str| {
        Err(ConvertError::conflict(
            options.dest_text(),
            id,
            reason,
            hint,
        ))
    };
    let published = published(target, folders, options)?;
    if options.run.overwrite {
        // An interrupted run with `overwrite` has already removed the old dataset, so it can resume.
        if !published.contains(&true)
            && let Some(found) = Found::read(target, limits)?
            && identity.difference(&found.header).is_none()
        {
            return Ok(Dest::Interrupted(found));
        }
        return match unknown_entry(target, folders, options)? {
            None if target.entries("")?.is_empty() => Ok(Dest::Empty),
            None => Ok(Dest::Replaceable),
            Some(name) => conflict(
                "dest-not-empty",
                format!("it holds `{name}`, which is not part of a dataset"),
                "choose another destination, or remove it yourself",
            ),
        };
    }
    let is_published = !published.is_empty() && published.iter().all(|there| *there);
    if let Some(found) = Found::read(target, limits)? {
        return match identity.difference(&found.header) {
            // The earlier run was stopped after it published the indexes. Only its work folder remained to be removed.
            None if is_published => match finished(target, folders, identity, options) {
                Err(ConvertError::Input {
                    kind: ErrorKind::Conflict,
                    ..
                }) => Ok(Dest::Interrupted(found)),
                finished => finished.map(Dest::Done),
            },
            None => Ok(Dest::Interrupted(found)),
            Some(difference) => conflict(
                "dest-conflict",
                format!(
                    "it holds an interrupted conversion of {} shards with another configuration: {difference}",
                    found.shards()
                ),
                "run the old command again to finish it, or pass --overwrite to start over",
            ),
        };
    }
    if is_published {
        return finished(target, folders, identity, options).map(Dest::Done);
    }
    if part_manifest::are_there(target)? {
        let parts = Unfinished::Parts;
        let hint = parts.hint(&options.dest_text());
        return conflict(parts.id(), parts.to_string(), &hint);
    }
    // There is no journal: a work folder alone comes from a run that was killed before it began.
    let entries = target.entries("")?;
    match entries.iter().find(|entry| !is_state_folder(entry)) {
        None => Ok(Dest::Empty),
        Some(entry) => conflict(
            "dest-not-empty",
            format!(
                "it is not empty: it holds `{}`",
                shardmill_core::escape(&entry.name)
            ),
            "choose another destination, or pass --overwrite to replace a dataset",
        ),
    }
}

/// Returns the indexes of a finished dataset of the same conversion.
pub(crate) fn finished(
    target: Target<'_>,
    folders: &[String],
    identity: &Identity,
    options: &ConvertOptions,
) -> Result<Vec<DatasetIndex>, ConvertError> {
    let limits = &options.source.limits;
    let conflict = |id, reason: String, hint: &str| {
        ConvertError::conflict(options.dest_text(), id, reason, hint)
    };
    let mut indexes = Vec::with_capacity(folders.len());
    for folder in folders {
        let index_name = options.shards.to.index_name();
        let name = in_folder(folder, index_name);
        let Some(bytes) = target.read(&name, limits.index_bytes)? else {
            // The index was removed between the two checks.
            let hint = "run it again when no other process writes there";
            return Err(conflict(
                "dest-damaged",
                format!("{name} has just disappeared"),
                hint,
            ));
        };
        let difference = match provenance::of_index(target, folder, &bytes, options.shards.to)? {
            Some(provenance) => identity.difference(&provenance),
            None => Some(format!(
                "it has no {PROVENANCE_NAME}, so its configuration is not known"
            )),
        };
        if let Some(difference) = difference {
            return Err(conflict(
                "dest-conflict",
                format!("it holds a finished dataset of another conversion: {difference}"),
                "choose another destination, or pass --overwrite to replace it",
            ));
        }
        let index = DatasetIndex::parse(&bytes, limits).map_err(|error| {
            let reason = format!("its {index_name} cannot be read: {error}");
            conflict(
                "dest-conflict",
                reason,
                "pass --overwrite to convert it again",
            )
        })?;
        check_noted(target, folder, &index, options)?;
        if let Some(name) = first_damaged(target, folder, &index, options.source.resources.jobs)? {
            let hint = format!(
                "run `shardmill verify {}` to see all damage, or pass --overwrite to convert it again",
                shell_word(&options.dest_text())
            );
            let reason = format!("it is finished, but {name} is missing or has another length");
            return Err(conflict("dest-damaged", reason, &hint));
        }
        indexes.push(index);
    }
    Ok(indexes)
}

/// Checks that an index matches its provenance, including all side files.
fn check_noted(
    target: Target<'_>,
    folder: &str,
    index: &DatasetIndex,
    options: &ConvertOptions,
) -> Result<(), ConvertError> {
    let path_of = |name: &str| in_folder(folder, &side_name(options.shards.to, name));
    let read = |name: &str, max| target.read(&path_of(name), max);
    let counts = (index.samples(), index.shards());
    let path = |name: &str| target.destination.display(&path_of(name)).into();
    check_sides(&read, counts, options.source.limits.index_bytes)
        .map_err(|error| error.with_side_path(path))?;
    Ok(())
}

/// Returns the first stored file of a finished dataset that is missing or has another length.
fn first_damaged(
    target: Target<'_>,
    folder: &str,
    index: &DatasetIndex,
    jobs: usize,
) -> Result<Option<String>, StorageError> {
    let files = index.stored_files();
    let is_there = target.for_each(&files, jobs, |(name, bytes)| {
        let there = target.file_version(&in_folder(folder, name))?;
        Ok(there.is_some_and(|file_version| file_version.bytes == *bytes))
    })?;
    let damaged = is_there.iter().position(|is_there| !is_there);
    let damaged = damaged.and_then(|at| files.get(at));
    Ok(damaged.map(|(name, _)| (*name).to_owned()))
}

/// Returns for each folder whether it has an index.
fn published(
    target: Target<'_>,
    folders: &[String],
    options: &ConvertOptions,
) -> Result<Vec<bool>, StorageError> {
    let found = folders.iter().map(|folder| {
        let name = in_folder(folder, options.shards.to.index_name());
        Ok(target.file_version(&name)?.is_some())
    });
    found.collect()
}

/// The names of the indexes of all formats.
const INDEX_NAMES: [&str; 2] = [INDEX_NAME, TABLE_INDEX_NAME];

/// Returns whether a name is that of the provenance beside an index of any format.
fn is_provenance(name: &str) -> bool {
    name == PROVENANCE_NAME || name == side_name(ShardFormat::Parquet, PROVENANCE_NAME)
}

/// The file names of a dataset in one folder.
struct KnownFiles {
    /// The files that an index of tar shards or of a table lists. Users can choose the names of tar shards, and other
    /// programs may write Parquet files of the same names.
    listed: BTreeSet<String>,
}

impl KnownFiles {
    fn of(target: Target<'_>, folder: &str, options: &ConvertOptions) -> Self {
        let limits = &options.source.limits;
        let indexes = INDEX_NAMES.iter().filter_map(|name| {
            let bytes = target.read(&in_folder(folder, name), limits.index_bytes);
            DatasetIndex::parse(&bytes.ok().flatten()?, limits).ok()
        });
        let mut listed = BTreeSet::new();
        for index in indexes {
            if !matches!(index, DatasetIndex::Streaming(_)) {
                let files = index.stored_files().into_iter();
                listed.extend(files.map(|(name, _)| name.to_owned()));
            }
        }
        Self { listed }
    }

    /// Returns whether a file name can belong to a dataset.
    fn has(&self, name: &str, options: &ConvertOptions) -> bool {
        let (pattern, default) = (&options.shards.tar.pattern, ShardPattern::default());
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
            || (options.shards.to == ShardFormat::Megatron && MEGATRON_FILES.contains(&name))
            || default.matches(name)
            || export::is_exported(name, &[pattern, &default], self.listed.iter())
    }
}

/// Returns an entry of the destination that belongs neither to a dataset nor to an interrupted run.
fn unknown_entry(
    target: Target<'_>,
    folders: &[String],
    options: &ConvertOptions,
) -> Result<Option<String>, StorageError> {
    let ours = KnownFiles::of(target, "", options);
    let interrupted = Found::read(target, &options.source.limits)?;
    let interrupted = interrupted.map_or_else(Vec::new, |found| found.folders());
    for entry in target.entries("")? {
        if is_state_folder(&entry) || (entry.is_folder && is_side_folder(target, &entry.name)?) {
            continue;
        }
        if entry.is_folder {
            let inner = target.entries(&entry.name)?;
            let ours = KnownFiles::of(target, &entry.name, options);
            for inner in &inner {
                let known = if inner.is_folder {
                    is_side_folder(target, &in_folder(&entry.name, &inner.name))?
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
fn is_state_folder(entry: &DestinationEntry) -> bool {
    entry.is_folder && entry.name.starts_with('.') && entry.name.ends_with(WORK_FOLDER)
}

/// Returns whether a folder contains only the index of another reader, or shards of late columns.
fn is_side_folder(target: Target<'_>, name: &str) -> Result<bool, StorageError> {
    Ok(is_exported_folder(target, name)? || late_shards(target, name)?.is_some())
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

/// Returns whether a folder contains only the index of another reader.
fn is_exported_folder(target: Target<'_>, name: &str) -> Result<bool, StorageError> {
    if name.rsplit('/').next() != Some(export::ENERGON_FOLDER) {
        return Ok(false);
    }
    let inner = target.entries(name)?;
    Ok(inner
        .iter()
        .all(|inner| !inner.is_folder && export::ENERGON_FILES.contains(&inner.name.as_str())))
}

/// Removes a dataset. The indexes are removed first, so that no reader finds an incomplete dataset.
pub(crate) fn clear(target: Target<'_>, options: &ConvertOptions) -> Result<(), StorageError> {
    let mut folders = vec![String::new()];
    for entry in target.entries("")? {
        let is_side = [export::ENERGON_FOLDER, COLUMNS_FOLDER].contains(&entry.name.as_str());
        if entry.is_folder && !is_state_folder(&entry) && !is_side {
            folders.push(entry.name);
        }
    }
    // The names in the indexes must be read before the indexes are removed.
    let names = folders.iter();
    let names = names.map(|folder| KnownFiles::of(target, folder, options));
    let names: Vec<KnownFiles> = names.collect();
    for folder in &folders {
        for name in INDEX_NAMES {
            let index = in_folder(folder, name);
            if target.file_version(&index)?.is_some() {
                target.remove(&index)?;
                target.destination.sync()?;
            }
        }
    }
    for (folder, ours) in folders.iter().zip(&names) {
        remove_ours(target, folder, ours, options)?;
    }
    for folder in folders.iter().filter(|folder| !folder.is_empty()) {
        target.destination.remove_folder(folder)?;
    }
    target.destination.sync()
}

/// Removes the files of a dataset from a folder.
fn remove_ours(
    target: Target<'_>,
    folder: &str,
    ours: &KnownFiles,
    options: &ConvertOptions,
) -> Result<(), StorageError> {
    let mut files = Vec::new();
    let mut provenance = Vec::new();
    for entry in target.entries(folder)? {
        let name = in_folder(folder, &entry.name);
        if entry.is_folder && entry.name == export::ENERGON_FOLDER {
            for inner in export::ENERGON_FILES {
                target.remove(&in_folder(&name, inner))?;
            }
            target.destination.remove_folder(&name)?;
        } else if entry.is_folder
            && let Some(folders) = late_shards(target, &name)?
        {
            for (folder, shards) in folders {
                target.remove_all(&shards)?;
                target.destination.remove_folder(&folder)?;
            }
            target.destination.remove_folder(&name)?;
        } else if ours.has(&entry.name, options) && !entry.is_folder {
            match is_provenance(&entry.name) {
                true => provenance.push(name),
                false => files.push(name),
            }
        }
    }
    target.remove_all(&files)?;
    // The provenance goes last. If the removal is interrupted, the next run still recognises the folder.
    target.remove_all(&provenance)
}

/// Removes the published files of a failed run. Folders with an index are kept, because their shards belong to a
/// dataset. In a store, only objects are removed that the run has written itself or that its journal describes.
pub(crate) fn discard(
    target: Target<'_>,
    folders: &[String],
    options: &ConvertOptions,
) -> Result<(), StorageError> {
    if let Some(found) = Found::read(target, &options.source.limits)? {
        let published = published(target, folders, options)?;
        found.remove_files(target, folders, |split, _| {
            published.get(split) == Some(&false)
        })?;
        let written = target.destination.written();
        for (folder, is_published) in folders.iter().zip(published) {
            if is_published {
                continue;
            }
            if target.destination.as_local().is_some() {
                // A killed run may have published files that it did not record. The folder was empty when the journal
                // began, so all files with names of a dataset belong to that run.
                let ours = KnownFiles::of(target, folder, options);
                remove_ours(target, folder, &ours, options)?;
                continue;
            }
            let (inside, work) = (in_folder(folder, ""), in_folder(WORK_FOLDER, ""));
            let is_own = |name: &&String| name.starts_with(&inside) && !name.starts_with(&work);
            let own: Vec<_> = written.iter().filter(is_own).collect();
            target.remove_own(&own)?;
        }
    }
    for folder in folders.iter().filter(|folder| !folder.is_empty()) {
        if target.entries(folder)?.is_empty() {
            target.destination.remove_folder(folder)?;
        }
    }
    Ok(())
}
