//! Types of the same column in different files: when they are the same, and how one becomes the other.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, FixedSizeListArray, GenericListArray, MapArray,
    OffsetSizeTrait, StructArray,
};
use arrow::datatypes::{DataType, FieldRef, Fields};
use arrow::error::ArrowError;

/// The type that holds the values of both: equal but for the names of list items, nullability and the width
/// of offsets. Names are taken from the first.
pub(crate) fn merge(first: &DataType, second: &DataType) -> Option<DataType> {
    use DataType as T;
    if first == second {
        return Some(first.clone());
    }
    Some(match (first, second) {
        (T::Utf8, T::LargeUtf8) | (T::LargeUtf8, T::Utf8) => T::LargeUtf8,
        (T::Binary, T::LargeBinary) | (T::LargeBinary, T::Binary) => T::LargeBinary,
        (T::List(a), T::List(b)) => T::List(merge_fields(a, b)?),
        (T::LargeList(a), T::LargeList(b)) => T::LargeList(merge_fields(a, b)?),
        (T::FixedSizeList(a, n), T::FixedSizeList(b, m)) if n == m => {
            T::FixedSizeList(merge_fields(a, b)?, *n)
        }
        (T::Map(a, sorted), T::Map(b, _)) => T::Map(merge_fields(a, b)?, *sorted),
        (T::Struct(a), T::Struct(b)) if a.len() == b.len() => {
            let mut fields = Vec::with_capacity(a.len());
            for (a, b) in a.iter().zip(b) {
                if a.name() != b.name() {
                    return None;
                }
                fields.push(merge_fields(a, b)?);
            }
            T::Struct(Fields::from(fields))
        }
        _ => return None,
    })
}

/// The field of both, called as the first.
pub(crate) fn merge_fields(first: &FieldRef, second: &FieldRef) -> Option<FieldRef> {
    let data_type = merge(first.data_type(), second.data_type())?;
    let nullable = first.is_nullable() || second.is_nullable();
    if &data_type == first.data_type() && nullable == first.is_nullable() {
        return Some(Arc::clone(first));
    }
    Some(Arc::new(
        first
            .as_ref()
            .clone()
            .with_data_type(data_type)
            .with_nullable(nullable),
    ))
}

/// An array as the merged type.
///
/// # Errors
///
/// [`ArrowError`] when the types do not go together, or an offset does not fit.
pub(crate) fn conform(array: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    use DataType as T;
    if array.data_type() == target {
        return Ok(Arc::clone(array));
    }
    Ok(match (array.data_type(), target) {
        (T::List(_), T::List(item)) => Arc::new(conform_list::<i32>(array.as_list(), item)?),
        (T::LargeList(_), T::LargeList(item)) => {
            Arc::new(conform_list::<i64>(array.as_list(), item)?)
        }
        (T::FixedSizeList(_, _), T::FixedSizeList(item, size)) => {
            let list = array.as_fixed_size_list();
            let values = conform(list.values(), item.data_type())?;
            Arc::new(FixedSizeListArray::try_new(
                Arc::clone(item),
                *size,
                values,
                list.nulls().cloned(),
            )?)
        }
        (T::Map(_, _), T::Map(entry, sorted)) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            let entries = conform(&entries, entry.data_type())?;
            Arc::new(MapArray::try_new(
                Arc::clone(entry),
                map.offsets().clone(),
                entries.as_struct().clone(),
                map.nulls().cloned(),
                *sorted,
            )?)
        }
        (T::Struct(_), T::Struct(fields)) => {
            let from = array.as_struct();
            let columns = from
                .columns()
                .iter()
                .zip(fields)
                .map(|(column, field)| conform(column, field.data_type()))
                .collect::<Result<Vec<_>, _>>()?;
            Arc::new(StructArray::try_new_with_length(
                fields.clone(),
                columns,
                from.nulls().cloned(),
                from.len(),
            )?)
        }
        _ => arrow::compute::cast(array, target)?,
    })
}

fn conform_list<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    item: &FieldRef,
) -> Result<GenericListArray<O>, ArrowError> {
    let values = conform(list.values(), item.data_type())?;
    GenericListArray::try_new(
        Arc::clone(item),
        list.offsets().clone(),
        values,
        list.nulls().cloned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, ListArray, StringArray};
    use arrow::datatypes::{Field, Int32Type};

    fn list(name: &str, item: DataType, nullable: bool) -> DataType {
        DataType::List(Arc::new(Field::new(name, item, nullable)))
    }

    #[test]
    fn names_of_items_and_nullability_do_not_tell_types_apart() {
        let spark = list("element", DataType::Int32, true);
        let arrow = list("item", DataType::Int32, false);
        assert_eq!(
            merge(&arrow, &spark),
            Some(list("item", DataType::Int32, true))
        );
        assert_eq!(merge(&spark, &list("item", DataType::Int64, false)), None);
        assert_eq!(
            merge(&DataType::Utf8, &DataType::LargeUtf8),
            Some(DataType::LargeUtf8)
        );
        assert_eq!(merge(&DataType::Int32, &DataType::Int64), None);
        let a = DataType::Struct(Fields::from(vec![Field::new("x", arrow.clone(), false)]));
        let b = DataType::Struct(Fields::from(vec![Field::new("x", spark, false)]));
        let c = DataType::Struct(Fields::from(vec![Field::new("y", arrow, false)]));
        assert!(merge(&a, &b).is_some());
        assert_eq!(merge(&a, &c), None);
    }

    #[test]
    fn arrays_are_renamed_and_widened() {
        let array: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), Some(2)]),
            None,
        ]));
        let target = list("element", DataType::Int32, true);
        let renamed = conform(&array, &target).unwrap();
        assert_eq!(renamed.data_type(), &target);
        assert_eq!(
            renamed
                .as_list::<i32>()
                .value(0)
                .as_primitive::<Int32Type>(),
            &Int32Array::from(vec![1, 2])
        );
        assert!(renamed.is_null(1));
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let wide = conform(&text, &DataType::LargeUtf8).unwrap();
        assert_eq!(wide.data_type(), &DataType::LargeUtf8);
        assert!(wide.is_null(1));
    }
}
