//! Reads CSV. Column types are inferred from the rows of all files together; of a large file, only the first rows
//! count. An empty value is null; a quoted empty value is text.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, RecordBatch, StringArray};
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::{Decoder, Format};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use shardmill_core::{column_option, escape};
use shardmill_storage::Location;

use crate::base::{batch, by_name, project, rows_from};
use crate::csv_fields::{mark_nulls, parse};
use crate::csv_scanner::CsvScanner;
use crate::csv_values::Values;
use crate::exact::{inexact, is_exact_text};
use crate::files::{InputFile, describe, file_of_unit, inspect_each, list_tables};
use crate::hints::USED;
use crate::input::{Text, WHOLE_BYTES};
use crate::unite::match_fields;
use crate::{
    Rows, Source, SourceError, SourceKind, SourceOptions, SourceProblem, TableFacts, Unit,
};
use shardmill_core::catch_panic::{attempt, catch, one_line};

/// The category of a mistake in a CSV record.
#[derive(Clone, Copy)]
enum CsvProblem {
    Quote,
    FieldCount,
    Utf8,
    Value,
    Inexact,
}

impl CsvProblem {
    fn at(
        self,
        input: &InputFile,
        line: u64,
        column: Option<&str>,
        reason: String,
        options: &SourceOptions,
    ) -> SourceError {
        let text = column_option(column.unwrap_or("NAME"), ":str");
        let hint = match self {
            Self::Quote => "close the quote, or double it (\"\") where it is part of a quoted value".to_owned(),
            Self::FieldCount => "write as many values in the line as the header has names; --csv-delimiter sets the separator".to_owned(),
            Self::Utf8 => "convert the file to UTF-8".to_owned(),
            Self::Value | Self::Inexact if column.is_some_and(|name| options.query.mentions(name)) => USED.to_owned(),
            Self::Value => format!("the type follows from the rows before: correct the value, or read the column as text with {text}"),
            Self::Inexact => format!("read the column as text with {text}"),
        };
        let mut object = format!("{} line {line}", input.shown);
        if let Some(column) = column {
            object = format!("{object} column `{column}`");
        }
        SourceProblem::CsvRow.at(object, reason).with_hint(hint)
    }
}

/// What the values of one column in one file look like.
#[derive(Clone, Debug, Default)]
struct Column {
    values: Values,
    nulls: u64,
    /// Empty texts. They are nulls if the column turns out not to be text.
    blanks: u64,
    /// The first whole number that no float represents exactly, and its row.
    inexact: Option<(u64, String)>,
}

/// Returns whether the options fix the type of a column as text.
fn is_text_column(name: &str, options: &SourceOptions) -> bool {
    let text = &options.text;
    let mut columns = text.text_columns.iter().chain(&text.json_columns);
    columns.any(|column| column == name)
}

/// Returns the byte that separates values.
fn delimiter(options: &SourceOptions) -> u8 {
    options.csv.delimiter.unwrap_or(b',')
}

/// A table of CSV files.
pub(crate) struct CsvTable {
    facts: TableFacts,
    files: Vec<InputFile>,
    /// The columns of each file in its own order.
    headers: Vec<Vec<String>>,
    /// The approximate number of bytes in a row.
    row_bytes: u64,
    options: Arc<SourceOptions>,
}

struct Scanned {
    /// Empty for a file without a line.
    header: Vec<String>,
    columns: Vec<Column>,
    rows: u64,
    bytes: u64,
    whole: bool,
}

