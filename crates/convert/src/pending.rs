//! Replaces an index together with its side files.
//!
//! A store cannot replace several objects atomically, and a directory cannot replace several files. So a run first
//! writes the new side files into a pending note. Then it replaces the index, which decides. Then it replaces the side
//! files. If the run is killed, the next one reads the note: if the index is the new one, it replaces the side files,
//! otherwise it discards the note.

use std::collections::BTreeMap;

use shardmill_core::{INDEX_NAME, TABLE_INDEX_NAME};
use shardmill_dataset::{PENDING_BYTES, PENDING_NAME, Pending};
use shardmill_storage::StorageError;
use shardmill_writer::ShardFormat;

use crate::target::{Target, WORK_FOLDER, in_folder, side_name};

/// Replaces the index of a folder, then its side files. Files without a text are removed.
pub(crate) fn publish(
    target: Target<'_>,
    folder: &str,
    to: ShardFormat,
    index: &str,
    files: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> Result<(), StorageError> {
    let pending = Pending::new(index, files);
    let text = serde_json::to_string(&pending).unwrap_or_default();
    let destination = target.destination;
    destination.make_folder(&in_folder(folder, WORK_FOLDER))?;
    target.publish(&in_folder(folder, PENDING_NAME), text.as_bytes())?;
    destination.sync()?;
    target.publish(&in_folder(folder, to.index_name()), index.as_bytes())?;
    destination.sync()?;
    follow(target, folder, to, pending.files())
}

fn follow(
    target: Target<'_>,
    folder: &str,
    to: ShardFormat,
    files: &BTreeMap<String, Option<String>>,
) -> Result<(), StorageError> {
    for (name, text) in files {
        let name = in_folder(folder, &side_name(to, name));
        match text {
            Some(text) => target.publish(&name, text.as_bytes())?,
            None => target.remove(&name)?,
        }
    }
    target.destination.sync()?;
    discard(target, folder)
}

/// Removes the note, and the work folder of a split.
fn discard(target: Target<'_>, folder: &str) -> Result<(), StorageError> {
    target.remove(&in_folder(folder, PENDING_NAME))?;
    let work = in_folder(folder, WORK_FOLDER);
    // That of the root holds the lease.
    if !folder.is_empty() && target.entries(&work)?.is_empty() {
        target.destination.remove_folder(&work)?;
    }
    Ok(())
}

/// Reads the pending note of a folder, if there is one.
fn read(target: Target<'_>, folder: &str) -> Result<Option<Pending>, StorageError> {
    let text = target.read(&in_folder(folder, PENDING_NAME), PENDING_BYTES)?;
    Ok(text.and_then(|text| Pending::parse(&text)))
}

/// Reads a side file of an index, as the pending note for this index has it if there is one.
pub(crate) fn read_side(
    target: Target<'_>,
    (folder, to): (&str, ShardFormat),
    index: &[u8],
    (name, max): (&str, u64),
) -> Result<Option<Vec<u8>>, StorageError> {
    let files = read(target, folder)?.and_then(|pending| pending.files_of(index));
    match files.and_then(|mut files| files.remove(name)) {
        Some(text) => Ok(text.map(String::into_bytes)),
        None => target.read(&in_folder(folder, &side_name(to, name)), max),
    }
}

/// Completes or discards the publication of a killed run in a folder. The caller must hold the lease.
pub(crate) fn recover(
    target: Target<'_>,
    folder: &str,
    index_bytes: u64,
) -> Result<(), StorageError> {
    let Some(pending) = read(target, folder)? else {
        return Ok(());
    };
    let formats = [
        (INDEX_NAME, ShardFormat::Webdataset),
        (TABLE_INDEX_NAME, ShardFormat::Parquet),
    ];
    for (name, to) in formats {
        let index = target.read(&in_folder(folder, name), index_bytes)?;
        if index.is_some_and(|index| pending.is_of(&index)) {
            return follow(target, folder, to, pending.files());
        }
    }
    discard(target, folder)
}
