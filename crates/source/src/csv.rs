//! Reads CSV. Column types are inferred from the rows of all files together; of a large file, only the first rows
//! count. An empty value is null; a quoted empty value is text.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array as _, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use shardmill_core::Error;
use shardmill_storage::Location;

use crate::base::{batch, by_name, project, rows_from};
use crate::csv_records::{CsvProblem, Records, header_error, line_of};
use crate::csv_values::Values;
use crate::exact::{inexact, is_exact_text};
use crate::files::{InputFile, describe, file_of_unit, inspect_each, list_tables};
use crate::input::WHOLE_BYTES;
use crate::unite::match_fields;
use crate::{Rows, Source, SourceKind, SourceOptions, TableFacts, Unit};

/// What the values of one column look like.
#[derive(Clone, Debug, Default)]
struct Column {
    values: Values,
    /// Values that are not null, including empty texts.
    texts: u64,
    /// Empty texts. They are nulls if the column turns out not to be text.
    blanks: u64,
    /// The first whole number that no float represents exactly, after its file and row.
    inexact: Option<(usize, u64, String)>,
}

/// Returns whether the options fix the type of a column as text.
fn is_text_column(name: &str, options: &SourceOptions) -> bool {
    let text = &options.text;
    let mut columns = text.text_columns.iter().chain(&text.json_columns);
    columns.any(|column| column == name)
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
) -> Result<CsvTable, Error> {
    let mut options = options.clone();
    if kind == SourceKind::Tsv {
        options.csv.delimiter.get_or_insert(b'\t');
    }
    let options = &Arc::new(options);
    let files = list_tables(locations, kind, options)?;
    let scanned = inspect_each(&files, |number, input| scan(number, input, options))?;
    // An empty file among others has no rows. If all files are empty, that is an error.
    if let (Some(first), true) = (files.first(), scanned.iter().all(Scanned::is_empty)) {
        return Err(header_error(first, "the file is empty"));
    }
    let whole = scanned.iter().all(|scanned| scanned.whole);
    let rows: u64 = scanned.iter().map(|scanned| scanned.rows).sum();
    let bytes: u64 = scanned.iter().map(|scanned| scanned.bytes).sum();

    // Combine the types first: a column with whole numbers in one file and text in another is text in both.
    let mut types: BTreeMap<&str, Column> = BTreeMap::new();
    for own in &scanned {
        for (name, column) in own.header.iter().zip(&own.columns) {
            types.entry(name).or_default().merge(column);
        }
    }
    for (name, column) in &mut types {
        if is_text_column(name, options) {
            column.values = Values::Text;
        }
        if let (Values::Float, Some((number, row, text))) = (column.values, &column.inexact)
            && let Some(input) = files.get(*number)
        {
            let line = line_of(*row, options);
            return Err(CsvProblem::Inexact.at(input, line, Some(name), inexact(text), options));
        }
    }
    let count = |name: &str| types.get(name).map_or(0, Column::count);
    let field = |name: &String| -> FieldRef {
        let values = types
            .get(name.as_str())
            .map_or(Values::Empty, |column| column.values);
        let is_nullable = !whole || count(name) < rows;
        Arc::new(Field::new(name, values.data_type(), is_nullable))
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
        .map(|field| whole.then(|| rows.saturating_sub(count(field.name()))))
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

impl Scanned {
    const fn is_empty(&self) -> bool {
        self.header.is_empty()
    }
}

fn text_fields(header: &[String]) -> Fields {
    let header = header.iter();
    header
        .map(|name| Field::new(name, DataType::Utf8, true))
        .collect()
}

fn scan(number: usize, input: &InputFile, options: &Arc<SourceOptions>) -> Result<Scanned, Error> {
    let header = Records::header(input, options)?;
    let max = match input.file_version.bytes <= WHOLE_BYTES {
        true => u64::MAX,
        false => options.text.infer_rows as u64,
    };
    let schema = Schema::new(text_fields(&header));
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
    let mut records = Records::of_rows(input, options)?;
    while scanned.rows < max {
        let Some(found) = records.texts(&schema, 1024)? else {
            scanned.whole = true;
            break;
        };
        for (texts, column) in found.iter().zip(&mut scanned.columns) {
            column.scan(texts, number, scanned.rows);
        }
        scanned.rows += found.first().map_or(0, |texts| texts.len() as u64);
    }
    scanned.bytes = records.consumed;
    Ok(scanned)
}

impl Column {
    /// Returns the number of values that are not null.
    const fn count(&self) -> u64 {
        match self.values {
            Values::Empty | Values::Text => self.texts,
            Values::Boolean | Values::Whole | Values::Float => {
                self.texts.saturating_sub(self.blanks)
            }
        }
    }

    /// Adds the values of the same column in a later file.
    fn merge(&mut self, other: &Self) {
        self.values = self.values.and(other.values);
        self.texts += other.texts;
        self.blanks += other.blanks;
        self.inexact = self.inexact.take().or_else(|| other.inexact.clone());
    }

    /// Examines the values of some rows of a file; `first` is the number of the first one.
    fn scan(&mut self, texts: &StringArray, file: usize, first: u64) {
        self.texts += (texts.len() - texts.null_count()) as u64;
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
                self.inexact = Some((file, first + row as u64, text.to_owned()));
            }
            self.values = self.values.and(own);
        }
    }
}

impl Source for CsvTable {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let input = file_of_unit(&self.files, &self.facts.units, unit)?;
        let header = self.headers.get(unit).map_or(&[][..], Vec::as_slice);
        if header.is_empty() {
            // A file without a line has no rows.
            return Ok(rows_from(|| Ok(None)));
        }
        let names = header.iter();
        let types = names.filter_map(|name| self.facts.schema.field_with_name(name).ok().cloned());
        let types = Arc::new(Schema::new(types.collect::<Fields>()));
        let rows =
            (self.options.resources.batch_bytes as u64 / self.row_bytes.max(1)).clamp(1, 65_536);
        let rows = usize::try_from(rows).unwrap_or(1);
        let mut records = Records::of_rows(input, &self.options)?;
        let positions = header.iter().cloned().zip(0..).collect();
        let schema = project(&self.facts.schema, columns);
        Ok(rows_from(move || {
            let Some(found) = records.batch(&types, rows)? else {
                return Ok(None);
            };
            let columns = by_name(&found, &positions, schema.fields());
            batch(&schema, columns, found.num_rows()).map(Some)
        }))
    }
}
