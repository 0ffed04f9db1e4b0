//! Reads the tokens of Megatron: a file of tokens, and an index of its sequences and documents.

use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int8Array, RecordBatch};
use arrow::buffer::MutableBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use shardmill_core::{DType, Diagnostic as _};
use shardmill_records::{INDEX_HEAD, IndexHead, IndexParts, RecordError};
use shardmill_storage::Location;

use crate::base::{Base, TableFacts, batch, project, rows_from};
use crate::file_names::{has_extension, is_pattern};
use crate::files::{InputFile, Origin, describe, list_tables};
use crate::input::Range as FileRange;
use crate::lists::{lists_of_numbers, number_type};
use crate::{Rows, SourceError, SourceKind, SourceOptions, SourceProblem, Unit};

/// A file is read in units of about this size.
const UNIT_BYTES: u64 = 16 << 20;

/// The most rows of a unit, because sequences may be empty.
const UNIT_ROWS: u64 = 1 << 20;

/// The most bytes of tokens in a batch, and in a row: the offsets of a column have 32 bits.
const MAX_BYTES: u64 = 1 << 30;

const TOKENS: &str = "tokens";
const MODE: &str = "mode";

/// A table of tokens: a row for each sequence or document.
pub(crate) struct MegatronTable {
    facts: TableFacts,
    sets: Vec<TokenSet>,
    slices: Vec<Slice>,
    options: SourceOptions,
}

/// A file of tokens and its index.
#[derive(Clone)]
struct TokenSet {
    index: InputFile,
    tokens: InputFile,
    head: IndexHead,
    parts: IndexParts,
}

/// The part of a file that a unit reads.
#[derive(Clone)]
struct Slice {
    set: usize,
    rows: Range<u64>,
    sequences: Range<u64>,
    /// The bytes of the tokens.
    bytes: Range<u64>,
}

/// Lists the files, and checks and divides their indexes.
pub(crate) fn open(
    locations: &[Location],
    kind: SourceKind,
    options: &SourceOptions,
) -> Result<MegatronTable, SourceError> {
    let mut files = Vec::new();
    for location in locations {
        files.extend(list(location, kind, options)?);
    }
    let mut table = MegatronTable {
        facts: TableFacts {
            schema: Arc::new(Schema::empty()),
            units: Vec::new(),
            null_counts: Vec::new(),
            description: describe(kind, &files, None),
        },
        sets: Vec::new(),
        slices: Vec::new(),
        options: options.clone(),
    };
    let mut rows = 0;
    for index in files.iter().filter(|file| is_index(file)) {
        let stem = index.shown.get(..index.shown.len() - 4).unwrap_or_default();
        let name = format!("{stem}.bin");
        let number = files.iter().position(|file| file.shown == name);
        let tokens = number.and_then(|number| files.get(number));
        let (number, tokens) = number
            .zip(tokens)
            .ok_or_else(|| missing(&index.shown, &name))?;
        let file = index.open()?;
        let (head, parts) = read_head(index, &file)?;
        if parts.modes.is_some() && kind == SourceKind::MegatronDocuments {
            let reason = "has a mode for each sequence, and a document has several sequences";
            let error = SourceProblem::Unsupported.at(&index.shown, reason);
            return Err(error.with_hint("read a sample for each sequence, with --from megatron"));
        }
        let set = TokenSet {
            index: index.clone(),
            tokens: tokens.clone(),
            head,
            parts,
        };
        table.add_schema(&set)?;
        rows += table.add_units(set, number, Arc::new(file))?;
    }
    if table.sets.is_empty() {
        let location = files.first().map_or("", |file| &file.shown);
        return Err(missing(location, &format!("{location}, but with .idx")));
    }
    table.facts.null_counts = vec![Some(0); table.facts.schema.fields().len()];
    table.facts.description.rows = Some(rows);
    Ok(table)
}

