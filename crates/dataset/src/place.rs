//! Reads samples of an uncompressed shard without reading the whole shard.

use std::ops::Range;
use std::sync::Arc;

use shardmill_core::{Format, Limits};
use shardmill_mds::{FileHashes, FileInfo, ShardEntry, encode_header};
use shardmill_storage::{Folder, StorageError, Stored};

use crate::entry::pair;
use crate::error::DatasetError;
use crate::shard::Shard;

/// The open raw file of an MDS shard. Its length, sample count and config match the index.
#[derive(Debug)]
pub(crate) struct InPlace {
    shard: usize,
    data: Stored,
    config_json: String,
    /// The offset of the first sample.
    first_offset: u64,
}

impl InPlace {
    /// Opens a shard for reading in place. Returns `None` if that is impossible or anything looks wrong. The caller
    /// then reads the whole shard, which gives a better error message.
    pub(crate) fn open(
        dir: &Folder,
        shard: usize,
        entry: &ShardEntry,
    ) -> Result<Option<Self>, DatasetError> {
        // Late columns are joined with the whole shard, and lines of text are mostly small.
        if entry.config.late.is_some() || entry.config.format() != Format::Mds {
            return Ok(None);
        }
        // PERF: a raw file next to a compressed one exists only in a local cache, never in a store.
        if dir.is_store() && entry.zip_data.is_some() {
            return Ok(None);
        }
        let Some(data) = open(dir, &entry.raw_data)? else {
            return Ok(None);
        };
        let mut opened = Self {
            shard,
            data,
            config_json: entry.config.to_json(),
            first_offset: 0,
        };
        match opened.check(entry) {
            Ok(is_right) => Ok(is_right.then_some(opened)),
            Err(error) if error.is_not_found() || error.is_other_length() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn check(&mut self, entry: &ShardEntry) -> Result<bool, StorageError> {
        let expected = self.config_json.as_bytes();
        let after_table = entry.samples.checked_mul(4).and_then(|n| n.checked_add(8));
        let config = after_table.and_then(|at| Some(at..at.checked_add(expected.len() as u64)?));
        let Some(config) = config.filter(|config| config.end <= self.data.len()) else {
            return Ok(false);
        };
        let config_end = config.end;
        let parts = self.data.read_ranges(&[0..8, config])?;
        let [head, config] = parts.as_slice() else {
            return Ok(false);
        };
        let Some((count, first)) = pair(head) else {
            return Ok(false);
        };
        self.first_offset = first;
        Ok(count == entry.samples && config_end == first && config == expected)
    }

    pub(crate) const fn shard(&self) -> usize {
        self.shard
    }

    /// Returns where the values of an MDS sample are, in the order of the columns. Returns `None` for another format, or if
    /// anything looks wrong.
    pub(crate) fn values(
        self: &Arc<Self>,
        entry: &ShardEntry,
        at: u64,
    ) -> Result<Option<Vec<StoredValue>>, StorageError> {
        let Some(columns) = entry.config.mds_columns() else {
            return Ok(None);
        };
        let variable = columns
            .iter()
            .filter(|column| column.encoding.fixed_size().is_none());
        let head_bytes = 4 * variable.count() as u64;
        // INVARIANT: `at < entry.samples`, as in `samples`.
        let ends = self.data.read_range(4 + 4 * at, 8)?;
        let Some((begin, end)) = pair(&ends) else {
            return Ok(None);
        };
        let mut start = begin + head_bytes;
        if begin < self.first_offset || start > end || end > self.data.len() {
            return Ok(None);
        }
        let head = self.data.read_range(begin, head_bytes)?;
        let (sizes, _) = head.as_chunks::<4>();
        let mut sizes = sizes
            .iter()
            .map(|size| u64::from(u32::from_le_bytes(*size)));
        let mut values = Vec::with_capacity(columns.len());
        for column in columns {
            let size = column.encoding.fixed_size().or_else(|| sizes.next());
            let next = size.and_then(|size| start.checked_add(size));
            let Some(next) = next.filter(|next| *next <= end) else {
                return Ok(None);
            };
            values.push(StoredValue {
                in_place: Arc::clone(self),
                range: start..next,
            });
            start = next;
        }
        Ok((start == end).then_some(values))
    }

    /// Reads samples as a shard of their own: of `at`, the first ones that have at most `max_bytes` together, but at least
    /// one. `number` is the stored number of the first one. Returns `None` if anything looks wrong.
    pub(crate) fn samples(
        &self,
        entry: &ShardEntry,
        at: Range<u64>,
        number: u64,
        max_bytes: u64,
        limits: &Limits,
    ) -> Result<Option<Shard>, DatasetError> {
        // INVARIANT: `at.end <= entry.samples`, which equals the count that `check` read, so this is within the table.
        let ends = self
            .data
            .read_range(4 + 4 * at.start, 4 * (at.end - at.start + 1))?;
        let mut ends = ends.chunks_exact(4).filter_map(|word| {
            let word = word.first_chunk()?;
            Some(u64::from(u32::from_le_bytes(*word)))
        });
        let begin = ends.next().unwrap_or_default();
        let (mut end, mut sizes) = (begin, Vec::new());
        for next in ends {
            if !sizes.is_empty() && next.saturating_sub(begin) > max_bytes {
                break;
            }
            let size = next
                .checked_sub(end)
                .filter(|size| *size <= limits.sample_bytes);
            let Some(size) = size.and_then(|size| u32::try_from(size).ok()) else {
                return Ok(None);
            };
            sizes.push(size);
            end = next;
        }
        if begin < self.first_offset || end > self.data.len() {
            return Ok(None);
        }
        let mut data = Vec::new();
        let samples = sizes.len() as u64;
        let sizes = sizes.into_iter();
        if encode_header(&entry.config, &self.config_json, sizes, &mut data).is_err() {
            return Ok(None);
        }
        data.extend_from_slice(&self.data.read_range(begin, end - begin)?);
        self.data.check_unchanged()?;
        let name = &entry.raw_data.basename;
        let alone = ShardEntry {
            config: entry.config.clone(),
            samples,
            raw_data: FileInfo {
                basename: name.clone(),
                bytes: data.len() as u64,
                hashes: FileHashes::default(),
            },
            zip_data: None,
            raw_meta: None,
            zip_meta: None,
        };
        Ok(Shard::open(&alone, self.shard, number, name, (data, None), limits).ok())
    }
}

/// A value in an uncompressed MDS shard, which is read by ranges.
#[derive(Clone, Debug)]
pub struct StoredValue {
    in_place: Arc<InPlace>,
    range: Range<u64>,
}

impl StoredValue {
    /// Returns the number of its bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the bytes of a range that are within the value.
    ///
    /// # Errors
    ///
    /// Errors of reading the file.
    pub fn read(&self, range: &Range<u64>) -> Result<Vec<u8>, StorageError> {
        let start = range.start.min(self.len());
        let bytes = range.end.clamp(start, self.len()) - start;
        let data = &self.in_place.data;
        let read = data.read_range(self.range.start + start, bytes)?;
        data.check_unchanged()?;
        Ok(read)
    }
}

/// Opens a raw file if it exists and has the right length.
fn open(dir: &Folder, info: &FileInfo) -> Result<Option<Stored>, StorageError> {
    match dir.open_listed(&info.basename, info.bytes) {
        Ok(file) if file.len() == info.bytes => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
