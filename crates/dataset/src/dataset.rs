//! Opens MDS datasets, and gives access to their shards and samples.

use std::convert::Infallible;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use shardmill_core::{INDEX_NAME, Limits, Progress, lock, parallel};
use shardmill_mds::{FileInfo, HashAlgo, Index, ShardEntry, join_shard};
use shardmill_storage::{Folder, Location, RemoteOptions, Stored};

use crate::entry::{Entry, Part, check_hash, check_hashes_present};
use crate::error::DatasetError;
use crate::index_file::{expected_digest, index_missing, open_index, read_index};
use crate::late::{COLUMNS_NAME, LateColumns, if_present};
use crate::live::{LiveSamples, LiveShards};
use crate::mapped::version_of;
use crate::place::{InPlace, StoredValue};
use crate::problem::{DatasetProblem, ValueLocation};
use crate::shard::{Sample, Shard};
use crate::side_files::{
    IndexShape, PENDING_BYTES, PENDING_NAME, PROVENANCE_BYTES, PROVENANCE_NAME, SideFiles,
    read_file,
};
use crate::view::{View, ViewTarget};

/// Options for opening a dataset.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Limits on what a file may demand, such as memory.
    pub limits: Limits,
    /// The expected hash of the index, as `sha256:` and 64 hexadecimal digits. The index contains the hashes of all
    /// other files, so this is the root of trust. Insecure hashes are errors.
    pub expect_index: Option<String>,
    /// The hash that every shard must match when it is read. With `None`, a shard that is read whole must match the
    /// quickest hash of its index entry, if any. A single sample of an uncompressed shard is then read alone, without a
    /// hash.
    pub validate_hash: Option<HashAlgo>,
    /// Whether deleted samples are read like all others. The side files of the index are then not read, and neither are late
    /// columns.
    pub with_deleted: bool,
    /// Whether late columns are read although deleted samples are, which may have values of others in them.
    pub with_late: bool,
    /// The samples to read; `None` for all.
    pub view: Option<Arc<View>>,
}

/// An index and the directory of its shards.
///
/// Samples have *live* numbers: deleted samples are not counted, unless [`OpenOptions::with_deleted`] is set, and neither
/// are samples that the [`View`] of the options does not select. Within a [`Shard`], samples have their stored numbers.
///
/// A dataset can be shared between threads. It caches the last shard that it read, and no other data.
#[derive(Debug)]
pub struct Dataset {
    dir: Folder,
    index: Index,
    /// The SHA-256 of the index.
    digest: [u8; 32],
    index_path: PathBuf,
    index_bytes: u64,
    samples: LiveShards,
    /// The number of deleted samples, which are not live.
    deleted: u64,
    limits: Limits,
    validate_hash: Option<HashAlgo>,
    last: Mutex<Last>,
}

/// The shard that was read last. It is cached so that reading samples in order reads each shard once.
#[derive(Debug, Default)]
struct Last {
    shard: Option<Arc<Shard>>,
    /// The shards that single samples were read from, the latest at the end.
    in_place: Vec<Arc<InPlace>>,
}

/// The shards of a store that stay open for reading single samples. Of a directory, one does: opening a file is cheap, and
/// another one may have its name by then.
const KEPT_IN_PLACE: usize = 16;

/// Reads the index of a folder in a store and the small files next to it at the same time, and caches them. Opening the dataset
/// then takes no further request.
pub fn read_ahead(folder: &Folder, limits: &Limits) {
    let files = [
        (INDEX_NAME, limits.index_bytes),
        (PENDING_NAME, PENDING_BYTES),
        (PROVENANCE_NAME, PROVENANCE_BYTES),
        (COLUMNS_NAME, limits.index_bytes),
    ];
    let read = |at: usize| {
        if let Some((name, max)) = files.get(at) {
            // A file that cannot be read is not cached: opening the dataset reads it again, and reports the error.
            let _ = folder.keep(name, *max);
        }
        Ok::<_, Infallible>(())
    };
    let Ok(_) = parallel::map(files.len(), files.len(), read);
}

impl Dataset {
    /// Opens the dataset in a directory with an `index.json`, or the dataset of an index file.
    ///
    /// # Errors
    ///
    /// `NotFound` for a path that does not exist and a directory without index; [`DatasetError::Reading`], also if the
    /// index does not have the hash to validate; [`DatasetProblem::IndexMismatch`], [`DatasetProblem::ExpectIndex`].
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, DatasetError> {
        let (dir, file) = open_index(path)?;
        Self::of_index(Folder::Local(dir), &file, options)
    }