fn missing(file: &str, other: &str) -> SourceError {
    SourceProblem::NotFound
        .at(
            file,
            format!("there is no {}", shardmill_core::escape(other)),
        )
        .with_hint("name a folder, or the path that the .bin and .idx files have in common")
}

fn is_index(file: &InputFile) -> bool {
    has_extension(&file.relative, &["idx"])
}

/// Lists the files of a location, which may be the common start of both names.
fn list(
    location: &Location,
    kind: SourceKind,
    options: &SourceOptions,
) -> Result<Vec<InputFile>, SourceError> {
    let name = match location {
        Location::Local(path) => path.display().to_string(),
        Location::Remote(remote) => remote.prefix().to_owned(),
    };
    let stem = match has_extension(&name, &["idx", "bin"]) && !is_pattern(&name) {
        true => name.get(..name.len() - 4).unwrap_or_default(),
        false => match list_tables(std::slice::from_ref(location), kind, options) {
            Err(error) if error.id() == "source-not-found" => &name,
            found => return found,
        },
    };
    let pair = ["idx", "bin"].map(|extension| {
        let name = format!("{stem}.{extension}");
        match location {
            Location::Local(_) => Location::Local(name.into()),
            Location::Remote(remote) => Location::Remote(remote.root().join(&name)),
        }
    });
    list_tables(&pair, kind, options)
}

/// Builds the error about an index.
fn index_error(index: &InputFile, error: RecordError) -> SourceError {
    SourceProblem::MegatronIndex.at(&index.shown, error.to_string())
}

fn read_head(index: &InputFile, file: &File) -> Result<(IndexHead, IndexParts), SourceError> {
    let bytes = index.file_version.bytes;
    if bytes < INDEX_HEAD as u64 {
        let reason = format!("the index has {bytes} bytes, fewer than its head of {INDEX_HEAD}");
        return Err(SourceProblem::MegatronIndex.at(&index.shown, reason));
    }
    let mut head = [0; INDEX_HEAD];
    index.read_at(file, &mut head, 0)?;
    let head = IndexHead::decode(&head).map_err(|error| index_error(index, error))?;
    let parts = head.parts(bytes);
    let parts = parts.map_err(|error| index_error(index, error))?;
    Ok((head, parts))
}

fn element(tokens: DType) -> FieldRef {
    Arc::new(Field::new_list_field(number_type(tokens), false))
}

/// Returns the bytes of an index that a slice needs: its lengths, offsets, bounds of documents from the second one on,
/// and modes.
fn index_ranges(parts: &IndexParts, slice: &Slice) -> [Range<u64>; 4] {
    let of = |start: u64, range: &Range<u64>, bytes: u64| {
        start + range.start * bytes..start + range.end * bytes
    };
    let (sequences, bounds) = (&slice.sequences, slice.rows.start + 1..slice.rows.end + 1);
    [
        of(parts.lengths, sequences, 4),
        of(parts.places, sequences, 8),
        of(parts.bounds, &bounds, 8),
        parts.modes.map_or(0..0, |start| of(start, sequences, 1)),
    ]
}

/// Reads the sequences of an index in order.
struct Sequences {
    lengths: BufReader<FileRange>,
    offsets: BufReader<FileRange>,
    /// The bounds of documents, from the second one on; `None` if each sequence is a row.
    bounds: Option<BufReader<FileRange>>,
    /// The number of the next sequence.
    next: u64,
    token_bytes: u64,
}

impl Sequences {
    fn new(set: &TokenSet, file: &Arc<File>, slice: &Slice, has_documents: bool) -> Self {
        let reader = |range: Range<u64>| {
            let range = FileRange::new(Arc::clone(file), range.start, range.end);
            BufReader::with_capacity(64 << 10, range)
        };
        let [lengths, offsets, bounds, _] = index_ranges(&set.parts, slice);
        Self {
            lengths: reader(lengths),
            offsets: reader(offsets),
            bounds: has_documents.then(|| reader(bounds)),
            next: slice.sequences.start,
            token_bytes: set.head.tokens.size() as u64,
        }
    }

