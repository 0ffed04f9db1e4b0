//! Reads the raw bytes of a shard: chooses between the raw and the compressed file, and checks what it reads.

use shardmill_core::Limits;
use shardmill_mds::{FileInfo, HashAlgo, ShardEntry};
use shardmill_storage::Stored;

use crate::dataset::Dataset;
use crate::entry::{Entry, Packing, Part};
use crate::error::{DatasetError, Place};
use crate::shard::Shard;

/// Returns the parts of an MDS shard: the data, then the offsets if they have their own file.
pub(crate) fn parts(entry: &ShardEntry) -> impl Iterator<Item = Part<'_>> {
    Entry::Mds(entry).parts()
}

/// Reads the files of a dataset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loader<'a> {
    pub(crate) dataset: &'a Dataset,
    hash: Option<HashAlgo>,
}

impl<'a> Loader<'a> {
    pub(crate) const fn new(dataset: &'a Dataset, hash: Option<HashAlgo>) -> Self {
        Self { dataset, hash }
    }

    fn limits(&self) -> &'a Limits {
        self.dataset.limits()
    }

    /// Reads a whole shard.
    pub(crate) fn load(&self, shard: usize, entry: &ShardEntry) -> Result<Shard, DatasetError> {
        let mut files = parts(entry).map(|part| self.raw_bytes(shard, entry, part));
        let data = files.next().transpose()?.unwrap_or_default();
        let meta = files.next().transpose()?;
        drop(files);
        let first = self.dataset.stored_samples(shard).start;
        let file = parts(entry)
            .next()
            .map_or("", |part| &part.stored().basename);
        Shard::open(entry, shard, first, file, (data, meta), self.limits())
    }

    fn raw_bytes(
        &self,
        shard: usize,
        entry: &ShardEntry,
        part: Part<'_>,
    ) -> Result<Vec<u8>, DatasetError> {
        let Some((zip, packing)) = part.zip else {
            let file = self.open(shard, entry, part.raw)?;
            return self.read(shard, part.raw, &file);
        };
        // PERF: a store holds no files of a cache, so the compressed file is tried first: this saves a request.
        if self.dataset.dir().is_store() {
            match self.open(shard, entry, zip) {
                Err(DatasetError::ShardMissing { .. }) => {}
                file => return self.unpack(shard, part, zip, packing, &file?),
            }
        }
        let raw = match self.open(shard, entry, part.raw) {
            Ok(file) => return self.read(shard, part.raw, &file),
            Err(error @ (DatasetError::ShardMissing { .. } | DatasetError::ShardLength { .. })) => {
                error
            }
            Err(error) => return Err(error),
        };
        let file = match self.open(shard, entry, zip) {
            // Without a compressed file, the error is the wrong length of the raw file.
            Err(DatasetError::ShardMissing { .. })
                if matches!(raw, DatasetError::ShardLength { .. }) =>
            {
                return Err(raw);
            }
            other => other?,
        };
        self.unpack(shard, part, zip, packing, &file)
    }

    fn unpack(
        &self,
        shard: usize,
        part: Part<'_>,
        zip: &FileInfo,
        packing: Packing,
        file: &Stored,
    ) -> Result<Vec<u8>, DatasetError> {
        let zipped = self.read(shard, zip, file)?;
        let place = || self.place(shard, zip);
        packing.unpack(&zipped, part.raw.bytes, place, self.limits())
    }

    /// Opens a file of a shard and checks that it has the length that the index declares.
    pub(crate) fn open(
        &self,
        shard: usize,
        entry: &ShardEntry,
        info: &FileInfo,
    ) -> Result<Stored, DatasetError> {
        let file = match self.dataset.dir().open_file(&info.basename) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => {
                return Err(DatasetError::ShardMissing {
                    place: self.place(shard, info),
                    first_sample: self.dataset.stored_samples(shard).start,
                    samples: entry.samples,
                });
            }
            Err(error) => return Err(error.into()),
        };
        if file.len() != info.bytes {
            return Err(DatasetError::ShardLength {
                place: self.place(shard, info),
                expected: info.bytes,
                found: file.len(),
            });
        }
        Ok(file)
    }

    /// Reads an open file into a buffer that may be reused.
    pub(crate) fn read_into(&self, file: &Stored, bytes: &mut Vec<u8>) -> Result<(), DatasetError> {
        let limit = self.limits().shard_bytes;
        Limits::check("shard-bytes", file.len(), limit).map_err(|source| DatasetError::Limit {
            path: file.path().to_owned(),
            source,
        })?;
        Ok(file.read_all_into(bytes, limit)?)
    }

    fn read(&self, shard: usize, info: &FileInfo, file: &Stored) -> Result<Vec<u8>, DatasetError> {
        let mut bytes = Vec::new();
        self.read_into(file, &mut bytes)?;
        // A file that is read whole is always compared with a hash of the index, even if the caller requests none.
        if let Some(algo) = self.hash.or_else(|| info.hashes.quickest()) {
            info.hashes
                .check(algo, &bytes)
                .map_err(|source| DatasetError::Hash {
                    place: self.place(shard, info),
                    raw: false,
                    source: Box::new(source),
                })?;
        }
        Ok(bytes)
    }

    pub(crate) fn place(&self, shard: usize, info: &FileInfo) -> Place {
        Place::file(shard as u64, &info.basename)
    }
}