    /// Like [`Dataset::open`], for a local path or a location in a store. In a store, reading the index takes one
    /// request, and shards are read on demand.
    ///
    /// # Errors
    ///
    /// As [`Dataset::open`]; errors of the store.
    pub fn open_at(
        location: &Location,
        options: &OpenOptions,
        remote: &RemoteOptions,
    ) -> Result<Self, DatasetError> {
        let location = match location {
            Location::Local(path) => return Self::open(path, options),
            Location::Remote(location) => location,
        };
        match location.split_name() {
            Some((folder, name)) if name.ends_with(".json") => {
                Self::open_in(Folder::open_store(&folder, remote)?, name, options)
            }
            _ => Self::open_in(Folder::open_store(location, remote)?, INDEX_NAME, options),
        }
    }

    /// Opens the dataset whose index has this name in a folder.
    pub fn open_in(
        folder: Folder,
        name: &str,
        options: &OpenOptions,
    ) -> Result<Self, DatasetError> {
        folder.keep(name, options.limits.index_bytes)?;
        match folder.open_file(name) {
            Ok(file) => Self::of_index(folder, &file, options),
            Err(error) if error.is_not_found() => Err(index_missing(&folder)),
            Err(error) => Err(error.into()),
        }
    }

    fn of_index(dir: Folder, file: &Stored, options: &OpenOptions) -> Result<Self, DatasetError> {
        let expected = expected_digest(options.expect_index.as_deref())?;
        let (index, digest) = read_index(file, expected, &options.limits)?;
        let samples = LiveShards::all(index.shards.iter().map(|shard| shard.samples));
        let mut dataset = Self {
            dir,
            index,
            digest,
            index_path: file.path().to_owned(),
            index_bytes: file.len(),
            samples,
            deleted: 0,
            limits: options.limits.clone(),
            validate_hash: options.validate_hash,
            last: Mutex::default(),
        };
        if dataset.has_sides() && !options.with_deleted {
            dataset.samples.live = dataset.side_files().into_checked_live_of(&dataset.dir)?;
            dataset.deleted = dataset.samples.live.deleted();
        }
        if dataset.has_sides() && (options.with_late || !options.with_deleted) {
            dataset.add_late()?;
        }
        if let Some(algo) = options.validate_hash {
            check_hashes_present(dataset.index.shards.iter().map(Entry::Mds), algo)?;
        }
        if let Some(view) = &options.view {
            let target = dataset.view_target();
            dataset.samples.live = view.live_of(&target, dataset.index_path.as_path())?;
        }
        Ok(dataset)
    }

    /// Returns whether the dataset may have side files. They belong to an index of the usual name only.
    fn has_sides(&self) -> bool {
        let name = self.index_path.file_name();
        name.is_some_and(|name| name == INDEX_NAME)
    }

    /// Reads the side files.
    pub(crate) fn side_files(&self) -> SideFiles {
        if !self.has_sides() {
            return SideFiles::default();
        }
        let shape = IndexShape::of_entries(self.index.shards.iter().map(Entry::Mds));
        SideFiles::of_folder(&self.dir, &shape, self.limits.index_bytes)
    }

    /// Adds the late columns, if there are any.
    fn add_late(&mut self) -> Result<(), DatasetError> {
        let max = self.limits.index_bytes;
        let Some(text) = if_present(read_file(&self.dir, COLUMNS_NAME, max))? else {
            return Ok(());
        };
        let path = self.dir.path_of(COLUMNS_NAME);
        let read = |name: &str, max| read_file(&self.dir, name, max);
        let shards = &self.index.shards;
        let of = (&self.digest, shards.as_slice());
        if let Some(shards) = LateColumns::joined(&text, &path, of, &read, &self.limits)? {
            self.index = Index { shards };
        }
        Ok(())
    }

    /// Returns what views of the dataset refer to.
    #[must_use]
    pub fn view_target(&self) -> ViewTarget {
        ViewTarget {
            digest: self.digest,
            live: self.samples.live.clone(),
        }
    }

    /// Returns the index. Late columns are columns of its shards.
    #[must_use]
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the path of the index.
    #[must_use]
    pub fn index_path(&self) -> &Path {
        &self.index_path
    }

    /// Returns the length of the index in bytes.
    #[must_use]
    pub const fn index_bytes(&self) -> u64 {
        self.index_bytes
    }

