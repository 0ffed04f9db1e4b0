//! The encoded values of one column of one batch, before they are scattered into samples.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::DataType;
use shardmill_core::Limits;
use shardmill_mds::{Encoding, MdsError, check_datum, check_new_json};

use crate::error::RowError;

/// The start of each value in a buffer of concatenated values.
#[derive(Clone, Debug)]
pub(crate) enum Offsets {
    I32(OffsetBuffer<i32>),
    I64(OffsetBuffer<i64>),
    Owned(Vec<usize>),
}

impl Offsets {
    /// Returns the bounds of value `row`. Arrow validates offsets when it creates an array: they are not negative, do
    /// not decrease, and end within the buffer.
    fn range(&self, row: usize) -> Range<usize> {
        match self {
            Self::I32(offsets) => {
                to_usize(i64::from(offsets[row]))..to_usize(i64::from(offsets[row + 1]))
            }
            Self::I64(offsets) => to_usize(offsets[row])..to_usize(offsets[row + 1]),
            Self::Owned(offsets) => offsets[row]..offsets[row + 1],
        }
    }
}

fn to_usize(offset: i64) -> usize {
    usize::try_from(offset).unwrap_or(0)
}

/// The bytes before the values of an array: dtype code and shape.
#[derive(Clone, Debug)]
pub(crate) enum Prefixes {
    /// The same bytes before every value.
    Same(Vec<u8>),
    /// Concatenated bytes, with `rows + 1` offsets.
    Each { bytes: Vec<u8>, offsets: Vec<usize> },
}

/// The encoded values of one column of one batch.
///
/// Values are not copied if Arrow already stores them in the form that the format needs: numbers, text, bytes, and the
/// leaves of lists.
#[derive(Clone, Debug)]
pub(crate) enum EncodedColumn {
    /// Every value has `width` bytes.
    Fixed { width: usize, bytes: Buffer },
    /// Values of any length, concatenated.
    Sliced { bytes: Buffer, offsets: Offsets },
    /// A prefix for each value, followed by a range of a shared buffer.
    Prefixed {
        prefixes: Prefixes,
        bytes: Buffer,
        ranges: Vec<Range<usize>>,
    },
}

impl EncodedColumn {
    /// Creates a column of values that were rendered into their own buffer.
    pub(crate) fn rendered(bytes: Vec<u8>, offsets: Vec<usize>) -> Self {
        Self::Sliced {
            bytes: Buffer::from_vec(bytes),
            offsets: Offsets::Owned(offsets),
        }
    }

    /// Returns the length of value `row` in bytes.
    pub(crate) fn len(&self, row: usize) -> usize {
        match self {
            Self::Fixed { width, .. } => *width,
            Self::Sliced { offsets, .. } => offsets.range(row).len(),
            Self::Prefixed {
                prefixes, ranges, ..
            } => {
                let prefix = match prefixes {
                    Prefixes::Same(bytes) => bytes.len(),
                    Prefixes::Each { offsets, .. } => offsets[row + 1] - offsets[row],
                };
                prefix + ranges[row].len()
            }
        }
    }

    /// Returns the bytes of value `row`, in up to two pieces.
    pub(crate) fn value(&self, row: usize) -> (&[u8], &[u8]) {
        match self {
            Self::Fixed { width, bytes } => (&[], &bytes[row * width..(row + 1) * width]),
            Self::Sliced { bytes, offsets } => (&[], &bytes[offsets.range(row)]),
            Self::Prefixed {
                prefixes,
                bytes,
                ranges,
            } => {
                let prefix = match prefixes {
                    Prefixes::Same(bytes) => bytes.as_slice(),
                    Prefixes::Each { bytes, offsets } => &bytes[offsets[row]..offsets[row + 1]],
                };
                (prefix, &bytes[ranges[row].clone()])
            }
        }
    }

    /// Adds the length of each value in `rows` to `sizes`.
    pub(crate) fn add_sizes(&self, rows: Range<usize>, sizes: &mut [usize]) {
        match self {
            Self::Fixed { width, .. } => sizes.iter_mut().for_each(|size| *size += width),
            Self::Sliced { .. } | Self::Prefixed { .. } => {
                for (row, size) in rows.zip(sizes) {
                    *size += self.len(row);
                }
            }
        }
    }

    /// Copies each value in `rows` to `out` at its cursor, and advances the cursor.
    ///
    /// This is the only copy of the bytes between Arrow and the shard.
    pub(crate) fn scatter(&self, rows: Range<usize>, cursors: &mut [usize], out: &mut [u8]) {
        match self {
            Self::Fixed { width, bytes } => match width {
                1 => scatter_fixed::<1>(bytes, rows, cursors, out),
                2 => scatter_fixed::<2>(bytes, rows, cursors, out),
                4 => scatter_fixed::<4>(bytes, rows, cursors, out),
                8 => scatter_fixed::<8>(bytes, rows, cursors, out),
                _ => self.scatter_any(rows, cursors, out),
            },
            Self::Sliced { .. } | Self::Prefixed { .. } => self.scatter_any(rows, cursors, out),
        }
    }

