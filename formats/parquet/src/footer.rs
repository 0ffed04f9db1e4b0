//! Decodes footers, and checks every claim in them against the bytes of the file.

use std::ops::Range;

use arrow::datatypes::{DataType, Fields};
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use shardmill_core::catch_panic::attempt;
use shardmill_core::{LimitExceeded, Limits};

use crate::thrift::check_footer;

/// The last bytes of a file: the length of the footer and the magic.
pub const END_BYTES: u64 = 8;

const MAGIC: &[u8] = b"PAR1";
const MAGIC_ENCRYPTED: &[u8] = b"PARE";

/// Why bytes are not the footer of a Parquet file that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FooterProblem {
    /// The file is shorter than any Parquet file.
    #[error("is cut short: {0} bytes, and the smallest Parquet file has 12")]
    Short(u64),
    /// The file does not end as a Parquet file does.
    #[error("is cut short: it does not end with PAR1")]
    Magic,
    /// The file is encrypted.
    #[error("is encrypted, which is not supported")]
    Encrypted,
    /// The footer is larger than a limit.
    #[error("the footer: {0}")]
    Large(LimitExceeded),
    /// The footer is damaged, or claims what the file does not have.
    #[error("footer: {0}")]
    Damaged(String),
}

/// Returns where the footer of a file of `size` bytes is, from the end of the file. The footer has at most `max_bytes`.
///
/// # Errors
///
/// [`FooterProblem`]
pub fn footer_range(tail: &[u8], size: u64, max_bytes: u64) -> Result<Range<u64>, FooterProblem> {
    let end = tail.last_chunk::<8>().filter(|_| size >= 12);
    let [l0, l1, l2, l3, magic @ ..] = end.ok_or(FooterProblem::Short(size))?;
    check_start(magic)?;
    let length = u64::from(u32::from_le_bytes([*l0, *l1, *l2, *l3]));
    Limits::check("parquet-footer-bytes", length, max_bytes).map_err(FooterProblem::Large)?;
    let end = size - END_BYTES;
    match end.checked_sub(length) {
        // The magic of the start is before the footer.
        Some(start) if start >= 4 => Ok(start..end),
        _ => Err(FooterProblem::Damaged(format!(
            "claims {length} bytes in a file of {size}"
        ))),
    }
}

/// Checks the first four bytes of a file.
///
/// # Errors
///
/// [`FooterProblem::Magic`] and [`FooterProblem::Encrypted`].
pub fn check_start(start: &[u8]) -> Result<(), FooterProblem> {
    match start {
        MAGIC => Ok(()),
        MAGIC_ENCRYPTED => Err(FooterProblem::Encrypted),
        _ => Err(FooterProblem::Magic),
    }
}

/// Decodes a footer. `data_end` is the position of the footer in its file.
///
/// # Errors
///
/// [`FooterProblem::Encrypted`] and [`FooterProblem::Damaged`].
pub fn decode_footer(footer: &[u8], data_end: u64) -> Result<ParquetMetaData, FooterProblem> {
    let encrypted = check_footer(footer);
    if encrypted.map_err(|reason| FooterProblem::Damaged(reason.to_owned()))? {
        return Err(FooterProblem::Encrypted);
    }
    let metadata = attempt(|| ParquetMetaDataReader::decode_metadata(footer));
    let metadata = metadata.map_err(FooterProblem::Damaged)?;
    check_metadata(&metadata, data_end).map_err(FooterProblem::Damaged)?;
    Ok(metadata)
}

