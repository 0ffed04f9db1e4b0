use std::path::{Path, PathBuf};

use shardmill_core::{Diagnostic, ErrorKind, escape};

use crate::error::Place;

/// What a tree of files can be wrong about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A tree without files.
    #[error(
        "there are no files{}",
        if *filtered { " that the patterns take" } else { "" }
    )]
    Empty {
        /// The tree.
        location: String,
        /// Whether there are files that the patterns leave out.
        filtered: bool,
    },
    /// A pattern that is none.
    #[error("`{}` is no pattern: {reason}", escape(pattern))]
    Pattern {
        /// Where it was given.
        option: &'static str,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A store with an object that is called like a folder of others, which no folder of a machine can hold.
    #[error("it is a file, and `{}` lies in a folder of that name", escape(other))]
    Clash {
        /// The object.
        object: String,
        /// One beneath it.
        other: String,
    },
    /// The local folder keeps files of another tree, or by other patterns.
    #[error(
        "the folder keeps the files of {}, by other patterns or from another place",
        escape(kept)
    )]
    Other {
        /// The list in the folder.
        path: PathBuf,
        /// Where those come from.
        kept: String,
    },
    /// The list that is kept is damaged.
    #[error("the list of files cannot be read: {what}")]
    List {
        /// The list.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The list of files is not the one that the caller expects.
    #[error(
        "the list of files has the digest {found}, not {expected}: files came, went or have other lengths"
    )]
    Digest {
        /// The tree, or all of them.
        location: String,
        /// What the caller expects.
        expected: String,
        /// What it is.
        found: String,
    },
    /// Files that are fetched by the old list are in use.
    #[error("{files} files of the old list are in use")]
    InUse {
        /// The list.
        path: PathBuf,
        /// How many.
        files: u64,
    },
    /// A file that was listed is gone.
    #[error("the file is gone since it was listed")]
    Missing {
        /// Where.
        place: Place,
    },
    /// A file that was listed is another one now.
    #[error(
        "the file has changed since it was listed: {listed} bytes then, {found} now{}",
        match (listed == found, store) {
            (false, _) => "",
            (true, false) => ", and another time of change",
            (true, true) => ", and another ETag",
        }
    )]
    Changed {
        /// Where.
        place: Place,
        /// Its length in the list.
        listed: u64,
        /// Its length now.
        found: u64,
        /// Whether it is an object of a store.
        store: bool,
    },
    /// An object of a store is not the one that was listed.
    #[error("the object has changed since it was listed: it has another ETag")]
    ObjectChanged {
        /// Where.
        place: Place,
    },
    /// A file of the local folder that the cache did not write.
    #[error("nothing tells whether it is the file that was listed")]
    Untold {
        /// Where.
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
    /// Files are asked for by name where there are none.
    #[error("the dataset has no raw files")]
    NoTree,
}

impl FileError {
    /// The place in the dataset, where it is known.
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
    /// Whether the place has another file than was listed, however often it is asked.
    pub(crate) const fn is_change(&self) -> bool {
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
