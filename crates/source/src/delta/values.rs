//! Parses partition values: the log stores them as text.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;

/// Parses a text as a value of a type; `None` if it is not one. The empty text is null.
pub(crate) fn parse_value(text: Option<&str>, data_type: &DataType) -> Option<ScalarValue> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return ScalarValue::try_from(data_type).ok();
    };
    match data_type {
        DataType::Utf8 => Some(ScalarValue::Utf8(Some(text.to_owned()))),
        DataType::Binary => Some(ScalarValue::Binary(Some(text.as_bytes().to_vec()))),
        DataType::Boolean => match text {
            "true" => Some(ScalarValue::Boolean(Some(true))),
            "false" => Some(ScalarValue::Boolean(Some(false))),
            _ => None,
        },
        DataType::Float32 => Some(ScalarValue::Float32(Some(text.parse().ok()?))),
        DataType::Float64 => Some(ScalarValue::Float64(Some(text.parse().ok()?))),
        // Rounding would give the column a value that the table does not have.
        DataType::Decimal128(_, scale) if places(text) > i64::from(*scale) => None,
        _ => {
            let array: ArrayRef = Arc::new(StringArray::from(vec![text]));
            let strict = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            let value = cast_with_options(&array, data_type, &strict).ok()?;
            if value.is_null(0) {
                return None;
            }
            ScalarValue::try_from_array(&value, 0).ok()
        }
    }
}

/// Returns the number of decimal places of a number without an exponent, not counting trailing zeros.
fn places(text: &str) -> i64 {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    i64::try_from(fraction.trim_end_matches('0').len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::TimeUnit;

    #[test]
    fn texts_become_values_of_their_type() {
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let wall = DataType::Timestamp(TimeUnit::Microsecond, None);
        for (text, data_type, value) in [
            ("-12", DataType::Int8, ScalarValue::Int8(Some(-12))),
            (
                "9223372036854775807",
                DataType::Int64,
                ScalarValue::Int64(Some(i64::MAX)),
            ),
            ("true", DataType::Boolean, ScalarValue::Boolean(Some(true))),
            (
                "1.5E3",
                DataType::Float32,
                ScalarValue::Float32(Some(1500.0)),
            ),
            (
                "-Infinity",
                DataType::Float64,
                ScalarValue::Float64(Some(f64::NEG_INFINITY)),
            ),
            (
                "1.50",
                DataType::Decimal128(5, 3),
                ScalarValue::Decimal128(Some(1500), 5, 3),
            ),
            (
                "1.5000",
                DataType::Decimal128(3, 1),
                ScalarValue::Decimal128(Some(15), 3, 1),
            ),
            (
                "1969-12-31",
                DataType::Date32,
                ScalarValue::Date32(Some(-1)),
            ),
            (
                "2021-09-08 11:11:11.5",
                utc.clone(),
                ScalarValue::TimestampMicrosecond(Some(1_631_099_471_500_000), Some("UTC".into())),
            ),
            (
                "2021-09-08T13:11:11.000000+02:00",
                utc.clone(),
                ScalarValue::TimestampMicrosecond(Some(1_631_099_471_000_000), Some("UTC".into())),
            ),
            (
                "2021-09-08 11:11:11",
                wall,
                ScalarValue::TimestampMicrosecond(Some(1_631_099_471_000_000), None),
            ),
            (
                " x ",
                DataType::Utf8,
                ScalarValue::Utf8(Some(" x ".to_owned())),
            ),
            (
                "\u{1}é",
                DataType::Binary,
                ScalarValue::Binary(Some(vec![1, 0xc3, 0xa9])),
            ),
        ] {
            assert_eq!(parse_value(Some(text), &data_type), Some(value), "{text}");
        }
        assert_eq!(
            parse_value(Some(""), &DataType::Utf8),
            Some(ScalarValue::Utf8(None))
        );
        assert_eq!(
            parse_value(None, &DataType::Int8),
            Some(ScalarValue::Int8(None))
        );
        let nan = parse_value(Some("NaN"), &DataType::Float64).unwrap();
        assert!(matches!(nan, ScalarValue::Float64(Some(value)) if value.is_nan()));
    }

    #[test]
    fn texts_of_another_type_have_no_value() {
        for (text, data_type) in [
            ("128", DataType::Int8),
            ("1.5", DataType::Int32),
            ("yes", DataType::Boolean),
            ("x", DataType::Float64),
            ("1.25", DataType::Decimal128(5, 1)),
            ("123", DataType::Decimal128(3, 1)),
            ("2021-13-01", DataType::Date32),
            ("noon", DataType::Timestamp(TimeUnit::Microsecond, None)),
        ] {
            assert_eq!(parse_value(Some(text), &data_type), None, "{text}");
        }
    }
}
