//! Decodes stored values by the CF conventions, as xarray does: missing values, packing, times.
//!
//! Source: xarray 2026.9.0, `coding/variables.py`. Where it fails to read an array, this decodes what the attributes
//! mean, or fails with their names.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};
use shardmill_core::DType;

use crate::array::ZarrArray;
use crate::dtype::text_of;
use crate::error::ZarrError;
use crate::number::{Number, is_float};
use crate::time::{NOT_A_TIME, TimeDecoder, TimeUnit, is_unit};

/// The type of decoded values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhysicalType {
    /// Numbers.
    Number(DType),
    /// Times since 1970 in UTC, 8 bytes each. [`NOT_A_TIME`] is a missing one.
    Time(TimeUnit),
    /// Durations, 8 bytes each. [`NOT_A_TIME`] is a missing one.
    Duration(TimeUnit),
}

impl PhysicalType {
    /// Returns the bytes of a value.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Number(dtype) => dtype.size(),
            Self::Time(_) | Self::Duration(_) => 8,
        }
    }
}

/// Decodes the stored values of an array.
#[derive(Clone, Debug)]
pub struct CfDecoder {
    /// The type of the stored values.
    stored: DType,
    /// The type of the numbers after the next two steps.
    number: DType,
    mask: Option<Mask>,
    packing: Option<Packing>,
    time: Option<TimeDecoder>,
    /// Whether numbers are truth values.
    is_bool: bool,
}

/// Values that are missing.
#[derive(Clone, Debug)]
struct Mask {
    /// The type that has a missing value.
    dtype: DType,
    fills: Vec<Number>,
}

#[derive(Clone, Debug)]
struct Packing {
    dtype: DType,
    scale: Option<Number>,
    offset: Option<Number>,
}

impl CfDecoder {
    /// Returns a decoder that keeps the stored numbers.
    #[must_use]
    pub const fn stored(array: &ZarrArray) -> Self {
        Self {
            stored: array.dtype,
            number: array.dtype,
            mask: None,
            packing: None,
            time: None,
            is_bool: false,
        }
    }

    /// Returns the decoder that the attributes of an array ask for.
    ///
    /// # Errors
    ///
    /// [`ZarrError::Time`] for calendars and units that timestamps do not have, [`ZarrError::Metadata`] for attributes of
    /// other types.
    pub fn new(array: &ZarrArray) -> Result<Self, ZarrError> {
        let mut decoder = Self::stored(array);
        if let Some((is_duration, units)) = &array.numpy_time {
            let time = TimeDecoder::of_numpy(*is_duration, units);
            let unknown = || ZarrError::Time(format!("its times have NumPy's unit `{units}`"));
            decoder.time = Some(time.ok_or_else(unknown)?);
            return Ok(decoder);
        }
        let attributes = &array.attributes;
        let units = attributes
            .get("units")
            .and_then(Value::as_str)
            .unwrap_or("");
        decoder.time = TimeDecoder::of(attributes)?;
        // COMPAT: a unit of durations counts without the `dtype` that makes the numbers durations.
        let is_time = decoder.time.is_some() || is_unit(units);
        let (fills, has_fill) = fills(array, &mut decoder.stored)?;
        let mut dtype = decoder.stored;
        let scale = number(attributes, "scale_factor")?;
        let offset = number(attributes, "add_offset")?;
        let is_packed = scale.is_some() || offset.is_some();
        let is_whole = !is_float(dtype) && dtype != DType::Bool;
        if !fills.is_empty() {
            dtype = match dtype {
                _ if is_packed => DType::Float64,
                _ if is_time && is_whole => DType::Int64,
                _ if is_float(dtype) => dtype,
                _ if dtype.size() <= 2 => DType::Float32,
                _ => DType::Float64,
            };
            decoder.mask = Some(Mask { dtype, fills });
        }
        if is_packed {
            if !has_fill || is_time {
                dtype = match (scale, offset, &decoder.mask) {
                    (Some(Number::Whole(_)), None, None) => DType::Int64,
                    _ => DType::Float64,
                };
            }
            decoder.packing = Some(Packing {
                dtype,
                scale,
                offset,
            });
        }
        decoder.number = dtype;
        decoder.is_bool = attributes.get("dtype").and_then(Value::as_str) == Some("bool");
        Ok(decoder)
    }

