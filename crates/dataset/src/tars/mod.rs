//! Finds the tar shards of a location, reads their contents and verifies them, with or without an `index.json`.

mod data;
mod error;
mod pattern;
mod repeated;
mod scan;
#[cfg(test)]
mod tests;
mod verify;

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use shardmill_core::{FileClass, Limits, Unfinished, check_relative_path, stray_among_tars};
use shardmill_storage::{
    Dir, EntryKind, FileHandle, Folder, Location, Remote, RemoteLocation, RemoteOptions,
    StorageError, Stored,
};
use shardmill_webdataset::{Index, IndexShard};

pub use data::TarData;
pub(crate) use error::STRAY_HINT;
pub use error::{PatternFault, TarSetError};
pub use pattern::TarPattern;
pub use repeated::{RepeatedKey, RepeatedKeys};
pub use scan::each_in_order;
pub use verify::verify_tars;

use crate::dataset::{INDEX_NAME, check_expected_index};
use crate::entry::begins_as_tar_index;
use crate::error::DatasetError;
use crate::live::LiveSamples;
use crate::side_files::{Care, SideError, SideFiles, read_file, unfinished};

/// The most folders of a store that are checked for an index of their own. A dataset has fewer splits, but a table may
/// have very many partitions.
pub const MOST_SPLITS: usize = 64;

/// How deep below a location tar files are searched.
const MOST_DEPTH: usize = 64;

/// The tar shards of one or more locations, in order.
#[derive(Debug, Default)]
pub struct TarSet {
    shards: Vec<TarFile>,
    indexes: Vec<FoundIndex>,
}

/// An index that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundIndex {
    /// The path of the index.
    pub path: PathBuf,
    /// The length of the index in bytes.
    pub bytes: u64,
    /// The range of shards of the set that the index lists.
    pub(crate) shards: Range<usize>,
}

/// One tar file.
#[derive(Clone, Debug)]
pub struct TarFile {
    /// The folder that the name is relative to.
    root: PathBuf,
    /// The same folder, if it is in a store.
    store: Option<Folder>,
    name: String,
    entry: Option<IndexShard>,
    /// The live samples of its dataset, and the stored number of its own first sample; `None` if no sample is deleted.
    live: Option<(LiveSamples, u64)>,
}

/// Returns whether the name of a file is one of a tar shard: `.tar`, `.tar.gz`, `.tgz` or `.tar.zst`.
#[must_use]
pub fn is_tar_name(name: &str) -> bool {
    FileClass::of(name) == FileClass::Tar
}

