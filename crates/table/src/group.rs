//! Row groups and parts of large ones: which bytes of a file they need, and how these become an MDS shard.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, BooleanArray, new_null_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{FieldRef, Fields};
use arrow::record_batch::RecordBatch;
use bytes::{Buf as _, Bytes};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};
use roaring::RoaringTreemap;
use shardmill_core::catch_panic::{attempt, catch, one_line};
use shardmill_core::{Error, Limits, lock};
use shardmill_delta::{ColumnOrigin, Found, Shape, file_fields};
use shardmill_parquet::{
    ErrorSlot, GroupPart, OneGroup, PageProblem, arrow_fields, batch_rows, divide_groups,
    fixed_bytes, group_ranges, repeated,
};
use shardmill_writer::MemoryShard;

use crate::columns::{TableColumns, column_of, sample_values};
use crate::error::{self, Problem};
use crate::files::{FileBytes, TableFiles};

/// Chunks that are at most this many bytes apart are fetched together: a request takes as long as this many bytes.
const MAX_GAP: u64 = 1 << 20;

/// The approximate number of bytes that are decoded together.
const BATCH_BYTES: usize = 8 << 20;

/// Where the columns of a stream are in a file.
#[derive(Debug)]
pub(crate) struct FileColumns {
    pub(crate) metadata: Arc<ParquetMetaData>,
    /// The columns of the file, as they are decoded.
    fields: Fields,
    /// Where each column of the stream comes from.
    columns: Vec<ColumnOrigin>,
    deleted: Option<Arc<RoaringTreemap>>,
    /// The row groups. Large ones are divided.
    pub(crate) parts: Vec<GroupPart>,
}

