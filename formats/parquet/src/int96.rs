//! Reads 96-bit timestamps, as Spark, Hive and Impala wrote them for a long time.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use parquet::basic::Type as PhysicalType;
use parquet::schema::types::SchemaDescriptor;

/// Replaces the type of 96-bit timestamps with microseconds. They reach further than 64-bit nanoseconds, which cover
/// 1677 to 2262 and would turn other dates into wrong ones. `fields` are all columns of the file. They stay as they are
/// if they do not correspond one to one to the leaves.
#[must_use]
pub fn in_microseconds(descr: &SchemaDescriptor, fields: &Fields) -> Fields {
    let is_wide = |leaf: usize| descr.column(leaf).physical_type() == PhysicalType::INT96;
    if !(0..descr.num_columns()).any(is_wide) {
        return fields.clone();
    }
    change_leaves(descr, fields, &mut |leaf, field| match field.data_type() {
        DataType::Timestamp(..) if is_wide(leaf) => {
            let microseconds = DataType::Timestamp(TimeUnit::Microsecond, None);
            Arc::new(Field::clone(field).with_data_type(microseconds))
        }
        _ => Arc::clone(field),
    })
}

/// Returns the columns of a file with changed leaves, which are given with their numbers. The columns stay as they are
/// if they do not correspond one to one to the leaves.
pub(crate) fn change_leaves(
    descr: &SchemaDescriptor,
    fields: &Fields,
    change: &mut dyn FnMut(usize, &FieldRef) -> FieldRef,
) -> Fields {
    if leaves_of(fields) != descr.num_columns() {
        return fields.clone();
    }
    let mut leaf = 0;
    let mut next = |field: &FieldRef| {
        let changed = change(leaf, field);
        leaf += 1;
        changed
    };
    let changed = fields.iter().map(|field| change_field(field, &mut next));
    changed.collect()
}

fn change_field(field: &FieldRef, leaf: &mut dyn FnMut(&FieldRef) -> FieldRef) -> FieldRef {
    if !is_group(field.data_type()) {
        return leaf(field);
    }
    let data_type = with_children(field.data_type(), &mut |child| change_field(child, leaf));
    Arc::new(Field::clone(field).with_data_type(data_type))
}

/// Returns whether a type has leaf columns below it.
const fn is_group(data_type: &DataType) -> bool {
    use DataType::{FixedSizeList, LargeList, List, Map, Struct};
    matches!(
        data_type,
        Struct(_) | List(_) | LargeList(_) | FixedSizeList(..) | Map(..)
    )
}

/// Returns a type with changed fields inside it. A type without others inside it stays as it is.
pub(crate) fn with_children(
    data_type: &DataType,
    change: &mut dyn FnMut(&FieldRef) -> FieldRef,
) -> DataType {
    match data_type {
        DataType::List(item) => DataType::List(change(item)),
        DataType::LargeList(item) => DataType::LargeList(change(item)),
        DataType::ListView(item) => DataType::ListView(change(item)),
        DataType::LargeListView(item) => DataType::LargeListView(change(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(change(item), *len),
        DataType::Map(entries, sorted) => DataType::Map(change(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(change).collect()),
        other => other.clone(),
    }
}

/// Returns the number of leaf columns below a column; 1 for a leaf.
#[must_use]
pub fn leaf_count(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => leaves_of(fields),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => leaf_count(item.data_type()),
        _ => 1,
    }
}

/// Returns the number of leaf columns below several columns.
#[must_use]
pub fn leaves_of(fields: &Fields) -> usize {
    let leaves = fields.iter().map(|field| leaf_count(field.data_type()));
    leaves.sum()
}
