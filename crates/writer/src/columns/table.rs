//! Columns of tables: the Arrow type of each, and the conversion of values to it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, FixedSizeListArray, Int64Array, ListArray, make_array,
};
use arrow::buffer::{MutableBuffer, OffsetBuffer};
use arrow::compute::{cast, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use arrow::error::ArrowError;
use shardmill_core::Limits;
use shardmill_core::catch_panic::catch;
use shardmill_mds::{DType, Encoding, NdArray, Value, decode};

use super::cell_text::shown;
use super::encoded_column::{EncodedColumn, Offsets};
use super::list::leaf_type;
use super::number::number_type;
use super::types::{
    ENCODED_KEY, ENCODING_KEY, EXPRESSION_KEY, encoded_as, is_integer_text, with_children,
};
use crate::error::{RowError, ValueReason};
use crate::fill::STRICT;

/// The name of the values of a list, as the Parquet specification has it.
const ELEMENT: &str = "element";

/// A column of a table.
#[derive(Clone, Debug)]
pub(super) struct TableColumn {
    /// The column as the file declares it.
    pub(super) field: FieldRef,
    /// The type in which the values are handed to the encoder: without a dictionary, which differs between batches.
    stored: DataType,
    /// The encoding of the values, if they are arrays of MDS that are decoded.
    arrays: Option<Encoding>,
}

/// Returns the type of the column of a table for a column: its own, as [`table_type`] stores it. Numbers, text
/// and arrays of one shape that come from MDS get the type of their values. Arrays whose shape differs, images and
/// pickles stay bytes.
pub(super) fn default_type(field: &Field) -> DataType {
    if is_integer_text(field) {
        return DataType::Int64;
    }
    if let Some(Encoding::NdArray {
        dtype: Some(dtype),
        shape: Some(shape),
    }) = encoded_as(field)
        && let Some(fixed) = fixed_lists(dtype, &shape)
    {
        return fixed;
    }
    table_type(field.data_type())
}

/// Returns the type of nested lists of numbers: of the lengths in `shape`, the outermost first.
fn fixed_lists(dtype: DType, shape: &[u64]) -> Option<DataType> {
    let mut data_type = number_type(dtype);
    for len in shape.iter().rev() {
        let len = i32::try_from(*len).ok().filter(|len| *len > 0)?;
        data_type = DataType::FixedSizeList(element(data_type), len);
    }
    Some(data_type)
}

/// Returns the type of lists of numbers that are nested `dimensions` times.
#[must_use]
pub fn number_lists(dtype: DType, dimensions: usize) -> DataType {
    (0..dimensions).fold(number_type(dtype), |data_type, _| {
        DataType::List(element(data_type))
    })
}

fn element(data_type: DataType) -> FieldRef {
    Arc::new(Field::new(ELEMENT, data_type, false))
}

/// Returns the type in which a table stores a column: views become plain types at every level, and dates and times get
/// units that Parquet has.
fn table_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Date64 => DataType::Date32,
        DataType::Time32(TimeUnit::Second) => DataType::Time32(TimeUnit::Millisecond),
        DataType::Timestamp(TimeUnit::Second, zone) => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        DataType::Dictionary(keys, values) => {
            DataType::Dictionary(keys.clone(), Box::new(table_type(values)))
        }
        other => with_children(other, table_type),
    }
}

/// Returns whether the values of a column can become a type.
pub(super) fn is_storable(field: &Field, target: &DataType) -> bool {
    let own = field.data_type();
    // Another part of the type must not change.
    let is_same = table_type(own) == *target;
    let is_text = |data_type: &DataType| data_type.is_string() || data_type.is_binary();
    match encoded_as(field) {
        _ if is_same => true,
        Some(Encoding::NdArray { .. }) => target.is_nested(),
        // Bytes of other encodings are no text or number.
        Some(_) if own.is_binary() => false,
        _ => match target {
            DataType::Binary | DataType::Utf8 => is_text(own) || own.is_primitive(),
            DataType::Int64 => is_text(own) || own.is_integer() || *own == DataType::Boolean,
            DataType::Float64 => own.is_string() || own.is_numeric(),
            _ => {
                let ((leaf, levels), (to, to_levels)) = (leaf_type(own), leaf_type(target));
                levels > 0 && levels == to_levels && leaf.is_numeric() && to.is_numeric()
            }
        },
    }
}

