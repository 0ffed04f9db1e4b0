//! Parses types of elements and fill values. Times and durations are their whole numbers.

use half::f16;
use serde_json::Value;
use shardmill_core::DType;

use crate::error::ZarrError;

/// The type of elements.
pub(crate) struct ElementType {
    pub dtype: DType,
    pub big_endian: bool,
    /// Whether they are durations and not times, and their unit; `None` for numbers.
    pub numpy_time: Option<(bool, String)>,
}

/// Parses a type of version 2, such as `<f4`.
pub(crate) fn parse_v2(value: &Value) -> Result<ElementType, ZarrError> {
    let unknown = || ZarrError::Type(text_of(value));
    let (order, name) = value
        .as_str()
        .and_then(|text| text.split_at_checked(1))
        .ok_or_else(unknown)?;
    let numpy_time = [("M8[", false), ("m8[", true)]
        .iter()
        .find_map(|(start, is_duration)| {
            let unit = name.strip_prefix(start)?.strip_suffix(']')?;
            Some((*is_duration, unit.to_owned()))
        });
    let dtype = match numpy_time {
        Some(_) => DType::Int64,
        None => DType::from_short(name).ok_or_else(unknown)?,
    };
    let big_endian = match order {
        "<" | "|" => false,
        ">" => true,
        _ => return Err(unknown()),
    };
    Ok(ElementType {
        dtype,
        big_endian,
        numpy_time,
    })
}

/// Parses a type of version 3, such as `float32`.
pub(crate) fn parse_v3(value: &Value) -> Result<ElementType, ZarrError> {
    let name = value.as_str().or_else(|| value.get("name")?.as_str());
    let is_duration = match name {
        Some("numpy.datetime64") => Some(false),
        Some("numpy.timedelta64") => Some(true),
        _ => None,
    };
    let numpy_time = is_duration.map(|is_duration| {
        let option = |name| {
            value
                .get("configuration")
                .and_then(|options| options.get(name))
        };
        let (count, unit) = (
            option("scale_factor").map(text_of),
            option("unit").map(text_of),
        );
        (
            is_duration,
            count.unwrap_or_default() + &unit.unwrap_or_default(),
        )
    });
    let dtype = match numpy_time {
        Some(_) => Some(DType::Int64),
        None => name.and_then(DType::from_name),
    };
    let dtype = dtype.ok_or_else(|| ZarrError::Type(text_of(value)))?;
    Ok(ElementType {
        dtype,
        big_endian: false,
        numpy_time,
    })
}

/// Returns the little-endian bytes of a fill value. Null is zero.
pub(crate) fn fill_bytes(dtype: DType, value: &Value) -> Result<Vec<u8>, ZarrError> {
    let bytes = match dtype {
        _ if value.is_null() => Some(vec![0; dtype.size()]),
        DType::Bool => value
            .as_bool()
            .or_else(|| value.as_u64().map(|number| number != 0))
            .map(|is| vec![u8::from(is)]),
        DType::Float16 | DType::Float32 | DType::Float64 => float_bytes(dtype, value),
        DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64 => {
            let max = u64::MAX >> (64 - 8 * dtype.size());
            whole(value)
                .and_then(|number| u64::try_from(number).ok())
                .filter(|number| *number <= max)
                .map(|number| lowest_bytes(dtype, number))
        }
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => {
            let max = i64::MAX >> (64 - 8 * dtype.size());
            whole(value)
                .and_then(|number| i64::try_from(number).ok())
                .filter(|number| (-max - 1..=max).contains(number))
                .map(|number| lowest_bytes(dtype, number.cast_unsigned()))
        }
    };
    bytes.ok_or_else(|| {
        let value = text_of(value);
        ZarrError::metadata(format!("`fill_value` is {value}, which is not of its type"))
    })
}

fn float_bytes(dtype: DType, value: &Value) -> Option<Vec<u8>> {
    let number = match value.as_str() {
        None => value.as_f64()?,
        Some("NaN") => f64::NAN,
        Some("Infinity") => f64::INFINITY,
        Some("-Infinity") => f64::NEG_INFINITY,
        // The bits of the value, so that each of the many NaNs can be a fill value.
        Some(text) => {
            let digits = text.strip_prefix("0x")?;
            let bits = u64::from_str_radix(digits, 16).ok()?;
            return (digits.len() == 2 * dtype.size()).then(|| lowest_bytes(dtype, bits));
        }
    };
    Some(match dtype {
        DType::Float16 => f16::from_f64(number).to_le_bytes().to_vec(),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the nearest value is wanted"
        )]
        DType::Float32 => (number as f32).to_le_bytes().to_vec(),
        _ => number.to_le_bytes().to_vec(),
    })
}

/// Returns the lowest bytes of a number, as many as an element has.
fn lowest_bytes(dtype: DType, bits: u64) -> Vec<u8> {
    let mut bytes = bits.to_le_bytes().to_vec();
    bytes.truncate(dtype.size());
    bytes
}

/// Returns a whole number of JSON, which may be written as a float. `NaT` is the smallest number.
fn whole(value: &Value) -> Option<i128> {
    if value.as_str() == Some("NaT") {
        return Some(i64::MIN.into());
    }
    let number = value.as_i64().map(i128::from);
    let number = number.or_else(|| value.as_u64().map(i128::from));
    number.or_else(|| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a float without a fraction; it saturates"
        )]
        Some(float as i128)
    })
}

/// Returns JSON as text for messages, of limited length.
pub(crate) fn text_of(value: &Value) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fill_values_are_encoded_or_rejected() {
        for (dtype, value, bytes) in [
            (DType::Float32, json!("NaN"), Some(vec![0, 0, 0xc0, 0x7f])),
            (
                DType::Float32,
                json!("0x7fc00001"),
                Some(vec![1, 0, 0xc0, 0x7f]),
            ),
            (DType::Float16, json!(1.5), Some(vec![0, 0x3e])),
            (
                DType::Float64,
                json!("-Infinity"),
                Some(f64::NEG_INFINITY.to_le_bytes().to_vec()),
            ),
            (DType::Int16, json!(-9999), Some(vec![0xf1, 0xd8])),
            (DType::Int16, json!(-9999.0), Some(vec![0xf1, 0xd8])),
            (
                DType::Int64,
                json!("NaT"),
                Some(vec![0, 0, 0, 0, 0, 0, 0, 0x80]),
            ),
            (DType::UInt64, json!(u64::MAX), Some(vec![0xff; 8])),
            (DType::Bool, json!(true), Some(vec![1])),
            (DType::Int32, Value::Null, Some(vec![0; 4])),
            (DType::Int8, json!(128), None),
            (DType::UInt8, json!(-1), None),
            (DType::Float32, json!("0x7fc0"), None),
            (DType::Float32, json!("many"), None),
        ] {
            assert_eq!(fill_bytes(dtype, &value).ok(), bytes, "{dtype:?} {value}");
        }
    }
}
