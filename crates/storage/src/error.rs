use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use shardmill_core::{Diagnostic, ErrorKind, NameError, escape, io_error_id};

use crate::dir::EntryKind;
use crate::fault::{RemoteFault, UrlFault, without_secrets};

/// An error of opening, reading, publishing or claiming. Every variant names the path or the URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A system call failed.
    #[error("cannot {action}")]
    Io {
        /// The attempted action, as in "cannot open".
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A name that is not allowed as a path.
    #[error("refused as the name of a file")]
    Name {
        /// The name as given.
        name: String,
        /// The rule that the name breaks.
        #[source]
        source: NameError,
    },
    /// A symbolic link where a file or directory of the dataset was expected.
    #[error("the path leads through a symbolic link, which is not followed")]
    Symlink {
        /// The path of the link, or a path that leads through it.
        path: PathBuf,
    },
    /// Not a regular file.
    #[error("not a regular file but a {found}")]
    NotRegular {
        /// The path.
        path: PathBuf,
        /// The type of the entry.
        found: EntryKind,
    },
    /// Not a directory.
    #[error("not a directory")]
    NotDirectory {
        /// The path.
        path: PathBuf,
    },
    /// A file is larger than the caller allows in memory.
    #[error("the file has {bytes} bytes, more than the {max} that are allowed")]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The allowed length.
        max: u64,
    },
    /// A range that ends after the end of the file.
    #[error("bytes {offset} to {end} were asked for, the file has {bytes}")]
    Range {
        /// The path.
        path: PathBuf,
        /// First byte of the range.
        offset: u64,
        /// The end of the range, exclusive.
        end: u64,
        /// The length of the file.
        bytes: u64,
    },
    /// Memory for the contents of a file could not be allocated.
    #[error("no memory for {bytes} bytes")]
    OutOfMemory {
        /// The path.
        path: PathBuf,
        /// The number of bytes needed.
        bytes: u64,
    },
    /// A file changed after it was opened.
    #[error(
        "the file changed while it was read: it had {expected} bytes when it was opened and has {found} now"
    )]
    Changed {
        /// The path.
        path: PathBuf,
        /// Its length when it was opened.
        expected: u64,
        /// Its length now. It equals `expected` when only the modification time differs.
        found: u64,
    },
    /// A temporary file has another length than the number of bytes written to it.
    #[error("{written} bytes were written, but the file has {found}")]
    Length {
        /// The path of the temporary file.
        path: PathBuf,
        /// Bytes written.
        written: u64,
        /// Bytes found.
        found: u64,
    },
    /// A temporary file cannot be published because a write to it failed.
    #[error("not published because an earlier write to it failed")]
    Incomplete {
        /// The path of the temporary file.
        path: PathBuf,
    },
    /// A file that had to be new exists already.
    #[error("the file exists already")]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// Another writer holds the lease.
    #[error("another writer is at work{}", pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    OtherWriter {
        /// The path of the lease file.
        path: PathBuf,
        /// The process that holds the lease, if it could be read.
        pid: Option<u32>,
    },
    /// A location, endpoint or setting of a store that is not valid.
    #[error("{fault}")]
    Url {
        /// The text, with possible secrets removed.
        shown: String,
        /// What is wrong with it.
        fault: UrlFault,
    },
    /// A store refused a request, failed, or sent an unexpected answer.
    #[error("{fault}")]
    Remote {
        /// The URL, without user information and query.
        url: String,
        /// What happened.
        fault: RemoteFault,
    },
    /// A private folder belongs to another user.
    #[error("the folder belongs to user {found}, not to user {expected}")]
    Owner {
        /// The path.
        path: PathBuf,
        /// The user that owns the files this process creates.
        expected: u32,
        /// The owner of the folder.
        found: u32,
    },
}

