//! Reads TFRecord files: records with checksums, which are examples or any bytes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use shardmill_core::Error;
use shardmill_records::{FRAME_HEAD, FRAME_TAIL, RecordError, check_data, frame_length};
use shardmill_storage::Location;

use crate::base::{batch, project, rows_from};
use crate::error;
use crate::feature_columns::{FeatureError, FeatureReader, FeatureShapes};
use crate::files::{InputFile, describe, file_of_unit, inspect_each, list_tables};
use crate::input::{Packing, Text, WHOLE_BYTES, packing};
use crate::{Rows, Source, SourceKind, SourceOptions, SourceProblem, TableFacts, Unit};

/// A large file is read in ranges of about this size, each by its own thread.
const RANGE_BYTES: u64 = 16 << 20;

/// The most bytes of records in a batch, and of a record: the offsets of a column have 32 bits, and a message of
/// protocol buffers has at most 2 GiB.
const MAX_BYTES: usize = 1 << 30;

/// The column of records that are not read as examples.
const RECORD: &str = "record";

/// A table of TFRecord files.
pub(crate) struct TfrecordTable {
    facts: TableFacts,
    files: Vec<InputFile>,
    /// The range of each unit, and the compression of its file.
    ranges: Vec<(u64, u64, Packing)>,
    options: SourceOptions,
}

/// Lists the files and finds the features of their records.
pub(crate) fn open(
    locations: &[Location],
    kind: SourceKind,
    options: &SourceOptions,
) -> Result<TfrecordTable, Error> {
    let files = list_tables(locations, kind, options)?;
    let has_features = kind == SourceKind::Tfrecord;
    let scanned = inspect_each(&files, |_, input| scan(input, has_features, options))?;
    let mut shapes = FeatureShapes::default();
    let mut is_whole = true;
    let mut units = Vec::new();
    let mut ranges = Vec::new();
    for (number, (scanned, input)) in scanned.into_iter().zip(&files).enumerate() {
        is_whole &= scanned.is_whole;
        let (mut start, mut first_row) = (0, 0);
        for (end, rows) in scanned.cuts.ends {
            units.push(Unit {
                file: Some(number),
                first_row: Some(first_row),
                rows,
                bytes: end - start,
            });
            ranges.push((start, end, scanned.packing));
            start = end;
            first_row += rows.unwrap_or(0);
        }
        let merged = shapes.merge(scanned.shapes);
        merged.map_err(|error| feature_error(input, None, error))?;
    }
    let rows = units.iter().map(|unit| unit.rows).sum();
    let (fields, null_counts) = if has_features {
        let nulls = shapes.null_counts().map(|nulls| is_whole.then_some(nulls));
        (shapes.fields(is_whole), nulls.collect())
    } else {
        let field = Field::new(RECORD, DataType::Binary, false);
        (vec![field].into(), vec![Some(0)])
    };
    Ok(TfrecordTable {
        facts: TableFacts {
            schema: Arc::new(Schema::new(fields)),
            units,
            null_counts,
            description: describe(kind, &files, rows),
        },
        files,
        ranges,
        options: options.clone(),
    })
}

/// Returns the error about a file, at an offset of its records if it is known.
fn feature_error(input: &InputFile, offset: Option<u64>, error: FeatureError) -> Error {
    let is_unexamined = matches!(error, FeatureError::Unexamined(_));
    let (problem, reason) = match error {
        FeatureError::Record(error @ RecordError::Crc { .. }) => {
            (SourceProblem::TfrecordChecksum, error.to_string())
        }
        FeatureError::Record(error) => (SourceProblem::TfrecordExample, error.to_string()),
        FeatureError::Feature(reason) | FeatureError::Unexamined(reason) => {
            (SourceProblem::TfrecordFeature, reason)
        }
    };
    let prefix = offset.map(|offset| format!("at byte {offset}: "));
    let error = problem.at(
        &input.shown,
        format!("{}{reason}", prefix.unwrap_or_default()),
    );
    if is_unexamined {
        return error.with_hint("examine more records with --infer-rows");
    }
    error
}

/// What the records of a file show.
struct Scanned {
    shapes: FeatureShapes,
    /// Whether all records were examined.
    is_whole: bool,
    packing: Packing,
    cuts: Cuts,
}

/// The ranges of a file.
#[derive(Default)]
struct Cuts {
    /// Their ends, and their numbers of records if these were counted.
    ends: Vec<(u64, Option<u64>)>,
    start: u64,
    records: u64,
}

impl Cuts {
    /// Notes that a record ends here.
    fn note(&mut self, end: u64) {
        self.records += 1;
        if end - self.start >= RANGE_BYTES {
            self.close(end);
        }
    }

    fn close(&mut self, end: u64) {
        self.ends
            .push((end, Some(std::mem::take(&mut self.records))));
        self.start = end;
    }
}

