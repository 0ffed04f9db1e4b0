use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use shardmill_core::{Limits, NameError, WORK_FOLDER, check_relative_path};
use shardmill_mds::Index;
use shardmill_storage::{Dir, EntryKind, StorageError};

use crate::dataset::{INDEX_NAME, open_index, read_index};
use crate::error::ReaderError;

/// One index of all the data sets in directories beneath `root`, at any depth, in the order of their paths.
/// The index of `root` itself is not read. Links to directories are not followed.
///
/// The paths are compared as strings, `/` included, as the original does. Its merge names a nested data set by
/// the last directory only; this one by the whole path beneath `root`.
///
/// # Errors
///
/// [`ReaderError::NothingToMerge`]; [`ReaderError::Index`] for one that cannot be read;
/// [`ReaderError::Merge`] when two would name the same file, as an index and one beneath it do.
pub fn merge_indexes(root: &Path, limits: &Limits) -> Result<Index, ReaderError> {
    let dir = Dir::open(root)?;
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let here = if folder.is_empty() {
            dir.clone()
        } else {
            dir.open_dir(&folder)?
        };
        for entry in here.entries()? {
            let is_directory = entry.kind == EntryKind::Directory;
            let is_index = !is_directory && entry.name == INDEX_NAME;
            if is_index && !folder.is_empty() {
                found.push(format!("{folder}/{INDEX_NAME}"));
            }
            if !is_directory
                || entry
                    .name
                    .as_encoded_bytes()
                    .ends_with(WORK_FOLDER.as_bytes())
            {
                continue;
            }
            let name = entry
                .name
                .to_str()
                .ok_or_else(|| ReaderError::DirectoryName {
                    path: here.path().join(&entry.name),
                    source: None,
                })?;
            let name = if folder.is_empty() {
                name.to_owned()
            } else {
                format!("{folder}/{name}")
            };
            check(&name, dir.path())?;
            folders.push(name);
        }
    }
    if found.is_empty() {
        return Err(ReaderError::NothingToMerge {
            path: root.to_owned(),
        });
    }
    found.sort_unstable();
    let mut indexes = Vec::with_capacity(found.len());
    for name in found {
        let file = dir.open_file(&name)?;
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        indexes.push((folder.to_owned(), read_index(&file, None, limits)?));
    }
    merge(indexes, root)
}

/// One index of the given data sets, for a file in the directory `out`. A part is the directory of an index or
/// an index; it has to lie beneath `out`. The order is kept, and a part that is named again is left out.
///
/// # Errors
///
/// [`ReaderError::Outside`]; [`ReaderError::IndexMissing`], [`ReaderError::Index`], [`ReaderError::Merge`].
pub fn merge_index_list(
    parts: &[PathBuf],
    out: &Path,
    limits: &Limits,
) -> Result<Index, ReaderError> {
    let root = canonical(out)?;
    let mut seen = BTreeSet::new();
    let mut indexes = Vec::with_capacity(parts.len());
    for part in parts {
        let (dir, file) = open_index(part)?;
        let path = canonical(dir.path())?;
        let file_name = file.path().file_name().unwrap_or_default().to_owned();
        let outside = || ReaderError::Outside {
            path: file.path().to_owned(),
            out: out.to_owned(),
        };
        let folder = path.strip_prefix(&root).map_err(|_| outside())?;
        // The result will be called so, and take its place.
        if folder.as_os_str().is_empty() && file_name == INDEX_NAME {
            return Err(outside());
        }
        if !seen.insert(path.join(&file_name)) {
            continue;
        }
        let name = folder.to_str().ok_or_else(|| ReaderError::DirectoryName {
            path: path.clone(),
            source: None,
        })?;
        if !name.is_empty() {
            check(name, &root)?;
        }
        indexes.push((name.to_owned(), read_index(&file, None, limits)?));
    }
    if indexes.is_empty() {
        return Err(ReaderError::NothingToMerge {
            path: out.to_owned(),
        });
    }
    merge(indexes, out)
}

fn merge(indexes: Vec<(String, Index)>, path: &Path) -> Result<Index, ReaderError> {
    Index::merge(indexes).map_err(|source| ReaderError::Merge {
        path: path.to_owned(),
        source: Box::new(source),
    })
}

fn check(name: &str, root: &Path) -> Result<(), ReaderError> {
    check_relative_path(name).map_err(|source: NameError| ReaderError::DirectoryName {
        path: root.join(name),
        source: Some(source),
    })
}

fn canonical(path: &Path) -> Result<PathBuf, ReaderError> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    fs::canonicalize(path).map_err(|source| {
        ReaderError::Storage(StorageError::Io {
            action: "open the directory",
            path: path.to_owned(),
            source,
        })
    })
}
