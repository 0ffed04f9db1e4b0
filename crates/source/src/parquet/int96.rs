//! Timestamps of 96 bits, as Spark, Hive and Impala wrote them for long.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};
use parquet::basic::Type as PhysicalType;
use parquet::schema::types::SchemaDescriptor;

/// The columns of a file, with microseconds for timestamps of 96 bits: these reach farther than nanoseconds in 64 bits, which
/// go from 1677 to 2262 and would turn what lies outside into other dates. `fields` are all columns of the file; where they
/// are not one for each leaf they stay as they are.
pub(crate) fn in_microseconds(descr: &SchemaDescriptor, fields: &Fields) -> Fields {
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

/// The columns beneath one that have none beneath them; 1 for one of these.
pub(crate) fn leaf_count(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => leaves_of(fields),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => leaf_count(item.data_type()),
        _ => 1,
    }
}

/// The same of several.
pub(crate) fn leaves_of(fields: &Fields) -> usize {
    let leaves = fields.iter().map(|field| leaf_count(field.data_type()));
    leaves.sum()
}
