//! Reads the records of a CSV file in one pass. It notes which fields are quoted, because an empty value is null and a
//! quoted empty value is text.

use std::sync::Arc;

use arrow::array::{BinaryArray, RecordBatch, StringArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{Schema, SchemaRef};
use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use shardmill_core::{Error, column_option};
use shardmill_records::{CsvColumn, CsvColumns};

use crate::base::batch;
use crate::csv_values::parse;
use crate::error;
use crate::files::InputFile;
use crate::hints::USED;
use crate::input::{Text, WHOLE_BYTES};
use crate::{SourceOptions, SourceProblem};

/// The category of a mistake in a CSV record.
#[derive(Clone, Copy)]
pub(crate) enum CsvProblem {
    Quote,
    FieldCount,
    Utf8,
    Value,
    Inexact,
}

impl CsvProblem {
    pub(crate) fn at(
        self,
        input: &InputFile,
        line: u64,
        column: Option<&str>,
        reason: String,
        options: &SourceOptions,
    ) -> Error {
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

pub(crate) fn header_error(input: &InputFile, reason: impl Into<String>) -> Error {
    SourceProblem::CsvHeader.at(&input.shown, format!("header: {}", reason.into()))
}

/// Returns the line number of a row, provided that each row is one line.
pub(crate) fn line_of(row: u64, options: &SourceOptions) -> u64 {
    row + 1 + u64::from(options.csv.header)
}

/// How many times its target size a batch may reach. The number of rows is estimated from the mean length of the first
/// rows.
const BATCH_FACTOR: u64 = 4;

/// The most bytes of a batch: the offsets of a column have 31 bits, and sizes are checked once for each piece of input.
const MAX_BYTES: u64 = 2000 << 20;

/// The records of one file.
pub(crate) struct Records {
    text: Text,
    reader: Reader,
    options: Arc<SourceOptions>,
    /// Whether the next record is the header.
    is_header: bool,
    delimiter: u8,
    /// The number of the next line, from 1.
    line: u64,
    /// The text of the last field that `reader` read.
    field: Vec<u8>,
    /// The rows in the earlier batches.
    before: u64,
    /// The bytes that were read.
    pub consumed: u64,
    /// The bytes of records since the last batch.
    pending: u64,
}

impl Records {
    pub(crate) fn open(input: &InputFile, options: &Arc<SourceOptions>) -> Result<Self, Error> {
        let mut text = Text::open(input)?;
        let mark = "\u{feff}".as_bytes();
        if text.fill()?.starts_with(mark) {
            text.consume(mark.len());
        }
        let delimiter = options.csv.delimiter.unwrap_or(b',');
        Ok(Self {
            text,
            reader: ReaderBuilder::new().delimiter(delimiter).build(),
            options: Arc::clone(options),
            is_header: true,
            delimiter,
            line: 1,
            field: Vec::new(),
            before: 0,
            consumed: 0,
            pending: 0,
        })
    }

    /// Opens the records of a file after its header.
    pub(crate) fn of_rows(input: &InputFile, options: &Arc<SourceOptions>) -> Result<Self, Error> {
        let mut records = Self::open(input, options)?;
        if options.csv.header {
            records.read(&mut CsvColumns::new(0))?;
        }
        records.is_header = false;
        Ok(records)
    }

    /// Returns the column names of the file: the fields of its first record, or numbers if there is no header. Empty for
    /// a file without a record.
    pub(crate) fn header(
        input: &InputFile,
        options: &Arc<SourceOptions>,
    ) -> Result<Vec<String>, Error> {
        let mut records = Self::open(input, options)?;
        let delimiter = options.csv.delimiter.unwrap_or(b',');
        let is_white = delimiter.is_ascii_whitespace();
        let mut first = CsvColumns::new(usize::MAX);
        let mut count = records.read(&mut first)?;
        let names = first.into_columns();
        let is_white_field = |column: &CsvColumn| {
            let mut values = column.values().zip(column.is_quoted());
            values.all(|(text, is_quoted)| !is_quoted && text.iter().all(u8::is_ascii_whitespace))
        };
        let mut is_blank = names.iter().all(is_white_field);
        // A file with nothing but white space has no record.
        while is_blank && (count == 1 || (is_white && count > 0)) {
            let mut next = CsvColumns::new(usize::MAX);
            count = records.read(&mut next)?;
            is_blank = next.into_columns().iter().all(is_white_field);
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        let wrong = |reason: String| header_error(input, reason);
        let texts = names.iter().flat_map(CsvColumn::values).enumerate();
        let texts = texts.map(|(field, text)| {
            String::from_utf8(text.to_vec()).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                wrong(format!("Csv error: Encountered UTF-8 error while reading CSV file: invalid utf-8: invalid UTF-8 in field {field} near byte index {at} at line 1"))
            })
        });
        let mut names = texts.collect::<Result<Vec<String>, _>>()?;
        if !options.csv.header {
            let numbers = 1..=names.len();
            names = numbers.map(|number| format!("column_{number}")).collect();
        }
        if let Some(number) = names.iter().position(String::is_empty) {
            return Err(wrong(format!("column {} has no name", number + 1)));
        }
        error::check_names(names.iter().map(String::as_str), || input.shown.clone())?;
        Ok(names)
    }

    /// Adds the fields of the next record to the columns. Returns their number; 0 at the end.
    fn read(&mut self, columns: &mut CsvColumns) -> Result<usize, Error> {
        self.skip_empty_lines()?;
        let mut count = 0;
        loop {
            // PERF: most fields have no quotes and end in the buffer.
            let found = columns.push_plain(self.text.fill()?, self.delimiter, count);
            self.consume(found.bytes);
            self.check_size()?;
            count += found.count;
            if let Some(stop) = found.stop {
                self.line += u64::from(stop == b'\n');
                return Ok(count);
            }
            let Some((is_quoted, is_last)) = self.read_field(count > 0)? else {
                return Ok(count);
            };
            columns.push(count, &self.field, is_quoted);
            count += 1;
            if is_last {
                return Ok(count);
            }
        }
    }

    /// Reads a field that is quoted, or continues after the buffer. Returns whether it is quoted, and whether it is the last
    /// of its record; `None` at the end of the file.
    fn read_field(&mut self, is_after_field: bool) -> Result<Option<(bool, bool)>, Error> {
        let before = if is_after_field {
            self.delimiter
        } else {
            b'\n'
        };
        self.reader.reset();
        self.reader.read_field(&[before], &mut [0]);
        let first_line = self.reader.line();
        let is_quoted = self.text.fill()?.first() == Some(&b'"');
        let mut length = 0;
        let is_last = loop {
            // The buffer grows, and is cut to the field at its end.
            if self.field.len() < length + 256 {
                self.field.resize(length * 2 + 256, 0);
            }
            let bytes = self.text.fill()?;
            // A line break at the end of the file ends the record, unless it is in quotes. Without one, the reader would
            // accept such a file as if the quote were closed at its end.
            let is_end = is_quoted && bytes.is_empty();
            let piece = if is_end { &b"\n"[..] } else { bytes };
            let free = self.field.get_mut(length..).unwrap_or_default();
            let (result, read, written) = self.reader.read_field(piece, free);
            if is_end && !matches!(result, ReadFieldResult::Field { .. }) {
                return Err(self.unclosed(self.line));
            }
            length += written;
            self.consume(if is_end { 0 } else { read });
            match result {
                ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {}
                ReadFieldResult::Field { record_end } => break record_end,
                ReadFieldResult::End => return Ok(None),
            }
            self.check_size()?;
        };
        self.line += self.reader.line() - first_line;
        self.field.truncate(length);
        Ok(Some((is_quoted, is_last)))
    }

    fn consume(&mut self, bytes: usize) {
        self.text.consume(bytes);
        self.consumed += bytes as u64;
        self.pending += bytes as u64;
    }

    /// Skips line breaks, which are no records.
    fn skip_empty_lines(&mut self) -> Result<(), Error> {
        loop {
            let bytes = self.text.fill()?;
            let is_break = |byte: &&u8| matches!(byte, b'\n' | b'\r');
            let breaks = bytes.iter().take_while(is_break);
            let lines = breaks.clone().filter(|byte| **byte == b'\n').count();
            let count = breaks.count();
            if count == 0 {
                return Ok(());
            }
            self.line += lines as u64;
            self.text.consume(count);
            self.consumed += count as u64;
        }
    }

    fn unclosed(&self, line: u64) -> Error {
        let reason = format!("a quote opens on line {line} and is never closed");
        let input = &self.text.input;
        if self.is_header {
            return header_error(input, reason);
        }
        CsvProblem::Quote.at(input, line, None, reason, &self.options)
    }

    fn check_size(&self) -> Result<(), Error> {
        let limits = &self.options.limits;
        let (name, max) = match self.is_header {
            true => ("string-bytes", limits.string_bytes.max(16 << 20)),
            // Room for a batch that is just below the size at which it ends, and one more record.
            false => {
                let room = (64 << 20) + self.enough();
                (
                    "sample-bytes",
                    limits.sample_bytes.saturating_add(room).min(MAX_BYTES),
                )
            }
        };
        self.text.input.check_limit(name, self.pending, max)
    }

    /// Returns the size at which a batch ends, even if it has few rows.
    fn enough(&self) -> u64 {
        let target = self.options.resources.batch_bytes as u64;
        target.saturating_mul(BATCH_FACTOR).min(MAX_BYTES)
    }

    /// Reads the next batch of at most `max` rows as text. `schema` has the columns of the file.
    pub(crate) fn texts(
        &mut self,
        schema: &Schema,
        max: usize,
    ) -> Result<Option<Vec<StringArray>>, Error> {
        let width = schema.fields().len();
        let options = Arc::clone(&self.options);
        let mut columns = CsvColumns::new(width);
        let first = self.before;
        let mut rows = 0;
        self.pending = 0;
        while rows < max && self.pending < self.enough() {
            let fields = self.read(&mut columns)?;
            if fields == 0 {
                break;
            }
            if fields != width {
                let line = line_of(first + rows as u64, &options);
                let reason = format!("incorrect number of fields, expected {width} got {fields}");
                let input = &self.text.input;
                return Err(CsvProblem::FieldCount.at(input, line, None, reason, &options));
            }
            rows += 1;
        }
        self.before += rows as u64;
        let columns = columns.into_columns().into_iter().map(|column| {
            let valid = NullBuffer::from(column.validity(&options.csv.nulls));
            let (offsets, bytes) = column.into_parts();
            BinaryArray::new(OffsetBuffer::new(offsets.into()), bytes.into(), Some(valid))
        });
        let columns: Vec<BinaryArray> = columns.collect();
        let texts = columns.iter().cloned().map(StringArray::try_from_binary);
        let Ok(texts) = texts.collect::<Result<Vec<_>, _>>() else {
            return Err(self.not_utf8(&columns, schema, first));
        };
        Ok((rows > 0).then_some(texts))
    }

    /// Returns the error about the first value that is not UTF-8.
    fn not_utf8(&self, columns: &[BinaryArray], schema: &Schema, first: u64) -> Error {
        let wrong = columns
            .iter()
            .zip(schema.fields())
            .filter_map(|(column, field)| {
                let is_wrong =
                    |text: Option<&[u8]>| text.is_some_and(|text| str::from_utf8(text).is_err());
                Some((column.iter().position(is_wrong)?, field.name().as_str()))
            });
        let (row, name) = wrong.min_by_key(|(row, _)| *row).unzip();
        let line = line_of(first + row.unwrap_or(0) as u64, &self.options);
        let reason = "Encountered invalid UTF-8 data".to_owned();
        CsvProblem::Utf8.at(&self.text.input, line, name, reason, &self.options)
    }

    /// Reads the next batch of at most `max` rows, with the types of the schema.
    pub(crate) fn batch(
        &mut self,
        schema: &SchemaRef,
        max: usize,
    ) -> Result<Option<RecordBatch>, Error> {
        let first = self.before;
        let is_scanned = self.text.input.file_version.bytes <= WHOLE_BYTES;
        let Some(texts) = self.texts(schema, max)? else {
            return Ok(None);
        };
        let columns = texts
            .into_iter()
            .zip(schema.fields())
            .map(|(texts, field)| {
                parse(texts, field.data_type(), is_scanned).map_err(|(row, reason)| {
                    let line = line_of(first + row as u64, &self.options);
                    let input = &self.text.input;
                    CsvProblem::Value.at(input, line, Some(field.name()), reason, &self.options)
                })
            });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let rows = columns.first().map_or(0, |column| column.len());
        batch(schema, columns, rows).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SourceKind;
    use crate::files::list_tables;

    fn records(text: &str) -> Records {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.csv");
        std::fs::write(&path, text).unwrap();
        let mut options = SourceOptions::default();
        options.csv.header = false;
        let inputs = list_tables(&[path.into()], SourceKind::Csv, &options).unwrap();
        Records::of_rows(&inputs[0], &Arc::new(options)).unwrap()
    }

    fn fields(text: &str) -> Vec<(usize, usize, bool, String)> {
        let mut records = records(text);
        let mut all = Vec::new();
        for row in 0.. {
            let mut columns = CsvColumns::new(usize::MAX);
            if records.read(&mut columns).unwrap() == 0 {
                break;
            }
            for (number, column) in columns.into_columns().iter().enumerate() {
                let value = column.values().next().unwrap().to_vec();
                all.push((
                    row,
                    number,
                    column.is_quoted()[0],
                    String::from_utf8(value).unwrap(),
                ));
            }
        }
        all
    }

    /// The buffer of a file ends at any place of a record.
    #[test]
    fn fields_across_buffers_are_whole() {
        const WANTED: [(&str, bool); 5] = [
            ("plain", false),
            ("in, \"quotes\"\n", true),
            ("", true),
            ("", false),
            ("é", false),
        ];
        let row = "plain,\"in, \"\"quotes\"\"\n\",\"\",,é\r\n";
        for shift in 0..row.len() {
            // The first buffer has 256 KiB.
            let text = format!(
                "{}\r\n{}",
                "x".repeat(shift),
                row.repeat((256 << 10) / row.len() + 3)
            );
            let found = fields(&text);
            let first = usize::from(shift > 0);
            for (at, (_, column, is_quoted, value)) in found.iter().skip(first).enumerate() {
                let (wanted, quoted) = WANTED[at % 5];
                assert_eq!(
                    (*column, *is_quoted, value.as_str()),
                    (at % 5, quoted, wanted),
                    "{shift} {at}"
                );
            }
            assert_eq!((found.len() - first) % 5, 0, "{shift}");
        }
    }

    #[test]
    fn quoted_fields_are_distinguished_from_unquoted() {
        let field = |row, column, quoted, text: &str| (row, column, quoted, text.to_owned());
        assert_eq!(
            fields("\u{feff}a,\"\"\r\n\r\n,\"b\"\"\n\"\n\"\",x\"y"),
            [
                field(0, 0, false, "a"),
                field(0, 1, true, ""),
                field(1, 0, false, ""),
                field(1, 1, true, "b\"\n"),
                field(2, 0, true, ""),
                field(2, 1, false, "x\"y"),
            ]
        );
        assert_eq!(
            fields("a,"),
            [field(0, 0, false, "a"), field(0, 1, false, "")]
        );
        assert_eq!(fields("\"\""), [field(0, 0, true, "")]);
        let long = "x".repeat(1000);
        assert_eq!(fields(&format!("\"{long}\"\n")), [field(0, 0, true, &long)]);
        assert!(fields("\n\r\n").is_empty());
    }

    #[test]
    fn open_quote_reports_its_line() {
        for (text, line) in [
            ("", None),
            ("a,b\n", None),
            ("\"a\",b\n", None),
            ("a,\"b", Some(1)),
            ("a,\"b\n\"\"c\n", Some(1)),
            ("a,\"b\"\"\n", Some(1)),
            ("a,\"b\"\"\"\n", None),
            ("a,\"\"\n\"x", Some(2)),
            // A quote inside an unquoted value is an ordinary character.
            ("a,5\" nails\nb,c\n", None),
            ("a,\"b\" c\"\n\"", Some(2)),
            ("a\r\n\"b", Some(2)),
            ("a;\"b", None),
            ("\u{feff}id,\"\n", Some(1)),
            ("\u{feff}\"a", Some(1)),
            ("id\n\"x\n\ny\"\nz,\"", Some(5)),
        ] {
            let mut records = records(text);
            let error = loop {
                match records.read(&mut CsvColumns::new(0)) {
                    Ok(0) => break None,
                    Ok(_) => {}
                    Err(error) => break Some(error.to_string()),
                }
            };
            let expected =
                line.map(|line| format!("a quote opens on line {line} and is never closed"));
            assert_eq!(error, expected, "{text:?}");
        }
    }
}
