//! Classifies the text of a CSV value as boolean, number or text, and parses it.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use shardmill_core::catch_panic::one_line;
use shardmill_core::escape;

use crate::exact::{inexact, is_exact_text};

/// The type of a column's values, from the narrowest to the widest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Values {
    #[default]
    Empty,
    Boolean,
    Whole,
    Float,
    Text,
}

impl Values {
    /// Classifies one value.
    pub(crate) fn of(text: &str) -> Self {
        if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
            return Self::Boolean;
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            // 007 is an identifier, and so is a number that no 64-bit integer holds.
            let plain = digits == "0" && digits.len() == text.len() || !digits.starts_with('0');
            return if plain && text.parse::<i64>().is_ok() {
                Self::Whole
            } else {
                Self::Text
            };
        }
        if is_float(digits) && !is_too_large(digits) {
            Self::Float
        } else {
            Self::Text
        }
    }

    /// Returns the narrowest type that holds the values of both.
    pub(crate) const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Empty, other) | (other, Self::Empty) => other,
            (Self::Boolean, Self::Boolean) => Self::Boolean,
            (Self::Whole, Self::Whole) => Self::Whole,
            (Self::Whole | Self::Float, Self::Whole | Self::Float) => Self::Float,
            _ => Self::Text,
        }
    }

    /// Returns the Arrow type of a column of such values.
    pub(crate) const fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Whole => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Empty | Self::Text => DataType::Utf8,
        }
    }
}

/// Parses a text column into a type. An empty text is null in a column of another type. Unless a scan of all rows has shown
/// that whole numbers are exact, a column of floats is checked. The error has the row of the first text that does not fit.
pub(crate) fn parse(
    texts: StringArray,
    data_type: &DataType,
    is_scanned: bool,
) -> Result<ArrayRef, (usize, String)> {
    let is_boolean =
        |text: &str| text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false");
    let is_whole = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    // PERF: the parsers of Arrow are built at a higher level than this crate.
    let values = match data_type {
        DataType::Boolean | DataType::Int64 | DataType::Float64 => cast(&texts, data_type),
        _ => return Ok(Arc::new(texts)),
    };
    let values = values.map_err(|error| (0, error.to_string()))?;
    let is_float = *data_type == DataType::Float64;
    let is_boolean_column = *data_type == DataType::Boolean;
    // Only a text that is no value became null, and Arrow knows more names of booleans.
    if values.null_count() == texts.null_count() && !is_boolean_column && (is_scanned || !is_float)
    {
        return Ok(values);
    }
    let texts = texts.iter().enumerate();
    let mut texts =
        texts.filter_map(|(row, text)| Some((row, text.filter(|text| !text.is_empty())?)));
    let misfit = texts.find_map(|(row, text)| {
        let reason = match values.is_null(row) || is_boolean_column && !is_boolean(text) {
            true => unlike(text, &data_type.to_string()),
            false if is_float && !is_scanned && is_whole(text) && !is_exact_text(text) => {
                inexact(text)
            }
            false => return None,
        };
        Some((row, reason))
    });
    misfit.map_or(Ok(values), Err)
}

fn unlike(text: &str, data_type: &str) -> String {
    let reason = format!("Error while parsing value '{text}' as type '{data_type}'");
    one_line(&escape(&reason))
}

/// Returns whether a text is a decimal number with a point or an exponent, or `nan`, `NaN` or `inf`.
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

/// Returns whether a number is too large for a 64-bit float, which would make it infinite.
fn is_too_large(text: &str) -> bool {
    let is_word = text.starts_with(['n', 'N', 'i']);
    // Without an exponent or very many digits, no number is that large.
    let may_be = text.len() > 300 || text.contains(['e', 'E']);
    may_be && !is_word && text.parse::<f64>().is_ok_and(f64::is_infinite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_values_are_classified_by_type() {
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
            ("inf", Values::Float),
            ("1e308", Values::Float),
            ("-1e999", Values::Text),
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