    fn scatter_any(&self, rows: Range<usize>, cursors: &mut [usize], out: &mut [u8]) {
        for (row, cursor) in rows.zip(cursors) {
            let (prefix, value) = self.value(row);
            let middle = *cursor + prefix.len();
            let end = middle + value.len();
            if !prefix.is_empty() {
                out[*cursor..middle].copy_from_slice(prefix);
            }
            out[middle..end].copy_from_slice(value);
            *cursor = end;
        }
    }
}

fn scatter_fixed<const WIDTH: usize>(
    bytes: &[u8],
    rows: Range<usize>,
    cursors: &mut [usize],
    out: &mut [u8],
) {
    let values = bytes[rows.start * WIDTH..rows.end * WIDTH].chunks_exact(WIDTH);
    for (value, cursor) in values.zip(cursors) {
        out[*cursor..*cursor + WIDTH].copy_from_slice(value);
        *cursor += WIDTH;
    }
}

/// Returns the first row that is null.
pub(crate) fn first_null(array: &ArrayRef) -> Option<usize> {
    let nulls = array
        .logical_nulls()
        .filter(|nulls| nulls.null_count() > 0)?;
    (0..array.len()).find(|row| nulls.is_null(*row))
}

/// Returns a string column as slices of its existing buffer.
pub(crate) fn string_slices(array: &ArrayRef) -> Option<EncodedColumn> {
    Some(match array.data_type() {
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            EncodedColumn::Sliced {
                bytes: values.values().clone(),
                offsets: Offsets::I32(values.offsets().clone()),
            }
        }
        DataType::LargeUtf8 => {
            let values = array.as_string::<i64>();
            EncodedColumn::Sliced {
                bytes: values.values().clone(),
                offsets: Offsets::I64(values.offsets().clone()),
            }
        }
        DataType::Utf8View => {
            let values = array.as_string_view();
            gathered((0..values.len()).map(|row| values.value(row).as_bytes()))
        }
        _ => return None,
    })
}

/// Returns a binary column as slices of its existing buffer.
pub(crate) fn bytes_slices(array: &ArrayRef) -> Option<EncodedColumn> {
    Some(match array.data_type() {
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            EncodedColumn::Sliced {
                bytes: values.values().clone(),
                offsets: Offsets::I32(values.offsets().clone()),
            }
        }
        DataType::LargeBinary => {
            let values = array.as_binary::<i64>();
            EncodedColumn::Sliced {
                bytes: values.values().clone(),
                offsets: Offsets::I64(values.offsets().clone()),
            }
        }
        DataType::BinaryView => {
            let values = array.as_binary_view();
            gathered((0..values.len()).map(|row| values.value(row)))
        }
        DataType::FixedSizeBinary(width) => {
            let values = array.as_fixed_size_binary();
            let width = usize::try_from(*width).ok()?;
            let bytes = if width == 0 {
                Buffer::from_vec(Vec::<u8>::new())
            } else {
                values.values().clone()
            };
            let offsets = (0..=values.len()).map(|row| row * width).collect();
            EncodedColumn::Sliced {
                bytes,
                offsets: Offsets::Owned(offsets),
            }
        }
        _ => return None,
    })
}

/// Concatenates copies of the values.
fn gathered<'a>(values: impl Iterator<Item = &'a [u8]>) -> EncodedColumn {
    let mut bytes = Vec::new();
    let mut offsets = vec![0];
    for value in values {
        bytes.extend_from_slice(value);
        offsets.push(bytes.len());
    }
    EncodedColumn::rendered(bytes, offsets)
}

/// Checks that all values are valid for their encoding.
pub(super) fn checked(
    encoded_column: EncodedColumn,
    array: &ArrayRef,
    encoding: &Encoding,
    limits: &Limits,
) -> Result<EncodedColumn, RowError> {
    for row in (0..array.len()).filter(|row| array.is_valid(*row)) {
        let (_, value) = encoded_column.value(row);
        check_new(encoding, value, limits).map_err(|error| RowError {
            row,
            reason: error.into(),
        })?;
    }
    Ok(encoded_column)
}

/// Checks a value that came from outside: readers must understand all of it.
fn check_new(encoding: &Encoding, value: &[u8], limits: &Limits) -> Result<(), MdsError> {
    match encoding {
        Encoding::Json => check_new_json(value, limits),
        _ => check_datum(encoding, value, limits),
    }
}
