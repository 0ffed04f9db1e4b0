//! Reads JSON lines: one object on each line. Nested objects become structs, arrays become lists.

use std::io::{BufRead as _, BufReader};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use shardmill_storage::Location;

use crate::base::{pick, project, rows_from};
use crate::exact::EXACT_DIGITS;
use crate::files::{InputFile, describe, file_of_unit, inspect_each, list_tables};
use crate::hints::{USED, column_of};
use crate::input::{Lines, Packing, Range, Text, WHOLE_BYTES, packing};
use crate::json_pairs::with_plain_pairs;
use crate::raw_json_fields::{RawField, quoted};
use crate::shape::{Line, Member, Object, Taken};
use crate::shape_reader::{has_digits, shape_of_line};
use crate::{Rows, Source, SourceKind, SourceOptions, SourceProblem, TableFacts, Unit};
use shardmill_core::catch_panic::{attempt, one_line};
use shardmill_core::{Error, column_option};

/// A large file is read in ranges of about this size, each by its own thread.
const RANGE_BYTES: u64 = 16 << 20;

/// A table of JSON lines files.
pub(crate) struct JsonTable {
    facts: TableFacts,
    files: Vec<InputFile>,
    /// Fields that are read as their JSON text.
    raw: Arc<[RawField]>,
    /// What the examined rows have, if there are others.
    examined: Option<Arc<Object>>,
    /// The range of each unit.
    ranges: Vec<(u64, u64)>,
    options: SourceOptions,
}

struct Scanned {
    object: Object,
    whole: bool,
    /// The end offset of each range of the file.
    ends: Vec<u64>,
}

/// Lists the files and infers the types of their fields.
pub(crate) fn open(locations: &[Location], options: &SourceOptions) -> Result<JsonTable, Error> {
    let files = list_tables(locations, SourceKind::JsonLines, options)?;
    let taken = |name: &str| taken(name, options);
    let scanned = inspect_each(&files, |number, input| scan(input, number, &taken, options))?;
    let mut all = Object::default();
    let mut whole = true;
    let mut rows = Some(0_u64);
    let mut units = Vec::new();
    let mut ranges = Vec::new();
    for (number, (scanned, input)) in scanned.into_iter().zip(&files).enumerate() {
        whole &= scanned.whole;
        let own_rows = scanned.whole.then_some(scanned.object.objects);
        rows = rows.zip(own_rows).map(|(rows, own)| rows + own);
        let single = scanned.ends.len() == 1;
        let mut start = 0;
        for end in scanned.ends {
            units.push(Unit {
                file: Some(number),
                first_row: (start == 0).then_some(0),
                rows: own_rows.filter(|_| single),
                bytes: end - start,
            });
            ranges.push((start, end));
            start = end;
        }
        all.merge(scanned.object, &taken).map_err(|reason| {
            let reason = format!("{AFTER_FILES}{reason}");
            row_error(input, 1, reason, options)
        })?;
    }
    if let Some(unfit) = all.unfit(&taken)
        && let Some(input) = files.get(unfit.line.file)
    {
        let reason = match unfit.among_fractions {
            true => among_fractions(&unfit.path),
            false => format!("{}{BEYOND}", unfit.path),
        };
        return Err(row_error(input, unfit.line.line, reason, options));
    }
    let (mut fields, raw) = all.fields_as(&taken);
    if !whole {
        // Rows that were not examined may lack any field.
        fields = fields
            .iter()
            .map(|field| Arc::new(field.as_ref().clone().with_nullable(true)) as FieldRef)
            .collect();
    }
    let null_counts = all
        .fields
        .values()
        // A list without a value is null as a whole; nulls among its items are not counted.
        .map(|member: &Member| {
            (whole && !member.has_inner_nulls()).then(|| all.objects - member.values)
        })
        .collect();
    Ok(JsonTable {
        facts: TableFacts {
            schema: Arc::new(Schema::new(fields)),
            units,
            null_counts,
            description: describe(SourceKind::JsonLines, &files, rows),
        },
        files,
        raw: raw.into(),
        examined: (!whole).then(|| Arc::new(all)),
        ranges,
        options: options.clone(),
    })
}

/// Returns how the options want a field to be read.
fn taken(name: &str, options: &SourceOptions) -> Taken {
    let is_in = |names: &[String]| names.iter().any(|known| known == name);
    if is_in(&options.text.json_columns) {
        Taken::Json
    } else if is_in(&options.text.text_columns) {
        Taken::Text
    } else if options.text.raw_objects
        // Expressions match column names in any case.
        && !options.text.typed_columns.iter().any(|known| known.eq_ignore_ascii_case(name))
    {
        Taken::RawObjects
    } else {
        Taken::Typed
    }
}

