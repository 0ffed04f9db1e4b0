//! Parses partition values: the log stores them as text.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, BinaryArray, BooleanArray, Float32Array, Float64Array, StringArray,
    new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;

/// Parses a text as an array with one value of a type; `None` if it is not one. The empty text is null.
pub(crate) fn parse_value(text: Option<&str>, data_type: &DataType) -> Option<ArrayRef> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Some(new_null_array(data_type, 1));
    };
    Some(match data_type {
        DataType::Utf8 => Arc::new(StringArray::from(vec![text])),
        DataType::Binary => Arc::new(BinaryArray::from(vec![text.as_bytes()])),
        DataType::Boolean => match text {
            "true" => Arc::new(BooleanArray::from(vec![true])),
            "false" => Arc::new(BooleanArray::from(vec![false])),
            _ => return None,
        },
        DataType::Float32 => Arc::new(Float32Array::from(vec![text.parse::<f32>().ok()?])),
        DataType::Float64 => Arc::new(Float64Array::from(vec![text.parse::<f64>().ok()?])),
        // Rounding would give the column a value that the table does not have.
        DataType::Decimal128(_, scale) if decimal_places(text) > i64::from(*scale) => return None,
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
            value
        }
    })
}

/// Returns the number of decimal places of a number without an exponent, not counting trailing zeros.
fn decimal_places(text: &str) -> i64 {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    i64::try_from(fraction.trim_end_matches('0').len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        AsArray as _, Date32Array, Decimal128Array, Int8Array, Int64Array,
        TimestampMicrosecondArray,
    };
    use arrow::datatypes::{Float64Type, TimeUnit};

    #[test]
    fn texts_are_parsed_as_values_of_their_type() {
        let micros = |at| TimestampMicrosecondArray::from(vec![at]);
        let decimal = |value, precision, scale| {
            let array = Decimal128Array::from(vec![value]);
            array.with_precision_and_scale(precision, scale).unwrap()
        };
        let values: [(&str, ArrayRef); 14] = [
            ("-12", Arc::new(Int8Array::from(vec![-12]))),
            (
                "9223372036854775807",
                Arc::new(Int64Array::from(vec![i64::MAX])),
            ),
            ("true", Arc::new(BooleanArray::from(vec![true]))),
            ("1.5E3", Arc::new(Float32Array::from(vec![1500.0]))),
            (
                "-Infinity",
                Arc::new(Float64Array::from(vec![f64::NEG_INFINITY])),
            ),
            ("1.50", Arc::new(decimal(1500, 5, 3))),
            ("1.5000", Arc::new(decimal(15, 3, 1))),
            ("1969-12-31", Arc::new(Date32Array::from(vec![-1]))),
            (
                "2021-09-08 11:11:11.5",
                Arc::new(micros(1_631_099_471_500_000).with_timezone("UTC")),
            ),
            (
                "2021-09-08T13:11:11.000000+02:00",
                Arc::new(micros(1_631_099_471_000_000).with_timezone("UTC")),
            ),
            (
                "2021-09-08 11:11:11",
                Arc::new(micros(1_631_099_471_000_000)),
            ),
            (" x ", Arc::new(StringArray::from(vec![" x "]))),
            (
                "\u{1}é",
                Arc::new(BinaryArray::from(vec![&[1, 0xc3, 0xa9][..]])),
            ),
            ("", Arc::new(StringArray::from(vec![None::<&str>]))),
        ];
        for (text, value) in values {
            assert_eq!(
                parse_value(Some(text), value.data_type()),
                Some(value),
                "{text}"
            );
        }
        assert!(parse_value(None, &DataType::Int8).unwrap().is_null(0));
        let nan = parse_value(Some("NaN"), &DataType::Float64).unwrap();
        assert!(nan.as_primitive::<Float64Type>().value(0).is_nan());
    }

    #[test]
    fn texts_that_do_not_match_the_type_are_rejected() {
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
