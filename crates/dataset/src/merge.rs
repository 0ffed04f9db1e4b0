//! Merges the indexes of several datasets.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use shardmill_core::{Error, INDEX_NAME, Limits, WORK_FOLDER, check_relative_path, escape};
use shardmill_mds::{Content, Index, MdsError};
use shardmill_storage::{Dir, EntryKind, Folder, StorageError, Stored};

use crate::entry::Entry;
use crate::error::DatasetError;
use crate::index_file::{open_index, read_index};
use crate::live::LiveSamples;
use crate::problem::DatasetProblem;
use crate::side_files::{
    IndexShape, PROVENANCE_NAME, ReadFile, SideFiles, TOMBSTONES_NAME, read_file, tombstones_note,
};

/// A merged index, and its side files.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The index.
    pub index: Index,
    /// The side files, by name: what the merged datasets recorded about their samples. Empty if no dataset recorded
    /// anything.
    pub files: Vec<(&'static str, String)>,
    /// The number of deleted samples.
    pub deleted: u64,
}

/// A dataset to merge.
#[derive(Clone, Debug)]
pub struct MergePart {
    folder: String,
    index: Index,
    live: LiveSamples,
    content: Option<Content>,
    has_provenance: bool,
}

impl MergePart {
    /// Reads the side files of the dataset in a folder. `read` reads a file of it, up to a number of bytes.
    ///
    /// # Errors
    ///
    /// Side files that cannot be read, or that belong to another index.
    pub fn new(
        folder: String,
        index: Index,
        read: &ReadFile<'_>,
        limits: &Limits,
    ) -> Result<Self, DatasetError> {
        let side_files = SideFiles::read(read, &shape_of(&index), limits.index_bytes);
        let (live, content, has_provenance) = side_files.into_part()?;
        Ok(Self {
            folder,
            index,
            live,
            content,
            has_provenance,
        })
    }

    /// Reads an index of a directory and its side files. `folder` is the name of the directory in the merged index.
    fn read(folder: &str, dir: &Dir, file: &Stored, limits: &Limits) -> Result<Self, DatasetError> {
        let here = Folder::Local(dir.clone());
        let (index, _) = read_index(file, None, limits)?;
        let name = file.path().file_name();
        // Side files belong to an index of the usual name only.
        let has_sides = name.is_some_and(|name| name == INDEX_NAME);
        let read = |name: &str, max| match has_sides {
            true => read_file(&here, name, max),
            false => Ok(None),
        };
        let part = Self::new(folder.to_owned(), index, &read, limits);
        part.map_err(|error| error.with_side_path(|name| dir.path_of(name)))
    }
}

fn shape_of(index: &Index) -> IndexShape {
    IndexShape::of_entries(index.shards.iter().map(Entry::Mds))
}

/// Merges datasets in this order. Deleted samples are renumbered with their shards.
///
/// # Errors
///
/// Two indexes that list the same file.
pub fn merge_parts(parts: Vec<MergePart>) -> Result<Merged, MdsError> {
    let mut deleted: Vec<(u64, u64)> = Vec::new();
    let mut first = 0_u64;
    let mut content = Some(Content::default());
    let mut sources = Vec::with_capacity(parts.len());
    for part in &parts {
        for (start, end) in part.live.deleted_ranges() {
            let (start, end) = (start.saturating_add(first), end.saturating_add(first));
            match deleted.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => deleted.push((start, end)),
            }
        }
        first = first.saturating_add(part.live.stored());
        content = content.zip(part.content).map(|(sum, own)| sum.with(own));
        sources.push(json!({
            "folder": part.folder,
            "samples": part.live.stored(),
            "shards": part.index.shards.len(),
            "deleted": part.live.deleted(),
            "content": part.content.map(|content| content.to_string()),
        }));
    }
    let has_provenance = parts.iter().any(|part| part.has_provenance);
    let indexes = parts.into_iter().map(|part| (part.folder, part.index));
    let index = Index::merge(indexes.collect())?;
    let count = deleted.iter().map(|(start, end)| end - start).sum();
    let mut files = Vec::new();
    if has_provenance || count > 0 {
        let mut note = None;
        if count > 0 {
            let list = json!({"tombstones": 1, "count": count, "samples": deleted});
            let text = format!("{list}\n");
            note = Some(tombstones_note(text.as_bytes(), count));
            files.push((TOMBSTONES_NAME, text));
        }
        let value = json!({
            "provenance": 1,
            "writer": concat!("shardmill ", env!("CARGO_PKG_VERSION")),
            "merged": sources,
            "samples": index.samples(),
            "shards": index.shards.len(),
            "order": shape_of(&index).order,
            "content": content.map(|content| content.to_string()),
            "tombstones": note,
        });
        let mut text = serde_json::to_string_pretty(&value).unwrap_or_else(|_| value.to_string());
        text.push('\n');
        files.push((PROVENANCE_NAME, text));
    }
    Ok(Merged {
        index,
        files,
        deleted: count,
    })
}

