//! Reads footers, checks every claim in them, converts them to an Arrow schema, and caches them within a budget.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::{DataType, Fields, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::{
    FieldLevels, ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema,
};
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use rayon::prelude::*;

use super::int96::in_microseconds;
use super::thrift::check_footer;
use crate::catch_panic::attempt;
use crate::conform::plain_field;
use crate::files::InputFile;
use crate::objects::Object;
use crate::{SourceError, SourceProblem};
use shardmill_core::Limits;

const MAGIC: &[u8; 4] = b"PAR1";
const MAGIC_ENCRYPTED: &[u8; 4] = b"PARE";

/// The bytes at the end of an object that are fetched in one request. Most footers fit into them.
const TAIL_BYTES: u64 = 64 << 10;

/// The last bytes of an object, or the error of fetching them.
pub(crate) type Tail = Result<Vec<u8>, SourceError>;

/// Fetches the ends of those files that are in stores, with concurrent requests.
pub(crate) fn read_tails(inputs: &[&InputFile]) -> Vec<Option<Tail>> {
    let mut tails = Vec::with_capacity(inputs.len());
    let store = |input: &InputFile| input.object().map(|object| Arc::as_ptr(&object.store));
    for same in inputs.chunk_by(|a, b| store(a) == store(b)) {
        let Some(first) = same.first().and_then(|input| input.object()) else {
            tails.extend(same.iter().map(|_| None));
            continue;
        };
        let wanted: Vec<_> = same
            .iter()
            .filter_map(|input| {
                let bytes = input.file_version.bytes;
                let range = bytes.saturating_sub(TAIL_BYTES)..bytes;
                Some((input.object()?.name.clone(), bytes, range))
            })
            .collect();
        let found = first.store.remote().read_ranges_of(&wanted);
        tails.extend(same.iter().zip(found).map(|(input, found)| {
            let object = input.object()?;
            Some(found.map_err(|error| object.changed(error.into(), input.file_version)))
        }));
    }
    tails
}

/// The source of a footer's bytes.
enum Bytes<'a> {
    File(File),
    /// The end of an object, and the object itself for the bytes before it.
    Object(&'a Object, Vec<u8>),
}

impl Bytes<'_> {
    fn read(&self, input: &InputFile, into: &mut [u8], at: u64) -> Result<(), SourceError> {
        let (object, tail) = match self {
            Self::File(file) => {
                return file
                    .read_exact_at(into, at)
                    .map_err(|source| SourceError::io("read", &input.shown, source));
            }
            Self::Object(object, tail) => (*object, tail),
        };
        let from = input.file_version.bytes.saturating_sub(tail.len() as u64);
        let held = at
            .checked_sub(from)
            .and_then(|start| usize::try_from(start).ok())
            .and_then(|start| tail.get(start..start.checked_add(into.len())?));
        if let Some(held) = held {
            into.copy_from_slice(held);
            return Ok(());
        }
        let range = at..at.saturating_add(into.len() as u64);
        let wanted = [(object.name.clone(), input.file_version.bytes, range)];
        let found = object.store.remote().read_ranges_of(&wanted).into_iter();
        for found in found {
            let found = found.map_err(|error| object.changed(error.into(), input.file_version))?;
            if found.len() == into.len() {
                into.copy_from_slice(&found);
                return Ok(());
            }
        }
        Err(SourceError::bug(
            "a range of another length than was asked for",
        ))
    }
}

