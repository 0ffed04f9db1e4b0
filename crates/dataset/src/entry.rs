//! A common view of the shards of MDS, WebDataset and raw file datasets: each shard consists of one or two files.

use std::path::Path;
use std::sync::Arc;

use shardmill_cache::{Blob, BlobFile};
use shardmill_core::{Limits, begins_as_tar_index};
use shardmill_mds::{CodecError, Compression, FileInfo, HashAlgo, ShardEntry};
use shardmill_webdataset::IndexShard;

use crate::computed::Computed;
use crate::error::DatasetError;
use crate::files::{FileEntry, FileForm, FileList};
use crate::problem::ValueLocation;

/// The shards of a dataset, in order.
#[derive(Clone, Debug)]
pub enum Shards {
    /// MDS, and the text formats of the same index (JSONL, CSV, TSV, XSV).
    Mds(Vec<ShardEntry>),
    /// Tar files.
    Tar(Vec<IndexShard>),
    /// Raw files that are samples themselves.
    Files(FileList),
    /// MDS shards that do not exist as files, and what computes them.
    Computed(Vec<ShardEntry>, Computed),
}

impl Shards {
    /// Parses an `index.json` of MDS or WebDataset. Error messages name `path`.
    pub fn parse(bytes: &[u8], path: &Path, limits: &Limits) -> Result<Self, DatasetError> {
        if begins_as_tar_index(bytes) {
            return match shardmill_webdataset::Index::parse(bytes, limits) {
                Ok(index) => Ok(Self::Tar(index.shards)),
                Err(source) => Err(DatasetError::tar_index(path, source)),
            };
        }
        match shardmill_mds::Index::parse(bytes, limits) {
            Ok(index) => Ok(Self::Mds(index.shards)),
            Err(source) => Err(DatasetError::index("cannot read the index", path, source)),
        }
    }

    /// Returns the number of shards.
    pub fn len(&self) -> usize {
        match self {
            Self::Mds(shards) | Self::Computed(shards, _) => shards.len(),
            Self::Tar(shards) => shards.len(),
            Self::Files(files) => files.len(),
        }
    }

    /// Returns what views name, if that is not the index or the list of files.
    pub const fn view_digest(&self) -> Option<[u8; 32]> {
        match self {
            Self::Computed(_, computed) => Some(computed.view_digest),
            _ => None,
        }
    }

    /// Returns whether there are no shards.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a shard.
    pub fn get(&self, number: usize) -> Option<Entry<'_>> {
        match self {
            Self::Mds(shards) | Self::Computed(shards, _) => shards.get(number).map(Entry::Mds),
            Self::Tar(shards) => shards.get(number).map(Entry::Tar),
            Self::Files(files) => files.get(number).map(|file| Entry::File(file, files.form)),
        }
    }

    /// Iterates over the shards.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..self.len()).filter_map(|number| self.get(number))
    }
}

/// Checks that the index has a hash of every stored file. This is checked when a dataset is opened, rather than failing
/// at shard 900,000.
pub(crate) fn check_hashes_present<'a>(
    entries: impl Iterator<Item = Entry<'a>>,
    algo: HashAlgo,
) -> Result<(), DatasetError> {
    for part in entries.flat_map(Entry::parts) {
        let stored = part.stored();
        if stored.hashes.get(algo).is_none() {
            let location = ValueLocation::file(&stored.basename);
            let source = CodecError::hash_absent(algo);
            return Err(DatasetError::reading(
                "its hash cannot be checked",
                location,
                source,
            ));
        }
    }
    Ok(())
}

/// Compares the bytes of a file with its hash of this algorithm, or with the quickest one that the index has, if any.
pub(crate) fn check_hash(
    file: &FileInfo,
    algo: Option<HashAlgo>,
    bytes: &[u8],
    location: impl FnOnce() -> ValueLocation,
) -> Result<(), DatasetError> {
    let Some(algo) = algo.or_else(|| file.hashes.quickest()) else {
        return Ok(());
    };
    let checked = file.hashes.check(algo, bytes);
    checked.map_err(|source| DatasetError::hash(location(), false, source))
}

/// One shard, as its index describes it.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// A shard of an MDS index.
    Mds(&'a ShardEntry),
    /// A tar file.
    Tar(&'a IndexShard),
    /// A raw file, and what samples contain of it.
    File(&'a FileEntry, FileForm),
}

/// A file of a shard: its raw form and, if the index names one, its compressed form.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The raw file.
    pub raw: &'a FileInfo,
    /// The compressed file.
    pub zip: Option<&'a FileInfo>,
    /// How it is compressed; `None` if its bytes tell, as those of a tar file.
    compression: Option<Compression>,
}

impl<'a> Part<'a> {
    /// Returns the file that the writer published.
    pub fn stored(&self) -> &'a FileInfo {
        self.zip.unwrap_or(self.raw)
    }

    /// Decompresses the bytes of the compressed file.
    pub fn unpack(
        &self,
        bytes: &[u8],
        location: impl FnOnce() -> ValueLocation,
        limits: &Limits,
    ) -> Result<Vec<u8>, DatasetError> {
        let raw_bytes = Some(self.raw.bytes);
        let raw = match self.compression {
            Some(compression) => compression.decompress(bytes, raw_bytes, limits),
            None => shardmill_webdataset::decompress(bytes, raw_bytes, limits),
        };
        raw.map_err(|source| DatasetError::decompress(location(), source))
    }
}

