//! Reads ArrayRecord files: chunks of Riegeli records.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use shardmill_core::catch_panic::one_line;
use shardmill_records::{
    CHUNK_HEAD, ChunkHead, ChunkKind, RecordError, RecordPacking, footer_place, record_sizes,
    simple_chunk, stored_end, without_block_headers,
};
use shardmill_storage::Location;

use crate::base::{Base, TableFacts, batch, project, rows_from};
use crate::files::{InputFile, describe, file_of_unit, inspect_each, list_tables};
use crate::{Rows, SourceError, SourceKind, SourceOptions, SourceProblem, Unit};

/// A large file is read in units of about this size.
const UNIT_BYTES: u64 = 16 << 20;

/// The length of the end of a file, whose first chunk has the offset of the footer.
const END_BYTES: u64 = 64 << 10;

/// The most bytes of records in a chunk and in a batch: the offsets of a column have 32 bits.
const MAX_BYTES: u64 = 1 << 30;

/// The column of records.
const RECORD: &str = "record";

/// A table of ArrayRecord files.
pub(crate) struct ArrayrecordTable {
    facts: TableFacts,
    files: Vec<InputFile>,
    /// The ranges of the units.
    ranges: Vec<(u64, u64)>,
    options: SourceOptions,
}

/// A run of chunks: where it begins and ends, and the number of its records.
type Run = (u64, u64, u64);

/// Lists the files and finds their chunks.
pub(crate) fn open(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<ArrayrecordTable, SourceError> {
    let files = list_tables(locations, SourceKind::Arrayrecord, options)?;
    let scanned = inspect_each(&files, options.resources.jobs, |_, input| {
        scan(input, options)
    })?;
    let (mut units, mut ranges, mut all) = (Vec::new(), Vec::new(), 0);
    for (number, runs) in scanned.into_iter().enumerate() {
        let mut first_row = 0;
        for (begin, end, rows) in runs {
            units.push(Unit {
                file: Some(number),
                first_row: Some(first_row),
                rows: Some(rows),
                bytes: end - begin,
            });
            ranges.push((begin, end));
            first_row += rows;
        }
        all += first_row;
    }
    let field = Field::new(RECORD, DataType::Binary, false);
    Ok(ArrayrecordTable {
        facts: TableFacts {
            schema: Arc::new(Schema::new(vec![field])),
            units,
            null_counts: vec![Some(0)],
            description: describe(SourceKind::Arrayrecord, &files, Some(all)),
        },
        files,
        ranges,
        options: options.clone(),
    })
}

/// Finds the chunks of records of a file.
fn scan(input: &InputFile, options: &SourceOptions) -> Result<Vec<Run>, SourceError> {
    let chunks = Chunks::new(input, options)?;
    let first = chunks.head(0)?;
    if first.kind != ChunkKind::Other || first.data_bytes != 0 {
        return Err(chunks.wrong(0, "the file does not begin with the signature of Riegeli"));
    }
    let end = chunks.data_end()?;
    let (mut runs, mut run) = (Vec::new(), (0, 0, 0));
    let mut offset = 0;
    while offset < end {
        let head = chunks.head(offset)?;
        let next = chunks.end(offset, &head, end)?;
        match head.kind {
            ChunkKind::Other => {}
            ChunkKind::Simple => run.2 += head.records,
            ChunkKind::Transposed => {
                let reason = format!("the chunk at byte {offset} is transposed");
                let error = SourceProblem::Unsupported.at(&input.shown, reason);
                return Err(error.with_hint("write the file again without `transpose`"));
            }
        }
        offset = next;
        run.1 = next;
        if run.1 - run.0 >= UNIT_BYTES || offset >= end {
            if run.2 > 0 {
                runs.push(run);
            }
            run = (next, next, 0);
        }
    }
    input.check(&chunks.file)?;
    Ok(runs)
}

/// An open file.
struct Chunks {
    input: InputFile,
    file: File,
    limit: u64,
}

impl Chunks {
    fn new(input: &InputFile, options: &SourceOptions) -> Result<Self, SourceError> {
        Ok(Self {
            file: input.open()?,
            input: input.clone(),
            limit: options.limits.sample_bytes.min(MAX_BYTES),
        })
    }

    fn wrong(&self, offset: u64, reason: &str) -> SourceError {
        let reason = format!("at byte {offset}: {reason}");
        SourceProblem::ArrayrecordChunk.at(&self.input.shown, reason)
    }

    fn cut_short(&self, offset: u64) -> SourceError {
        let reason = format!("at byte {offset}: the file ends within the chunk");
        SourceProblem::ArrayrecordTruncated.at(&self.input.shown, reason)
    }

    /// Reads so many bytes of the chunk at an offset, without block headers, after some of them.
    fn read(&self, offset: u64, skipped: u64, bytes: u64) -> Result<Vec<u8>, SourceError> {
        let begin = stored_end(offset, skipped);
        let range = begin.zip(stored_end(offset, skipped.saturating_add(bytes)));
        let range = range.filter(|(_, end)| *end <= self.input.file_version.bytes);
        let (begin, end) = range.ok_or_else(|| self.cut_short(offset))?;
        let length = usize::try_from(end - begin).map_err(|_| self.cut_short(offset))?;
        let mut stored = vec![0; length];
        self.input.read_at(&self.file, &mut stored, begin)?;
        Ok(without_block_headers(&stored, begin))
    }

    fn head(&self, offset: u64) -> Result<ChunkHead, SourceError> {
        let bytes = self.read(offset, 0, CHUNK_HEAD as u64)?;
        let head = bytes.first_chunk().ok_or_else(|| self.cut_short(offset))?;
        ChunkHead::decode(head).map_err(|error| self.record_error(offset, error))
    }

    fn record_error(&self, offset: u64, error: RecordError) -> SourceError {
        self.wrong(offset, &error.to_string())
    }

    fn end(&self, offset: u64, head: &ChunkHead, end: u64) -> Result<u64, SourceError> {
        let next = head.end(offset).filter(|next| *next <= end);
        next.ok_or_else(|| self.cut_short(offset))
    }

    /// Returns the offset where the chunks of records end: that of the footer, or the end of a file without one.
    fn data_end(&self) -> Result<u64, SourceError> {
        let size = self.input.file_version.bytes;
        let last = size
            .checked_sub(END_BYTES)
            .filter(|last| last.is_multiple_of(END_BYTES));
        let Some(offset) = last else {
            return Ok(size);
        };
        let Ok(head) = self.head(offset) else {
            return Ok(size);
        };
        if head.kind != ChunkKind::Simple || head.records == 0 {
            return Ok(size);
        }
        let records = self.records(offset, &head)?;
        let footer = records.first().and_then(|record| footer_place(record));
        match footer {
            Some(footer) if footer <= offset => Ok(footer),
            Some(footer) => Err(self.wrong(
                offset,
                &format!("the footer is at byte {footer}, after its place"),
            )),
            None => Ok(size),
        }
    }

    /// Decodes the records of a chunk.
    fn records(&self, offset: u64, head: &ChunkHead) -> Result<Vec<Vec<u8>>, SourceError> {
        let wrong = |error| self.record_error(offset, error);
        let limit = |bytes: u64| {
            SourceError::check_limit("sample-bytes", bytes, self.limit, || {
                format!("{} byte {offset}", self.input.shown)
            })
        };
        limit(head.data_bytes)?;
        limit(head.decoded_bytes)?;
        let data = self.read(offset, CHUNK_HEAD as u64, head.data_bytes)?;
        head.check_data(&data).map_err(wrong)?;
        let chunk = simple_chunk(&data).map_err(wrong)?;
        let unpack = |(bytes, length): (&[u8], Option<u64>)| -> Result<Vec<u8>, SourceError> {
            let Some(length) = length else {
                return Ok(bytes.to_vec());
            };
            limit(length)?;
            let unpacked = unpack(chunk.packing, bytes, length);
            let unpacked = unpacked.map_err(|error| {
                self.wrong(
                    offset,
                    &format!("the chunk does not decompress: {}", one_line(&error)),
                )
            })?;
            match unpacked.len() as u64 == length {
                true => Ok(unpacked),
                false => {
                    Err(self.wrong(offset, "the chunk has another length after decompression"))
                }
            }
        };
        // A varint has at most ten bytes.
        let sizes = unpack(chunk.sizes)?;
        let sizes = record_sizes(&sizes, head).map_err(wrong)?;
        let values = unpack(chunk.values)?;
        let mut rest = values.as_slice();
        let mut records = Vec::with_capacity(sizes.len());
        for size in sizes {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let (record, after) = rest
                .split_at_checked(size)
                .ok_or_else(|| self.wrong(offset, "the records end before their lengths"))?;
            records.push(record.to_vec());
            rest = after;
        }
        Ok(records)
    }
}

/// Decompresses at most one byte more than a length.
fn unpack(packing: RecordPacking, bytes: &[u8], length: u64) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let max = length.saturating_add(1);
    let read = match packing {
        RecordPacking::None => return Ok(bytes.to_vec()),
        RecordPacking::Brotli => brotli::Decompressor::new(bytes, 4096)
            .take(max)
            .read_to_end(&mut out),
        RecordPacking::Zstd => zstd::stream::read::Decoder::new(bytes)
            .and_then(|reader| reader.take(max).read_to_end(&mut out)),
        RecordPacking::Snappy => {
            let claimed = snap::raw::decompress_len(bytes).map_err(|error| error.to_string())?;
            if claimed as u64 != length {
                return Err(format!("it claims {claimed} bytes"));
            }
            let unpacked = snap::raw::Decoder::new().decompress_vec(bytes);
            return unpacked.map_err(|error| error.to_string());
        }
    };
    read.map(|_| out).map_err(|error| error.to_string())
}

