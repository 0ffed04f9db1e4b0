use shardmill_core::{Diagnostic, ErrorKind, escape};
use shardmill_dataset::{DatasetError, Place};
use shardmill_order::OrderError;
use shardmill_storage::StorageError;

use shardmill_cache::CacheError;

/// An error of reading batches and samples of streams.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
        /// The key.
        key: String,
        /// The first sample that has it.
        first: u64,
        /// The second one.
        second: u64,
    },
    /// The streams have no sample of that number.
    #[error("there is no sample {sample}: the streams have {samples}")]
    SampleBeyond {
        /// The requested number.
        sample: u64,
        /// Samples of all streams.
        samples: u64,
    },
    /// The order of an epoch cannot be computed.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// A thread that fills batches ended without a result.
    #[error("a thread that fills batches ended without a result")]
    CollatorLost,
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread {
        /// The underlying error.
        #[source]
        source: std::io::Error,
    },
    /// An error of the cache of fetched shards.
    #[error(transparent)]
    Cache(CacheError<DatasetError>),
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
            Self::SampleBeyond { .. } => ErrorKind::InvalidInput,
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
            Self::CollatorLost => "internal-filler",
            Self::Thread { .. } => "no-thread",
            Self::Interrupted => "interrupted",
            _ => "reader",
        }
    }

    fn object(&self) -> Option<String> {
        self.inner().and_then(Diagnostic::object)
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::KeyTwice { .. } => {
                Some("read the samples by their numbers, or as a dataset for each split".to_owned())
            }
            _ => self.inner().and_then(Diagnostic::hint),
        }
    }
}
