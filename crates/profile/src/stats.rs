//! Statistics of all columns of a source, on several threads.

use std::sync::{Mutex, PoisonError};

use arrow::array::{Array as _, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef, UInt8Type};
use serde::Serialize;
use shardmill_core::{Limits, Progress, lock, parallel};
use shardmill_source::{Source, SourceError, SourceKind};

use crate::column::{Column, ColumnStats};

/// The end of the name of a column that says which values of another one are null.
const MASK_SUFFIX: &str = "__is_null";

/// Options of [`stats`].
#[derive(Clone, Debug, Default)]
pub struct StatsOptions {
    /// The number of threads; 0 for one per core.
    pub jobs: usize,
    /// The number of rows to read, from the first one; `None` for all.
    pub rows: Option<u64>,
    /// The columns to measure, in this order; `None` for all. Names of columns that do not exist are ignored.
    pub columns: Option<Vec<String>>,
    /// Limits on what a value may demand.
    pub limits: Limits,
}

/// The statistics of a dataset or a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stats {
    /// The number of rows that were read.
    pub rows: u64,
    /// Whether these are all rows.
    pub complete: bool,
    /// The columns, in the order of the source. Columns that mark the nulls of another one are not among them.
    pub columns: Vec<ColumnStats>,
}

/// What one thread has read.
struct Part {
    rows: u64,
    columns: Vec<Column>,
}

/// A column whose values are measured.
#[derive(Clone, Copy)]
struct MeasuredColumn {
    column: usize,
    /// The column that marks its nulls.
    mask: Option<usize>,
}

/// Reads rows and measures their columns. The result does not depend on the number of threads.
///
/// # Errors
///
/// Those of the source; [`SourceError::Described`] of the kind `Interrupted` after a cancellation.
pub fn stats(
    source: &dyn Source,
    options: &StatsOptions,
    progress: &Progress,
) -> Result<Stats, SourceError> {
    let schema = source.schema();
    let kind = source.description().kind;
    let is_tar = kind == SourceKind::Webdataset;
    let selected = selected_columns(&schema, options.columns.as_deref());
    let new = || Part {
        rows: 0,
        columns: selected
            .iter()
            .map(|measured| Column::new(schema.field(measured.column), is_tar))
            .collect(),
    };
    let quotas = quotas(source, options.rows);
    // Without the row counts, the rows of a unit are only known after all earlier ones.
    let jobs = match (&quotas, options.rows) {
        (None, Some(_)) => 1,
        _ => options.jobs,
    };
    let units = quotas.as_ref().map_or(source.units().len(), Vec::len);
    let parts: Mutex<Vec<Part>> = Mutex::new(Vec::new());
    let left = Mutex::new(options.rows.unwrap_or(u64::MAX));
    let complete = Mutex::new(true);
    let (bytes, rows) = (source.description().bytes, source.description().rows);
    progress.set_totals(bytes, rows.unwrap_or(0), units as u64);
    parallel::for_each(units, jobs, |unit, (): &mut ()| {
        let mut part = lock(&parts).pop().unwrap_or_else(new);
        let mut quota = match &quotas {
            Some(quotas) => quotas.get(unit).copied().unwrap_or(0),
            None => *lock(&left),
        };
        let before = quota;
        if quota > 0 {
            let mut batches = source.open_unit(unit)?;
            while let Some(batch) = batches.next_batch()? {
                if progress.is_cancelled() {
                    return Err(cancelled());
                }
                let taken = quota.min(batch.num_rows() as u64);
                let taken = usize::try_from(taken).unwrap_or(usize::MAX);
                if taken < batch.num_rows() {
                    *lock(&complete) = false;
                }
                let batch = batch.slice(0, taken);
                add(&mut part, &batch, &selected, &options.limits);
                quota -= taken as u64;
                progress.add_samples(taken as u64);
                if quota == 0 {
                    break;
                }
            }
            progress.add_input_bytes(source.units().get(unit).map_or(0, |unit| unit.bytes));
        }
        if quotas.is_none() {
            let mut left = lock(&left);
            *left -= before - quota;
            if *left == 0 {
                *lock(&complete) = false;
            }
        }
        lock(&parts).push(part);
        Ok(())
    })?;
    let parts = parts.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut whole = new();
    for part in parts {
        whole.rows += part.rows;
        for (sum, column) in whole.columns.iter_mut().zip(&part.columns) {
            sum.merge(column);
        }
    }
    let columns = selected.iter().zip(whole.columns);
    Ok(Stats {
        rows: whole.rows,
        complete: match source.description().rows {
            Some(rows) => whole.rows >= rows,
            None => complete
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
        },
        columns: columns
            .map(|(measured, column)| column.finish(schema.field(measured.column), kind))
            .collect(),
    })
}

/// Returns the error of a cancelled run.
pub(crate) fn cancelled() -> SourceError {
    SourceError::Described {
        kind: shardmill_core::ErrorKind::Interrupted,
        id: "interrupted",
        object: None,
        message: "stopped before the end".to_owned(),
        hint: None,
    }
}

/// Returns the columns to measure.
fn selected_columns(schema: &SchemaRef, chosen: Option<&[String]>) -> Vec<MeasuredColumn> {
    let find = |name: &str| schema.index_of(name).ok();
    let is_mask = |column: usize| {
        let field = schema.field(column);
        let owner = field.name().strip_suffix(MASK_SUFFIX);
        *field.data_type() == DataType::UInt8 && owner.and_then(find).is_some()
    };
    let columns: Vec<usize> = match chosen {
        Some(names) => names.iter().filter_map(|name| find(name)).collect(),
        None => (0..schema.fields().len())
            .filter(|column| !is_mask(*column))
            .collect(),
    };
    columns
        .into_iter()
        .map(|column| MeasuredColumn {
            column,
            mask: find(&format!("{}{MASK_SUFFIX}", schema.field(column).name()))
                .filter(|mask| is_mask(*mask)),
        })
        .collect()
}

/// Returns the number of rows to read of each unit, up to the last one that is needed; `None` if it is not known.
fn quotas(source: &dyn Source, rows: Option<u64>) -> Option<Vec<u64>> {
    let mut left = rows?;
    let mut quotas = Vec::new();
    for unit in source.units() {
        if left == 0 {
            break;
        }
        let taken = unit.rows?.min(left);
        quotas.push(taken);
        left -= taken;
    }
    Some(quotas)
}

fn add(part: &mut Part, batch: &RecordBatch, selected: &[MeasuredColumn], limits: &Limits) {
    part.rows += batch.num_rows() as u64;
    for (measured, column) in selected.iter().zip(&mut part.columns) {
        let mask = measured.mask.map(|mask| batch.column(mask));
        let mask = mask.and_then(|mask| mask.as_primitive_opt::<UInt8Type>());
        let is_null =
            |row: usize| mask.is_some_and(|mask| mask.is_valid(row) && mask.value(row) == 1);
        column.add(batch.column(measured.column), is_null, limits);
    }
}