    /// Returns the type of decoded values.
    #[must_use]
    pub const fn physical(&self) -> PhysicalType {
        match &self.time {
            Some(time) if time.is_duration => PhysicalType::Duration(time.target),
            Some(time) => PhysicalType::Time(time.target),
            None if self.is_bool => PhysicalType::Number(DType::Bool),
            None => PhysicalType::Number(self.number),
        }
    }

    /// Returns whether decoded values are the stored bytes.
    #[must_use]
    pub const fn keeps_numbers(&self) -> bool {
        self.mask.is_none() && self.packing.is_none() && self.time.is_none() && !self.is_bool
    }

    /// Decodes times into microseconds instead of nanoseconds, which end in 2262.
    pub fn widen(&mut self) {
        if let Some(time) = &mut self.time {
            time.widen();
        }
    }

    /// Decodes stored values into as many physical ones.
    ///
    /// # Errors
    ///
    /// [`ZarrError::Time`] for a time that a timestamp cannot have.
    pub fn decode(&self, stored: &[u8], physical: &mut [u8]) -> Result<(), ZarrError> {
        if self.keeps_numbers() {
            if let Some(stored) = stored.get(..physical.len()) {
                physical.copy_from_slice(stored);
            }
            return Ok(());
        }
        let size = self.physical().size();
        let elements = stored.chunks_exact(self.stored.size());
        for (stored, physical) in elements.zip(physical.chunks_exact_mut(size)) {
            let number = self.number_of(stored);
            match &self.time {
                Some(time) => {
                    physical.copy_from_slice(&time.decode(number, self.number)?.to_le_bytes())
                }
                None if self.is_bool => physical.fill(u8::from(!number.equals(Number::Whole(0)))),
                None => number.write(self.number, physical),
            }
        }
        Ok(())
    }

    /// Returns the number of a stored element.
    fn number_of(&self, stored: &[u8]) -> Number {
        let mut number = Number::read(self.stored, stored).unwrap_or(Number::Whole(0));
        if let Some(Mask { dtype, fills }) = &self.mask {
            number = number.cast(*dtype);
            if fills.iter().any(|fill| number.equals(*fill)) {
                number = match dtype {
                    DType::Int64 => Number::Whole(NOT_A_TIME.into()),
                    _ => Number::Float(f64::NAN),
                };
            }
        }
        if let Some(Packing {
            dtype,
            scale,
            offset,
        }) = &self.packing
        {
            number = number.cast(*dtype);
            if let Some(scale) = scale {
                number = number.combine(*scale, *dtype, |a, b| a * b, i64::wrapping_mul);
            }
            if let Some(offset) = offset {
                number = number.combine(*offset, *dtype, |a, b| a + b, i64::wrapping_add);
            }
        }
        number
    }
}

