//! Adds a column with the number of each row to a reader.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;

use crate::base::{Base, TableFacts, batch, map_rows, project};
use crate::error::SourceProblem;
use crate::source::count_rows;
use crate::{RowOrigin, Rows, SourceError};

/// A reader with one more column, the last, which numbers all rows from 0.
pub(crate) struct Numbered {
    base: Arc<dyn Base>,
    facts: TableFacts,
    /// The number of the first row of each unit.
    starts: Vec<u64>,
}

impl Numbered {
    pub(crate) fn new(base: Arc<dyn Base>, name: &str) -> Result<Self, SourceError> {
        let own = base.facts();
        if own.schema.field_with_name(name).is_ok() {
            let fact = format!("there is a column `{name}`, the name of the numbers of rows");
            return Err(SourceProblem::Option.at("--where", fact));
        }
        let number = Arc::new(Field::new(name, DataType::UInt64, false));
        let fields = own.schema.fields().iter().cloned().chain([number]);
        let mut next = 0;
        let mut starts = Vec::with_capacity(own.units.len());
        for (number, unit) in own.units.iter().enumerate() {
            starts.push(next);
            next += match unit.rows {
                Some(rows) => rows,
                // Text files are read once to count their rows.
                None => count_rows(base.open(number, &[])?.as_mut())?,
            };
        }
        Ok(Self {
            facts: TableFacts {
                schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
                units: own.units.clone(),
                null_counts: [own.null_counts.as_slice(), &[Some(0)]].concat(),
                description: own.description.clone(),
            },
            base,
            starts,
        })
    }

    /// The index of the column of numbers.
    fn number_column(&self) -> usize {
        self.base.schema().fields().len()
    }
}

impl Base for Numbered {
    fn facts(&self) -> &TableFacts {
        &self.facts
    }

    fn check_columns(&self, columns: &[usize]) -> Result<(), SourceError> {
        let own = columns.iter().copied();
        let own: Vec<usize> = own.filter(|at| *at < self.number_column()).collect();
        self.base.check_columns(&own)
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        let last = self.number_column();
        let (own, is_numbered) = match columns.split_last() {
            Some((at, own)) if *at == last => (own, true),
            _ => (columns, false),
        };
        let rows = self.base.open(unit, own)?;
        if !is_numbered {
            return Ok(rows);
        }
        let mut next = self.starts.get(unit).copied().unwrap_or_default();
        let schema = project(self.schema(), columns);
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
        match used.iter().any(|column| column.index() == last) {
            true => None,
            false => self.base.may_match(condition),
        }
    }

    fn will_read(&self, units: &[usize]) {
        self.base.will_read(units);
    }

    fn file_row(&self, unit: usize, row: u64) -> u64 {
        self.base.file_row(unit, row)
    }

    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        self.base.row_origin(unit, row)
    }
}
