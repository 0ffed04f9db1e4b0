//! Finds the tar shards of locations, with or without an `index.json`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use shardmill_core::{INDEX_NAME, Limits, Progress};
use shardmill_storage::{Dir, EntryKind, Folder, Location, RemoteLocation, RemoteOptions};
use shardmill_webdataset::{Index, IndexShard};

use super::file::TarFile;
use super::listing::{Listing, is_tar_name};
use super::ordered::each_in_order;
use super::pattern::TarPattern;
use super::scan::{scanned, unscanned};
use crate::error::DatasetError;
use crate::index_file::{check_expected_index, index_missing};
use crate::live::{LiveSamples, starts_of};
use crate::problem::DatasetProblem;
use crate::side_files::{IndexShape, SideFiles};
use crate::view::{View, ViewTarget};

/// The tar shards of one or more locations, in order.
#[derive(Debug, Default)]
pub struct TarSet {
    shards: Vec<TarFile>,
    indexes: Vec<FoundIndex>,
    /// The number of deleted samples, which are not live.
    deleted: u64,
}

/// An index that was read.
#[derive(Clone, Debug)]
pub struct FoundIndex {
    folder: Folder,
    /// The length of the index in bytes.
    pub bytes: u64,
    /// The SHA-256 of the index.
    pub(crate) digest: [u8; 32],
    /// The range of shards of the set that the index lists.
    pub(crate) shards: Range<usize>,
}

impl TarSet {
    /// Finds the shards of locations. A tar file is one shard. A folder has the shards of its index; without an index, all
    /// tar files below it, sorted by the bytes of their names. If a tar file exists both compressed and raw, the compressed
    /// one is the shard.
    ///
    /// # Errors
    ///
    /// [`DatasetError`]: locations and indexes that cannot be read, folders without tar files, and folders with an
    /// unfinished conversion.
    pub fn open(
        locations: &[Location],
        limits: &Limits,
        remote: &RemoteOptions,
    ) -> Result<Self, DatasetError> {
        let mut set = Self::default();
        // Shards that are named one by one are mostly in the same folder, which is then opened once.
        let mut last: Option<(RemoteLocation, Folder)> = None;
        for location in locations {
            match location {
                Location::Local(path) => set.add(path, limits)?,
                Location::Remote(location) => match location.split_name() {
                    Some((parent, name)) if is_tar_name(name) => {
                        let known = last.take().filter(|(other, _)| *other == parent);
                        let folder = match known {
                            Some((_, folder)) => folder,
                            None => Folder::open_store(&parent, remote)?,
                        };
                        set.shards.push(TarFile::stored(&folder, name.to_owned()));
                        last = Some((parent, folder));
                    }
                    Some((folder, INDEX_NAME)) => {
                        set.add_folder(&Folder::open_store(&folder, remote)?, None, limits)?;
                    }
                    _ => set.add_folder(&Folder::open_store(location, remote)?, None, limits)?,
                },
            }
        }
        Ok(set)
    }

    /// Returns a set of one file in a folder.
    #[must_use]
    pub fn of_file(folder: &Folder, name: &str) -> Self {
        Self::of_names(folder, [name.to_owned()])
    }

    fn of_names(folder: &Folder, names: impl IntoIterator<Item = String>) -> Self {
        let names = names.into_iter();
        Self {
            shards: names.map(|name| TarFile::stored(folder, name)).collect(),
            ..Self::default()
        }
    }

    /// Returns the tar files directly in a folder, sorted by the bytes of their names. An index is ignored.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::NoTars`]; errors of reading the folder.
    pub fn lying_in(folder: &Path) -> Result<Self, DatasetError> {
        let dir = Dir::open(folder)?;
        let files = dir.entries()?.into_iter();
        let files = files.filter(|entry| entry.kind == EntryKind::File);
        let names = files.filter_map(|entry| entry.name.into_string().ok());
        let is_shard = |name: &String| is_tar_name(name) && !name.starts_with('.');
        let names: Vec<String> = names.filter(is_shard).collect();
        if names.is_empty() {
            return Err(DatasetError::no_tars(folder));
        }
        Ok(Self::of_names(&Folder::Local(dir), names))
    }