/// Checks that a footer's claims agree with each other and with the bytes before it.
fn check_metadata(metadata: &ParquetMetaData, data_end: u64) -> Result<(), String> {
    let mut rows = 0_u64;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let own = u64::try_from(group.num_rows())
            .map_err(|_| format!("row group {number} has a negative number of rows"))?;
        rows = rows.checked_add(own).ok_or("more rows than fit 64 bits")?;
        if group.num_columns() != metadata.file_metadata().schema_descr().num_columns() {
            return Err(format!("row group {number} lacks columns"));
        }
        for column in group.columns() {
            let at = || {
                format!(
                    "row group {number} column `{}`",
                    column.column_path().string()
                )
            };
            let (start, length) =
                chunk_range(column).ok_or_else(|| format!("{} has a negative place", at()))?;
            if column.file_path().is_some() {
                return Err(format!("{} lies in another file", at()));
            }
            // Row groups without rows have no pages, and their offsets are arbitrary.
            if column.num_values() == 0 && length == 0 {
                continue;
            }
            if start < 4 || start.checked_add(length).is_none_or(|end| end > data_end) {
                return Err(format!(
                    "{} claims bytes {start}+{length} of {data_end}",
                    at()
                ));
            }
            if column.uncompressed_size() < 0 || column.num_values() < 0 {
                return Err(format!("{} has a negative size", at()));
            }
            // A column without lists has one value per row; anything else would add or lose rows.
            if column.column_descr().max_rep_level() == 0 && column.num_values() != group.num_rows()
            {
                return Err(format!(
                    "{} has {} values in {} rows",
                    at(),
                    column.num_values(),
                    group.num_rows()
                ));
            }
        }
    }
    let claimed = metadata.file_metadata().num_rows();
    if u64::try_from(claimed) != Ok(rows) {
        return Err(format!(
            "claims {claimed} rows, and its row groups have {rows}"
        ));
    }
    Ok(())
}

/// Returns the start and length in bytes of a column chunk.
#[must_use]
pub fn chunk_range(column: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let start = column
        .dictionary_page_offset()
        .unwrap_or_else(|| column.data_page_offset());
    Some((
        u64::try_from(start).ok()?,
        u64::try_from(column.compressed_size()).ok()?,
    ))
}

/// Returns the byte ranges of the chunks of some leaves of a row group.
#[must_use]
pub fn group_ranges(metadata: &ParquetMetaData, group: usize, leaves: &[usize]) -> Vec<Range<u64>> {
    let Some(group) = metadata.row_groups().get(group) else {
        return Vec::new();
    };
    let chunks = leaves.iter().filter_map(|leaf| group.columns().get(*leaf));
    chunks
        .filter_map(chunk_range)
        .map(|(start, length)| start..start.saturating_add(length))
        .collect()
}

/// Returns the rows and stored bytes of each row group.
#[must_use]
pub fn group_sizes(metadata: &ParquetMetaData) -> Vec<(u64, u64)> {
    let size = |group: &RowGroupMetaData| {
        let bytes = group
            .columns()
            .iter()
            .filter_map(|column| u64::try_from(column.compressed_size()).ok())
            .sum();
        (u64::try_from(group.num_rows()).unwrap_or(0), bytes)
    };
    metadata.row_groups().iter().map(size).collect()
}

/// Returns the nulls of a top-level column in a row group. A required column has none, and a column of the null type
/// has one in each row. For a leaf, statistics record the number. For a nested column, it is unknown unless there are no
/// nulls at any level.
#[must_use]
pub fn group_null_count(
    metadata: &ParquetMetaData,
    group: &RowGroupMetaData,
    fields: &Fields,
    column: usize,
) -> Option<u64> {
    let rows = u64::try_from(group.num_rows()).ok();
    match fields.get(column) {
        // In columns with only nulls, writers count no nulls and may mark the column as required.
        Some(field) if *field.data_type() == DataType::Null => return rows,
        Some(field) if !field.is_nullable() => return Some(0),
        _ if rows == Some(0) => return rows,
        _ => {}
    }
    let count = |leaf: usize| group.columns().get(leaf)?.statistics()?.null_count_opt();
    if let Some(leaf) = leaf_of(metadata, column) {
        return count(leaf);
    }
    let schema = metadata.file_metadata().schema_descr();
    let leaves = 0..schema.num_columns();
    let mut leaves = leaves.filter(|leaf| schema.get_column_root_idx(*leaf) == column);
    leaves.all(|leaf| count(leaf) == Some(0)).then_some(0)
}

/// Returns the leaf of a top-level column that is itself a leaf.
#[must_use]
pub fn leaf_of(metadata: &ParquetMetaData, column: usize) -> Option<usize> {
    let schema = metadata.file_metadata().schema_descr();
    let root = schema.root_schema().get_fields().get(column)?;
    if !root.is_primitive()
        || root.get_basic_info().has_repetition()
            && root.get_basic_info().repetition() == parquet::basic::Repetition::REPEATED
    {
        return None;
    }
    (0..schema.num_columns()).find(|leaf| schema.get_column_root_idx(*leaf) == column)
}
