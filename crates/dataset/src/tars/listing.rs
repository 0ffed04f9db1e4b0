//! Recognizes tar shards by name, and lists those below a folder.

use std::collections::HashSet;
use std::path::Path;

use shardmill_core::{
    FileClass, INDEX_NAME, Limits, Unfinished, begins_as_tar_index, check_relative_path, escape,
    stray_among_tars,
};
use shardmill_storage::{Dir, EntryKind, FileHandle, Folder, Remote, StorageError, Stored};

use crate::error::DatasetError;
use crate::problem::DatasetProblem;
use crate::side_files::unfinished;

/// The most folders of a store that are checked for an index one by one. With more of them, as of a table with very
/// many partitions, a listing of all names is faster.
const MAX_REQUESTS: usize = 64;

/// How deep below a location tar files are searched.
const MAX_DEPTH: usize = 64;

/// Returns whether the name of a file is one of a tar shard: `.tar`, `.tar.gz`, `.tgz` or `.tar.zst`.
#[must_use]
pub fn is_tar_name(name: &str) -> bool {
    FileClass::of(name) == FileClass::Tar
}

/// Returns the name of a tar file after decompression.
pub(crate) fn raw_tar_name(name: &str) -> String {
    // INVARIANT: the suffix is ASCII, so the cut is at a character boundary.
    let cut = |ending: usize| name.get(..name.len().saturating_sub(ending));
    let lower = name.to_ascii_lowercase();
    let raw = if lower.ends_with(".tgz") {
        cut(".tgz".len()).map(|stem| format!("{stem}.tar"))
    } else if lower.ends_with(".gz") {
        cut(".gz".len()).map(str::to_owned)
    } else if lower.ends_with(".zst") {
        cut(".zst".len()).map(str::to_owned)
    } else {
        None
    };
    raw.unwrap_or_else(|| name.to_owned())
}

/// Returns whether a location contains tar shards. That is a tar file, a folder whose `index.json` lists tar files, or
/// a folder with tar files and without an index.
///
/// # Errors
///
/// [`DatasetProblem::Stray`] for a folder with tar files and other files; errors of reading the location.
pub fn holds_tars(location: &Path) -> Result<bool, DatasetError> {
    if location.is_file() {
        let name = location.file_name().map(|name| name.to_string_lossy());
        return Ok(match name.as_deref() {
            Some(INDEX_NAME) => is_tar_index(&Stored::File(FileHandle::open(location)?))?,
            Some(name) => is_tar_name(name),
            None => false,
        });
    }
    folder_holds_tars(&Folder::Local(Dir::open(location)?), &Limits::default())
}

/// Returns the names of the subfolders of a folder that have an index, without hidden ones. Each of them is a dataset of
/// its own.
pub fn splits_in(folder: &Folder) -> Result<Vec<String>, StorageError> {
    let mut names: Vec<String> = folder
        .entries()?
        .into_iter()
        .filter(|entry| entry.is_folder && !entry.name.starts_with('.'))
        .map(|entry| entry.name)
        .collect();
    if folder.is_store() && names.len() > MAX_REQUESTS {
        let all = folder.all_names(Remote::MAX_LISTED)?.unwrap_or_default();
        let datasets: HashSet<&str> = all.iter().filter_map(|name| dataset_of(name)).collect();
        names.retain(|name| datasets.contains(name.as_str()));
    } else {
        // A name that violates the naming rules is not a split.
        names.retain(|name| matches!(folder.exists(&format!("{name}/{INDEX_NAME}")), Ok(true)));
    }
    Ok(names)
}

/// Returns the subfolder whose index this file is; `None` for other files.
pub(crate) fn dataset_of(name: &str) -> Option<&str> {
    let (folder, name) = name.split_once('/')?;
    (name == INDEX_NAME && !folder.starts_with('.')).then_some(folder)
}

/// Returns whether a folder or a prefix in a store contains tar shards, like [`holds_tars`]. The index of a prefix is
/// read and cached in `folder` for the next read.
///
/// # Errors
///
/// [`DatasetProblem::Stray`]; errors of the store.
pub fn folder_holds_tars(folder: &Folder, limits: &Limits) -> Result<bool, DatasetError> {
    folder.keep(INDEX_NAME, limits.index_bytes)?;
    if folder.exists(INDEX_NAME)? {
        return Ok(is_tar_index(&folder.open_file(INDEX_NAME)?)?);
    }
    if !folder.can_list() {
        return Ok(false);
    }
    let listing = Listing::of(folder)?;
    if listing.has_datasets()? {
        return Ok(false);
    }
    let below = listing.below()?;
    below.check_stray(folder.path())?;
    Ok(!below.tars.is_empty())
}

/// The files below a folder. A store is listed once, a directory as often as it is needed.
pub(crate) enum Listing {
    /// A directory.
    Local(Dir),
    /// The names and lengths of all objects below a prefix in a store.
    Store(Vec<(String, u64)>),
}

