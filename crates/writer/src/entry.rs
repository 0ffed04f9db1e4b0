//! Indexes and index entries of any format.

use shardmill_core::{
    Diagnostic, ErrorKind, INDEX_NAME, Limits, TABLE_INDEX_NAME, begins_as_tar_index,
};
use shardmill_mds::{FileInfo, ShardEntry};
use shardmill_webdataset::IndexShard;

use crate::table::{TableFile, TableIndex, begins_as_table_index};

/// The index of a dataset.
#[derive(Clone, Debug)]
pub enum DatasetIndex {
    /// An index of MosaicML Streaming shards.
    Streaming(shardmill_mds::Index),
    /// An index of tar shards.
    Tar(shardmill_webdataset::Index),
    /// An index of the files of a table.
    Table(TableIndex),
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
    /// An invalid index of a table.
    #[error("the index of a table is invalid: {reason}")]
    Table {
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl IndexProblem {
    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Streaming(error) => Some(error),
            Self::Tar(error) => Some(error),
            Self::Table { .. } => None,
        }
    }
}

impl Diagnostic for IndexProblem {
    fn kind(&self) -> ErrorKind {
        self.inner().map_or(ErrorKind::Corrupt, Diagnostic::kind)
    }

    fn id(&self) -> &'static str {
        self.inner().map_or("index-syntax", Diagnostic::id)
    }

    fn hint(&self) -> Option<String> {
        self.inner().and_then(Diagnostic::hint)
    }
}

impl DatasetIndex {
    /// Parses an index of any kind. The first key decides: keys are sorted, only an index of tar shards begins with a
    /// top-level `format`, and only an index of a table with `files`.
    ///
    /// # Errors
    ///
    /// Returns [`IndexProblem`] if the text is not a valid index.
    pub fn parse(json: &[u8], limits: &Limits) -> Result<Self, IndexProblem> {
        if begins_as_tar_index(json) {
            return Ok(Self::Tar(shardmill_webdataset::Index::parse(json, limits)?));
        }
        if begins_as_table_index(json) {
            let index = TableIndex::parse(json, limits);
            return Ok(Self::Table(
                index.map_err(|reason| IndexProblem::Table { reason })?,
            ));
        }
        Ok(Self::Streaming(shardmill_mds::Index::parse(json, limits)?))
    }

    /// Returns the index as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        match self {
            Self::Streaming(index) => index.to_json(),
            Self::Tar(index) => index.to_json(),
            Self::Table(index) => index.to_json(),
        }
    }

    /// Returns the name of the file that holds the index.
    #[must_use]
    pub const fn file_name(&self) -> &'static str {
        match self {
            Self::Streaming(_) | Self::Tar(_) => INDEX_NAME,
            Self::Table(_) => TABLE_INDEX_NAME,
        }
    }

    /// Returns the number of shards.
    #[must_use]
    pub fn shards(&self) -> u64 {
        let shards = match self {
            Self::Streaming(index) => index.shards.len(),
            Self::Tar(index) => index.shards.len(),
            Self::Table(index) => index.files.len(),
        };
        u64::try_from(shards).unwrap_or(u64::MAX)
    }

    /// Returns the number of samples in all shards.
    #[must_use]
    pub fn samples(&self) -> u64 {
        match self {
            Self::Streaming(index) => index.samples(),
            Self::Tar(index) => index.samples(),
            Self::Table(index) => index.rows(),
        }
    }

    /// Splits the index into one entry for each shard.
    pub fn into_entries(self) -> impl Iterator<Item = IndexEntry> {
        let (streaming, tar, table) = match self {
            Self::Streaming(index) => (index.shards, Vec::new(), Vec::new()),
            Self::Tar(index) => (Vec::new(), index.shards, Vec::new()),
            Self::Table(index) => (Vec::new(), Vec::new(), index.files),
        };
        let tar = tar.into_iter().map(IndexEntry::Tar);
        let table = table.into_iter().map(IndexEntry::Table);
        let streaming = streaming.into_iter().map(IndexEntry::Streaming);
        streaming.chain(tar).chain(table)
    }

    /// Returns the name and the length of each stored file.
    #[must_use]
    pub fn stored_files(&self) -> Vec<(&str, u64)> {
        match self {
            Self::Streaming(index) => named(index.shards.iter().flat_map(ShardEntry::stored)),
            Self::Tar(index) => named(index.shards.iter().flat_map(IndexShard::files)),
            Self::Table(index) => named(index.files.iter().map(|file| &file.file)),
        }
    }

    /// Returns the name of the raw file and the number of samples of each shard, in order.
    #[must_use]
    pub fn shard_samples(&self) -> Vec<(&str, u64)> {
        match self {
            Self::Streaming(index) => {
                let shards = index.shards.iter();
                let shards = shards.map(|shard| (&*shard.raw_data.basename, shard.samples));
                shards.collect()
            }
            Self::Tar(index) => {
                let shards = index.shards.iter();
                let shards = shards.map(|shard| (&*shard.raw_data.basename, shard.samples));
                shards.collect()
            }
            Self::Table(index) => {
                let shards = usize::try_from(self.shards()).unwrap_or(usize::MAX);
                let files = index.files.iter().take(shards);
                files
                    .map(|file| (&*file.file.basename, file.rows))
                    .collect()
            }
        }
    }

    /// Returns the size of all shards before compression, in bytes.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        match self {
            Self::Streaming(index) => sum(index.shards.iter().map(streaming_raw)),
            Self::Tar(index) => sum(index.shards.iter().map(|shard| shard.raw_data.bytes)),
            Self::Table(index) => sum(index.files.iter().map(|file| file.raw_bytes)),
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
            Self::Table(entry) => entry.raw_bytes,
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
            Self::Table(entry) => TableIndex {
                files: vec![entry.clone()],
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

fn streaming_raw(entry: &ShardEntry) -> u64 {
    let meta = entry.raw_meta.as_ref().map_or(0, |meta| meta.bytes);
    entry.raw_data.bytes.saturating_add(meta)
}
