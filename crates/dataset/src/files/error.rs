use std::path::{Path, PathBuf};

use shardmill_core::{Diagnostic, ErrorKind, escape};

use crate::error::Place;

/// An error about a tree of raw files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A tree without files to read.
    #[error(
        "there are no files{}",
        if *filtered { " that the patterns take" } else { "" }
    )]
    Empty {
        /// The tree.
        location: String,
        /// Whether patterns were given, which may exclude all files.
        filtered: bool,
    },
    /// An invalid pattern.
    #[error("`{}` is no pattern: {reason}", escape(pattern))]
    Pattern {
        /// The option that it was passed in.
        option: &'static str,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An object of a store whose name is also a folder of other objects, which a local folder cannot represent.
    #[error("it is a file, and `{}` lies in a folder of that name", escape(other))]
    Clash {
        /// The object.
        object: String,
        /// An object in the folder of that name.
        other: String,
    },
    /// The local folder contains the files of another tree, or of other patterns.
    #[error(
        "the folder keeps the files of {}, by other patterns or from another place",
        escape(kept)
    )]
    Other {
        /// The list in the folder.
        path: PathBuf,
        /// The source of those files.
        kept: String,
    },
    /// The stored list is damaged.
    #[error("the list of files cannot be read: {what}")]
    List {
        /// The list.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The list of files does not have the digest that the caller expects.
    #[error(
        "the list of files has the digest {found}, not {expected}: files came, went or have other lengths"
    )]
    Digest {
        /// The tree, or all trees.
        location: String,
        /// The expected digest.
        expected: String,
        /// The digest of the list.
        found: String,
    },
    /// Files of the previous list are in use.
    #[error("{files} files of the old list are in use")]
    InUse {
        /// The list.
        path: PathBuf,
        /// The number of files in use.
        files: u64,
    },
    /// A listed file does not exist any more.
    #[error("the file is gone since it was listed")]
    Missing {
        /// The place of the file.
        place: Place,
    },
    /// A listed file has changed.
    #[error(
        "the file has changed since it was listed: {listed} bytes then, {found} now{}",
        match (listed == found, store) {
            (false, _) => "",
            (true, false) => ", and another time of change",
            (true, true) => ", and another ETag",
        }
    )]
    Changed {
        /// The place of the file.
        place: Place,
        /// Its length in the list.
        listed: u64,
        /// Its length now.
        found: u64,
        /// Whether it is an object of a store.
        store: bool,
    },
    /// A listed object of a store has changed.
    #[error("the object has changed since it was listed: it has another ETag")]
    ObjectChanged {
        /// The place of the file.
        place: Place,
    },
    /// A file in the local folder that the cache did not write, so that it may not be the listed one.
    #[error("nothing tells whether it is the file that was listed")]
    Untold {
        /// The place of the file.
        place: Place,
    },
    /// The list has no such file.
    #[error("the list of {} has no such file", escape(location))]
    NoFile {
        /// The path.
        path: String,
        /// The tree.
        location: String,
    },
    /// Files were requested by name, but no stream is a tree of raw files.
    #[error("the dataset has no raw files")]
    NoTree,
}

impl FileError {
    /// Returns the place in the dataset, if the error has one.
    #[must_use]
    pub const fn place(&self) -> Option<&Place> {
        match self {
            Self::Missing { place }
            | Self::Changed { place, .. }
            | Self::ObjectChanged { place }
            | Self::Untold { place } => Some(place),
            _ => None,
        }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Other { path, .. } | Self::List { path, .. } | Self::InUse { path, .. } => {
                Some(path)
            }
            _ => None,
        }
    }
}

impl FileError {
    /// Returns whether the file at the source differs from the listed one, so that retries cannot help.
    pub const fn is_change(&self) -> bool {
        matches!(self, Self::Changed { .. } | Self::ObjectChanged { .. })
    }
}

impl Diagnostic for FileError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Empty { .. } | Self::Missing { .. } | Self::NoFile { .. } => ErrorKind::NotFound,
            Self::Pattern { .. } | Self::NoTree => ErrorKind::InvalidInput,
            Self::Clash { .. } => ErrorKind::Unsupported,
            Self::Other { .. } | Self::Digest { .. } | Self::InUse { .. } => ErrorKind::Conflict,
            Self::List { .. }
            | Self::Changed { .. }
            | Self::ObjectChanged { .. }
            | Self::Untold { .. } => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Empty { .. } => "tree-empty",
            Self::Pattern { .. } => "config-pattern",
            Self::Clash { .. } => "tree-clash",
            Self::Other { .. } => "cache-foreign",
            Self::List { .. } => "files-list",
            Self::Digest { .. } => "files-digest",
            Self::InUse { .. } => "files-in-use",
            Self::Missing { .. } => "file-missing",
            Self::Changed { .. } => "file-changed",
            Self::ObjectChanged { .. } => "remote-changed",
            Self::Untold { .. } => "file-untold",
            Self::NoFile { .. } => "no-such-file",
            Self::NoTree => "config-files",
        }
    }

    fn object(&self) -> Option<String> {
        if let Some(place) = self.place() {
            return Some(place.to_string());
        }
        if let Some(path) = self.path() {
            return Some(escape(&path.to_string_lossy()).into_owned());
        }
        match self {
            Self::Empty { location, .. } | Self::Digest { location, .. } => {
                Some(escape(location).into_owned())
            }
            Self::Pattern { option, .. } => Some((*option).to_owned()),
            Self::Clash { object, .. } => Some(escape(object).into_owned()),
            Self::NoFile { path, .. } => Some(escape(path).into_owned()),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Empty { filtered: true, .. } => "see `include` and `exclude`",
            Self::Empty { .. } => "see whether the place is the right one",
            Self::Clash { .. } => "leave one of them out with `exclude`",
            Self::Other { .. } => "name another local folder",
            Self::List { .. }
            | Self::Missing { .. }
            | Self::Changed { .. }
            | Self::ObjectChanged { .. } => {
                "list the files anew (`relist`), or name another local folder"
            }
            Self::Digest { .. } => "go on with the files that the run began with, or begin anew",
            Self::InUse { .. } => "end the processes that read them, or name another local folder",
            Self::Untold { .. } => "move it away, or name another local folder",
            Self::Pattern { .. } | Self::NoFile { .. } | Self::NoTree => return None,
        };
        Some(hint.to_owned())
    }
}
