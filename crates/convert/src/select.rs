//! Finds the samples of a dataset, or the rows of a table, that meet a condition, or that have certain keys.

use std::collections::HashSet;

use arrow::array::AsArray as _;
use arrow::compute::cast;
use arrow::datatypes::{DataType, UInt64Type};
use arrow::record_batch::RecordBatch;
use shardmill_core::{Error, Progress, parallel};
use shardmill_dataset::DatasetError;
use shardmill_source::{QueryOptions, SelectColumn, SourceOptions, bug};
use shardmill_storage::Location;

use crate::open::open_rows;

/// The column with the number of the sample, which conditions can use like the other columns.
pub const SAMPLE_COLUMN: &str = "__sample__";

/// Which samples to find.
#[derive(Clone, Copy, Debug)]
pub enum SelectBy<'a> {
    /// Those for which an SQL expression over their columns is true.
    Where(&'a str),
    /// Those whose value in a column is one of these texts.
    Keys {
        /// The name of the column.
        column: &'a str,
        /// The texts.
        keys: &'a HashSet<String>,
    },
}

/// The samples that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selected {
    /// Their numbers, in order.
    pub samples: Vec<u64>,
    /// The keys that no sample has, sorted.
    pub missing: Vec<String>,
}

/// Finds the selected samples of a dataset, or rows of a table. Reads the columns of the condition once.
///
/// # Errors
///
/// Errors of opening and reading the dataset; `sql-*` for a condition; [`DatasetError::Interrupted`].
pub fn select_samples(
    locations: &[Location],
    by: SelectBy<'_>,
    options: &SourceOptions,
    progress: &Progress,
) -> Result<Selected, Error> {
    let mut options = options.clone();
    options.query = QueryOptions {
        number: Some(SAMPLE_COLUMN.to_owned()),
        ..QueryOptions::default()
    };
    let mut columns = vec![SelectColumn::named(SAMPLE_COLUMN)];
    match by {
        SelectBy::Where(condition) => options.query.filter = Some(condition.to_owned()),
        SelectBy::Keys { column, .. } => columns.push(SelectColumn::named(column)),
    }
    options.query.columns = columns;
    let source = open_rows(locations, &options)?;
    let units = source.units().len();
    progress.set_totals(source.description().bytes, 0, units as u64);
    let found = parallel::map(units, options.resources.jobs, |unit| {
        let (mut numbers, mut found_keys) = (Vec::new(), HashSet::new());
        let mut rows = source.open_unit(unit)?;
        while let Some(batch) = rows.next_batch()? {
            if progress.is_cancelled() {
                return Err(DatasetError::Interrupted.into());
            }
            match by {
                SelectBy::Where(_) => numbers.extend(numbers_of(&batch)?),
                SelectBy::Keys { keys, .. } => {
                    for (number, key) in with_keys(&batch, keys)? {
                        numbers.push(number);
                        found_keys.insert(key);
                    }
                }
            }
        }
        progress.add_input_bytes(source.units().get(unit).map_or(0, |unit| unit.bytes));
        progress.add_shard(0);
        Ok::<_, Error>((numbers, found_keys))
    })?;
    let (samples, found_keys): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let mut samples = samples.concat();
    samples.sort_unstable();
    let mut missing: Vec<String> = match by {
        SelectBy::Where(_) => Vec::new(),
        SelectBy::Keys { keys, .. } => {
            let found_keys: HashSet<String> = found_keys.into_iter().flatten().collect();
            keys.difference(&found_keys).cloned().collect()
        }
    };
    missing.sort_unstable();
    Ok(Selected { samples, missing })
}

fn numbers_of(batch: &RecordBatch) -> Result<Vec<u64>, Error> {
    let numbers = batch.columns().first();
    let numbers = numbers.and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let numbers = numbers.ok_or_else(|| bug("a batch without the numbers of its samples"))?;
    Ok(numbers.values().to_vec())
}

/// Returns the numbers of the samples with one of the keys, and these keys.
fn with_keys(batch: &RecordBatch, keys: &HashSet<String>) -> Result<Vec<(u64, String)>, Error> {
    let numbers = numbers_of(batch)?;
    let texts = batch.columns().get(1);
    let texts = texts.and_then(|column| cast(column, &DataType::Utf8).ok());
    let texts = texts.ok_or_else(|| {
        let schema = batch.schema();
        let name = schema.fields().get(1).map_or("", |field| field.name());
        let fact = format!("the values of `{name}` have no text");
        Error::option_hint("config-key", fact, "name a column of texts or numbers")
    })?;
    let pairs = numbers.into_iter().zip(texts.as_string::<i32>());
    let pairs = pairs.filter_map(|(number, key)| Some((number, keys.get(key?)?)));
    Ok(pairs.map(|(number, key)| (number, key.clone())).collect())
}
