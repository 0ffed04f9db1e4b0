//! CSV: a header line, values whose types all rows decide on together, an empty value for null.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::{Decoder, Format};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use rayon::prelude::*;
use shardmill_core::{LimitExceeded, escape};
use shardmill_storage::Location;

use crate::base::{Base, batch, project};
use crate::files::{Fingerprint, InputFile, described, fetch_early, list_tables, looking};
use crate::guard::{catch, one_line};
use crate::input::Text;
use crate::json::{WHOLE_BYTES, by_name};
use crate::parquet::match_fields;
use crate::quotes::Quotes;
use crate::walk::on_pool;
use crate::{Rows, SourceDescription, SourceError, SourceKind, SourceOptions, Unit};

/// What the values of a column are, from the narrowest on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Values {
    #[default]
    Empty,
    Boolean,
    Whole,
    Float,
    Text,
}

impl Values {
    fn of(text: &str) -> Self {
        if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
            return Self::Boolean;
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            // 007 is a name, and so is a number that no integer holds.
            let plain = digits == "0" && digits.len() == text.len() || !digits.starts_with('0');
            return if plain && text.parse::<i64>().is_ok() {
                Self::Whole
            } else {
                Self::Text
            };
        }
        if is_float(digits) {
            Self::Float
        } else {
            Self::Text
        }
    }

    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Empty, other) | (other, Self::Empty) => other,
            (Self::Boolean, Self::Boolean) => Self::Boolean,
            (Self::Whole, Self::Whole) => Self::Whole,
            (Self::Whole | Self::Float, Self::Whole | Self::Float) => Self::Float,
            _ => Self::Text,
        }
    }

    const fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Whole => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Empty | Self::Text => DataType::Utf8,
        }
    }
}

