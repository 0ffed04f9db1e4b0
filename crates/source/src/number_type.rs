//! The Arrow types of numbers.

use arrow::datatypes::DataType;
use shardmill_core::DType;

/// Returns the Arrow type of numbers. Truth values are bytes, because arrays of them have no encoding.
pub(crate) const fn number_type(dtype: DType) -> DataType {
    match dtype {
        DType::Bool | DType::UInt8 => DataType::UInt8,
        DType::Int8 => DataType::Int8,
        DType::Int16 => DataType::Int16,
        DType::Int32 => DataType::Int32,
        DType::Int64 => DataType::Int64,
        DType::UInt16 => DataType::UInt16,
        DType::UInt32 => DataType::UInt32,
        DType::UInt64 => DataType::UInt64,
        DType::Float16 => DataType::Float16,
        DType::Float32 => DataType::Float32,
        DType::Float64 => DataType::Float64,
    }
}
