//! Encodes numbers. Values of the same type are passed through; others are converted one by one and must fit.

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::buffer::Buffer;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, DecimalType, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use half::f16;
use shardmill_mds::DType;

use crate::error::{RowError, ValueReason};

/// Returns the array dtype that stores the values of an Arrow type bit for bit.
pub(crate) fn dtype_of(data_type: &DataType) -> Option<DType> {
    Some(match data_type {
        DataType::Int8 => DType::I8,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::UInt8 => DType::U8,
        DataType::UInt16 => DType::U16,
        DataType::UInt32 => DType::U32,
        DataType::UInt64 => DType::U64,
        DataType::Float16 => DType::F16,
        DataType::Float32 => DType::F32,
        DataType::Float64 => DType::F64,
        _ => return None,
    })
}

pub(crate) const fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::F32 | DType::F64)
}

/// Returns whether values of `data_type` may be stored as `dtype` if each of them fits.
pub(crate) fn converts(data_type: &DataType, dtype: DType) -> bool {
    match data_type {
        DataType::Boolean => true,
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Duration(_) => dtype == DType::I64,
        DataType::Decimal128(_, scale) => *scale == 0 || is_float(dtype),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => is_float(dtype),
        _ => dtype_of(data_type).is_some(),
    }
}

/// Returns the little-endian bytes of all values of `array` as `dtype`. There is no copy if the types are the same. The
/// bytes of a null are unspecified.
pub(crate) fn to_bytes(array: &ArrayRef, dtype: DType, encoding: &str) -> Result<Buffer, RowError> {
    if dtype_of(array.data_type()) == Some(dtype) {
        return raw_values(array).ok_or(RowError {
            row: 0,
            reason: mismatch(array, encoding),
        });
    }
    let misfit = |row: usize, value: String| RowError {
        row,
        reason: ValueReason::Range {
            value,
            encoding: encoding.to_owned(),
        },
    };
    let rows = array.len();
    macro_rules! integers {
        ($type:ty) => {{
            let values = array.as_primitive::<$type>();
            from_integers(
                rows,
                dtype,
                |row| (!values.is_null(row)).then(|| i128::from(values.value(row))),
                &misfit,
            )
        }};
    }
    macro_rules! floats {
        ($type:ty, $to:expr) => {{
            let values = array.as_primitive::<$type>();
            from_floats(
                rows,
                dtype,
                |row| (!values.is_null(row)).then(|| $to(values.value(row))),
                &misfit,
            )
        }};
    }
    match array.data_type() {
        DataType::Boolean => {
            let values: &BooleanArray = array.as_boolean();
            from_integers(
                rows,
                dtype,
                |row| (!values.is_null(row)).then(|| i128::from(values.value(row))),
                &misfit,
            )
        }
        DataType::Int8 => integers!(Int8Type),
        DataType::Int16 => integers!(Int16Type),
        DataType::Int32 => integers!(Int32Type),
        DataType::Int64 => integers!(Int64Type),
        DataType::UInt8 => integers!(UInt8Type),
        DataType::UInt16 => integers!(UInt16Type),
        DataType::UInt32 => integers!(UInt32Type),
        DataType::UInt64 => integers!(UInt64Type),
        DataType::Date32 => integers!(Date32Type),
        DataType::Date64 => integers!(Date64Type),
        DataType::Time32(TimeUnit::Second) => integers!(Time32SecondType),
        DataType::Time32(_) => integers!(Time32MillisecondType),
        DataType::Time64(TimeUnit::Microsecond) => integers!(Time64MicrosecondType),
        DataType::Time64(_) => integers!(Time64NanosecondType),
        DataType::Timestamp(TimeUnit::Second, _) => integers!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => integers!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => integers!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => integers!(TimestampNanosecondType),
        DataType::Duration(TimeUnit::Second) => integers!(DurationSecondType),
        DataType::Duration(TimeUnit::Millisecond) => integers!(DurationMillisecondType),
        DataType::Duration(TimeUnit::Microsecond) => integers!(DurationMicrosecondType),
        DataType::Duration(TimeUnit::Nanosecond) => integers!(DurationNanosecondType),
        DataType::Float16 => floats!(Float16Type, f64::from),
        DataType::Float32 => floats!(Float32Type, f64::from),
        DataType::Float64 => floats!(Float64Type, |value: f64| value),
        DataType::Decimal128(precision, scale) if *scale == 0 => {
            let _ = precision;
            let values = array.as_primitive::<Decimal128Type>();
            from_integers(
                rows,
                dtype,
                |row| (!values.is_null(row)).then(|| values.value(row)),
                &misfit,
            )
        }
        DataType::Decimal128(precision, scale) if is_float(dtype) => {
            let values = array.as_primitive::<Decimal128Type>();
            let mut out = Vec::with_capacity(rows * width(dtype));
            for row in 0..rows {
                // The text of a decimal parses to the nearest double. Shorter computations would round twice.
                let text = Decimal128Type::format_decimal(values.value(row), *precision, *scale);
                let value = if values.is_null(row) {
                    0.0
                } else {
                    text.parse::<f64>().unwrap_or(f64::NAN)
                };
                put_float(dtype, narrow(dtype, value), &mut out);
            }
            Ok(Buffer::from_vec(out))
        }
        _ => Err(RowError {
            row: 0,
            reason: mismatch(array, encoding),
        }),
    }
}

