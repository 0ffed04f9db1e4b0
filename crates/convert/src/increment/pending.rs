//! The files that change together with an index.
//!
//! A store cannot replace several objects at once, nor a directory several files. So what belongs to the new index is
//! written down first, then the index is replaced, which decides, and then the rest is brought up to date. Who finds the
//! note of a run that was killed does the rest if the index is the new one, and throws the note away if it is not.

use std::collections::BTreeMap;

use shardmill_reader::{PENDING_BYTES, PENDING_NAME, Pending};
use shardmill_storage::{PublishMode, StorageError};
use shardmill_writer::INDEX_NAME;

use crate::target::Target;

/// Replaces the index, and then the files that belong to it.
pub(super) fn publish(
    target: Target<'_>,
    index: &str,
    files: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<(), StorageError> {
    let pending = Pending::new(index, files);
    let text = serde_json::to_string(&pending).unwrap_or_default();
    target.publish_bytes(PENDING_NAME, text.as_bytes(), PublishMode::Replace)?;
    target.place.sync()?;
    target.publish_bytes(INDEX_NAME, index.as_bytes(), PublishMode::Replace)?;
    target.place.sync()?;
    follow(target, pending.files())
}

fn follow(target: Target<'_>, files: &BTreeMap<String, String>) -> Result<(), StorageError> {
    for (name, text) in files {
        target.publish_bytes(name, text.as_bytes(), PublishMode::Replace)?;
    }
    target.place.sync()?;
    target.remove(PENDING_NAME)
}

/// The note that is there, if there is one.
fn read(target: Target<'_>) -> Result<Option<Pending>, StorageError> {
    let text = target.read(PENDING_NAME, PENDING_BYTES)?;
    Ok(text.and_then(|text| Pending::parse(&text)))
}

/// What a file will be that belongs to the index that is there, where a note says so that nobody has followed yet.
pub(crate) fn text_for(
    target: Target<'_>,
    index: &[u8],
    name: &str,
) -> Result<Option<Vec<u8>>, StorageError> {
    let files = read(target)?.and_then(|pending| pending.files_of(index));
    let text = files.and_then(|mut files| files.remove(name));
    Ok(text.map(String::into_bytes))
}

/// Ends what a run that was killed had begun to publish. Only for who holds the lease.
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