/// Lists the files and infers the types of their columns.
pub(crate) fn open(
    locations: &[Location],
    kind: SourceKind,
    options: &SourceOptions,
) -> Result<CsvTable, SourceError> {
    let mut options = options.clone();
    if kind == SourceKind::Tsv {
        options.csv.delimiter.get_or_insert(b'\t');
    }
    let options = &Arc::new(options);
    let files = list_tables(locations, kind, options)?;
    let jobs = options.resources.jobs;
    let scanned = inspect_each(&files, jobs, |_, input| scan(input, options))?;
    // An empty file among others has no rows. If all files are empty, that is an error.
    if let (Some(first), true) = (files.first(), scanned.iter().all(Scanned::is_empty)) {
        return Err(header_error(first, "the file is empty"));
    }
    let whole = scanned.iter().all(|scanned| scanned.whole);
    let rows: u64 = scanned.iter().map(|scanned| scanned.rows).sum();
    let bytes: u64 = scanned.iter().map(|scanned| scanned.bytes).sum();

    // Combine the types first: a column with whole numbers in one file and text in another is text in both.
    let mut types: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    for (number, own) in scanned.iter().enumerate() {
        for (name, column) in own.header.iter().zip(&own.columns) {
            let all = types.entry(name).or_default();
            all.values = all.values.and(column.values);
            all.texts += own.rows - column.nulls;
            all.blanks += column.blanks;
            let inexact = column.inexact.as_ref();
            all.inexact = all
                .inexact
                .or(inexact.map(|(row, text)| (number, *row, text.as_str())));
        }
    }
    for (name, known) in &mut types {
        if is_text_column(name, options) {
            known.values = Values::Text;
        }
        if let (Values::Float, Some((number, row, text))) = (known.values, known.inexact)
            && let Some(input) = files.get(number)
        {
            let line = line_of(row, options);
            return Err(CsvProblem::Inexact.at(input, line, Some(name), inexact(text), options));
        }
    }
    let known = |name: &str| types.get(name).copied().unwrap_or_default();
    let field = |name: &String| -> FieldRef {
        let known = known(name);
        let is_nullable = !whole || known.count() < rows;
        Arc::new(Field::new(name, known.values.data_type(), is_nullable))
    };
    let headers = scanned.iter().enumerate();
    let mut headers = headers.filter(|(_, own)| !own.is_empty());
    let first = headers.next().map_or(&[][..], |(_, first)| &first.header);
    let fields: Vec<FieldRef> = first.iter().map(field).collect();
    for (number, own) in headers {
        let own: Fields = own.header.iter().map(field).collect();
        match_fields(SourceKind::Csv, &files, number, &fields, &own)?;
    }
    let null_counts = fields
        .iter()
        .map(|field| whole.then(|| rows.saturating_sub(known(field.name()).count())))
        .collect();
    let units = files.iter().zip(&scanned).enumerate();
    let units = units.map(|(number, (input, own))| Unit {
        file: Some(number),
        first_row: Some(0),
        rows: own.whole.then_some(own.rows),
        bytes: input.file_version.bytes,
    });
    let units = units.collect();
    Ok(CsvTable {
        facts: TableFacts {
            schema: Arc::new(Schema::new(fields)),
            units,
            null_counts,
            description: describe(kind, &files, whole.then_some(rows)),
        },
        files,
        headers: scanned.into_iter().map(|own| own.header).collect(),
        row_bytes: bytes / rows.max(1),
        options: Arc::clone(options),
    })
}

/// What the values of one column in all files look like.
#[derive(Clone, Copy, Default)]
struct Known<'a> {
    values: Values,
    /// Values that are not null, including empty texts.
    texts: u64,
    blanks: u64,
    /// The first whole number that no float represents exactly, after its file and row.
    inexact: Option<(usize, u64, &'a str)>,
}

impl Known<'_> {
    /// Returns the number of values that are not null.
    const fn count(&self) -> u64 {
        match self.values {
            Values::Empty | Values::Text => self.texts,
            Values::Boolean | Values::Whole | Values::Float => {
                self.texts.saturating_sub(self.blanks)
            }
        }
    }
}

impl Scanned {
    const fn is_empty(&self) -> bool {
        self.header.is_empty()
    }
}

fn header_error(input: &InputFile, reason: impl Into<String>) -> SourceError {
    SourceProblem::CsvHeader.at(&input.shown, format!("header: {}", reason.into()))
}

/// Returns the line number of a row, provided that each row is one line.
fn line_of(row: u64, options: &SourceOptions) -> u64 {
    row + 1 + u64::from(options.csv.header)
}

fn text_fields(header: &[String]) -> Fields {
    let header = header.iter();
    header
        .map(|name| Field::new(name, DataType::Utf8, true))
        .collect()
}