/// Returns the version of a file: its modification time, or the tag that its store reports. Equal versions mean that
/// the file has not changed.
#[must_use]
pub fn version_of(file: &Stored) -> Vec<u8> {
    match (file.as_file(), file.tag()) {
        (Some(file), _) => {
            let modified = file.modified().duration_since(std::time::UNIX_EPOCH);
            let nanos = modified.map_or(0, |since| since.as_nanos());
            nanos.to_le_bytes().to_vec()
        }
        (None, tag) => tag.unwrap_or_default().as_bytes().to_vec(),
    }
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

/// Drops raw files next to a compressed file of the same shard: both are the same shard.
pub(crate) fn drop_unpacked<T>(found: &mut Vec<T>, name: impl Fn(&T) -> &str) {
    let packed: HashSet<String> = found
        .iter()
        .map(|shard| (raw_tar_name(name(shard)), name(shard)))
        .filter(|(raw, name)| raw != name)
        .map(|(raw, _)| raw)
        .collect();
    found.retain(|shard| !packed.contains(name(shard)));
}

/// Returns whether a location contains tar shards. That is a tar file, a folder whose `index.json` lists tar files, or
/// a folder with tar files and without an index.
///
/// # Errors
///
/// [`TarSetError::Stray`] for a folder with tar files and other files; errors of reading the location.
pub fn holds_tars(location: &Path) -> Result<bool, TarSetError> {
    if location.is_file() {
        let name = location.file_name().map(|name| name.to_string_lossy());
        return Ok(match name.as_deref() {
            Some(INDEX_NAME) => is_tar_index(&FileHandle::open(location)?)?,
            Some(name) => is_tar_name(name),
            None => false,
        });
    }
    let dir = Dir::open(location)?;
    if dir.exists(INDEX_NAME)? {
        return Ok(is_tar_index(&dir.open_file(INDEX_NAME)?)?);
    }
    if holds_datasets(&dir)? {
        return Ok(false);
    }
    let below = below(&dir)?;
    check_strays(&below, location)?;
    Ok(!below.tars.is_empty())
}

/// Returns whether subfolders of a folder have indexes. Each of them is then a dataset of its own.
pub(crate) fn holds_datasets(dir: &Dir) -> Result<bool, StorageError> {
    let is_dataset = |name: &str| {
        !name.starts_with('.') && matches!(dir.exists(&format!("{name}/{INDEX_NAME}")), Ok(true))
    };
    Ok(dir.entries()?.iter().any(|entry| {
        entry.kind == EntryKind::Directory && entry.name.to_str().is_some_and(is_dataset)
    }))
}

/// Returns whether a folder or a prefix in a store contains tar shards, like [`holds_tars`]. The index of a prefix is
/// read and cached in `folder` for the next read.
///
/// # Errors
///
/// [`TarSetError::Stray`]; errors of the store.
pub fn folder_holds_tars(folder: &Folder, limits: &Limits) -> Result<bool, TarSetError> {
    if let Folder::Local(dir) = folder {
        return holds_tars(dir.path());
    }
    folder.keep(INDEX_NAME, limits.index_bytes)?;
    if folder.exists(INDEX_NAME)? {
        let file = folder.open_file(INDEX_NAME)?;
        let head = file.read_range(0, file.len().min(256))?;
        return Ok(begins_as_tar_index(&head));
    }
    if !folder.can_list() {
        return Ok(false);
    }
    // Subfolders with an index are datasets of their own.
    let entries = folder.entries()?;
    for entry in entries
        .iter()
        .filter(|entry| entry.is_folder && !entry.name.starts_with('.'))
        .take(MOST_SPLITS)
    {
        let index = format!("{}/{INDEX_NAME}", entry.name);
        if matches!(folder.exists(&index), Ok(true)) {
            return Ok(false);
        }
    }
    let names = folder.all_names(Remote::LIST_MOST)?.unwrap_or_default();
    let below = Below::of(names);
    check_strays(&below, folder.path())?;
    Ok(!below.tars.is_empty())
}

/// Returns whether the name of a file below a folder is one of a tar shard that is not in a hidden folder.
pub(crate) fn is_tar_below(name: &str) -> bool {
    let (_, file) = name.rsplit_once('/').unwrap_or(("", name));
    is_tar_name(file)
        && !name.split('/').any(|part| part.starts_with('.'))
        && check_relative_path(name).is_ok()
}

/// The files below a folder, without hidden ones.
#[derive(Debug, Default)]
pub(crate) struct Below {
    /// The tar shards, sorted by the bytes of their names.
    pub tars: Vec<String>,
    /// Some of the other files.
    others: Vec<String>,
}

/// The most other files that are compared with the tar files.
const MOST_OTHERS: usize = 1 << 16;

impl Below {
    /// Sorts the names of all objects below a prefix into tar shards and others.
    pub(crate) fn of(names: Vec<String>) -> Self {
        let mut below = Self::default();
        for name in names {
            below.add(name);
        }
        below.sort();
        below
    }

    fn add(&mut self, name: String) {
        if is_tar_below(&name) {
            self.tars.push(name);
        } else if self.others.len() < MOST_OTHERS
            && !name.ends_with('/')
            && !name.split('/').any(|part| part.starts_with(['.', '_']))
        {
            self.others.push(name);
        }
    }

    fn sort(&mut self) {
        drop_unpacked(&mut self.tars, String::as_str);
        self.tars.sort();
    }

    /// Returns a tar file and a file that belongs to no tar file, if there is one.
    pub(crate) fn stray(&self) -> Option<[String; 2]> {
        let tar = self.tars.first()?;
        let all = self.tars.iter().chain(&self.others);
        let all: Vec<&str> = all.map(String::as_str).collect();
        let other = stray_among_tars(&all)?;
        Some([tar.clone(), other.to_owned()])
    }
}

/// Checks that a folder with tar files contains no unrelated files.
fn check_strays(below: &Below, folder: &Path) -> Result<(), TarSetError> {
    match below.stray() {
        None => Ok(()),
        Some([tar, other]) => Err(TarSetError::Stray {
            path: folder.to_owned(),
            tar,
            other,
        }),
    }
}

/// Lists the files below a folder.
pub(crate) fn below(dir: &Dir) -> Result<Below, StorageError> {
    let mut below = Below::default();
    list(dir, "", 0, &mut |name| below.add(name))?;
    below.sort();
    Ok(below)
}

/// Lists the tar shards below a folder, without hidden ones, sorted by the bytes of their names.
fn tars_below(dir: &Dir) -> Result<Vec<String>, StorageError> {
    Ok(below(dir)?.tars)
}

/// Returns whether an index lists tar files.
fn is_tar_index(file: &FileHandle) -> Result<bool, StorageError> {
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
            EntryKind::Directory if depth < MOST_DEPTH => {
                list(&dir.open_dir(name)?, &full, depth + 1, each)?;
            }
            EntryKind::File => each(full),
            _ => {}
        }
    }
    Ok(())
}

