//! The errors of the cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shardmill_core::{ByteSize, Diagnostic, ErrorKind, escape};
use shardmill_storage::StorageError;

/// An error of the cache. `E` is the error of reading or checking a blob.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum CacheError<E: Diagnostic + 'static> {
    /// A file or folder could not be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A blob could not be read, or is damaged.
    #[error(transparent)]
    Blob(Box<E>),
    /// An error that several threads receive because they waited for the same operation.
    #[error(transparent)]
    Shared(Arc<dyn Diagnostic + Send + Sync>),
    /// The caller requested to stop.
    #[error("stopped before the end")]
    Interrupted,
    /// The limit is smaller than the largest shard needs.
    #[error(
        "the limit is {} ({limit} bytes), less than the {} ({minimum} bytes) that the largest shard needs",
        ByteSize::new(*limit), ByteSize::new(*minimum)
    )]
    TooSmall { limit: u64, minimum: u64 },
    /// There is no space for a raw file that must be on disk, because its path is needed.
    #[error(
        "its {bytes} bytes do not fit: the limit is {limit} bytes, and nothing could be evicted for {seconds} s"
    )]
    NoRoom {
        name: String,
        bytes: u64,
        limit: u64,
        seconds: u64,
    },
    /// All pins are taken by raw files in use; each pin takes an open file.
    #[error("{pins} files are in use, and no more can be pinned")]
    Pins { name: String, pins: u64 },
    /// An existing file has the name of a shard, but the cache did not write it and it does not match the index.
    #[error("the cache did not make this file, and it is not the shard that the index names")]
    Foreign {
        path: PathBuf,
        #[source]
        source: Box<E>,
    },
    /// Two streams have the same local folder.
    #[error("two streams of the mix keep their shards in this folder")]
    OneFolder { path: PathBuf },
    /// Another process did not release a file within the timeout.
    #[error(
        "waited {seconds} s for {}, which {what}",
        pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Waited {
        path: PathBuf,
        seconds: u64,
        what: &'static str,
        /// The other process, if known.
        pid: Option<u32>,
    },
    /// Every fetch of a shard failed verification.
    #[error("wrong after each of {attempts} fetches; {contents} cannot be read")]
    BadBlob {
        name: String,
        attempts: u32,
        contents: String,
        #[source]
        source: Box<E>,
    },
    /// A blob for which the cache has no space was not fetched within the timeout.
    #[error("the fetch took longer than {seconds} s")]
    Timeout { name: String, seconds: u64 },
    /// The thread that worked on a shard ended without a result.
    #[error("the thread that prepared this shard ended without a result")]
    WorkerLost { name: String },
    /// The reader was closed while a caller waited.
    #[error("the reader was closed")]
    Stopped,
}

impl<E: Diagnostic + 'static> CacheError<E> {
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Foreign { path, .. } | Self::OneFolder { path } | Self::Waited { path, .. } => {
                Some(path)
            }
            _ => None,
        }
    }

    /// Returns the diagnostic of the part that found the error, if the cache only passes it on.
    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Storage(error) => Some(error),
            Self::Blob(error) => Some(error.as_ref()),
            Self::Shared(error) => Some(error.as_ref()),
            _ => None,
        }
    }

    /// Returns the kind and the stable id of the error.
    fn facts(&self) -> (ErrorKind, &'static str) {
        match self {
            Self::Storage(error) => (error.kind(), error.id()),
            Self::Blob(error) => (error.kind(), error.id()),
            Self::Shared(error) => (error.kind(), error.id()),
            Self::TooSmall { .. } => (ErrorKind::InvalidInput, "config-cache-limit"),
            Self::OneFolder { .. } => (ErrorKind::InvalidInput, "config-stream-folder"),
            Self::Foreign { .. } => (ErrorKind::Conflict, "cache-foreign"),
            Self::Waited { .. } => (ErrorKind::Resource, "cache-wait"),
            Self::NoRoom { .. } => (ErrorKind::Resource, "cache-no-room"),
            Self::Pins { .. } => (ErrorKind::Resource, "cache-pins"),
            Self::BadBlob { source, .. } => (source.kind(), source.id()),
            Self::Timeout { .. } => (ErrorKind::Storage, "cache-timeout"),
            Self::WorkerLost { .. } => (ErrorKind::Bug, "cache-worker"),
            Self::Stopped => (ErrorKind::Interrupted, "reader-closed"),
            Self::Interrupted => (ErrorKind::Interrupted, "interrupted"),
        }
    }
}

impl<E: Diagnostic + 'static> Diagnostic for CacheError<E> {
    fn kind(&self) -> ErrorKind {
        self.facts().0
    }

    fn id(&self) -> &'static str {
        self.facts().1
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::BadBlob { name, .. }
            | Self::WorkerLost { name }
            | Self::Timeout { name, .. }
            | Self::NoRoom { name, .. }
            | Self::Pins { name, .. } => Some(escape(name).into_owned()),
            Self::TooSmall { .. } => Some("cache_limit".to_owned()),
            _ => match self.inner() {
                Some(inner) => inner.object(),
                None => Some(escape(&self.path()?.to_string_lossy()).into_owned()),
            },
        }
    }

    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::TooSmall { minimum, .. } => {
                    return Some(format!("use at least {minimum} bytes"));
                }
                Self::Foreign { .. } => "move it away, or name another local folder",
                Self::OneFolder { .. } => "use a separate local folder for each stream",
                Self::NoRoom { .. } => "raise the limit, or release files that are held",
                Self::Pins { .. } => "use fewer files at a time, or raise the limit of open files",
                Self::Waited { .. } => "end that process, or name another local folder",
                _ => return self.inner()?.hint(),
            }
            .to_owned(),
        )
    }
}