/// Returns the column names of a file: the fields of its first line, or numbers if there is no header. Empty for a file
/// without a line.
fn header(input: &InputFile, options: &SourceOptions) -> Result<Vec<String>, SourceError> {
    let wrong = |reason: String| header_error(input, reason);
    let mut text = Text::open(input)?;
    let mut line = Vec::new();
    let mut csv_scanner = CsvScanner::new(delimiter(options));
    let mut blank = true;
    // The first record ends at the first line break outside quotes.
    loop {
        let bytes = text.fill()?;
        if bytes.is_empty() {
            if let Some(line) = csv_scanner.open_line() {
                return Err(wrong(unclosed(line)));
            }
            break;
        }
        let count = memchr::memchr2(b'\n', b'\r', bytes).map_or(bytes.len(), |at| at + 1);
        let piece = bytes.get(..count).unwrap_or_default();
        csv_scanner.read(piece);
        // A byte order mark is not part of the text.
        let visible = match line.is_empty() {
            true => piece.strip_prefix(b"\xef\xbb\xbf").unwrap_or(piece),
            false => piece,
        };
        blank &= visible.iter().all(u8::is_ascii_whitespace);
        line.extend_from_slice(piece);
        let ends = piece.ends_with(b"\n") || piece.ends_with(b"\r");
        text.consume(count);
        if ends && !csv_scanner.inside() && !blank {
            break;
        }
        let max = options.limits.string_bytes.max(16 << 20);
        input.check_limit("string-bytes", line.len() as u64, max)?;
    }
    if blank {
        return Ok(Vec::new());
    }
    let format = Format::default()
        .with_header(options.csv.header)
        .with_delimiter(delimiter(options));
    let found = attempt(|| format.infer_schema(line.as_slice(), Some(0)));
    let (found, _) = found.map_err(wrong)?;
    let names = found.fields().iter().map(|field| field.name().clone());
    let names: Vec<String> = names.collect();
    if let Some(number) = names.iter().position(String::is_empty) {
        return Err(wrong(format!("column {} has no name", number + 1)));
    }
    SourceError::check_names(names.iter().map(String::as_str), || input.shown.clone())?;
    Ok(names)
}

/// Describes a file that ends inside quotes.
fn unclosed(line: u64) -> String {
    format!("a quote opens on line {line} and is never closed")
}

fn scan(input: &InputFile, options: &Arc<SourceOptions>) -> Result<Scanned, SourceError> {
    let header = header(input, options)?;
    let max = match input.file_version.bytes <= WHOLE_BYTES {
        true => u64::MAX,
        false => options.text.infer_rows as u64,
    };
    let fields = text_fields(&header);
    let mut scanned = Scanned {
        columns: vec![Column::default(); header.len()],
        header,
        rows: 0,
        bytes: 0,
        whole: false,
    };
    if scanned.is_empty() {
        scanned.whole = true;
        return Ok(scanned);
    }
    let mut records = Records::new(input, &fields, 1024, options)?;
    while scanned.rows < max {
        let Some(found) = records.read()? else {
            scanned.whole = true;
            break;
        };
        for (texts, column) in found.columns().iter().zip(&mut scanned.columns) {
            column.scan(texts.as_string::<i32>(), scanned.rows);
        }
        scanned.rows += found.num_rows() as u64;
    }
    scanned.bytes = records.consumed;
    Ok(scanned)
}

impl Column {
    /// Examines the values of some rows; `first` is the number of the first one.
    fn scan(&mut self, texts: &StringArray, first: u64) {
        self.nulls += texts.null_count() as u64;
        for (row, text) in texts.iter().enumerate() {
            if self.values == Values::Text {
                break;
            }
            let Some(text) = text else { continue };
            if text.is_empty() {
                self.blanks += 1;
                continue;
            }
            let own = Values::of(text);
            if own == Values::Whole && self.inexact.is_none() && !is_exact_text(text) {
                self.inexact = Some((first + row as u64, text.to_owned()));
            }
            self.values = self.values.and(own);
        }
    }
}

/// How many times its target size a batch may reach. The number of rows is estimated from the mean length of the first
/// rows.
const BATCH_FACTOR: u64 = 4;