impl TarSet {
    /// Finds the shards of local locations. A tar file is one shard. A folder has the shards of its index; without an
    /// index, all tar files below it, sorted by the bytes of their names. If a tar file exists both compressed and raw,
    /// the compressed one is the shard.
    ///
    /// # Errors
    ///
    /// [`TarSetError`]: locations and indexes that cannot be read, folders without tar files, and folders with an
    /// unfinished conversion.
    pub fn open(locations: &[PathBuf], limits: &Limits) -> Result<Self, TarSetError> {
        let mut set = Self::default();
        for location in locations {
            set.add(location, limits)?;
        }
        Ok(set)
    }

    /// Finds the shards of locations that may be in stores. For a prefix, the index is read; without one, its names are
    /// listed.
    ///
    /// # Errors
    ///
    /// As [`TarSet::open`]; errors of the store.
    pub fn open_at(
        locations: &[Location],
        limits: &Limits,
        remote: &RemoteOptions,
    ) -> Result<Self, TarSetError> {
        let mut set = Self::default();
        // Shards that are named one by one are mostly in the same folder, which is then opened once.
        let mut last: Option<(RemoteLocation, Folder)> = None;
        for location in locations {
            match location {
                Location::Local(path) => set.add(path, limits)?,
                Location::Remote(location) => match location.split_name() {
                    Some((place, name)) if is_tar_name(name) => {
                        let known = last.take().filter(|(other, _)| *other == place);
                        let folder = match known {
                            Some((_, folder)) => folder,
                            None => Folder::open_store(&place, remote)?,
                        };
                        set.shards.extend(Self::of_file(&folder, name).shards);
                        last = Some((place, folder));
                    }
                    Some((folder, INDEX_NAME)) => {
                        set.add_folder(&Folder::open_store(&folder, remote)?, limits)?;
                    }
                    _ => set.add_folder(&Folder::open_store(location, remote)?, limits)?,
                },
            }
        }
        Ok(set)
    }

    /// Returns a set of one file in a folder.
    #[must_use]
    pub fn of_file(folder: &Folder, name: &str) -> Self {
        Self {
            shards: vec![TarFile::stored(folder, name.to_owned())],
            indexes: Vec::new(),
        }
    }

