//! Encodes numbers. Values of the same type are passed through; others are converted one by one and must fit.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, DecimalType, Float64Type, Int64Type, UInt64Type};
use half::f16;
use shardmill_mds::DType;

use super::types::is_temporal;
use crate::error::{RowError, ValueReason};

/// Returns the Arrow type of numbers of MDS.
#[must_use]
pub const fn number_type(dtype: DType) -> DataType {
    match dtype {
        DType::U8 => DataType::UInt8,
        DType::I8 => DataType::Int8,
        DType::U16 => DataType::UInt16,
        DType::I16 => DataType::Int16,
        DType::F16 => DataType::Float16,
        DType::U32 => DataType::UInt32,
        DType::I32 => DataType::Int32,
        DType::F32 => DataType::Float32,
        DType::U64 => DataType::UInt64,
        DType::I64 => DataType::Int64,
        DType::F64 => DataType::Float64,
    }
}

/// Returns the array dtype that stores the values of an Arrow type bit for bit.
pub(crate) fn dtype_of(data_type: &DataType) -> Option<DType> {
    let mut types = DType::ALL.into_iter();
    types.find(|dtype| number_type(*dtype) == *data_type)
}

/// Returns whether values of `data_type` may be stored as `dtype` if each of them fits.
pub(crate) fn converts(data_type: &DataType, dtype: DType) -> bool {
    match data_type {
        DataType::Boolean => true,
        other if is_temporal(other) => dtype == DType::I64,
        DataType::Decimal128(_, scale) => *scale == 0 || dtype.is_float(),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => dtype.is_float(),
        _ => dtype_of(data_type).is_some(),
    }
}

/// Returns the little-endian bytes of all values of `array` as `dtype`. There is no copy if the types are the same. The
/// bytes of a null are unspecified.
pub(crate) fn to_bytes(array: &ArrayRef, dtype: DType, encoding: &str) -> Result<Buffer, RowError> {
    let unfit = || RowError::unfit(array.data_type(), encoding);
    if dtype_of(array.data_type()) == Some(dtype) {
        // Arrow stores numbers in native byte order, which this crate requires to be little-endian.
        let data = array.to_data();
        let (start, length) = (data.offset() * width(dtype), data.len() * width(dtype));
        let buffer = data.buffers().first().ok_or_else(unfit)?;
        return Ok(buffer.slice_with_length(start, length));
    }
    let mut out = Vec::with_capacity(array.len() * width(dtype));
    let nulls = array.nulls();
    let rows = (0..array.len()).map(|row| (row, nulls.is_none_or(|nulls| nulls.is_valid(row))));
    let misfit = |row: usize, value: String| RowError {
        row,
        reason: ValueReason::Range {
            value,
            encoding: encoding.to_owned(),
        },
    };
    let mut integers = |value: &dyn Fn(usize) -> i128| {
        for (row, is_valid) in rows.clone() {
            let value = if is_valid { value(row) } else { 0 };
            put_integer(dtype, value, &mut out).ok_or_else(|| misfit(row, value.to_string()))?;
        }
        Ok(())
    };
    match array.data_type() {
        DataType::UInt64 => {
            let values = array.as_primitive::<UInt64Type>();
            integers(&|row| values.value(row).into())?;
        }
        DataType::Decimal128(_, 0) => {
            let values = array.as_primitive::<Decimal128Type>();
            integers(&|row| values.value(row))?;
        }
        DataType::Decimal128(precision, scale) if dtype.is_float() => {
            let values = array.as_primitive::<Decimal128Type>();
            for (row, is_valid) in rows {
                // The text of a decimal parses to the nearest double. Shorter computations would round twice.
                let text = Decimal128Type::format_decimal(values.value(row), *precision, *scale);
                let value = if is_valid {
                    text.parse::<f64>().unwrap_or(f64::NAN)
                } else {
                    0.0
                };
                put_float(dtype, narrow(dtype, value), &mut out);
            }
        }
        other if other.is_floating() && dtype.is_float() => {
            let wide = cast(array, &DataType::Float64).map_err(|_| unfit())?;
            let values = wide.as_primitive::<Float64Type>();
            for (row, is_valid) in rows {
                let value = if is_valid { values.value(row) } else { 0.0 };
                let narrowed = narrow(dtype, value);
                // Narrowing may round a number, but it must not turn it into infinity.
                if value.is_finite() && !narrowed.is_finite() {
                    return Err(misfit(row, value.to_string()));
                }
                put_float(dtype, narrowed, &mut out);
            }
        }
        other if other.is_integer() || is_temporal(other) || *other == DataType::Boolean => {
            let wide = cast(array, &DataType::Int64).map_err(|_| unfit())?;
            let values = wide.as_primitive::<Int64Type>();
            integers(&|row| values.value(row).into())?;
        }
        _ => return Err(unfit()),
    }
    Ok(Buffer::from_vec(out))
}

/// Returns the size of a number in bytes.
pub(crate) fn width(dtype: DType) -> usize {
    usize::try_from(dtype.size_bytes()).unwrap_or(8)
}

/// Appends an integer, or returns `None` if `dtype` cannot represent it exactly.
fn put_integer(dtype: DType, value: i128, out: &mut Vec<u8>) -> Option<()> {
    macro_rules! put {
        ($type:ty) => {
            out.extend_from_slice(&<$type>::try_from(value).ok()?.to_le_bytes())
        };
    }
    match dtype {
        DType::I8 => put!(i8),
        DType::I16 => put!(i16),
        DType::I32 => put!(i32),
        DType::I64 => put!(i64),
        DType::U8 => put!(u8),
        DType::U16 => put!(u16),
        DType::U32 => put!(u32),
        DType::U64 => put!(u64),
        DType::F16 | DType::F32 | DType::F64 => {
            #[expect(
                clippy::cast_precision_loss,
                reason = "compared with the original below"
            )]
            let float = narrow(dtype, value as f64);
            is_exact(float, value).then(|| put_float(dtype, float, out))?;
        }
    }
    Some(())
}

/// Returns whether the double equals the integer. Doubles outside the range of `i128` never do.
fn is_exact(float: f64, value: i128) -> bool {
    const BOUND: f64 = 1e38;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "within i128, and truncation is what is tested"
    )]
    let back = float as i128;
    float.abs() < BOUND && back == value
}

/// Returns the nearest value of `dtype`, as a double.
fn narrow(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 => f64::from(f16::from_f64(value)),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "rounding to nearest is the point"
        )]
        DType::F32 => f64::from(value as f32),
        _ => value,
    }
}

fn put_float(dtype: DType, value: f64, out: &mut Vec<u8>) {
    match dtype {
        DType::F16 => out.extend_from_slice(&f16::from_f64(value).to_le_bytes()),
        #[expect(clippy::cast_possible_truncation, reason = "already narrowed")]
        DType::F32 => out.extend_from_slice(&(value as f32).to_le_bytes()),
        _ => out.extend_from_slice(&value.to_le_bytes()),
    }
}
