//! Finds the samples of a dataset that meet a condition, or that have certain keys.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, AsArray as _, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use arrow::record_batch::RecordBatch;
use shardmill_core::{Progress, parallel};
use shardmill_dataset::DatasetError;
use shardmill_source::{
    QueryOptions, RowPlace, Rows, SelectColumn, Source, SourceDescription, SourceError, SourceKind,
    SourceOptions, Unit,
};
use shardmill_storage::Location;

use crate::error::ConvertError;
use crate::{mds_source, tar_source};

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

/// Finds the selected samples of a dataset. Reads every sample once.
///
/// # Errors
///
/// Errors of opening and reading the dataset; `sql-*` for a condition; [`DatasetError::Interrupted`].
pub fn select_samples(
    locations: &[Location],
    by: SelectBy<'_>,
    options: &SourceOptions,
    progress: &Progress,
) -> Result<Selected, ConvertError> {
    let mut options = options.clone();
    options.query = QueryOptions::default();
    let mut columns = vec![SelectColumn::named(SAMPLE_COLUMN)];
    match by {
        SelectBy::Where(condition) => options.query.filter = Some(condition.to_owned()),
        SelectBy::Keys { column, .. } => columns.push(SelectColumn::named(column)),
    }
    options.query.columns = columns;
    let kind = match options.kind {
        Some(kind) => kind,
        None => shardmill_source::detect(locations, &options.remote)?,
    };
    let samples = match kind {
        SourceKind::Webdataset => tar_source::samples(locations, &options)?,
        _ => mds_source::samples(locations, &options)?,
    };
    let source = shardmill_source::over(Arc::new(Numbered::new(samples)?), &options)?;
    let found: Mutex<Found> = Mutex::default();
    let units = source.units().len();
    progress.set_totals(source.description().bytes, 0, units as u64);
    parallel::for_each(units, options.resources.jobs, |unit, (): &mut ()| {
        let mut rows = source.open_unit(unit)?;
        while let Some(batch) = rows.next_batch()? {
            if progress.is_cancelled() {
                return Err(DatasetError::Interrupted.into());
            }
            let (numbers, keys) = match by {
                SelectBy::Where(_) => (numbers_of(&batch)?, HashSet::new()),
                SelectBy::Keys { keys, .. } => with_keys(&batch, keys)?,
            };
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.samples.extend(numbers);
            found.keys.extend(keys);
        }
        progress.add_input_bytes(source.units().get(unit).map_or(0, |unit| unit.bytes));
        progress.add_shard(0);
        Ok::<_, ConvertError>(())
    })?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.samples.sort_unstable();
    let mut missing: Vec<String> = match by {
        SelectBy::Where(_) => Vec::new(),
        SelectBy::Keys { keys, .. } => keys.difference(&found.keys).cloned().collect(),
    };
    missing.sort_unstable();
    Ok(Selected {
        samples: found.samples,
        missing,
    })
}

#[derive(Default)]
struct Found {
    samples: Vec<u64>,
    keys: HashSet<String>,
}

fn numbers_of(batch: &RecordBatch) -> Result<Vec<u64>, ConvertError> {
    let numbers = batch.columns().first();
    let numbers = numbers.and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let numbers = numbers.ok_or_else(|| SourceError::Bug {
        what: "a batch without the numbers of its samples".to_owned(),
    })?;
    Ok(numbers.values().to_vec())
}

/// Returns the numbers of the samples with one of the keys, and these keys.
fn with_keys(
    batch: &RecordBatch,
    keys: &HashSet<String>,
) -> Result<(Vec<u64>, HashSet<String>), ConvertError> {
    let numbers = numbers_of(batch)?;
    let texts = batch
        .columns()
        .get(1)
        .map(|column| cast(column, &DataType::Utf8));
    let texts = texts.and_then(Result::ok).ok_or_else(|| {
        let name = batch
            .schema()
            .fields()
            .get(1)
            .map(|field| field.name().clone());
        let fact = format!("the values of `{}` have no text", name.unwrap_or_default());
        ConvertError::option_hint("key-column", fact, "name a column of texts or numbers")
    })?;
    let pairs = numbers.into_iter().zip(texts.as_string::<i32>());
    let pairs = pairs.filter_map(|(number, key)| Some((number, keys.get(key?)?)));
    Ok(pairs.map(|(number, key)| (number, key.clone())).unzip())
}

/// The samples of a dataset with the column [`SAMPLE_COLUMN`].
struct Numbered {
    source: Arc<dyn Source>,
    /// The number of the first sample of each unit.
    starts: Vec<u64>,
    schema: SchemaRef,
}

impl Numbered {
    fn new(source: Arc<dyn Source>) -> Result<Self, ConvertError> {
        let schema = source.schema();
        if schema.field_with_name(SAMPLE_COLUMN).is_ok() {
            let fact = format!(
                "the dataset has a column `{SAMPLE_COLUMN}`, the name of the numbers of samples"
            );
            return Err(ConvertError::option("where", fact));
        }
        let number = Field::new(SAMPLE_COLUMN, DataType::UInt64, false);
        let fields = std::iter::once(Arc::new(number)).chain(schema.fields().iter().cloned());
        let mut next = 0;
        let mut starts = Vec::with_capacity(source.units().len());
        for unit in source.units() {
            starts.push(next);
            next += unit.rows.unwrap_or_default();
        }
        Ok(Self {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            starts,
            source,
        })
    }
}

impl Source for Numbered {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn units(&self) -> &[Unit] {
        self.source.units()
    }

    fn open_unit(&self, unit: usize) -> Result<Box<dyn Rows>, SourceError> {
        Ok(Box::new(NumberedRows {
            rows: self.source.open_unit(unit)?,
            next: self.starts.get(unit).copied().unwrap_or_default(),
            schema: Arc::clone(&self.schema),
        }))
    }

    fn place(&self, unit: usize, row: u64) -> RowPlace {
        self.source.place(unit, row)
    }

    fn description(&self) -> &SourceDescription {
        self.source.description()
    }
}

struct NumberedRows {
    rows: Box<dyn Rows>,
    next: u64,
    schema: SchemaRef,
}

impl Rows for NumberedRows {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let Some(batch) = self.rows.next_batch()? else {
            return Ok(None);
        };
        let numbers: Range<u64> = self.next..self.next + batch.num_rows() as u64;
        self.next = numbers.end;
        let numbers: ArrayRef = Arc::new(UInt64Array::from_iter_values(numbers));
        let columns = std::iter::once(numbers).chain(batch.columns().iter().cloned());
        let numbered = RecordBatch::try_new(Arc::clone(&self.schema), columns.collect());
        numbered.map(Some).map_err(|error| SourceError::Bug {
            what: format!("a batch with numbers does not fit its schema: {error}"),
        })
    }
}
