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
    let leaves = leaves_of(fields);
    if leaves != descr.num_columns() || !(0..leaves).any(is_wide) {
        return fields.clone();
    }
    let mut leaf = 0;
    change(fields, &mut |data_type| {
        let wide = is_wide(leaf);
        leaf += 1;
        match data_type {
            DataType::Timestamp(..) if wide => DataType::Timestamp(TimeUnit::Microsecond, None),
            other => other.clone(),
        }
    })
}

fn change(fields: &Fields, leaf: &mut impl FnMut(&DataType) -> DataType) -> Fields {
    let changed = fields.iter().map(|field| change_field(field, leaf));
    changed.collect()
}

fn change_field(field: &FieldRef, leaf: &mut impl FnMut(&DataType) -> DataType) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(change(fields, leaf)),
        DataType::List(item) => DataType::List(change_field(item, leaf)),
        DataType::LargeList(item) => DataType::LargeList(change_field(item, leaf)),
        DataType::FixedSizeList(item, length) => {
            DataType::FixedSizeList(change_field(item, leaf), *length)
        }
        DataType::Map(entry, sorted) => DataType::Map(change_field(entry, leaf), *sorted),
        other => leaf(other),
    };
    Arc::new(Field::clone(field).with_data_type(data_type))
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