    /// Returns the directory of the index. The file names in the index are relative to it.
    #[must_use]
    pub const fn dir(&self) -> &Folder {
        &self.dir
    }

    /// Returns the number of live samples in the dataset.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.samples.live.len()
    }

    /// Returns whether the dataset has no live samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.live.is_empty()
    }

    /// Returns the number of deleted samples, which are not read.
    #[must_use]
    pub const fn deleted(&self) -> u64 {
        self.deleted
    }

    /// Returns which of the stored samples are live.
    #[must_use]
    pub const fn live(&self) -> &LiveSamples {
        &self.samples.live
    }

    /// Returns the stored numbers of the samples of a shard.
    #[must_use]
    pub fn stored_samples(&self, shard: usize) -> Range<u64> {
        self.samples.stored_samples(shard)
    }

    /// Calls `work` for every shard, on `jobs` threads, and returns the results in order.
    pub(crate) fn map_shards<T: Send>(
        &self,
        jobs: usize,
        progress: &Progress,
        work: impl Fn(usize, &ShardEntry) -> Result<T, DatasetError> + Sync,
    ) -> Result<Vec<T>, DatasetError> {
        let shards = &self.index.shards;
        progress.set_totals(0, self.samples.live.stored(), shards.len() as u64);
        parallel::map(shards.len(), jobs, |number| {
            DatasetError::check_cancelled(progress)?;
            let entry = self.entry(number)?;
            let result = work(number, entry)?;
            progress.add_samples(entry.samples);
            progress.add_shard(0);
            Ok(result)
        })
    }

    /// Returns the number of live samples of a shard.
    #[must_use]
    pub fn samples_of(&self, shard: usize) -> u64 {
        self.samples.samples_of(shard)
    }

    /// Returns the limits on what a file may demand.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the number of the first sample of a shard; for a shard that does not exist, the number of samples.
    #[must_use]
    pub fn first_sample(&self, shard: usize) -> u64 {
        self.samples
            .live
            .live_before(self.stored_samples(shard).start)
    }

    /// Returns the shard of a sample and the stored position of the sample in that shard, both from 0.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::NoSample`].
    pub fn locate(&self, sample: u64) -> Result<(usize, u64), DatasetError> {
        if sample >= self.len() {
            let samples = self.len();
            let reason = format!("there is no sample {sample}: the dataset has {samples}");
            return Err(DatasetProblem::NoSample.at(self.dir.path(), reason));
        }
        Ok(self
            .samples
            .shard_of(self.samples.live.stored_number(sample)))
    }

    /// Returns the version of the stored file of a shard: its modification time, or the version that its store reports.
    /// Equal versions mean that the file has not changed.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::NoShard`]; errors of opening the file.
    pub fn version(&self, shard: usize) -> Result<Vec<u8>, DatasetError> {
        let entry = self.entry(shard)?;
        let stored = entry.zip_data.as_ref().unwrap_or(&entry.raw_data);
        Ok(version_of(&self.dir.open_file(&stored.basename)?))
    }

    /// Reads a whole shard and checks its length, its hash, its compression and its structure. The last shard is cached
    /// and returned again.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::NoShard`]; [`DatasetProblem::ShardMissing`], [`DatasetProblem::ShardLength`],
    /// [`DatasetError::Reading`], [`DatasetError::Storage`].
    pub fn shard(&self, shard: usize) -> Result<Arc<Shard>, DatasetError> {
        let entry = self.entry(shard)?;
        if let Some(last) = self.last_shard(shard) {
            return Ok(last);
        }
        // Drop the old shard before reading the new one, so that only one of them is in memory.
        lock(&self.last).shard = None;
        let loaded = Arc::new(self.load(shard, entry)?);
        lock(&self.last).shard = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    /// Returns the shard with this number, if it was read last.
    fn last_shard(&self, shard: usize) -> Option<Arc<Shard>> {
        let last = lock(&self.last);
        last.shard.clone().filter(|last| last.number() == shard)
    }

    /// Reads one sample. From an uncompressed shard without a hash to validate, it reads only the sample and its
    /// offsets. For any other shard, and if anything looks wrong, it reads the whole shard as [`Dataset::shard`] does.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::NoSample`], and as [`Dataset::shard`].
    pub fn sample(&self, sample: u64) -> Result<Sample, DatasetError> {
        let (shard, at, _) = self.read(sample..sample.saturating_add(1), u64::MAX)?;
        Ok(Sample::new(shard, at, sample))
    }

    /// Reads the first samples of a range with one read, as [`Dataset::sample`] does: those that are neighbours in one shard
    /// and have at most `max_bytes` together, but at least one.
    ///
    /// # Errors
    ///
    /// As [`Dataset::sample`].
    pub fn samples(
        &self,
        samples: Range<u64>,
        max_bytes: u64,
    ) -> Result<Vec<Sample>, DatasetError> {
        let (shard, at, count) = self.read(samples.clone(), max_bytes)?;
        let sample = |n: u64| Sample::new(Arc::clone(&shard), at + n, samples.start + n);
        Ok((0..count).map(sample).collect())
    }

    /// Returns where the values of a sample are, in the order of the columns, without reading them. Returns `None` for a shard
    /// that is read whole only: one that is compressed, has late columns or a hash to validate, or is not MDS.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::NoSample`]; errors of reading the offsets of the sample.
    pub fn stored_values(&self, sample: u64) -> Result<Option<Vec<StoredValue>>, DatasetError> {
        let (shard, at) = self.locate(sample)?;
        let entry = self.entry(shard)?;
        if self.validate_hash.is_some() {
            return Ok(None);
        }
        let Some(in_place) = self.in_place(shard, entry)? else {
            return Ok(None);
        };
        Ok(in_place.values(entry, at)?)
    }

    /// Reads the first samples of a range. Returns a shard that contains them, the position of the first one, and their
    /// number.
    fn read(
        &self,
        samples: Range<u64>,
        max_bytes: u64,
    ) -> Result<(Arc<Shard>, u64, u64), DatasetError> {
        let (shard, at) = self.locate(samples.start)?;
        let entry = self.entry(shard)?;
        let own = self.stored_samples(shard);
        let stored = own.start + at;
        let max = samples.end.min(self.len()).saturating_sub(samples.start);
        let max = max.min(own.end - stored).max(1);
        // Deleted samples may be between others.
        let is_next = |n: &u64| self.samples.live.stored_number(samples.start + n) == stored + n;
        let count = 1 + (1..max).take_while(is_next).count() as u64;
        if let Some(last) = self.last_shard(shard) {
            return Ok((last, at, count));
        }
        if self.validate_hash.is_none()
            && let Some(in_place) = self.in_place(shard, entry)?
            && let Some(alone) =
                in_place.samples(entry, at..at + count, stored, max_bytes, &self.limits)?
        {
            let count = alone.len();
            return Ok((Arc::new(alone), 0, count));
        }
        Ok((self.shard(shard)?, at, count))
    }

    fn in_place(
        &self,
        shard: usize,
        entry: &ShardEntry,
    ) -> Result<Option<Arc<InPlace>>, DatasetError> {
        let known = {
            let mut last = lock(&self.last);
            let open = &mut last.in_place;
            let at = open.iter().position(|known| known.shard() == shard);
            at.map(|at| {
                let known = open.remove(at);
                open.push(Arc::clone(&known));
                known
            })
        };
        if known.is_some() {
            return Ok(known);
        }
        let opened = InPlace::open(&self.dir, shard, entry)?.map(Arc::new);
        if let Some(opened) = &opened {
            let open = &mut lock(&self.last);
            let max = if self.dir.is_store() {
                KEPT_IN_PLACE
            } else {
                1
            };
            if open.in_place.len() >= max {
                open.in_place.remove(0);
            }
            open.in_place.push(Arc::clone(opened));
        }
        Ok(opened)
    }

    fn entry(&self, shard: usize) -> Result<&ShardEntry, DatasetError> {
        let shards = &self.index.shards;
        shards.get(shard).ok_or_else(|| {
            let reason = format!(
                "there is no shard {shard}: the dataset has {}",
                shards.len()
            );
            DatasetProblem::NoShard.at(self.dir.path(), reason)
        })
    }
}