impl FileColumns {
    /// Finds the columns of a stream in a file.
    pub(crate) fn new(
        files: &TableFiles,
        number: usize,
        metadata: Arc<ParquetMetaData>,
        index: &FileBytes,
        columns: &TableColumns,
    ) -> Result<Self, Error> {
        let file = &*files.name(number);
        let parts = divide_groups(&metadata, &index.bytes, index.start);
        let wanted = columns.stored.iter();
        let Some(delta) = &files.delta else {
            let fields =
                arrow_fields(&metadata).map_err(|problem| error::fields(file, &problem))?;
            let descr = metadata.file_metadata().schema_descr();
            let origin = |field: &FieldRef| {
                let mut folders = files.partitions.fields.iter();
                if let Some(position) = folders.position(|own| own.name() == field.name()) {
                    let value = files.partitions.value(number, position);
                    return Ok(ColumnOrigin::Constant(value));
                }
                let root = column_of(file, &fields, field)?;
                let leaves = 0..descr.num_columns();
                let leaves = leaves.filter(|leaf| descr.get_column_root_idx(*leaf) == root);
                Ok(ColumnOrigin::Stored(Found {
                    root,
                    leaves: leaves.collect(),
                    shape: Shape::Leaf(field.data_type().clone()),
                }))
            };
            return Ok(Self {
                columns: wanted.map(origin).collect::<Result<_, Error>>()?,
                metadata,
                fields,
                deleted: None,
                parts,
            });
        };
        let fields = file_fields(file, &metadata)?;
        let version = &delta.version;
        let partition_values = delta.partition_values(number)?;
        let rows = metadata.row_groups().iter();
        let rows = rows.map(|group| u64::try_from(group.num_rows()).unwrap_or(0));
        let deleted = delta.deleted(number, rows.sum())?;
        let number_of = |field: &FieldRef| {
            let mut own = version.columns().iter();
            let position = own.position(|column| column.field.name() == field.name());
            position
                .ok_or_else(|| Problem::Columns.at(field.name(), "the table has no such column"))
        };
        let numbers = wanted.map(number_of).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            columns: version.locate(file, &fields, &partition_values, numbers)?,
            metadata,
            fields,
            deleted,
            parts,
        })
    }

    /// Returns the leaves of each column.
    fn leaves(&self) -> Vec<Vec<usize>> {
        let leaves = self.columns.iter().map(|origin| match origin {
            ColumnOrigin::Stored(found) => found.leaves.clone(),
            ColumnOrigin::Constant(_) | ColumnOrigin::Missing => Vec::new(),
        });
        leaves.collect()
    }

    /// Returns whether a column of the stream may have nulls in this file.
    pub(crate) fn may_have_nulls(&self, column: usize, is_nullable: bool) -> bool {
        match self.columns.get(column).filter(|_| is_nullable) {
            None => false,
            Some(ColumnOrigin::Constant(value)) => value.logical_null_count() > 0,
            Some(ColumnOrigin::Missing) => true,
            // The count of a leaf includes empty lists and other children, so more columns than those with nulls are
            // found.
            Some(ColumnOrigin::Stored(Found { leaves, .. })) => {
                let groups = self.metadata.row_groups().iter();
                let mut groups = groups.filter(|group| group.num_rows() > 0);
                groups.any(|group| {
                    let chunks = leaves.iter().filter_map(|leaf| group.columns().get(*leaf));
                    let counts = chunks.map(|chunk| chunk.statistics()?.null_count_opt());
                    counts.into_iter().any(|count| count != Some(0))
                })
            }
        }
    }

    /// Returns the leaves of all columns, ascending.
    fn all_leaves(&self) -> Vec<usize> {
        let mut leaves = self.leaves().concat();
        if leaves.is_empty() {
            // Without any leaf, the decoder could not tell how many rows there are.
            leaves.push(0);
        }
        leaves.sort_unstable();
        leaves
    }

    /// Returns the number of rows of a part that are not deleted.
    pub(crate) fn live_rows(&self, part: &GroupPart) -> u64 {
        let deleted = self.deleted.as_ref();
        let rows = part.before + part.rows.start..part.before + part.rows.end;
        rows.end - rows.start - deleted.map_or(0, |deleted| deleted.range_cardinality(rows))
    }

    /// Returns the expected length of the shard of a part.
    pub(crate) fn shard_bytes(&self, part: &GroupPart, columns: &TableColumns) -> u64 {
        let Some(group) = self.metadata.row_groups().get(part.group) else {
            return 0;
        };
        let whole = columns.shard_bytes(group, &self.leaves());
        let all_rows = u64::try_from(group.num_rows()).unwrap_or(0).max(1);
        let rows = part.rows.end - part.rows.start;
        let share = u128::from(whole) * u128::from(rows) / u128::from(all_rows);
        u64::try_from(share).unwrap_or(whole)
    }

    /// Returns the ranges of the file that a part needs. Ranges close to each other are joined.
    pub(crate) fn ranges(&self, part: &GroupPart) -> Vec<Range<u64>> {
        let group = self.metadata.row_groups().get(part.group);
        let mut chunks = match group.zip(part.pages.as_ref()) {
            Some((group, pages)) => pages.ranges(group, &self.all_leaves(), &part.rows),
            None => group_ranges(&self.metadata, part.group, &self.all_leaves()),
        };
        chunks.retain(|range| !range.is_empty());
        chunks.sort_unstable_by_key(|range| range.start);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for chunk in chunks {
            match ranges.last_mut() {
                Some(last) if chunk.start <= last.end.saturating_add(MAX_GAP) => {
                    last.end = last.end.max(chunk.end);
                }
                _ => ranges.push(chunk),
            }
        }
        ranges
    }

    /// Decodes a part and encodes its rows as an MDS shard. `bytes` are those of [`Self::ranges`]. `name` is the row group
    /// in messages.
    pub(crate) fn shard(
        &self,
        part: &GroupPart,
        name: &str,
        bytes: Vec<u8>,
        columns: &TableColumns,
        limits: &Limits,
    ) -> Result<Vec<u8>, Error> {
        let damaged = |reason: &str| Problem::Corrupt.at(name, one_line(reason));
        let size = |rows| usize::try_from(rows).map_err(|_| damaged("it has too many rows"));
        let rows = size(part.rows.start)?..size(part.rows.end)?;
        let live = size(self.live_rows(part))?;
        let errors = ErrorSlot::default();
        let source = OneGroup {
            file: Arc::new(FileParts::new(self.ranges(part), bytes)),
            metadata: Arc::clone(&self.metadata),
            group: part.group,
            pages: part.pages.clone(),
            page_bytes: limits.parquet.page_bytes,
            errors: Arc::clone(&errors),
        };
        let descr = self.metadata.file_metadata().schema_descr();
        let leaves = self.all_leaves();
        let fields = columns.schema.fields().iter();
        let padded = fields.map(|field| fixed_bytes(field.data_type()));
        let padded = padded.fold(0, u64::saturating_add);
        let together = batch_rows(&source, &leaves, padded, BATCH_BYTES);
        // Errors of pages are more precise than those of the decoder.
        let failed = |reason: &str| {
            let mut found = lock(&errors);
            match found.take() {
                None => damaged(reason),
                Some(page) => {
                    // The error of a shard names the row group only.
                    let reason = |reason: &str| format!("column `{}`: {reason}", page.column);
                    match page.problem {
                        PageProblem::Damaged(text) => damaged(&reason(&text)),
                        PageProblem::Large(limit) => {
                            Problem::Limit.at(name, reason(&limit.to_string()))
                        }
                    }
                }
            }
        };
        let mask = ProjectionMask::leaves(descr, leaves.iter().copied());
        let levels = attempt(|| parquet_to_arrow_field_levels(descr, mask, Some(&self.fields)));
        let levels = levels.map_err(|reason| damaged(&reason))?;
        let selection = part.pages.is_some().then(|| {
            RowSelection::from_consecutive_ranges(std::iter::once(rows.clone()), rows.end)
        });
        let open = || {
            ParquetRecordBatchReader::try_new_with_row_groups(&levels, &source, together, selection)
        };
        let mut reader = attempt(open).map_err(|reason| failed(&reason))?;
        // The decoder returns the columns in the order of the file, and only those that have a leaf.
        let mut in_file: Vec<usize> = leaves
            .iter()
            .map(|leaf| descr.get_column_root_idx(*leaf))
            .collect();
        in_file.dedup();
        let mut shard =
            MemoryShard::new(&columns.encoder, &columns.config, live, limits.shard_bytes);
        let mut first = rows.start;
        loop {
            let batch = match catch(|| reader.next()) {
                Ok(None) => break,
                Ok(Some(Ok(batch))) => batch,
                Ok(Some(Err(error))) => return Err(failed(&error.to_string())),
                Err(panic) => return Err(failed(&panic)),
            };
            if first + batch.num_rows() > rows.end {
                return Err(damaged("it has more rows than the footer says"));
            }
            let decoded = self.table_columns(&batch, &in_file, columns);
            let decoded = decoded.map_err(|reason| damaged(&reason))?;
            check_required(&decoded, columns, name)?;
            let values = decoded.iter().zip(&columns.stored);
            let values = values.map(|(array, field)| sample_values(array, field));
            let decoded = values
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| damaged(&error.to_string()))?;
            let whole = RecordBatch::try_new(Arc::clone(&columns.schema), decoded)
                .map_err(|error| damaged(&error.to_string()))?;
            let start = part.before + first as u64;
            let count = whole.num_rows();
            let mask = self.live_mask(start, count);
            let live = match &mask {
                None => Ok(whole),
                Some(mask) => filter_record_batch(&whole, mask),
            };
            let filled = live.and_then(|live| columns.nulls.apply(live));
            let (filled, _) = filled.map_err(|error| damaged(&error.to_string()))?;
            let pushed = shard.push(&filled, |row| {
                let kept = mask
                    .as_ref()
                    .map(|mask| mask.values().set_indices().nth(row));
                format!("{name} row {}", first + kept.flatten().unwrap_or(row))
            });
            pushed.map_err(error::value)?;
            first += count;
        }
        if first < rows.end {
            let reason = format!("it ends {} rows before the footer says", rows.end - first);
            return Err(failed(&reason));
        }
        shard.finish()
    }

    /// Returns the columns of the stream, given decoded columns and their numbers in the file.
    fn table_columns(
        &self,
        batch: &RecordBatch,
        in_file: &[usize],
        columns: &TableColumns,
    ) -> Result<Vec<ArrayRef>, String> {
        let rows = batch.num_rows();
        let fields = &columns.stored;
        let column = |(origin, field): (&ColumnOrigin, &FieldRef)| match origin {
            ColumnOrigin::Stored(Found { root, shape, .. }) => {
                let position = in_file.binary_search(root).ok();
                let column = position.and_then(|position| batch.columns().get(position));
                let column = column.ok_or_else(|| format!("column {root} was not decoded"))?;
                let shaped = catch(|| shape.apply(column))?;
                shaped.map_err(|error| error.to_string())
            }
            ColumnOrigin::Constant(value) => {
                repeated(value, rows).map_err(|error| error.to_string())
            }
            ColumnOrigin::Missing => Ok(new_null_array(field.data_type(), rows)),
        };
        self.columns.iter().zip(fields).map(column).collect()
    }

    /// Returns which of `rows` rows from `start` are not deleted; `None` if none is.
    fn live_mask(&self, start: u64, rows: usize) -> Option<BooleanArray> {
        let deleted = self.deleted.as_ref()?;
        let range = start..start + rows as u64;
        if deleted.range_cardinality(range.clone()) == 0 {
            return None;
        }
        let live = range.map(|row| Some(!deleted.contains(row)));
        Some(live.collect())
    }
}

