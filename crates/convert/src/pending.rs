//! Replaces an index together with its side files.
//!
//! A store cannot replace several objects atomically, and a directory cannot replace several files. So a run first
//! writes the new side files into a pending note. Then it replaces the index, which decides. Then it replaces the side
//! files. If the run is killed, the next one reads the note: if the index is the new one, it replaces the side files,
//! otherwise it discards the note.

use std::collections::BTreeMap;

use shardmill_dataset::{PENDING_BYTES, PENDING_NAME, Pending};
use shardmill_storage::StorageError;
use shardmill_writer::INDEX_NAME;

use crate::target::Target;

/// Replaces the index, then its side files.
pub(crate) fn publish(
    target: Target<'_>,
    index: &str,
    files: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<(), StorageError> {
    let pending = Pending::new(index, files);
    let text = serde_json::to_string(&pending).unwrap_or_default();
    target.publish(PENDING_NAME, text.as_bytes())?;
    target.destination.sync()?;
    target.publish(INDEX_NAME, index.as_bytes())?;
    target.destination.sync()?;
    follow(target, pending.files())
}

fn follow(target: Target<'_>, files: &BTreeMap<String, String>) -> Result<(), StorageError> {
    for (name, text) in files {
        target.publish(name, text.as_bytes())?;
    }
    target.destination.sync()?;
    target.remove(PENDING_NAME)
}

/// Reads the pending note, if there is one.
fn read(target: Target<'_>) -> Result<Option<Pending>, StorageError> {
    let text = target.read(PENDING_NAME, PENDING_BYTES)?;
    Ok(text.and_then(|text| Pending::parse(&text)))
}

/// Returns the pending text of a side file, if a note for this index exists.
pub(crate) fn text_for(
    target: Target<'_>,
    index: &[u8],
    name: &str,
) -> Result<Option<Vec<u8>>, StorageError> {
    let files = read(target)?.and_then(|pending| pending.files_of(index));
    let text = files.and_then(|mut files| files.remove(name));
    Ok(text.map(String::into_bytes))
}

/// Completes or discards the publication of a killed run. The caller must hold the lease.
pub(crate) fn recover(target: Target<'_>, index_bytes: u64) -> Result<(), StorageError> {
    let Some(pending) = read(target)? else {
        return Ok(());
    };
    let index = target.read(INDEX_NAME, index_bytes)?;
    match index.and_then(|index| pending.files_of(&index)) {
        Some(files) => follow(target, &files),
        None => target.remove(PENDING_NAME),
    }
}
