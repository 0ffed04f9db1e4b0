//! The errors of reading.

use shardmill_core::{Diagnostic, ErrorKind, escape};
use shardmill_dataset::{DatasetError, Place};
use shardmill_order::OrderError;
use shardmill_peers::PeersError;
use shardmill_storage::StorageError;

use shardmill_cache::CacheError;

/// An error of reading batches and samples of streams.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum ReaderError {
    /// A dataset could not be opened or read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// A key that several samples have.
    #[error(
        "the key `{}` is that of sample {first} and of sample {second}",
        escape(key)
    )]
    KeyTwice {
        key: String,
        first: u64,
        second: u64,
    },
    /// The streams have no sample of that number.
    #[error("there is no sample {sample}: the streams have {samples}")]
    SampleBeyond { sample: u64, samples: u64 },
    /// The order of an epoch cannot be computed.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// A column does not have tokens.
    #[error("the column `{}` has no tokens: {reason}", escape(column))]
    TokensColumn { column: String, reason: String },
    /// A sample does not have as many tokens as its length says.
    #[error("sample {sample} has {found} tokens, and its length is {expected}")]
    TokensLength {
        sample: u64,
        found: u64,
        expected: u64,
    },
    /// A thread that fills batches ended without a result.
    #[error("a thread that fills batches ended without a result")]
    CollatorLost,
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread {
        #[source]
        source: std::io::Error,
    },
    /// An error of the cache of fetched shards.
    #[error(transparent)]
    Cache(CacheError<DatasetError>),
    /// The nodes of the run cannot share their caches.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// The state is too long.
    #[error("it has {bytes} bytes, more than the {most} of the longest state")]
    StateSize { bytes: u64, most: u64 },
    /// A format that is not read, because it could run code.
    #[error("it is {what}, which is not read because it could run code")]
    StatePickle { what: &'static str },
    /// Not a single JSON value, or a JSON object with a repeated key.
    #[error("it is not the JSON of a state: {reason}")]
    StateNotJson { reason: String },
    /// A required key is missing.
    #[error("it has no {field}")]
    StateMissing { field: &'static str },
    /// A value has the wrong type, or is invalid in a state.
    #[error("{field} is {found}, not {expected}")]
    StateField {
        field: &'static str,
        found: String,
        expected: &'static str,
    },
    /// A position that no epoch has.
    #[error("{field} is {found}, beyond {most}")]
    StatePosition {
        field: &'static str,
        found: u64,
        most: u64,
    },
    /// The state was written by a later version in another form.
    #[error("its version is {found}, and the newest that is known is {known}")]
    StateNewer { found: u64, known: u64 },
    /// The state was made in a run over other shards or in another order.
    #[error(
        "it was made for the order {found}, and this run has the order {expected}{differences}"
    )]
    StateForeign {
        found: String,
        expected: String,
        differences: String,
    },
    /// The weights of the mixture differ before the position of the state.
    #[error(
        "its weights and those of this run differ from sample {sample} on, and it is at sample {position} of the run"
    )]
    StateMixture { sample: u64, position: u64 },
    /// The caller requested to stop.
    #[error("stopped before the end")]
    Interrupted,
}

impl From<StorageError> for ReaderError {
    fn from(source: StorageError) -> Self {
        Self::Dataset(source.into())
    }
}

impl From<CacheError<DatasetError>> for ReaderError {
    fn from(source: CacheError<DatasetError>) -> Self {
        match source {
            CacheError::Storage(error) => error.into(),
            CacheError::Blob(error) => Self::Dataset(*error),
            CacheError::Interrupted => Self::Interrupted,
            source => Self::Cache(source),
        }
    }
}

impl ReaderError {
    /// Returns the place in the dataset, if the error has one.
    #[must_use]
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Dataset(error) => error.place(),
            _ => None,
        }
    }

    /// Returns the message and those of its sources.
    #[cfg(test)]
    pub(crate) fn chain(&self) -> String {
        let causes =
            std::iter::successors(Some(self as &dyn std::error::Error), |error| error.source());
        let texts: Vec<String> = causes.map(ToString::to_string).collect();
        texts.join(": ")
    }

    /// Returns the diagnostic of the crate that found the error, which is the most specific one.
    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Dataset(source) => Some(source),
            Self::Cache(source) => Some(source),
            Self::Order(source) => Some(source),
            Self::Peers(source) => Some(source),
            _ => None,
        }
    }
}

impl Diagnostic for ReaderError {
    fn kind(&self) -> ErrorKind {
        if let Some(inner) = self.inner() {
            return inner.kind();
        }
        match self {
            Self::SampleBeyond { .. } | Self::TokensColumn { .. } | Self::TokensLength { .. } => {
                ErrorKind::InvalidInput
            }
            Self::StatePickle { .. } | Self::StateNewer { .. } => ErrorKind::Unsupported,
            Self::StateForeign { .. } | Self::StateMixture { .. } => ErrorKind::Conflict,
            Self::CollatorLost => ErrorKind::Bug,
            Self::Thread { .. } => ErrorKind::Resource,
            Self::Interrupted => ErrorKind::Interrupted,
            _ => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        if let Some(inner) = self.inner() {
            return inner.id();
        }
        match self {
            Self::KeyTwice { .. } => "key-twice",
            Self::SampleBeyond { .. } => "no-such-sample",
            Self::TokensColumn { .. } => "tokens-column",
            Self::TokensLength { .. } => "tokens-length",
            Self::CollatorLost => "internal-filler",
            Self::StateSize { .. } => "state-size",
            Self::StatePickle { .. } => "state-pickle",
            Self::StateNotJson { .. } | Self::StateMissing { .. } | Self::StateField { .. } => {
                "state-format"
            }
            Self::StatePosition { .. } => "state-position",
            Self::StateNewer { .. } => "state-newer",
            Self::StateForeign { .. } => "state-foreign",
            Self::StateMixture { .. } => "state-mixture",
            Self::Thread { .. } => "no-thread",
            Self::Interrupted => "interrupted",
            _ => "reader",
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::StateSize { .. }
            | Self::StatePickle { .. }
            | Self::StateNotJson { .. }
            | Self::StateMissing { .. }
            | Self::StateField { .. }
            | Self::StatePosition { .. }
            | Self::StateNewer { .. }
            | Self::StateForeign { .. }
            | Self::StateMixture { .. } => Some("state".to_owned()),
            _ => self.inner().and_then(Diagnostic::object),
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::KeyTwice { .. } => {
                "read the samples by their numbers, or as a dataset for each split"
            }
            Self::TokensColumn { .. } => {
                "name a column of one array of integers, or of bytes with the type of the tokens"
            }
            Self::TokensLength { .. } => {
                "give the lengths of this dataset, or none to measure them"
            }
            Self::StatePickle { .. } => "store the dictionary that state_dict() returns as JSON",
            Self::StateNewer { .. } => "read it with the version that wrote it, or a later one",
            Self::StateForeign { .. } => {
                "use the datasets, weights, shuffle, sampling and batching of the run that made it, or begin anew"
            }
            Self::StateMixture { .. } => {
                "change weights after the position of the state only, or leave the mixture out to continue that of the state"
            }
            _ => return self.inner().and_then(Diagnostic::hint),
        };
        Some(hint.to_owned())
    }
}
