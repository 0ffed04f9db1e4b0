//! Expands brace patterns, which name many shards at once: `train-{000000..000146}.tar`, `{a,b}-{00..03}.tar`.
//!
//! The rules are those of the Python package `braceexpand` 0.1.7, which webdataset 1.0.2 uses. The size of the
//! expansion is computed before anything is expanded.

#[cfg(test)]
mod tests;

use shardmill_core::escape;

use crate::error::{WebdatasetError, WebdatasetProblem};

/// The most names in the expansion of a pattern.
pub const MAX_NAMES: u64 = 1_000_000;

/// The most bytes of all names of a pattern: a thousand for each name.
const MAX_NAME_BYTES: u64 = 1_000_000_000;

/// The deepest nesting of braces.
const MAX_DEPTH: usize = 64;

/// Expands a pattern into its names, in order; at most [`MAX_NAMES`].
///
/// `{first..last}` and `{first..last..step}` are numbers or letters. If either end begins with a zero, all numbers are
/// padded to the wider end. `{a,b}` is a choice. Choices nest, and with several braces, the last ones vary fastest.
/// Braces with other contents stay unchanged. A backslash escapes the next character.
///
/// ```
/// let names = shardmill_webdataset::expand_braces("{a,b}-{08..10}.tar")?;
/// assert_eq!(names.first().map(String::as_str), Some("a-08.tar"));
/// assert_eq!(names.len(), 6);
/// # Ok::<(), shardmill_webdataset::WebdatasetError>(())
/// ```
///
/// # Errors
///
/// [`WebdatasetError`]: `InvalidInput`.
///
/// Source: the behaviour of `braceexpand` 0.1.7; only ASCII digits are digits.
pub fn expand_braces(pattern: &str) -> Result<Vec<String>, WebdatasetError> {
    let parsed = parse(pattern, pattern, 0)?;
    let count = count(&parsed);
    // An upper bound: no name is longer than the pattern.
    let bytes = count.saturating_mul(pattern.len() as u64);
    if count > MAX_NAMES || bytes > MAX_NAME_BYTES {
        return Err(WebdatasetError::too_many_names(pattern, MAX_NAMES));
    }
    Ok(product(&parsed))
}

/// A part of a pattern.
#[derive(Debug)]
enum Part {
    Text(String),
    Numbers {
        first: i128,
        last: i128,
        step: u128,
        width: usize,
    },
    Letters(Vec<char>),
    Choice(Vec<Vec<Part>>),
}

/// Parses a part of the pattern `whole`.
fn parse(whole: &str, pattern: &str, depth: usize) -> Result<Vec<Part>, WebdatasetError> {
    if depth > MAX_DEPTH {
        return Err(WebdatasetProblem::BracesSize.because(format!(
            "the braces of `{}` are nested more than {MAX_DEPTH} deep",
            escape(whole)
        )));
    }
    let mut parts = Vec::new();
    let mut start = 0;
    // COMPAT: as in the original, a later opening brace makes up for a surplus closing brace.
    let mut open = 0_i64;
    for (at, byte) in marks(pattern) {
        match byte {
            b'{' => {
                if open == 0 && at > start {
                    parts.push(text(pattern, start, at));
                    start = at;
                }
                open += 1;
            }
            b'}' => {
                open -= 1;
                if open == 0 {
                    let inner = pattern.get(start + 1..at).unwrap_or_default();
                    braces(whole, inner, depth, &mut parts)?;
                    start = at + 1;
                }
            }
            _ => {}
        }
    }
    if open != 0 {
        let reason = format!("the braces of `{}` are not balanced", escape(whole));
        return Err(WebdatasetProblem::BracesUnbalanced.because(reason));
    }
    if start < pattern.len() {
        parts.push(text(pattern, start, pattern.len()));
    }
    Ok(parts)
}

/// Parses the text between two braces.
fn braces(
    whole: &str,
    inner: &str,
    depth: usize,
    parts: &mut Vec<Part>,
) -> Result<(), WebdatasetError> {
    if let Some(range) = range(whole, inner)? {
        parts.push(range);
        return Ok(());
    }
    match split(inner) {
        Some(choices) => {
            let choices = choices
                .into_iter()
                .map(|choice| parse(whole, choice, depth + 1));
            parts.push(Part::Choice(choices.collect::<Result<_, _>>()?));
        }
        None => {
            parts.push(Part::Text("{".to_owned()));
            parts.extend(parse(whole, inner, depth + 1)?);
            parts.push(Part::Text("}".to_owned()));
        }
    }
    Ok(())
}

/// Iterates over the unescaped braces and commas, with their positions.
fn marks(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let mut is_escaped = false;
    text.bytes().enumerate().filter(move |(_, byte)| {
        if is_escaped {
            is_escaped = false;
            return false;
        }
        is_escaped = *byte == b'\\';
        matches!(byte, b'{' | b'}' | b',')
    })
}

