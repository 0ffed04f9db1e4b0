//! A source: its schema, its units and its description.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array as _, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use shardmill_core::Error;
use shardmill_delta::DeltaSummary;

use crate::SourceKind;

pub use shardmill_core::ENCODING_KEY;

/// What is known of a source before its rows are read.
pub struct TableFacts {
    /// The columns of every batch, in order. The metadata of a field may suggest an encoding under [`ENCODING_KEY`].
    pub schema: SchemaRef,
    /// The units in the order of the dataset.
    pub units: Vec<Unit>,
    /// For each column, how many nulls it has in all units together, if that is known exactly without reading rows.
    pub null_counts: Vec<Option<u64>>,
    /// Describes what was opened.
    pub description: SourceDescription,
}

impl TableFacts {
    /// Returns the facts of a source with the same units and other columns.
    #[must_use]
    pub fn with_columns(&self, schema: SchemaRef, null_counts: Vec<Option<u64>>) -> Self {
        Self {
            schema,
            units: self.units.clone(),
            null_counts,
            description: self.description.clone(),
        }
    }
}

/// Rows in a fixed order, split into units that can be read independently.
///
/// The facts and all rows are the same each time the same, unchanged input is opened with the same options, whatever the
/// number of threads. The order of the dataset is the order of `units()`, and within each unit the order of its batches.
pub trait Source: Send + Sync {
    /// Returns what is known of the source.
    fn facts(&self) -> &TableFacts;

    /// Starts to read some columns of a unit, whose positions are ascending and distinct. Batches have these columns in
    /// this order; without columns, they only have a number of rows. Different threads may read units at the same time,
    /// in any order, and more than once.
    ///
    /// # Errors
    ///
    /// `NotFound` or `Corrupt` when the file of the unit is missing or has changed; `Storage` when it cannot be read.
    fn open(&self, unit: usize, columns: &[usize]) -> Result<Box<dyn Rows>, Error>;

    /// Starts to read all columns of a unit.
    ///
    /// # Errors
    ///
    /// As [`Source::open`].
    fn open_unit(&self, unit: usize) -> Result<Box<dyn Rows>, Error> {
        let columns: Vec<usize> = (0..self.facts().schema.fields().len()).collect();
        self.open(unit, &columns)
    }

    /// Returns the columns of every batch.
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.facts().schema)
    }

    /// Returns the units in the order of the dataset.
    fn units(&self) -> &[Unit] {
        &self.facts().units
    }

    /// Describes what was opened.
    fn description(&self) -> &SourceDescription {
        &self.facts().description
    }

    /// Returns how many nulls a column has in all units together, if that is known exactly without reading rows.
    fn null_count(&self, column: usize) -> Option<u64> {
        self.facts().null_counts.get(column).copied().flatten()
    }

    /// Returns the number of nulls of a column in one unit, if statistics record it.
    fn unit_null_count(&self, unit: usize, column: usize) -> Option<u64> {
        let _ = (unit, column);
        None
    }

    /// Returns the origin of the first null of a column, in the order of the dataset; `None` if it has none. Reads as
    /// many rows as needed.
    ///
    /// # Errors
    ///
    /// As [`Source::open`] and [`Rows::next_batch`].
    fn first_null(&self, column: usize) -> Result<Option<RowOrigin>, Error> {
        if self.null_count(column) == Some(0) {
            return Ok(None);
        }
        // Statistics rule nulls out in some units.
        for unit in 0..self.units().len() {
            if self.unit_null_count(unit, column) == Some(0) {
                continue;
            }
            let mut rows = self.open(unit, &[column])?;
            let mut before = 0;
            while let Some(batch) = rows.next_batch()? {
                let nulls = batch.columns().first().and_then(|own| own.logical_nulls());
                if let Some(at) = nulls.and_then(|nulls| nulls.iter().position(|valid| !valid)) {
                    return Ok(Some(self.row_origin(unit, before + at as u64)));
                }
                before += batch.num_rows() as u64;
            }
        }
        Ok(None)
    }

    /// Does the work that comes before the first unit, such as sorting. Without this call, opening a unit does it.
    /// Calls `cancel` often, from any thread, and returns `false` soon after `cancel` returned `false`.
    ///
    /// # Errors
    ///
    /// As [`Source::open`] and [`Rows::next_batch`].
    fn prepare(&self, cancel: &(dyn Fn() -> bool + Sync)) -> Result<bool, Error> {
        Ok(cancel())
    }

    /// Checks that columns can be read from all files. If files disagree about a column, that is an error only if the
    /// column is read.
    ///
    /// # Errors
    ///
    /// `Corrupt` for the first column that some file has in another form.
    fn check_columns(&self, columns: &[usize]) -> Result<(), Error> {
        let _ = columns;
        Ok(())
    }

    /// Returns which units may have rows that meet a condition over the columns; `None` if statistics cannot tell.
    fn may_match(&self, condition: &Arc<dyn PhysicalExpr>) -> Option<Vec<bool>> {
        let _ = condition;
        None
    }

    /// Announces which units will be opened, ascending. It is not called if all of them will be.
    fn will_read(&self, units: &[usize]) {
        let _ = units;
    }

    /// Returns the row number within the file, before any filter, of a row of a unit; `None` if it is not known.
    fn file_row(&self, unit: usize, row: u64) -> Option<u64> {
        Some(self.units().get(unit)?.first_row? + row)
    }

    /// Returns the key of a row of a unit, if the source has keys.
    fn key(&self, unit: usize, row: u64) -> Option<String> {
        let _ = (unit, row);
        None
    }

    /// Returns the origin of a row, by its number within the unit, for messages. It may read files again.
    fn row_origin(&self, unit: usize, row: u64) -> RowOrigin {
        let file = self.units().get(unit).and_then(|unit| unit.file);
        let file = file.and_then(|file| self.description().files.get(file));
        match file.zip(self.file_row(unit, row)) {
            Some((file, row_of_file)) => RowOrigin {
                file: Some(file.path.clone()),
                row: row_of_file,
                key: self.key(unit, row),
            },
            None => RowOrigin::of_result(row),
        }
    }
}

