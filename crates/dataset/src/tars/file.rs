//! One tar shard: where it is, which of its samples are live, and its raw bytes.

use std::ops::Range;
use std::path::{Path, PathBuf};

use shardmill_core::Limits;
use shardmill_storage::{Dir, FileHandle, Folder, StorageError, Stored};
use shardmill_webdataset::{
    IndexShard, ShardMap, ShardScan, Survey, Surveyor, TarCompression, decompress, read_offsets,
};

use super::described::{scanned, unscanned};
use crate::entry::check_hash;
use crate::error::DatasetError;
use crate::listing::raw_tar_name;
use crate::live::LiveSamples;
use crate::mapped::{ShardBytes, map};
use crate::problem::ValueLocation;
use crate::side_files::read_file;

/// One tar file.
#[derive(Clone, Debug)]
pub struct TarFile {
    /// The folder that the name is relative to.
    pub(super) root: PathBuf,
    /// The same folder, if it is in a store.
    pub(super) store: Option<Folder>,
    pub(super) name: String,
    pub(super) entry: Option<IndexShard>,
    /// The entry that an index would have, if its headers were read.
    pub(super) scanned: Option<IndexShard>,
    /// The live samples of its dataset, and the stored numbers of its own samples; `None` if all samples are live.
    pub(super) live: Option<(LiveSamples, Range<u64>)>,
}

impl TarFile {
    /// Makes a shard from a file of a folder, without an index entry.
    pub(super) fn stored(folder: &Folder, name: String) -> Self {
        Self {
            store: folder.is_store().then(|| folder.clone()),
            ..Self::named(folder.path(), name)
        }
    }

    /// Makes a shard from a file of a local folder, without an index entry.
    pub(super) fn named(root: &Path, name: String) -> Self {
        Self {
            root: root.to_owned(),
            store: None,
            name,
            entry: None,
            scanned: None,
            live: None,
        }
    }

    /// Makes a shard from an entry of the index of a folder that may be in a store.
    #[must_use]
    pub fn of_entry(folder: &Folder, entry: IndexShard) -> Self {
        let name = entry.stored().basename.to_string();
        Self {
            entry: Some(entry),
            ..Self::stored(folder, name)
        }
    }

