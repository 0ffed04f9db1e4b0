//! The files that change together with an index.
//!
//! A store cannot replace several objects at once, nor a directory several files. So what belongs to the new index is
//! written down first, then the index is replaced, which decides, and then the rest is brought up to date. Who finds the
//! note of a run that was killed does the rest if the index is the new one, and throws the note away if it is not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shardmill_mds::{HashAlgo, hash_hex};
use shardmill_storage::{PublishMode, StorageError};
use shardmill_writer::INDEX_NAME;

use super::record::MOST_BYTES;
use crate::target::Target;

/// The name of the note.
pub(crate) const PENDING_NAME: &str = ".shardmill/generation";

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Pending {
    /// The hash of the new index.
    index: String,
    /// The files that belong to it, by name.
    files: BTreeMap<String, String>,
}

/// The hash that an index is known by.
pub(super) fn hash(index: &[u8]) -> String {
    hash_hex(HashAlgo::Sha256, index)
}

impl Pending {
    pub(super) fn new(
        index: &str,
        files: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Self {
        Self {
            index: hash(index.as_bytes()),
            files: files
                .into_iter()
                .map(|(name, text)| (name.to_owned(), text))
                .collect(),
        }
    }

    /// Whether it belongs to the index that is there.
    fn is_about(&self, index: &[u8]) -> bool {
        self.index == hash(index)
    }

    /// Replaces the index, and then what belongs to it.
    pub(super) fn publish(&self, target: Target<'_>, index: &str) -> Result<(), StorageError> {
        let text = serde_json::to_string(self).unwrap_or_default();
        target.publish_bytes(PENDING_NAME, text.as_bytes(), PublishMode::Replace)?;
        target.place.sync()?;
        target.publish_bytes(INDEX_NAME, index.as_bytes(), PublishMode::Replace)?;
        target.place.sync()?;
        self.follow(target)
    }

    fn follow(&self, target: Target<'_>) -> Result<(), StorageError> {
        for (name, text) in &self.files {
            target.publish_bytes(name, text.as_bytes(), PublishMode::Replace)?;
        }
        target.place.sync()?;
        target.remove(PENDING_NAME)
    }
}

/// The note that is there, if there is one. What is no note is none: it was torn.
fn read(target: Target<'_>) -> Result<Option<Pending>, StorageError> {
    let text = target.read(PENDING_NAME, 2 * MOST_BYTES)?;
    Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
}

/// What a file will be that belongs to the index that is there, where a note says so that nobody has followed yet.
pub(crate) fn text_for(
    target: Target<'_>,
    index: &[u8],
    name: &str,
) -> Result<Option<Vec<u8>>, StorageError> {
    let pending = read(target)?.filter(|pending| pending.is_about(index));
    let text = pending.and_then(|mut pending| pending.files.remove(name));
    Ok(text.map(String::into_bytes))
}

/// Ends what a run that was killed had begun to publish. Only for who holds the lease.
pub(crate) fn recover(target: Target<'_>, index_bytes: u64) -> Result<(), StorageError> {
    let Some(pending) = read(target)? else {
        return Ok(());
    };
    match target.read(INDEX_NAME, index_bytes)? {
        Some(index) if pending.is_about(&index) => pending.follow(target),
        _ => target.remove(PENDING_NAME),
    }
}