impl TableColumn {
    /// Compiles the conversion of a column to a type.
    pub(super) fn new(field: &Field, target: &DataType) -> Self {
        let mut metadata: HashMap<String, String> = field.metadata().clone();
        metadata.remove(EXPRESSION_KEY);
        let encoding = encoded_as(field);
        let is_changed = table_type(field.data_type()) != *target;
        let arrays = encoding.filter(|encoding| {
            is_changed && matches!(encoding, Encoding::NdArray { .. }) && target.is_nested()
        });
        if is_changed {
            metadata.remove(ENCODED_KEY);
            // Of a text or a number, the type says enough.
            if arrays.is_none() && !is_integer_text(field) {
                metadata.remove(ENCODING_KEY);
            }
        }
        let declared = Field::new(field.name(), target.clone(), field.is_nullable());
        Self {
            field: Arc::new(declared.with_metadata(metadata)),
            stored: match target {
                DataType::Dictionary(_, values) => values.as_ref().clone(),
                other => other.clone(),
            },
            arrays,
        }
    }

    /// Returns the column as batches hold it; see [`convert`](Self::convert).
    pub(super) fn stored_field(&self) -> Field {
        self.field
            .as_ref()
            .clone()
            .with_data_type(self.stored.clone())
    }

    /// Converts the values of a batch.
    pub(super) fn convert(&self, array: &ArrayRef, limits: &Limits) -> Result<ArrayRef, RowError> {
        if let Some(encoding) = &self.arrays {
            return self.decode(array, encoding, limits);
        }
        if *array.data_type() == self.stored {
            return Ok(ArrayRef::clone(array));
        }
        if self.stored == DataType::Int64
            && let Some(numbers) = self.parse_integers(array)?
        {
            return Ok(numbers);
        }
        if let Ok(converted) = exactly(array, &self.stored) {
            return Ok(converted);
        }
        let Some((row, value)) = first_misfit(array, &self.stored) else {
            // Only what is below nulls does not fit.
            let converted = cast(array, &self.stored);
            return converted.map_err(|_| RowError::unfit(array.data_type(), &self.stored));
        };
        let value = match value.data_type() {
            other if other.is_binary() => "a value that is not UTF-8".to_owned(),
            _ => shown(&value),
        };
        Err(RowError::at(row)(ValueReason::Range {
            value,
            encoding: self.stored.to_string(),
        }))
    }

    /// Parses texts, or the bytes of texts, as integers. Whitespace around them is ignored, as in Python.
    fn parse_integers(&self, array: &ArrayRef) -> Result<Option<ArrayRef>, RowError> {
        let text = match array.data_type() {
            other if other.is_binary() => DataType::Binary,
            other if other.is_string() => DataType::Utf8,
            _ => return Ok(None),
        };
        let unfit = || RowError::unfit(array.data_type(), &self.stored);
        let texts = cast(array, &text).map_err(|_| unfit())?;
        let bytes = cast(&texts, &DataType::Binary).map_err(|_| unfit())?;
        let bytes = bytes.as_binary::<i32>();
        let parse = |text: &[u8]| std::str::from_utf8(text).ok()?.trim().parse::<i64>().ok();
        let numbers = bytes.iter().map(|text| text.and_then(parse));
        let numbers: ArrayRef = Arc::new(numbers.collect::<Int64Array>());
        self.check(array, &numbers, |row| {
            let text = bytes.value(row);
            let text: String = String::from_utf8_lossy(text).chars().take(40).collect();
            format!("{text:?}")
        })?;
        Ok(Some(numbers))
    }

