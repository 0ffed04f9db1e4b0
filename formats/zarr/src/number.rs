//! Single numbers: read, cast and written as NumPy does.

use half::f16;
use shardmill_core::DType;

/// A number of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Whole(i128),
    Float(f64),
}

impl Number {
    /// Reads a little-endian number; `None` if there are too few bytes.
    pub(crate) fn read(dtype: DType, bytes: &[u8]) -> Option<Self> {
        macro_rules! whole {
            ($number:ty) => {
                Self::Whole(<$number>::from_le_bytes(*bytes.first_chunk()?).into())
            };
        }
        Some(match dtype {
            DType::Bool | DType::UInt8 => whole!(u8),
            DType::UInt16 => whole!(u16),
            DType::UInt32 => whole!(u32),
            DType::UInt64 => whole!(u64),
            DType::Int8 => whole!(i8),
            DType::Int16 => whole!(i16),
            DType::Int32 => whole!(i32),
            DType::Int64 => whole!(i64),
            DType::Float16 => Self::Float(f16::from_le_bytes(*bytes.first_chunk()?).to_f64()),
            DType::Float32 => Self::Float(f32::from_le_bytes(*bytes.first_chunk()?).into()),
            DType::Float64 => Self::Float(f64::from_le_bytes(*bytes.first_chunk()?)),
        })
    }

    /// Writes a number of this type into the bytes of an element. Whole numbers wrap.
    pub(crate) fn write(self, dtype: DType, into: &mut [u8]) {
        macro_rules! copy {
            ($bytes:expr) => {
                for (into, byte) in into.iter_mut().zip($bytes) {
                    *into = byte;
                }
            };
        }
        match dtype {
            DType::Float16 => copy!(f16::from_f64(self.float()).to_le_bytes()),
            DType::Float32 => copy!(single(self.float()).to_le_bytes()),
            DType::Float64 => copy!(self.float().to_le_bytes()),
            _ => copy!(self.wrapped().to_le_bytes()),
        }
    }

    /// Returns the nearest float.
    #[expect(clippy::cast_precision_loss, reason = "the nearest float is wanted")]
    pub(crate) fn float(self) -> f64 {
        match self {
            // PERF: floats of 64-bit numbers are one instruction, and those of 128 bits a call.
            Self::Whole(number) => {
                i64::try_from(number).map_or(number as f64, |number| number as f64)
            }
            Self::Float(number) => number,
        }
    }

    /// Returns the lowest 64 bits of a whole number, and the whole part of a float.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "whole numbers wrap, as those of NumPy"
    )]
    fn wrapped(self) -> i64 {
        match self {
            Self::Whole(number) => number as i64,
            Self::Float(number) => number as i64,
        }
    }

    /// Returns the number as one of another type.
    pub(crate) fn cast(self, dtype: DType) -> Self {
        match is_float(dtype) {
            true => Self::Float(rounded(dtype, self.float())),
            false => Self::Whole(self.wrapped().into()),
        }
    }

    /// Multiplies or adds numbers of this type.
    pub(crate) fn combine(
        self,
        other: Self,
        dtype: DType,
        floats: fn(f64, f64) -> f64,
        wholes: fn(i64, i64) -> i64,
    ) -> Self {
        let other = other.cast(dtype);
        match is_float(dtype) {
            // The result of one operation in `f64`, rounded to a shorter float, is that of the shorter floats.
            true => Self::Float(rounded(dtype, floats(self.float(), other.float()))),
            false => Self::Whole(wholes(self.wrapped(), other.wrapped()).into()),
        }
    }

    /// Returns whether the numbers are equal. A whole number and a float are compared as floats.
    pub(crate) fn equals(self, other: Self) -> bool {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => one == other,
            #[expect(clippy::float_cmp, reason = "fill values are compared exactly")]
            _ => self.float() == other.float(),
        }
    }

    pub(crate) fn is_nan(self) -> bool {
        matches!(self, Self::Float(number) if number.is_nan())
    }
}

pub(crate) const fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::Float16 | DType::Float32 | DType::Float64)
}

/// Returns the nearest float of this type.
pub(crate) fn rounded(dtype: DType, number: f64) -> f64 {
    match dtype {
        DType::Float16 => f16::from_f64(number).to_f64(),
        DType::Float32 => single(number).into(),
        _ => number,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the nearest float is wanted"
)]
const fn single(number: f64) -> f32 {
    number as f32
}
