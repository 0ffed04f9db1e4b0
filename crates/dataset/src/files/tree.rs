//! The options for reading a tree of files, and the columns of its samples.

use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use shardmill_cache::{Blob, BlobFile};
use shardmill_mds::{FileHashes, FileInfo};
use shardmill_storage::{FileHandle, ListedFile};

/// The column of the bytes of a file.
pub const DATA_COLUMN: &str = "data";
/// The column of the local path of a file.
pub const FILE_COLUMN: &str = "file";
/// The column of the path of a file in its tree.
pub const PATH_COLUMN: &str = "path";

/// What a sample contains of a file, besides its path in the tree (column `path`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FileForm {
    /// The bytes, as the column `data`.
    #[default]
    Data,
    /// The local path, as the column `file`. The file is not read.
    File,
    /// Both.
    Both,
}

impl FileForm {
    /// Returns whether samples contain the bytes.
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::Data | Self::Both)
    }

    /// Returns whether the file must be on the disk.
    #[must_use]
    pub const fn has_file(self) -> bool {
        matches!(self, Self::File | Self::Both)
    }

    /// Returns the names of the columns, sorted as MDS writers sort them, so that a tree can be mixed with MDS
    /// datasets.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Data => &[DATA_COLUMN, PATH_COLUMN],
            Self::File => &[FILE_COLUMN, PATH_COLUMN],
            Self::Both => &[DATA_COLUMN, FILE_COLUMN, PATH_COLUMN],
        }
    }

    /// Returns the values of a sample, in the order of the columns.
    pub fn values<'a>(
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

/// Which files of a tree to read, and what to return of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// What samples contain.
    pub form: FileForm,
    /// Patterns of files to read; if empty, all files match. `*` and `?` match characters within a name, `**` matches
    /// any number of folders. A pattern without a `/` is compared with the name of the file, any other with its path.
    /// Names that begin with a dot match only patterns that do.
    pub include: Vec<String>,
    /// Patterns of files to ignore.
    pub exclude: Vec<String>,
    /// Whether to list the tree again, instead of using the list next to the cache. If the list has changed, fetched
    /// files are removed.
    pub relist: bool,
    /// The expected digest of the list: see [`Catalog::files_digest`](crate::Catalog::files_digest).
    pub expect: Option<String>,
    /// The list of another reader. It is reused if it is of the same tree with the same patterns: see
    /// [`Catalog::known_files`](crate::Catalog::known_files).
    pub known: Option<KnownFiles>,
    /// The files to read, if the patterns match others, too.
    pub only: Option<ChosenFiles>,
}

/// Files of a tree that something else than patterns has chosen, such as the log of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenFiles {
    /// Identifies the choice. It is part of the list.
    pub identity: String,
    /// The paths of the files in the tree.
    pub paths: Arc<BTreeSet<String>>,
}

/// The list of a tree of one reader, for another reader of the same tree, which then need not list it. It has no
/// threads and locks, so a forked child can use the one of its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownFiles {
    /// Identifies the tree and the patterns.
    pub(super) head: Arc<str>,
    pub(super) entries: Arc<[FileEntry]>,
    /// The digest of the whole list.
    pub(super) digest: [u8; 32],
}

/// A file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// The path of the file in the tree, and its length.
    pub info: FileInfo,
    /// A value that changes with the file; empty if its source reports none.
    pub tag: Box<str>,
}

impl FileEntry {
    /// Returns the file as a blob of the cache.
    #[must_use]
    pub const fn blob(&self, form: FileForm, is_remote: bool) -> Blob<'_> {
        Blob {
            data: BlobFile {
                raw: &self.info,
                packed: None,
            },
            table: None,
            is_kept: is_remote,
            keep_packed: false,
            needs_file: form.has_file(),
            is_unhashed: true,
        }
    }

    pub(super) fn new(entry: ListedFile) -> Self {
        Self {
            info: FileInfo {
                basename: entry.name.into(),
                bytes: entry.bytes,
                hashes: FileHashes::default(),
            },
            tag: entry.tag.into(),
        }
    }

    /// Returns whether a file of a file system is the one that was listed.
    pub fn is(&self, file: &FileHandle) -> bool {
        file.len() == self.info.bytes && (self.tag.is_empty() || *self.tag == *file.tag())
    }
}

/// The files of a tree, sorted by the bytes of their paths.
#[derive(Clone, Debug)]
pub struct FileList {
    pub(super) known: KnownFiles,
    /// What samples contain.
    pub form: FileForm,
}

impl FileList {
    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.known.entries.len()
    }

    /// Returns whether there are no files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a file.
    pub fn get(&self, number: usize) -> Option<&FileEntry> {
        self.known.entries.get(number)
    }

    /// Returns the list for another reader.
    pub fn known(&self) -> KnownFiles {
        self.known.clone()
    }

    /// Returns the digest of the whole list.
    pub fn digest(&self) -> [u8; 32] {
        self.known.digest
    }

    /// Returns the number of the file with a path.
    pub fn find(&self, path: &str) -> Option<usize> {
        self.known
            .entries
            .binary_search_by(|entry| entry.info.basename.as_bytes().cmp(path.as_bytes()))
            .ok()
    }

    /// Hashes the paths and lengths, but nothing that differs between copies of the same tree.
    pub fn hash_into(&self, hasher: &mut Sha256) {
        for entry in self.known.entries.iter() {
            hasher.update((entry.info.basename.len() as u64).to_le_bytes());
            hasher.update(entry.info.basename.as_bytes());
            hasher.update(entry.info.bytes.to_le_bytes());
        }
    }
}
