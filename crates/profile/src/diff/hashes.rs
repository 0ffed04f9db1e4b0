//! Hashes of values, equal for equal values of types that are stored differently.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::cell::{bytes_of, text, text_of};

/// Returns whether values of two types can be equal.
pub(super) fn comparable(a: &DataType, b: &DataType) -> bool {
    let is_text = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        )
    };
    let is_bytes = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
        )
    };
    a == b || is_text(a) && is_text(b) || is_bytes(a) && is_bytes(b)
}

/// The hash of a null.
const NULL: u128 = 0x6e75_6c6c;

/// Returns the hash of each value of a column.
pub(super) fn hash(array: &ArrayRef) -> Vec<u64> {
    each(array, |value| value.map_or(u64::MAX, xxh3_64))
}

/// Returns the long hash of each value of a column.
pub(super) fn long_hash(array: &ArrayRef) -> Vec<u128> {
    each(array, |value| value.map_or(NULL, xxh3_128))
}

fn each<T>(array: &ArrayRef, hash: impl Fn(Option<&[u8]>) -> T) -> Vec<T> {
    let nulls = array.logical_nulls();
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    let plain = |row: usize| {
        let text = text_of(array, row).map(str::as_bytes);
        text.or_else(|| bytes_of(array, row))
    };
    if array.is_empty() || plain(0).is_some() {
        return (0..array.len())
            .map(|row| hash(plain(row).filter(|_| !is_null(row))))
            .collect();
    }
    let rows = RowConverter::new(vec![SortField::new(array.data_type().clone())])
        .and_then(|converter| converter.convert_columns(std::slice::from_ref(array)));
    (0..array.len())
        .map(|row| match &rows {
            _ if is_null(row) => hash(None),
            Ok(rows) => hash(Some(rows.row(row).as_ref())),
            // Types without an order, such as maps, are compared as text.
            Err(_) => hash(Some(text(array, row).as_bytes())),
        })
        .collect()
}
