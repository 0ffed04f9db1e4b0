use std::path::{Path, PathBuf};

use shardmill_core::{ByteSize, Diagnostic, ErrorKind};
use shardmill_dataset::{Place, samples_of};

use crate::error::ReaderError;

/// An error of the shard cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The limit is smaller than the largest shard needs.
    #[error(
        "the limit is {} ({limit} bytes), less than the {} ({minimum} bytes) that the largest shard needs",
        ByteSize::new(*limit), ByteSize::new(*minimum)
    )]
    TooSmall {
        /// The limit in bytes.
        limit: u64,
        /// The smallest possible limit in bytes.
        minimum: u64,
    },
    /// There is no space for a raw file that must be on disk, because its path is needed.
    #[error(
        "there is no room for the {bytes} bytes that it takes: the limit is {limit} bytes, and {seconds} s have not made any"
    )]
    NoRoom {
        /// The file.
        place: Place,
        /// The size of the file in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
        /// The timeout that has passed.
        seconds: u64,
    },
    /// All pins are taken by raw files in use; each pin takes an open file.
    #[error("{pins} files are in use, and no more can be kept from being removed")]
    Pins {
        /// The file.
        place: Place,
        /// The number of pins.
        pins: u64,
    },
    /// An existing file has the name of a shard, but the cache did not write it and it does not match the index.
    #[error("the cache did not make this file, and it is not the shard that the index names")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Why it does not match.
        #[source]
        source: Box<ReaderError>,
    },
    /// Two streams have the same local folder.
    #[error("two streams of the mix keep their shards in this folder")]
    OneFolder {
        /// The folder.
        path: PathBuf,
    },
    /// Another process did not release a file within the timeout.
    #[error(
        "waited {seconds} s for {}, which {what}",
        pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Waited {
        /// The file.
        path: PathBuf,
        /// The timeout that has passed.
        seconds: u64,
        /// What the other process does.
        what: &'static str,
        /// The other process, if known.
        pid: Option<u32>,
    },
    /// Every fetch of a shard failed verification.
    #[error("wrong each of the {attempts} times it was fetched; {} cannot be read", samples_of(*first_sample, *samples))]
    BadShard {
        /// The shard.
        place: Place,
        /// How often it was fetched.
        attempts: u32,
        /// The first sample of the shard, numbered across all streams.
        first_sample: u64,
        /// The number of samples in the shard.
        samples: u64,
        /// The error of the last attempt.
        #[source]
        source: Box<ReaderError>,
    },
    /// The thread that worked on a shard ended without a result.
    #[error("the thread that worked on this shard ended without a result")]
    WorkerLost {
        /// The shard.
        place: Place,
    },
    /// The reader was closed while a caller waited.
    #[error("the reader was closed")]
    Stopped,
}

impl CacheError {
    /// Returns the place in the dataset, if known.
    #[must_use]
    pub const fn place(&self) -> Option<&Place> {
        match self {
            Self::BadShard { place, .. }
            | Self::WorkerLost { place }
            | Self::NoRoom { place, .. }
            | Self::Pins { place, .. } => Some(place),
            _ => None,
        }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Foreign { path, .. } | Self::OneFolder { path } | Self::Waited { path, .. } => {
                Some(path)
            }
            _ => None,
        }
    }
}

impl Diagnostic for CacheError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::TooSmall { .. } | Self::OneFolder { .. } => ErrorKind::InvalidInput,
            Self::Foreign { .. } => ErrorKind::Conflict,
            Self::Waited { .. } | Self::NoRoom { .. } | Self::Pins { .. } => ErrorKind::Resource,
            Self::BadShard { source, .. } => source.kind(),
            Self::WorkerLost { .. } => ErrorKind::Bug,
            Self::Stopped => ErrorKind::Interrupted,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::TooSmall { .. } => "config-cache-limit",
            Self::Foreign { .. } => "cache-foreign",
            Self::OneFolder { .. } => "config-stream-folder",
            Self::Waited { .. } => "cache-wait",
            Self::NoRoom { .. } => "cache-no-room",
            Self::Pins { .. } => "cache-pins",
            Self::BadShard { source, .. } => source.id(),
            Self::WorkerLost { .. } => "cache-worker",
            Self::Stopped => "reader-closed",
        }
    }

    fn object(&self) -> Option<String> {
        if let Some(place) = self.place() {
            return Some(place.to_string());
        }
        match self {
            Self::TooSmall { .. } => Some("cache_limit".to_owned()),
            _ => Some(shardmill_core::escape(&self.path()?.to_string_lossy()).into_owned()),
        }
    }

    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::TooSmall { minimum, .. } => {
                    return Some(format!("give at least {minimum} bytes"));
                }
                Self::Foreign { .. } => "move it away, or name another local folder",
                Self::OneFolder { .. } => "give each stream a local folder of its own",
                Self::NoRoom { .. } => "raise the limit, or release files that are held",
                Self::Pins { .. } => "use fewer files at a time, or raise the limit of open files",
                Self::Waited { .. } => "end that process, or name another local folder",
                _ => return None,
            }
            .to_owned(),
        )
    }
}
