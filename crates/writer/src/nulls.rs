//! Nulls before rows are encoded: they are filled, marked in a column of their own, or their rows are dropped.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeListArray, LargeListArray, ListArray,
    RecordBatch, Scalar, UInt8Array, UInt64Array, make_array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, filter_record_batch, kernels::zip::zip, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use shardmill_mds::Encoding;

use crate::columns::{FieldEncoding, Offsets, Target, leaf_type};
use crate::fill::parse_value;

/// The policy for the nulls of one column.
#[derive(Clone, Debug)]
pub enum NullPolicy {
    /// Nulls stay unchanged. The encoder rejects them or can store them.
    Leave,
    /// Nulls become `value`, an array of one element. With `mask`, an additional column marks their rows.
    Fill {
        /// The value, an array of one element.
        value: ArrayRef,
        /// Whether a column marks the rows.
        mask: bool,
    },
    /// Rows with a null are dropped.
    Drop,
}

/// The policies of all columns of a source.
#[derive(Clone, Debug)]
pub struct NullPlan {
    policies: Vec<NullPolicy>,
    schema: SchemaRef,
    idle: bool,
}

/// The suffix of a mask column, which marks the nulls of another column.
pub const MASK_SUFFIX: &str = "__is_null";

impl NullPlan {
    /// Creates a plan for batches of `schema`. In the resulting batches, the mask columns follow all others.
    #[must_use]
    pub fn new(schema: &SchemaRef, policies: Vec<NullPolicy>) -> Self {
        let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
        for (field, policy) in schema.fields().iter().zip(&policies) {
            if let NullPolicy::Fill { mask: true, .. } = policy {
                let name = format!("{}{MASK_SUFFIX}", field.name());
                fields.push(Arc::new(Field::new(name, DataType::UInt8, false)));
            }
        }
        let idle = policies
            .iter()
            .all(|policy| matches!(policy, NullPolicy::Leave));
        Self {
            policies,
            schema: Arc::new(Schema::new(fields)),
            idle,
        }
    }

    /// Returns the schema of the resulting batches. Dictionaries may have been replaced by their values.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns whether the nulls of a column stay unchanged.
    #[must_use]
    pub fn leaves(&self, column: usize) -> bool {
        matches!(self.policies.get(column), Some(NullPolicy::Leave))
    }

    /// Returns whether rows are dropped.
    #[must_use]
    pub fn drops(&self) -> bool {
        self.policies
            .iter()
            .any(|policy| matches!(policy, NullPolicy::Drop))
    }

    /// Applies the plan. If rows were dropped, the second value contains the remaining rows.
    ///
    /// # Errors
    ///
    /// Returns the error of Arrow if the batch does not have the schema of the plan.
    pub fn apply(
        &self,
        batch: RecordBatch,
    ) -> Result<(RecordBatch, Option<Vec<usize>>), ArrowError> {
        if self.idle {
            return Ok((batch, None));
        }
        let (batch, kept) = self.drop_rows(batch)?;
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        let mut masks: Vec<ArrayRef> = Vec::new();
        let mut fields: Vec<Arc<Field>> = Vec::with_capacity(self.schema.fields().len());
        let known = batch.columns().iter().zip(&self.policies);
        for ((column, policy), field) in known.zip(self.schema.fields()) {
            let nulls = column
                .logical_nulls()
                .filter(|nulls| nulls.null_count() > 0);
            let NullPolicy::Fill { value, mask } = policy else {
                columns.push(ArrayRef::clone(column));
                fields.push(Arc::clone(field));
                continue;
            };
            let mut column = match column.data_type() {
                DataType::Dictionary(_, values) => cast(column, values)?,
                _ => ArrayRef::clone(column),
            };
            if *mask {
                let mut has_inner = Vec::new();
                if let Some(inner) = fill_inside(&column)? {
                    (column, has_inner) = inner;
                }
                masks.push(mask_column(nulls.as_ref(), &has_inner, column.len()));
            }
            let filled = match &nulls {
                None => column,
                Some(nulls) => {
                    let is_null = BooleanArray::new(!nulls.inner(), None);
                    zip(&is_null, &Scalar::new(ArrayRef::clone(value)), &column)?
                }
            };
            let data_type = filled.data_type().clone();
            fields.push(Arc::new(field.as_ref().clone().with_data_type(data_type)));
            columns.push(filled);
        }
        columns.extend(masks);
        let masks = self.schema.fields().iter().skip(batch.num_columns());
        fields.extend(masks.cloned());
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        Ok((batch, kept))
    }