    /// Returns an error for the first value that could not be converted. `show` describes a value.
    fn check(
        &self,
        before: &ArrayRef,
        after: &ArrayRef,
        show: impl Fn(usize) -> String,
    ) -> Result<(), RowError> {
        if before.null_count() == after.null_count() {
            return Ok(());
        }
        let is_lost = |row: &usize| after.is_null(*row) && !before.is_null(*row);
        match (0..after.len()).find(is_lost) {
            None => Ok(()),
            Some(row) => Err(RowError::at(row)(ValueReason::Range {
                value: show(row),
                encoding: self.stored.to_string(),
            })),
        }
    }

    /// Decodes arrays of MDS to nested lists.
    fn decode(
        &self,
        array: &ArrayRef,
        encoding: &Encoding,
        limits: &Limits,
    ) -> Result<ArrayRef, RowError> {
        let unfit = || RowError::unfit(array.data_type(), &self.stored);
        let bytes = cast(array, &DataType::Binary).map_err(|_| unfit())?;
        let bytes = bytes.as_binary_opt::<i32>().ok_or_else(unfit)?;
        let (leaf, dimensions) = leaf_type(&self.stored);
        let (leaf, dtype) = (leaf.clone(), super::number::dtype_of(leaf));
        let mut numbers = MutableBuffer::new(bytes.value_data().len());
        // For each level of lists, the length of every list.
        let mut lengths: Vec<Vec<usize>> = vec![Vec::new(); dimensions];
        for row in 0..bytes.len() {
            if bytes.is_null(row) {
                return Err(RowError::at(row)(ValueReason::NullInside));
            }
            let value = decode(encoding, bytes.value(row), limits).map_err(RowError::at(row))?;
            let Value::NdArray(NdArray {
                dtype: own,
                shape,
                data,
            }) = value
            else {
                return Err(unfit());
            };
            if Some(own) != dtype || shape.len() != dimensions {
                return Err(RowError::at(row)(ValueReason::Array {
                    found: described(own.name(), shape.len()),
                    expected: described(&leaf.to_string().to_lowercase(), dimensions),
                }));
            }
            let mut lists = 1_usize;
            for (len, level) in shape.iter().zip(&mut lengths) {
                let len = usize::try_from(*len).unwrap_or(usize::MAX);
                level.extend(std::iter::repeat_n(len, lists));
                lists = lists.saturating_mul(len);
            }
            numbers.extend_from_slice(data);
        }
        let width = leaf.primitive_width().unwrap_or(1);
        let data = ArrayData::builder(leaf).len(numbers.len() / width);
        let data = data.add_buffer(numbers.into()).build();
        let mut values = make_array(data.map_err(|_| unfit())?);
        let mut types = Vec::new();
        let mut at = &self.stored;
        while let DataType::List(field) | DataType::FixedSizeList(field, _) = at {
            types.push(at);
            at = field.data_type();
        }
        for (data_type, lengths) in types.into_iter().zip(lengths).rev() {
            values = lists_of(data_type, lengths, values).ok_or_else(unfit)?;
        }
        Ok(values)
    }
}

/// Converts an array to a type that has all of its values.
fn exactly(array: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    // The text of a time outside the calendar makes the cast panic.
    let converted = catch(|| cast_with_options(array, target, &STRICT));
    let converted = converted.map_err(ArrowError::CastError)??;
    // A cast to days drops the time of day.
    if has_date64(array.data_type()) {
        let back = cast_with_options(&converted, array.data_type(), &STRICT)?;
        if back.to_data() != array.to_data() {
            let reason = "a date with a time of day".to_owned();
            return Err(ArrowError::CastError(reason));
        }
    }
    Ok(converted)
}

