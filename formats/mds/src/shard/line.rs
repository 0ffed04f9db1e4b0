//! Parses samples that are lines of text.

use std::borrow::Cow;

use shardmill_core::Limits;

use crate::config::{TextColumn, TextEncoding};
use crate::error::{MdsError, MdsProblem};
use crate::json::check_json;
use crate::shown::shorten;
use crate::text::{is_integer_text, parse_float_text};
use crate::value::Value;

/// A value of a JSON or XSV sample.
#[derive(Clone, Debug, PartialEq)]
pub enum TextValue<'a> {
    /// A string.
    Str(Cow<'a, str>),
    /// An integer.
    Int(i64),
    /// The decimal text of an integer that does not fit 64 bits.
    BigInt(&'a str),
    /// A number with a fraction or exponent, `NaN` or an infinity.
    Float(f64),
    /// The JSON text of anything else: `true`, `false`, `null`, a list, an object.
    Json(&'a str),
}

impl TextValue<'_> {
    /// Returns the value as a value of an MDS sample.
    #[must_use]
    pub fn as_value(&self) -> Value<'_> {
        match self {
            Self::Str(text) => Value::Str(text),
            Self::Int(number) => Value::Int(*number),
            Self::BigInt(text) => Value::BigInt(text),
            Self::Float(number) => Value::Float(*number),
            Self::Json(text) => Value::Json(text),
        }
    }
}

fn problem(sample: u64, reason: impl Into<String>) -> MdsError {
    MdsProblem::Line.of_sample(sample, reason)
}

fn columns_problem(sample: u64, reason: impl Into<String>) -> MdsError {
    MdsProblem::LineColumns.of_sample(sample, reason)
}

fn wrong_count(sample: u64, found: usize, needed: usize) -> MdsError {
    columns_problem(sample, format!("has {found} values instead of {needed}"))
}

fn utf8(sample: u64, line: &[u8]) -> Result<&str, MdsError> {
    simdutf8::compat::from_utf8(line).map_err(|error| {
        let reason = format!("is not UTF-8 from byte {}", error.valid_up_to());
        problem(sample, reason)
    })
}

/// Parses a line of an XSV shard, without its newline.
pub(super) fn xsv<'a>(
    sample: u64,
    line: &'a [u8],
    columns: &'a [TextColumn],
    separator: &str,
) -> Result<Vec<(&'a str, TextValue<'a>)>, MdsError> {
    let text = utf8(sample, line)?;
    let mut values = Vec::with_capacity(columns.len());
    let mut parts = text.split(separator);
    for column in columns {
        let Some(part) = parts.next() else {
            return Err(wrong_count(sample, values.len(), columns.len()));
        };
        let value = match column.encoding {
            TextEncoding::Str => Some(TextValue::Str(Cow::Borrowed(part))),
            TextEncoding::Int => is_integer_text(part).then(|| integer(part)),
            TextEncoding::Float => parse_float_text(part).map(TextValue::Float),
        };
        let value = value.ok_or_else(|| {
            let (part, name) = (shorten(part), shorten(&column.name));
            let encoding = column.encoding;
            let reason = format!("has `{part}` in column `{name}` of encoding `{encoding}`");
            problem(sample, reason)
        })?;
        values.push((column.name.as_str(), value));
    }
    // Without columns the line is empty, but splitting an empty line still gives one part.
    let more = parts
        .filter(|part| !(columns.is_empty() && part.is_empty()))
        .count();
    if more > 0 {
        return Err(wrong_count(sample, columns.len() + more, columns.len()));
    }
    Ok(values)
}

fn integer(text: &str) -> TextValue<'_> {
    text.parse().map_or(TextValue::BigInt(text), TextValue::Int)
}