impl StorageError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io {
            action,
            path: path.into(),
            source: source.into(),
        }
    }

    /// Converts the error number of a failed name resolution in a directory.
    pub(crate) fn resolving(action: &'static str, path: PathBuf, errno: Errno) -> Self {
        match errno {
            Errno::LOOP => Self::Symlink { path },
            Errno::NOTDIR => Self::NotDirectory { path },
            _ => Self::io(action, path, errno),
        }
    }

    pub(crate) fn url(text: &str, fault: UrlFault) -> Self {
        Self::Url {
            shown: without_secrets(text),
            fault,
        }
    }

    /// Returns the file or directory concerned; `None` for a refused name, a setting, and errors of a store.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Name { .. } | Self::Url { .. } | Self::Remote { .. } => None,
            Self::Io { path, .. }
            | Self::Symlink { path }
            | Self::NotRegular { path, .. }
            | Self::NotDirectory { path }
            | Self::TooLarge { path, .. }
            | Self::Range { path, .. }
            | Self::OutOfMemory { path, .. }
            | Self::Changed { path, .. }
            | Self::Length { path, .. }
            | Self::Incomplete { path }
            | Self::Exists { path }
            | Self::OtherWriter { path, .. }
            | Self::Owner { path, .. } => Some(path),
        }
    }

    /// Returns whether the file or object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Remote { fault, .. } => matches!(fault, RemoteFault::NotFound { .. }),
            _ => false,
        }
    }

    /// Returns whether the bucket or container does not exist.
    #[must_use]
    pub fn is_no_bucket(&self) -> bool {
        matches!(self, Self::Remote { fault, .. } if fault.is_no_bucket())
    }
}

impl Diagnostic for StorageError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => ErrorKind::from(source),
            Self::Name { .. }
            | Self::NotRegular { .. }
            | Self::Range { .. }
            | Self::Changed { .. } => ErrorKind::Corrupt,
            Self::Symlink { .. } => ErrorKind::Unsupported,
            Self::NotDirectory { .. } => ErrorKind::InvalidInput,
            Self::TooLarge { .. } => ErrorKind::Corrupt,
            Self::OutOfMemory { .. } => ErrorKind::Resource,
            Self::Length { .. } | Self::Incomplete { .. } => ErrorKind::Storage,
            Self::Exists { .. } | Self::OtherWriter { .. } => ErrorKind::Conflict,
            Self::Owner { .. } => ErrorKind::Permission,
            Self::Url { .. } => ErrorKind::InvalidInput,
            Self::Remote { fault, .. } => fault.kind(),
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Io { source, .. } => io_error_id(source),
            Self::Name { source, .. } => source.id(),
            Self::Symlink { .. } => "path-symlink",
            Self::NotRegular { .. } => "path-not-a-file",
            Self::NotDirectory { .. } => "path-not-a-directory",
            Self::TooLarge { .. } => "limit-file-bytes",
            Self::Range { .. } => "file-range",
            Self::OutOfMemory { .. } => "out-of-memory",
            Self::Changed { .. } => "file-changed",
            Self::Length { .. } => "file-length",
            Self::Incomplete { .. } => "file-incomplete",
            Self::Exists { .. } => "exists",
            Self::OtherWriter { .. } => "other-writer",
            Self::Owner { .. } => "path-owner",
            Self::Url { fault, .. } => fault.id(),
            Self::Remote { fault, .. } => fault.id(),
        }
    }

    fn object(&self) -> Option<String> {
        Some(match self {
            Self::Name { name, .. } => escape(name).into_owned(),
            Self::Url { shown: url, .. } | Self::Remote { url, .. } => escape(url).into_owned(),
            _ => escape(&self.path()?.to_string_lossy()).into_owned(),
        })
    }

    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::Url { fault, .. } => return fault.hint().map(str::to_owned),
                Self::Remote { fault, .. } => return fault.hint(),
                Self::Symlink { .. } => "put the file itself where the link is",
                Self::Changed { .. } => "read it again when no process writes to it",
                Self::OtherWriter { .. } => "wait until it is done, or write to another directory",
                Self::Owner { .. } => "remove the folder, or write to another directory",
                _ => return None,
            }
            .to_owned(),
        )
    }
}