    /// Returns the shards that a pattern names, whether they exist or not. A missing shard is reported when it is
    /// opened.
    pub fn of_pattern(pattern: &TarPattern, remote: &RemoteOptions) -> Result<Self, DatasetError> {
        let folder = Folder::open(pattern.folder(), remote)?;
        Ok(Self::of_names(&folder, pattern.names().iter().cloned()))
    }

    /// Finds the shards in a folder. With `expected`, such as `sha256:` and its digits, they are those of its index, which
    /// must have that hash.
    pub fn open_in(
        folder: &Folder,
        expected: Option<&str>,
        limits: &Limits,
    ) -> Result<Self, DatasetError> {
        let mut set = Self::default();
        set.add_folder(folder, expected, limits)?;
        Ok(set)
    }

    /// Adds the shards that an index lists.
    fn add_index(
        &mut self,
        folder: &Folder,
        path: &Path,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<(), DatasetError> {
        let index = Index::parse(bytes, limits).map_err(|source| {
            let path = path.to_owned();
            match shardmill_mds::Index::parse(bytes, limits) {
                Ok(other) => {
                    let format = other.shards.first();
                    let format = format.map_or("mds", |shard| shard.config.format().name());
                    let reason = format!("the index is of {format} shards, and not of tar files");
                    DatasetProblem::OtherFormat.at(path, reason)
                }
                Err(_) => DatasetError::tar_index(path, source),
            }
        })?;
        let first = self.shards.len();
        self.indexes.push(FoundIndex {
            folder: folder.clone(),
            bytes: bytes.len() as u64,
            digest: Sha256::digest(bytes).into(),
            shards: first..first + index.shards.len(),
        });
        let entries = index.shards.into_iter();
        self.shards
            .extend(entries.map(|entry| TarFile::of_entry(folder, entry)));
        Ok(())
    }

    /// Adds the shards of a folder: those of its index, which must have the hash `expected`, or without an index and a
    /// hash, all tar files below it.
    fn add_folder(
        &mut self,
        folder: &Folder,
        expected: Option<&str>,
        limits: &Limits,
    ) -> Result<(), DatasetError> {
        folder.keep(INDEX_NAME, limits.index_bytes)?;
        let file = match folder.open_file(INDEX_NAME) {
            Err(error) if error.is_not_found() && expected.is_none() => {
                let listing = Listing::of(folder)?;
                if let Some(found) = listing.unfinished()? {
                    return Err(DatasetError::Unfinished {
                        path: folder.path().to_owned(),
                        found,
                        tars: true,
                    });
                }
                let tars = listing.below()?.tars;
                if tars.is_empty() {
                    return Err(DatasetError::no_tars(folder.path()));
                }
                let tars = tars.into_iter();
                self.shards
                    .extend(tars.map(|(name, _)| TarFile::stored(folder, name)));
                return Ok(());
            }
            Err(error) if error.is_not_found() => {
                return Err(index_missing(folder));
            }
            file => file?,
        };
        let bytes = file.read_all(limits.index_bytes)?;
        check_expected_index(&bytes, file.path(), expected)?;
        self.add_index(folder, file.path(), &bytes, limits)
    }

    fn add(&mut self, location: &Path, limits: &Limits) -> Result<(), DatasetError> {
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
            let name = name.unwrap_or_default().into_owned();
            self.shards
                .push(TarFile::named(parent.unwrap_or(Path::new(".")), name));
            return Ok(());
        }
        let root = match location.parent() {
            Some(parent) if is_index && location.is_file() => match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            },
            _ => location,
        };
        self.add_folder(&Folder::Local(Dir::open(root)?), None, limits)
    }

    /// Reads the side files of an index of this set.
    pub(crate) fn side_files(&self, index: &FoundIndex, limits: &Limits) -> SideFiles {
        let shards = self.shards.get(index.shards.clone()).unwrap_or_default();
        let entries = shards.iter().filter_map(TarFile::entry);
        let shape = IndexShape::of(entries.map(|entry| (&*entry.raw_data.basename, entry.samples)));
        SideFiles::of_folder(&index.folder, &shape, limits.index_bytes)
    }

    /// Returns the set without deleted samples, according to the side files of its indexes.
    ///
    /// # Errors
    ///
    /// [`DatasetError`]: side files that are missing, damaged or belong to another index.
    pub fn without_deleted(mut self, limits: &Limits) -> Result<Self, DatasetError> {
        for index in self.indexes.clone() {
            let side_files = self.side_files(&index, limits);
            let live = side_files.into_checked_live_of(&index.folder)?;
            self.deleted = self.deleted.saturating_add(live.deleted());
            let shards = self.shards.get_mut(index.shards).unwrap_or_default();
            let samples = |shard: &TarFile| shard.entry.as_ref().map_or(0, |entry| entry.samples);
            let samples: Vec<u64> = shards.iter().map(samples).collect();
            set_live(shards, &live, samples);
        }
        Ok(self)
    }

    /// Returns the set with the samples of a view only. Apply it after [`Self::without_deleted`].
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::ViewOther`]; as [`Self::view_target`].
    pub fn of_view(mut self, view: &View, limits: &Limits) -> Result<Self, DatasetError> {
        let (target, samples) = self.view_target(limits)?;
        let live = view.live_of(&target, self.subject())?;
        set_live(&mut self.shards, &live, samples);
        Ok(self)
    }

    /// Returns what views of the set refer to, and the number of stored samples of each shard. Without an index, this
    /// reads the headers of all tar files, and refers to the index that they would have.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::ViewOther`] for shards of several datasets; errors of reading the files.
    pub fn view_target(&self, limits: &Limits) -> Result<(ViewTarget, Vec<u64>), DatasetError> {
        let (digest, samples) = match self.indexes.as_slice() {
            [] => {
                let entries = self.scan(limits)?;
                let samples: Vec<u64> = entries.iter().map(|entry| entry.samples).collect();
                let index = Index { shards: entries };
                (Sha256::digest(index.to_json()).into(), samples)
            }
            [index] if index.shards.len() == self.shards.len() => {
                let entries = self.shards.iter().filter_map(TarFile::entry);
                (index.digest, entries.map(|entry| entry.samples).collect())
            }
            _ => {
                let reason = "a view is of one dataset, and these are several";
                return Err(DatasetProblem::ViewOther.at(self.subject(), reason));
            }
        };
        let stored = samples.iter().sum();
        let live = self.shards.first().and_then(|shard| shard.live.as_ref());
        let live = live.map_or_else(|| LiveSamples::all(stored), |(live, _)| live.clone());
        Ok((ViewTarget { digest, live }, samples))
    }

    /// Returns the entries that an index of the files would have.
    fn scan(&self, limits: &Limits) -> Result<Vec<IndexShard>, DatasetError> {
        let shards = &self.shards;
        let mut entries = Vec::with_capacity(shards.len());
        let read = |at: usize| {
            shards
                .get(at)
                .map(|shard| scan_file(shard, limits))
                .transpose()
        };
        each_in_order(shards.len(), 0, &Progress::new(), read, |_, entry| {
            entries.extend(entry);
            Ok(())
        })?;
        Ok(entries)
    }

    fn subject(&self) -> PathBuf {
        let first = self.shards.first();
        first.map_or_else(PathBuf::new, |shard| shard.root().to_owned())
    }

    /// Returns the number of deleted samples, which are not read.
    #[must_use]
    pub const fn deleted(&self) -> u64 {
        self.deleted
    }

    /// Returns a digest of the samples that are not live, for each dataset that has some.
    #[must_use]
    pub fn deleted_digests(&self) -> Vec<[u8; 16]> {
        let live = self.shards.iter().filter_map(|shard| shard.live.as_ref());
        let firsts = live.filter(|(_, own)| own.start == 0);
        firsts.filter_map(|(live, _)| live.digest()).collect()
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

/// Sets the live samples of the shards of a dataset, which store these numbers of samples.
fn set_live(shards: &mut [TarFile], live: &LiveSamples, samples: Vec<u64>) {
    if live.is_all() {
        return;
    }
    let starts = starts_of(samples);
    for (shard, own) in shards.iter_mut().zip(starts.windows(2)) {
        if let [start, end] = *own {
            shard.live = Some((live.clone(), start..end));
        }
    }
}

/// Returns the entry that an index of the file would have.
fn scan_file(shard: &TarFile, limits: &Limits) -> Result<IndexShard, DatasetError> {
    let bytes = shard.open()?.len();
    let entry = unscanned(shard.name(), bytes);
    Ok(scanned(&entry, &shard.map(limits)?))
}
