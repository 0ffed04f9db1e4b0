//! Reads samples of an uncompressed shard without reading the whole shard.

use std::ops::Range;

use shardmill_core::{Format, Limits};
use shardmill_mds::{FileHashes, FileInfo, ShardEntry, encode_header, encode_meta};
use shardmill_storage::{Folder, StorageError, Stored};

use crate::error::DatasetError;
use crate::shard::Shard;

/// The open raw files of a shard. Their lengths, sample count and config match the index.
#[derive(Debug)]
pub(crate) struct InPlace {
    shard: usize,
    data: Stored,
    /// The file of offsets, for formats that store them separately.
    meta: Option<Stored>,
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
        // Late columns are joined with the whole shard.
        if entry.config.late.is_some() {
            return Ok(None);
        }
        // PERF: a raw file next to a compressed one exists only in a local cache, never in a store.
        if dir.is_store() && entry.zip_data.is_some() {
            return Ok(None);
        }
        let Some(data) = open(dir, &entry.raw_data)? else {
            return Ok(None);
        };
        let meta = match &entry.raw_meta {
            None => None,
            Some(info) => match open(dir, info)? {
                Some(meta) => Some(meta),
                None => return Ok(None),
            },
        };
        let mut opened = Self {
            shard,
            data,
            meta,
            config_json: entry.config.to_json(),
            first_offset: 0,
        };
        Ok(opened.check(entry)?.then_some(opened))
    }

    fn check(&mut self, entry: &ShardEntry) -> Result<bool, StorageError> {
        let table = self.meta.as_ref().unwrap_or(&self.data);
        let mut head = [0; 8];
        if table.len() < 8 {
            return Ok(false);
        }
        table.read_at(&mut head, 0)?;
        let (count, first) = pair(head);
        self.first_offset = first;
        // Both are at most 2^32, so nothing here can overflow.
        let after_table = 8 + 4 * count;
        let config_end = if self.meta.is_some() {
            table.len()
        } else {
            first
        };
        let expected = self.config_json.as_bytes();
        if count != entry.samples
            || config_end > table.len()
            || config_end.checked_sub(after_table) != Some(expected.len() as u64)
            || table.read_range(after_table, expected.len() as u64)? != expected
        {
            return Ok(false);
        }
        if self.meta.is_some() {
            let header = entry.config.xsv_header();
            return Ok(first == header.len() as u64
                && first <= self.data.len()
                && self.data.read_range(0, first)? == header);
        }
        Ok(true)
    }

    pub(crate) const fn shard(&self) -> usize {
        self.shard
    }

    /// Reads samples as a shard of their own: of `at`, the first ones that have at most `most_bytes` together, but at least
    /// one. `number` is the stored number of the first one. Returns `None` if anything looks wrong.
    pub(crate) fn samples(
        &self,
        entry: &ShardEntry,
        at: Range<u64>,
        number: u64,
        most_bytes: u64,
        limits: &Limits,
    ) -> Result<Option<Shard>, DatasetError> {
        let table = self.meta.as_ref().unwrap_or(&self.data);
        // INVARIANT: `at.end <= entry.samples`, which equals the count that `check` read, so this is within the table.
        let ends = table.read_range(4 + 4 * at.start, 4 * (at.end - at.start + 1))?;
        let mut ends = ends.chunks_exact(4).filter_map(|word| {
            let word = word.first_chunk()?;
            Some(u64::from(u32::from_le_bytes(*word)))
        });
        let begin = ends.next().unwrap_or_default();
        let (mut end, mut sizes) = (begin, Vec::new());
        for next in ends {
            if !sizes.is_empty() && next.saturating_sub(begin) > most_bytes {
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
        let (mut data, mut meta) = (Vec::new(), Vec::new());
        let samples = sizes.len() as u64;
        let sizes = sizes.into_iter();
        let encoded = if entry.config.format() == Format::Mds {
            encode_header(&entry.config, &self.config_json, sizes, &mut data)
        } else {
            data.extend_from_slice(&entry.config.xsv_header());
            encode_meta(&self.config_json, self.first_offset, sizes, &mut meta)
        };
        if encoded.is_err() {
            return Ok(None);
        }
        data.extend_from_slice(&self.data.read_range(begin, end - begin)?);
        self.data.check_unchanged()?;
        let raw = |info: &FileInfo, bytes: &[u8]| FileInfo {
            basename: info.basename.clone(),
            bytes: bytes.len() as u64,
            hashes: FileHashes::default(),
        };
        let alone = ShardEntry {
            config: entry.config.clone(),
            samples,
            raw_data: raw(&entry.raw_data, &data),
            zip_data: None,
            raw_meta: entry.raw_meta.as_ref().map(|info| raw(info, &meta)),
            zip_meta: None,
        };
        let meta = alone.raw_meta.is_some().then_some(meta);
        Ok(Shard::open(
            &alone,
            self.shard,
            number,
            &entry.raw_data.basename,
            (data, meta),
            limits,
        )
        .ok())
    }
}

/// Opens a raw file if it exists and has the right length.
fn open(dir: &Folder, info: &FileInfo) -> Result<Option<Stored>, StorageError> {
    match dir.open_file(&info.basename) {
        Ok(file) if file.len() == info.bytes => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Decodes two little-endian 32-bit numbers.
fn pair(bytes: [u8; 8]) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h] = bytes;
    (
        u64::from(u32::from_le_bytes([a, b, c, d])),
        u64::from(u32::from_le_bytes([e, f, g, h])),
    )
}
