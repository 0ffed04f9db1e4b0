//! The encoded values of one column of one batch, before they are scattered into samples.

use std::convert::Infallible;
use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use shardmill_core::Limits;
use shardmill_mds::{Encoding, check_datum, check_new_json};

use crate::error::RowError;

/// The start of each value in a sequence of concatenated values.
#[derive(Clone, Debug)]
pub enum Offsets {
    /// Offsets of 32 bits.
    I32(OffsetBuffer<i32>),
    /// Offsets of 64 bits.
    I64(OffsetBuffer<i64>),
    /// Every value has this length.
    Fixed(usize),
    /// Offsets in memory.
    Owned(Vec<usize>),
}

impl Offsets {
    /// Returns the bounds of value `row`. Arrow validates offsets when it creates an array: they are not negative, do
    /// not decrease, and end within the buffer.
    #[must_use]
    pub fn range(&self, row: usize) -> Range<usize> {
        match self {
            Self::I32(offsets) => {
                to_usize(i64::from(offsets[row]))..to_usize(i64::from(offsets[row + 1]))
            }
            Self::I64(offsets) => to_usize(offsets[row])..to_usize(offsets[row + 1]),
            Self::Fixed(len) => row * len..(row + 1) * len,
            Self::Owned(offsets) => offsets[row]..offsets[row + 1],
        }
    }

    /// Returns the bounds of the lists of a column, and their values. Returns `None` for other types.
    #[must_use]
    pub fn of_lists(array: &ArrayRef) -> Option<(Self, &ArrayRef)> {
        Some(match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                (Self::I32(list.offsets().clone()), list.values())
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                (Self::I64(list.offsets().clone()), list.values())
            }
            DataType::FixedSizeList(_, len) => {
                let len = usize::try_from(*len).unwrap_or(0);
                (Self::Fixed(len), array.as_fixed_size_list().values())
            }
            _ => return None,
        })
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

impl Prefixes {
    fn of(&self, row: usize) -> &[u8] {
        match self {
            Self::Same(bytes) => bytes,
            Self::Each { bytes, offsets } => &bytes[offsets[row]..offsets[row + 1]],
        }
    }
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
    /// Creates a column of values that are rendered into their own buffer.
    pub(crate) fn render(rows: usize, mut write: impl FnMut(usize, &mut Vec<u8>)) -> Self {
        let rendered = Self::try_render(rows, |row, out| {
            write(row, out);
            Ok::<(), Infallible>(())
        });
        rendered.unwrap_or_else(|never| match never {})
    }

    /// Renders every row into one buffer, and stops at the first error.
    pub(crate) fn try_render<E>(
        rows: usize,
        mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut bytes = Vec::with_capacity(rows * 8);
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        for row in 0..rows {
            write(row, &mut bytes)?;
            offsets.push(bytes.len());
        }
        Ok(Self::Sliced {
            bytes: Buffer::from_vec(bytes),
            offsets: Offsets::Owned(offsets),
        })
    }

    /// Returns a column of strings or bytes as slices of its existing buffer. Returns `None` for other types.
    pub(crate) fn slices(array: &ArrayRef) -> Option<Self> {
        // Strings become bytes without a copy.
        let array = match array.data_type() {
            DataType::Utf8 => &cast(array, &DataType::Binary).ok()?,
            DataType::LargeUtf8 => &cast(array, &DataType::LargeBinary).ok()?,
            DataType::Utf8View => &cast(array, &DataType::BinaryView).ok()?,
            _ => array,
        };
        let (bytes, offsets) = match array.data_type() {
            DataType::Binary => {
                let values = array.as_binary::<i32>();
                (values.values(), Offsets::I32(values.offsets().clone()))
            }
            DataType::LargeBinary => {
                let values = array.as_binary::<i64>();
                (values.values(), Offsets::I64(values.offsets().clone()))
            }
            DataType::BinaryView => {
                let values = array.as_binary_view();
                return Some(Self::render(values.len(), |row, out| {
                    out.extend_from_slice(values.value(row));
                }));
            }
            DataType::FixedSizeBinary(width) => {
                let width = usize::try_from(*width).ok()?;
                let values = array.as_fixed_size_binary();
                (values.values(), Offsets::Fixed(width))
            }
            _ => return None,
        };
        Some(Self::Sliced {
            bytes: bytes.clone(),
            offsets,
        })
    }

    /// Returns [`slices`](Self::slices) of a string column.
    pub(crate) fn texts(array: &ArrayRef) -> Option<Self> {
        array.data_type().is_string().then(|| Self::slices(array))?
    }

    /// Appends the bytes of value `row`.
    pub(crate) fn append_to(&self, row: usize, out: &mut Vec<u8>) {
        let (prefix, value) = self.value(row);
        out.extend_from_slice(prefix);
        out.extend_from_slice(value);
    }

    /// Returns the length of value `row` in bytes.
    pub(crate) fn len(&self, row: usize) -> usize {
        match self {
            Self::Fixed { width, .. } => *width,
            Self::Sliced { offsets, .. } => offsets.range(row).len(),
            Self::Prefixed {
                prefixes, ranges, ..
            } => prefixes.of(row).len() + ranges[row].len(),
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
            } => (prefixes.of(row), &bytes[ranges[row].clone()]),
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

/// Checks that all values are valid for their encoding.
pub(super) fn checked(
    encoded_column: EncodedColumn,
    array: &ArrayRef,
    encoding: &Encoding,
    limits: &Limits,
) -> Result<EncodedColumn, RowError> {
    for row in (0..array.len()).filter(|row| array.is_valid(*row)) {
        let (_, value) = encoded_column.value(row);
        // The values come from outside, and readers must understand all of a JSON text.
        let checked = match encoding {
            Encoding::Json => check_new_json(value, limits),
            _ => check_datum(encoding, value, limits),
        };
        checked.map_err(RowError::at(row))?;
    }
    Ok(encoded_column)
}