fn scan(input: &InputFile, has_features: bool, options: &SourceOptions) -> Result<Scanned, Error> {
    let size = input.file_version.bytes;
    let file = Arc::new(input.open()?);
    let packing = packing_of(input, &file)?;
    let read_all = size <= WHOLE_BYTES;
    let max = match (has_features, read_all) {
        (false, _) => 0,
        (true, true) => u64::MAX,
        (true, false) => options.text.infer_rows as u64,
    };
    let text = Text::unpack(input, Arc::clone(&file), packing, 0..size)?;
    let mut frames = Frames::new(text, 0..size, packing, options);
    let mut scanned = Scanned {
        shapes: FeatureShapes::default(),
        is_whole: false,
        packing,
        cuts: Cuts::default(),
    };
    let mut record = Vec::new();
    let cuts = &mut scanned.cuts;
    while scanned.shapes.records < max && !scanned.is_whole {
        match frames.next(&mut record)? {
            None => scanned.is_whole = true,
            Some(offset) => {
                let added = scanned.shapes.add(&record);
                added.map_err(|error| feature_error(input, Some(offset), error))?;
                if packing == Packing::None {
                    cuts.note(frames.offset);
                }
            }
        }
    }
    match packing {
        Packing::None => {
            if !scanned.is_whole {
                count_frames(input, &file, frames.offset, cuts)?;
            }
            if cuts.records > 0 {
                cuts.close(size);
            }
        }
        // A compressed file is one range.
        _ => {
            let records = scanned.shapes.records;
            cuts.ends.push((size, scanned.is_whole.then_some(records)));
        }
    }
    Ok(scanned)
}

/// Returns the compression of a file. A length with a valid checksum is no magic number, whatever its bytes.
fn packing_of(input: &InputFile, file: &File) -> Result<Packing, Error> {
    let failed = |source| input.read_error(source);
    let mut head = [0; FRAME_HEAD];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) if frame_length(&head).is_ok() => Ok(Packing::None),
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(failed(error)),
        // The head of ZLIB: a compression and flags, which are a multiple of 31.
        Ok(()) if matches!(head, [0x78, flags, ..] if (0x7800 + u32::from(flags)) % 31 == 0) => {
            let error = SourceProblem::Unsupported.at(&input.shown, "is compressed with ZLIB");
            Err(error.with_hint("write it again with GZIP, or without a compression"))
        }
        _ => packing(file).map_err(failed),
    }
}

/// Counts the records of an uncompressed file from an offset on, by their lengths.
fn count_frames(
    input: &InputFile,
    file: &File,
    mut offset: u64,
    cuts: &mut Cuts,
) -> Result<(), Error> {
    let size = input.file_version.bytes;
    let mut window = vec![0; 16 << 10];
    let (mut start, mut filled) = (0, 0_usize);
    while offset < size {
        let has_head = |start: u64, filled: usize| {
            offset >= start && offset + FRAME_HEAD as u64 <= start + filled as u64
        };
        if !has_head(start, filled) {
            start = offset;
            filled =
                usize::try_from(size - offset).map_or(window.len(), |left| left.min(window.len()));
            let into = window.get_mut(..filled).unwrap_or_default();
            input.read_at(file, into, start)?;
        }
        let at = usize::try_from(offset - start).unwrap_or(usize::MAX);
        let head = window.get(at..filled).and_then(|bytes| bytes.first_chunk());
        let head = head.ok_or_else(|| cut_short(input, offset))?;
        let end = frame_end(input, offset, head)?;
        if end > size {
            return Err(cut_short(input, offset));
        }
        offset = end;
        cuts.note(end);
    }
    input.check(file)
}

/// Returns the end of the frame at an offset.
fn frame_end(input: &InputFile, offset: u64, head: &[u8; FRAME_HEAD]) -> Result<u64, Error> {
    let length =
        frame_length(head).map_err(|error| feature_error(input, Some(offset), error.into()))?;
    let end = offset.checked_add((FRAME_HEAD + FRAME_TAIL) as u64);
    let end = end.and_then(|end| end.checked_add(length));
    end.ok_or_else(|| cut_short(input, offset))
}

fn cut_short(input: &InputFile, offset: u64) -> Error {
    let reason = format!("at byte {offset}: the file ends within the record");
    SourceProblem::TfrecordTruncated.at(&input.shown, reason)
}

/// Reads the records of a file. Offsets are those of decompressed bytes.
struct Frames {
    text: Text,
    offset: u64,
    /// The end of the range, if it is not compressed.
    end: Option<u64>,
    max: u64,
}

impl Frames {
    fn new(text: Text, range: Range<u64>, packing: Packing, options: &SourceOptions) -> Self {
        Self {
            text,
            offset: range.start,
            end: (packing == Packing::None).then_some(range.end),
            max: options.limits.sample_bytes.min(MAX_BYTES as u64),
        }
    }

