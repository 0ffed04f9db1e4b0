//! The number of distinct values of a column: exact while there are few, then the estimate of the query engine.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::hash_utils::{HLL_RANDOM_STATE, create_hashes};
use datafusion::common::{DataFusionError, Result as EngineResult, ScalarValue};
use datafusion::functions_aggregate::approx_distinct::approx_distinct_udaf;
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::Column;
use serde::Serialize;
use shardmill_core::Error;

use crate::error;

/// The most values that are remembered one by one.
const MAX_EXACT: usize = 4096;

/// The number of distinct values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DistinctCount {
    /// The number.
    pub count: u64,
    /// Whether the number is exact. Otherwise it is an estimate with a standard error of 0.8 %.
    pub exact: bool,
}

/// The distinct values of a column, in bounded memory.
#[derive(Debug)]
pub struct DistinctValues {
    /// The hashes of the values, until there are more than [`MAX_EXACT`].
    few: HashSet<u64>,
    /// The state of `approx_distinct`.
    estimate: Box<dyn Accumulator>,
}

impl DistinctValues {
    /// Creates the values of no rows.
    ///
    /// # Errors
    ///
    /// The query engine has no estimate.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            few: HashSet::new(),
            estimate: estimate().map_err(refused)?,
        })
    }

    /// Adds values, none of which is null.
    ///
    /// # Errors
    ///
    /// The query engine refuses the values.
    pub fn add(&mut self, values: &ArrayRef) -> Result<(), Error> {
        let mut hashes = vec![0; values.len()];
        create_hashes([values], &HLL_RANDOM_STATE, &mut hashes).map_err(refused)?;
        self.add_few(&hashes);
        let hashes: ArrayRef = Arc::new(UInt64Array::from(hashes));
        self.estimate.update_batch(&[hashes]).map_err(refused)
    }

    fn add_few<'a>(&mut self, hashes: impl IntoIterator<Item = &'a u64>) {
        if self.few.len() <= MAX_EXACT {
            self.few.extend(hashes);
        }
    }

    /// Adds the values of the same column of other rows.
    ///
    /// # Errors
    ///
    /// The query engine refuses them.
    pub fn merge(&mut self, mut other: Self) -> Result<(), Error> {
        self.add_few(&other.few);
        let state = other.estimate.state().map_err(refused)?;
        let state: EngineResult<Vec<_>> = state.iter().map(ScalarValue::to_array).collect();
        self.estimate
            .merge_batch(&state.map_err(refused)?)
            .map_err(refused)
    }

    /// Returns how many there are.
    ///
    /// # Errors
    ///
    /// The query engine has no estimate.
    pub fn count(&mut self) -> Result<DistinctCount, Error> {
        let exact = self.few.len() <= MAX_EXACT;
        let count = match self.estimate.evaluate().map_err(refused)? {
            ScalarValue::UInt64(Some(count)) if !exact => count,
            _ => self.few.len() as u64,
        };
        Ok(DistinctCount { count, exact })
    }
}

fn estimate() -> EngineResult<Box<dyn Accumulator>> {
    const NAME: &str = "hash";
    let schema = Schema::new(vec![Field::new(NAME, DataType::UInt64, false)]);
    let column = Arc::new(Column::new(NAME, 0));
    let function = AggregateExprBuilder::new(approx_distinct_udaf(), vec![column])
        .schema(Arc::new(schema))
        .alias(NAME)
        .build()?;
    function.create_accumulator()
}

fn refused(error: DataFusionError) -> Error {
    error::bug(error.strip_backtrace())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(range: std::ops::Range<u64>) -> DistinctValues {
        let mut distinct = DistinctValues::new().unwrap();
        let numbers: Vec<u64> = range.collect();
        for part in numbers.chunks(1000) {
            let hashes: ArrayRef = Arc::new(UInt64Array::from(part.to_vec()));
            distinct.add(&hashes).unwrap();
        }
        distinct
    }

    #[test]
    fn few_values_are_counted_exactly() {
        let mut distinct = of(0..4096);
        distinct.merge(of(100..200)).unwrap();
        let expected = DistinctCount {
            count: 4096,
            exact: true,
        };
        assert_eq!(distinct.count().unwrap(), expected);
    }

    #[test]
    fn many_values_are_estimated() {
        for count in [5_000, 20_000, 60_000, 1_000_000] {
            let found = of(0..count).count().unwrap();
            assert!(!found.exact);
            let off = found.count.abs_diff(count) as f64 / count as f64;
            assert!(off < 0.03, "{found:?} of {count}");
        }
    }

    #[test]
    fn merged_parts_equal_the_whole_in_any_order() {
        let whole = of(0..100_000).count().unwrap();
        let parts = [0..3000, 3000..50_000, 50_000..100_000];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let mut sum = DistinctValues::new().unwrap();
            for at in order {
                sum.merge(of(parts[at].clone())).unwrap();
            }
            assert_eq!(sum.count().unwrap(), whole);
        }
    }
}