/// Parses a line of a JSON shard, with or without its newline.
pub(super) fn json<'a>(
    sample: u64,
    line: &'a [u8],
    columns: &'a [TextColumn],
    limits: &Limits,
) -> Result<Vec<(&'a str, TextValue<'a>)>, MdsError> {
    check_json(line, limits).map_err(|error| match error {
        MdsError::ValueLimit(problem) => MdsError::Limit(problem),
        error => problem(sample, format!("is not JSON: {error}")),
    })?;
    let mut members = Members {
        rest: utf8(sample, line)?.trim_ascii(),
    };
    if !members.open() {
        return Err(problem(sample, "is not a JSON object"));
    }
    let mut values: Vec<Option<TextValue<'a>>> = vec![None; columns.len()];
    while let Some((key, text)) = members.next() {
        let key = unescape(key).ok_or_else(|| problem(sample, HALF_PAIR))?;
        // Columns are sorted in shards of this crate or the original writer, but need not be in others.
        let index = columns
            .binary_search_by(|column| column.name.as_str().cmp(&key))
            .ok()
            .or_else(|| columns.iter().position(|column| column.name == key));
        let slot = index.and_then(|index| values.get_mut(index));
        let slot = slot.ok_or_else(|| {
            columns_problem(sample, format!("has an unknown column `{}`", shorten(&key)))
        })?;
        if slot.is_some() {
            let reason = format!("has column `{}` twice", shorten(&key));
            return Err(columns_problem(sample, reason));
        }
        *slot = Some(value(text).ok_or_else(|| problem(sample, HALF_PAIR))?);
    }
    let values = columns.iter().zip(values).map(|(column, value)| {
        let missing = || format!("has no column `{}`", shorten(&column.name));
        let value = value.ok_or_else(|| columns_problem(sample, missing()));
        Ok((column.name.as_str(), value?))
    });
    values.collect()
}

const HALF_PAIR: &str = "has half of a surrogate pair, which is not text";

/// Iterates over the members of a JSON object whose syntax has already been checked.
struct Members<'a> {
    rest: &'a str,
}

impl<'a> Members<'a> {
    /// Returns whether the text is an object, and moves past its opening brace.
    fn open(&mut self) -> bool {
        let inside = self.rest.strip_prefix('{');
        self.rest = inside.unwrap_or(self.rest);
        inside.is_some()
    }

    /// Takes the first `bytes` bytes.
    fn take(&mut self, bytes: usize) -> Option<&'a str> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    /// Returns the next key without its quotes, and the text of its value.
    fn next(&mut self) -> Option<(&'a str, &'a str)> {
        self.rest = self.rest.trim_ascii_start();
        self.rest = self
            .rest
            .strip_prefix(',')
            .unwrap_or(self.rest)
            .trim_ascii_start();
        let quoted = string_length(self.rest.as_bytes())?;
        let key = self.take(quoted)?;
        self.rest = self
            .rest
            .trim_ascii_start()
            .strip_prefix(':')?
            .trim_ascii_start();
        let length = value_length(self.rest.as_bytes())?;
        let value = self.take(length)?;
        Some((key, value))
    }
}

/// Returns the length of the string at the start of `json`, including its quotes.
fn string_length(json: &[u8]) -> Option<usize> {
    let (b'"', _) = json.split_first()? else {
        return None;
    };
    let mut at = 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', json.get(at..)?)?;
        match json.get(at)? {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// Returns the length of the value at the start of `json`.
fn value_length(json: &[u8]) -> Option<usize> {
    let mut depth = 0_u64;
    let mut at = 0;
    loop {
        match json.get(at)? {
            b'"' => at += string_length(json.get(at..)?)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            _ if depth > 0 => {
                at += 1;
                continue;
            }
            _ => {
                let rest = json.get(at..)?;
                let end = rest.iter().position(|byte| {
                    matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n')
                });
                return Some(at + end.unwrap_or(rest.len()));
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Parses the value of a JSON text; `None` for a string with a lone surrogate.
fn value(json: &str) -> Option<TextValue<'_>> {
    Some(match json.as_bytes().first()? {
        b'"' => TextValue::Str(unescape(json)?),
        b'N' => TextValue::Float(f64::NAN),
        b'I' => TextValue::Float(f64::INFINITY),
        b'-' if json == "-Infinity" => TextValue::Float(f64::NEG_INFINITY),
        b'-' | b'0'..=b'9' if json.contains(['.', 'e', 'E']) => {
            TextValue::Float(json.parse().ok()?)
        }
        // COMPAT: Python reads `-0` as the integer 0.
        b'-' | b'0'..=b'9' => integer(json),
        _ => TextValue::Json(json),
    })
}

/// Decodes a quoted string; `None` if it has a lone surrogate.
fn unescape(quoted: &str) -> Option<Cow<'_, str>> {
    let inside = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if !inside.contains('\\') {
        return Some(Cow::Borrowed(inside));
    }
    serde_json::from_str(quoted).ok().map(Cow::Owned)
}