/// Returns the reason for a column whose type does not fit.
pub(crate) fn mismatch(array: &ArrayRef, encoding: &str) -> ValueReason {
    ValueReason::Range {
        value: format!("a value of type {}", array.data_type()),
        encoding: encoding.to_owned(),
    }
}

fn width(dtype: DType) -> usize {
    usize::try_from(dtype.size_bytes()).unwrap_or(8)
}

/// Returns the values buffer of a primitive array, exactly `len` values long. Arrow stores numbers in native byte
/// order, which this crate requires to be little-endian.
fn raw_values(array: &ArrayRef) -> Option<Buffer> {
    macro_rules! raw {
        ($($variant:pat => $type:ty),+ $(,)?) => {
            match array.data_type() {
                $($variant => Some(array.as_primitive::<$type>().values().inner().clone()),)+
                _ => None,
            }
        };
    }
    raw!(
        DataType::Int8 => Int8Type,
        DataType::Int16 => Int16Type,
        DataType::Int32 => Int32Type,
        DataType::Int64 => Int64Type,
        DataType::UInt8 => UInt8Type,
        DataType::UInt16 => UInt16Type,
        DataType::UInt32 => UInt32Type,
        DataType::UInt64 => UInt64Type,
        DataType::Float16 => Float16Type,
        DataType::Float32 => Float32Type,
        DataType::Float64 => Float64Type,
    )
}

fn from_integers(
    rows: usize,
    dtype: DType,
    value: impl Fn(usize) -> Option<i128>,
    misfit: &dyn Fn(usize, String) -> RowError,
) -> Result<Buffer, RowError> {
    let mut out = Vec::with_capacity(rows * width(dtype));
    for row in 0..rows {
        let value = value(row).unwrap_or(0);
        macro_rules! put {
            ($type:ty) => {
                match <$type>::try_from(value) {
                    Ok(value) => out.extend_from_slice(&value.to_le_bytes()),
                    Err(_) => return Err(misfit(row, value.to_string())),
                }
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
                if !is_exact(float, value) {
                    return Err(misfit(row, value.to_string()));
                }
                put_float(dtype, float, &mut out);
            }
        }
    }
    Ok(Buffer::from_vec(out))
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

fn from_floats(
    rows: usize,
    dtype: DType,
    value: impl Fn(usize) -> Option<f64>,
    misfit: &dyn Fn(usize, String) -> RowError,
) -> Result<Buffer, RowError> {
    let mut out = Vec::with_capacity(rows * width(dtype));
    for row in 0..rows {
        let value = value(row).unwrap_or(0.0);
        let narrowed = narrow(dtype, value);
        // Narrowing may round a number, but it must not turn it into infinity.
        if value.is_finite() && !narrowed.is_finite() {
            return Err(misfit(row, value.to_string()));
        }
        put_float(dtype, narrowed, &mut out);
    }
    Ok(Buffer::from_vec(out))
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