    /// Replaces `record` with the next record, and returns its offset; `None` at the end.
    fn next(&mut self, record: &mut Vec<u8>) -> Result<Option<u64>, Error> {
        let offset = self.offset;
        self.take(FRAME_HEAD, record)?;
        if record.is_empty() {
            return Ok(None);
        }
        let input = &self.text.input;
        let head = record
            .first_chunk()
            .ok_or_else(|| cut_short(input, offset))?;
        let end = frame_end(input, offset, head)?;
        if self.end.is_some_and(|max| end > max) {
            return Err(cut_short(input, offset));
        }
        let length = end - offset - (FRAME_HEAD + FRAME_TAIL) as u64;
        error::check_limit("sample-bytes", length, self.max, || {
            format!("{} byte {offset}", input.shown)
        })?;
        let length = usize::try_from(length).map_err(|_| cut_short(input, offset))?;
        self.take(length + FRAME_TAIL, record)?;
        let input = &self.text.input;
        let crc = record.get(length..).and_then(|bytes| bytes.first_chunk());
        let crc = u32::from_le_bytes(*crc.ok_or_else(|| cut_short(input, offset))?);
        record.truncate(length);
        check_data(record, crc)
            .map_err(|error| feature_error(input, Some(offset), error.into()))?;
        Ok(Some(offset))
    }

    /// Replaces `into` with so many bytes, or those that are left.
    fn take(&mut self, count: usize, into: &mut Vec<u8>) -> Result<(), Error> {
        into.clear();
        while into.len() < count {
            let bytes = self.text.fill()?;
            let bytes = bytes.get(..count - into.len()).unwrap_or(bytes);
            if bytes.is_empty() {
                return Ok(());
            }
            into.extend_from_slice(bytes);
            let taken = bytes.len();
            self.text.consume(taken);
            self.offset += taken as u64;
        }
        Ok(())
    }
}

impl Source for TfrecordTable {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let input = file_of_unit(&self.files, &self.facts.units, unit)?;
        let found = self.ranges.get(unit).copied();
        let (start, end, packing) = found.ok_or_else(|| error::no_unit(unit))?;
        let text = Text::unpack(input, Arc::new(input.open()?), packing, start..end)?;
        let batch_bytes = self.options.resources.batch_bytes;
        let columns_of = match self.facts.description.kind {
            SourceKind::TfrecordRaw => Columns::Raw(BinaryBuilder::new(), 0),
            _ => Columns::Features(FeatureReader::new(&self.facts.schema, columns)),
        };
        let mut rows = TfrecordRows {
            frames: Frames::new(text, start..end, packing, &self.options),
            columns: columns_of,
            schema: project(&self.facts.schema, columns),
            batch_bytes: batch_bytes.clamp(1, MAX_BYTES),
            record: Vec::new(),
            waiting: None,
        };
        Ok(rows_from(move || rows.pull()))
    }
}

/// Builds the columns of a batch.
enum Columns {
    Raw(BinaryBuilder, usize),
    Features(FeatureReader),
}

impl Columns {
    fn add(&mut self, record: &[u8]) -> Result<(), FeatureError> {
        match self {
            Self::Raw(records, rows) => {
                records.append_value(record);
                *rows += 1;
                Ok(())
            }
            Self::Features(reader) => reader.add(record),
        }
    }

    fn finish(&mut self) -> (Vec<ArrayRef>, usize) {
        match self {
            Self::Raw(records, rows) => (vec![Arc::new(records.finish())], std::mem::take(rows)),
            Self::Features(reader) => reader.finish(),
        }
    }
}

struct TfrecordRows {
    frames: Frames,
    columns: Columns,
    schema: SchemaRef,
    batch_bytes: usize,
    record: Vec<u8>,
    /// The offset of the record, if it did not fit into the last batch.
    waiting: Option<u64>,
}

impl TfrecordRows {
    fn pull(&mut self) -> Result<Option<RecordBatch>, Error> {
        let mut bytes = 0;
        loop {
            let offset = match self.waiting.take() {
                Some(offset) => Some(offset),
                None => self.frames.next(&mut self.record)?,
            };
            let Some(offset) = offset else {
                break;
            };
            if bytes > 0 && self.record.len() > self.batch_bytes - bytes.min(self.batch_bytes) {
                self.waiting = Some(offset);
                break;
            }
            // A record without bytes is a row, too.
            bytes += self.record.len().max(1);
            self.columns
                .add(&self.record)
                .map_err(|error| feature_error(&self.frames.text.input, Some(offset), error))?;
        }
        let (mut columns, rows) = self.columns.finish();
        if rows == 0 {
            return Ok(None);
        }
        columns.truncate(self.schema.fields().len());
        batch(&self.schema, columns, rows).map(Some)
    }
}
