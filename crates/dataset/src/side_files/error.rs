use shardmill_core::{Diagnostic, ErrorKind};
use shardmill_storage::StorageError;

use super::{PROVENANCE_NAME, Problem, TOMBSTONES_NAME, described};

/// An error of reading which samples are deleted, or of matching the index with its conversion.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SideError {
    /// The provenance is missing, although a file that belongs to one exists.
    #[error("there is none, though {name} belongs to one")]
    ProvenanceMissing {
        /// The existing file.
        name: &'static str,
    },
    /// The provenance is invalid.
    #[error("it cannot be read: {reason}")]
    ProvenanceDamaged {
        /// What is wrong with it.
        reason: String,
    },
    /// The provenance belongs to another index.
    #[error(
        "the conversion noted {} samples in {} shards, and the index has {} in {}",
        noted.0, noted.1, found.0, found.1
    )]
    ProvenanceOther {
        /// The samples and shards that the conversion recorded.
        noted: (u64, u64),
        /// The samples and shards of the index.
        found: (u64, u64),
    },
    /// The list of deleted samples is missing.
    #[error("the file is missing, and with it which {count} samples are gone from the table")]
    TombstonesMissing {
        /// The number of deleted samples.
        count: u64,
    },
    /// The list of deleted samples is invalid, or not the one that the provenance records.
    #[error("{reason}")]
    TombstonesDamaged {
        /// What is wrong with it.
        reason: String,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl SideError {
    /// Returns the name of the file that the error is about.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TombstonesMissing { .. } | Self::TombstonesDamaged { .. } => TOMBSTONES_NAME,
            Self::ProvenanceMissing { .. }
            | Self::ProvenanceDamaged { .. }
            | Self::ProvenanceOther { .. }
            | Self::Storage(_) => PROVENANCE_NAME,
        }
    }

    pub(super) fn problem(&self) -> Problem {
        Problem {
            kind: self.kind(),
            hint: self.hint(),
            ..described(self.name(), self.id(), self.to_string(), None)
        }
    }
}

impl Diagnostic for SideError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Storage(error) => error.kind(),
            _ => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::ProvenanceMissing { .. } => "provenance-missing",
            Self::ProvenanceDamaged { .. } => "provenance-damaged",
            Self::ProvenanceOther { .. } => "provenance-other",
            Self::TombstonesMissing { .. } => "tombstones-missing",
            Self::TombstonesDamaged { .. } => "tombstones-damaged",
            Self::Storage(error) => error.id(),
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Storage(error) => error.object(),
            _ => Some(self.name().to_owned()),
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::ProvenanceMissing { .. } | Self::ProvenanceDamaged { .. } => {
                "fetch it again with the dataset, or convert the dataset again"
            }
            Self::ProvenanceOther { .. } => {
                "fetch index.json and index.provenance again, or convert the dataset again with --overwrite"
            }
            Self::TombstonesMissing { .. } | Self::TombstonesDamaged { .. } => {
                "fetch it again, or run convert --incremental, which restores it"
            }
            Self::Storage(error) => return error.hint(),
        };
        Some(hint.to_owned())
    }
}
