//! Parses the values that replace nulls. A text is a value of a type only if the type has exactly this value; floats are
//! rounded to the nearest one.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, StringArray};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Float64Type, TimeUnit};
use arrow::util::display::{FormatOptions, array_value_to_string};

use crate::columns::Offsets;

/// Casts without nulls for values that do not fit.
pub(crate) const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: FormatOptions::new(),
};

/// Parses a text as one value of a type. Returns `None` if the type does not have this value: a number with more digits
/// than it holds, a float beyond its range, a time between its units.
#[must_use]
pub fn parse_value(text: &str, data_type: &DataType) -> Option<ArrayRef> {
    let array: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let target = match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    let value = cast_with_options(&array, target, &STRICT).ok()?;
    let mut leaf = &value;
    while let Some((_, values)) = Offsets::of_lists(leaf) {
        leaf = values;
    }
    (value.null_count() == 0 && is_exact(text, leaf)).then_some(value)
}

/// Returns whether a value that was parsed from a text is the one that the text says.
fn is_exact(text: &str, value: &ArrayRef) -> bool {
    match value.data_type() {
        other if other.is_floating() => is_nearest(text, value),
        other if other.is_numeric() => array_value_to_string(value, 0)
            .is_ok_and(|shown| decimal(&shown).is_some() && decimal(&shown) == decimal(text)),
        DataType::Date32 => !text.contains(':'),
        DataType::Date64 => fraction_digits(text) <= 3,
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => {
            fraction_digits(text)
                <= match unit {
                    TimeUnit::Second => 0,
                    TimeUnit::Millisecond => 3,
                    TimeUnit::Microsecond => 6,
                    TimeUnit::Nanosecond => 9,
                }
        }
        _ => true,
    }
}

/// Returns whether a float is finite if the text is a number, and equal to it if the text is zero or a whole number.
fn is_nearest(text: &str, value: &ArrayRef) -> bool {
    let Ok(wide) = cast(value, &DataType::Float64) else {
        return false;
    };
    let float = wide.as_primitive::<Float64Type>().value(0);
    let Some(number) = decimal(text) else {
        // `inf` and `nan` are values of their own.
        return !float.is_finite();
    };
    let is_whole = !text.contains(['.', 'e', 'E']);
    float.is_finite()
        && ((!is_whole && float != 0.0) || decimal(&format!("{float:.0}")) == Some(number))
}

/// A number as its sign, its digits without zeros at both ends, and the power of ten of its last digit.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (is_negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let trimmed = digits.trim_end_matches('0');
    let zeros = i64::try_from(digits.len() - trimmed.len()).ok()?;
    let significant = trimmed.trim_start_matches('0');
    if significant.is_empty() {
        return Some((false, String::new(), 0));
    }
    let places = i64::try_from(fraction.len()).ok()?;
    let exponent = exponent.checked_sub(places)?.checked_add(zeros)?;
    Some((is_negative, significant.to_owned(), exponent))
}

/// Returns the number of digits of the fraction of a second, not counting trailing zeros.
fn fraction_digits(text: &str) -> usize {
    let fraction = text.rsplit_once('.').map_or("", |(_, fraction)| fraction);
    let end = fraction
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(fraction.len());
    fraction[..end].trim_end_matches('0').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_values_are_parsed() {
        use DataType as T;
        let time = |unit| T::Timestamp(unit, None);
        let zoned = T::Timestamp(TimeUnit::Millisecond, Some("+02:00".into()));
        let texts: [(DataType, &[&str], &[&str]); 24] = [
            (
                T::Int8,
                &["127", "-128", "+5", "007"],
                &["128", "-129", "1.5", "", "x"],
            ),
            (T::UInt8, &["0", "255"], &["-1", "256"]),
            (
                T::Int64,
                &["9223372036854775807"],
                &["9223372036854775808", "1e400"],
            ),
            (
                T::UInt64,
                &["18446744073709551615"],
                &["18446744073709551616", "-1"],
            ),
            (
                T::Float16,
                &["0.1", "65504", "2048", "inf", "nan", "0"],
                &["1e5", "65520", "2049", "1e-30"],
            ),
            (
                T::Float32,
                &["0.1", "1e38", "16777216", "-inf"],
                &["1e39", "-1e39", "16777217", "1e-60"],
            ),
            (
                T::Float64,
                &["0.1", "1e308", "9007199254740992", "-0.0", "1e22", "NaN"],
                &["1e400", "-1e400", "9007199254740993", "1e-400", "x"],
            ),
            (T::Decimal32(5, 2), &["0.01", "999.99"], &["0.001", "1000"]),
            (T::Decimal64(10, 2), &["0.10", "15"], &["0.005"]),
            (
                T::Decimal128(5, 2),
                &["0.00", "0.010", "-999.99", "1.50", "0"],
                &["0.001", "0.005", "999.999", "1000", "1e-3", "1e400", "x"],
            ),
            (T::Decimal256(60, 3), &["0.125"], &["0.0001"]),
            (T::Boolean, &["true", "false"], &["2", "maybe"]),
            (
                T::Date32,
                &["2024-02-29"],
                &["2024-02-30", "2024-02-29T12:00:00"],
            ),
            (
                T::Date64,
                &["2024-02-29"],
                &["2024-02-30", "2024-01-01T00:00:00.0005"],
            ),
            (
                T::Time32(TimeUnit::Second),
                &["12:30:00", "12:30:00.000"],
                &["12:30:00.5", "25:00:00"],
            ),
            (
                T::Time32(TimeUnit::Millisecond),
                &["12:30:00.250"],
                &["12:30:00.0005"],
            ),
            (
                T::Time64(TimeUnit::Microsecond),
                &["12:30:00.000001"],
                &["12:30:00.0000001"],
            ),
            (
                T::Time64(TimeUnit::Nanosecond),
                &["12:30:00.000000001"],
                &["12:30:00.0000000001"],
            ),
            (
                time(TimeUnit::Second),
                &["2024-01-01T00:00:00", "2024-01-01"],
                &["2024-01-01T00:00:00.1"],
            ),
            (
                zoned,
                &["2024-01-01T00:00:00.125+02:00"],
                &["2024-01-01T00:00:00.1255Z"],
            ),
            (
                time(TimeUnit::Nanosecond),
                &["2024-01-01T00:00:00.123456789"],
                &["3000-01-01T00:00:00"],
            ),
            (T::Utf8, &["", "anything"], &[]),
            (
                T::Dictionary(Box::new(T::Int8), Box::new(T::Int16)),
                &["300"],
                &["70000"],
            ),
            (T::new_list(T::Decimal128(3, 1), true), &["1.5"], &["1.55"]),
        ];
        for (data_type, exact, others) in texts {
            for text in exact {
                assert!(
                    parse_value(text, &data_type).is_some(),
                    "{text} {data_type}"
                );
            }
            for text in others {
                assert!(
                    parse_value(text, &data_type).is_none(),
                    "{text} {data_type}"
                );
            }
        }
    }
}
