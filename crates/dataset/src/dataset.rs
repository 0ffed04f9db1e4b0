use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::Limits;
use shardmill_mds::{CodecError, Digest, HashAlgo, Hasher, Index, ShardEntry, digest};
use shardmill_storage::{Dir, FileHandle, Folder, Location, RemoteOptions, StorageError, Stored};

use crate::error::{DatasetError, Place};
use crate::live::LiveSamples;
use crate::load::{Loader, parts};
use crate::place::InPlace;
use crate::shard::{Sample, Shard};
use crate::side_files::{Care, SideFiles, read_file, unfinished, unfinished_in};
use crate::tars::version_of;

/// The file name of an index.
pub(crate) const INDEX_NAME: &str = "index.json";

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
    /// Whether deleted samples are read like all others. The side files of the index are then not read.
    pub with_deleted: bool,
}

/// An index and the directory of its shards.
///
/// Samples have *live* numbers: deleted samples are not counted, unless [`OpenOptions::with_deleted`] is set. Within a
/// [`Shard`], samples have their stored numbers.
///
/// A dataset can be shared between threads. It caches the last shard that it read, and no other data.
#[derive(Debug)]
pub struct Dataset {
    dir: Folder,
    index: Index,
    index_path: PathBuf,
    index_bytes: u64,
    /// The stored number of the first sample of each shard.
    starts: Vec<u64>,
    live: LiveSamples,
    limits: Limits,
    validate_hash: Option<HashAlgo>,
    last: Mutex<Last>,
}

/// The shard that was read last. It is cached so that reading samples in order reads each shard once.
#[derive(Debug, Default)]
struct Last {
    shard: Option<Arc<Shard>>,
    in_place: Option<Arc<InPlace>>,
}

