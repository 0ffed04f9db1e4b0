//! The number of rows that are decoded together, so that a batch fits into memory.

use arrow::datatypes::DataType;
use parquet::basic::Type as PhysicalType;
use parquet::column::page::{Page, PageReader as _};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::ChunkReader;
use shardmill_core::catch_panic::catch;

use crate::pages::OneGroup;

/// The most rows in a batch. Larger batches are not faster.
const MAX_ROWS: u64 = 65_536;
/// The most bytes that one dictionary-encoded column may take in a batch if every value is the longest one.
const WORST_BYTES: u64 = 1 << 30;

/// Returns the bytes that every row takes, whatever its values. Lists of a fixed size are padded if they are null.
#[must_use]
pub fn fixed_bytes(data_type: &DataType) -> u64 {
    match data_type {
        DataType::FixedSizeList(field, size) => {
            let size = u64::try_from(*size).unwrap_or(0);
            size.saturating_mul(fixed_bytes(field.data_type()).max(1))
        }
        DataType::FixedSizeBinary(size) => u64::try_from(*size).unwrap_or(0),
        DataType::Struct(fields) => fields
            .iter()
            .map(|field| fixed_bytes(field.data_type()))
            .fold(0, u64::saturating_add),
        other => other.primitive_width().unwrap_or(0) as u64,
    }
}

/// Returns the number of rows for a batch of about `batch_bytes`. Each row takes at least `padded` bytes.
pub fn batch_rows<R: ChunkReader + 'static>(
    source: &OneGroup<R>,
    leaves: &[usize],
    padded: u64,
    batch_bytes: usize,
) -> usize {
    let Some(group) = source.metadata.row_groups().get(source.group) else {
        return 1;
    };
    let rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
    let mut bytes = 0_u64;
    let mut max = MAX_ROWS;
    for leaf in leaves {
        let Some(chunk) = group.columns().get(*leaf) else {
            continue;
        };
        let values = u64::try_from(chunk.num_values()).unwrap_or(0);
        let mut own = u64::try_from(chunk.uncompressed_size()).unwrap_or(0);
        let width = match chunk.column_type() {
            PhysicalType::BOOLEAN => 1,
            PhysicalType::INT32 | PhysicalType::FLOAT => 4,
            PhysicalType::INT64 | PhysicalType::DOUBLE | PhysicalType::INT96 => 8,
            PhysicalType::FIXED_LEN_BYTE_ARRAY => {
                u64::try_from(chunk.column_descr().type_length()).unwrap_or(0)
            }
            PhysicalType::BYTE_ARRAY => 4,
        };
        own = own.max(values.saturating_mul(width));
        if chunk.column_type() == PhysicalType::BYTE_ARRAY {
            let claimed = chunk
                .unencoded_byte_array_data_bytes()
                .and_then(|bytes| u64::try_from(bytes).ok());
            own = own.max(claimed.unwrap_or(0));
            // A dictionary hides the size of its values: a row group of a few kilobytes may contain a million copies of
            // a value of one megabyte.
            if let Some((mean, longest)) = dictionary_lengths(source, chunk, *leaf) {
                own = own.max(values.saturating_mul(mean));
                let per_row = values.div_ceil(rows).max(1);
                max = max.min(WORST_BYTES / longest.saturating_mul(per_row).max(1));
            }
        }
        bytes = bytes.saturating_add(own);
    }
    let per_row = (bytes / rows).max(padded).max(1);
    let fitting = (batch_bytes as u64 / per_row).min(max).clamp(1, MAX_ROWS);
    usize::try_from(fitting).unwrap_or(1)
}

/// Returns the mean and the greatest length of the values in a chunk's dictionary. `None` without one, and for a broken
/// one, which the reader reports.
fn dictionary_lengths<R: ChunkReader + 'static>(
    source: &OneGroup<R>,
    chunk: &ColumnChunkMetaData,
    leaf: usize,
) -> Option<(u64, u64)> {
    chunk.dictionary_page_offset()?;
    let page = catch(|| {
        source
            .pages(leaf)
            .and_then(|mut pages| pages.get_next_page())
    })
    .ok()?
    .ok()??;
    let Page::DictionaryPage {
        buf, num_values, ..
    } = page
    else {
        return None;
    };
    let (mut rest, mut longest, mut total) = (buf.as_ref(), 0_u64, 0_u64);
    for _ in 0..num_values {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length);
        rest = after.get(usize::try_from(length).ok()?..)?;
        longest = longest.max(u64::from(length));
        total += u64::from(length);
    }
    Some((total / u64::from(num_values).max(1), longest))
}