/// Checks that required columns have no nulls, which the decoder does not.
fn check_required(decoded: &[ArrayRef], columns: &TableColumns, name: &str) -> Result<(), Error> {
    for (column, field) in decoded.iter().zip(&columns.stored) {
        if !field.is_nullable() && column.logical_null_count() > 0 {
            let reason = format!("column `{}` has nulls though it is required", field.name());
            return Err(Problem::Corrupt.at(name, reason));
        }
    }
    Ok(())
}

/// Parts of a file in memory. Other parts cannot be read.
struct FileParts {
    /// The ranges of the file, and where each begins in `bytes`.
    ranges: Vec<(Range<u64>, usize)>,
    bytes: Bytes,
}

impl FileParts {
    fn new(ranges: Vec<Range<u64>>, bytes: Vec<u8>) -> Self {
        let mut at = 0;
        let ranges = ranges.into_iter().map(|range| {
            let start = at;
            at += usize::try_from(range.end - range.start).unwrap_or(0);
            (range, start)
        });
        Self {
            ranges: ranges.collect(),
            bytes: Bytes::from(bytes),
        }
    }

    /// Returns the bytes from a position of the file to the end of the part.
    fn rest(&self, start: u64) -> ParquetResult<Bytes> {
        let missing = || ParquetError::General(format!("byte {start} lies outside the columns"));
        let after = self
            .ranges
            .partition_point(|(range, _)| range.start <= start);
        let (range, at) = after
            .checked_sub(1)
            .and_then(|index| self.ranges.get(index))
            .ok_or_else(missing)?;
        let length = range.end.checked_sub(start).ok_or_else(missing)?;
        let from = at + usize::try_from(start - range.start).map_err(|_| missing())?;
        let end = from.saturating_add(usize::try_from(length).map_err(|_| missing())?);
        match end <= self.bytes.len() {
            true => Ok(self.bytes.slice(from..end)),
            false => Err(missing()),
        }
    }
}

impl Length for FileParts {
    fn len(&self) -> u64 {
        self.ranges.last().map_or(0, |(range, _)| range.end)
    }
}

impl ChunkReader for FileParts {
    type T = Box<dyn Read + Send>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(Box::new(self.rest(start)?.reader()))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let rest = self.rest(start)?;
        match length <= rest.len() {
            true => Ok(rest.slice(..length)),
            false => Err(ParquetError::General(format!(
                "bytes {start}+{length} go beyond the columns"
            ))),
        }
    }
}
