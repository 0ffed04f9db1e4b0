use std::path::{Path, PathBuf};

use shardmill_core::{ByteSize, Diagnostic, ErrorKind};

use crate::error::{Place, ReaderError};

/// What the cache of fetched shards can run into, besides what reading can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The limit leaves no room for the largest shard.
    #[error(
        "the limit is {} ({limit} bytes), less than the {} ({minimum} bytes) that the largest shard needs",
        ByteSize::new(*limit), ByteSize::new(*minimum)
    )]
    TooSmall {
        /// The limit.
        limit: u64,
        /// The least that will do.
        minimum: u64,
    },
    /// There is no room for a raw file, whose path is wanted.
    #[error(
        "there is no room for the {bytes} bytes that it takes: the limit is {limit} bytes, and {seconds} s have not made any"
    )]
    NoRoom {
        /// The file.
        place: Place,
        /// What it takes.
        bytes: u64,
        /// The limit.
        limit: u64,
        /// How long was waited.
        seconds: u64,
    },
    /// Raw files that are in use take more open files than there are for it.
    #[error("{pins} files are in use, and no more can be kept from being removed")]
    Pins {
        /// The file.
        place: Place,
        /// How many are.
        pins: u64,
    },
    /// A file in the way of a shard that the cache did not make, and that is not the shard.
    #[error("the cache did not make this file, and it is not the shard that the index names")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<ReaderError>,
    },
    /// Two streams would keep their shards in one folder.
    #[error("two streams of the mix keep their shards in this folder")]
    OneFolder {
        /// The folder.
        path: PathBuf,
    },
    /// Another process keeps something that is needed.
    #[error(
        "waited {seconds} s for {}, which {what}",
        pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    Waited {
        /// The file that is waited for.
        path: PathBuf,
        /// How long.
        seconds: u64,
        /// What the other one does.
        what: &'static str,
        /// Which one, where it is known.
        pid: Option<u32>,
    },
    /// A shard that was wrong each time it was fetched.
    #[error("wrong each of the {attempts} times it was fetched; {} cannot be read", samples_of(*first_sample, *samples))]
    BadShard {
        /// Where.
        place: Place,
        /// How often it was fetched.
        attempts: u32,
        /// The first sample of the shard, among those of all streams.
        first_sample: u64,
        /// Samples in the shard.
        samples: u64,
        /// What was wrong the last time.
        #[source]
        source: Box<ReaderError>,
    },
    /// The work on a shard ended without a result.
    #[error("the thread that worked on this shard ended without a result")]
    WorkerLost {
        /// Where.
        place: Place,
    },
    /// The reader was stopped while something waited for it.
    #[error("the reader was closed")]
    Stopped,
}

pub(crate) fn samples_of(first: u64, samples: u64) -> String {
    match samples {
        0 => "no samples".to_owned(),
        1 => format!("sample {first}"),
        _ => format!("samples {first} to {}", first.saturating_add(samples - 1)),
    }
}

impl CacheError {
    /// The place in the dataset, where it is known.
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