/// Returns the parts of an MDS shard: the data, then the offsets if they have their own file.
pub(crate) fn parts(entry: &ShardEntry) -> impl Iterator<Item = Part<'_>> {
    Entry::Mds(entry).parts()
}

/// Reads the files of shards.
impl Dataset {
    /// Reads a whole shard.
    pub(crate) fn load(&self, shard: usize, entry: &ShardEntry) -> Result<Shard, DatasetError> {
        let mut files = parts(entry).map(|part| self.raw_bytes(shard, entry, part));
        let data = files.next().transpose()?.unwrap_or_default();
        let meta = files.next().transpose()?;
        drop(files);
        let first = self.stored_samples(shard).start;
        let file = Entry::Mds(entry).name();
        if entry.config.late.is_none() {
            return Shard::open(entry, shard, first, file, (data, meta), &self.limits);
        }
        let joined = join_shard(entry, &data, &meta.unwrap_or_default(), &self.limits);
        let (entry, data) = joined
            .map_err(|source| DatasetError::shard(ValueLocation::file(file), first, source))?;
        Shard::open(&entry, shard, first, file, (data, None), &self.limits)
    }

    fn raw_bytes(
        &self,
        shard: usize,
        entry: &ShardEntry,
        part: Part<'_>,
    ) -> Result<Vec<u8>, DatasetError> {
        let Some(zip) = part.zip else {
            return self.contents(shard, entry, part.raw);
        };
        let unpack = |zipped: Vec<u8>| {
            let location = || ValueLocation::file(&zip.basename);
            part.unpack(&zipped, location, &self.limits)
        };
        // PERF: a store holds no files of a cache, so the compressed file is tried first: this saves a request.
        if self.dir.is_store() {
            match self.contents(shard, entry, zip) {
                Err(error) if error.is_shard_missing() => {}
                zipped => return unpack(zipped?),
            }
        }
        let raw = match self.contents(shard, entry, part.raw) {
            Err(error) if error.is_shard_missing() || error.is_shard_length() => error,
            read => return read,
        };
        match self.contents(shard, entry, zip) {
            // Without a compressed file, the error is the wrong length of the raw file.
            Err(error) if error.is_shard_missing() && raw.is_shard_length() => Err(raw),
            zipped => unpack(zipped?),
        }
    }

