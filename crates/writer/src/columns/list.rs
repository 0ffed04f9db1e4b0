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
    let numbers = Numbers::new(array, name, declared, false)?;
    if let Some(shape) = shape {
        return numbers.fixed(shape);
    }
    let is_declared = matches!(encoding, Encoding::NdArray { dtype: Some(_), .. });
    let to_write = (!is_declared).then_some(numbers.dtype);
    numbers.prefixed(|dims, out| ndarray_header(to_write, dims, out))
}

/// Encodes a list column as NumPy files. An empty list becomes an array without elements.
pub(crate) fn npy(array: &ArrayRef, name: &str) -> Result<EncodedColumn, RowError> {
    let numbers = Numbers::new(array, name, None, true)?;
    let dtype = numbers.dtype.numpy();
    numbers.prefixed(|dims, out| npy_header(name, dtype, dims, out))
}

/// Encodes a list column as arrays in webdataset's own tensor format. An empty list becomes an array without elements.
pub(crate) fn ten(array: &ArrayRef, name: &str) -> Result<EncodedColumn, RowError> {
    let numbers = Numbers::new(array, name, None, true)?;
    let dtype = numbers.dtype.numpy();
    EncodedColumn::try_render(array.len(), |row, out| {
        let extent = &numbers.extents[row];
        let data = numbers.bytes.get(numbers.bytes_of(extent));
        let data = data.unwrap_or_default();
        encode_ten(name, dtype, &extent.dims, data, out).map_err(RowError::at(row))
    })
}

/// The numbers of a list column, and the range of each row.
struct Numbers {
    /// The number of nested lists.
    levels: usize,
    dtype: DType,
    extents: Vec<Extent>,
    bytes: Buffer,
}

impl Numbers {
    fn new(
        array: &ArrayRef,
        name: &str,
        declared: Option<DType>,
        may_be_empty: bool,
    ) -> Result<Self, RowError> {
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
            let mut extents = extents.iter();
            let row = extents.position(|extent| extent.leaf.contains(&error.row));
            RowError::at(row.unwrap_or(0))(error.reason)
        })?;
        Ok(Self {
            levels: levels.len(),
            dtype,
            extents,
            bytes,
        })
    }

    fn bytes_of(&self, extent: &Extent) -> Range<usize> {
        let item = number::width(self.dtype);
        extent.leaf.start * item..extent.leaf.end * item
    }

    fn with_prefixes(self, prefixes: Prefixes) -> EncodedColumn {
        let ranges = self.extents.iter().map(|extent| self.bytes_of(extent));
        EncodedColumn::Prefixed {
            prefixes,
            ranges: ranges.collect(),
            bytes: self.bytes,
        }
    }

    /// Encodes arrays with a header for each.
    fn prefixed<E: Into<ValueReason>>(
        self,
        header: impl Fn(&[u64], &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<EncodedColumn, RowError> {
        let rows = self.extents.len();
        let mut pairs = self.extents.windows(2);
        let same = pairs.all(|pair| pair[0].dims == pair[1].dims);
        let distinct = if same { rows.min(1) } else { rows };
        let mut headers = Vec::with_capacity(distinct * 4);
        let mut offsets = vec![0];
        for (row, extent) in self.extents.iter().enumerate().take(distinct) {
            header(&extent.dims, &mut headers).map_err(RowError::at(row))?;
            offsets.push(headers.len());
        }
        Ok(self.with_prefixes(match same {
            true => Prefixes::Same(headers),
            false => Prefixes::Each {
                bytes: headers,
                offsets,
            },
        }))
    }

    /// Encodes arrays of a declared shape: only the values.
    fn fixed(self, shape: &[u64]) -> Result<EncodedColumn, RowError> {
        let elements = shape.iter().product::<u64>();
        for (row, extent) in self.extents.iter().enumerate() {
            // File formats without nested shapes produce a flat list of the right length.
            let flat = self.levels == 1 && extent.dims == [elements];
            if extent.dims != shape && !flat {
                let reason = ValueReason::Shape {
                    found: extent.dims.clone(),
                    expected: shape.to_vec(),
                };
                return Err(RowError { row, reason });
            }
        }
        let mut pairs = self.extents.windows(2);
        if !pairs.all(|pair| pair[0].leaf.end == pair[1].leaf.start) {
            return Ok(self.with_prefixes(Prefixes::Same(Vec::new())));
        }
        let bytes_of =
            |extent: Option<&Extent>| extent.map_or(0..0, |extent| self.bytes_of(extent));
        let start = bytes_of(self.extents.first()).start;
        let end = bytes_of(self.extents.last()).end;
        let item = number::width(self.dtype);
        Ok(EncodedColumn::Fixed {
            width: usize::try_from(elements).unwrap_or(0) * item,
            bytes: self.bytes.slice_with_length(start, end - start),
        })
    }
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
