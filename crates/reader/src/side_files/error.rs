use shardmill_core::{Diagnostic, ErrorKind};
use shardmill_storage::StorageError;

use super::{PROVENANCE_NAME, Problem, TOMBSTONES_NAME, described};

/// Why it is not known which samples of a dataset are deleted, or whether its index is the one that was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SideError {
    /// A file that belongs to a provenance, without one.
    #[error("there is none, though {name} belongs to one")]
    ProvenanceMissing {
        /// The file that is there.
        name: &'static str,
    },
    /// A provenance that cannot be read.
    #[error("it cannot be read: {reason}")]
    ProvenanceDamaged {
        /// What is wrong with it.
        reason: String,
    },
    /// A provenance of another index.
    #[error(
        "the conversion noted {} samples in {} shards, and the index has {} in {}",
        noted.0, noted.1, found.0, found.1
    )]
    ProvenanceOther {
        /// Samples and shards that the conversion noted.
        noted: (u64, u64),
        /// Samples and shards of the index.
        found: (u64, u64),
    },
    /// The list of deleted samples is missing.
    #[error("the file is missing, and with it which {count} samples are gone from the table")]
    TombstonesMissing {
        /// How many samples are deleted.
        count: u64,
    },
    /// A list of deleted samples that is not the one that was written.
    #[error("{reason}")]
    TombstonesDamaged {
        /// What is wrong with it.
        reason: String,
    },
    /// A file that cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl SideError {
    /// The name of the file that it is about.
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