    /// Returns the end of the sequences of the next row.
    fn row_end(&mut self, set: &TokenSet) -> Result<u64, SourceError> {
        let Some(bounds) = &mut self.bounds else {
            return Ok(self.next + 1);
        };
        let end = u64::from_le_bytes(number(bounds, &set.index)?);
        match (self.next..=set.head.sequences).contains(&end) {
            true => Ok(end),
            false => Err(index_error(
                &set.index,
                RecordError::Index {
                    reason: "its documents do not follow one another",
                },
            )),
        }
    }

    /// Returns the bytes of the next sequence.
    fn sequence(&mut self, set: &TokenSet) -> Result<Range<u64>, SourceError> {
        let length = i32::from_le_bytes(number(&mut self.lengths, &set.index)?);
        let offset = u64::from_le_bytes(number(&mut self.offsets, &set.index)?);
        let sequence = self.next;
        self.next += 1;
        let length = u64::try_from(length).map_err(|_| {
            let reason = format!("sequence {sequence} has the length {length}");
            SourceProblem::MegatronIndex.at(&set.index.shown, reason)
        })?;
        let end = offset.checked_add(length * self.token_bytes);
        let bytes = set.tokens.file_version.bytes;
        end.filter(|end| *end <= bytes)
            .map(|end| offset..end)
            .ok_or_else(|| {
                let reason = format!(
                    "sequence {sequence} of {length} tokens begins at byte {offset}, but the file has {bytes} bytes"
                );
                SourceProblem::MegatronTruncated.at(&set.tokens.shown, reason)
            })
    }
}

fn number<const N: usize>(
    reader: &mut BufReader<FileRange>,
    index: &InputFile,
) -> Result<[u8; N], SourceError> {
    let mut bytes = [0; N];
    let read = reader.read_exact(&mut bytes);
    read.map_err(|source| index.read_error(source))?;
    Ok(bytes)
}

impl MegatronTable {
    /// Takes the schema of the first file, and compares it with that of every other one.
    fn add_schema(&mut self, set: &TokenSet) -> Result<(), SourceError> {
        let list = DataType::List(element(set.head.tokens));
        let mut fields = vec![Field::new(TOKENS, list, false)];
        if set.parts.modes.is_some() {
            fields.push(Field::new(MODE, DataType::Int8, false));
        }
        let schema = Arc::new(Schema::new(fields));
        let Some(first) = self.sets.first() else {
            self.facts.schema = schema;
            return Ok(());
        };
        if schema == self.facts.schema {
            return Ok(());
        }
        let reason = format!(
            "its tokens are {}, those of {} are {}, or only one has modes",
            set.head.tokens.name(),
            shardmill_core::escape(&first.index.shown),
            first.head.tokens.name()
        );
        Err(SourceProblem::MegatronIndex.at(&set.index.shown, reason))
    }