    fn drop_rows(
        &self,
        batch: RecordBatch,
    ) -> Result<(RecordBatch, Option<Vec<usize>>), ArrowError> {
        let mut present: Option<NullBuffer> = None;
        for (column, policy) in batch.columns().iter().zip(&self.policies) {
            if let NullPolicy::Drop = policy {
                present = NullBuffer::union(present.as_ref(), column.logical_nulls().as_ref());
            }
        }
        match present {
            Some(present) if present.null_count() > 0 => {
                let keep = BooleanArray::new(present.inner().clone(), None);
                let kept = (0..batch.num_rows())
                    .filter(|row| present.is_valid(*row))
                    .collect();
                Ok((filter_record_batch(&batch, &keep)?, Some(kept)))
            }
            _ => Ok((batch, None)),
        }
    }
}

/// Returns the mask of a column: 1 for a null, [`NULL_INSIDE`] for a list with a null inside, and 0 for other values.
fn mask_column(nulls: Option<&NullBuffer>, has_inner: &[bool], rows: usize) -> ArrayRef {
    let mask = (0..rows).map(|row| {
        let is_null = nulls.is_some_and(|nulls| nulls.is_null(row));
        match has_inner.get(row) {
            _ if is_null => 1,
            Some(true) => NULL_INSIDE,
            _ => 0,
        }
    });
    Arc::new(UInt8Array::from_iter_values(mask))
}

/// The mark of a list of numbers whose inner nulls became 0.
const NULL_INSIDE: u8 = 2;

/// Replaces the nulls among the numbers of lists by 0, and tells which lists had any. Returns `None` if there are none,
/// and for other types.
fn fill_inside(array: &ArrayRef) -> Result<Option<(ArrayRef, Vec<bool>)>, ArrowError> {
    let Some((bounds, values)) = Offsets::of_lists(array) else {
        return Ok(None);
    };
    let (filled, has_null) = match (values.nulls(), zero(values.data_type())) {
        (Some(nulls), Some(zero)) if values.data_type().is_numeric() && nulls.null_count() > 0 => {
            let is_null = BooleanArray::new(!nulls.inner(), None);
            let filled = zip(&is_null, &Scalar::new(zero), values)?;
            (filled, nulls.iter().map(|is_valid| !is_valid).collect())
        }
        _ => match fill_inside(values)? {
            Some(filled) => filled,
            None => return Ok(None),
        },
    };
    let marks = (0..array.len()).map(|row| has_null[bounds.range(row)].contains(&true));
    let marks = marks.collect();
    let lists = array.to_data().into_builder();
    let lists = lists.child_data(vec![filled.to_data()]).build()?;
    Ok(Some((make_array(lists), marks)))
}

/// Returns one zero value of a type: 0, false, empty text, no bytes, an array of zeros. Returns `None` for types
/// without one.
fn zero(data_type: &DataType) -> Option<ArrayRef> {
    if let DataType::FixedSizeList(field, len) = data_type {
        let element = zero(field.data_type())?;
        let element = Scalar::new(element);
        let rows = usize::try_from(*len).ok()?;
        let nulls = new_null_array(field.data_type(), rows);
        let values = zip(&BooleanArray::from(vec![true; rows]), &element, &nulls).ok()?;
        return Some(Arc::new(
            FixedSizeListArray::try_new(Arc::clone(field), *len, values, None).ok()?,
        ));
    }
    match data_type {
        DataType::Dictionary(_, values) => zero(values),
        DataType::Interval(_) => None,
        // An empty list is valid in a NumPy file but not in an MDS array; see `zeros`.
        DataType::Boolean | DataType::List(_) | DataType::LargeList(_) => without_null(data_type),
        other if other.is_numeric() || other.is_temporal() => without_null(other),
        other if other.is_string() || other.is_binary() => without_null(other),
        _ => None,
    }
}

/// Returns one value like a null, but valid. Arrow stores a null as the zero of its type, or as an empty value.
fn without_null(data_type: &DataType) -> Option<ArrayRef> {
    let null = new_null_array(data_type, 1).to_data();
    let data = null.into_builder().nulls(None).build().ok()?;
    Some(make_array(data))
}

/// The maximum number of elements of an array that replaces a null.
const MAX_ZEROS: usize = 1 << 24;