/// Merges the indexes of all datasets in directories below `root`, at any depth, in the order of their paths. The index
/// of `root` itself is not read. Links to directories are not followed.
///
/// Paths are compared as strings, including `/`, as MosaicML Streaming does. Its merge names a nested dataset by the
/// last directory only; this one uses the whole path below `root`.
///
/// # Errors
///
/// [`DatasetProblem::NothingToMerge`]; [`DatasetError::Reading`] for an invalid index, and if two indexes list the
/// same file, as an index and one below it do.
pub fn merge_indexes(root: &Path, limits: &Limits) -> Result<Merged, DatasetError> {
    let dir = Dir::open(root)?;
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let (here, prefix) = match folder.as_str() {
            "" => (dir.clone(), String::new()),
            folder => (dir.open_dir(folder)?, format!("{folder}/")),
        };
        for entry in here.entries()? {
            if entry.kind != EntryKind::Directory {
                if entry.name == INDEX_NAME && !folder.is_empty() {
                    found.push(format!("{prefix}{INDEX_NAME}"));
                }
                continue;
            }
            let name = entry.name.as_encoded_bytes();
            if name.ends_with(WORK_FOLDER.as_bytes()) {
                continue;
            }
            let name = utf8(Path::new(&entry.name), &here.path().join(&entry.name))?;
            let name = format!("{prefix}{name}");
            check(&name, dir.path())?;
            folders.push(name);
        }
    }
    found.sort_unstable();
    let folders = found.iter().filter_map(|name| Path::new(name).parent());
    let parts: Vec<PathBuf> = folders.map(|folder| root.join(folder)).collect();
    merge_index_list(&parts, root, limits)
}

/// Merges the indexes of the given datasets, for an index in the directory `out`. A part is an index or the directory
/// of one, and must be below `out`. The order is kept, and repeated parts are ignored.
///
/// # Errors
///
/// [`DatasetProblem::Outside`]; [`DatasetProblem::IndexMissing`], [`DatasetError::Reading`].
pub fn merge_index_list(
    parts: &[PathBuf],
    out: &Path,
    limits: &Limits,
) -> Result<Merged, DatasetError> {
    let root = canonical(out)?;
    let mut seen = BTreeSet::new();
    let mut indexes = Vec::with_capacity(parts.len());
    for part in parts {
        let (dir, file) = open_index(part)?;
        let path = canonical(dir.path())?;
        let file_name = file.path().file_name().unwrap_or_default().to_owned();
        let outside = || {
            let out = out.to_string_lossy();
            let reason = format!(
                "it is not below `{}`, where the merged index is to be",
                escape(&out)
            );
            DatasetProblem::Outside.at(file.path(), reason)
        };
        let folder = path.strip_prefix(&root).map_err(|_| outside())?;
        // The merged index will have this path.
        if folder.as_os_str().is_empty() && file_name == INDEX_NAME {
            return Err(outside());
        }
        if !seen.insert(path.join(&file_name)) {
            continue;
        }
        let name = utf8(folder, &path)?;
        if !name.is_empty() {
            check(name, &root)?;
        }
        indexes.push(MergePart::read(name, &dir, &file, limits)?);
    }
    if indexes.is_empty() {
        let reason = "there is no index.json in any directory below this one";
        return Err(DatasetProblem::NothingToMerge.at(out, reason));
    }
    let action = "cannot merge the indexes below this directory";
    merge_parts(indexes).map_err(|source| DatasetError::index(action, out, source))
}

const UNNAMED: &str = "an index cannot name this directory";

/// Returns a name that an index can have, if it is UTF-8. `path` is the directory in messages.
fn utf8<'a>(name: &'a Path, path: &Path) -> Result<&'a str, DatasetError> {
    name.to_str()
        .ok_or_else(|| DatasetProblem::DirectoryName.at(path, UNNAMED))
}

fn check(name: &str, root: &Path) -> Result<(), DatasetError> {
    check_relative_path(name).map_err(|source| {
        let rule = Error::usage(source.id(), source.to_string());
        DatasetError::reading(UNNAMED, root.join(name), rule)
    })
}

fn canonical(path: &Path) -> Result<PathBuf, DatasetError> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    fs::canonicalize(path).map_err(|source| {
        DatasetError::Storage(StorageError::Io {
            action: "open the directory",
            path: path.to_owned(),
            source,
        })
    })
}
