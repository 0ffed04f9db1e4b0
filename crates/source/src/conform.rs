//! Converts columns of a file to the types that they have in the table.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, FixedSizeListArray, GenericListArray, MapArray,
    OffsetSizeTrait, StructArray, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef};
use arrow::error::ArrowError;

/// Converts an array to another type. Containers are converted item by item, and structs by the names of their fields.
/// Fields that the array lacks are null.
pub(crate) fn conform(array: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    use DataType as T;
    if array.data_type() == target {
        return Ok(Arc::clone(array));
    }
    Ok(match (array.data_type(), target) {
        (T::Null, _) => new_null_array(target, array.len()),
        (T::Dictionary(_, values), _) => conform(&strict(array, values)?, target)?,
        (T::RunEndEncoded(_, values), _) => conform(&strict(array, values.data_type())?, target)?,
        (T::List(_), T::List(item)) => Arc::new(conform_list::<i32>(array.as_list(), item)?),
        (T::LargeList(_), T::LargeList(item)) => {
            Arc::new(conform_list::<i64>(array.as_list(), item)?)
        }
        // Convert the container with its own item type first, then the items.
        (T::FixedSizeList(own, _) | T::ListView(own), T::List(_)) => {
            conform(&strict(array, &T::List(Arc::clone(own)))?, target)?
        }
        (
            T::List(own) | T::ListView(own) | T::LargeListView(own) | T::FixedSizeList(own, _),
            T::LargeList(_),
        ) => conform(&strict(array, &T::LargeList(Arc::clone(own)))?, target)?,
        (T::FixedSizeList(_, _), T::FixedSizeList(item, size)) => {
            let list = array.as_fixed_size_list();
            let values = conform(list.values(), item.data_type())?;
            let (item, nulls) = (Arc::clone(item), list.nulls().cloned());
            Arc::new(FixedSizeListArray::try_new(item, *size, values, nulls)?)
        }
        (T::Map(_, _), T::Map(entry, sorted)) => {
            let map = array.as_map();
            let T::Struct(fields) = entry.data_type() else {
                return Err(ArrowError::SchemaError("a map without entries".to_owned()));
            };
            let entries = map.entries();
            // Writers name keys and values differently.
            let columns = entries.columns().iter().zip(fields);
            let columns = columns.map(|(column, field)| conform(column, field.data_type()));
            let columns = columns.collect::<Result<_, _>>()?;
            Arc::new(MapArray::try_new(
                Arc::clone(entry),
                map.offsets().clone(),
                StructArray::try_new(fields.clone(), columns, entries.nulls().cloned())?,
                map.nulls().cloned(),
                *sorted,
            )?)
        }
        (T::Struct(_), T::Struct(fields)) => {
            let from = array.as_struct();
            let columns = fields.iter();
            let columns = columns.map(|field| match from.column_by_name(field.name()) {
                Some(column) => conform(column, field.data_type()),
                None => Ok(new_null_array(field.data_type(), from.len())),
            });
            let (columns, nulls) = (columns.collect::<Result<_, _>>()?, from.nulls().cloned());
            let fields = fields.clone();
            Arc::new(StructArray::try_new_with_length(
                fields,
                columns,
                nulls,
                from.len(),
            )?)
        }
        _ => strict(array, target)?,
    })
}

/// Casts an array; a value that does not fit is an error, not a null.
fn strict(array: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(array, target, &options)
}

fn conform_list<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    item: &FieldRef,
) -> Result<GenericListArray<O>, ArrowError> {
    let values = conform(list.values(), item.data_type())?;
    let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
    GenericListArray::try_new(Arc::clone(item), offsets, values, nulls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, Int64Array, ListArray, StringArray};
    use arrow::datatypes::{Field, Fields, Int32Type, Int64Type, TimeUnit};

    fn list(name: &str, item: DataType, nullable: bool) -> DataType {
        DataType::List(Arc::new(Field::new(name, item, nullable)))
    }

    #[test]
    fn arrays_are_renamed_and_widened() {
        let array: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), Some(2)]),
            None,
        ]));
        for target in [
            list("element", DataType::Int64, true),
            DataType::new_large_list(DataType::Int64, true),
        ] {
            let widened = conform(&array, &target).unwrap();
            assert_eq!(widened.data_type(), &target);
            assert!(widened.is_null(1));
        }
        let widened = conform(&array, &list("element", DataType::Int64, true)).unwrap();
        assert_eq!(
            widened
                .as_list::<i32>()
                .value(0)
                .as_primitive::<Int64Type>(),
            &Int64Array::from(vec![1, 2])
        );
        let text: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let wide = conform(&text, &DataType::LargeUtf8).unwrap();
        assert_eq!(wide.data_type(), &DataType::LargeUtf8);
        assert!(wide.is_null(1));
    }

    #[test]
    fn value_that_cannot_be_cast_is_an_error() {
        let far: ArrayRef = Arc::new(arrow::array::TimestampSecondArray::from(vec![i64::MAX / 2]));
        conform(&far, &DataType::Timestamp(TimeUnit::Nanosecond, None)).unwrap_err();
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        conform(&text, &DataType::Int64).unwrap_err();
    }

    #[test]
    fn struct_fields_are_matched_by_name() {
        let own = StructArray::from(vec![
            (
                Arc::new(Field::new("b", DataType::Int32, false)),
                Arc::new(Int32Array::from(vec![2])) as ArrayRef,
            ),
            (
                Arc::new(Field::new("a", DataType::Int32, false)),
                Arc::new(Int32Array::from(vec![1])) as ArrayRef,
            ),
        ]);
        let own: ArrayRef = Arc::new(own);
        let field = |name: &str, of: DataType| Field::new(name, of, true);
        let target = DataType::Struct(Fields::from(vec![
            field("a", DataType::Int64),
            field("b", DataType::Int32),
            field("c", DataType::Utf8),
        ]));
        let found = conform(&own, &target).unwrap();
        let found = found.as_struct();
        assert_eq!(found.column(0).as_primitive::<Int64Type>().value(0), 1);
        assert_eq!(found.column(1).as_primitive::<Int32Type>().value(0), 2);
        assert!(found.column(2).is_null(0));
    }
}
