//! The copy of an index in the folder that shards are fetched to.

use std::fs;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use shardmill_cache::{move_to_index, note_source, publish};
use shardmill_core::{INDEX_NAME, Limits, escape};
use shardmill_storage::{Dir, Folder, PublishMode, StorageError};

use crate::entry::{Entry, Shards};
use crate::error::DatasetError;
use crate::problem::DatasetProblem;

/// Where an index is copied to, and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedIndex<'a> {
    /// The folder of the fetched shards.
    pub(crate) local: &'a Dir,
    pub(crate) source: &'a Folder,
    /// The name of the source in messages.
    pub(crate) shown: &'a str,
    pub(crate) limits: &'a Limits,
}

impl CachedIndex<'_> {
    /// Writes the index next to the fetched shards, so that the folder is a dataset.
    ///
    /// If the dataset has grown since the cache wrote the index, the new index replaces the old one, and the fetched
    /// shards remain valid. Any other index belongs to another dataset and is an error.
    pub(crate) fn keep(self, bytes: &[u8], shards: &Shards) -> Result<(), DatasetError> {
        /// An attempt fails only if another process writes the index at that moment.
        const ATTEMPTS: usize = 8;

        let digest: [u8; 32] = Sha256::digest(bytes).into();
        let source = self.location();
        for _ in 0..ATTEMPTS {
            let Some(kept) = self.read()? else {
                match publish(self.local, INDEX_NAME, bytes, PublishMode::CreateNew) {
                    Ok(()) => return Ok(note_source(self.local, &digest, &source)?),
                    Err(StorageError::Exists { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
            };
            if kept == bytes {
                return Ok(());
            }
            if !self.is_continued(&kept, shards) {
                break;
            }
            let old: [u8; 32] = Sha256::digest(&kept).into();
            if move_to_index(self.local, &old, &digest, &source)? {
                let mode = PublishMode::Replace;
                return Ok(publish(self.local, INDEX_NAME, bytes, mode)?);
            }
            if self.read()?.is_some_and(|now| now == kept) {
                break;
            }
        }
        Err(self.foreign())
    }

    fn foreign(self) -> DatasetError {
        let reason = format!(
            "it is neither the index of the dataset in {} nor an earlier one that the cache fetched from there",
            escape(self.shown)
        );
        DatasetProblem::CacheForeign.at(self.local.path_of(INDEX_NAME), reason)
    }

    /// Returns the location of the source, however it was spelled.
    fn location(self) -> String {
        let real = match self.source {
            Folder::Local(dir) => fs::canonicalize(dir.path()).ok(),
            _ => None,
        };
        real.as_deref()
            .and_then(Path::to_str)
            .unwrap_or(self.shown)
            .to_owned()
    }

    /// Reads the index in the folder; `None` if there is none.
    fn read(self) -> Result<Option<Vec<u8>>, DatasetError> {
        match self.local.open_file(INDEX_NAME) {
            Ok(file) if file.len() > self.limits.index_bytes => Err(self.foreign()),
            Ok(file) => Ok(Some(file.read_all(self.limits.index_bytes)?)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the shards of an index are the first ones of the new index. Without hashes, equal names and
    /// sizes do not show that the shards are the same.
    fn is_continued(self, kept: &[u8], shards: &Shards) -> bool {
        let Ok(old) = Shards::parse(kept, Path::new(INDEX_NAME), self.limits) else {
            return false;
        };
        let has_hash =
            |entry: Entry<'_>| entry.parts().all(|part| !part.stored().hashes.is_empty());
        let is_start = match (&old, shards) {
            (Shards::Mds(old), Shards::Mds(new)) => new.starts_with(old),
            (Shards::Tar(old), Shards::Tar(new)) => new.starts_with(old),
            _ => false,
        };
        is_start && old.iter().all(has_hash)
    }
}
