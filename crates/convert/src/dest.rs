//! What is at the destination, and what may be done about it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use shardmill_core::{ErrorKind, Progress, shell_word};
use shardmill_reader::{PROVENANCE_NAME, RECORD_NAME, ReaderError, TOMBSTONES_NAME, check_sides};
use shardmill_storage::{Place, StorageError};
use shardmill_writer::parts::is_shard_name;
use shardmill_writer::{DatasetIndex, INDEX_NAME, ShardFormat, ShardPattern};

use crate::error::ConvertError;
use crate::export;
use crate::gc;
use crate::journal::{Found, WORK_FOLDER};
use crate::options::ConvertOptions;
use crate::parts;
use crate::provenance::{self, Identity, in_folder};
use crate::target::Target;

/// What the destination holds.
#[derive(Debug)]
pub(crate) enum Dest {
    /// Nothing, or nothing that matters.
    Empty,
    /// An interrupted run of the same conversion.
    Interrupted(Found),
    /// The finished result of the same conversion.
    Done(Vec<DatasetIndex>),
    /// Something that `overwrite` may remove.
    Replaceable,
}

/// Looks at the destination without touching it.
pub(crate) fn look(
    folders: &[String],
    identity: &Identity,
    options: &ConvertOptions,
    progress: &Progress,
) -> Result<Dest, ConvertError> {
    let place = match Place::open(&options.dest, &options.remote, options.spool()) {
        Ok(place) => place,
        Err(error) if error.is_not_found() => return Ok(Dest::Empty),
        Err(StorageError::NotDirectory { .. }) => {
            return Err(conflict(
                options.dest_text(),
                "dest-not-directory",
                "it is a file, not a directory",
                "choose another destination",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    look_in(Target::new(&place, progress), folders, identity, options)
}

/// As [`look`], for a plan. What a part finds is decided when it runs.
pub(crate) fn look_if_whole(
    folders: &[String],
    identity: &Identity,
    options: &ConvertOptions,
) -> Result<Dest, ConvertError> {
    match options.part {
        Some(_) => Ok(Dest::Empty),
        None => look(folders, identity, options, &Progress::new()),
    }
}

/// As [`look`], in a destination that is open.
pub(crate) fn look_in(
    target: Target<'_>,
    folders: &[String],
    identity: &Identity,
    options: &ConvertOptions,
) -> Result<Dest, ConvertError> {
    let limits = &options.limits;
    let path = || options.dest_text();
    if options.overwrite {
        // A run that was replacing a dataset when it was stopped goes on; it has removed the old one already.
        let published = folders
            .iter()
            .map(|folder| has_index(target, folder))
            .collect::<Result<Vec<_>, _>>()?;
        if !published.contains(&true)
            && let Some(found) = Found::read(target, limits)?
            && identity.difference(&found.header).is_none()
        {
            return Ok(Dest::Interrupted(found));
        }
        let unknown = unknown_entry(target, folders, options)?;
        return match unknown {
            None if target.entries("")?.is_empty() => Ok(Dest::Empty),
            None => Ok(Dest::Replaceable),
            Some(name) => Err(conflict(
                path(),
                "dest-not-empty",
                &format!("it holds `{name}`, which is not part of a dataset"),
                "choose another destination, or remove it yourself",
            )),
        };
    }
    let published: Vec<bool> = folders
        .iter()
        .map(|folder| has_index(target, folder))
        .collect::<Result<_, _>>()?;
    let is_published = !published.is_empty() && published.iter().all(|there| *there);
    if let Some(found) = Found::read(target, limits)? {
        return match identity.difference(&found.header) {
            // Stopped in its very last act: only its own traces were left to be removed.
            None if is_published => match finished(target, folders, identity, options) {
                Err(ConvertError::Conflict { .. }) => Ok(Dest::Interrupted(found)),
                finished => finished,
            },
            None => Ok(Dest::Interrupted(found)),
            Some(difference) => Err(conflict(
                path(),
                "dest-conflict",
                &format!(
                    "it holds an interrupted conversion of {} shards with another configuration: {difference}",
                    found.shards()
                ),
                "run the old command again to finish it, or pass --overwrite to start anew",
            )),
        };
    }
    if is_published {
        return finished(target, folders, identity, options);
    }
    if parts::are_there(target)? {
        return Err(ConvertError::Uncommitted { dest: path() });
    }
    // A work folder without a journal: a run that was killed before it began.
    let entries = target.entries("")?;
    let other = entries.iter().find(|entry| entry.name != WORK_FOLDER);
    match other {
        None => Ok(Dest::Empty),
        Some(entry) => Err(conflict(
            path(),
            "dest-not-empty",
            &format!(
                "it is not empty: it holds `{}`",
                shardmill_core::escape(&entry.name)
            ),
            "choose another destination, or pass --overwrite to replace a dataset",
        )),
    }
}

pub(crate) fn finished(
    target: Target<'_>,
    folders: &[String],
    identity: &Identity,
    options: &ConvertOptions,
) -> Result<Dest, ConvertError> {
    let limits = &options.limits;
    let path = || options.dest_text();
    let mut indexes = Vec::with_capacity(folders.len());
    for folder in folders {
        let name = in_folder(folder, INDEX_NAME);
        let Some(bytes) = target.read(&name, limits.index_bytes)? else {
            // It was there a moment ago.
            return Err(conflict(
                path(),
                "dest-damaged",
                &format!("{name} has just gone"),
                "run it again when nobody else writes there",
            ));
        };
        let difference = match provenance::of_index(target, folder, &bytes)? {
            Some(provenance) => identity.difference(&provenance),
            None => Some(format!(
                "it has no {PROVENANCE_NAME}, so it is not known how it was made"
            )),
        };
        if let Some(difference) = difference {
            return Err(conflict(
                path(),
                "dest-conflict",
                &format!("it holds a finished dataset of another conversion: {difference}"),
                "choose another destination, or pass --overwrite to replace it",
            ));
        }
        let index = DatasetIndex::parse(&bytes, limits).map_err(|error| {
            let reason = format!("its {INDEX_NAME} cannot be read: {error}");
            conflict(
                path(),
                "dest-conflict",
                &reason,
                "pass --overwrite to convert it again",
            )
        })?;
        check_noted(target, folder, &index, options)?;
        if let Some(name) = first_damaged(target, folder, &index, options.jobs)? {
            return Err(conflict(
                path(),
                "dest-damaged",
                &format!("it is finished, but {name} is missing or has another length"),
                format!(
                    "run `shardmill verify {}` to see all damage, or pass --overwrite to convert it again",
                    shell_word(&path())
                ),
            ));
        }
        indexes.push(index);
    }
    Ok(Dest::Done(indexes))
}

/// Whether an index is the one that its provenance describes, with all side files that belong to it.
fn check_noted(
    target: Target<'_>,
    folder: &str,
    index: &DatasetIndex,
    options: &ConvertOptions,
) -> Result<(), ConvertError> {
    let read = |name: &str, most| target.read(&in_folder(folder, name), most);
    let counts = (index.samples(), index.shards());
    check_sides(&read, counts, options.limits.index_bytes).map_err(|fault| {
        let name = in_folder(folder, fault.name());
        ReaderError::Side {
            path: target.place.display(&name).into(),
            fault: Box::new(fault),
        }
    })?;
    Ok(())
}

/// A file of a finished dataset that is not there with its length.
fn first_damaged(
    target: Target<'_>,
    folder: &str,
    index: &DatasetIndex,
    jobs: usize,
) -> Result<Option<String>, StorageError> {
    let files = index.stored_files();
    let is_there = target.for_each(files.len(), jobs, |at| {
        let Some((name, bytes)) = files.get(at) else {
            return Ok(true);
        };
        let there = target.file_version(&in_folder(folder, name))?;
        Ok(there.is_some_and(|file_version| file_version.bytes == *bytes))
    })?;
    let damaged = is_there.iter().position(|is_there| !is_there);
    let damaged = damaged.and_then(|at| files.get(at));
    Ok(damaged.map(|(name, _)| (*name).to_owned()))
}

fn has_index(target: Target<'_>, folder: &str) -> Result<bool, StorageError> {
    Ok(target
        .file_version(&in_folder(folder, INDEX_NAME))?
        .is_some())
}

/// The names that files of a dataset have in one folder.
struct KnownFiles {
    pattern: ShardPattern,
    /// What the index there names, when it is one of tar files, whose names anybody may choose.
    listed: BTreeSet<String>,
}

impl KnownFiles {
    fn of(target: Target<'_>, folder: &str, options: &ConvertOptions) -> Self {
        let index = target
            .read(&in_folder(folder, INDEX_NAME), options.limits.index_bytes)
            .ok()
            .flatten()
            .and_then(|bytes| DatasetIndex::parse(&bytes, &options.limits).ok());
        let listed = match &index {
            Some(index @ DatasetIndex::Tar(_)) => {
                let files = index.stored_files().into_iter();
                files.map(|(name, _)| name.to_owned()).collect()
            }
            _ => BTreeSet::new(),
        };
        Self {
            pattern: options.tar.pattern.clone(),
            listed,
        }
    }

    /// Whether a file could be one of a dataset, by its name.
    fn has(&self, name: &str, options: &ConvertOptions) -> bool {
        let default = ShardPattern::default();
        name == INDEX_NAME
            || name == PROVENANCE_NAME
            || name == RECORD_NAME
            || name == TOMBSTONES_NAME
            || name == WORK_FOLDER
            || is_shard_name(name)
            || self.listed.contains(name)
            || (options.to == ShardFormat::Webdataset && self.pattern.matches(name))
            || default.matches(name)
            || export::is_exported(name, &[&self.pattern, &default], self.listed.iter())
    }
}

/// Something at the destination that is neither a dataset nor a leftover of one.
fn unknown_entry(
    target: Target<'_>,
    folders: &[String],
    options: &ConvertOptions,
) -> Result<Option<String>, StorageError> {
    let ours = KnownFiles::of(target, "", options);
    let interrupted = Found::read(target, &options.limits)?;
    let interrupted = interrupted.map_or_else(Vec::new, |found| gc::folders(&found.header));
    for entry in target.entries("")? {
        if entry.is_folder
            && (entry.name == WORK_FOLDER || is_exported_folder(target, &entry.name)?)
        {
            continue;
        }
        if entry.is_folder {
            let inner = target.entries(&entry.name)?;
            let ours = KnownFiles::of(target, &entry.name, options);
            for inner in &inner {
                let known = if inner.is_folder {
                    is_exported_folder(target, &in_folder(&entry.name, &inner.name))?
                } else {
                    ours.has(&inner.name, options)
                };
                if !known {
                    return Ok(Some(format!("{}/{}", entry.name, inner.name)));
                }
            }
            // A split: of this conversion, of one that was interrupted, or of a published one. Anything else is a dataset
            // of its own, or none.
            if !inner.is_empty()
                && !folders.contains(&entry.name)
                && !interrupted.contains(&entry.name)
                && !provenance::is_split(target, &entry.name)
            {
                return Ok(Some(entry.name));
            }
            // An empty one is what a run leaves that was killed between the files of a split and their folder.
            continue;
        }
        if !ours.has(&entry.name, options) {
            return Ok(Some(entry.name));
        }
    }
    Ok(None)
}

/// Whether a folder is the index of another reader, and nothing else.
fn is_exported_folder(target: Target<'_>, name: &str) -> Result<bool, StorageError> {
    if name.rsplit('/').next() != Some(export::ENERGON_FOLDER) {
        return Ok(false);
    }
    let inner = target.entries(name)?;
    Ok(inner
        .iter()
        .all(|inner| !inner.is_folder && export::ENERGON_FILES.contains(&inner.name.as_str())))
}

/// Removes a dataset: the index first, so that no reader finds it half there.
pub(crate) fn clear(target: Target<'_>, options: &ConvertOptions) -> Result<(), StorageError> {
    let mut folders = vec![String::new()];
    let inner = target
        .entries("")?
        .into_iter()
        .filter(|entry| entry.is_folder)
        .map(|entry| entry.name)
        .filter(|name| name != WORK_FOLDER && name != export::ENERGON_FOLDER);
    folders.extend(inner);
    // What the indexes name has to be known before they go.
    let names: Vec<KnownFiles> = folders
        .iter()
        .map(|folder| KnownFiles::of(target, folder, options))
        .collect();
    for folder in &folders {
        let index = in_folder(folder, INDEX_NAME);
        if target.file_version(&index)?.is_some() {
            target.remove(&index)?;
            target.place.sync()?;
        }
    }
    for (folder, ours) in folders.iter().zip(&names) {
        remove_ours(target, folder, ours, options)?;
    }
    for folder in folders.iter().filter(|folder| !folder.is_empty()) {
        target.place.remove_folder(folder)?;
    }
    target.place.sync()
}

/// Removes from a folder what has a name of ours.
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
            target.place.remove_folder(&name)?;
        } else if ours.has(&entry.name, options) && !entry.is_folder {
            match entry.name == PROVENANCE_NAME {
                true => provenance.push(name),
                false => files.push(name),
            }
        }
    }
    remove_all(target, &files)?;
    // It says what the folder is to whoever ends this, should it be interrupted.
    remove_all(target, &provenance)
}

/// Removes files, in a store many at a time.
fn remove_all(target: Target<'_>, names: &[String]) -> Result<(), StorageError> {
    target.for_each(names.len(), 1, |at| {
        names.get(at).map_or(Ok(()), |name| target.remove(name))
    })?;
    Ok(())
}

/// Removes what an unsuccessful run published: nobody has seen it, there is no index. Where there is one, the shards are
/// those of a dataset.
pub(crate) fn discard(
    target: Target<'_>,
    folders: &[String],
    options: &ConvertOptions,
) -> Result<(), StorageError> {
    if let Some(found) = Found::read(target, &options.limits)? {
        let mut published = Vec::with_capacity(folders.len());
        for folder in folders {
            published.push(has_index(target, folder)?);
        }
        let names: Vec<String> = found
            .files()
            .filter(|(split, _)| published.get(*split) == Some(&false))
            .map(|(split, name)| in_folder(folders.get(split).map_or("", String::as_str), name))
            .collect();
        remove_all(target, &names)?;
        // A run that was killed may have published what it did not come to note. The place was empty when the journal
        // began: what has a name of ours there is ours.
        for (folder, is_published) in folders.iter().zip(published) {
            if !is_published {
                remove_ours(
                    target,
                    folder,
                    &KnownFiles::of(target, folder, options),
                    options,
                )?;
            }
        }
    }
    for folder in folders.iter().filter(|folder| !folder.is_empty()) {
        if target.entries(folder)?.is_empty() {
            target.place.remove_folder(folder)?;
        }
    }
    Ok(())
}

/// Whether a failed run is worth continuing: what stopped it lies outside the data and the configuration.
pub(crate) const fn is_resumable(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Storage
        | ErrorKind::Resource
        | ErrorKind::Permission
        | ErrorKind::Interrupted => true,
        ErrorKind::InvalidInput
        | ErrorKind::NotFound
        | ErrorKind::Corrupt
        | ErrorKind::Unsupported
        | ErrorKind::Conflict
        | ErrorKind::Bug => false,
    }
}

fn conflict(
    dest: String,
    id: &'static str,
    reason: &str,
    hint: impl Into<Cow<'static, str>>,
) -> ConvertError {
    ConvertError::Conflict {
        dest,
        reason: reason.to_owned(),
        id,
        hint: hint.into(),
    }
}
