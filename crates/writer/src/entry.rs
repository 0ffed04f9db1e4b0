//! Indexes and index entries of any format.

use shardmill_core::{Error, Limits, begins_as_tar_index};
use shardmill_mds::{FileInfo, ShardEntry};
use shardmill_webdataset::IndexShard;

use crate::error::WriteProblem;
use crate::form::{ShardForm, ShardFormat};
use crate::table::{TableFile, TableIndex, begins_as_table_index};

/// The index of a dataset.
#[derive(Clone, Debug)]
pub struct DatasetIndex {
    /// The format of the shards.
    pub format: ShardFormat,
    /// The entries of the shards, in order. All of them are of the format.
    pub entries: Vec<IndexEntry>,
}

/// The index entry of one shard.
#[derive(Clone, Debug)]
pub enum IndexEntry {
    /// The entry of a MosaicML Streaming shard.
    Streaming(ShardEntry),
    /// The entry of a tar shard.
    Tar(IndexShard),
    /// The entry of a file of a table.
    Table(TableFile),
}

impl DatasetIndex {
    /// Parses an index of any kind. The first key decides: keys are sorted, only an index of tar shards begins with a
    /// top-level `format`, and only an index of a table with `files`.
    ///
    /// # Errors
    ///
    /// `Corrupt` or `Unsupported` if the text is not a valid index.
    pub fn parse(json: &[u8], limits: &Limits) -> Result<Self, Error> {
        if begins_as_tar_index(json) {
            let index = shardmill_webdataset::Index::parse(json, limits)?;
            let entries = index.shards.into_iter().map(IndexEntry::Tar);
            return Ok(Self::new(ShardFormat::Webdataset, entries));
        }
        if begins_as_table_index(json) {
            let index = TableIndex::parse(json, limits);
            return Ok(index.map_err(WriteProblem::table_index)?.into());
        }
        let index = shardmill_mds::Index::parse(json, limits)?;
        let entries = index.shards.into_iter().map(IndexEntry::Streaming);
        Ok(Self::new(ShardFormat::Mds, entries))
    }

    pub(crate) fn new(format: ShardFormat, entries: impl IntoIterator<Item = IndexEntry>) -> Self {
        let entries = entries.into_iter().collect();
        Self { format, entries }
    }

    /// Returns the index as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let entries = self.entries.iter();
        match self.format {
            ShardFormat::Mds => {
                let shards = entries.filter_map(IndexEntry::streaming).cloned().collect();
                shardmill_mds::Index { shards }.to_json()
            }
            ShardFormat::Webdataset => {
                let shards = entries.filter_map(IndexEntry::tar).cloned().collect();
                shardmill_webdataset::Index { shards }.to_json()
            }
            ShardFormat::Parquet => {
                let files = entries.filter_map(IndexEntry::table).cloned().collect();
                TableIndex { files }.to_json()
            }
        }
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn shards(&self) -> u64 {
        u64::try_from(self.entries.len()).unwrap_or(u64::MAX)
    }

    /// Returns the number of samples in all shards.
    #[must_use]
    pub fn samples(&self) -> u64 {
        sum(self.entries.iter().map(IndexEntry::samples))
    }

    /// Returns the name and the length of each stored file.
    #[must_use]
    pub fn stored_files(&self) -> Vec<(&str, u64)> {
        let entries = self.entries.iter();
        entries.flat_map(IndexEntry::stored_files).collect()
    }

    /// Returns the name of the raw file and the number of samples of each shard, in order.
    #[must_use]
    pub fn shard_samples(&self) -> Vec<(&str, u64)> {
        let entries = self.entries.iter();
        let shards = entries.map(|entry| (entry.raw_name(), entry.samples()));
        shards.collect()
    }

    /// Returns the size of all shards before compression, in bytes.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        sum(self.entries.iter().map(IndexEntry::raw_bytes))
    }

    /// Returns the size of all stored files, in bytes.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        sum(self.entries.iter().map(IndexEntry::stored_bytes))
    }
}

impl ShardForm {
    /// Creates an index of these entries.
    #[must_use]
    pub fn index(&self, entries: impl Iterator<Item = IndexEntry>) -> DatasetIndex {
        DatasetIndex::new(self.format(), entries)
    }
}

impl From<TableIndex> for DatasetIndex {
    fn from(index: TableIndex) -> Self {
        let entries = index.files.into_iter().map(IndexEntry::Table);
        Self::new(ShardFormat::Parquet, entries)
    }
}

impl IndexEntry {
    /// Returns the entry of a MosaicML Streaming shard.
    #[must_use]
    pub const fn streaming(&self) -> Option<&ShardEntry> {
        match self {
            Self::Streaming(entry) => Some(entry),
            _ => None,
        }
    }

    /// Returns the entry of a tar shard.
    #[must_use]
    pub const fn tar(&self) -> Option<&IndexShard> {
        match self {
            Self::Tar(entry) => Some(entry),
            _ => None,
        }
    }

    const fn table(&self) -> Option<&TableFile> {
        match self {
            Self::Table(entry) => Some(entry),
            _ => None,
        }
    }

    /// Returns the size before compression, in bytes.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        match self {
            Self::Streaming(entry) => {
                let meta = entry.raw_meta.as_ref().map_or(0, |meta| meta.bytes);
                entry.raw_data.bytes.saturating_add(meta)
            }
            Self::Tar(entry) => entry.raw_data.bytes,
            Self::Table(entry) => entry.raw_bytes,
        }
    }

    /// Parses the index of a single shard. Further shards are ignored.
    #[must_use]
    pub fn parse(json: &[u8], limits: &Limits) -> Option<Self> {
        let index = DatasetIndex::parse(json, limits).ok()?;
        index.entries.into_iter().next()
    }

    /// Returns an index of only this shard, as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let format = match self {
            Self::Streaming(_) => ShardFormat::Mds,
            Self::Tar(_) => ShardFormat::Webdataset,
            Self::Table(_) => ShardFormat::Parquet,
        };
        DatasetIndex::new(format, [self.clone()]).to_json()
    }

    /// Returns the number of samples in the shard.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        match self {
            Self::Streaming(entry) => entry.samples,
            Self::Tar(entry) => entry.samples,
            Self::Table(entry) => entry.rows,
        }
    }

    /// Returns the name of the raw file.
    #[must_use]
    pub fn raw_name(&self) -> &str {
        match self {
            Self::Streaming(entry) => &entry.raw_data.basename,
            Self::Tar(entry) => &entry.raw_data.basename,
            Self::Table(entry) => &entry.file.basename,
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
            Self::Table(entry) => named(std::iter::once(&entry.file)),
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
            Self::Table(entry) => [Some(&entry.file), None, None, None],
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
            Self::Table(entry) => [Some(&mut entry.file), None, None, None],
        };
        for file in files.into_iter().flatten() {
            file.basename = name(&file.basename).into();
        }
    }
}

fn named<'a>(files: impl Iterator<Item = &'a FileInfo>) -> Vec<(&'a str, u64)> {
    files.map(|file| (&*file.basename, file.bytes)).collect()
}

fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}
