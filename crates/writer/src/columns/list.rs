//! Encodes lists of numbers as arrays. Shapes come from the offsets; the leaves are one range of the values buffer.

use std::ops::Range;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;
use shardmill_mds::{DType, Encoding, ndarray_header};
use shardmill_webdataset::{encode_ten, npy_header};

use super::encoded_column::{EncodedColumn, Offsets, Prefixes};
use super::number;
use crate::error::{RowError, ValueReason};

/// One nesting level of a list column.
struct Level {
    offsets: Offsets,
    nulls: Option<NullBuffer>,
}

/// Returns the number type at the bottom of nested lists, and the number of list levels above it.
#[must_use]
pub fn leaf_type(data_type: &DataType) -> (&DataType, usize) {
    let mut at = data_type;
    let mut levels = 0;
    while let DataType::List(field)
    | DataType::LargeList(field)
    | DataType::FixedSizeList(field, _) = at
    {
        at = field.data_type();
        levels += 1;
    }
    (at, levels)
}

/// Returns the shape if the type alone determines it: nested fixed-size lists.
pub(crate) fn static_shape(data_type: &DataType) -> Option<Vec<u64>> {
    let mut shape = Vec::new();
    let mut at = data_type;
    while let DataType::FixedSizeList(field, len) = at {
        shape.push(u64::try_from(*len).ok()?);
        at = field.data_type();
    }
    (!shape.is_empty() && !shape.contains(&0) && number::dtype_of(at).is_some()).then_some(shape)
}

fn unnest(array: &ArrayRef) -> (Vec<Level>, ArrayRef) {
    let mut levels = Vec::new();
    let mut at = array;
    while let Some((offsets, values)) = Offsets::of_lists(at) {
        let nulls = at.nulls().cloned();
        levels.push(Level { offsets, nulls });
        at = values;
    }
    (levels, ArrayRef::clone(at))
}

/// Encodes a list column as an array encoding. Values of null rows are not inspected; they become an empty range. The
/// caller has rejected or replaced null rows before.
pub(crate) fn prepare(
    array: &ArrayRef,
    encoding: &Encoding,
    name: &str,
    declared: Option<DType>,
    shape: Option<&[u64]>,
) -> Result<EncodedColumn, RowError> {
    let Numbers {
        levels,
        dtype,
        extents,
        bytes,
    } = numbers(array, name, declared, false)?;
    let item = usize::try_from(dtype.size_bytes()).unwrap_or(1);
    if let Some(shape) = shape {
        return fixed(&extents, shape, bytes, item, &levels);
    }
    let to_write = if matches!(encoding, Encoding::NdArray { dtype: Some(_), .. }) {
        None
    } else {
        Some(dtype)
    };
    prefixed(&extents, bytes, item, |row, dims, out| {
        ndarray_header(to_write, dims, out).map_err(RowError::at(row))
    })
}

/// Encodes a list column as NumPy files. An empty list becomes an array without elements.
pub(crate) fn npy(array: &ArrayRef, name: &str) -> Result<EncodedColumn, RowError> {
    let Numbers {
        dtype,
        extents,
        bytes,
        ..
    } = numbers(array, name, None, true)?;
    let item = usize::try_from(dtype.size_bytes()).unwrap_or(1);
    prefixed(&extents, bytes, item, |row, dims, out| {
        npy_header(name, dtype.numpy(), dims, out).map_err(RowError::at(row))
    })
}

/// Encodes a list column as arrays in webdataset's own tensor format. An empty list becomes an array without elements.
pub(crate) fn ten(array: &ArrayRef, name: &str) -> Result<EncodedColumn, RowError> {
    let numbers = numbers(array, name, None, true)?;
    let item = usize::try_from(numbers.dtype.size_bytes()).unwrap_or(1);
    EncodedColumn::try_render(array.len(), |row, out| {
        let extent = &numbers.extents[row];
        let range = extent.leaf.start * item..extent.leaf.end * item;
        let data = numbers.bytes.get(range).unwrap_or_default();
        let dtype = numbers.dtype.numpy();
        encode_ten(name, dtype, &extent.dims, data, out).map_err(RowError::at(row))
    })
}

/// The numbers of a list column, and the range of each row.
struct Numbers {
    levels: Vec<Level>,
    dtype: DType,
    extents: Vec<Extent>,
    bytes: Buffer,
}

