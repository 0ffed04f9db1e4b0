//! What is at the destination, and what may be done about it.

use std::path::Path;

use shardmill_core::{ErrorKind, Limits};
use shardmill_mds::{FileInfo, Index, ShardEntry};
use shardmill_storage::{Dir, StorageError};
use shardmill_writer::INDEX_NAME;

use crate::error::ConvertError;
use crate::journal::{Found, WORK_FOLDER};
use crate::provenance::{self, Identity, PROVENANCE_NAME, in_folder};

/// What the destination holds.
#[derive(Debug)]
pub(crate) enum Dest {
    /// Nothing, or nothing that matters.
    Empty,
    /// An interrupted run of the same conversion.
    Interrupted(Found),
    /// The finished result of the same conversion.
    Done(Vec<Index>),
    /// Something that `overwrite` may remove.
    Replaceable,
}

/// Looks at the destination without touching it.
pub(crate) fn look(
    path: &Path,
    folders: &[String],
    identity: &Identity,
    overwrite: bool,
    limits: &Limits,
) -> Result<Dest, ConvertError> {
    let dir = match Dir::open(path) {
        Ok(dir) => dir,
        Err(error) if error.is_not_found() => return Ok(Dest::Empty),
        Err(StorageError::NotDirectory { .. }) => {
            return Err(conflict(
                path,
                "dest-not-directory",
                "it is a file, not a directory",
                "choose another destination",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    look_in(&dir, folders, identity, overwrite, limits)
}

/// As [`look`], in a directory that is open.
pub(crate) fn look_in(
    dir: &Dir,
    folders: &[String],
    identity: &Identity,
    overwrite: bool,
    limits: &Limits,
) -> Result<Dest, ConvertError> {
    let path = dir.path();
    if overwrite {
        // A run that was replacing a data set when it was stopped goes on; it has removed the old one already.
        let published = folders
            .iter()
            .map(|folder| has_index(dir, folder))
            .collect::<Result<Vec<_>, _>>()?;
        if !published.contains(&true)
            && let Some(found) = Found::read(dir, limits)?
            && identity.difference(&found.header).is_none()
        {
            return Ok(Dest::Interrupted(found));
        }
        let unknown = unknown_entry(dir, folders)?;
        return match unknown {
            None if dir.entries()?.is_empty() => Ok(Dest::Empty),
            None => Ok(Dest::Replaceable),
            Some(name) => Err(conflict(
                path,
                "dest-not-empty",
                &format!("it holds `{name}`, which is not part of a data set"),
                "choose another destination, or remove it yourself",
            )),
        };
    }
    let published: Vec<bool> = folders
        .iter()
        .map(|folder| has_index(dir, folder))
        .collect::<Result<_, _>>()?;
    if let Some(found) = Found::read(dir, limits)? {
        return match identity.difference(&found.header) {
            None => Ok(Dest::Interrupted(found)),
            Some(difference) => Err(conflict(
                path,
                "dest-conflict",
                &format!(
                    "it holds an interrupted conversion of {} shards with another configuration: {difference}",
                    found.shards()
                ),
                "run the old command again to finish it, or pass --overwrite to start anew",
            )),
        };
    }
    if !published.is_empty() && published.iter().all(|there| *there) {
        return finished(dir, folders, identity, limits);
    }
    // A work folder without a journal: a run that was killed before it began.
    let entries = entries(dir)?;
    let other = entries.iter().find(|entry| entry.name != WORK_FOLDER);
    match other {
        None => Ok(Dest::Empty),
        Some(entry) => Err(conflict(
            path,
            "dest-not-empty",
            &format!(
                "it is not empty: it holds `{}`",
                shardmill_core::escape(&entry.name)
            ),
            "choose another destination, or pass --overwrite to replace a data set",
        )),
    }
}

fn finished(
    dir: &Dir,
    folders: &[String],
    identity: &Identity,
    limits: &Limits,
) -> Result<Dest, ConvertError> {
    let path = dir.path();
    let mut indexes = Vec::with_capacity(folders.len());
    for folder in folders {
        let difference = match provenance::read(dir, folder) {
            Some(provenance) => identity.difference(&provenance),
            None => Some(format!(
                "it has no {PROVENANCE_NAME}, so it is not known how it was made"
            )),
        };
        if let Some(difference) = difference {
            return Err(conflict(
                path,
                "dest-conflict",
                &format!("it holds a finished data set of another conversion: {difference}"),
                "choose another destination, or pass --overwrite to replace it",
            ));
        }
        let bytes = dir
            .open_file(&in_folder(folder, INDEX_NAME))
            .and_then(|file| file.read_all(limits.index_bytes))?;
        let index = Index::parse(&bytes, limits).map_err(|error| {
            let reason = format!("its {INDEX_NAME} cannot be read: {error}");
            conflict(
                path,
                "dest-conflict",
                &reason,
                "pass --overwrite to convert it again",
            )
        })?;
        for file in index.shards.iter().flat_map(stored_files) {
            let there = dir
                .open_file(&in_folder(folder, &file.basename))
                .map(|file| file.len());
            if there.as_ref().ok() != Some(&file.bytes) {
                return Err(conflict(
                    path,
                    "dest-damaged",
                    &format!(
                        "it is finished, but {} is missing or has another length",
                        file.basename
                    ),
                    "run verify to see all damage, or pass --overwrite to convert it again",
                ));
            }
        }
        indexes.push(index);
    }
    Ok(Dest::Done(indexes))
}

/// The files of a shard that are stored.
fn stored_files(entry: &ShardEntry) -> impl Iterator<Item = &FileInfo> {
    let data = entry.zip_data.as_ref().unwrap_or(&entry.raw_data);
    let meta = entry.zip_meta.as_ref().or(entry.raw_meta.as_ref());
    std::iter::once(data).chain(meta)
}

fn has_index(dir: &Dir, folder: &str) -> Result<bool, StorageError> {
    match dir.exists(&in_folder(folder, INDEX_NAME)) {
        Err(error) if error.is_not_found() => Ok(false),
        outcome => outcome,
    }
}

/// Whether a file could be one of a data set, by its name.
fn is_ours(name: &str) -> bool {
    name == INDEX_NAME || name == PROVENANCE_NAME || name == WORK_FOLDER || is_shard_name(name)
}

fn is_shard_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("shard.") else {
        return false;
    };
    let Some((number, rest)) = rest.split_once('.') else {
        return false;
    };
    number.len() >= 5
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && rest
            .split('.')
            .next()
            .is_some_and(|format| format.parse::<shardmill_core::Format>().is_ok())
}

/// Something in a directory. A name that is not UTF-8 is shown with replacements, and then is not ours.
struct Entry {
    name: String,
    is_folder: bool,
}

fn entries(dir: &Dir) -> Result<Vec<Entry>, StorageError> {
    let entries = dir.entries()?.into_iter().map(|entry| Entry {
        name: entry.name.to_string_lossy().into_owned(),
        is_folder: entry.kind == shardmill_storage::EntryKind::Directory,
    });
    Ok(entries.collect())
}

/// Something at the destination that is neither a data set nor a leftover of one.
fn unknown_entry(dir: &Dir, folders: &[String]) -> Result<Option<String>, StorageError> {
    for entry in entries(dir)? {
        if entry.name == WORK_FOLDER && entry.is_folder {
            continue;
        }
        if entry.is_folder {
            // A split: of this conversion, of a published data set, or of one that was being removed.
            let inner = entries(&dir.open_dir(&entry.name)?)?;
            let foreign = inner
                .iter()
                .find(|inner| inner.is_folder || !is_ours(&inner.name));
            if let Some(foreign) = foreign {
                return Ok(Some(format!("{}/{}", entry.name, foreign.name)));
            }
            if inner.is_empty() && !folders.contains(&entry.name) {
                return Ok(Some(entry.name));
            }
            continue;
        }
        if !is_ours(&entry.name) {
            return Ok(Some(entry.name));
        }
    }
    Ok(None)
}

/// Removes a data set: the index first, so that no reader finds it half there.
pub(crate) fn clear(dir: &Dir) -> Result<(), StorageError> {
    let mut folders = vec![String::new()];
    let inner = entries(dir)?
        .into_iter()
        .filter(|entry| entry.is_folder && entry.name != WORK_FOLDER);
    folders.extend(inner.map(|entry| entry.name));
    for folder in &folders {
        if dir.remove(&in_folder(folder, INDEX_NAME))? {
            dir.sync()?;
        }
    }
    for folder in &folders {
        let inner = if folder.is_empty() {
            dir.clone()
        } else {
            dir.open_dir(folder)?
        };
        for entry in entries(&inner)? {
            if is_ours(&entry.name) && !entry.is_folder {
                inner.remove(&entry.name)?;
            }
        }
        if !folder.is_empty() {
            dir.remove_dir(folder)?;
        }
    }
    dir.sync()
}

/// Removes what an unsuccessful run published: nobody has seen it, there is no index.
pub(crate) fn discard(dir: &Dir, folders: &[String], limits: &Limits) -> Result<(), StorageError> {
    if let Some(found) = Found::read(dir, limits)? {
        for (split, name) in found.files() {
            let folder = folders.get(split).map_or("", String::as_str);
            dir.remove(&in_folder(folder, name))?;
        }
    }
    for folder in folders.iter().filter(|folder| !folder.is_empty()) {
        if dir.exists(folder)? && dir.open_dir(folder)?.entries()?.is_empty() {
            dir.remove_dir(folder)?;
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

fn conflict(path: &Path, id: &'static str, reason: &str, hint: &'static str) -> ConvertError {
    ConvertError::Conflict {
        dest: path.display().to_string(),
        reason: reason.to_owned(),
        id,
        hint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_known_by_their_names() {
        for name in [
            "shard.00000.mds",
            "shard.123456.mds.zstd",
            "shard.00001.json.meta.gz",
        ] {
            assert!(is_shard_name(name), "{name}");
        }
        for name in [
            "shard.0.mds",
            "shard.00000",
            "shard.00000.txt",
            "shard.0000a.mds",
            "data.mds",
        ] {
            assert!(!is_shard_name(name), "{name}");
        }
    }
}
