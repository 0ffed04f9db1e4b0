//! Parts of large row groups: consecutive rows that are read without the rest of the row group.
//!
//! A part begins where a page of the largest column begins. In other columns it may begin within a page, whose first rows
//! are skipped. Pages of other parts are not needed.
//!
//! Source: Apache Parquet, `PageIndex.md`.

use std::ops::Range;
use std::sync::Arc;

use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::page_index::offset_index::PageLocation;

use crate::footer::chunk_range;
use crate::thrift::offset_index;

/// The bytes of a part before compression, approximately. Row groups with more are divided.
const PART_BYTES: u64 = 128 << 20;

/// The fewest rows of a part. The decoder reads the skipped rows as well if there are only a few.
const MIN_ROWS: u64 = 64;

/// A row group, or consecutive rows of one.
#[derive(Clone, Debug)]
pub struct GroupPart {
    /// The number of the row group in the file.
    pub group: usize,
    /// The rows, within the row group.
    pub rows: Range<u64>,
    /// The rows of the file before the row group.
    pub before: u64,
    /// Where the pages of the row group are, if it is divided.
    pub pages: Option<Arc<GroupPages>>,
}

/// Returns the range of a file with the offset indexes of its large row groups: what [`divide_groups`] needs. `None` if no
/// row group is large or has such indexes, or if they have more than `max_bytes`. They end before `data_end`.
#[must_use]
pub fn index_range(
    metadata: &ParquetMetaData,
    data_end: u64,
    max_bytes: u64,
) -> Option<Range<u64>> {
    let groups = metadata.row_groups().iter().filter(|group| is_large(group));
    let ranges = groups.filter_map(group_index_range);
    let ranges = ranges.filter(|range| range.end <= data_end);
    let all = ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))?;
    (all.end - all.start <= max_bytes).then_some(all)
}

/// Divides the large row groups of a file, given the bytes of [`index_range`] and where they begin. Row groups without usable
/// offset indexes stay whole.
#[must_use]
pub fn divide_groups(metadata: &ParquetMetaData, index: &[u8], index_start: u64) -> Vec<GroupPart> {
    let mut parts = Vec::with_capacity(metadata.num_row_groups());
    let mut before = 0;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        let part = |rows, pages| GroupPart {
            group: number,
            rows,
            before,
            pages,
        };
        let pages = match is_large(group) && !index.is_empty() {
            true => GroupPages::decode(group, index, index_start).map(Arc::new),
            false => None,
        };
        let divided = pages.map(|pages| (pages.parts(group, PART_BYTES), pages));
        match divided {
            Some((own, pages)) if own.len() > 1 => {
                parts.extend(
                    own.into_iter()
                        .map(|rows| part(rows, Some(Arc::clone(&pages)))),
                );
            }
            _ => parts.push(part(0..rows, None)),
        }
        before += rows;
    }
    parts
}

fn is_large(group: &RowGroupMetaData) -> bool {
    let rows = u64::try_from(group.num_rows()).unwrap_or(0);
    total_bytes(group) > PART_BYTES && rows >= 2 * MIN_ROWS
}

/// Returns where in the file the offset indexes of a row group are.
fn group_index_range(group: &RowGroupMetaData) -> Option<Range<u64>> {
    let (mut start, mut end) = (u64::MAX, 0);
    for column in group.columns() {
        let own = u64::try_from(column.offset_index_offset()?).ok()?;
        let length = u64::try_from(column.offset_index_length()?).ok()?;
        start = start.min(own);
        end = end.max(own.checked_add(length)?);
    }
    (start < end).then_some(start..end)
}

/// Where the pages of a row group are, as its offset indexes say.
#[derive(Debug, PartialEq, Eq)]
pub struct GroupPages {
    rows: u64,
    /// For each leaf column, its pages.
    leaves: Vec<Vec<PageLocation>>,
}

impl GroupPages {
    /// Reads the offset indexes of a row group. `bytes` begin at `start` in the file. `None` if they do not agree with the
    /// footer.
    fn decode(group: &RowGroupMetaData, bytes: &[u8], start: u64) -> Option<Self> {
        let rows = u64::try_from(group.num_rows()).ok()?;
        let mut leaves = Vec::with_capacity(group.num_columns());
        for column in group.columns() {
            let from = u64::try_from(column.offset_index_offset()?).ok()?;
            let from = usize::try_from(from.checked_sub(start)?).ok()?;
            let length = usize::try_from(column.offset_index_length()?).ok()?;
            let own = bytes.get(from..from.checked_add(length)?)?;
            let pages = offset_index(own).ok()?;
            check_pages(&pages, chunk_range(column)?, rows)?;
            leaves.push(pages);
        }
        Some(Self { rows, leaves })
    }