/// Returns the numbers that mean a missing value, and whether the attributes name any, also if it is NaN. Changes the type
/// of the numbers to what `_Unsigned` says.
fn fills(array: &ZarrArray, dtype: &mut DType) -> Result<(Vec<Number>, bool), ZarrError> {
    let stored = *dtype;
    let attributes = &array.attributes;
    let mut all = match &array.mask {
        Some(fill) => Number::read(stored, fill).into_iter().collect(),
        None => numbers(attributes, "_FillValue")?,
    };
    *dtype = match (stored, attributes.get("_Unsigned").and_then(Value::as_str)) {
        (DType::Int8, Some("true")) => DType::UInt8,
        (DType::Int16, Some("true")) => DType::UInt16,
        (DType::Int32, Some("true")) => DType::UInt32,
        (DType::Int64, Some("true")) => DType::UInt64,
        (DType::UInt8, Some("false")) => DType::Int8,
        (DType::UInt16, Some("false")) => DType::Int16,
        (DType::UInt32, Some("false")) => DType::Int32,
        (DType::UInt64, Some("false")) => DType::Int64,
        _ => stored,
    };
    if *dtype != stored {
        for fill in &mut all {
            let mut bytes = [0; 8];
            fill.write(DType::Int64, &mut bytes);
            *fill = Number::read(*dtype, &bytes).unwrap_or(*fill);
        }
    }
    all.extend(numbers(attributes, "missing_value")?);
    // Whole numbers are never NaN, so that such a fill value counts for nothing.
    let is_any = !all.is_empty() && (is_float(stored) || stored == DType::Bool);
    all.retain(|number| !number.is_nan());
    let has_fill = is_any || !all.is_empty();
    Ok((all, has_fill))
}

/// Returns the only number of an attribute; `None` if it is missing.
fn number(attributes: &Map<String, Value>, name: &str) -> Result<Option<Number>, ZarrError> {
    match *numbers(attributes, name)?.as_slice() {
        [] => Ok(None),
        [number] if !number.is_nan() => Ok(Some(number)),
        _ => Err(not_a_number(attributes, name)),
    }
}

/// Returns the numbers of an attribute. Texts are NaN, except infinities and floats as xarray writes them: Base64 of their
/// bytes.
fn numbers(attributes: &Map<String, Value>, name: &str) -> Result<Vec<Number>, ZarrError> {
    let number = |value: &Value| match value {
        Value::Null => Some(Number::Float(f64::NAN)),
        Value::Bool(value) => Some(Number::Whole((*value).into())),
        Value::String(text) => Some(Number::Float(match text.as_str() {
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            text => {
                let bytes = BASE64_STANDARD.decode(text).ok();
                let bytes = bytes.and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
                bytes.map_or(f64::NAN, f64::from_le_bytes)
            }
        })),
        Value::Number(number) => {
            let whole = number
                .as_i64()
                .map(i128::from)
                .or_else(|| number.as_u64().map(i128::from));
            whole
                .map(Number::Whole)
                .or_else(|| number.as_f64().map(Number::Float))
        }
        Value::Array(_) | Value::Object(_) => None,
    };
    let numbers: Option<Vec<Number>> = match attributes.get(name) {
        None => Some(Vec::new()),
        Some(Value::Array(values)) => values.iter().map(number).collect(),
        Some(value) => number(value).map(|number| vec![number]),
    };
    numbers.ok_or_else(|| not_a_number(attributes, name))
}