impl Dataset {
    /// Opens the dataset in a directory with an `index.json`, or the dataset of an index file.
    ///
    /// # Errors
    ///
    /// `NotFound` for a path that does not exist and a directory without index; [`DatasetError::Index`];
    /// [`DatasetError::IndexMismatch`], [`DatasetError::ExpectIndex`]; [`DatasetError::HashAbsent`] if the index does not
    /// have the hash to validate.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, DatasetError> {
        let (dir, file) = open_index(path)?;
        let expected = expected_of(options)?;
        let index = read_index(&file, expected, &options.limits)?;
        let place = (file.path().to_owned(), file.len());
        Self::new(Folder::Local(dir), index, place, options)
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
    ///
    /// # Errors
    ///
    /// As [`Dataset::open_at`].
    pub fn open_in(
        folder: Folder,
        name: &str,
        options: &OpenOptions,
    ) -> Result<Self, DatasetError> {
        if let Folder::Local(dir) = &folder {
            return Self::open(&dir.path_of(name), options);
        }
        let expected = expected_of(options)?;
        folder.keep(name, options.limits.index_bytes)?;
        let file = match folder.open_file(name) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => {
                return Err(DatasetError::IndexMissing {
                    path: folder.path().to_owned(),
                    unfinished: unfinished_in(&folder).unwrap_or_default(),
                });
            }
            Err(error) => return Err(error.into()),
        };
        let index = parse_index(&file, expected, &options.limits)?;
        let place = (file.path().to_owned(), file.len());
        Self::new(folder, index, place, options)
    }

    fn new(
        dir: Folder,
        index: Index,
        (index_path, index_bytes): (PathBuf, u64),
        options: &OpenOptions,
    ) -> Result<Self, DatasetError> {
        let mut samples = 0_u64;
        let mut starts = Vec::with_capacity(index.shards.len());
        for shard in &index.shards {
            starts.push(samples);
            samples = samples.saturating_add(shard.samples);
        }
        // Side files belong to an index of the usual name only.
        let has_sides = index_path
            .file_name()
            .is_some_and(|name| name == INDEX_NAME);
        let live = match options.with_deleted || !has_sides {
            true => LiveSamples::all(samples),
            false => live_samples(
                &dir,
                (samples, index.shards.len() as u64),
                options.limits.index_bytes,
            )?,
        };
        let dataset = Self {
            dir,
            index,
            index_path,
            index_bytes,
            starts,
            live,
            limits: options.limits.clone(),
            validate_hash: options.validate_hash,
            last: Mutex::default(),
        };
        if let Some(algo) = options.validate_hash {
            dataset.check_hashes_present(algo)?;
        }
        Ok(dataset)
    }

    /// Checks all hashes when the dataset is opened, rather than failing at shard 900,000.
    fn check_hashes_present(&self, algo: HashAlgo) -> Result<(), DatasetError> {
        for (shard, entry) in self.index.shards.iter().enumerate() {
            for part in parts(entry) {
                let stored = part.stored();
                if stored.hashes.get(algo).is_none() {
                    return Err(DatasetError::HashAbsent {
                        place: Place::file(shard as u64, &stored.basename),
                        source: Box::new(CodecError::HashAbsent { algo }),
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns the index.
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
        self.live.len()
    }

    /// Returns whether the dataset has no live samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Returns which of the stored samples are live.
    #[must_use]
    pub const fn live(&self) -> &LiveSamples {
        &self.live
    }

    /// Returns the stored numbers of the samples of a shard.
    #[must_use]
    pub fn stored_samples(&self, shard: usize) -> Range<u64> {
        let start = |shard: usize| {
            let start = self.starts.get(shard).copied();
            start.unwrap_or(self.live.stored())
        };
        start(shard)..start(shard + 1)
    }

    /// Returns the number of live samples of a shard.
    #[must_use]
    pub fn samples_of(&self, shard: usize) -> u64 {
        self.live.count_in(&self.stored_samples(shard))
    }

    /// Returns the limits on what a file may demand.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the number of the first sample of a shard; for a shard that does not exist, the number of samples.
    #[must_use]
    pub fn first_sample(&self, shard: usize) -> u64 {
        self.live.live_before(self.stored_samples(shard).start)
    }

    /// Returns the shard of a sample and the stored position of the sample in that shard, both from 0.
    ///
    /// # Errors
    ///
    /// [`DatasetError::NoSample`].
    pub fn locate(&self, sample: u64) -> Result<(usize, u64), DatasetError> {
        if sample >= self.len() {
            return Err(DatasetError::NoSample {
                path: self.dir.path().to_owned(),
                sample,
                samples: self.len(),
            });
        }
        let stored = self.live.stored_number(sample);
        // Of several shards with the same start, all but the last are empty.
        let shard = self
            .starts
            .partition_point(|start| *start <= stored)
            .saturating_sub(1);
        Ok((shard, stored - self.stored_samples(shard).start))
    }

    /// Returns the version of the stored file of a shard: its modification time, or the version that its store reports.
    /// Equal versions mean that the file has not changed.
    ///
    /// # Errors
    ///
    /// [`DatasetError::NoShard`]; errors of opening the file.
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
    /// [`DatasetError::NoShard`]; [`DatasetError::ShardMissing`], [`DatasetError::ShardLength`],
    /// [`DatasetError::Hash`], [`DatasetError::Decompress`], [`DatasetError::Shard`], [`DatasetError::Storage`].
    pub fn shard(&self, shard: usize) -> Result<Arc<Shard>, DatasetError> {
        let entry = self.entry(shard)?;
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(held) = &last.shard
                && held.number() == shard
            {
                return Ok(Arc::clone(held));
            }
            // Drop the old shard before reading the new one, so that only one of them is in memory.
            last.shard = None;
        }
        let loaded = Arc::new(self.loader().load(shard, entry)?);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.shard = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    /// Reads one sample. From an uncompressed shard without a hash to validate, it reads only the sample and its
    /// offsets. For any other shard, and if anything looks wrong, it reads the whole shard as [`Dataset::shard`] does.
    ///
    /// # Errors
    ///
    /// [`DatasetError::NoSample`], and as [`Dataset::shard`].
    pub fn sample(&self, sample: u64) -> Result<Sample, DatasetError> {
        let (shard, at) = self.locate(sample)?;
        let entry = self.entry(shard)?;
        let held = {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            last.shard
                .as_ref()
                .filter(|held| held.number() == shard)
                .map(Arc::clone)
        };
        if let Some(held) = held {
            return Ok(Sample::new(held, at, sample));
        }
        if self.validate_hash.is_none()
            && let Some(in_place) = self.in_place(shard, entry)?
            && let Some(alone) = {
                let stored = self.stored_samples(shard).start + at;
                in_place.sample(entry, at, stored, &self.limits)?
            }
        {
            return Ok(Sample::new(Arc::new(alone), 0, sample));
        }
        Ok(Sample::new(self.shard(shard)?, at, sample))
    }

    fn in_place(
        &self,
        shard: usize,
        entry: &ShardEntry,
    ) -> Result<Option<Arc<InPlace>>, DatasetError> {
        let held = {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            last.in_place
                .as_ref()
                .filter(|held| held.shard() == shard)
                .map(Arc::clone)
        };
        if held.is_some() {
            return Ok(held);
        }
        let opened = InPlace::open(&self.dir, shard, entry)?.map(Arc::new);
        if let Some(opened) = &opened {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            last.in_place = Some(Arc::clone(opened));
        }
        Ok(opened)
    }

    fn entry(&self, shard: usize) -> Result<&ShardEntry, DatasetError> {
        self.index
            .shards
            .get(shard)
            .ok_or_else(|| DatasetError::NoShard {
                path: self.dir.path().to_owned(),
                shard: shard as u64,
                shards: self.index.shards.len() as u64,
            })
    }

    pub(crate) fn loader(&self) -> Loader<'_> {
        Loader::new(self, self.validate_hash)
    }
}

/// Reads which samples are live. `counts` holds the numbers of samples and shards in the index.
fn live_samples(
    folder: &Folder,
    counts: (u64, u64),
    index_bytes: u64,
) -> Result<LiveSamples, DatasetError> {
    let read = |name: &str, most| read_file(folder, name, most);
    let side_files = SideFiles::read(&read, counts, index_bytes, Care::Thorough);
    side_files.into_checked_live().map_err(|fault| {
        let path = folder.path_of(fault.name());
        let fault = Box::new(fault);
        DatasetError::Side { path, fault }
    })
}

/// Opens the directory and the index that a path of the user refers to.
pub(crate) fn open_index(path: &Path) -> Result<(Dir, FileHandle), DatasetError> {
    match Dir::open(path) {
        Ok(dir) => match dir.open_file(INDEX_NAME) {
            Ok(file) => Ok((dir, file)),
            Err(error) if error.is_not_found() => Err(DatasetError::IndexMissing {
                path: path.to_owned(),
                unfinished: unfinished(&dir).unwrap_or_default(),
            }),
            Err(error) => Err(error.into()),
        },
        Err(StorageError::NotDirectory { .. }) => {
            let file = FileHandle::open(path)?;
            let dir = Dir::open(path.parent().unwrap_or_else(|| Path::new("")))?;
            Ok((dir, file))
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks that an index has the expected hash. Error messages name `path`.
pub(crate) fn check_expected_index(
    bytes: &[u8],
    path: &Path,
    expect: Option<&str>,
) -> Result<(), DatasetError> {
    match expect.map(parse_expected).transpose()? {
        Some(expected) => check_expected(path, expected, digest(expected.algo(), bytes)),
        None => Ok(()),
    }
}

fn check_expected(path: &Path, expected: Digest, found: Digest) -> Result<(), DatasetError> {
    if expected == found {
        return Ok(());
    }
    Err(DatasetError::IndexMismatch {
        path: path.to_owned(),
        algo: expected.algo(),
        expected: expected.to_string(),
        found: found.to_string(),
    })
}

fn expected_of(options: &OpenOptions) -> Result<Option<Digest>, DatasetError> {
    let expected = options.expect_index.as_deref();
    expected.map(parse_expected).transpose()
}

/// Reads and parses a whole index in memory.
fn parse_index(
    file: &Stored,
    expected: Option<Digest>,
    limits: &Limits,
) -> Result<Index, DatasetError> {
    let bytes = file.read_all(limits.index_bytes)?;
    if let Some(expected) = expected {
        check_expected(file.path(), expected, digest(expected.algo(), &bytes))?;
    }
    Index::parse(&bytes, limits).map_err(|source| DatasetError::Index {
        path: file.path().to_owned(),
        source: Box::new(source),
    })
}

/// Reads an index and checks that it has the hash `expected`.
pub(crate) fn read_index(
    file: &FileHandle,
    expected: Option<Digest>,
    limits: &Limits,
) -> Result<Index, DatasetError> {
    /// PERF: parsing from memory is faster, but the text of a large index takes more memory than the parsed index. A
    /// million shards take 530 MB as text, and 340 MB parsed.
    const IN_MEMORY: u64 = 64 << 20;

    read_index_within(file, expected, limits, IN_MEMORY)
}

/// Reads an index of up to `in_memory` bytes into memory, and a larger one as a stream.
fn read_index_within(
    file: &FileHandle,
    expected: Option<Digest>,
    limits: &Limits,
    in_memory: u64,
) -> Result<Index, DatasetError> {
    let path = || file.path().to_owned();
    Limits::check("index-bytes", file.len(), limits.index_bytes).map_err(|source| {
        DatasetError::Limit {
            path: path(),
            source,
        }
    })?;
    let (parsed, found) = if file.len() <= in_memory {
        let bytes = file.read_all(in_memory)?;
        let found = expected.map(|expected| digest(expected.algo(), &bytes));
        (Index::parse(&bytes, limits), found)
    } else {
        let mut reader = Hashing {
            reader: file.reader(),
            hasher: expected.map(|expected| Hasher::new(expected.algo())),
        };
        let parsed = Index::read(&mut reader, limits);
        // The error of a wrong hash takes precedence, so the rest of the bytes must be hashed as well.
        if parsed.is_err() && expected.is_some() {
            io::copy(&mut reader, &mut io::sink()).map_err(|source| StorageError::Io {
                action: "read",
                path: path(),
                source,
            })?;
        }
        file.check_unchanged()?;
        (parsed, reader.hasher.map(Hasher::finish))
    };
    if let (Some(expected), Some(found)) = (expected, found) {
        check_expected(file.path(), expected, found)?;
    }
    parsed.map_err(|source| DatasetError::Index {
        path: path(),
        source: Box::new(source),
    })
}

/// A reader that hashes the bytes that it returns.
struct Hashing<R> {
    reader: R,
    hasher: Option<Hasher>,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(buffer.get(..read).unwrap_or_default());
        }
        Ok(read)
    }
}

/// Parses `sha256:…`. Hash algorithms that can be forged are errors: they are no root of trust.
fn parse_expected(text: &str) -> Result<Digest, DatasetError> {
    let error = || DatasetError::ExpectIndex {
        text: text.to_owned(),
    };
    let (algo, hex) = text.split_once(':').ok_or_else(error)?;
    let algo: HashAlgo = algo.parse().map_err(|_| error())?;
    let weak = matches!(
        algo,
        HashAlgo::Md5
            | HashAlgo::Sha1
            | HashAlgo::Xxh32
            | HashAlgo::Xxh64
            | HashAlgo::Xxh128
            | HashAlgo::Xxh3_64
            | HashAlgo::Xxh3_128
    );
    if weak {
        return Err(error());
    }
    Digest::parse(algo, &hex.to_ascii_lowercase()).map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use shardmill_core::Diagnostic;

    use super::*;

    #[test]
    fn a_streamed_index_is_the_same_and_has_the_same_errors() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("index.json");
        let sound = r#"{"shards": [{"column_encodings": ["int"], "column_names": ["a"], "column_sizes": [8], "compression": null, "format": "mds", "hashes": [], "raw_data": {"basename": "shard.00000.mds", "bytes": 292, "hashes": {}}, "samples": 10, "size_limit": null, "version": 2, "zip_data": null}], "version": 2}"#;
        let cut = &sound[..sound.len() - 20];
        let other = sound.replace("292", "293");
        let large = format!("{sound}{}", " ".repeat(1 << 20));
        for text in [
            sound,
            cut,
            other.as_str(),
            large.as_str(),
            "",
            "{}",
            "<html>",
        ] {
            fs::write(&path, text).unwrap();
            let file = FileHandle::open(&path).unwrap();
            let expected = [
                None,
                Some(digest(HashAlgo::Sha256, sound.as_bytes())),
                Some(digest(HashAlgo::Sha256, text.as_bytes())),
            ];
            for expected in expected {
                let read =
                    |in_memory| read_index_within(&file, expected, &Limits::default(), in_memory);
                let (whole, streamed) = (read(u64::MAX), read(0));
                let outcome = |result: &Result<Index, DatasetError>| match result {
                    Ok(index) => index.to_json(),
                    Err(error) => format!("{} {}", error.id(), error.chain()),
                };
                assert_eq!(outcome(&whole), outcome(&streamed), "{text:.40}");
                if expected == Some(digest(HashAlgo::Sha256, sound.as_bytes())) && text != sound {
                    assert_eq!(whole.unwrap_err().id(), "index-mismatch");
                }
            }
        }
        assert_eq!(
            read_index(&FileHandle::open(&path).unwrap(), None, &Limits::default())
                .unwrap_err()
                .id(),
            "index-not-json"
        );
    }
}
