//! Adds a column with the number of each row to a source.

use std::sync::Arc;

use shardmill_core::Error;

use arrow::array::{ArrayRef, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;

use crate::base::{batch, map_rows, project};
use crate::error::SourceProblem;
use crate::{RowOrigin, Rows, Source, TableFacts, unit_rows};

/// A source with one more column, the last, which numbers all rows from 0.
pub(crate) struct Numbered {
    source: Arc<dyn Source>,
    facts: TableFacts,
    /// The number of the first row of each unit.
    starts: Vec<u64>,
}

impl Numbered {
    pub(crate) fn new(source: Arc<dyn Source>, name: &str) -> Result<Self, Error> {
        let own = source.facts();
        if own.schema.field_with_name(name).is_ok() {
            let fact = format!("there is a column `{name}`, the name of the numbers of rows");
            return Err(SourceProblem::Option.at("--where", fact));
        }
        let number = Arc::new(Field::new(name, DataType::UInt64, false));
        let fields = own.schema.fields().iter().cloned().chain([number]);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let null_counts = [own.null_counts.as_slice(), &[Some(0)]].concat();
        let mut next = 0;
        let starts = unit_rows(&*source)?.into_iter().map(|rows| {
            next += rows;
            next - rows
        });
        Ok(Self {
            starts: starts.collect(),
            facts: own.with_columns(schema, null_counts),
            source,
        })
    }

    /// The index of the column of numbers.
    fn number_column(&self) -> usize {
        self.facts.schema.fields().len() - 1
    }
}

impl Source for Numbered {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn check_columns(&self, columns: &[usize]) -> Result<(), Error> {
        let own = columns.iter().copied();
        let own: Vec<usize> = own.filter(|at| *at < self.number_column()).collect();
        self.source.check_columns(&own)
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error> {
        let last = self.number_column();
        let own = columns.strip_suffix(&[last]);
        let rows = self.source.open(unit, own.unwrap_or(columns))?;
        if own.is_none() {
            return Ok(rows);
        }
        let mut next = self.starts.get(unit).copied().unwrap_or_default();
        let schema = project(&self.facts.schema, columns);
        Ok(map_rows(rows, move |found| {
            let numbers = next..next + found.num_rows() as u64;
            next = numbers.end;
            let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(numbers));
            let columns = found.columns().iter().cloned().chain([numbers]).collect();
            batch(&schema, columns, found.num_rows())
        }))
    }

    fn may_match(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<Vec<bool>> {
        let last = self.number_column();
        let used = collect_columns(condition);
        if used.iter().any(|column| column.index() == last) {
            return None;
        }
        self.source.may_match(condition)
    }

    fn will_read(&self, units: &[usize]) {
        self.source.will_read(units);
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        self.source.row_origin(unit, row)
    }
}
