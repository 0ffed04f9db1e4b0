//! Row groups that a condition cannot match, told by their statistics.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, BooleanArray, UInt64Array};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::ParquetMetaData;
use rayon::prelude::*;

use super::{ParquetTable, leaf_of};
use crate::guard::catch;

/// For each unit whether it may hold a row that meets the condition; `None` when that cannot be said.
///
/// Pruning must never change the rows that come out: whatever is in doubt is read.
pub(super) fn may_match(
    table: &ParquetTable,
    condition: &Arc<dyn PhysicalExpr>,
) -> Option<Vec<bool>> {
    let build = || {
        PruningPredicateBuilder::new()
            .with_file_schema(Arc::clone(&table.schema))
            .try_build(Arc::clone(condition))
    };
    let predicate = catch(build)
        .ok()?
        .ok()
        .filter(|predicate| !predicate.always_true())?;
    let by_file: Vec<Vec<bool>> = (0..table.files.len())
        .into_par_iter()
        .map(|number| file_may_match(table, number, &predicate).unwrap_or_default())
        .collect();
    let of_unit = |(unit, group): (&crate::Unit, &usize)| {
        let groups = unit.file.and_then(|file| by_file.get(file));
        groups
            .and_then(|groups| groups.get(*group))
            .copied()
            .unwrap_or(true)
    };
    Some(table.units.iter().zip(&table.groups).map(of_unit).collect())
}

fn file_may_match(
    table: &ParquetTable,
    number: usize,
    predicate: &PruningPredicate,
) -> Option<Vec<bool>> {
    let (_, metadata) = table.footers.open(number, table.files.get(number)?).ok()?;
    let fields = super::arrow_fields(&table.files.get(number)?.shown, &metadata).ok()?;
    let statistics = FileStatistics {
        table,
        number,
        own: Schema::new(fields),
        metadata,
    };
    catch(|| predicate.prune(&statistics)).ok()?.ok()
}

/// What the footer of one file says about its row groups.
struct FileStatistics<'a> {
    table: &'a ParquetTable,
    number: usize,
    own: Schema,
    metadata: Arc<ParquetMetaData>,
}

impl FileStatistics<'_> {
    /// The value that directory names give a column in this whole file.
    fn partition(&self, name: &str) -> Option<ArrayRef> {
        let field = self
            .table
            .partitions
            .fields
            .iter()
            .position(|field| field.name() == name)?;
        Some(
            self.table
                .partitions
                .array(self.number, field, self.num_containers()),
        )
    }

    /// Smallest or largest values, as the type that the column has in the table.
    fn bounds(&self, column: &Column, largest: bool) -> Option<ArrayRef> {
        if let Some(constant) = self.partition(&column.name) {
            return Some(constant);
        }
        let wanted = self
            .table
            .schema
            .field_with_name(&column.name)
            .ok()?
            .data_type();
        let (place, own) = self.own.column_with_name(&column.name)?;
        let leaf = leaf_of(&self.metadata, place)?;
        if own.data_type() != wanted || !has_plain_order(wanted) || !self.trusts_bounds(leaf) {
            return None;
        }
        let schema = self.metadata.file_metadata().schema_descr();
        let converter = StatisticsConverter::try_new(&column.name, &self.own, schema).ok()?;
        let groups = self.metadata.row_groups().iter();
        let found = if largest {
            converter.row_group_maxes(groups)
        } else {
            converter.row_group_mins(groups)
        };
        found
            .ok()
            .filter(|found| found.data_type() == wanted && found.len() == self.num_containers())
    }

    /// Old writers sorted text and unsigned numbers as if they were signed bytes.
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

/// Types whose statistics bound all values. Floats do not: NaN is left out of them.
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
        if let Some(constant) = self.partition(&column.name) {
            let none: ArrayRef = Arc::new(UInt64Array::from_value(0, self.num_containers()));
            return Some(if constant.null_count() > 0 {
                rows
            } else {
                none
            });
        }
        let (place, _) = self.own.column_with_name(&column.name)?;
        let counts =
            self.metadata.row_groups().iter().map(|group| {
                super::group_null_count(&self.metadata, group, &self.own.fields, place)
            });
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
    fn floats_have_no_plain_order() {
        assert!(has_plain_order(&DataType::Int64) && has_plain_order(&DataType::Utf8));
        assert!(!has_plain_order(&DataType::Float64) && !has_plain_order(&DataType::Binary));
    }
}
