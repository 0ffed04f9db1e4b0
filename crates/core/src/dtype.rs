//! The types of the numbers of arrays.

use crate::named::named_enum;

named_enum! {
    /// The type of the numbers of an array, by its name in NumPy.
    pub enum DType {
        /// A truth value in a byte.
        Bool = "bool",
        /// A signed number of 8 bits.
        Int8 = "int8",
        /// A signed number of 16 bits.
        Int16 = "int16",
        /// A signed number of 32 bits.
        Int32 = "int32",
        /// A signed number of 64 bits.
        Int64 = "int64",
        /// An unsigned number of 8 bits.
        UInt8 = "uint8",
        /// An unsigned number of 16 bits.
        UInt16 = "uint16",
        /// An unsigned number of 32 bits.
        UInt32 = "uint32",
        /// An unsigned number of 64 bits.
        UInt64 = "uint64",
        /// A float of 16 bits.
        Float16 = "float16",
        /// A float of 32 bits.
        Float32 = "float32",
        /// A float of 64 bits.
        Float64 = "float64",
    }
}

impl DType {
    /// Returns NumPy's short name: `f4`, `u1`, `b1`.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::Bool => "b1",
            Self::Int8 => "i1",
            Self::Int16 => "i2",
            Self::Int32 => "i4",
            Self::Int64 => "i8",
            Self::UInt8 => "u1",
            Self::UInt16 => "u2",
            Self::UInt32 => "u4",
            Self::UInt64 => "u8",
            Self::Float16 => "f2",
            Self::Float32 => "f4",
            Self::Float64 => "f8",
        }
    }

    /// Returns the type with this short name.
    #[must_use]
    pub fn from_short(short: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.short() == short)
    }

    /// Returns the bytes of one number.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::Int8 | Self::UInt8 => 1,
            Self::Int16 | Self::UInt16 | Self::Float16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 => 8,
        }
    }
}
