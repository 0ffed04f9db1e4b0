//! Indexes and index entries of any format.

use shardmill_core::{Diagnostic, ErrorKind, Limits, begins_as_tar_index};
use shardmill_mds::{FileInfo, ShardEntry};
use shardmill_webdataset::IndexShard;

/// The index of a dataset.
#[derive(Clone, Debug)]
pub enum DatasetIndex {
    /// An index of MosaicML Streaming shards.
    Streaming(shardmill_mds::Index),
    /// An index of tar shards.
    Tar(shardmill_webdataset::Index),
}

/// The index entry of one shard.
#[derive(Clone, Debug)]
pub enum IndexEntry {
    /// The entry of a MosaicML Streaming shard.
    Streaming(ShardEntry),
    /// The entry of a tar shard.
    Tar(IndexShard),
}

/// The error of an index that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexProblem {
    /// An invalid index of MosaicML Streaming shards.
    #[error(transparent)]
    Streaming(#[from] shardmill_mds::MdsError),
    /// An invalid index of tar shards.
    #[error(transparent)]
    Tar(#[from] shardmill_webdataset::WebdatasetError),
}

impl IndexProblem {
    fn inner(&self) -> &dyn Diagnostic {
        match self {
            Self::Streaming(error) => error,
            Self::Tar(error) => error,
        }
    }
}

impl Diagnostic for IndexProblem {
    fn kind(&self) -> ErrorKind {
        self.inner().kind()
    }

    fn id(&self) -> &'static str {
        self.inner().id()
    }

    fn hint(&self) -> Option<String> {
        self.inner().hint()
    }
}

impl DatasetIndex {
    /// Parses an index of either kind. The first key decides: keys are sorted, and only an index of tar shards has a
    /// top-level `format`.
    ///
    /// # Errors
    ///
    /// Returns [`IndexProblem`] if the text is not a valid index.
    pub fn parse(json: &[u8], limits: &Limits) -> Result<Self, IndexProblem> {
        if begins_as_tar_index(json) {
            return Ok(Self::Tar(shardmill_webdataset::Index::parse(json, limits)?));
        }
        Ok(Self::Streaming(shardmill_mds::Index::parse(json, limits)?))
    }

    /// Returns the index as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        match self {
            Self::Streaming(index) => index.to_json(),
            Self::Tar(index) => index.to_json(),
        }
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn shards(&self) -> u64 {
        let shards = match self {
            Self::Streaming(index) => index.shards.len(),
            Self::Tar(index) => index.shards.len(),
        };
        u64::try_from(shards).unwrap_or(u64::MAX)
    }

    /// Returns the number of samples in all shards.
    #[must_use]
    pub fn samples(&self) -> u64 {
        match self {
            Self::Streaming(index) => index.samples(),
            Self::Tar(index) => index.samples(),
        }
    }

    /// Splits the index into one entry for each shard.
    pub fn into_entries(self) -> impl Iterator<Item = IndexEntry> {
        let (streaming, tar) = match self {
            Self::Streaming(index) => (index.shards, Vec::new()),
            Self::Tar(index) => (Vec::new(), index.shards),
        };
        let tar = tar.into_iter().map(IndexEntry::Tar);
        streaming.into_iter().map(IndexEntry::Streaming).chain(tar)
    }

    /// Returns the name and the length of each stored file.
    #[must_use]
    pub fn stored_files(&self) -> Vec<(&str, u64)> {
        match self {
            Self::Streaming(index) => named(index.shards.iter().flat_map(ShardEntry::stored)),
            Self::Tar(index) => named(index.shards.iter().flat_map(IndexShard::files)),
        }
    }

    /// Returns the size of all shards before compression, in bytes.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        match self {
            Self::Streaming(index) => sum(index.shards.iter().map(streaming_raw)),
            Self::Tar(index) => sum(index.shards.iter().map(|shard| shard.raw_data.bytes)),
        }
    }

    /// Returns the size of all stored files, in bytes.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        sum(self.stored_files().into_iter().map(|(_, bytes)| bytes))
    }
}

impl IndexEntry {
    /// Returns the size before compression, in bytes.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        match self {
            Self::Streaming(entry) => streaming_raw(entry),
            Self::Tar(entry) => entry.raw_data.bytes,
        }
    }

    /// Parses the index of a single shard. Further shards are ignored.
    #[must_use]
    pub fn parse(json: &[u8], limits: &Limits) -> Option<Self> {
        let index = DatasetIndex::parse(json, limits).ok()?;
        index.into_entries().next()
    }

    /// Returns an index of only this shard, as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        match self {
            Self::Streaming(entry) => shardmill_mds::Index {
                shards: vec![entry.clone()],
            }
            .to_json(),
            Self::Tar(entry) => shardmill_webdataset::Index {
                shards: vec![entry.clone()],
            }
            .to_json(),
        }
    }

    /// Returns the number of samples in the shard.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        match self {
            Self::Streaming(entry) => entry.samples,
            Self::Tar(entry) => entry.samples,
        }
    }

    /// Returns the size of the stored files, in bytes.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        sum(self.stored_files().into_iter().map(|(_, bytes)| bytes))
    }

    /// Returns the name and the length of each stored file.
    #[must_use]
    pub fn stored_files(&self) -> Vec<(&str, u64)> {
        match self {
            Self::Streaming(entry) => named(entry.stored()),
            Self::Tar(entry) => named(entry.files()),
        }
    }

    /// Returns the names of all files, including the uncompressed files that are not stored but that readers create.
    pub(crate) fn names(&self) -> Vec<&str> {
        let files = match self {
            Self::Streaming(entry) => [
                Some(&entry.raw_data),
                entry.zip_data.as_ref(),
                entry.raw_meta.as_ref(),
                entry.zip_meta.as_ref(),
            ],
            Self::Tar(entry) => [
                Some(&entry.raw_data),
                entry.zip_data.as_ref(),
                entry.offsets.as_ref(),
                None,
            ],
        };
        let files = files.into_iter().flatten();
        files.map(|file| &*file.basename).collect()
    }

    /// Renames all files, including the uncompressed files that are not stored.
    pub(crate) fn rename_files(&mut self, name: impl Fn(&str) -> String) {
        let files = match self {
            Self::Streaming(entry) => [
                Some(&mut entry.raw_data),
                entry.zip_data.as_mut(),
                entry.raw_meta.as_mut(),
                entry.zip_meta.as_mut(),
            ],
            Self::Tar(entry) => [
                Some(&mut entry.raw_data),
                entry.zip_data.as_mut(),
                entry.offsets.as_mut(),
                None,
            ],
        };
        for file in files.into_iter().flatten() {
            file.basename = name(&file.basename).into();
        }
    }

    /// Returns the entry if it belongs to a MosaicML Streaming shard.
    pub(crate) fn into_streaming(self) -> Option<ShardEntry> {
        match self {
            Self::Streaming(entry) => Some(entry),
            Self::Tar(_) => None,
        }
    }

    /// Returns the entry if it belongs to a tar shard.
    pub(crate) fn into_tar(self) -> Option<IndexShard> {
        match self {
            Self::Streaming(_) => None,
            Self::Tar(entry) => Some(entry),
        }
    }
}

fn named<'a>(files: impl Iterator<Item = &'a FileInfo>) -> Vec<(&'a str, u64)> {
    files.map(|file| (&*file.basename, file.bytes)).collect()
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

fn streaming_raw(entry: &ShardEntry) -> u64 {
    let meta = entry.raw_meta.as_ref().map_or(0, |meta| meta.bytes);
    entry.raw_data.bytes.saturating_add(meta)
}
