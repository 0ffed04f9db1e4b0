//! Late columns: more columns of the samples of a dataset, in shards of their own.
//!
//! `index.columns`, beside `index.json`, lists a shard of late columns for every shard of the dataset, with the same
//! samples.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use shardmill_core::{ErrorKind, Limits, escape};
pub use shardmill_mds::COLUMNS_NAME;
use shardmill_mds::{Index, LateConfigs, MdsError, ShardEntry};
use shardmill_storage::StorageError;

use crate::error::DatasetError;
use crate::problem::DatasetProblem;
use crate::side_files::{ReadFile, is_gone};
use crate::view::shown_digest;

/// The folder of the shards of late columns, beside the index.
pub const COLUMNS_FOLDER: &str = "columns";

/// The late columns of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateColumns {
    /// The hash of the index of the dataset, as `sha256:` and 64 hexadecimal digits.
    base: String,
    /// The shards, whose names are relative to the folder of the index.
    shards: Vec<ShardEntry>,
}

/// What `index.columns` has beside its shards.
#[derive(Deserialize)]
struct Head {
    base: String,
}

impl LateColumns {
    /// Makes the late columns of the dataset whose index has this SHA-256.
    #[must_use]
    pub fn new(digest: &[u8; 32], shards: Vec<ShardEntry>) -> Self {
        let base = shown_digest(digest);
        Self { base, shards }
    }

    /// Parses an `index.columns`. `path` is its name in messages.
    ///
    /// # Errors
    ///
    /// [`DatasetError::Reading`]; [`DatasetProblem::ColumnsDamaged`].
    pub fn parse(bytes: &[u8], path: &Path, limits: &Limits) -> Result<Self, DatasetError> {
        let index = Index::parse(bytes, limits)
            .map_err(|source| DatasetError::index("cannot read the index", path, source))?;
        match serde_json::from_slice(bytes) {
            Ok(Head { base }) => Ok(Self {
                base,
                shards: index.shards,
            }),
            Err(_) => {
                let reason = "it does not say which index it belongs to";
                Err(DatasetProblem::ColumnsDamaged.at(path, reason))
            }
        }
    }

    /// Returns the names of the stored files of the shards.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let files = self.shards.iter().flat_map(ShardEntry::stored);
        files.map(|file| &*file.basename)
    }

    /// Returns the text of the file. Other readers of MDS can read it as an index of these columns alone.
    #[must_use]
    pub fn to_json(&self) -> String {
        let index = Index {
            shards: self.shards.clone(),
        };
        let json = index.to_json();
        let rest = json.strip_prefix('{').unwrap_or_default();
        format!("{{\"base\": \"{}\", {rest}", self.base)
    }

    /// Returns the shards of the dataset whose index has this SHA-256 with the late columns of its `index.columns`; `None` if
    /// the file has just been replaced. `read` reads a file of the folder, and `path` is the name of the file in messages.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`] and [`Self::join`]; errors of reading files.
    pub(crate) fn joined(
        text: &[u8],
        path: &Path,
        (digest, base): (&[u8; 32], &[ShardEntry]),
        read: &ReadFile<'_>,
        limits: &Limits,
    ) -> Result<Option<Vec<ShardEntry>>, DatasetError> {
        match Self::parse(text, path, limits)?.join(digest, base, path) {
            // Another dataset has just replaced the one with these columns.
            Err(error)
                if error.problem() == Some(DatasetProblem::ColumnsOther)
                    && is_gone(read, COLUMNS_NAME, limits.index_bytes)? =>
            {
                Ok(None)
            }
            joined => joined.map(Some),
        }
    }

    /// Returns the shards of the dataset whose index has this SHA-256, with the late columns. `path` is the name of
    /// `index.columns` in messages.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::ColumnsOther`] for another dataset; [`DatasetProblem::ColumnsDamaged`] for shards of other sizes.
    fn join(
        &self,
        digest: &[u8; 32],
        base: &[ShardEntry],
        path: &Path,
    ) -> Result<Vec<ShardEntry>, DatasetError> {
        let found = shown_digest(digest);
        if self.base != found {
            let reason = format!(
                "its columns belong to the dataset whose index is {}, and the index of this one is {found}",
                escape(&self.base)
            );
            return Err(DatasetProblem::ColumnsOther.at(path, reason));
        }
        let damaged = |reason: String| Err(DatasetProblem::ColumnsDamaged.at(path, reason));
        if self.shards.len() != base.len() {
            let (late, base) = (self.shards.len(), base.len());
            return damaged(format!("it has {late} shards, and the dataset has {base}"));
        }
        let mut joined: Vec<ShardEntry> = Vec::with_capacity(base.len());
        for (number, (base, late)) in base.iter().zip(&self.shards).enumerate() {
            if base.samples != late.samples {
                let (late, base) = (late.samples, base.samples);
                return damaged(format!(
                    "shard {number} has {late} samples, and the one of the dataset has {base}"
                ));
            }
            if base.zip_data.is_some() != late.zip_data.is_some()
                || base.config.compression != late.config.compression
            {
                return damaged(format!(
                    "shard {number} is not compressed like the one of the dataset"
                ));
            }
            // Consecutive shards share their configs.
            let is_same = |configs: &&Arc<LateConfigs>| {
                configs.base == base.config && configs.late == late.config
            };
            let before = joined.last().map(|entry| &entry.config);
            let config =
                match before.filter(|config| config.late.as_ref().filter(is_same).is_some()) {
                    Some(config) => Arc::clone(config),
                    None => match base.config.with_late(&late.config) {
                        Ok(config) => Arc::new(config),
                        Err(error) => return damaged(reason_of(number, &error)),
                    },
                };
            joined.push(base.with_late(late, config));
        }
        Ok(joined)
    }
}

fn reason_of(shard: usize, error: &MdsError) -> String {
    format!(
        "the columns of shard {shard} cannot be added: {}",
        escape(&error.to_string())
    )
}

/// Returns an `index.columns` that was read, or `None` if there is none. A store without the permission to list answers
/// that a missing object is forbidden.
pub(crate) fn if_present(
    found: Result<Option<Vec<u8>>, StorageError>,
) -> Result<Option<Vec<u8>>, StorageError> {
    use shardmill_core::Diagnostic as _;
    match found {
        Err(error @ StorageError::At { .. }) if error.kind() == ErrorKind::Permission => Ok(None),
        found => found,
    }
}
