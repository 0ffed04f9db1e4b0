//! Inspects the destination, and decides what a conversion may do with it.

use std::collections::BTreeSet;

use shardmill_core::{Error, ErrorKind, Progress, Unfinished, shell_word};
use shardmill_dataset::{IndexShape, PROVENANCE_NAME, check_sides};
use shardmill_storage::{Destination, StorageError};
use shardmill_writer::{DatasetIndex, ShardForm};

use crate::dataset_files::{DatasetFiles, is_state_folder, listed_in, unknown_entry};
use crate::error::conflict;
use crate::identity::Identity;
use crate::journal::Found;
use crate::options::ConvertOptions;
use crate::part_manifest;
use crate::provenance;
use crate::replace;
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
    /// The destination holds a dataset that `overwrite` may replace, or what is left of one.
    Replaceable,
}

/// Inspects the destination without changing it.
pub(crate) fn inspect(
    folders: &[String],
    identity: &Identity,
    options: &ConvertOptions,
    progress: &Progress,
) -> Result<Dest, Error> {
    let destination =
        match Destination::open(&options.dest, &options.source.remote, options.spool()) {
            Ok(destination) => destination,
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
    inspect_target(
        Target::new(&destination, progress),
        folders,
        identity,
        options,
    )
}

/// Inspects an open destination, like [`inspect`].
pub(crate) fn inspect_target(
    target: Target<'_>,
    folders: &[String],
    identity: &Identity,
    options: &ConvertOptions,
) -> Result<Dest, Error> {
    let limits = &options.source.limits;
    let conflict =
        |id, reason: String, hint: &str| Err(conflict(options.dest_text(), id, reason, hint));
    let foreign = |name: String| {
        conflict(
            "dest-not-empty",
            format!("it holds `{name}`, which is not part of a dataset"),
            "choose another destination, or remove it yourself",
        )
    };
    let published = published(target, folders, options)?;
    let is_published = !published.is_empty() && published.iter().all(|there| *there);
    if options.run.overwrite {
        // A run that replaces a dataset is resumed even if it has published its own: the old files remain.
        if let Some(found) = Found::read(target, limits)?
            && identity.difference(&found.header).is_none()
            && (found.is_replacing() || !is_published)
        {
            return Ok(Dest::Interrupted(found));
        }
        return match unknown_entry(target, folders, options)? {
            None if target.entries("")?.is_empty() => Ok(Dest::Empty),
            None => Ok(Dest::Replaceable),
            Some(name) => foreign(name),
        };
    }
    if let Some(found) = Found::read(target, limits)? {
        return match identity.difference(&found.header) {
            // The earlier run may have been stopped after it published the indexes. Then its work folder remains to be
            // removed, and the files of the dataset that it replaced.
            None => {
                let done = match is_published {
                    true => finished(target, folders, identity, options).map(Some),
                    false => Ok(None),
                };
                match done {
                    // A dataset may be replaced by one of the same conversion, whose shards are not listed yet.
                    Ok(Some(_)) if found.is_replacing() || replace::is_noted(target)? => {
                        Ok(Dest::Interrupted(found))
                    }
                    Ok(Some(indexes)) => Ok(Dest::Done(indexes)),
                    Err(error) if error.kind() != ErrorKind::Conflict => Err(error),
                    _ if found.is_replacing() => conflict(
                        "dest-conflict",
                        "it holds an interrupted conversion that replaces the dataset there"
                            .to_owned(),
                        &format!(
                            "pass --overwrite to finish it, or remove what it left with `shardmill gc {} --delete`",
                            shell_word(&options.dest_text())
                        ),
                    ),
                    _ => Ok(Dest::Interrupted(found)),
                }
            }
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
        Some(entry) => match unknown_entry(target, folders, options)? {
            Some(name) => foreign(name),
            None => conflict(
                "dest-not-empty",
                format!(
                    "it is not empty: it holds `{}`",
                    shardmill_core::escape(&entry.name)
                ),
                "choose another destination, or pass --overwrite to replace a dataset",
            ),
        },
    }
}

/// Returns the indexes of a finished dataset of the same conversion.
pub(crate) fn finished(
    target: Target<'_>,
    folders: &[String],
    identity: &Identity,
    options: &ConvertOptions,
) -> Result<Vec<DatasetIndex>, Error> {
    let limits = &options.source.limits;
    let conflict = |id, reason: String, hint: &str| conflict(options.dest_text(), id, reason, hint);
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
) -> Result<(), Error> {
    let path_of = |name: &str| in_folder(folder, &side_name(options.shards.to, name));
    let read = |name: &str, max| target.read(&path_of(name), max);
    let shape = IndexShape::of(index.shard_samples());
    let path = |name: &str| target.destination.display(&path_of(name)).into();
    check_sides(&read, &shape, options.source.limits.index_bytes)
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

/// Removes the published files of a failed run, and its journal. Files that an index lists are kept, because they belong to
/// a dataset. In a store, only objects are removed that the run has written itself or that its journal describes.
pub(crate) fn discard(
    target: Target<'_>,
    (folders, form): (&[String], &ShardForm),
    options: &ConvertOptions,
) -> Result<(), Error> {
    let limits = &options.source.limits;
    if let Some(found) = Found::read(target, limits)? {
        forget(target, options)?;
        let written = target.destination.written();
        let work = in_folder(WORK_FOLDER, "");
        for folder in folders {
            let listed = listed_in(target, folder, limits)?;
            if target.destination.as_local().is_none() {
                let inside = in_folder(folder, "");
                let is_own = |name: &&String| {
                    let inner = name.strip_prefix(&inside);
                    let inner = inner.filter(|_| !name.starts_with(&work));
                    let is_listed =
                        |inner| listed.as_ref().is_some_and(|names| names.contains(inner));
                    inner.is_some_and(|inner: &str| !is_listed(inner))
                };
                target.remove_own(&written.iter().filter(is_own).collect::<Vec<_>>())?;
                continue;
            }
            // A killed run may have published files that it did not record.
            match listed {
                // The folder was empty when the journal began, so all files with names of a dataset belong to that run.
                None => {
                    let mut files = DatasetFiles::default();
                    files.add(target, folder, options)?;
                    files.remove(target)?;
                }
                // No other file has the number of its generation.
                Some(listed) => {
                    let entries = target.entries(folder)?.into_iter();
                    let names = entries.map(|entry| entry.name);
                    let is_own = |name: &String| {
                        let number = form.last_number([name.as_str()]);
                        found.generation().is_some()
                            && number == found.generation()
                            && !listed.contains(name)
                    };
                    let own = names.filter(is_own).map(|name| in_folder(folder, &name));
                    target.remove_all(&own.collect::<Vec<_>>())?;
                }
            }
        }
    }
    for folder in folders.iter().filter(|folder| !folder.is_empty()) {
        if target.entries(folder)?.is_empty() {
            target.destination.remove_folder(folder)?;
        }
    }
    Ok(())
}

/// Removes the journal of a run that will not be resumed, and the files in it that no index lists.
pub(crate) fn forget(target: Target<'_>, options: &ConvertOptions) -> Result<(), Error> {
    let limits = &options.source.limits;
    let Some(found) = Found::read(target, limits)? else {
        return Ok(());
    };
    let mut listed = BTreeSet::new();
    for folder in found.folders() {
        let names = listed_in(target, &folder, limits)?.unwrap_or_default();
        listed.extend(names.iter().map(|name| in_folder(&folder, name)));
    }
    found.remove_files(target, |path| listed.contains(path))?;
    Ok(Found::remove(target)?)
}
