//! Shards that do not exist as files: each is computed from ranges of a file, such as a row group of a table.
//!
//! The cache fetches the ranges instead of a shard, and keeps the computed shard. This crate does not know the format of
//! the files: the caller of [`Catalog::open`](crate::Catalog::open) provides it with the stream.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use shardmill_core::Limits;
use shardmill_mds::ShardEntry;
use shardmill_storage::{Dir, Folder};

use crate::error::DatasetError;
use crate::files::{ChosenFiles, FileEntry, FileList, FileOptions};

/// The files that a stream is made of, instead of shards with an index.
#[derive(Clone, Debug, Default)]
pub struct StreamFiles {
    /// Which files there are.
    pub options: FileOptions,
    /// What computes shards from the files; `None` if each file is a sample.
    pub computed: Option<Arc<dyn OpenComputed>>,
}

impl From<FileOptions> for StreamFiles {
    /// Each file is a sample.
    fn from(options: FileOptions) -> Self {
        Self {
            options,
            computed: None,
        }
    }
}

/// Opens a stream of computed shards.
pub trait OpenComputed: fmt::Debug + Send + Sync {
    /// Opens the stream. `cache` is the folder that its shards are kept in. `list` returns the files of the source, or
    /// only the chosen ones.
    ///
    /// # Errors
    ///
    /// Errors of the files.
    fn open(
        &self,
        source: &Folder,
        cache: &Dir,
        limits: &Limits,
        list: &dyn Fn(Option<ChosenFiles>) -> Result<FileList, DatasetError>,
    ) -> Result<ComputedStream, DatasetError>;
}

/// An open stream of computed shards.
#[derive(Clone, Debug)]
pub struct ComputedStream {
    /// The shards, as MDS shards. The length of each is the largest that it is expected to have.
    pub entries: Vec<ShardEntry>,
    /// Identifies the content of the stream.
    pub digest: [u8; 32],
    /// Computes the shards.
    pub computed: Computed,
}

/// The shards of a stream that do not exist as files.
#[derive(Clone, Debug)]
pub struct Computed {
    /// Computes the shards.
    pub shards: Arc<dyn ComputeShards>,
    /// The files that they are computed from.
    pub files: FileList,
    /// Identifies the samples whatever their columns. Views name it.
    pub view_digest: [u8; 32],
    /// The columns that mark the nulls of other columns, and are none of the samples; see
    /// [`SchemaColumn::null_mask`](crate::SchemaColumn::null_mask).
    pub null_masks: Arc<[String]>,
}

/// Computes shards.
pub trait ComputeShards: fmt::Debug + Send + Sync {
    /// Returns the name of a shard in messages.
    fn name(&self, shard: usize) -> String;

    /// Returns what must be read to compute a shard.
    ///
    /// # Errors
    ///
    /// Errors of the files.
    fn ranges(&self, shard: usize) -> Result<FileRanges<'_>, DatasetError>;

    /// Computes an MDS shard from the bytes of its ranges, which are concatenated.
    ///
    /// # Errors
    ///
    /// Errors of the content.
    fn compute(&self, shard: usize, bytes: Vec<u8>) -> Result<Vec<u8>, DatasetError>;
}

/// Ranges of a file.
#[derive(Clone, Debug)]
pub struct FileRanges<'a> {
    /// The file, as it was listed.
    pub file: &'a FileEntry,
    /// The ranges, ascending.
    pub ranges: Vec<Range<u64>>,
}

impl FileRanges<'_> {
    /// Returns the number of bytes in all ranges.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let lengths = self.ranges.iter().map(|range| range.end - range.start);
        lengths.fold(0, u64::saturating_add)
    }
}