/// Returns one list of zeros that an array encoding can store: of shape `dims`, or with one number if `dims` is empty.
/// Returns `None` for types that are not lists of numbers.
fn zeros(data_type: &DataType, dims: &[u64]) -> Option<ArrayRef> {
    let (item, size) = match data_type {
        DataType::List(item) | DataType::LargeList(item) => (item, None),
        DataType::FixedSizeList(item, size) => (item, Some(*size)),
        _ => return zero(data_type),
    };
    let is_last = leaf_type(item.data_type()).1 == 0;
    let (len, rest) = match (size, dims) {
        (Some(size), _) => (u64::try_from(size).ok()?, dims.get(1..).unwrap_or_default()),
        (None, []) => (1, dims),
        // A flat list contains all numbers of the shape.
        (None, all) if is_last => (all.iter().try_fold(1_u64, |a, b| a.checked_mul(*b))?, dims),
        (None, [first, rest @ ..]) => (*first, rest),
    };
    let len = usize::try_from(len).ok().filter(|len| *len <= MAX_ZEROS)?;
    let one = zeros(item.data_type(), rest)?;
    if one.len().checked_mul(len)? > MAX_ZEROS {
        return None;
    }
    let indices = UInt64Array::from(vec![0_u64; len]);
    let values = take(&one, &indices, None).ok()?;
    let item = Arc::clone(item);
    Some(match data_type {
        DataType::List(_) => {
            let offsets = OffsetBuffer::from_lengths([len]);
            Arc::new(ListArray::try_new(item, offsets, values, None).ok()?)
        }
        DataType::LargeList(_) => {
            let offsets = OffsetBuffer::from_lengths([len]);
            Arc::new(LargeListArray::try_new(item, offsets, values, None).ok()?)
        }
        _ => Arc::new(FixedSizeListArray::try_new(item, size?, values, None).ok()?),
    })
}

/// Returns one binary value of `bytes` zero bytes.
fn zero_bytes(data_type: &DataType, bytes: u64) -> Option<ArrayRef> {
    let bytes = usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= MAX_ZEROS)?;
    let zeros: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&vec![0; bytes]]));
    cast(&zeros, data_type).ok()
}

