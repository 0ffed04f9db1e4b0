//! Statistics of all columns of a source, on several threads.

mod column;
mod histogram;

use std::sync::{Mutex, PoisonError};

use arrow::datatypes::{DataType, FieldRef};
use serde::Serialize;
use shardmill_core::{Error, Limits, Progress, lock, parallel};
use shardmill_dataset::DatasetError;
use shardmill_source::{Source, Unit};
use shardmill_writer::MASK_SUFFIX;

pub use column::{Bin, ColumnStats, Measure, Number, Special};

use column::Column;

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

/// Reads rows once and measures their columns, in bounded memory.
///
/// Counts, extremes and the counts of the histograms' bins are exact. Means of floats come from a sum of 106 bits. A large
/// number of distinct values is an estimate.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let location = directory.path().join("rows.csv");
/// use shardmill_convert::{Number, StatsOptions, open_rows, stats};
/// use shardmill_core::Progress;
///
/// std::fs::write(&location, "id,text\n1,one\n2,two\n3,three\n")?;
/// let source = open_rows(&[location.into()], &Default::default())?;
/// let stats = stats(&*source, &StatsOptions::default(), &Progress::new())?;
/// assert_eq!(stats.rows, 3);
/// assert_eq!(stats.columns[0].max, Some(Number::Int(3)));
/// assert_eq!(stats.columns[1].mean, Some(11.0 / 3.0));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of the source; [`DatasetError::Interrupted`] after a cancellation.
pub fn stats(
    source: &dyn Source,
    options: &StatsOptions,
    progress: &Progress,
) -> Result<Stats, Error> {
    let (units, description) = (source.units(), source.description());
    let columns = options.columns.as_deref();
    let new = || measured_columns(source, columns).map(|columns| (0, columns));
    let limit = options.rows.unwrap_or(u64::MAX);
    let firsts = first_rows(units);
    // Without the row counts, the rows of a unit to read are only known after all earlier units.
    let jobs = match (&firsts, options.rows) {
        (None, Some(_)) => 1,
        _ => options.jobs,
    };
    let total = description.rows;
    progress.set_totals(description.bytes, total.unwrap_or(0), units.len() as u64);
    // What each thread has read: the number of rows and their columns.
    let parts: Mutex<Vec<(u64, Vec<Column>)>> = Mutex::default();
    parallel::for_each(units.len(), jobs, |number, (): &mut ()| {
        let part = lock(&parts).pop();
        let (mut rows, mut columns) = part.map_or_else(new, Ok)?;
        let first = firsts.as_ref().and_then(|firsts| firsts.get(number));
        let mut left = limit.saturating_sub(*first.unwrap_or(&rows));
        if left > 0 {
            let mut batches = source.open_unit(number)?;
            while left > 0
                && let Some(batch) = batches.next_batch()?
            {
                if progress.is_cancelled() {
                    return Err(DatasetError::Interrupted.into());
                }
                let taken = left.min(batch.num_rows() as u64);
                let batch = batch.slice(0, usize::try_from(taken).unwrap_or(usize::MAX));
                for column in &mut columns {
                    column.add(&batch, &options.limits)?;
                }
                left -= taken;
                rows += taken;
                progress.add_samples(taken);
            }
            progress.add_input_bytes(units.get(number).map_or(0, |unit| unit.bytes));
        }
        lock(&parts).push((rows, columns));
        Ok::<_, Error>(())
    })?;
    let (mut rows, mut columns) = new()?;
    for (more, others) in parts.into_inner().unwrap_or_else(PoisonError::into_inner) {
        rows += more;
        for (column, other) in columns.iter_mut().zip(others) {
            column.merge(other)?;
        }
    }
    let columns = columns.into_iter().map(Column::finish);
    Ok(Stats {
        rows,
        complete: match total {
            Some(total) => rows >= total,
            None => rows < limit,
        },
        columns: columns.collect::<Result<_, _>>()?,
    })
}

/// Returns the columns to measure, without rows.
fn measured_columns(source: &dyn Source, chosen: Option<&[String]>) -> Result<Vec<Column>, Error> {
    let (schema, kind) = (source.schema(), source.description().kind);
    let mask_of = |field: &FieldRef| {
        let mask = schema.index_of(&format!("{}{MASK_SUFFIX}", field.name()));
        mask.ok()
            .filter(|mask| *schema.field(*mask).data_type() == DataType::UInt8)
    };
    let masks: Vec<usize> = schema.fields().iter().filter_map(mask_of).collect();
    let positions: Vec<usize> = match chosen {
        Some(names) => {
            let found = names.iter().map(|name| schema.index_of(name));
            found.filter_map(Result::ok).collect()
        }
        None => {
            let all = 0..schema.fields().len();
            all.filter(|position| !masks.contains(position)).collect()
        }
    };
    let fields = schema.fields();
    let columns = positions.into_iter().filter_map(|position| {
        let field = fields.get(position)?;
        Some(Column::new(position, mask_of(field), field, kind))
    });
    columns.collect()
}

/// Returns the number of rows before each unit; `None` if it is not known.
fn first_rows(units: &[Unit]) -> Option<Vec<u64>> {
    let mut next = 0_u64;
    let firsts = units.iter().map(|unit| {
        let first = next;
        next = next.saturating_add(unit.rows?);
        Some(first)
    });
    firsts.collect()
}