/// The rows of one unit, in order.
pub trait Rows: Send {
    /// Returns the next batch, which is never empty; `None` after the last. After an error, the unit cannot be read
    /// further.
    ///
    /// # Errors
    ///
    /// `Corrupt` when data is damaged or has changed since it was listed; `Storage` when it cannot be read.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error>;
}

/// A part of a source, read by one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// The file that contains it, as an index into [`SourceDescription::files`]; `None` for a query.
    pub file: Option<usize>,
    /// The first row of the unit within its file (for a tree: the first sample within its location), from 0. `None` if
    /// unknown, or if rows are filtered or regrouped.
    pub first_row: Option<u64>,
    /// The number of its rows, if known before reading.
    pub rows: Option<u64>,
    /// The approximate number of stored bytes that are read.
    pub bytes: u64,
}

/// The origin of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowOrigin {
    /// The file, as in [`SourceDescription::files`]; `None` for a row of a result that no single file has.
    pub file: Option<String>,
    /// The row of that file before any filter, from 0; for a tree, the sample. Without a file, the row of the result.
    pub row: u64,
    /// The key of the sample, for trees and tar files.
    pub key: Option<String>,
}

impl RowOrigin {
    /// Returns the origin of a row of a result, for which no file is known.
    pub(crate) const fn of_result(row: u64) -> Self {
        Self {
            file: None,
            row,
            key: None,
        }
    }
}

impl fmt::Display for RowOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.key, &self.file) {
            (Some(key), _) => write!(f, "sample {}", shardmill_core::escape(key)),
            (None, Some(file)) => {
                write!(f, "row {} of {}", self.row, shardmill_core::escape(file))
            }
            (None, None) => write!(f, "row {} of the result", self.row),
        }
    }
}

/// One input file; for a tree, one location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The path as opened.
    pub path: String,
    /// Its size when it was listed; for a tree, the total size of all files.
    pub bytes: u64,
}

/// A description of an opened source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDescription {
    /// What the locations hold.
    pub kind: SourceKind,
    /// The normalised text of the filter, expressions or query; `None` if the columns are unchanged.
    pub query: Option<String>,
    /// The files in order. A tree has one entry for each location, because it may have ten million files.
    pub files: Vec<SourceFile>,
    /// The total number of rows of all units, if known before reading.
    pub rows: Option<u64>,
    /// The total size of the files in bytes.
    pub bytes: u64,
    /// 32 hexadecimal digits over the sorted relative paths, sizes and modification times of the files. They change
    /// whenever the input changes, but not if it moves to another directory.
    pub fingerprint: String,
    /// The contents of a tree.
    pub tree: Option<TreeSummary>,
    /// The version of a Delta table.
    pub delta: Option<DeltaSummary>,
    /// The types, the dimensions and the attributes of the arrays of a Zarr store, and the attributes of their group.
    pub zarr: Option<serde_json::Value>,
    /// The number of samples left out because they were deleted from the dataset's table.
    pub deleted_samples: u64,
}

impl SourceDescription {
    /// Creates a description without files.
    #[must_use]
    pub const fn new(kind: SourceKind) -> Self {
        Self {
            kind,
            query: None,
            files: Vec::new(),
            rows: None,
            bytes: 0,
            fingerprint: String::new(),
            tree: None,
            delta: None,
            zarr: None,
            deleted_samples: 0,
        }
    }
}

/// The number of files and samples of a tree, and how often each field occurs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeSummary {
    /// The number of files.
    pub files: u64,
    /// The number of samples, which is the number of distinct keys.
    pub samples: u64,
    /// The fields in the order of the schema, without the key.
    pub fields: Vec<TreeField>,
}

/// One field of a tree's samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeField {
    /// Its name: an extension, or `data`.
    pub name: String,
    /// The number of samples that have it.
    pub samples: u64,
}

/// Returns the number of rows of each unit. Units whose rows are not known, such as those of text files, are read to count
/// them.
///
/// # Errors
///
/// As [`Source::open`] and [`Rows::next_batch`].
pub fn unit_rows(source: &dyn Source) -> Result<Vec<u64>, Error> {
    let mut counts = Vec::with_capacity(source.units().len());
    for (number, unit) in source.units().iter().enumerate() {
        let mut count = unit.rows.unwrap_or(0);
        if unit.rows.is_none() {
            let mut rows = source.open(number, &[])?;
            while let Some(batch) = rows.next_batch()? {
                count += batch.num_rows() as u64;
            }
        }
        counts.push(count);
    }
    Ok(counts)
}