impl Listing {
    /// Lists a folder.
    pub(crate) fn of(folder: &Folder) -> Result<Self, StorageError> {
        Ok(match folder {
            Folder::Local(dir) => Self::Local(dir.clone()),
            Folder::Store(store) => {
                let objects = store.remote().list("", Remote::MAX_LISTED, &mut |_| true)?;
                let files = objects
                    .into_iter()
                    .filter(|object| !object.is_marker() && !object.name.is_empty());
                Self::Store(files.map(|object| (object.name, object.bytes)).collect())
            }
        })
    }

    /// Returns what an unfinished conversion left in the folder.
    pub(crate) fn unfinished(&self) -> Result<Option<Unfinished>, StorageError> {
        match self {
            Self::Local(dir) => unfinished(dir),
            Self::Store(objects) => Ok(Unfinished::among(
                objects.iter().map(|(name, _)| name.as_str()),
            )),
        }
    }

    /// Returns whether a subfolder has an index.
    pub(crate) fn has_datasets(&self) -> Result<bool, StorageError> {
        Ok(match self {
            Self::Local(dir) => !splits_in(&Folder::Local(dir.clone()))?.is_empty(),
            Self::Store(objects) => objects.iter().any(|(name, _)| dataset_of(name).is_some()),
        })
    }

    /// Sorts the files into tar shards and others.
    pub(crate) fn below(self) -> Result<Below, StorageError> {
        let mut below = Below::default();
        match self {
            Self::Local(dir) => list(&dir, "", 0, &mut |name| below.add(name, None))?,
            Self::Store(objects) => {
                for (name, bytes) in objects {
                    below.add(name, Some(bytes));
                }
            }
        }
        below.sort();
        Ok(below)
    }
}

/// Returns whether the name of a file below a folder is one of a tar shard that is not in a hidden folder.
fn is_tar_below(name: &str) -> bool {
    let (_, file) = name.rsplit_once('/').unwrap_or(("", name));
    is_tar_name(file)
        && !name.split('/').any(|part| part.starts_with('.'))
        && check_relative_path(name).is_ok()
}

/// The files below a folder, without hidden ones.
#[derive(Debug, Default)]
pub(crate) struct Below {
    /// The tar shards, sorted by the bytes of their names, and their lengths if the listing has them.
    pub tars: Vec<(String, Option<u64>)>,
    /// Some of the other files.
    others: Vec<String>,
}

/// The most other files that are compared with the tar files.
const MAX_OTHERS: usize = 1 << 16;

impl Below {
    fn add(&mut self, name: String, bytes: Option<u64>) {
        if is_tar_below(&name) {
            self.tars.push((name, bytes));
        } else if self.others.len() < MAX_OTHERS
            && !name.ends_with('/')
            && !name.split('/').any(|part| part.starts_with(['.', '_']))
        {
            self.others.push(name);
        }
    }

    /// Sorts the tar shards. Drops raw files next to a compressed file: both are the same shard.
    fn sort(&mut self) {
        let raw_names = self.tars.iter().map(|(name, _)| (raw_tar_name(name), name));
        let packed = raw_names.filter(|(raw, name)| raw != *name);
        let packed: HashSet<String> = packed.map(|(raw, _)| raw).collect();
        self.tars.retain(|(name, _)| !packed.contains(name));
        self.tars.sort();
    }

    /// Checks that all files belong to tar files, if there are tar files. `folder` names the folder in messages.
    pub(crate) fn check_stray(&self, folder: &Path) -> Result<(), DatasetError> {
        let tars = self.tars.iter().map(|(name, _)| name);
        let all: Vec<&str> = tars.chain(&self.others).map(String::as_str).collect();
        let (Some((tar, _)), Some(other)) = (self.tars.first(), stray_among_tars(&all)) else {
            return Ok(());
        };
        let (tar, other) = (escape(tar), escape(other));
        let reason = format!("holds tar files such as {tar}, and other files such as {other}");
        Err(DatasetProblem::Stray.at(folder, reason))
    }
}

/// Returns whether an index lists tar files.
fn is_tar_index(file: &Stored) -> Result<bool, StorageError> {
    let head = file.read_range(0, file.len().min(256))?;
    Ok(begins_as_tar_index(&head))
}

/// Calls `each` with the name of every file below a folder.
fn list(
    dir: &Dir,
    folder: &str,
    depth: usize,
    each: &mut dyn FnMut(String),
) -> Result<(), StorageError> {
    for entry in dir.entries()? {
        let Some(name) = entry.name.to_str() else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let full = match folder {
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        };
        match entry.kind {
            EntryKind::Directory if depth < MAX_DEPTH => {
                list(&dir.open_dir(name)?, &full, depth + 1, each)?;
            }
            EntryKind::File => each(full),
            _ => {}
        }
    }
    Ok(())
}