fn numbers(
    array: &ArrayRef,
    name: &str,
    declared: Option<DType>,
    may_be_empty: bool,
) -> Result<Numbers, RowError> {
    let (levels, leaf) = unnest(array);
    let dtype = declared.or_else(|| number::dtype_of(leaf.data_type()));
    let dtype = dtype.ok_or_else(|| RowError::unfit(array.data_type(), name))?;
    let extents = extents(&levels, array.len(), name, may_be_empty)?;
    if leaf.null_count() > 0 {
        for (row, extent) in extents.iter().enumerate() {
            if extent.leaf.clone().any(|at| leaf.is_null(at)) {
                return Err(RowError::at(row)(ValueReason::NullInside));
            }
        }
    }
    let bytes = number::to_bytes(&leaf, dtype, name).map_err(|error| {
        // The error contains the position of a leaf; messages need the row.
        let row = extents
            .iter()
            .position(|extent| extent.leaf.contains(&error.row))
            .unwrap_or(0);
        RowError {
            row,
            reason: error.reason,
        }
    })?;
    Ok(Numbers {
        levels,
        dtype,
        extents,
        bytes,
    })
}

/// Encodes arrays with a header for each.
fn prefixed(
    extents: &[Extent],
    bytes: Buffer,
    item: usize,
    header: impl Fn(usize, &[u64], &mut Vec<u8>) -> Result<(), RowError>,
) -> Result<EncodedColumn, RowError> {
    let rows = extents.len();
    let ranges = extents
        .iter()
        .map(|extent| extent.leaf.start * item..extent.leaf.end * item)
        .collect();
    let same = extents.windows(2).all(|pair| pair[0].dims == pair[1].dims);
    let distinct = if same { rows.min(1) } else { rows };
    let mut headers = Vec::with_capacity(distinct * 4);
    let mut offsets = vec![0];
    for (row, extent) in extents.iter().enumerate().take(distinct) {
        header(row, &extent.dims, &mut headers)?;
        offsets.push(headers.len());
    }
    let prefixes = match same {
        true => Prefixes::Same(headers),
        false => Prefixes::Each {
            bytes: headers,
            offsets,
        },
    };
    Ok(EncodedColumn::Prefixed {
        prefixes,
        bytes,
        ranges,
    })
}

/// Encodes arrays of a declared shape: only the values.
fn fixed(
    extents: &[Extent],
    shape: &[u64],
    bytes: Buffer,
    item: usize,
    levels: &[Level],
) -> Result<EncodedColumn, RowError> {
    let elements = shape.iter().product::<u64>();
    for (row, extent) in extents.iter().enumerate() {
        // File formats without nested shapes produce a flat list of the right length.
        let flat = levels.len() == 1 && extent.dims == [elements];
        if extent.dims != shape && !flat {
            let reason = ValueReason::Shape {
                found: extent.dims.clone(),
                expected: shape.to_vec(),
            };
            return Err(RowError { row, reason });
        }
    }
    let width = usize::try_from(elements).unwrap_or(0) * item;
    let start = extents.first().map_or(0, |extent| extent.leaf.start);
    let end = extents.last().map_or(0, |extent| extent.leaf.end);
    let contiguous = extents
        .windows(2)
        .all(|pair| pair[0].leaf.end == pair[1].leaf.start);
    if contiguous {
        return Ok(EncodedColumn::Fixed {
            width,
            bytes: bytes.slice_with_length(start * item, (end - start) * item),
        });
    }
    let ranges = extents
        .iter()
        .map(|extent| extent.leaf.start * item..extent.leaf.end * item)
        .collect();
    Ok(EncodedColumn::Prefixed {
        prefixes: Prefixes::Same(Vec::new()),
        bytes,
        ranges,
    })
}

/// The leaf range and the shape of one row.
struct Extent {
    leaf: Range<usize>,
    dims: Vec<u64>,
}

fn extents(
    levels: &[Level],
    rows: usize,
    name: &str,
    may_be_empty: bool,
) -> Result<Vec<Extent>, RowError> {
    let mut extents = Vec::with_capacity(rows);
    for row in 0..rows {
        let mut range = row..row + 1;
        let mut dims = Vec::with_capacity(levels.len());
        for level in levels {
            let first = level.offsets.range(range.start);
            let mut end = first.end;
            for at in range.clone() {
                if level.nulls.as_ref().is_some_and(|nulls| nulls.is_null(at)) {
                    return Err(RowError::at(row)(ValueReason::NullInside));
                }
                let next = level.offsets.range(at);
                if next.len() != first.len() {
                    let reason = ValueReason::Ragged {
                        first: first.len(),
                        other: next.len(),
                    };
                    return Err(RowError { row, reason });
                }
                end = next.end;
            }
            if first.is_empty() && may_be_empty {
                dims.resize(levels.len(), 0);
                range = first;
                break;
            }
            if first.is_empty() {
                return Err(RowError {
                    row,
                    reason: ValueReason::EmptyArray {
                        encoding: name.to_owned(),
                    },
                });
            }
            dims.push(u64::try_from(first.len()).unwrap_or(u64::MAX));
            range = first.start..end;
        }
        extents.push(Extent { leaf: range, dims });
    }
    Ok(extents)
}