/// Returns a text with its backslash escapes removed.
fn text(pattern: &str, start: usize, end: usize) -> Part {
    let mut out = String::new();
    let mut chars = pattern.get(start..end).unwrap_or_default().chars();
    while let Some(next) = chars.next() {
        match (next, chars.clone().next()) {
            ('\\', Some(escaped)) if escaped != '\n' => {
                chars.next();
                out.push(escaped);
            }
            _ => out.push(next),
        }
    }
    Part::Text(out)
}

/// Splits the choices at commas; `None` if there is no comma, or if braces do not pair.
fn split(inner: &str) -> Option<Vec<&str>> {
    let mut choices = Vec::new();
    let (mut start, mut open) = (0, 0_i64);
    for (at, byte) in marks(inner) {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ if open == 0 => {
                choices.push(inner.get(start..at)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    if open != 0 || choices.is_empty() {
        return None;
    }
    choices.push(inner.get(start..)?);
    Some(choices)
}

/// Parses `1..3` or `a..c`, with an optional step.
fn range(whole: &str, inner: &str) -> Result<Option<Part>, WebdatasetError> {
    let mut ends = inner.splitn(3, "..");
    let (Some(first), Some(last), step) = (ends.next(), ends.next(), ends.next()) else {
        return Ok(None);
    };
    let is_number = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    if step.is_some_and(|step| !is_number(step)) {
        return Ok(None);
    }
    let letter = |text: &str| {
        let mut chars = text.chars();
        let letter = chars.next().filter(char::is_ascii_alphabetic)?;
        chars.next().is_none().then_some(letter)
    };
    let numbers = is_number(first) && is_number(last);
    let letters = letter(first).zip(letter(last));
    if !numbers && letters.is_none() {
        return Ok(None);
    }
    // A step larger than the range leaves only its first element.
    let step = step.map_or(1, |step| {
        let digits = step.trim_start_matches(['-', '0']);
        if digits.is_empty() {
            1
        } else {
            digits.parse().unwrap_or(u128::MAX)
        }
    });
    if let Some((first, last)) = letters {
        return Ok(Some(Part::Letters(letters_between(first, last, step))));
    }
    let is_padded = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        digits.len() > 1 && digits.starts_with('0')
    };
    let width = if is_padded(first) || is_padded(last) {
        first.len().max(last.len())
    } else {
        0
    };
    let too_many = |_| WebdatasetError::too_many_names(whole, MAX_NAMES);
    let number = |text: &str| text.parse::<i128>().map_err(too_many);
    Ok(Some(Part::Numbers {
        first: number(first)?,
        last: number(last)?,
        step,
        width,
    }))
}

/// COMPAT: `a` follows `Z`.
fn letters_between(first: char, last: char, step: u128) -> Vec<char> {
    let alphabet: Vec<char> = ('A'..='Z').chain('a'..='z').collect();
    let position = |letter| alphabet.iter().position(|other| *other == letter);
    let (first, last) = (position(first).unwrap_or(0), position(last).unwrap_or(0));
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    let (low, high) = (first.min(last), first.max(last));
    let range = alphabet.get(low..=high).unwrap_or_default();
    if first < last {
        range.iter().copied().step_by(step).collect()
    } else {
        range.iter().rev().copied().step_by(step).collect()
    }
}

fn count(parts: &[Part]) -> u64 {
    parts.iter().fold(1, |product, part| {
        let names = match part {
            Part::Text(_) => 1,
            Part::Letters(letters) => letters.len() as u64,
            Part::Numbers {
                first, last, step, ..
            } => {
                let steps = first.abs_diff(*last) / step;
                u64::try_from(steps).unwrap_or(u64::MAX).saturating_add(1)
            }
            Part::Choice(choices) => choices
                .iter()
                .fold(0, |sum: u64, choice| sum.saturating_add(count(choice))),
        };
        product.saturating_mul(names)
    })
}

fn product(parts: &[Part]) -> Vec<String> {
    let mut names = vec![String::new()];
    for part in parts {
        let ends = ends(part);
        names = names
            .iter()
            .flat_map(|name| ends.iter().map(move |end| format!("{name}{end}")))
            .collect();
    }
    names
}

fn ends(part: &Part) -> Vec<String> {
    match part {
        Part::Text(text) => vec![text.clone()],
        Part::Letters(letters) => letters.iter().map(char::to_string).collect(),
        Part::Choice(choices) => choices.iter().flat_map(|choice| product(choice)).collect(),
        Part::Numbers {
            first,
            last,
            step,
            width,
        } => {
            let steps = first.abs_diff(*last) / step;
            let number = |steps: u128| {
                let way = steps.saturating_mul(*step);
                let number = if first < last {
                    first.saturating_add_unsigned(way)
                } else {
                    first.saturating_sub_unsigned(way)
                };
                format!("{number:0width$}", width = *width)
            };
            (0..=steps).map(number).collect()
        }
    }
}