/// The records of one file as batches.
struct Records {
    text: Text,
    decoder: Decoder,
    limits: BatchLimits,
    /// The columns to return. Some of them are decoded as text first.
    schema: SchemaRef,
    options: Arc<SourceOptions>,
    /// Rows in the earlier batches.
    before: u64,
    /// Records in the block that are not rows: 1 if the block begins with the header.
    skipped: usize,
    /// The bytes of the current batch.
    block: Vec<u8>,
    csv_scanner: CsvScanner,
    consumed: u64,
    /// Bytes since the last batch, without those before its first row.
    pending: u64,
    /// Whether the decoder has received the end of the input.
    ended: bool,
}

/// Where a batch ends.
struct BatchLimits {
    /// The most rows.
    rows: usize,
    /// Once a batch has this many bytes, it ends with the next record, even if it has few rows.
    enough: u64,
    /// The most bytes.
    max: u64,
}

impl Records {
    fn new(
        input: &InputFile,
        fields: &Fields,
        rows: usize,
        options: &Arc<SourceOptions>,
    ) -> Result<Self, SourceError> {
        let rows = rows.max(1);
        let has_usual_nulls = options.csv.nulls == [""];
        let is_large = input.file_version.bytes > WHOLE_BYTES;
        let decoded = |field: &FieldRef| -> FieldRef {
            // Rows that were not examined may contain whole numbers that no float represents exactly.
            let is_unknown = is_large && *field.data_type() == DataType::Float64;
            let data_type = match has_usual_nulls && !is_unknown {
                true => field.data_type().clone(),
                false => DataType::Utf8,
            };
            // Nullable, because the decoder turns a quoted empty text into a null.
            Arc::new(Field::new(field.name(), data_type, true))
        };
        let decoded: Fields = fields.iter().map(decoded).collect();
        let decoder = ReaderBuilder::new(Arc::new(Schema::new(decoded)))
            .with_header(options.csv.header)
            .with_delimiter(delimiter(options))
            .with_batch_size(rows)
            .build_decoder();
        let enough = (options.resources.batch_bytes as u64).saturating_mul(BATCH_FACTOR);
        let sample_bytes = options.limits.sample_bytes;
        Ok(Self {
            text: Text::open(input)?,
            decoder,
            limits: BatchLimits {
                rows,
                enough,
                // Room for a batch that is just below `enough`, and one more record.
                max: sample_bytes.saturating_add(64 << 20).saturating_add(enough),
            },
            schema: Arc::new(Schema::new(fields.clone())),
            options: Arc::clone(options),
            before: 0,
            skipped: usize::from(options.csv.header),
            block: Vec::new(),
            csv_scanner: CsvScanner::new(delimiter(options)),
            consumed: 0,
            pending: 0,
            ended: false,
        })
    }

    fn read(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        while !self.ended && self.decoder.capacity() > 0 {
            let mut bytes = self.text.fill()?;
            self.ended = bytes.is_empty();
            let is_enough = self.pending >= self.limits.enough;
            // A batch can only end after a complete record.
            if is_enough && let Some(end) = memchr::memchr(b'\n', bytes) {
                bytes = bytes.get(..=end).unwrap_or(bytes);
            }
            // The decoder would accept such a file as if the quote were closed at its end.
            if let Some(line) = self.csv_scanner.open_line().filter(|_| self.ended) {
                return Err(CsvProblem::Quote.at(
                    &self.text.input,
                    line,
                    None,
                    unclosed(line),
                    &self.options,
                ));
            }
            let decoder = &mut self.decoder;
            // An empty slice ends a last record that has no line break.
            let count = match catch(|| decoder.decode(bytes)) {
                Ok(Ok(count)) => count,
                Ok(Err(error)) => return Err(self.row_error(&error.to_string())),
                Err(panic) => return Err(self.row_error(&panic)),
            };
            let taken = bytes.get(..count).unwrap_or_default();
            self.csv_scanner.read(taken);
            self.block.extend_from_slice(taken);
            self.text.consume(count);
            self.consumed += count as u64;
            self.pending += count as u64;
            let input = &self.text.input;
            input.check_limit("sample-bytes", self.pending, self.limits.max)?;
            if self.csv_scanner.is_after_record() {
                // The header and empty lines are not rows, and an empty batch would mean the end of the file.
                if self.decoder.capacity() == self.limits.rows {
                    self.pending = 0;
                    if !is_without_record(&self.block) {
                        self.skipped = 0;
                    }
                    self.block.clear();
                } else if is_enough {
                    break;
                }
            }
        }
        self.pending = 0;
        let decoder = &mut self.decoder;
        let found = catch(|| decoder.flush())
            .and_then(|found| found.map_err(|error| error.to_string()))
            .map_err(|message| self.row_error(&message))?;
        let found = found.map(|found| self.finish(found)).transpose();
        self.block.clear();
        found
    }