/// A decimal number with a point or an exponent, or one of the words for none.
fn is_float(text: &str) -> bool {
    if matches!(text, "nan" | "NaN" | "inf") {
        return true;
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    digits(whole)
        && digits(fraction)
        && whole.len() + fraction.len() > 0
        && digits(exponent)
        && !exponent.is_empty()
}

/// Files of CSV.
pub(crate) struct CsvTable {
    files: Arc<Vec<InputFile>>,
    schema: SchemaRef,
    /// The columns of each file in its own order.
    headers: Arc<Vec<Vec<String>>>,
    /// Bytes of a row, about.
    row_bytes: u64,
    units: Vec<Unit>,
    null_counts: Vec<Option<u64>>,
    options: Arc<SourceOptions>,
    description: SourceDescription,
}

struct Scanned {
    header: Vec<String>,
    values: Vec<Values>,
    nulls: Vec<u64>,
    rows: u64,
    bytes: u64,
    whole: bool,
}

/// Lists the files and looks at their rows.
///
/// # Errors
///
/// `source-*` and `csv-*` errors.
pub(crate) fn open(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<CsvTable, SourceError> {
    let files = list_tables(locations, SourceKind::Csv, options)?;
    let scanned: Vec<Result<Scanned, SourceError>> =
        on_pool(looking(&files, options.jobs), || {
            files.par_iter().map(|input| scan(input, options)).collect()
        })?;
    let scanned = scanned.into_iter().collect::<Result<Vec<_>, _>>()?;
    let whole = scanned.iter().all(|scanned| scanned.whole);
    let rows: u64 = scanned.iter().map(|scanned| scanned.rows).sum();
    let bytes: u64 = scanned.iter().map(|scanned| scanned.bytes).sum();

    // Types first, so that a column that is whole in one file and text in another is text in all.
    let mut types: BTreeMap<&str, (Values, u64)> = BTreeMap::new();
    for own in &scanned {
        for ((name, values), nulls) in own.header.iter().zip(&own.values).zip(&own.nulls) {
            let (all, count) = types.entry(name).or_default();
            *all = all.and(*values);
            *count += own.rows - nulls;
        }
    }
    let field = |name: &String| -> FieldRef {
        let (values, count) = types.get(name.as_str()).copied().unwrap_or_default();
        Arc::new(Field::new(name, values.data_type(), !whole || count < rows))
    };
    let mut fields: Vec<FieldRef> = scanned
        .first()
        .map(|first| first.header.iter().map(field).collect())
        .unwrap_or_default();
    for (number, own) in scanned.iter().enumerate().skip(1) {
        let own: Fields = own.header.iter().map(field).collect();
        match_fields(SourceKind::Csv, &files, number, &mut fields, &own)?;
    }
    let null_counts = fields
        .iter()
        .map(|field| {
            let (_, count) = types
                .get(field.name().as_str())
                .copied()
                .unwrap_or_default();
            whole.then_some(rows - count)
        })
        .collect();
    let units = files
        .iter()
        .zip(&scanned)
        .enumerate()
        .map(|(number, (input, own))| Unit {
            file: Some(number),
            first_row: Some(0),
            rows: own.whole.then_some(own.rows),
            bytes: input.stamp.bytes,
        })
        .collect();
    let mut description = SourceDescription::new(SourceKind::Csv);
    description.files = described(&files);
    description.rows = whole.then_some(rows);
    description.bytes = files.iter().map(|file| file.stamp.bytes).sum();
    description.fingerprint = Fingerprint::of(SourceKind::Csv, &files);
    Ok(CsvTable {
        files: Arc::new(files),
        schema: Arc::new(Schema::new(fields)),
        headers: Arc::new(scanned.into_iter().map(|own| own.header).collect()),
        row_bytes: bytes / rows.max(1),
        units,
        null_counts,
        options: Arc::new(options.clone()),
        description,
    })
}

/// Column names of a file: its first line, or numbers.
fn header(input: &InputFile, options: &SourceOptions) -> Result<Vec<String>, SourceError> {
    let wrong = |reason: String| SourceError::CsvHeader {
        file: input.shown.clone(),
        reason,
    };
    let mut text = Text::open(input)?;
    let mut line = Vec::new();
    let mut quotes = Quotes::new(options.csv_delimiter);
    let mut blank = true;
    // The first record ends with the first line break outside quotes.
    loop {
        let bytes = text.fill(input)?;
        if bytes.is_empty() {
            if let Some(line) = quotes.open_line() {
                return Err(wrong(unclosed(line)));
            }
            break;
        }
        let count = memchr::memchr2(b'\n', b'\r', bytes).map_or(bytes.len(), |at| at + 1);
        let piece = bytes.get(..count).unwrap_or_default();
        quotes.read(piece);
        // The mark that some programs begin a text with is not part of it.
        let visible = match line.is_empty() {
            true => piece.strip_prefix(b"\xef\xbb\xbf").unwrap_or(piece),
            false => piece,
        };
        blank &= visible.iter().all(u8::is_ascii_whitespace);
        line.extend_from_slice(piece);
        let ends = piece.ends_with(b"\n") || piece.ends_with(b"\r");
        text.consume(count);
        if ends && !quotes.inside() && !blank {
            break;
        }
        let most = options.limits.string_bytes.max(16 << 20);
        check_pending(input, "string-bytes", line.len() as u64, most)?;
    }
    let format = Format::default()
        .with_header(options.csv_header)
        .with_delimiter(options.csv_delimiter);
    let found = catch(|| format.infer_schema(line.as_slice(), Some(0)));
    let (found, _) = found
        .map_err(wrong)?
        .map_err(|error| wrong(one_line(&error.to_string())))?;
    let names: Vec<String> = found
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    if names.is_empty() {
        return Err(wrong("the file is empty".to_owned()));
    }
    for (number, name) in names.iter().enumerate() {
        if name.is_empty() {
            return Err(wrong(format!("column {} has no name", number + 1)));
        }
        if names.iter().skip(number + 1).any(|other| other == name) {
            return Err(SourceError::DuplicateColumn {
                object: input.shown.clone(),
                column: name.clone(),
            });
        }
    }
    Ok(names)
}

/// What is wrong with a file that ends within quotes.
fn unclosed(line: u64) -> String {
    format!("a quote opens on line {line} and is never closed")
}

fn check_pending(
    input: &InputFile,
    name: &'static str,
    pending: u64,
    most: u64,
) -> Result<(), SourceError> {
    if pending <= most {
        return Ok(());
    }
    Err(SourceError::Limit {
        object: input.shown.clone(),
        limit: LimitExceeded {
            name,
            value: pending,
            limit: most,
        },
    })
}

fn scan(input: &InputFile, options: &SourceOptions) -> Result<Scanned, SourceError> {
    let header = header(input, options)?;
    let fields: Fields = header
        .iter()
        .map(|name| Field::new(name, DataType::Utf8, true))
        .collect();
    let most = if input.stamp.bytes <= WHOLE_BYTES {
        u64::MAX
    } else {
        options.infer_rows as u64
    };
    let mut records = Records::new(input, &fields, 1024, options)?;
    let mut scanned = Scanned {
        values: vec![Values::Empty; header.len()],
        nulls: vec![0; header.len()],
        header,
        rows: 0,
        bytes: 0,
        whole: false,
    };
    while scanned.rows < most {
        let Some(found) = records.read(input)? else {
            scanned.whole = true;
            break;
        };
        for ((column, values), nulls) in found
            .columns()
            .iter()
            .zip(&mut scanned.values)
            .zip(&mut scanned.nulls)
        {
            let text = column.as_string::<i32>();
            *nulls += text.null_count() as u64;
            for value in text.iter().flatten() {
                if *values == Values::Text {
                    break;
                }
                *values = values.and(Values::of(value));
            }
        }
        scanned.rows += found.num_rows() as u64;
    }
    scanned.bytes = records.consumed;
    Ok(scanned)
}

/// How much longer than it was to be a batch may become: rows are counted by the mean of the first ones.
const BATCH_FACTOR: u64 = 4;

/// The records of one file as batches.
struct Records {
    text: Text,
    decoder: Decoder,
    /// Rows of a batch, at most.
    rows: usize,
    fields: Fields,
    quotes: Quotes,
    consumed: u64,
    /// Bytes since the last batch, but for what came before its first row.
    pending: u64,
    /// With so many a batch ends with the next record, however few it has.
    enough: u64,
    most: u64,
    /// Whether the decoder has been told that nothing more comes.
    ended: bool,
}

impl Records {
    fn new(
        input: &InputFile,
        fields: &Fields,
        rows: usize,
        options: &SourceOptions,
    ) -> Result<Self, SourceError> {
        let rows = rows.max(1);
        let decoder = ReaderBuilder::new(Arc::new(Schema::new(fields.clone())))
            .with_header(options.csv_header)
            .with_delimiter(options.csv_delimiter)
            .with_batch_size(rows)
            .build_decoder();
        let enough = (options.batch_bytes as u64).saturating_mul(BATCH_FACTOR);
        let sample_bytes = options.limits.sample_bytes;
        Ok(Self {
            text: Text::open(input)?,
            decoder,
            rows,
            fields: fields.clone(),
            quotes: Quotes::new(options.csv_delimiter),
            consumed: 0,
            pending: 0,
            enough,
            // A batch that is not long enough yet, and a record.
            most: sample_bytes.saturating_add(64 << 20).saturating_add(enough),
            ended: false,
        })
    }

    fn read(&mut self, input: &InputFile) -> Result<Option<RecordBatch>, SourceError> {
        while !self.ended && self.decoder.capacity() > 0 {
            let mut bytes = self.text.fill(input)?;
            self.ended = bytes.is_empty();
            let is_enough = self.pending >= self.enough;
            // A record that is not whole cannot be given out.
            if is_enough && let Some(end) = memchr::memchr(b'\n', bytes) {
                bytes = bytes.get(..=end).unwrap_or(bytes);
            }
            // The decoder takes such a file as if the quote stood at its end.
            if let Some(line) = self.quotes.open_line().filter(|_| self.ended) {
                return Err(SourceError::CsvRow {
                    file: input.shown.clone(),
                    line,
                    column: None,
                    reason: unclosed(line),
                });
            }
            let decoder = &mut self.decoder;
            // An empty slice tells the decoder that the last record has no line break.
            let count = match catch(|| decoder.decode(bytes)) {
                Ok(Ok(count)) => count,
                Ok(Err(error)) => return Err(self.row_error(input, &error.to_string())),
                Err(panic) => return Err(self.row_error(input, &panic)),
            };
            self.quotes.read(bytes.get(..count).unwrap_or_default());
            self.text.consume(count);
            self.consumed += count as u64;
            self.pending += count as u64;
            check_pending(input, "sample-bytes", self.pending, self.most)?;
            if self.quotes.is_behind_record() {
                // The header and blank lines are no rows, and a batch without rows would be the end of the file.
                if self.decoder.capacity() == self.rows {
                    self.pending = 0;
                } else if is_enough {
                    break;
                }
            }
        }
        self.pending = 0;
        let decoder = &mut self.decoder;
        match catch(|| decoder.flush()) {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(self.row_error(input, &error.to_string())),
            Err(panic) => Err(self.row_error(input, &panic)),
        }
    }

    /// Finds line and column in the decoder's message.
    fn row_error(&self, input: &InputFile, message: &str) -> SourceError {
        let name = |number: u64| {
            let field = usize::try_from(number)
                .ok()
                .and_then(|number| self.fields.get(number));
            field.map(|field| field.name().clone())
        };
        // The decoder counts lines from 0, the header among them.
        let lines_before = 1;
        let (line, column) = match (
            number_after(message, "for column "),
            number_after(message, "at line "),
        ) {
            // What splits records counts lines from 1.
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
        SourceError::CsvRow {
            file: input.shown.clone(),
            line,
            column,
            reason: one_line(&escape(&format!("{shown}{expected}"))),
        }
    }
}

fn number_after(message: &str, marker: &str) -> Option<u64> {
    let rest = message.split(marker).nth(1)?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

impl Base for CsvTable {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn units(&self) -> &[Unit] {
        &self.units
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        let found = self.files.get(unit).zip(self.headers.get(unit));
        let (input, header) = found.ok_or_else(|| SourceError::Bug {
            what: format!("there is no unit {unit}"),
        })?;
        fetch_early(&self.files, unit);
        let fields: Fields = header
            .iter()
            .filter_map(|name| self.schema.field_with_name(name).ok().cloned())
            .collect();
        let rows = (self.options.batch_bytes as u64 / self.row_bytes.max(1)).clamp(1, 65_536);
        let rows = usize::try_from(rows).unwrap_or(1);
        let places = header
            .iter()
            .enumerate()
            .map(|(place, name)| (name.clone(), place))
            .collect();
        Ok(Box::new(CsvRows {
            files: Arc::clone(&self.files),
            number: unit,
            records: Some(Records::new(input, &fields, rows, &self.options)?),
            places,
            schema: project(&self.schema, columns),
        }))
    }

    fn null_count(&self, column: usize) -> Option<u64> {
        self.null_counts.get(column).copied().flatten()
    }

    fn description(&self) -> &SourceDescription {
        &self.description
    }
}

struct CsvRows {
    files: Arc<Vec<InputFile>>,
    number: usize,
    /// `None` when the unit is over.
    records: Option<Records>,
    places: BTreeMap<String, usize>,
    schema: SchemaRef,
}

impl Rows for CsvRows {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let (Some(records), Some(input)) = (&mut self.records, self.files.get(self.number)) else {
            return Ok(None);
        };
        let result = records.read(input);
        match result {
            Ok(Some(found)) => {
                let columns = by_name(&found, &self.places, self.schema.fields());
                batch(&self.schema, columns, found.num_rows()).map(Some)
            }
            over => {
                self.records = None;
                over
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_for_what_they_are() {
        for (text, values) in [
            ("true", Values::Boolean),
            ("FALSE", Values::Boolean),
            ("0", Values::Whole),
            ("-12", Values::Whole),
            ("9223372036854775807", Values::Whole),
            ("9223372036854775808", Values::Text),
            ("007", Values::Text),
            ("-0", Values::Text),
            ("1.5", Values::Float),
            ("-.5e-3", Values::Float),
            ("1e9", Values::Float),
            ("nan", Values::Float),
            (".", Values::Text),
            ("1e", Values::Text),
            ("-", Values::Text),
            ("1.2.3", Values::Text),
            ("2024-01-01", Values::Text),
        ] {
            assert_eq!(Values::of(text), values, "{text}");
        }
        assert_eq!(Values::Whole.and(Values::Float), Values::Float);
        assert_eq!(Values::Whole.and(Values::Boolean), Values::Text);
        assert_eq!(Values::Empty.and(Values::Boolean), Values::Boolean);
    }
}
