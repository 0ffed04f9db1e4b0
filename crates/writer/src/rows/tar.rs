//! Encodes record batches as members of tar files.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use shardmill_webdataset::{KEY_DIGITS, Profile, member_bytes, write_member_head};
use xxhash_rust::xxh3::xxh3_128;

use super::{BatchError, CHUNK_BYTES, RowEncoder, TarKeys, TarRows};
use crate::chunk::{BufferPool, Chunk, Origin};
use crate::columns::{EncodedColumn, string_slices};
use crate::error::{RowError, ValueReason};

/// The block size of tar files. Every member is padded to a multiple of it.
const BLOCK: usize = 512;

impl RowEncoder {
    pub(super) fn encode_tar(
        &self,
        rows: &TarRows,
        batch: &RecordBatch,
        encoded_column: &[EncodedColumn],
        mut origin: Origin,
        pool: &Arc<BufferPool>,
        mut emit: impl FnMut(Chunk),
    ) -> Result<(), BatchError> {
        let samples = Samples {
            encoder: self,
            profile: rows.profile,
            encoded_column,
            absent: self
                .columns
                .iter()
                .map(|column| match column.omits_null() {
                    true => batch.column(column.source()).logical_nulls(),
                    false => None,
                })
                .collect(),
            keys: match &rows.keys {
                TarKeys::Number => None,
                TarKeys::Column { source, .. } => Some(keys(batch.column(*source))?),
            },
        };
        let mut sizes = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            sizes.push(samples.size(row)?);
        }
        let remembers = matches!(rows.keys, TarKeys::Column { unique: false, .. });
        let mut start = 0;
        let mut name = String::new();
        let mut head = Vec::new();
        while start < sizes.len() {
            let mut end = start;
            let mut bytes = 0_usize;
            // A chunk is one sample, which is below 4 GiB, or at most `CHUNK_BYTES` long. So its length fits the 32-bit
            // `ends`.
            while end < sizes.len() && (end == start || bytes + sizes[end] <= CHUNK_BYTES) {
                bytes += sizes[end];
                end += 1;
            }
            let mut out = pool.take(bytes);
            let mut ends = Vec::with_capacity(end - start);
            let mut hashes = Vec::new();
            let mut at = 0;
            for row in start..end {
                at = samples.write(row, at, &mut out, &mut name, &mut head)?;
                ends.push(u32::try_from(at).unwrap_or(u32::MAX));
                if remembers {
                    hashes.push(xxh3_128(samples.key(row)));
                }
            }
            let mut chunk = Chunk::new(out, ends, origin, pool);
            chunk.keys = hashes;
            emit(chunk);
            origin.first += u64::try_from(end - start).unwrap_or(0);
            start = end;
        }
        Ok(())
    }
}

/// Converts the key column to text.
fn keys(array: &ArrayRef) -> Result<EncodedColumn, BatchError> {
    if let Some(nulls) = array.logical_nulls()
        && nulls.null_count() > 0
    {
        let row = (0..array.len()).find(|row| nulls.is_null(*row));
        return Err(BatchError::KeyNull {
            row: row.unwrap_or(0),
        });
    }
    let text = match array.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(ArrayRef::clone(array)),
        _ => cast(array, &DataType::LargeUtf8),
    };
    let encoded_column = text.ok().and_then(|text| string_slices(&text));
    encoded_column.ok_or_else(|| BatchError::Value {
        column: usize::MAX,
        error: RowError {
            row: 0,
            reason: ValueReason::Range {
                value: format!("a value of type {}", array.data_type()),
                encoding: "a key".to_owned(),
            },
        },
    })
}

/// The samples of one batch.
struct Samples<'a> {
    encoder: &'a RowEncoder,
    profile: Profile,
    encoded_column: &'a [EncodedColumn],
    /// The nulls of columns that leave out null values.
    absent: Vec<Option<NullBuffer>>,
    keys: Option<EncodedColumn>,
}

impl Samples<'_> {
    fn key(&self, row: usize) -> &[u8] {
        match &self.keys {
            Some(keys) => keys.value(row).1,
            None => &[b'0'; KEY_DIGITS],
        }
    }

    /// Returns the columns that are present in the sample.
    fn present(&self, row: usize) -> impl Iterator<Item = usize> {
        let absent = self.absent.iter().enumerate();
        absent
            .filter(move |(_, nulls)| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)))
            .map(|(column, _)| column)
    }

    fn field(&self, column: usize) -> &str {
        self.encoder.columns.get(column).map_or("", |c| c.name())
    }

    /// Returns whether a member name fits into a plain tar header.
    fn is_plain(key: &[u8], field: &str) -> bool {
        key.len() + 1 + field.len() <= 100 && key.is_ascii() && field.is_ascii()
    }

    /// Returns the size of a sample in its shard, in bytes.
    fn size(&self, row: usize) -> Result<usize, BatchError> {
        let key = self.key(row);
        let text = std::str::from_utf8(key).unwrap_or_default();
        if self.keys.is_some() {
            self.profile
                .check_key(text)
                .map_err(|error| BatchError::Key { row, error })?;
        }
        let mut size = 0_usize;
        for column in self.present(row) {
            let bytes = self
                .encoded_column
                .get(column)
                .map_or(0, |encoded_column| encoded_column.len(row));
            let field = self.field(column);
            let member = if Self::is_plain(key, field) {
                BLOCK + bytes.next_multiple_of(BLOCK)
            } else {
                let name = format!("{text}.{field}");
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                let member = member_bytes(self.profile.style, &name, bytes)
                    .map_err(|error| BatchError::Member { column, row, error })?;
                usize::try_from(member).unwrap_or(usize::MAX)
            };
            size = size.saturating_add(member);
        }
        if size == 0 {
            let error = shardmill_webdataset::WriteError::NoFields {
                key: text.to_owned(),
            };
            return Err(BatchError::Key { row, error });
        }
        let limit = usize::try_from(self.encoder.sample_limit).unwrap_or(usize::MAX);
        if size > limit {
            return Err(BatchError::SampleTooLarge {
                row,
                bytes: u64::try_from(size).unwrap_or(u64::MAX),
                limit: self.encoder.sample_limit,
            });
        }
        Ok(size)
    }

    /// Writes a sample at `at` and returns its end. This is the only copy of the bytes between Arrow and the shard.
    fn write(
        &self,
        row: usize,
        mut at: usize,
        out: &mut [u8],
        name: &mut String,
        head: &mut Vec<u8>,
    ) -> Result<usize, BatchError> {
        let key = std::str::from_utf8(self.key(row)).unwrap_or_default();
        for column in self.present(row) {
            let Some(encoded_column) = self.encoded_column.get(column) else {
                continue;
            };
            name.clear();
            name.push_str(key);
            name.push('.');
            name.push_str(self.field(column));
            let bytes = encoded_column.len(row);
            head.clear();
            let length = u64::try_from(bytes).unwrap_or(u64::MAX);
            write_member_head(self.profile.style, name, length, head)
                .map_err(|error| BatchError::Member { column, row, error })?;
            let (prefix, value) = encoded_column.value(row);
            let padding = bytes.next_multiple_of(BLOCK) - bytes;
            for part in [head.as_slice(), prefix, value, &[0; BLOCK][..padding]] {
                out[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
        }
        Ok(at)
    }
}