/// Returns the value that replaces a masked null: the zero of the type in this encoding. Returns `None` if there is
/// none. For example, an empty value is not an image.
#[must_use]
pub fn masked_value(field: &Field, target: &Target) -> Option<ArrayRef> {
    let data_type = field.data_type();
    match target {
        Target::Mds(encoding @ Encoding::NdArray { shape, .. }) => {
            let is_fixed = matches!(data_type, DataType::FixedSizeBinary(_));
            let is_bytes = data_type.is_binary() && !is_fixed;
            match encoding.fixed_size().filter(|_| is_bytes) {
                Some(bytes) => zero_bytes(data_type, bytes),
                // An array needs at least one number.
                None => zeros(data_type, shape.as_deref().unwrap_or_default()),
            }
        }
        Target::Mds(
            Encoding::Image(_) | Encoding::JpegArray { .. } | Encoding::List(_) | Encoding::Pkl,
        ) => None,
        Target::Mds(Encoding::StrInt | Encoding::StrFloat | Encoding::StrDecimal)
        | Target::Field(FieldEncoding::Int)
            if data_type.is_string() =>
        {
            parse_value("0", data_type)
        }
        _ => zero(data_type),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray as _, Int32Array, StringArray};
    use arrow::datatypes::{Int32Type, TimeUnit, UInt8Type};

    fn batch() -> RecordBatch {
        RecordBatch::try_from_iter([
            (
                "a",
                Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])) as ArrayRef,
            ),
            (
                "b",
                Arc::new(StringArray::from(vec![Some("x"), Some("y"), None])) as ArrayRef,
            ),
        ])
        .unwrap()
    }

    #[test]
    fn fill_with_mask_adds_an_is_null_column() {
        let batch = batch();
        let fill = NullPolicy::Fill {
            value: zero(&DataType::Int32).unwrap(),
            mask: true,
        };
        let plan = NullPlan::new(&batch.schema(), vec![fill, NullPolicy::Leave]);
        let (filled, kept) = plan.apply(batch).unwrap();
        assert_eq!(kept, None);
        assert_eq!(
            filled.column(0).as_primitive::<Int32Type>().values(),
            &[1, 0, 3]
        );
        assert_eq!(
            filled
                .column_by_name("a__is_null")
                .unwrap()
                .as_primitive::<UInt8Type>()
                .values(),
            &[0, 1, 0]
        );
        assert_eq!(filled.column(1).null_count(), 1);
    }

    #[test]
    fn nulls_inside_lists_become_zeros_and_are_masked() {
        let lists = [
            Some(vec![Some(1), None]),
            None,
            Some(vec![Some(2)]),
            Some(vec![None]),
        ];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
        let data_type = lists.data_type().clone();
        let fill = NullPolicy::Fill {
            value: zeros(&data_type, &[]).unwrap(),
            mask: true,
        };
        let column = Arc::new(lists) as ArrayRef;
        // A batch may be a slice of a longer one.
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        for (from, expected) in [
            (0, vec![vec![1, 0], vec![0], vec![2], vec![0]]),
            (2, vec![vec![2], vec![0]]),
        ] {
            let plan = NullPlan::new(&batch.schema(), vec![fill.clone()]);
            let sliced = batch.slice(from, batch.num_rows() - from);
            let (filled, _) = plan.apply(sliced).unwrap();
            let lists = filled.column(0).as_list::<i32>();
            let found = lists.iter().map(|list| {
                let list = list.unwrap();
                assert_eq!(list.null_count(), 0);
                list.as_primitive::<Int32Type>().values().to_vec()
            });
            assert_eq!(found.collect::<Vec<_>>(), expected);
            let marks = filled.column(1).as_primitive::<UInt8Type>();
            assert_eq!(marks.values(), &[2, 1, 0, 2][from..]);
        }
        // Lists of fixed size, and nested ones.
        let inner = Int32Array::from(vec![Some(1), None, Some(3), Some(4)]);
        let field = Arc::new(Field::new("item", DataType::Int32, true));
        let pairs = FixedSizeListArray::try_new(field, 2, Arc::new(inner), None).unwrap();
        let field = Arc::new(Field::new("item", pairs.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([1, 1]);
        let nested = ListArray::try_new(field, offsets, Arc::new(pairs), None).unwrap();
        let (filled, marks) = fill_inside(&(Arc::new(nested) as ArrayRef))
            .unwrap()
            .unwrap();
        assert_eq!(marks, [true, false]);
        let pairs = filled.as_list::<i32>().values().as_fixed_size_list();
        assert_eq!(
            pairs.values().as_primitive::<Int32Type>().values(),
            &[1, 0, 3, 4]
        );
        let texts: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>]));
        assert!(fill_inside(&texts).unwrap().is_none());
    }

    #[test]
    fn drop_returns_the_kept_rows() {
        let batch = batch();
        let plan = NullPlan::new(&batch.schema(), vec![NullPolicy::Drop, NullPolicy::Drop]);
        let (left, kept) = plan.apply(batch).unwrap();
        assert_eq!((left.num_rows(), kept), (1, Some(vec![0])));
    }

    #[test]
    fn zero_value_exists_for_every_supported_type() {
        for data_type in [
            DataType::Int8,
            DataType::UInt64,
            DataType::Float16,
            DataType::Float64,
            DataType::Boolean,
            DataType::Utf8View,
            DataType::BinaryView,
            DataType::LargeBinary,
            DataType::Date32,
            DataType::Time64(TimeUnit::Nanosecond),
            DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
            DataType::Decimal128(10, 2),
            DataType::Duration(TimeUnit::Millisecond),
            DataType::FixedSizeBinary(3),
            DataType::new_fixed_size_list(DataType::Float32, 4, true),
            DataType::new_list(DataType::Int32, true),
        ] {
            let value = zero(&data_type).unwrap_or_else(|| panic!("{data_type}"));
            assert_eq!((value.len(), value.null_count()), (1, 0), "{data_type}");
            assert_eq!(value.data_type(), &data_type);
        }
        assert!(zero(&DataType::Null).is_none());
    }

    #[test]
    fn zero_arrays_have_the_requested_shape() {
        let list = |item| DataType::new_list(item, true);
        let flat = list(DataType::Int32);
        let nested = list(list(DataType::Int32));
        let fixed = list(DataType::new_fixed_size_list(DataType::Int32, 3, true));
        let count = |data_type: &DataType, dims: &[u64]| {
            let mut at = zeros(data_type, dims).unwrap();
            assert_eq!((at.len(), at.null_count()), (1, 0));
            assert_eq!(at.data_type(), data_type);
            loop {
                at = match at.data_type() {
                    DataType::List(_) => ArrayRef::clone(at.as_list::<i32>().values()),
                    DataType::FixedSizeList(..) => {
                        ArrayRef::clone(at.as_fixed_size_list().values())
                    }
                    _ => break,
                };
            }
            assert!(
                at.as_primitive::<Int32Type>()
                    .values()
                    .iter()
                    .all(|n| *n == 0)
            );
            at.len()
        };
        assert_eq!(count(&flat, &[]), 1);
        assert_eq!(count(&flat, &[2, 3]), 6);
        assert_eq!(count(&nested, &[]), 1);
        assert_eq!(count(&nested, &[2, 3]), 6);
        assert_eq!(count(&fixed, &[2, 3]), 6);
        assert!(zeros(&flat, &[1 << 40]).is_none());
        assert!(zeros(&flat, &[1 << 40, 1 << 40]).is_none());
        let bytes = zero_bytes(&DataType::LargeBinary, 4).unwrap();
        assert_eq!(bytes.as_binary::<i64>().value(0), [0; 4]);
    }
}