    /// Returns the rows of each part. They are the same whatever columns are read.
    fn parts(&self, group: &RowGroupMetaData, part_bytes: u64) -> Vec<Range<u64>> {
        let size = |leaf: &usize| {
            group
                .columns()
                .get(*leaf)
                .map_or(0, |chunk| chunk.uncompressed_size())
        };
        // The first one of several that are equally large.
        let largest = (0..self.leaves.len()).rev().max_by_key(size);
        let pages = largest.and_then(|leaf| self.leaves.get(leaf));
        let pages = pages.map(Vec::as_slice).unwrap_or_default();
        let count = total_bytes(group).div_ceil(part_bytes.max(1)).max(1);
        let wanted = self.rows.div_ceil(count).max(MIN_ROWS);
        let mut starts = vec![0];
        let mut last = 0;
        for page in pages {
            let row = u64::try_from(page.first_row_index).unwrap_or(0);
            if row - last >= wanted && self.rows - row >= MIN_ROWS {
                starts.push(row);
                last = row;
            }
        }
        let ends = starts.iter().skip(1).copied().chain([self.rows]);
        starts
            .iter()
            .zip(ends)
            .map(|(start, end)| *start..end)
            .collect()
    }

    /// Returns the pages of a leaf column.
    pub(crate) fn of_leaf(&self, leaf: usize) -> Option<&[PageLocation]> {
        self.leaves.get(leaf).map(Vec::as_slice)
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the ranges of the file that some rows of some leaf columns need: their pages and dictionaries.
    #[must_use]
    pub fn ranges(
        &self,
        group: &RowGroupMetaData,
        leaves: &[usize],
        rows: &Range<u64>,
    ) -> Vec<Range<u64>> {
        let mut ranges = Vec::with_capacity(2 * leaves.len());
        for leaf in leaves {
            let chunk = group.columns().get(*leaf).and_then(chunk_range);
            let (Some((start, _)), Some(pages)) = (chunk, self.of_leaf(*leaf)) else {
                continue;
            };
            let row = |page: &PageLocation| u64::try_from(page.first_row_index).unwrap_or(0);
            let after = pages.partition_point(|page| row(page) < rows.end);
            let first = pages
                .partition_point(|page| row(page) <= rows.start)
                .saturating_sub(1);
            let needed = pages.get(first..after).unwrap_or_default();
            let (Some(first), Some(last), Some(data)) =
                (needed.first(), needed.last(), pages.first())
            else {
                continue;
            };
            ranges.push(start..page_range(data).start);
            ranges.push(page_range(first).start..page_range(last).end);
        }
        ranges
    }
}

/// Returns the bytes of all columns before compression.
fn total_bytes(group: &RowGroupMetaData) -> u64 {
    let sizes = group
        .columns()
        .iter()
        .map(|chunk| u64::try_from(chunk.uncompressed_size()).unwrap_or(0));
    sizes.fold(0, u64::saturating_add)
}

/// Returns where a page is in its file.
pub(crate) fn page_range(page: &PageLocation) -> Range<u64> {
    let start = u64::try_from(page.offset).unwrap_or(0);
    start..start.saturating_add(u64::try_from(page.compressed_page_size).unwrap_or(0))
}

/// Checks that pages lie in their column chunk, one after the other, and begin with ascending rows.
fn check_pages(pages: &[PageLocation], chunk: (u64, u64), rows: u64) -> Option<()> {
    let mut at = chunk.0;
    let mut next_row = 0;
    for (number, page) in pages.iter().enumerate() {
        let offset = u64::try_from(page.offset).ok()?;
        let row = u64::try_from(page.first_row_index).ok()?;
        let is_next = if number == 0 {
            row == 0
        } else {
            row >= next_row
        };
        if page.compressed_page_size <= 0 || offset < at || !is_next || row >= rows {
            return None;
        }
        at = page_range(page).end;
        next_row = row + 1;
    }
    (!pages.is_empty() && at <= chunk.0.checked_add(chunk.1)?).then_some(())
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Array as _, Int64Array, ListArray, RecordBatch, RecordBatchReader as _, StringArray,
    };
    use arrow::datatypes::Int32Type;
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection};
    use parquet::arrow::{ArrowWriter, ProjectionMask, parquet_to_arrow_field_levels};
    use parquet::file::properties::{WriterProperties, WriterVersion};

    use super::*;
    use crate::{ErrorSlot, OneGroup, decode_footer};

    const ROWS: i64 = 5_000;

    fn text(row: i64) -> String {
        "x".repeat(usize::try_from(row * 31 % 97).unwrap())
    }

    /// A file with small pages, which begin with different rows in different columns.
    fn file(version: WriterVersion) -> (Vec<u8>, ParquetMetaData) {
        let lists = (0..ROWS).map(|row| Some((0..row % 4).map(|value| i32::try_from(value).ok())));
        let batch = RecordBatch::try_from_iter_with_nullable([
            (
                "id",
                Arc::new((0..ROWS).collect::<Int64Array>()) as _,
                false,
            ),
            (
                "text",
                Arc::new(
                    (0..ROWS)
                        .map(|row| Some(text(row)))
                        .collect::<StringArray>(),
                ) as _,
                true,
            ),
            (
                "list",
                Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)) as _,
                true,
            ),
        ]);
        let batch = batch.unwrap();
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_data_page_size_limit(2_000)
            .set_data_page_row_count_limit(300)
            .set_write_batch_size(16)
            .set_column_dictionary_enabled("id".into(), false);
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build())).unwrap();
        writer.write(&batch).unwrap();
        let bytes = writer.into_inner().unwrap();
        let end = bytes.len() - 8;
        let length = u32::from_le_bytes(*bytes[end..].first_chunk().unwrap());
        let start = end - usize::try_from(length).unwrap();
        let metadata = decode_footer(&bytes[start..end], start as u64).unwrap();
        (bytes, metadata)
    }

    fn index(bytes: &[u8], metadata: &ParquetMetaData) -> (Vec<u8>, u64) {
        let range = group_index_range(metadata.row_group(0)).unwrap();
        let [start, end] = [range.start, range.end].map(|offset| usize::try_from(offset).unwrap());
        (bytes[start..end].to_vec(), range.start)
    }

    /// Reads rows of all columns, and returns their ids.
    fn read(
        bytes: Vec<u8>,
        metadata: &ParquetMetaData,
        pages: GroupPages,
        rows: &Range<u64>,
    ) -> Result<Vec<i64>, String> {
        let source = OneGroup {
            file: Arc::new(Bytes::from(bytes)),
            metadata: Arc::new(metadata.clone()),
            group: 0,
            pages: Some(Arc::new(pages)),
            page_bytes: 1 << 20,
            errors: ErrorSlot::default(),
        };
        let schema = metadata.file_metadata().schema_descr();
        let levels = parquet_to_arrow_field_levels(schema, ProjectionMask::all(), None).unwrap();
        let [start, end] = [rows.start, rows.end].map(|row| usize::try_from(row).unwrap());
        let selection = RowSelection::from_consecutive_ranges(std::iter::once(start..end), end);
        let reader = ParquetRecordBatchReader::try_new_with_row_groups(
            &levels,
            &source,
            700,
            Some(selection),
        );
        let reader = reader.map_err(|error| error.to_string())?;
        assert_eq!(reader.schema().fields().len(), 3);
        let mut ids = Vec::new();
        for batch in reader {
            let batch = batch.map_err(|error| error.to_string())?;
            let column = |number: usize| batch.column(number).as_any();
            let id = column(0).downcast_ref::<Int64Array>().unwrap();
            let texts = column(1).downcast_ref::<StringArray>().unwrap();
            let lists = column(2).downcast_ref::<ListArray>().unwrap();
            for (position, row) in id.values().iter().enumerate() {
                assert_eq!(texts.value(position), text(*row));
                assert_eq!(lists.value(position).len() as i64, row % 4);
            }
            ids.extend(id.values());
        }
        Ok(ids)
    }

    #[test]
    fn row_group_part_is_read_from_its_own_pages_only() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            parts_are_read(version);
        }
    }

    fn parts_are_read(version: WriterVersion) {
        let (bytes, metadata) = file(version);
        let group = metadata.row_group(0);
        let (index, start) = index(&bytes, &metadata);
        let pages = || GroupPages::decode(group, &index, start).unwrap();
        let total = total_bytes(group);
        for count in [1, 2, 5, 40] {
            let parts = pages().parts(group, total.div_ceil(count));
            assert_eq!(parts.len() > 1, count > 1);
            assert!(parts.len() as u64 <= count);
            let mut next = 0;
            for rows in parts {
                assert_eq!(rows.start, next);
                assert!(rows.end - rows.start >= MIN_ROWS);
                next = rows.end;
                let mut only = vec![0xff; bytes.len()];
                for range in pages().ranges(group, &[0, 1, 2], &rows) {
                    let [from, to] =
                        [range.start, range.end].map(|at| usize::try_from(at).unwrap());
                    only[from..to].copy_from_slice(&bytes[from..to]);
                }
                let ids = read(only, &metadata, pages(), &rows).unwrap();
                assert!(
                    ids.iter()
                        .copied()
                        .eq(rows.start.cast_signed()..rows.end.cast_signed())
                );
            }
            assert_eq!(next, ROWS.cast_unsigned());
        }
    }

    #[test]
    fn corrupt_page_indexes_are_ignored_or_errors() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            damaged_bytes_are_noticed(version);
        }
    }

    fn damaged_bytes_are_noticed(version: WriterVersion) {
        let (bytes, metadata) = file(version);
        let group = metadata.row_group(0);
        let (index, start) = index(&bytes, &metadata);
        let rows = 1_000..2_000;
        let (mut refused, mut failed) = (0, 0);
        for offset in 0..index.len() {
            let mut damaged = index.clone();
            damaged[offset] ^= 1 << (offset % 7);
            let Some(pages) = GroupPages::decode(group, &damaged, start) else {
                refused += 1;
                continue;
            };
            match read(bytes.clone(), &metadata, pages, &rows) {
                Ok(ids) => assert!(ids.into_iter().eq(1_000..2_000), "byte {offset}"),
                Err(_) => failed += 1,
            }
        }
        assert!(refused > 0 && failed > 0);
        assert_eq!(
            GroupPages::decode(group, &index[..index.len() - 1], start),
            None
        );
        assert_eq!(
            divide_groups(&metadata, &index, start).len(),
            1,
            "it is not large"
        );
    }
}