    /// Checks the sequences of a file and divides them into units. Returns the number of rows.
    fn add_units(
        &mut self,
        set: TokenSet,
        file_number: usize,
        file: Arc<File>,
    ) -> Result<u64, SourceError> {
        let has_documents = self.has_documents();
        let rows = match has_documents {
            true => set.head.bounds - 1,
            false => set.head.sequences,
        };
        let whole = Slice {
            set: self.sets.len(),
            rows: 0..rows,
            sequences: 0..set.head.sequences,
            bytes: 0..0,
        };
        let mut sequences = Sequences::new(&set, &file, &whole, has_documents);
        check_ends(&set, &file)?;
        let empty = |row: u64, sequence: u64| Slice {
            rows: row..row,
            sequences: sequence..sequence,
            bytes: Range {
                start: u64::MAX,
                end: 0,
            },
            ..whole.clone()
        };
        let mut slice = empty(0, 0);
        let mut size = 0;
        for row in 0..rows {
            let row_end = sequences.row_end(&set)?;
            while sequences.next < row_end {
                let bytes = sequences.sequence(&set)?;
                size += bytes.end - bytes.start;
                slice.bytes.start = slice.bytes.start.min(bytes.start);
                slice.bytes.end = slice.bytes.end.max(bytes.end);
            }
            slice.rows.end = row + 1;
            slice.sequences.end = sequences.next;
            let count = slice.rows.end - slice.rows.start;
            if size >= UNIT_BYTES || count >= UNIT_ROWS || row + 1 == rows {
                self.facts.units.push(Unit {
                    file: Some(file_number),
                    first_row: Some(slice.rows.start),
                    rows: Some(count),
                    bytes: size,
                });
                self.slices.push(slice);
                slice = empty(row + 1, sequences.next);
                size = 0;
            }
        }
        set.index.check(&file)?;
        self.sets.push(set);
        Ok(rows)
    }

    fn has_documents(&self) -> bool {
        self.facts.description.kind == SourceKind::MegatronDocuments
    }
}

/// Checks that the documents begin with the first sequence and end with the last one.
fn check_ends(set: &TokenSet, file: &File) -> Result<(), SourceError> {
    let read = |bound: u64| -> Result<u64, SourceError> {
        let mut bytes = [0; 8];
        let offset = set.parts.bounds + 8 * bound;
        set.index.read_at(file, &mut bytes, offset)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let (first, last) = (read(0)?, read(set.head.bounds - 1)?);
    if (first, last) == (0, set.head.sequences) {
        return Ok(());
    }
    let reason = format!(
        "its documents have the sequences {first} to {last} of {}",
        set.head.sequences
    );
    Err(SourceProblem::MegatronIndex.at(&set.index.shown, reason))
}

/// Opens some ranges of a file.
fn open_ranges(input: &InputFile, ranges: &[Range<u64>]) -> Result<Arc<File>, SourceError> {
    let file = match &input.origin {
        Origin::Local(_) => input.open()?,
        Origin::Object(object) => object.open_ranges(input.file_version, ranges)?,
    };
    Ok(Arc::new(file))
}

impl Base for MegatronTable {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        let slice = self.slices.get(unit);
        let slice = slice.ok_or_else(|| SourceError::no_unit(unit))?.clone();
        let set = self.sets.get(slice.set);
        let set = set.ok_or_else(|| SourceError::no_unit(unit))?.clone();
        let [lengths, offsets, bounds, modes] = index_ranges(&set.parts, &slice);
        let has_modes = set.parts.modes.is_some() && columns.contains(&1);
        let mut ranges = vec![lengths, offsets];
        ranges.extend(self.has_documents().then_some(bounds));
        ranges.extend(has_modes.then(|| modes.clone()));
        ranges.retain(|range| !range.is_empty());
        let index = open_ranges(&set.index, &ranges)?;
        let is_read = columns.contains(&0) && !slice.bytes.is_empty();
        let tokens = is_read.then(|| open_ranges(&set.tokens, std::slice::from_ref(&slice.bytes)));
        let max = self.options.resources.batch_bytes as u64;
        let mut rows = MegatronRows {
            sequences: Sequences::new(&set, &index, &slice, self.has_documents()),
            modes: has_modes.then(|| FileRange::new(Arc::clone(&index), modes.start, modes.end)),
            index,
            tokens: tokens.transpose()?,
            schema: project(self.schema(), columns),
            has_tokens: columns.contains(&0),
            rows_left: slice.rows.end - slice.rows.start,
            batch_bytes: max.clamp(1, MAX_BYTES),
            row_limit: self.options.limits.sample_bytes.min(MAX_BYTES),
            waiting: None,
            set,
        };
        Ok(rows_from(move || rows.pull()))
    }
}

