use std::fmt;
use std::path::PathBuf;

use shardmill_core::{Diagnostic, ErrorKind, NameError, Unfinished, escape};
use shardmill_storage::StorageError;
use shardmill_webdataset::{CodecError, WebdatasetError};

use crate::error::DatasetError;
use crate::side_files::SideError;

/// An error of finding, reading or verifying tar shards.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TarSetError {
    /// An error of the disk or the store.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A folder without tar files and without an index.
    #[error("there is neither a tar file nor an index.json here")]
    NoShards {
        /// The folder.
        path: PathBuf,
    },
    /// A folder without an index that contains tar files and other files, so that it may not be a dataset.
    #[error(
        "holds tar files such as {}, and other files such as {}",
        escape(tar),
        escape(other)
    )]
    Stray {
        /// The folder.
        path: PathBuf,
        /// The first tar file.
        tar: String,
        /// The first file that belongs to no tar file.
        other: String,
    },
    /// A folder without an index that contains an unfinished conversion, so that some tar files are missing.
    #[error("{found}")]
    Unfinished {
        /// The folder.
        path: PathBuf,
        /// What the conversion left there.
        found: Unfinished,
    },
    /// A pattern of tar files that cannot be expanded.
    #[error(transparent)]
    Braces(#[from] WebdatasetError),
    /// A pattern whose tar files do not form one dataset.
    #[error("the pattern `{}` {fault}", escape(pattern))]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The reason.
        fault: PatternFault,
    },
    /// An index of another format.
    #[error("the index is of {format} shards, and not of tar files")]
    OtherFormat {
        /// The path of the index.
        path: PathBuf,
        /// The format of its shards.
        format: &'static str,
    },
    /// An invalid index.
    #[error("the index cannot be used")]
    Index {
        /// The path of the index.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: WebdatasetError,
    },
    /// A damaged shard.
    #[error("the shard is damaged")]
    Tar {
        /// The path of the shard.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: Box<WebdatasetError>,
    },
    /// A compressed shard that cannot be decompressed.
    #[error("the shard cannot be decompressed")]
    Compression {
        /// The path of the shard.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: CodecError,
    },
    /// A shard that does not have the length in its index.
    #[error("the file has {found} bytes, the index says {expected}")]
    Length {
        /// The path of the shard.
        path: PathBuf,
        /// The length that the index declares.
        expected: u64,
        /// Its length.
        found: u64,
    },
    /// A shard that does not have a hash in its index.
    #[error("the shard is damaged")]
    Hash {
        /// The path of the shard.
        path: PathBuf,
        /// The hash, and how it differs.
        #[source]
        source: CodecError,
    },
    /// A file that changed, or became unreadable, while it was read.
    #[error("the file changed, or could not be read, while it was looked at")]
    Changed {
        /// The path of the file.
        path: PathBuf,
    },
    /// The index is missing, or does not have the expected hash.
    #[error(transparent)]
    Pinned(Box<DatasetError>),
    /// A side file of the index that lists the deleted samples is invalid.
    #[error("{fault}")]
    Side {
        /// The file.
        path: PathBuf,
        /// The error in it.
        fault: Box<SideError>,
    },
    /// Stopped before the end.
    #[error("stopped")]
    Interrupted,
}

/// The reason why the tar files of a pattern do not form one dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternFault {
    /// They are in several stores or buckets.
    Apart,
    /// A file occurs twice.
    Twice {
        /// The name of the file.
        name: String,
    },
    /// A name is invalid.
    Name {
        /// The name.
        name: String,
        /// The rule that it breaks.
        fault: NameError,
    },
}

impl fmt::Display for PatternFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apart => f.write_str("names tar files that have no folder in common"),
            Self::Twice { name } => write!(f, "names `{}` twice", escape(name)),
            Self::Name { name, fault } => write!(f, "names `{}`: {fault}", escape(name)),
        }
    }
}

impl TarSetError {
    /// Makes an error about a damaged shard.
    #[must_use]
    pub fn tar(path: PathBuf, source: WebdatasetError) -> Self {
        let source = Box::new(source);
        Self::Tar { path, source }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Storage(error) => Some(error),
            Self::Braces(error) => Some(error),
            Self::Index { source, .. } => Some(source),
            Self::Tar { source, .. } => Some(&**source),
            Self::Compression { source, .. } => Some(source),
            Self::Hash { source, .. } => Some(source),
            Self::Pinned(error) => Some(&**error),
            Self::Side { fault, .. } => Some(&**fault),
            Self::NoShards { .. }
            | Self::Stray { .. }
            | Self::Unfinished { .. }
            | Self::OtherFormat { .. }
            | Self::Pattern { .. }
            | Self::Length { .. }
            | Self::Changed { .. }
            | Self::Interrupted => None,
        }
    }
}

/// The hint for a folder that mixes tar files with other files.
pub(crate) const STRAY_HINT: &str = "name the tar files, as in train-{000..146}.tar, or the folder that has nothing but them; `shardmill convert --from tree` and `FileDataset` take every file as it is";

impl Diagnostic for TarSetError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoShards { .. } => ErrorKind::NotFound,
            Self::Unfinished { .. } => ErrorKind::Conflict,
            Self::Pattern { .. } | Self::OtherFormat { .. } | Self::Stray { .. } => {
                ErrorKind::InvalidInput
            }
            Self::Length { .. } | Self::Changed { .. } => ErrorKind::Corrupt,
            Self::Interrupted => ErrorKind::Interrupted,
            _ => self.inner().map_or(ErrorKind::Bug, Diagnostic::kind),
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::NoShards { .. } => "index-missing",
            Self::Stray { .. } => "source-mixed",
            Self::Unfinished { found, .. } => found.id(),
            Self::OtherFormat { .. } => "index-format",
            Self::Pattern { .. } => "pattern-names",
            Self::Length { .. } => "shard-length",
            Self::Changed { .. } => "file-changed",
            Self::Interrupted => "interrupted",
            _ => self.inner().map_or("internal", Diagnostic::id),
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Storage(error) => error.object(),
            Self::Pinned(error) => error.object(),
            Self::NoShards { path }
            | Self::Stray { path, .. }
            | Self::Unfinished { path, .. }
            | Self::OtherFormat { path, .. }
            | Self::Index { path, .. }
            | Self::Side { path, .. }
            | Self::Tar { path, .. }
            | Self::Compression { path, .. }
            | Self::Length { path, .. }
            | Self::Hash { path, .. }
            | Self::Changed { path } => Some(escape(&path.display().to_string()).into_owned()),
            Self::Braces(_) | Self::Pattern { .. } | Self::Interrupted => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Stray { .. } => Some(STRAY_HINT.to_owned()),
            Self::Unfinished { path, found } => {
                let hint = found.hint(&path.display().to_string());
                Some(match found {
                    Unfinished::Conversion => {
                        format!("{hint}; name tar files to read those that are there")
                    }
                    Unfinished::Parts => hint,
                })
            }
            Self::OtherFormat { .. } => {
                Some("`shardmill convert --to webdataset` makes tar files of it".to_owned())
            }
            Self::Pattern { fault, .. } => match fault {
                PatternFault::Apart => Some("give a stream for each".to_owned()),
                PatternFault::Twice { .. } => {
                    Some("a stream has each of its shards once; `repeat` has it twice".to_owned())
                }
                PatternFault::Name { .. } => None,
            },
            Self::Length { .. } => Some(
                "write or fetch the shard again, or keep the samples that are whole with `shardmill repair`"
                    .to_owned(),
            ),
            _ => self.inner().and_then(Diagnostic::hint),
        }
    }
}
