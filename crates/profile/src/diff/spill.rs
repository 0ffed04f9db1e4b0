//! Rows divided among buckets by their keys: in memory at first, in temporary files beyond a limit.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use shardmill_core::{ErrorKind, io_error_id};
use shardmill_source::SourceError;

/// The most bytes in memory before they are written to files.
const MAX_BUFFERED: usize = 64 << 20;

/// The most bytes of a key that are kept for messages.
const KEY_BYTES: usize = 200;

/// A row without its values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Record {
    pub(super) key_hash: u128,
    pub(super) row: u64,
    /// The beginning of the key.
    pub(super) key: String,
    /// The hash of each compared value.
    pub(super) hashes: Vec<u64>,
}

/// The rows of one source.
pub(super) struct Spill<'a> {
    buckets: Vec<Bucket>,
    buffered: usize,
    temp_dir: Option<&'a Path>,
    hashes: usize,
}

#[derive(Default)]
struct Bucket {
    buffer: Vec<u8>,
    /// The rows that were written before those of the buffer.
    file: Option<File>,
}

impl<'a> Spill<'a> {
    /// Creates buckets for rows with this number of hashes.
    pub(super) fn new(buckets: usize, hashes: usize, temp_dir: Option<&'a Path>) -> Self {
        Self {
            buckets: (0..buckets.max(1)).map(|_| Bucket::default()).collect(),
            buffered: 0,
            temp_dir,
            hashes,
        }
    }

    pub(super) fn push(
        &mut self,
        key_hash: u128,
        row: u64,
        key: &str,
        hashes: impl Iterator<Item = u64>,
    ) -> Result<(), SourceError> {
        let buckets = self.buckets.len() as u128;
        let at = usize::try_from(key_hash % buckets).unwrap_or(0);
        let Some(bucket) = self.buckets.get_mut(at) else {
            return Ok(());
        };
        let key = key
            .get(..key.floor_char_boundary(KEY_BYTES))
            .unwrap_or_default();
        let before = bucket.buffer.len();
        bucket.buffer.extend_from_slice(&key_hash.to_le_bytes());
        bucket.buffer.extend_from_slice(&row.to_le_bytes());
        bucket.buffer.push(u8::try_from(key.len()).unwrap_or(0));
        bucket.buffer.extend_from_slice(key.as_bytes());
        for hash in hashes {
            bucket.buffer.extend_from_slice(&hash.to_le_bytes());
        }
        self.buffered += bucket.buffer.len() - before;
        if self.buffered > MAX_BUFFERED {
            self.flush().map_err(|error| self.error(&error))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        for bucket in &mut self.buckets {
            if bucket.buffer.is_empty() {
                continue;
            }
            let file = match &mut bucket.file {
                Some(file) => file,
                empty => empty.insert(match self.temp_dir {
                    Some(dir) => tempfile::tempfile_in(dir)?,
                    None => tempfile::tempfile()?,
                }),
            };
            file.write_all(&bucket.buffer)?;
            bucket.buffer = Vec::new();
        }
        self.buffered = 0;
        Ok(())
    }

    /// Returns the rows of a bucket in the order of their keys, and of their numbers for equal keys.
    pub(super) fn take(&mut self, at: usize) -> Result<Vec<Record>, SourceError> {
        let Some(bucket) = self.buckets.get_mut(at) else {
            return Ok(Vec::new());
        };
        let Bucket { buffer, file } = std::mem::take(bucket);
        let mut bytes = Vec::new();
        if let Some(mut file) = file {
            let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
            read.map_err(|error| self.error(&error))?;
        }
        bytes.extend_from_slice(&buffer);
        let mut rest = &bytes[..];
        let mut records = Vec::new();
        while !rest.is_empty() {
            let Some(record) = read(&mut rest, self.hashes) else {
                return Err(SourceError::bug("a temporary file of rows is cut short"));
            };
            records.push(record);
        }
        records.sort_unstable();
        Ok(records)
    }

    fn error(&self, error: &io::Error) -> SourceError {
        let dir = self
            .temp_dir
            .map(Path::to_owned)
            .unwrap_or_else(std::env::temp_dir);
        SourceError::Described {
            kind: ErrorKind::from(error),
            id: io_error_id(error),
            object: Some(dir.display().to_string()),
            message: format!("cannot keep rows in a temporary file: {error}"),
            hint: Some("choose another directory with --temp-dir".to_owned()),
        }
    }
}

fn read(rest: &mut &[u8], hashes: usize) -> Option<Record> {
    let key_hash = u128::from_le_bytes(*rest.split_off(..16)?.as_array()?);
    let row = u64::from_le_bytes(*rest.split_off(..8)?.as_array()?);
    let length = usize::from(*rest.split_off_first()?);
    let key = String::from_utf8_lossy(rest.split_off(..length)?).into_owned();
    let mut record = Record {
        key_hash,
        row,
        key,
        hashes: Vec::with_capacity(hashes),
    };
    for _ in 0..hashes {
        let hash = u64::from_le_bytes(*rest.split_off(..8)?.as_array()?);
        record.hashes.push(hash);
    }
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip_through_memory_and_spill_files() {
        for spilled in [false, true] {
            let mut spill = Spill::new(3, 2, None);
            for row in (0..1000_u64).rev() {
                let key = "é".repeat(150);
                spill
                    .push(u128::from(row % 10), row, &key, [row, 7].into_iter())
                    .unwrap();
                if spilled && row % 100 == 0 {
                    spill.flush().unwrap();
                }
            }
            let mut count = 0;
            for bucket in 0..3 {
                let records = spill.take(bucket).unwrap();
                assert!(records.is_sorted());
                for record in &records {
                    assert_eq!(record.key_hash % 3, bucket as u128);
                    assert_eq!(record.hashes, [record.row, 7]);
                    assert_eq!(record.key, "é".repeat(100));
                }
                count += records.len();
            }
            assert_eq!(count, 1000);
        }
    }

    #[test]
    fn unwritable_spill_directory_is_an_error() {
        let mut spill = Spill::new(1, 0, Some(Path::new("/nonexistent")));
        spill.push(1, 1, "", [].into_iter()).unwrap();
        let error = spill.flush().unwrap_err();
        let shown = spill.error(&error).to_string();
        assert!(shown.contains("temporary file"), "{shown}");
    }
}