impl<'a> Entry<'a> {
    /// Returns the number of stored samples.
    pub const fn samples(self) -> u64 {
        match self {
            Self::Mds(entry) => entry.samples,
            Self::Tar(entry) => entry.samples,
            Self::File(..) => 1,
        }
    }

    /// Returns the raw file that contains the samples.
    pub const fn data(self) -> &'a FileInfo {
        match self {
            Self::Mds(entry) => &entry.raw_data,
            Self::Tar(entry) => &entry.raw_data,
            Self::File(entry, _) => &entry.info,
        }
    }

    /// Returns the name of the stored file that contains the samples.
    pub(crate) fn name(self) -> &'a str {
        let data = self.parts().next();
        data.map_or("", |part| &part.stored().basename)
    }

    /// Returns the second file: the offset table, if it is separate from the data, or the late columns.
    pub fn table(self) -> Option<&'a FileInfo> {
        self.parts().nth(1).map(|part| part.raw)
    }

    /// Returns whether the second file holds late columns.
    pub fn has_late(self) -> bool {
        matches!(self, Self::Mds(entry) if entry.config.late.is_some())
    }

    /// Returns whether the data is stored compressed.
    pub fn is_packed(self) -> bool {
        self.parts().any(|part| part.zip.is_some())
    }

    /// Returns whether this shard has the format and the columns of another one, and shares them with it.
    pub(crate) fn shares_columns(self, other: Self) -> bool {
        match (self, other) {
            (Self::Mds(own), Self::Mds(other)) => Arc::ptr_eq(&own.config, &other.config),
            (Self::Tar(own), Self::Tar(other)) => Arc::ptr_eq(&own.fields, &other.fields),
            (Self::File(_, own), Self::File(_, other)) => own == other,
            _ => false,
        }
    }

    /// Returns the data, then the offset table if it has its own file, or the late columns.
    pub fn parts(self) -> impl Iterator<Item = Part<'a>> {
        let part = |compression| {
            move |raw, zip| Part {
                raw,
                zip,
                compression,
            }
        };
        let (data, table) = match self {
            Self::Mds(entry) => {
                let part = part(entry.config.compression);
                let table = entry.raw_meta.as_ref();
                (
                    part(&entry.raw_data, entry.zip_data.as_ref()),
                    table.map(|raw| part(raw, entry.zip_meta.as_ref())),
                )
            }
            Self::Tar(entry) => {
                let part = part(None);
                let table = entry.offsets.as_ref();
                (
                    part(&entry.raw_data, entry.zip_data.as_ref()),
                    table.map(|raw| part(raw, None)),
                )
            }
            Self::File(entry, _) => (part(None)(&entry.info, None), None),
        };
        std::iter::once(data).chain(table)
    }

    /// Returns the shard as a blob of the cache.
    pub fn blob(self, is_remote: bool, keep_zip: bool) -> Blob<'a> {
        if let Self::File(entry, form) = self {
            return entry.blob(form, is_remote);
        }
        let mut files = self.parts().map(|part| BlobFile {
            raw: part.raw,
            packed: part.zip,
        });
        let data = files.next().unwrap_or(BlobFile {
            raw: self.data(),
            packed: None,
        });
        Blob {
            data,
            table: files.next(),
            is_kept: is_remote || self.is_packed(),
            keep_packed: keep_zip,
            needs_file: false,
            is_unhashed: false,
        }
    }

    /// Returns the raw file, if the shard is one.
    pub const fn raw_file(self) -> Option<&'a FileEntry> {
        match self {
            Self::File(entry, _) => Some(entry),
            Self::Mds(_) | Self::Tar(_) => None,
        }
    }

    /// Returns the byte range of the offset table that holds the offsets of a sample. The range is in the data, or in
    /// the separate table if there is one. Returns `None` if only the whole shard can be read.
    pub fn offset_range(self, at: u64) -> Option<std::ops::Range<u64>> {
        let (start, bytes) = match self {
            // A sample with late columns is in two files.
            Self::Mds(entry) if entry.config.late.is_some() => return None,
            Self::Mds(_) => (at.checked_mul(4)?.checked_add(4)?, 8),
            Self::Tar(entry) => {
                entry.offsets.as_ref()?;
                (at.checked_mul(8)?, 16)
            }
            // A raw file is its only sample.
            Self::File(..) => return None,
        };
        Some(start..start.checked_add(bytes)?)
    }

    /// Returns the byte range of a sample in the data, decoded from the bytes at [`Self::offset_range`].
    pub fn range_in(self, offsets: &[u8]) -> Option<std::ops::Range<u64>> {
        let (begin, end) = match self {
            Self::Mds(_) => pair(offsets)?,
            Self::Tar(_) => {
                let (begin, end) = offsets.split_first_chunk::<8>()?;
                let end = end.first_chunk::<8>()?;
                (u64::from_le_bytes(*begin), u64::from_le_bytes(*end))
            }
            Self::File(entry, _) => (0, entry.info.bytes),
        };
        (begin <= end && end <= self.data().bytes).then_some(begin..end)
    }
}

/// Decodes two little-endian 32-bit numbers.
pub(crate) fn pair(bytes: &[u8]) -> Option<(u64, u64)> {
    let ([first, second, ..], _) = bytes.as_chunks::<4>() else {
        return None;
    };
    let number = |word: &[u8; 4]| u64::from(u32::from_le_bytes(*word));
    Some((number(first), number(second)))
}
