//! Nested lists of numbers, from the bytes of the numbers.

use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, ListArray, make_array};
use arrow::buffer::{MutableBuffer, OffsetBuffer};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use shardmill_core::DType;

/// Builds a column of nested lists. `levels` has the lengths of the lists of each level, the outermost first. Without
/// levels, the column has the numbers themselves.
pub(crate) fn lists_of_numbers(
    data_type: &DataType,
    levels: Vec<Vec<usize>>,
    numbers: MutableBuffer,
) -> Result<ArrayRef, ArrowError> {
    let mut fields = Vec::new();
    let mut leaf = data_type;
    while let DataType::List(field) = leaf {
        fields.push(field);
        leaf = field.data_type();
    }
    let width = leaf.primitive_width().unwrap_or(1);
    let data = ArrayData::builder(leaf.clone()).len(numbers.len() / width);
    let mut values = make_array(data.add_buffer(numbers.into()).build()?);
    for (field, lengths) in fields.into_iter().zip(levels).rev() {
        let offsets = OffsetBuffer::from_lengths(lengths);
        values = Arc::new(ListArray::try_new(
            Arc::clone(field),
            offsets,
            values,
            None,
        )?);
    }
    Ok(values)
}

/// Returns the Arrow type of numbers. Truth values are bytes, because arrays of them have no encoding.
#[must_use]
pub const fn number_type(dtype: DType) -> DataType {
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