/// Reads and checks the footer of a file; it may have up to `most_bytes` bytes. `tail` is the end of the file, if
/// already fetched.
pub(crate) fn read_footer(
    input: &InputFile,
    most_bytes: u64,
    tail: Option<Tail>,
) -> Result<ParquetMetaData, SourceError> {
    let bytes = match input.object() {
        None => Bytes::File(input.open()?),
        Some(object) => {
            let tail = tail.or_else(|| read_tails(&[input]).into_iter().next().flatten());
            Bytes::Object(object, tail.unwrap_or_else(|| Ok(Vec::new()))?)
        }
    };
    let name = || input.shown.clone();
    let read = |buffer: &mut [u8], at| bytes.read(input, buffer, at);
    let size = input.file_version.bytes;
    if size < 12 {
        return Err(SourceProblem::ParquetTruncated.at(
            name(),
            format!("is cut short: {size} bytes, and the smallest Parquet file has 12"),
        ));
    }
    let encrypted =
        || SourceProblem::ParquetEncrypted.at(name(), "is encrypted, which is not supported");
    let mut tail = [0; 8];
    read(&mut tail, size - 8)?;
    let [l0, l1, l2, l3, magic @ ..] = tail;
    // PERF: reading the start of an object takes another request, and the magic at its end is enough.
    if input.object().is_none() || &magic != MAGIC {
        let mut head = [0; 4];
        read(&mut head, 0)?;
        if &head == MAGIC_ENCRYPTED {
            return Err(encrypted());
        }
        if &head != MAGIC {
            return Err(SourceProblem::ParquetMagic
                .at(name(), "does not begin with PAR1: not a Parquet file"));
        }
    }
    if &magic == MAGIC_ENCRYPTED {
        return Err(encrypted());
    }
    if &magic != MAGIC {
        return Err(
            SourceProblem::ParquetTruncated.at(name(), "is cut short: it does not end with PAR1")
        );
    }
    let length = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
    Limits::check("parquet-footer-bytes", length, most_bytes)
        .map_err(|limit| SourceError::parquet_limit(&input.shown, "the footer", &limit))?;
    let footer_error =
        |reason: String| SourceProblem::ParquetFooter.at(name(), format!("footer: {reason}"));
    if length > size - 12 {
        return Err(footer_error(format!(
            "claims {length} bytes in a file of {size}"
        )));
    }
    let mut footer =
        vec![0; usize::try_from(length).map_err(|_| footer_error("too large".to_owned()))?];
    read(&mut footer, size - 8 - length)?;
    let facts = check_footer(&footer).map_err(|reason| footer_error(reason.to_owned()))?;
    if facts.encrypted {
        return Err(encrypted());
    }
    let metadata =
        attempt(|| ParquetMetaDataReader::decode_metadata(&footer)).map_err(footer_error)?;
    check_metadata(&metadata, size - 8 - length).map_err(footer_error)?;
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
pub(crate) fn chunk_range(column: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let start = column
        .dictionary_page_offset()
        .unwrap_or_else(|| column.data_page_offset());
    Some((
        u64::try_from(start).ok()?,
        u64::try_from(column.compressed_size()).ok()?,
    ))
}

/// Returns the byte ranges of the chunks of some leaves of a row group.
pub(crate) fn group_ranges(
    metadata: &ParquetMetaData,
    group: usize,
    leaves: &[usize],
) -> Vec<Range<u64>> {
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
pub(crate) fn group_sizes(metadata: &ParquetMetaData) -> Vec<(u64, u64)> {
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
/// has one in each row. For a leaf, statistics record the number; for a nested column, it is unknown.
pub(crate) fn group_null_count(
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
    let leaf = leaf_of(metadata, column)?;
    group.columns().get(leaf)?.statistics()?.null_count_opt()
}

/// Returns the leaf of a top-level column that is itself a leaf.
pub(crate) fn leaf_of(metadata: &ParquetMetaData, column: usize) -> Option<usize> {
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

/// Returns the Arrow fields of a file. They follow the embedded Arrow schema, with plain values instead of dictionaries
/// and views.
pub(crate) fn arrow_fields(
    file: &str,
    metadata: &Arc<ParquetMetaData>,
) -> Result<Fields, SourceError> {
    let footer = metadata.file_metadata();
    let schema = footer.schema_descr();
    let roots = schema.root_schema().get_fields();
    SourceError::check_names(roots.iter().map(|field| field.name()), || file.to_owned())?;
    let convert = |embedded| attempt(|| parquet_to_arrow_schema(schema, embedded));
    if let Ok(embedded) = convert(footer.key_value_metadata()) {
        let plain: Fields = embedded.fields().iter().map(plain_field).collect();
        let plain = in_microseconds(schema, &plain);
        if plain == *embedded.fields() {
            return Ok(plain);
        }
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(plain.clone())));
        if attempt(|| ArrowReaderMetadata::try_new(Arc::clone(metadata), options)).is_ok() {
            return Ok(plain);
        }
    }
    // Fall back to the Parquet schema if the embedded Arrow schema does not match it.
    match convert(None) {
        Ok(found) => Ok(in_microseconds(schema, found.fields())),
        Err(reason) => Err(unsupported_type(file, metadata)
            .unwrap_or_else(|| SourceProblem::ParquetFooter.at(file, format!("footer: {reason}")))),
    }
}

/// Returns the error for the first column that has no Arrow type.
fn unsupported_type(file: &str, metadata: &ParquetMetaData) -> Option<SourceError> {
    let schema = metadata.file_metadata().schema_descr();
    let mut roots = schema.root_schema().get_fields().iter().enumerate();
    roots.find_map(|(root, column)| {
        let mask = ProjectionMask::roots(schema, [root]);
        if attempt(|| parquet_to_arrow_field_levels(schema, mask, None)).is_ok() {
            return None;
        }
        let info = column.get_basic_info();
        let physical = if column.is_primitive() {
            column.get_physical_type().to_string()
        } else {
            "group".to_owned()
        };
        let data_type = match info.logical_type_ref() {
            Some(logical) => format!("{physical} ({logical:?})"),
            None => format!("{physical} ({})", info.converted_type()),
        };
        Some(SourceError::unsupported_type(
            file,
            column.name(),
            &data_type,
        ))
    })
}

/// Returns what the decoder needs to read the columns of a mask as these fields.
pub(crate) fn levels(
    file: &str,
    metadata: &ParquetMetaData,
    mask: ProjectionMask,
    fields: &Fields,
) -> Result<FieldLevels, SourceError> {
    let schema = metadata.file_metadata().schema_descr();
    attempt(|| parquet_to_arrow_field_levels(schema, mask, Some(fields)))
        .map_err(|reason| SourceProblem::ParquetFooter.at(file, format!("footer: {reason}")))
}

/// Caches parsed footers within a budget, and reads the others again on demand. The footers of ten thousand wide files
/// take gigabytes.
pub(crate) struct FooterCache {
    /// Footers kept from opening; `None` if the footer has to be read again.
    kept: Vec<Option<Arc<ParquetMetaData>>>,
    kept_bytes: usize,
    /// The most recent footers that were read again, because the units of one file are usually opened in a row.
    recent: Mutex<Vec<(usize, Arc<ParquetMetaData>)>>,
    /// The most bytes of a footer.
    most_bytes: u64,
}

/// How many footers are read at a time. Their summaries are merged before the next ones are read, and most footers are
/// dropped.
const READ_TOGETHER: usize = 256;

/// Prepares files in groups, summarises the files of a group in parallel, and folds the summaries in file order. Reports
/// the first error in file order.
pub(crate) fn fold_in_order<F: Sync, P: Send, S: Send>(
    files: &[F],
    prepare: impl Fn(&[F]) -> Vec<P>,
    summarise: impl Fn(&F, P) -> Result<S, SourceError> + Sync,
    mut fold: impl FnMut(S),
) -> Result<(), SourceError> {
    for chunk in files.chunks(READ_TOGETHER) {
        let prepared = prepare(chunk);
        let summaries: Vec<Result<S, SourceError>> = chunk
            .par_iter()
            .zip(prepared)
            .map(|(file, prepared)| summarise(file, prepared))
            .collect();
        for summary in summaries {
            fold(summary?);
        }
    }
    Ok(())
}

/// Adds the nulls of one more file; unknown if either count is.
pub(crate) fn add_nulls(total: &mut Option<u64>, own: Option<u64>) {
    *total = total
        .zip(own)
        .and_then(|(total, own)| total.checked_add(own));
}

/// The most memory for cached footers.
const CACHE_BYTES: usize = 64 << 20;
const RECENT: usize = 8;

impl FooterCache {
    /// Creates a cache of footers of at most `most_bytes` each.
    pub(crate) const fn new(most_bytes: u64) -> Self {
        Self {
            kept: Vec::new(),
            kept_bytes: 0,
            recent: Mutex::new(Vec::new()),
            most_bytes,
        }
    }

    /// Adds the footer of the next file, and keeps it if the budget allows.
    pub(crate) fn add(&mut self, metadata: Arc<ParquetMetaData>) {
        let bytes = self.kept_bytes.saturating_add(metadata.memory_size());
        let keep = bytes <= CACHE_BYTES;
        if keep {
            self.kept_bytes = bytes;
        }
        self.kept.push(keep.then_some(metadata));
    }

    /// Returns the number of files whose footers were added.
    pub(crate) const fn files(&self) -> usize {
        self.kept.len()
    }

    /// Returns the footer of a file, if it is in memory.
    pub(crate) fn held(&self, number: usize) -> Option<Arc<ParquetMetaData>> {
        self.kept.get(number).cloned().flatten().or_else(|| {
            let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent
                .iter()
                .find(|(known, _)| *known == number)
                .map(|(_, metadata)| Arc::clone(metadata))
        })
    }

    /// Returns the footer of a file, after checking that the file is still the one that was listed.
    pub(crate) fn metadata(
        &self,
        number: usize,
        input: &InputFile,
    ) -> Result<Arc<ParquetMetaData>, SourceError> {
        if let Some(metadata) = self.held(number) {
            if input.object().is_none() {
                input.open()?;
            }
            return Ok(metadata);
        }
        let metadata = Arc::new(read_footer(input, self.most_bytes, None)?);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= RECENT {
            recent.remove(0);
        }
        recent.push((number, Arc::clone(&metadata)));
        Ok(metadata)
    }
}
