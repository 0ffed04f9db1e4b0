//! The errors of reading.

use std::fmt::Display;

use shardmill_core::{Diagnostic, ErrorKind};
use shardmill_dataset::{DatasetError, ValueLocation};
use shardmill_order::OrderError;
use shardmill_peers::PeersError;
use shardmill_storage::StorageError;

use shardmill_cache::CacheError;

shardmill_core::problems! {
    /// What is wrong with a state or a request, if a sentence says all that is known about it.
    #[non_exhaustive]
    pub enum ReaderProblem {
        /// Several samples have the same key.
        KeyTwice => (Corrupt, "key-twice", "read the samples by their numbers, or as a dataset for each split"),
        /// A column does not have tokens.
        TokensColumn => (InvalidInput, "tokens-column", "name a column of one array of integers, or of bytes with the type of the tokens"),
        /// A sample does not have as many tokens as its length says.
        TokensLength => (InvalidInput, "tokens-length", "pass the lengths of this dataset, or none to measure them"),
        /// The state is too long.
        StateSize => (Corrupt, "state-size"),
        /// The state has a format that is not read, because it could run code.
        StatePickle => (Unsupported, "state-pickle", "store the dictionary that state_dict() returns as JSON"),
        /// The state is not JSON, repeats a key, lacks one, or has an invalid value.
        StateFormat => (Corrupt, "state-format"),
        /// No epoch has the position of the state.
        StatePosition => (Corrupt, "state-position"),
        /// A later version wrote the state in another form.
        StateNewer => (Unsupported, "state-newer", "read it with the version that wrote it, or a later one"),
        /// The state was made in a run over other shards or in another order.
        StateForeign => (Conflict, "state-foreign", "use the datasets, weights, shuffle, sampling and batching of the run that made it, or begin anew"),
        /// The weights of the mixture differ before the position of the state.
        StateMixture => (Conflict, "state-mixture", "change weights after the position of the state only, or omit the mixture to continue that of the state"),
    }
}

/// An error of reading batches and samples of streams.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum ReaderError {
    /// A sentence says all that is known about the problem.
    #[error("{reason}")]
    Input {
        problem: ReaderProblem,
        reason: String,
    },
    /// A dataset could not be opened or read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The streams have no sample of that number.
    #[error("there is no sample {sample}: the streams have {samples}")]
    SampleBeyond { sample: u64, samples: u64 },
    /// The order of an epoch cannot be computed.
    #[error(transparent)]
    Order(#[from] OrderError),
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
    /// The caller requested to stop.
    #[error("stopped before the end")]
    Interrupted,
}

impl ReaderProblem {
    pub(crate) fn error(self, reason: impl Into<String>) -> ReaderError {
        ReaderError::Input {
            problem: self,
            reason: reason.into(),
        }
    }

    /// Creates the error for a value in a state that is not as `expected`.
    pub(crate) fn state_field(field: &str, found: impl Display, expected: &str) -> ReaderError {
        Self::StateFormat.error(format!("{field} is {found}, not {expected}"))
    }

    pub(crate) fn state_missing(field: &str) -> ReaderError {
        Self::StateFormat.error(format!("it has no {field}"))
    }
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
    /// Returns the location in the dataset, if the error has one.
    #[must_use]
    pub fn location(&self) -> Option<&ValueLocation> {
        match self {
            Self::Dataset(error) => error.location(),
            _ => None,
        }
    }

    /// Returns the kind and the stable id of the error.
    fn facts(&self) -> (ErrorKind, &'static str) {
        match self {
            Self::Input { problem, .. } => (problem.facts().0, problem.facts().1),
            Self::SampleBeyond { .. } => (ErrorKind::InvalidInput, "no-such-sample"),
            Self::CollatorLost => (ErrorKind::Bug, "internal-filler"),
            Self::Thread { .. } => (ErrorKind::Resource, "no-thread"),
            Self::Interrupted => (ErrorKind::Interrupted, "interrupted"),
            Self::Dataset(source) => (source.kind(), source.id()),
            Self::Cache(source) => (source.kind(), source.id()),
            Self::Order(source) => (source.kind(), source.id()),
            Self::Peers(source) => (source.kind(), source.id()),
        }
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
        self.facts().0
    }

    fn id(&self) -> &'static str {
        self.facts().1
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Input { .. } => self.id().starts_with("state-").then(|| "state".to_owned()),
            _ => self.inner()?.object(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Input { problem, .. } => problem.facts().2.map(str::to_owned),
            _ => self.inner()?.hint(),
        }
    }
}