    /// Makes a shard from an entry of an index. Messages name it as the entry does.
    pub(super) fn within(folder: &Folder, entry: IndexShard) -> Self {
        Self {
            root: PathBuf::new(),
            store: Some(folder.clone()),
            ..Self::of_entry(folder, entry)
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

    pub(crate) fn location(&self) -> ValueLocation {
        ValueLocation::file(&self.path().to_string_lossy())
    }

    /// Returns the entry of the index, if an index lists the file.
    #[must_use]
    pub const fn entry(&self) -> Option<&IndexShard> {
        self.entry.as_ref()
    }

    /// Returns the entry of the index or, after [`TarSet::scanned`](super::TarSet::scanned), the one that an index would have.
    #[must_use]
    pub fn known(&self) -> Option<&IndexShard> {
        self.entry.as_ref().or(self.scanned.as_ref())
    }

    /// Opens the file. A file that an index lists is opened below the folder of the index only.
    pub fn open(&self) -> Result<Stored, StorageError> {
        match (&self.store, &self.entry) {
            (Some(folder), _) => folder.open_file(&self.name),
            (None, Some(_)) => self.open_beside(&self.name),
            (None, None) => FileHandle::open(&self.path()).map(Stored::File),
        }
    }

    /// Opens the file at the length that the index declares, if it does. In a store, this sends no request then.
    pub fn open_listed(&self) -> Result<Stored, StorageError> {
        match (&self.store, &self.entry) {
            (Some(folder), Some(entry)) => folder.open_listed(&self.name, entry.stored().bytes),
            _ => self.open(),
        }
    }

    /// Returns whether some samples of this shard are live.
    pub(crate) fn has_live(&self) -> bool {
        let live = self.live.as_ref();
        live.is_none_or(|(live, own)| live.count_in(own) > 0)
    }

    /// Returns how many samples of this shard are live, if it stores `stored` samples.
    #[must_use]
    pub fn live_samples(&self, stored: u64) -> u64 {
        match &self.live {
            None => stored,
            Some((live, own)) => live.count_in(&(own.start..own.start.saturating_add(stored))),
        }
    }

    /// Returns the ranges of live samples by their position in this shard, if it stores `stored` samples.
    #[must_use]
    pub fn live_ranges(&self, stored: u64) -> Vec<Range<u64>> {
        match &self.live {
            None => std::iter::once(0..stored).collect(),
            Some((live, own)) => live
                .live_ranges(own.start..own.start.saturating_add(stored))
                .map(|range| range.start - own.start..range.end - own.start)
                .collect(),
        }
    }

    fn folder(&self) -> Result<Folder, StorageError> {
        match &self.store {
            Some(folder) => Ok(folder.clone()),
            None => Dir::open(&self.root).map(Folder::Local),
        }
    }

    /// Opens another file of its folder.
    pub(crate) fn open_beside(&self, name: &str) -> Result<Stored, StorageError> {
        self.folder()?.open_file(name)
    }
}

/// The bytes that are read at a time while searching headers. The next header is mostly within them, or far away.
const WINDOW_BYTES: u64 = 64 << 10;

/// The window for an object in a store, where a request takes as long as the transfer of some megabytes.
const OBJECT_WINDOW_BYTES: u64 = 8 << 20;

/// The window if many objects are read at once: about what a connection transfers in the latency of a request.
const SCAN_WINDOW_BYTES: u64 = 1 << 20;

/// The bytes that identify the compression of a file.
const MAGIC_BYTES: u64 = 4;

fn compression(file: &Stored) -> Result<Option<TarCompression>, StorageError> {
    let head = file.read_range(0, file.len().min(MAGIC_BYTES))?;
    Ok(TarCompression::sniff(&head))
}

impl TarFile {
    /// Returns the compression of the file, detected from its first bytes.
    pub fn compression(&self) -> Result<Option<TarCompression>, DatasetError> {
        Ok(compression(&self.open()?)?)
    }

    /// Returns the raw shard. An uncompressed file is mapped.
    ///
    /// # Errors
    ///
    /// [`DatasetError`]: a file that cannot be read or decompressed, or that does not have the length in the index.
    pub fn load(&self, limits: &Limits) -> Result<ShardBytes, DatasetError> {
        self.read(limits, false)
    }

    /// Returns the raw shard, after checking the quickest hash of its index entry, if any.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); [`DatasetError::Reading`].
    pub fn load_checked(&self, limits: &Limits) -> Result<ShardBytes, DatasetError> {
        self.read(limits, true)
    }

    fn read(&self, limits: &Limits, checks_hash: bool) -> Result<ShardBytes, DatasetError> {
        let check = |stored: &[u8]| match &self.entry {
            Some(entry) if checks_hash => {
                check_hash(entry.stored(), None, stored, || self.location())
            }
            _ => Ok(()),
        };
        let file = self.open()?;
        if let Some(entry) = &self.entry {
            let expected = entry.stored().bytes;
            if file.len() != expected {
                let location = self.location();
                return Err(DatasetError::shard_length(location, expected, file.len()));
            }
        }
        if compression(&file)?.is_none() {
            let data = ShardBytes::of(&file, limits.shard_bytes)?;
            check(data.as_ref())?;
            return Ok(data);
        }
        let zip = file.read_all(limits.shard_bytes)?;
        check(&zip)?;
        let raw_bytes = self.entry.as_ref().map(|entry| entry.raw_data.bytes);
        self.unpack(&zip, raw_bytes, limits).map(ShardBytes::Memory)
    }

    fn unpack(
        &self,
        zip: &[u8],
        raw_bytes: Option<u64>,
        limits: &Limits,
    ) -> Result<Vec<u8>, DatasetError> {
        decompress(zip, raw_bytes, limits)
            .map_err(|source| DatasetError::decompress(self.location(), source))
    }

    /// Returns the offset of each sample in the raw tar file, then the end of the last one. They are read from the table of
    /// the index; without one, from the headers.
    ///
    /// # Errors
    ///
    /// [`DatasetError`]: files that cannot be read, a table of another length, and errors in the archive.
    pub fn offsets(&self, limits: &Limits) -> Result<Vec<u64>, DatasetError> {
        let table = self.entry.as_ref().and_then(|entry| {
            let table = entry.offsets.as_ref()?;
            Some((table, entry.samples))
        });
        if let Some((table, samples)) = table
            && let Some(bytes) = read_file(&self.folder()?, &table.basename, table.bytes)?
        {
            let path = || self.root.join(&*table.basename);
            return read_offsets(&bytes, samples)
                .map_err(|source| DatasetError::tar_index(path(), source));
        }
        Ok(self.map(limits)?.offsets())
    }

    /// Reads the headers of the shard. Of an uncompressed file, only the headers are read.
    pub(crate) fn map(&self, limits: &Limits) -> Result<ShardMap, DatasetError> {
        let file = self.open_listed()?;
        let is_packed = match &self.entry {
            Some(entry) => entry.compression.is_some(),
            None => compression(&file)?.is_some(),
        };
        self.map_of(&file, is_packed, limits)
    }

    /// Returns the entry that an index of the file would have.
    pub(super) fn scan(&self, limits: &Limits) -> Result<IndexShard, DatasetError> {
        let file = self.open()?;
        let compression = compression(&file)?;
        let map = self.map_of(&file, compression.is_some(), limits)?;
        Ok(scanned(
            &unscanned(&self.name, file.len(), compression),
            &map,
        ))
    }

    fn map_of(
        &self,
        file: &Stored,
        is_packed: bool,
        limits: &Limits,
    ) -> Result<ShardMap, DatasetError> {
        let fail = |source| DatasetError::tar_shard(self.location(), source);
        if is_packed {
            let raw = self.unpack(&file.read_all(limits.shard_bytes)?, None, limits)?;
            return ShardMap::read(&raw, limits).map_err(fail);
        }
        if let Some(file) = file.as_file() {
            let mapping = map(file)?;
            let found = ShardMap::read(mapping.bytes(), limits);
            // Missing bytes of a truncated file read as zeros, which cause other errors: report the change instead.
            if mapping.is_damaged() {
                return Err(DatasetError::shard_changed(self.location()));
            }
            return found.map_err(fail);
        }
        let mut scan = ShardScan::new(file.len(), limits);
        let mut need = Some(0..0);
        while let Some(range) = need {
            let window = window(file, &range, SCAN_WINDOW_BYTES)?;
            need = scan.step(range.start, &window).map_err(fail)?;
        }
        Ok(scan.finish())
    }

    /// Surveys the headers of the shard, and returns the length of the file as well. Of an uncompressed file, only the headers
    /// are read.
    ///
    /// # Errors
    ///
    /// [`DatasetError`]: a file that cannot be read or decompressed. Errors in the archive are in the survey.
    pub fn survey(&self, limits: &Limits) -> Result<(Survey, u64), DatasetError> {
        let file = self.open()?;
        // PERF: in a store, a request per header takes longer than reading the whole object. Large members are still
        // skipped.
        let most = match file.as_file() {
            Some(_) => WINDOW_BYTES,
            None => OBJECT_WINDOW_BYTES,
        };
        let head = window(&file, &(0..0), most)?;
        if TarCompression::sniff(&head).is_some() {
            let survey = Survey::of(self.load(limits)?.as_ref(), limits);
            return Ok((survey, file.len()));
        }
        let mut surveyor = Surveyor::new(file.len(), limits);
        let mut need = surveyor.step(0, &head);
        while let Some(range) = need {
            let window = window(&file, &range, most)?;
            need = surveyor.step(range.start, &window);
        }
        Ok((surveyor.finish(), file.len()))
    }
}

/// Reads a range that a scan of headers needs, and bytes after it, up to `most` in all.
fn window(file: &Stored, range: &Range<u64>, most: u64) -> Result<Vec<u8>, StorageError> {
    let bytes = range.end.saturating_sub(range.start).max(most);
    file.read_range(
        range.start,
        bytes.min(file.len().saturating_sub(range.start)),
    )
}