fn has_date64(data_type: &DataType) -> bool {
    match data_type {
        DataType::Date64 => true,
        DataType::Dictionary(_, values) => has_date64(values),
        DataType::Struct(fields) => fields.iter().any(|field| has_date64(field.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => has_date64(item.data_type()),
        _ => false,
    }
}

/// Returns the first row that [`exactly`] refuses, and its value; the value inside of it if it is a list.
fn first_misfit(array: &ArrayRef, target: &DataType) -> Option<(usize, ArrayRef)> {
    let mut rows = (0..array.len()).filter(|row| array.is_valid(*row));
    let row = rows.find(|row| exactly(&array.slice(*row, 1), target).is_err())?;
    let value = array.slice(row, 1);
    let inside = match (Offsets::of_lists(&value), target) {
        (
            Some((bounds, values)),
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
        ) => {
            let range = bounds.range(0);
            first_misfit(&values.slice(range.start, range.len()), item.data_type())
        }
        _ => None,
    };
    Some((row, inside.map_or(value, |(_, inner)| inner)))
}

fn described(dtype: &str, dimensions: usize) -> String {
    format!("{dimensions}-dimensional of {dtype}")
}

/// Combines values into lists of a type. Returns `None` if there are too many for 32-bit offsets.
fn lists_of(data_type: &DataType, lengths: Vec<usize>, values: ArrayRef) -> Option<ArrayRef> {
    Some(match data_type {
        DataType::List(field) => {
            let total = lengths
                .iter()
                .try_fold(0_usize, |sum, len| sum.checked_add(*len))?;
            i32::try_from(total).ok()?;
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, None).ok()?)
        }
        DataType::FixedSizeList(field, len) => {
            Arc::new(FixedSizeListArray::try_new(Arc::clone(field), *len, values, None).ok()?)
        }
        _ => return None,
    })
}

/// The size of the offset of a text, bytes or list.
const OFFSET_BYTES: usize = 4;

/// Adds the size of every value to the size of its row: the bytes of numbers and texts, and an offset for each text and
/// list. The size of a value does not depend on the other values of its batch.
pub(crate) fn add_sizes(array: &ArrayRef, sizes: &mut [usize]) {
    let add = |sizes: &mut [usize], size: &dyn Fn(usize) -> usize| {
        for (row, total) in sizes.iter_mut().enumerate() {
            *total = total.saturating_add(size(row));
        }
    };
    match array.data_type() {
        DataType::Null => {}
        DataType::Boolean => add(sizes, &|_| 1),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
            if let Some(values) = EncodedColumn::slices(array) {
                add(sizes, &|row| OFFSET_BYTES + values.len(row));
            }
        }
        DataType::FixedSizeBinary(width) => {
            let width = usize::try_from(*width).unwrap_or(0);
            add(sizes, &|_| width);
        }
        DataType::Struct(_) => {
            for column in array.as_struct().columns() {
                add_sizes(column, sizes);
            }
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            let offsets = Offsets::I32(map.offsets().clone());
            add_list_sizes(&offsets, &entries, sizes);
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let mut of_values = vec![0; dictionary.values().len()];
            add_sizes(dictionary.values(), &mut of_values);
            let keys = dictionary.normalized_keys();
            add(sizes, &|row| {
                let key = keys.get(row).filter(|_| !array.is_null(row));
                key.and_then(|key| of_values.get(*key))
                    .copied()
                    .unwrap_or(0)
            });
        }
        other => match (Offsets::of_lists(array), other.primitive_width()) {
            (Some((offsets, values)), _) => add_list_sizes(&offsets, values, sizes),
            (None, Some(width)) => add(sizes, &|_| width),
            (None, None) => {
                let size = array.get_array_memory_size() / array.len().max(1);
                add(sizes, &|_| size);
            }
        },
    }
}

fn add_list_sizes(offsets: &Offsets, values: &ArrayRef, sizes: &mut [usize]) {
    if let Some(width) = values.data_type().primitive_width() {
        for (row, total) in sizes.iter_mut().enumerate() {
            *total = total.saturating_add(OFFSET_BYTES + offsets.range(row).len() * width);
        }
        return;
    }
    let mut inner = vec![0; values.len()];
    add_sizes(values, &mut inner);
    for (row, total) in sizes.iter_mut().enumerate() {
        let values = inner.get(offsets.range(row)).unwrap_or_default().iter();
        *total = values.fold(*total + OFFSET_BYTES, |sum, size| sum.saturating_add(*size));
    }
}