    /// Reads a whole file of a shard.
    fn contents(
        &self,
        shard: usize,
        entry: &ShardEntry,
        info: &FileInfo,
    ) -> Result<Vec<u8>, DatasetError> {
        if !self.dir.is_store() {
            return self.read_checked(info, &self.open_part(shard, entry, info)?);
        }
        // PERF: the index has the length, so no request asks for it. Reading an object of another length fails.
        let file = self.dir.open_listed(&info.basename, info.bytes);
        let read = file.map_err(DatasetError::from);
        match read.and_then(|file| self.read_checked(info, &file)) {
            Err(DatasetError::Storage(error)) if error.is_not_found() => {
                Err(self.missing(shard, entry, info))
            }
            // The error has the length that the object has.
            Err(DatasetError::Storage(error)) if error.is_other_length() => {
                self.open_part(shard, entry, info)?;
                Err(error.into())
            }
            read => read,
        }
    }

    fn missing(&self, shard: usize, entry: &ShardEntry, info: &FileInfo) -> DatasetError {
        let first = self.stored_samples(shard).start;
        let location = ValueLocation::file(&info.basename);
        DatasetError::shard_missing(location, first, entry.samples)
    }

    /// Opens a file of a shard and checks that it has the length that the index declares.
    pub(crate) fn open_part(
        &self,
        shard: usize,
        entry: &ShardEntry,
        info: &FileInfo,
    ) -> Result<Stored, DatasetError> {
        let file = match self.dir.open_file(&info.basename) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => {
                return Err(self.missing(shard, entry, info));
            }
            Err(error) => return Err(error.into()),
        };
        if file.len() != info.bytes {
            let location = ValueLocation::file(&info.basename);
            return Err(DatasetError::shard_length(location, info.bytes, file.len()));
        }
        Ok(file)
    }

    /// Reads an open file into a buffer that may be reused.
    pub(crate) fn read_into(&self, file: &Stored, bytes: &mut Vec<u8>) -> Result<(), DatasetError> {
        let limit = self.limits.shard_bytes;
        DatasetError::check_limit(("shard-bytes", limit), file.len(), || {
            file.path().to_owned()
        })?;
        Ok(file.read_all_into(bytes, limit)?)
    }

    fn read_checked(&self, info: &FileInfo, file: &Stored) -> Result<Vec<u8>, DatasetError> {
        let mut bytes = Vec::new();
        self.read_into(file, &mut bytes)?;
        // A file that is read whole is always compared with a hash of the index, even if the caller requests none.
        check_hash(info, self.validate_hash, &bytes, || {
            ValueLocation::file(&info.basename)
        })?;
        Ok(bytes)
    }
}