fn not_a_number(attributes: &Map<String, Value>, name: &str) -> ZarrError {
    let value = attributes.get(name).map(text_of).unwrap_or_default();
    ZarrError::metadata(format!("its attribute `{name}` is `{value}`, not a number"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shardmill_core::Limits;

    use super::*;

    fn array(dtype: &str, fill: Value, attributes: &Value) -> ZarrArray {
        let metadata = json!({"zarr_format": 2, "shape": [3], "chunks": [3], "dtype": dtype, "order": "C",
            "compressor": null, "filters": null, "fill_value": fill});
        let (metadata, attributes) = (metadata.to_string(), attributes.to_string());
        let limits = Limits::default();
        ZarrArray::parse_v2(metadata.as_bytes(), Some(attributes.as_bytes()), &limits).unwrap()
    }

    /// Decodes three elements, and returns the type and the numbers as text.
    fn decoded(dtype: &str, stored: [f64; 3], fill: Value, attributes: &Value) -> String {
        let array = array(dtype, fill, attributes);
        let decoder = CfDecoder::new(&array).unwrap();
        let size = array.dtype.size();
        let mut bytes = vec![0; 3 * size];
        for (into, number) in bytes.chunks_exact_mut(size).zip(stored) {
            Number::Float(number).write(array.dtype, into);
        }
        let mut out = vec![0; 3 * decoder.physical().size()];
        decoder.decode(&bytes, &mut out).unwrap();
        let (name, dtype) = match decoder.physical() {
            PhysicalType::Number(dtype) => (dtype.name(), dtype),
            PhysicalType::Time(_) => ("time", DType::Int64),
            PhysicalType::Duration(_) => ("duration", DType::Int64),
        };
        let numbers =
            out.chunks_exact(dtype.size())
                .map(|own| match Number::read(dtype, own).unwrap() {
                    Number::Whole(number) => number.to_string(),
                    Number::Float(number) => number.to_string(),
                });
        format!("{name} {}", numbers.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn types_and_values_are_those_of_xarray() {
        let values = [1.0, -1.0, 3.0];
        let null = Value::Null;
        for (dtype, fill, attributes, expected) in [
            ("<i2", null.clone(), json!({}), "int16 1 -1 3"),
            ("<i2", json!(-1), json!({}), "float32 1 NaN 3"),
            ("<i4", json!(-1), json!({}), "float64 1 NaN 3"),
            (
                "<i4",
                null.clone(),
                json!({"missing_value": [1, 3.0]}),
                "float64 NaN -1 NaN",
            ),
            ("<f2", json!(-1), json!({}), "float16 1 NaN 3"),
            (
                "<f4",
                json!("NaN"),
                json!({"scale_factor": 2.0}),
                "float32 2 -2 6",
            ),
            (
                "<f4",
                null.clone(),
                json!({"scale_factor": 2.0}),
                "float64 2 -2 6",
            ),
            (
                "<i2",
                null.clone(),
                json!({"scale_factor": 0.1, "add_offset": 1}),
                "float64 1.1 0.9 1.3",
            ),
            (
                "<i2",
                null.clone(),
                json!({"scale_factor": 2}),
                "int64 2 -2 6",
            ),
            (
                "<i2",
                json!(-1),
                json!({"scale_factor": 2.0}),
                "float64 2 NaN 6",
            ),
            (
                "<i2",
                json!(-1),
                json!({"units": "days"}),
                "int64 1 -9223372036854775808 3",
            ),
            (
                "|i1",
                json!(-1),
                json!({"_Unsigned": "true"}),
                "float32 1 NaN 3",
            ),
            (
                "|i1",
                null.clone(),
                json!({"_Unsigned": "true"}),
                "uint8 1 255 3",
            ),
            ("|i1", null.clone(), json!({"dtype": "bool"}), "bool 1 1 1"),
            (
                "<i4",
                null.clone(),
                json!({"missing_value": null}),
                "int32 1 -1 3",
            ),
            (
                "<f8",
                null.clone(),
                json!({"_FillValue": "AAAAAAAA8L8="}),
                "float64 1 NaN 3",
            ),
            (
                "<i2",
                json!(3),
                json!({"units": "seconds since 1970-01-01"}),
                "time 1000000000 -1000000000 -9223372036854775808",
            ),
            (
                "<i4",
                null.clone(),
                json!({"units": "seconds", "dtype": "timedelta64[ns]", "scale_factor": 0.5}),
                "duration 500000000 -500000000 1500000000",
            ),
            (
                "<M8[D]",
                json!("NaT"),
                json!({}),
                "time 86400 -86400 259200",
            ),
        ] {
            assert_eq!(
                decoded(dtype, values, fill.clone(), &attributes),
                expected,
                "{dtype} {fill} {attributes}"
            );
        }
    }

    #[test]
    fn attributes_that_are_no_numbers_are_errors() {
        for (attributes, named) in [
            (json!({"scale_factor": "0.1"}), "`scale_factor` is `0.1`"),
            (json!({"add_offset": [1, 2]}), "`add_offset`"),
            (json!({"missing_value": {"of": 1}}), "`missing_value`"),
        ] {
            let error = CfDecoder::new(&array("<i2", Value::Null, &attributes)).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
    }
}