    /// Corrects nulls and parses numbers that were decoded as text.
    fn finish(&mut self, mut found: RecordBatch) -> Result<RecordBatch, SourceError> {
        let skipped = std::mem::take(&mut self.skipped);
        if self.csv_scanner.take_empty() || self.options.csv.nulls != [""] {
            let block = (self.block.as_slice(), skipped);
            found = mark_nulls(
                found,
                block,
                delimiter(&self.options),
                &self.options.csv.nulls,
            );
        }
        let first = self.before;
        self.before += found.num_rows() as u64;
        let columns = parse(&found, &self.schema).map_err(|misfit| {
            let field = self.schema.fields().get(misfit.column);
            let column = field.map(|field| field.name().as_str());
            let line = line_of(first + misfit.row as u64, &self.options);
            CsvProblem::Value.at(&self.text.input, line, column, misfit.reason, &self.options)
        })?;
        batch(&self.schema, columns, found.num_rows())
    }

    /// Extracts line and column from the decoder's message.
    fn row_error(&self, message: &str) -> SourceError {
        let name = |number: u64| {
            let field = usize::try_from(number)
                .ok()
                .and_then(|number| self.schema.fields().get(number));
            field.map(|field| field.name().clone())
        };
        // The decoder counts lines from 0 and includes the header.
        let lines_before = 1;
        let (line, column) = match (
            number_after(message, "for column "),
            number_after(message, "at line "),
        ) {
            // The record splitter counts lines from 1.
            (Some(column), Some(line)) => (line + lines_before, name(column)),
            _ => {
                let field = number_after(message, "and field ")
                    .and_then(|field| name(field.saturating_sub(1)));
                (number_after(message, "for line ").unwrap_or(0), field)
            }
        };
        let shown = message.split(". Row data").next().unwrap_or(message);
        let shown = shown.split(" for column ").next().unwrap_or(shown);
        let shown = shown.split(" for line ").next().unwrap_or(shown);
        let shown = shown.rsplit("error: ").next().unwrap_or(shown);
        let expected = message
            .split(", expected ")
            .nth(1)
            .map(|rest| format!(", expected {rest}"))
            .unwrap_or_default();
        let problem = if message.contains("incorrect number of fields") {
            CsvProblem::FieldCount
        } else if message.contains("UTF-8") {
            CsvProblem::Utf8
        } else {
            CsvProblem::Value
        };
        let reason = one_line(&escape(&format!("{shown}{expected}")));
        problem.at(
            &self.text.input,
            line,
            column.as_deref(),
            reason,
            &self.options,
        )
    }
}

/// Returns whether bytes contain only line breaks, with or without a byte order mark before them.
fn is_without_record(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    bytes.iter().all(|byte| matches!(byte, b'\n' | b'\r'))
}

fn number_after(message: &str, marker: &str) -> Option<u64> {
    let rest = message.split(marker).nth(1)?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

impl Source for CsvTable {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        let input = file_of_unit(&self.files, &self.facts.units, unit)?;
        let header = self.headers.get(unit).map_or(&[][..], Vec::as_slice);
        if header.is_empty() {
            // A file without a line has no rows.
            return Ok(rows_from(|| Ok(None)));
        }
        let names = header.iter();
        let fields = names.filter_map(|name| self.facts.schema.field_with_name(name).ok().cloned());
        let rows =
            (self.options.resources.batch_bytes as u64 / self.row_bytes.max(1)).clamp(1, 65_536);
        let rows = usize::try_from(rows).unwrap_or(1);
        let mut records = Records::new(input, &fields.collect(), rows, &self.options)?;
        let positions = header.iter().cloned().zip(0..).collect();
        let schema = project(&self.facts.schema, columns);
        Ok(rows_from(move || {
            let Some(found) = records.read()? else {
                return Ok(None);
            };
            let columns = by_name(&found, &positions, schema.fields());
            batch(&schema, columns, found.num_rows()).map(Some)
        }))
    }
}