/// The tokens of a row: the number of their bytes, and their byte ranges.
type RowRanges = (u64, Vec<Range<u64>>);

struct MegatronRows {
    set: TokenSet,
    index: Arc<File>,
    sequences: Sequences,
    modes: Option<FileRange>,
    /// `None` if no tokens are read.
    tokens: Option<Arc<File>>,
    has_tokens: bool,
    schema: SchemaRef,
    rows_left: u64,
    batch_bytes: u64,
    row_limit: u64,
    /// The row that did not fit into the last batch.
    waiting: Option<RowRanges>,
}

impl MegatronRows {
    fn next_row(&mut self) -> Result<Option<RowRanges>, SourceError> {
        if let Some(row) = self.waiting.take() {
            return Ok(Some(row));
        }
        if self.rows_left == 0 {
            return Ok(None);
        }
        self.rows_left -= 1;
        let end = self.sequences.row_end(&self.set)?;
        let (mut size, mut ranges) = (0, Vec::<Range<u64>>::new());
        while self.sequences.next < end {
            let first = self.sequences.next;
            let bytes = self.sequences.sequence(&self.set)?;
            size += bytes.end - bytes.start;
            SourceError::check_limit("sample-bytes", size, self.row_limit, || {
                format!("{} sequence {first}", self.set.index.shown)
            })?;
            match ranges.last_mut() {
                Some(last) if last.end == bytes.start => last.end = bytes.end,
                _ => ranges.push(bytes),
            }
        }
        Ok(Some((size, ranges)))
    }

    fn pull(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let width = self.set.head.tokens.size() as u64;
        let (mut size, mut lengths) = (0, Vec::new());
        let mut ranges: Vec<Range<u64>> = Vec::new();
        while let Some((bytes, row)) = self.next_row()? {
            if !lengths.is_empty() && bytes > self.batch_bytes.saturating_sub(size) {
                self.waiting = Some((bytes, row));
                break;
            }
            size += bytes;
            lengths.push(usize::try_from(bytes / width).unwrap_or(usize::MAX));
            for bytes in row {
                match ranges.last_mut() {
                    Some(last) if last.end == bytes.start => last.end = bytes.end,
                    _ => ranges.push(bytes),
                }
            }
        }
        let rows = lengths.len();
        if rows == 0 {
            self.set.index.check(&self.index)?;
            if let Some(file) = &self.tokens {
                self.set.tokens.check(file)?;
            }
            return Ok(None);
        }
        let mut columns: Vec<ArrayRef> = Vec::new();
        if self.has_tokens {
            columns.push(self.lists(size, lengths, ranges)?);
        }
        if let Some(modes) = &mut self.modes {
            let mut bytes = vec![0; rows];
            let read = modes.read_exact(&mut bytes);
            read.map_err(|source| self.set.index.read_error(source))?;
            let modes = bytes.into_iter().map(u8::cast_signed);
            columns.push(Arc::new(modes.collect::<Int8Array>()));
        }
        batch(&self.schema, columns, rows).map(Some)
    }

    /// Reads the tokens of rows.
    fn lists(
        &self,
        size: u64,
        lengths: Vec<usize>,
        ranges: Vec<Range<u64>>,
    ) -> Result<ArrayRef, SourceError> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let mut values = MutableBuffer::from_len_zeroed(size);
        let mut at = 0;
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let into = values.as_slice_mut().get_mut(at..at + length);
            let (Some(into), Some(file)) = (into, &self.tokens) else {
                return Err(SourceError::bug("tokens outside the range of their unit"));
            };
            self.set.tokens.read_at(file, into, range.start)?;
            at += length;
        }
        let data_type = DataType::List(element(self.set.head.tokens));
        let lists = lists_of_numbers(&data_type, vec![lengths], values);
        lists.map_err(|error| SourceError::bug(error.to_string()))
    }
}