impl Base for ArrayrecordTable {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        let input = file_of_unit(&self.files, &self.facts.units, unit)?;
        let (offset, end) = self.ranges.get(unit).copied().unwrap_or_default();
        let mut rows = ArrayrecordRows {
            chunks: Chunks::new(input, &self.options)?,
            offset,
            end,
            has_records: columns.contains(&0),
            schema: project(self.schema(), columns),
            batch_bytes: self.options.resources.batch_bytes,
        };
        Ok(rows_from(move || rows.pull()))
    }
}

struct ArrayrecordRows {
    chunks: Chunks,
    offset: u64,
    end: u64,
    has_records: bool,
    schema: SchemaRef,
    batch_bytes: usize,
}

impl ArrayrecordRows {
    fn pull(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let mut builder = BinaryBuilder::new();
        let (mut rows, mut bytes) = (0, 0);
        while self.offset < self.end && bytes < self.batch_bytes {
            let head = self.chunks.head(self.offset)?;
            let next = self.chunks.end(self.offset, &head, self.end)?;
            if head.kind == ChunkKind::Simple {
                for record in self.chunks.records(self.offset, &head)? {
                    builder.append_value(&record);
                    bytes += record.len().max(1);
                    rows += 1;
                }
            }
            self.offset = next;
        }
        if rows == 0 {
            self.chunks.input.check(&self.chunks.file)?;
            return Ok(None);
        }
        let records: ArrayRef = Arc::new(builder.finish());
        let columns = self.has_records.then_some(records);
        batch(&self.schema, columns.into_iter().collect(), rows).map(Some)
    }
}
