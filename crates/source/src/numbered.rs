//! Adds a column with the number of each row to a reader.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;

use crate::base::{Base, batch, project};
use crate::error::SourceProblem;
use crate::source::count_rows;
use crate::{RowPlace, Rows, SourceDescription, SourceError, Unit};

/// A reader with one more column, the last, which numbers all rows from 0.
pub(crate) struct Numbered {
    base: Arc<dyn Base>,
    schema: SchemaRef,
    /// The number of the first row of each unit.
    starts: Vec<u64>,
}

impl Numbered {
    pub(crate) fn new(base: Arc<dyn Base>, name: &str) -> Result<Self, SourceError> {
        let own = base.schema();
        if own.field_with_name(name).is_ok() {
            let fact = format!("there is a column `{name}`, the name of the numbers of rows");
            return Err(SourceProblem::Option.at("--where", fact));
        }
        let number = Arc::new(Field::new(name, DataType::UInt64, false));
        let fields = own.fields().iter().cloned().chain([number]);
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut next = 0;
        let mut starts = Vec::with_capacity(base.units().len());
        for (number, unit) in base.units().iter().enumerate() {
            starts.push(next);
            next += match unit.rows {
                Some(rows) => rows,
                // Text files are read once to count their rows.
                None => count_rows(base.open(number, &[])?.as_mut())?,
            };
        }
        Ok(Self {
            base,
            schema,
            starts,
        })
    }

    /// The position of the numbers.
    fn place_of_number(&self) -> usize {
        self.base.schema().fields().len()
    }
}

impl Base for Numbered {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn units(&self) -> &[Unit] {
        self.base.units()
    }

    fn check_columns(&self, columns: &[usize]) -> Result<(), SourceError> {
        let own = columns.iter().copied();
        let own: Vec<usize> = own.filter(|at| *at < self.place_of_number()).collect();
        self.base.check_columns(&own)
    }

    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, SourceError> {
        let last = self.place_of_number();
        let (own, is_numbered) = match columns.split_last() {
            Some((at, own)) if *at == last => (own, true),
            _ => (columns, false),
        };
        let rows = self.base.open(unit, own)?;
        if !is_numbered {
            return Ok(rows);
        }
        Ok(Box::new(NumberedRows {
            rows,
            next: self.starts.get(unit).copied().unwrap_or_default(),
            schema: project(&self.schema, columns),
        }))
    }

    fn null_count(&self, column: usize) -> Option<u64> {
        match column == self.place_of_number() {
            true => Some(0),
            false => self.base.null_count(column),
        }
    }

    fn may_match(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<Vec<bool>> {
        let last = self.place_of_number();
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

    fn place(&self, unit: usize, row: u64) -> RowPlace {
        self.base.place(unit, row)
    }

    fn description(&self) -> &SourceDescription {
        self.base.description()
    }
}

struct NumberedRows {
    rows: Box<dyn Rows>,
    next: u64,
    schema: SchemaRef,
}

impl Rows for NumberedRows {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let Some(found) = self.rows.next_batch()? else {
            return Ok(None);
        };
        let numbers = self.next..self.next + found.num_rows() as u64;
        self.next = numbers.end;
        let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(numbers));
        let columns = found.columns().iter().cloned().chain([numbers]).collect();
        batch(&self.schema, columns, found.num_rows()).map(Some)
    }
}