    /// Returns the tar files directly in a folder, sorted by the bytes of their names. An index is ignored.
    ///
    /// # Errors
    ///
    /// [`TarSetError::NoShards`]; errors of reading the folder.
    pub fn lying_in(folder: &Path) -> Result<Self, TarSetError> {
        let dir = Dir::open(folder)?;
        let mut names = Vec::new();
        list(&dir, "", MOST_DEPTH, &mut |name| {
            if is_tar_name(&name) {
                names.push(name);
            }
        })?;
        if names.is_empty() {
            return Err(TarSetError::NoShards {
                path: folder.to_owned(),
            });
        }
        names.sort();
        let folder = Folder::Local(dir);
        Ok(Self {
            shards: names
                .into_iter()
                .map(|name| TarFile::stored(&folder, name))
                .collect(),
            indexes: Vec::new(),
        })
    }

    /// Returns the shards that a pattern names, whether they exist or not. A missing shard is reported when it is
    /// opened.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub fn of_pattern(pattern: &TarPattern, remote: &RemoteOptions) -> Result<Self, TarSetError> {
        let folder = match pattern.folder() {
            Location::Local(path) => Folder::Local(Dir::open(path)?),
            Location::Remote(location) => Folder::open_store(location, remote)?,
        };
        let names = pattern.names().iter().cloned();
        Ok(Self {
            shards: names.map(|name| TarFile::stored(&folder, name)).collect(),
            indexes: Vec::new(),
        })
    }

    /// Finds the shards in a folder.
    ///
    /// # Errors
    ///
    /// As [`TarSet::open_at`].
    pub fn open_in(folder: &Folder, limits: &Limits) -> Result<Self, TarSetError> {
        let mut set = Self::default();
        match folder {
            Folder::Local(dir) => set.add(dir.path(), limits)?,
            folder => set.add_folder(folder, limits)?,
        }
        Ok(set)
    }

    /// Returns the shards in the index of a folder, and checks the hash of the index, such as `sha256:` and its digits.
    ///
    /// # Errors
    ///
    /// As [`TarSet::open_at`]; `index-missing`, `index-mismatch`; an `expected` that is not a hash.
    pub fn open_pinned(
        folder: &Folder,
        expected: &str,
        limits: &Limits,
    ) -> Result<Self, TarSetError> {
        let pinned = |error| TarSetError::Pinned(Box::new(error));
        let file = match folder.open_file(INDEX_NAME) {
            Err(error) if error.is_not_found() => {
                return Err(pinned(DatasetError::IndexMissing {
                    path: folder.path().to_owned(),
                    unfinished: match folder {
                        Folder::Local(dir) => unfinished(dir)?,
                        _ => None,
                    },
                }));
            }
            file => file?,
        };
        let bytes = file.read_all(limits.index_bytes)?;
        check_expected_index(&bytes, file.path(), Some(expected)).map_err(pinned)?;
        let mut set = Self::default();
        set.add_index(folder, file.path(), &bytes, limits)?;
        Ok(set)
    }

    /// Adds the shards that an index lists.
    fn add_index(
        &mut self,
        folder: &Folder,
        path: &Path,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<(), TarSetError> {
        let index = Index::parse(bytes, limits).map_err(|source| {
            let path = path.to_owned();
            match shardmill_mds::Index::parse(bytes, limits) {
                Ok(other) => TarSetError::OtherFormat {
                    path,
                    format: other
                        .shards
                        .first()
                        .map_or("mds", |shard| shard.config.format().name()),
                },
                Err(_) => TarSetError::Index { path, source },
            }
        })?;
        let first = self.shards.len();
        self.indexes.push(FoundIndex {
            path: path.to_owned(),
            bytes: bytes.len() as u64,
            shards: first..first + index.shards.len(),
        });
        let entries = index.shards.into_iter();
        self.shards
            .extend(entries.map(|entry| TarFile::of_entry(folder, entry)));
        Ok(())
    }

    fn add_folder(&mut self, folder: &Folder, limits: &Limits) -> Result<(), TarSetError> {
        folder.keep(INDEX_NAME, limits.index_bytes)?;
        if !folder.exists(INDEX_NAME)? {
            let names = folder.all_names(Remote::LIST_MOST)?.unwrap_or_default();
            if let Some(found) = Unfinished::among(names.iter().map(String::as_str)) {
                return Err(TarSetError::Unfinished {
                    path: folder.path().to_owned(),
                    found,
                });
            }
            let names = Below::of(names).tars;
            if names.is_empty() {
                return Err(TarSetError::NoShards {
                    path: folder.path().to_owned(),
                });
            }
            let names = names.into_iter();
            self.shards
                .extend(names.map(|name| TarFile::stored(folder, name)));
            return Ok(());
        }
        let file = folder.open_file(INDEX_NAME)?;
        let bytes = file.read_all(limits.index_bytes)?;
        self.add_index(folder, file.path(), &bytes, limits)
    }

    fn add(&mut self, location: &Path, limits: &Limits) -> Result<(), TarSetError> {
        let is_index = location.file_name().is_some_and(|name| name == INDEX_NAME);
        // A missing tar file is reported when it is opened.
        let is_gone = || {
            let name = location.file_name().and_then(|name| name.to_str());
            name.is_some_and(is_tar_name) && !location.exists()
        };
        if (location.is_file() || is_gone()) && !is_index {
            let parent = location
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            let name = location.file_name().map(|name| name.to_string_lossy());
            self.shards.push(TarFile {
                root: parent.unwrap_or(Path::new(".")).to_owned(),
                store: None,
                name: name.unwrap_or_default().into_owned(),
                entry: None,
                live: None,
            });
            return Ok(());
        }
        let root = match location.parent() {
            Some(parent) if is_index && location.is_file() => match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            },
            _ => location,
        };
        let dir = Dir::open(root)?;
        if dir.exists(INDEX_NAME)? {
            let bytes = dir.open_file(INDEX_NAME)?.read_all(limits.index_bytes)?;
            let path = dir.path_of(INDEX_NAME);
            return self.add_index(&Folder::Local(dir), &path, &bytes, limits);
        }
        if let Some(found) = unfinished(&dir)? {
            return Err(TarSetError::Unfinished {
                path: root.to_owned(),
                found,
            });
        }
        let names = tars_below(&dir)?;
        if names.is_empty() {
            return Err(TarSetError::NoShards {
                path: root.to_owned(),
            });
        }
        self.shards.extend(names.into_iter().map(|name| TarFile {
            root: root.to_owned(),
            store: None,
            name,
            entry: None,
            live: None,
        }));
        Ok(())
    }

    /// Reads the side files of an index of this set.
    pub(crate) fn side_files(&self, index: &FoundIndex, limits: &Limits) -> SideFiles {
        let shards = self.shards.get(index.shards.clone()).unwrap_or_default();
        let Some(first) = shards.first() else {
            return SideFiles::default();
        };
        let samples = shards.iter().filter_map(TarFile::entry);
        let samples = samples.map(|entry| entry.samples).sum();
        let read = |name: &str, most| first.read_beside(name, most);
        let counts = (samples, shards.len() as u64);
        SideFiles::read(&read, counts, limits.index_bytes, Care::Thorough)
    }

    /// Returns the set without deleted samples, according to the side files of its indexes.
    ///
    /// # Errors
    ///
    /// [`TarSetError::Side`].
    pub fn without_deleted(mut self, limits: &Limits) -> Result<Self, TarSetError> {
        let mut all = Vec::new();
        for index in &self.indexes {
            let side = |fault: SideError| TarSetError::Side {
                path: index.path.with_file_name(fault.name()),
                fault: Box::new(fault),
            };
            let live = self.side_files(index, limits).into_checked_live();
            all.push((index.shards.clone(), live.map_err(side)?));
        }
        for (shards, live) in all {
            if live.is_all() {
                continue;
            }
            let mut first = 0_u64;
            for shard in self.shards.get_mut(shards).unwrap_or_default() {
                let samples = shard.entry.as_ref().map_or(0, |entry| entry.samples);
                shard.live = Some((live.clone(), first));
                first = first.saturating_add(samples);
            }
        }
        Ok(self)
    }

    /// Returns a digest of the deleted samples, for each index that has some.
    #[must_use]
    pub fn deleted_digests(&self) -> Vec<[u8; 16]> {
        let firsts = self.indexes.iter();
        let firsts = firsts.filter_map(|index| self.shards.get(index.shards.start));
        let live = firsts.filter_map(|shard| shard.live.as_ref());
        live.filter_map(|(live, _)| live.digest()).collect()
    }

    /// Returns the shards.
    #[must_use]
    pub fn shards(&self) -> &[TarFile] {
        &self.shards
    }

    /// Returns the indexes that were read.
    #[must_use]
    pub fn indexes(&self) -> &[FoundIndex] {
        &self.indexes
    }
}