/// Describes a whole number beyond 64 bits in a column of whole numbers.
const BEYOND: &str = ": a whole number that 64 bits do not hold";

/// Describes a whole number that is not exact in a column with fractions.
fn among_fractions(path: &str) -> String {
    format!("{path}: a whole number that float64, the type of the column, does not hold exactly")
}

/// The start of the reason why a file does not fit those before it.
const AFTER_FILES: &str = "differs from the files before it: ";

fn row_error(
    input: &InputFile,
    line: u64,
    reason: impl Into<String>,
    options: &SourceOptions,
) -> Error {
    let reason = reason.into();
    let error = SourceProblem::JsonRow.at(format!("{} line {line}", input.shown), &reason);
    let path = reason.strip_prefix(AFTER_FILES).unwrap_or(&reason);
    let (column, is_nested) = column_of(path);
    let is_number = path.contains(": a whole number that ");
    if !is_number && !path.contains(" here, and ") {
        return error;
    }
    if options.query.mentions(&column) {
        return error.with_hint(USED);
    }
    let has_lists = is_nested
        || ["a list", "an object"]
            .iter()
            .any(|what| path.contains(what));
    let options = match (is_number && !is_nested, has_lists, options.text.raw_objects) {
        (true, ..) | (_, false, false) => column_option(&column, ":str"),
        (_, _, true) => column_option(&column, ":json"),
        // The format has no JSON.
        (_, true, false) => format!("--to mds {}", column_option(&column, ":json")),
    };
    error.with_hint(match is_number {
        true => format!("read the column as it is written with {options}"),
        false => format!("values without a type in common can be kept as they are with {options}"),
    })
}

/// Replaces a byte order mark, which some editors write, with spaces.
fn blank_mark(text: &mut [u8]) {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    if let Some(mark) = text.get_mut(..MARK.len())
        && mark == MARK
    {
        mark.fill(b' ');
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

fn scan(
    input: &InputFile,
    file: usize,
    taken: &dyn Fn(&str) -> Taken,
    options: &SourceOptions,
) -> Result<Scanned, Error> {
    let mut lines = Lines::new(Text::open(input)?, &options.limits);
    let read_all = input.file_version.bytes <= WHOLE_BYTES;
    let max = if read_all {
        u64::MAX
    } else {
        options.text.infer_rows as u64
    };
    let mut object = Object::default();
    let mut block = Vec::new();
    let mut number = 0;
    let mut ended = false;
    while object.objects < max {
        lines.read(1 << 20, &mut block)?;
        if block.is_empty() {
            ended = true;
            break;
        }
        if number == 0 {
            blank_mark(&mut block);
        }
        for line in block.split_inclusive(|byte| *byte == b'\n') {
            number += 1;
            if object.objects >= max || is_blank(line) {
                continue;
            }
            let position = Line { file, line: number };
            let own = shape_of_line(line, position, taken);
            own.and_then(|own| object.merge(own, taken))
                .map_err(|reason| row_error(input, number, one_line(&reason), options))?;
        }
    }
    Ok(Scanned {
        object,
        whole: ended,
        ends: range_ends(input)?,
    })
}

/// Splits a large uncompressed file after the line that crosses each multiple of the range size.
fn range_ends(input: &InputFile) -> Result<Vec<u64>, Error> {
    let size = input.file_version.bytes;
    let failed = |source| input.read_error(source);
    let mut ends = Vec::new();
    if size > RANGE_BYTES {
        let file = Arc::new(input.open()?);
        let mut next = RANGE_BYTES;
        while next < size && packing(&file).map_err(failed)? == Packing::None {
            let rest = Range::new(Arc::clone(&file), next - 1, size);
            let line = BufReader::new(rest).skip_until(b'\n').map_err(failed)?;
            let end = next - 1 + line as u64;
            if end >= size {
                break;
            }
            ends.push(end);
            next = (end / RANGE_BYTES + 1) * RANGE_BYTES;
        }
    }
    ends.push(size);
    Ok(ends)
}

impl Source for JsonTable {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let input = file_of_unit(&self.files, &self.facts.units, unit)?;
        let (start, end) = self.ranges.get(unit).copied().unwrap_or_default();
        let text = Text::open_range(input, start, end)?;
        let mut rows = JsonRows {
            start,
            lines: Lines::new(text, &self.options.limits),
            raw: Arc::clone(&self.raw),
            examined: self.examined.clone(),
            full: Arc::clone(&self.facts.schema),
            schema: project(&self.facts.schema, columns),
            columns: columns.to_vec(),
            batch_bytes: self.options.resources.batch_bytes.max(1),
            block: Vec::new(),
            line: 0,
            options: self.options.clone(),
        };
        Ok(rows_from(move || rows.pull()))
    }

    fn file_row(&self, unit: usize, row: u64) -> Option<u64> {
        let input = self.files.get(self.facts.units.get(unit)?.file?)?;
        let (start, _) = self.ranges.get(unit)?;
        Some(row + count_lines(input, *start, |line| !is_blank(line)))
    }
}

/// Counts the lines before a position of an uncompressed file that `counts` accepts; 0 if the file cannot be read.
fn count_lines(input: &InputFile, end: u64, counts: impl Fn(&[u8]) -> bool) -> u64 {
    let Ok(file) = input.open() else {
        return 0;
    };
    let range = Range::new(Arc::new(file), 0, end);
    let mut reader = BufReader::with_capacity(1 << 20, range);
    let mut line = Vec::new();
    let mut count = 0;
    while reader
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        count += u64::from(counts(&line));
        line.clear();
    }
    count
}

