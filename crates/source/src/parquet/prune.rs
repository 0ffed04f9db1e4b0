//! Excludes row groups that cannot match a condition, according to their statistics.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, BooleanArray, UInt64Array, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::ParquetMetaData;

use super::rows::Origin;
use shardmill_parquet::{group_null_count, leaf_of, repeated};

/// The statistics of the row groups of one file.
pub(super) struct FileStatistics<'a> {
    /// The columns of the table, and how each is built from the file.
    pub table: &'a SchemaRef,
    pub origins: Vec<Origin>,
    /// The columns of the file.
    pub own: Schema,
    pub metadata: Arc<ParquetMetaData>,
}

impl FileStatistics<'_> {
    /// Returns the value that a column has in the whole file, if it is constant.
    fn constant(&self, name: &str) -> Option<ArrayRef> {
        let column = self.table.index_of(name).ok()?;
        let groups = self.num_containers();
        match self.origins.get(column)? {
            Origin::Constant(value) => repeated(value, groups).ok(),
            Origin::Missing => Some(new_null_array(self.table.field(column).data_type(), groups)),
            Origin::Decoded(..) => None,
        }
    }

    /// Returns the position and type of a column in the file.
    fn own(&self, name: &str) -> Option<(usize, &Field)> {
        match self.origins.get(self.table.index_of(name).ok()?)? {
            Origin::Decoded(index, _) => Some((*index, self.own.fields().get(*index)?)),
            Origin::Constant(_) | Origin::Missing => None,
        }
    }

    /// Returns the smallest or largest values, with the type of the column in the table.
    fn bounds(&self, column: &Column, largest: bool) -> Option<ArrayRef> {
        if let Some(constant) = self.constant(&column.name) {
            return Some(constant);
        }
        let wanted = self.table.field_with_name(&column.name).ok()?.data_type();
        let (index, own) = self.own(&column.name)?;
        let metadata = &self.metadata;
        let leaf = leaf_of(metadata, index)?;
        if own.data_type() != wanted || !has_plain_order(wanted) || !self.trusts_bounds(leaf) {
            return None;
        }
        let schema = metadata.file_metadata().schema_descr();
        let converter = StatisticsConverter::try_new(own.name(), &self.own, schema).ok()?;
        let groups = metadata.row_groups().iter();
        let found = if largest {
            converter.row_group_maxes(groups)
        } else {
            converter.row_group_mins(groups)
        };
        found
            .ok()
            .filter(|found| found.data_type() == wanted && found.len() == self.num_containers())
    }

    /// Returns whether the statistics of a leaf are usable. Old writers compared text and unsigned numbers as signed
    /// bytes.
    fn trusts_bounds(&self, leaf: usize) -> bool {
        self.metadata.row_groups().iter().all(|group| {
            group.columns().get(leaf).is_some_and(|chunk| {
                let doubtful = chunk
                    .statistics()
                    .is_some_and(|statistics| statistics.is_min_max_deprecated());
                chunk.column_type() != PhysicalType::INT96 && !doubtful
            })
        })
    }
}

/// Returns whether the statistics of a type bound all values. Those of floats do not, because they exclude NaN.
fn has_plain_order(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Date32
                | DataType::Timestamp(_, _)
                | DataType::Decimal128(_, _)
        )
}

impl PruningStatistics for FileStatistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, false)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, true)
    }

    fn num_containers(&self) -> usize {
        self.metadata.num_row_groups()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let rows = self.row_counts()?;
        if let Some(constant) = self.constant(&column.name) {
            let none: ArrayRef = Arc::new(UInt64Array::from_value(0, self.num_containers()));
            return Some(if constant.null_count() > 0 {
                rows
            } else {
                none
            });
        }
        let (index, _) = self.own(&column.name)?;
        let groups = self.metadata.row_groups().iter();
        let counts =
            groups.map(|group| group_null_count(&self.metadata, group, self.own.fields(), index));
        Some(Arc::new(counts.collect::<UInt64Array>()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let counts = self
            .metadata
            .row_groups()
            .iter()
            .map(|group| u64::try_from(group.num_rows()).ok());
        Some(Arc::new(counts.collect::<UInt64Array>()))
    }

    fn contained(&self, _column: &Column, _values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_plain_order_is_false_for_floats_and_binary() {
        assert!(has_plain_order(&DataType::Int64) && has_plain_order(&DataType::Utf8));
        assert!(!has_plain_order(&DataType::Float64) && !has_plain_order(&DataType::Binary));
    }
}