impl TarFile {
    /// Makes a shard from a file of a folder, without an index entry.
    fn stored(folder: &Folder, name: String) -> Self {
        let store = folder.is_store().then(|| folder.clone());
        Self {
            root: folder.path().to_owned(),
            store,
            name,
            entry: None,
            live: None,
        }
    }

    /// Makes a shard from an entry of the index of a local folder.
    #[must_use]
    pub fn new(root: &Path, entry: IndexShard) -> Self {
        Self {
            root: root.to_owned(),
            store: None,
            name: entry.stored().basename.to_string(),
            entry: Some(entry),
            live: None,
        }
    }

    /// Makes a shard from an entry of the index of a folder that may be in a store.
    #[must_use]
    pub fn of_entry(folder: &Folder, entry: IndexShard) -> Self {
        Self {
            store: folder.is_store().then(|| folder.clone()),
            ..Self::new(folder.path(), entry)
        }
    }

    /// Returns the name of the file in its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the file after decompression.
    #[must_use]
    pub fn raw_name(&self) -> String {
        raw_tar_name(&self.name)
    }

    /// Returns the folder that the name is relative to.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        if self.root == Path::new(".") {
            return PathBuf::from(&self.name);
        }
        self.root.join(&self.name)
    }

    /// Returns the entry of the index, if an index lists the file.
    #[must_use]
    pub const fn entry(&self) -> Option<&IndexShard> {
        self.entry.as_ref()
    }

    /// Opens the file. A file that an index lists is opened below the folder of the index only.
    ///
    /// # Errors
    ///
    /// Errors of opening the file.
    pub fn open(&self) -> Result<Stored, StorageError> {
        match (&self.store, &self.entry) {
            (Some(folder), _) => folder.open_file(&self.name),
            (None, Some(_)) => self.open_side_files(&self.name),
            (None, None) => FileHandle::open(&self.path()).map(Stored::File),
        }
    }

    /// Returns how many samples of this shard are live, if it stores `stored` samples.
    #[must_use]
    pub fn live_samples(&self, stored: u64) -> u64 {
        match &self.live {
            None => stored,
            Some((live, first)) => live.count_in(&(*first..first.saturating_add(stored))),
        }
    }

    /// Returns the ranges of live samples by their position in this shard, if it stores `stored` samples.
    #[must_use]
    pub fn live_ranges(&self, stored: u64) -> Vec<Range<u64>> {
        match &self.live {
            None => std::iter::once(0..stored).collect(),
            Some((live, first)) => live
                .live_ranges(*first..first.saturating_add(stored))
                .map(|range| range.start - first..range.end - first)
                .collect(),
        }
    }

    /// Reads another file of its folder; `None` if the file does not exist.
    fn read_beside(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StorageError> {
        match &self.store {
            Some(folder) => read_file(folder, name, most),
            None => read_file(&Folder::Local(Dir::open(&self.root)?), name, most),
        }
    }

    /// Opens another file of its folder.
    ///
    /// # Errors
    ///
    /// Errors of opening the file.
    pub(crate) fn open_side_files(&self, name: &str) -> Result<Stored, StorageError> {
        match &self.store {
            Some(folder) => folder.open_file(name),
            None => Dir::open(&self.root)?.open_file(name).map(Stored::File),
        }
    }
}
