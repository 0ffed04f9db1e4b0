//! From the files of a shard to its raw bytes: which file, and what is checked on the way.

use shardmill_core::Limits;
use shardmill_mds::{Compression, FileInfo, HashAlgo, ShardEntry};
use shardmill_storage::FileHandle;

use crate::dataset::Dataset;
use crate::error::{Place, ReaderError};
use crate::shard::Shard;

/// The data or the offsets of a shard, in the one or two forms that the index names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) raw: &'a FileInfo,
    pub(crate) zip: Option<(&'a FileInfo, Compression)>,
}

impl<'a> Part<'a> {
    /// The file that the writer published.
    pub(crate) fn stored(&self) -> &'a FileInfo {
        self.zip.map_or(self.raw, |(zip, _)| zip)
    }
}

/// The data of a shard, then the offsets where they are a file of their own.
pub(crate) fn parts(entry: &ShardEntry) -> impl Iterator<Item = Part<'_>> {
    fn part<'a>(entry: &'a ShardEntry, raw: &'a FileInfo, zip: Option<&'a FileInfo>) -> Part<'a> {
        // INVARIANT: an index has compressed files exactly where it has a compression.
        Part {
            raw,
            zip: zip.zip(entry.config.compression),
        }
    }
    let data = part(entry, &entry.raw_data, entry.zip_data.as_ref());
    let meta = entry
        .raw_meta
        .as_ref()
        .map(|raw| part(entry, raw, entry.zip_meta.as_ref()));
    std::iter::once(data).chain(meta)
}

/// Reads the files of a data set.
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

    /// Reads a shard whole.
    pub(crate) fn load(&self, shard: usize, entry: &ShardEntry) -> Result<Shard, ReaderError> {
        let mut files = parts(entry).map(|part| self.raw_bytes(shard, entry, part));
        let data = files.next().transpose()?.unwrap_or_default();
        let meta = files.next().transpose()?;
        drop(files);
        let first = self.dataset.first_sample(shard);
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
    ) -> Result<Vec<u8>, ReaderError> {
        let Some((zip, compression)) = part.zip else {
            let file = self.open(shard, entry, part.raw)?;
            return self.read(shard, part.raw, &file);
        };
        let raw = match self.open(shard, entry, part.raw) {
            Ok(file) => return self.read(shard, part.raw, &file),
            Err(error @ (ReaderError::ShardMissing { .. } | ReaderError::ShardLength { .. })) => {
                error
            }
            Err(error) => return Err(error),
        };
        let file = match self.open(shard, entry, zip) {
            // Then the raw file, which is there, is what is wrong.
            Err(ReaderError::ShardMissing { .. })
                if matches!(raw, ReaderError::ShardLength { .. }) =>
            {
                return Err(raw);
            }
            other => other?,
        };
        let zipped = self.read(shard, zip, &file)?;
        drop(file);
        compression
            .decompress(&zipped, Some(part.raw.bytes), self.limits())
            .map_err(|source| ReaderError::Decompress {
                place: self.place(shard, zip),
                source: Box::new(source),
            })
    }

    /// Opens a file of a shard, with the length that the index declares.
    pub(crate) fn open(
        &self,
        shard: usize,
        entry: &ShardEntry,
        info: &FileInfo,
    ) -> Result<FileHandle, ReaderError> {
        let file = match self.dataset.dir().open_file(&info.basename) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => {
                return Err(ReaderError::ShardMissing {
                    place: self.place(shard, info),
                    first_sample: self.dataset.first_sample(shard),
                    samples: entry.samples,
                });
            }
            Err(error) => return Err(error.into()),
        };
        if file.len() != info.bytes {
            return Err(ReaderError::ShardLength {
                place: self.place(shard, info),
                expected: info.bytes,
                found: file.len(),
            });
        }
        Ok(file)
    }

    /// Reads an open file into memory that may have been used before.
    pub(crate) fn read_into(
        &self,
        file: &FileHandle,
        bytes: &mut Vec<u8>,
    ) -> Result<(), ReaderError> {
        let limit = self.limits().shard_bytes;
        Limits::check("shard-bytes", file.len(), limit).map_err(|source| ReaderError::Limit {
            path: file.path().to_owned(),
            source,
        })?;
        Ok(file.read_all_into(bytes, limit)?)
    }

    fn read(
        &self,
        shard: usize,
        info: &FileInfo,
        file: &FileHandle,
    ) -> Result<Vec<u8>, ReaderError> {
        let mut bytes = Vec::new();
        self.read_into(file, &mut bytes)?;
        if let Some(algo) = self.hash {
            info.hashes
                .check(algo, &bytes)
                .map_err(|source| ReaderError::Hash {
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
