//! A tree of files as a dataset: each file is a shard of one sample.
//!
//! This module decides which files a tree has and in what order, where that list is kept, and what a file has to be so that
//! it is the one that was listed. Fetching, keeping and removing files is that of shards (`shard_cache`), and so is their
//! order.
//!
//! The model:
//!
//! - Files are listed once and sorted by the bytes of their paths. Beside a cache the list is kept, so that all processes of
//!   the machine, and a run that is resumed, have the same one.
//! - Nothing says what the bytes of a file have to be, so its length and its stamp count: the `ETag` of a store, the time of
//!   change of a file system. Another stamp when it is read is an error.
//! - A path or the bytes are given out, or both ([`FileForm`]).

mod error;
mod list;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use shardmill_mds::{Encoding, FileHashes, FileInfo};
use shardmill_storage::{FileHandle, ManifestEntry};

pub use error::FileError;
pub(crate) use list::{LIST, Shelf, open_list};

use crate::schema::SchemaColumn;

/// The column of the bytes of a file.
pub const DATA_COLUMN: &str = "data";
/// The column of the path where a file lies on this machine.
pub const FILE_COLUMN: &str = "file";
/// The column of the path of a file in its tree.
pub const PATH_COLUMN: &str = "path";

/// What is given out of a file, besides its path in the tree (column `path`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FileForm {
    /// Its bytes, as the column `data`.
    #[default]
    Data,
    /// The path where it lies on this machine, as the column `file`. Nothing is read.
    File,
    /// Both.
    Both,
}

impl FileForm {
    /// Whether the bytes are given out.
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Data | Self::Both)
    }

    /// Whether the file has to lie on the disk.
    #[must_use]
    pub const fn has_file(self) -> bool {
        matches!(self, Self::File | Self::Both)
    }

    /// The columns of a sample, in order.
    pub(crate) fn columns(self) -> Vec<SchemaColumn> {
        let column = |name: &&str| SchemaColumn {
            name: (*name).to_owned(),
            encoding: if *name == DATA_COLUMN {
                Encoding::Bytes
            } else {
                Encoding::Str
            },
            size: None,
        };
        self.names().iter().map(column).collect()
    }

    /// The names of the columns: in the order that writers of MDS put them in, so that a tree can be mixed with it.
    pub(crate) const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Data => &[DATA_COLUMN, PATH_COLUMN],
            Self::File => &[FILE_COLUMN, PATH_COLUMN],
            Self::Both => &[DATA_COLUMN, FILE_COLUMN, PATH_COLUMN],
        }
    }

    /// The values of a sample, in the order of the columns.
    pub(crate) fn values<'a>(
        self,
        data: &'a [u8],
        file: &'a str,
        path: &'a str,
    ) -> impl Iterator<Item = &'a [u8]> {
        let data = self.has_data().then_some(data);
        let file = self.has_file().then_some(file.as_bytes());
        data.into_iter().chain(file).chain([path.as_bytes()])
    }
}

/// Which files of a tree are read, and what is given out of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// What is given out.
    pub form: FileForm,
    /// Patterns of which a file has to match one; without any all files do. `*` and `?` stand for letters of a name,
    /// `**` for any number of folders. A pattern without a `/` is compared with the name of the file, another one with
    /// its path. Names that begin with a dot are matched by patterns that do.
    pub include: Vec<String>,
    /// Patterns of which a file must not match any.
    pub exclude: Vec<String>,
    /// Whether the list that is kept beside the cache is made anew. What was fetched by the old one goes.
    pub relist: bool,
    /// The digest that the list has to have: see [`Reader::files_digest`](crate::Reader::files_digest).
    pub expect: Option<String>,
    /// The list of a reader that was opened before, which is used again where it is of the same tree and the same patterns:
    /// see [`Reader::known_files`](crate::Reader::known_files).
    pub known: Option<KnownFiles>,
}

/// The list of a tree as a reader has it, for another reader of this tree: nothing is listed again. It has no threads and no
/// locks, so that a forked child can use that of its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFiles {
    /// Of which tree and which patterns.
    head: Arc<str>,
    entries: Arc<[FileEntry]>,
    /// Of all that the list says.
    digest: [u8; 32],
}

/// A file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileEntry {
    /// Its path in the tree, and its length.
    pub(crate) info: FileInfo,
    /// What changes when it does; empty where nothing tells.
    pub(crate) tag: Box<str>,
}

impl FileEntry {
    fn new(entry: ManifestEntry) -> Self {
        Self {
            info: FileInfo {
                basename: entry.name.into(),
                bytes: entry.bytes,
                hashes: FileHashes::default(),
            },
            tag: entry.tag.into(),
        }
    }

    /// Whether a file of a file system is the one that was listed.
    pub(crate) fn is(&self, file: &FileHandle) -> bool {
        file.len() == self.info.bytes && (self.tag.is_empty() || *self.tag == *file.tag())
    }
}

/// The files of a tree, sorted by the bytes of their paths.
#[derive(Clone, Debug)]
pub(crate) struct FileList {
    known: KnownFiles,
    pub(crate) form: FileForm,
}

impl FileList {
    pub(crate) fn len(&self) -> usize {
        self.known.entries.len()
    }

    pub(crate) fn get(&self, number: usize) -> Option<&FileEntry> {
        self.known.entries.get(number)
    }

    /// The list for another reader.
    pub(crate) fn known(&self) -> KnownFiles {
        self.known.clone()
    }

    /// Of all that the list says.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.known.digest
    }

    /// The number of a path.
    pub(crate) fn find(&self, path: &str) -> Option<usize> {
        self.known
            .entries
            .binary_search_by(|entry| entry.info.basename.as_bytes().cmp(path.as_bytes()))
            .ok()
    }

    /// Paths and lengths, and nothing that differs between copies of the same tree.
    pub(crate) fn hash_into(&self, hasher: &mut Sha256) {
        for entry in self.known.entries.iter() {
            hasher.update((entry.info.basename.len() as u64).to_le_bytes());
            hasher.update(entry.info.basename.as_bytes());
            hasher.update(entry.info.bytes.to_le_bytes());
        }
    }
}