struct JsonRows {
    /// The offset at which the range begins.
    start: u64,
    lines: Lines,
    raw: Arc<[RawField]>,
    examined: Option<Arc<Object>>,
    full: SchemaRef,
    schema: SchemaRef,
    columns: Vec<usize>,
    batch_bytes: usize,
    block: Vec<u8>,
    /// Lines of the range before the block.
    line: u64,
    options: SourceOptions,
}

fn decode(schema: &SchemaRef, bytes: &[u8], rows: usize) -> Result<RecordBatch, String> {
    let bytes = &with_plain_pairs(bytes);
    let (used, found) = attempt(|| {
        let mut decoder = ReaderBuilder::new(Arc::clone(schema))
            .with_batch_size(rows.max(1))
            .with_strict_mode(true)
            .build_decoder()?;
        let used = decoder.decode(bytes)?;
        let found = decoder.flush()?;
        Ok::<_, ArrowError>((used, found))
    })?;
    match found {
        Some(found) if found.num_rows() == rows && bytes.get(used..).is_some_and(is_blank) => {
            Ok(found)
        }
        _ => Err("is not one object on one line".to_owned()),
    }
}

impl JsonRows {
    fn pull(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            self.lines.read(self.batch_bytes, &mut self.block)?;
            if self.block.is_empty() {
                return Ok(None);
            }
            if self.start == 0 && self.line == 0 {
                blank_mark(&mut self.block);
            }
            if let Some(examined) = &self.examined {
                self.check_numbers(examined)?;
            }
            if !self.raw.is_empty() {
                let lines = self.block.split_inclusive(|byte| *byte == b'\n');
                let lines: Vec<_> = lines.map(|line| quoted(line, &self.raw)).collect();
                self.block = lines.concat();
            }
            let (mut rows, mut count) = (0, 0);
            for line in self.block.split_inclusive(|byte| *byte == b'\n') {
                count += 1;
                rows += usize::from(!is_blank(line));
            }
            if rows > 0 {
                let found =
                    decode(&self.full, &self.block, rows).map_err(|reason| self.blame(&reason))?;
                self.line += count;
                return pick(&found, &self.columns, &self.schema).map(Some);
            }
            self.line += count;
        }
    }

    /// Refuses whole numbers that the decoder would round, in rows that type inference did not examine.
    fn check_numbers(&self, examined: &Object) -> Result<(), Error> {
        // Only numbers with at least this many digits are rounded.
        let is_long = |text: &[u8]| has_digits(text, EXACT_DIGITS + 1);
        if !is_long(&self.block) {
            return Ok(());
        }
        let taken = |name: &str| taken(name, &self.options);
        let lines = self.block.split_inclusive(|byte| *byte == b'\n');
        for (number, text) in lines.enumerate().filter(|(_, text)| is_long(text)) {
            let mut all = examined.clone();
            // The decoder reports lines that do not parse or do not fit.
            let own = shape_of_line(text, Line::default(), &taken);
            let merged = own.and_then(|own| all.merge(own, &taken));
            if merged.is_ok()
                && let Some(unfit) = all.unfit(&taken)
                && unfit.among_fractions
            {
                return Err(self.error_at(number, among_fractions(&unfit.path)));
            }
        }
        Ok(())
    }

    /// Returns the error of the first line that does not decode on its own.
    fn blame(&self, reason: &str) -> Error {
        let lines = self.block.split_inclusive(|byte| *byte == b'\n');
        let mut lines = lines.enumerate().filter(|(_, line)| !is_blank(line));
        let wrong = lines.find_map(|(number, line)| {
            let error = decode(&self.full, line, 1).err()?;
            Some(self.error_at(number, error))
        });
        wrong.unwrap_or_else(|| self.error_at(0, reason))
    }

    /// Returns the error about a line of the block.
    fn error_at(&self, number: usize, reason: impl Into<String>) -> Error {
        let input = &self.lines.text.input;
        let before = self.line + count_lines(input, self.start, |_| true);
        row_error(input, before + number as u64 + 1, reason, &self.options)
    }
}
