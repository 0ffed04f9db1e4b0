//! Provides what the CSV decoder does not report about a field: whether it is quoted, and whether a number keeps its
//! digits.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use arrow::compute::kernels::cast_utils::Parser;
use arrow::datatypes::{DataType, Float64Type, Int64Type, Schema};
use csv_core::{ReadFieldResult, Reader, ReaderBuilder};
use shardmill_core::escape;

use crate::exact::{inexact, is_exact_text};

/// A field that cannot be converted to the type of its column.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// The row within the batch.
    pub row: usize,
    pub column: usize,
    pub reason: String,
}

/// Iterates over the fields of complete records, and notes whether each begins with a quote.
struct Walk<'a> {
    reader: Reader,
    bytes: &'a [u8],
    text: Vec<u8>,
    row: usize,
    column: usize,
}

/// One field: row, column, whether it is quoted, and its text.
type Field<'a> = (usize, usize, bool, &'a [u8]);

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8], delimiter: u8) -> Self {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        Self {
            reader: ReaderBuilder::new().delimiter(delimiter).build(),
            bytes,
            text: Vec::new(),
            row: 0,
            column: 0,
        }
    }

    fn next(&mut self) -> Option<Field<'_>> {
        if self.column == 0 {
            // Empty lines are not records.
            let breaks = |byte: &u8| matches!(byte, b'\n' | b'\r');
            let skipped = self.bytes.iter().take_while(|byte| breaks(byte)).count();
            self.bytes = self.bytes.get(skipped..).unwrap_or_default();
            if self.bytes.is_empty() {
                return None;
            }
        }
        let is_quoted = self.bytes.first() == Some(&b'"');
        let mut length = 0;
        loop {
            if length == self.text.len() {
                self.text.resize(length.max(64) * 2, 0);
            }
            let free = self.text.get_mut(length..).unwrap_or_default();
            let (result, read, written) = self.reader.read_field(self.bytes, free);
            self.bytes = self.bytes.get(read..).unwrap_or_default();
            length += written;
            match result {
                // If no input is left, the next call ends the last record.
                ReadFieldResult::InputEmpty | ReadFieldResult::OutputFull => {}
                ReadFieldResult::End => return None,
                ReadFieldResult::Field { record_end } => {
                    let (row, column) = (self.row, self.column);
                    if record_end {
                        self.row += 1;
                        self.column = 0;
                    } else {
                        self.column += 1;
                    }
                    let text = self.text.get(..length).unwrap_or_default();
                    return Some((row, column, is_quoted, text));
                }
            }
        }
    }
}

/// Corrects the nulls of text columns. The decoder makes every empty field null, but a field is null if it is unquoted
/// and one of `nulls`. `bytes` are the records of the batch, after `skipped` other ones.
pub(crate) fn mark_nulls(
    found: RecordBatch,
    (bytes, skipped): (&[u8], usize),
    delimiter: u8,
    nulls: &[String],
) -> RecordBatch {
    // For each column, the rows whose nulls differ from the decoder's.
    let mut columns: Vec<Vec<(usize, bool)>> = vec![Vec::new(); found.num_columns()];
    let mut walk = Walk::new(bytes, delimiter);
    while let Some((row, column, is_quoted, text)) = walk.next() {
        let (Some(row), Some(changes)) = (row.checked_sub(skipped), columns.get_mut(column)) else {
            continue;
        };
        let is_null = !is_quoted && nulls.iter().any(|null| null.as_bytes() == text);
        // The decoder has made exactly the empty fields null.
        if is_null != text.is_empty() {
            changes.push((row, is_null));
        }
    }
    let changed = found.columns().iter().zip(columns);
    let changed = changed.map(|(column, changes)| with_nulls(column, changes));
    RecordBatch::try_new(found.schema(), changed.collect()).unwrap_or(found)
}

/// Makes rows of a text column null or empty texts.
fn with_nulls(column: &ArrayRef, changes: Vec<(usize, bool)>) -> ArrayRef {
    if changes.is_empty() || *column.data_type() != DataType::Utf8 {
        return Arc::clone(column);
    }
    let mut changes = changes.into_iter().peekable();
    let texts = column.as_string::<i32>();
    let values = texts.iter().enumerate().map(|(row, text)| {
        match changes.next_if(|(changed, _)| *changed == row) {
            Some((_, true)) => None,
            // An empty field that is not null.
            Some((_, false)) => Some(text.unwrap_or("")),
            None => text,
        }
    });
    Arc::new(values.collect::<StringArray>())
}

/// Parses text columns into the types of a schema, as the decoder does, but keeps whole numbers exact. An empty text is
/// null in a column of another type. Reports the first text of the first column that does not fit.
pub(crate) fn parse(found: &RecordBatch, schema: &Schema) -> Result<Vec<ArrayRef>, Misfit> {
    let mut columns = Vec::with_capacity(found.num_columns());
    for (number, (column, field)) in found.columns().iter().zip(schema.fields()).enumerate() {
        if column.data_type() == field.data_type() {
            columns.push(Arc::clone(column));
            continue;
        }
        let texts = column.as_string::<i32>();
        columns.push(match field.data_type() {
            DataType::Int64 => parsed::<_, Int64Array>(texts, number, |text| {
                Int64Type::parse(text).ok_or_else(|| unlike(text, "Int64"))
            })?,
            DataType::Float64 => parsed::<_, Float64Array>(texts, number, |text| {
                let value = Float64Type::parse(text).ok_or_else(|| unlike(text, "Float64"))?;
                let digits = text.strip_prefix('-').unwrap_or(text);
                let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
                match is_whole && !is_exact_text(text) {
                    true => Err(inexact(text)),
                    false => Ok(value),
                }
            })?,
            DataType::Boolean => parsed::<_, BooleanArray>(texts, number, |text| match text {
                text if text.eq_ignore_ascii_case("true") => Ok(true),
                text if text.eq_ignore_ascii_case("false") => Ok(false),
                _ => Err(unlike(text, "Boolean")),
            })?,
            _ => Arc::clone(column),
        });
    }
    Ok(columns)
}

fn unlike(text: &str, data_type: &str) -> String {
    format!(
        "Error while parsing value '{}' as type '{data_type}'",
        escape(text)
    )
}

fn parsed<T, A: Array + FromIterator<Option<T>> + 'static>(
    texts: &StringArray,
    column: usize,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<ArrayRef, Misfit> {
    let texts = texts.iter().enumerate();
    let values = texts.map(|(row, text)| {
        let text = text.filter(|text| !text.is_empty());
        text.map(&parse).transpose().map_err(|reason| Misfit {
            row,
            column,
            reason,
        })
    });
    Ok(Arc::new(values.collect::<Result<A, Misfit>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Vec<(usize, usize, bool, String)> {
        let mut walk = Walk::new(text.as_bytes(), b',');
        let mut all = Vec::new();
        while let Some((row, column, is_quoted, text)) = walk.next() {
            let text = String::from_utf8(text.to_vec()).unwrap();
            all.push((row, column, is_quoted, text));
        }
        all
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
}
