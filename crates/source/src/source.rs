use std::fmt;

use arrow::array::{Array as _, RecordBatch};
use arrow::datatypes::SchemaRef;

use crate::{SourceError, SourceKind};

/// The key of a field's metadata that suggests an MDS encoding (`jpeg`, `png`, `json`, `str`, `bytes`).
pub const ENCODING_KEY: &str = "shardmill:encoding";

/// Rows in a fixed order, cut into units that can be read independently.
///
/// Guarantees: `schema()`, `units()` and every row are the same each time the same, unchanged input is
/// opened with the same options, whatever the number of threads. The order of the dataset is the order
/// of `units()`, and in each unit the order of its batches.
pub trait Source: Send + Sync {
    /// The columns of every batch, in order. A field's metadata may suggest an encoding under
    /// [`ENCODING_KEY`].
    fn schema(&self) -> SchemaRef;

    /// The parts in the order of the dataset.
    fn units(&self) -> &[Unit];

    /// Starts to read one unit. Units may be read at the same time by different threads, in any order,
    /// and more than once.
    ///
    /// # Errors
    ///
    /// [`SourceError`] when the unit does not exist, its file is gone, has changed or cannot be read.
    fn open_unit(&self, unit: usize) -> Result<Box<dyn Rows>, SourceError>;

    /// How many nulls a column has in all units together, when that is known exactly without reading rows.
    fn null_count(&self, column: usize) -> Option<u64> {
        let _ = column;
        None
    }

    /// Where the first null of a column is, in the order of the dataset; `None` when it has none. Reads
    /// as many rows as that takes.
    ///
    /// # Errors
    ///
    /// As [`Source::open_unit`] and [`Rows::next_batch`].
    fn first_null(&self, column: usize) -> Result<Option<RowPlace>, SourceError> {
        first_null_by_reading(self, column)
    }

    /// The key of a sample of a tree, by its number within the unit; `None` for other sources, and where rows are
    /// computed.
    fn key(&self, unit: usize, row: u64) -> Option<String> {
        let _ = (unit, row);
        None
    }

    /// What was opened.
    fn description(&self) -> &SourceDescription;
}

/// The rows of one unit, in order.
pub trait Rows: Send {
    /// The next batch, never an empty one; `None` after the last. After an error the unit is over.
    ///
    /// # Errors
    ///
    /// [`SourceError`] when data is corrupt, has changed since it was listed, or cannot be read.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError>;
}

/// A part of a source that is read by one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// The file it lies in, as an index into [`SourceDescription::files`]; `None` for a query.
    pub file: Option<usize>,
    /// The row of that file (for a tree: the sample of that location) it begins with, from 0, where known
    /// and where rows are neither filtered nor regrouped.
    pub first_row: Option<u64>,
    /// How many rows it yields, where known before reading.
    pub rows: Option<u64>,
    /// About how many stored bytes reading it takes.
    pub bytes: u64,
}

/// Where a row came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// The file, as in [`SourceDescription::files`]; for a query, `query`.
    pub file: String,
    /// The row of that file before any filter, from 0; for a tree the sample.
    pub row: u64,
    /// The key of the sample, for a tree.
    pub key: Option<String>,
}

impl fmt::Display for RowPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "sample {}", shardmill_core::escape(key)),
            None => write!(f, "{} row {}", shardmill_core::escape(&self.file), self.row),
        }
    }
}

/// One input file; for a tree, one location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The path as opened.
    pub path: String,
    /// Its size when it was listed; for a tree, of all files together.
    pub bytes: u64,
}

/// What was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceDescription {
    /// What the locations hold.
    pub kind: SourceKind,
    /// The normalised text of the filter, expressions or query; `None` when columns are taken as they are.
    pub query: Option<String>,
    /// The files in order. A tree has one entry a location: it may hold ten million files.
    pub files: Vec<SourceFile>,
    /// How many rows all units yield together, where known before reading.
    pub rows: Option<u64>,
    /// How many bytes the files have together.
    pub bytes: u64,
    /// 32 hexadecimal digits over the sorted relative paths, sizes and modification times of the files.
    /// Any change of the input changes it; moving the input to another directory does not.
    pub fingerprint: String,
    /// What a tree consists of.
    pub tree: Option<TreeSummary>,
    /// Which version of a Delta table this is.
    pub delta: Option<DeltaSummary>,
    /// Samples of datasets that are left out, because their tables no longer have them.
    pub deleted_samples: u64,
}

impl SourceDescription {
    /// A description without files.
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
            deleted_samples: 0,
        }
    }
}

/// What the log says about one version of a Delta table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeltaSummary {
    /// The version that is read.
    pub version: u64,
    /// When it was committed, in milliseconds since 1970: the time in the commit where the table keeps such
    /// times, else that of the commit's file. `None` where only a checkpoint is left of it.
    pub timestamp_ms: Option<i64>,
    /// The oldest version that can be read, where that is known.
    pub earliest_version: Option<u64>,
    /// The latest version, where that is known.
    pub latest_version: Option<u64>,
    /// The table's own id.
    pub id: String,
    /// The table's name, if it has one.
    pub name: Option<String>,
    /// The reader version of the protocol.
    pub min_reader_version: i32,
    /// The writer version of the protocol.
    pub min_writer_version: i32,
    /// What the table needs of its readers, where it lists that.
    pub reader_features: Vec<String>,
    /// What the table needs of its writers, where it lists that.
    pub writer_features: Vec<String>,
    /// `id` or `name`, where columns are mapped.
    pub column_mapping: Option<&'static str>,
    /// The columns whose values are in the log.
    pub partition_columns: Vec<String>,
    /// How many rows of the files are deleted by deletion vectors.
    pub deleted_rows: u64,
    /// How many files have a deletion vector.
    pub files_with_deletions: u64,
    /// The files that are read, in the order of [`SourceDescription::files`].
    pub files: Vec<DeltaFile>,
}

/// A data file of a Delta table. Its bytes never change; which of its rows count does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeltaFile {
    /// Relative to the table, or absolute where the log says so.
    pub path: String,
    /// What tells its deletion vector from others, if it has one.
    pub deletion: Option<String>,
}

/// What became of a Delta table since a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaHistory {
    /// The version that was asked for.
    pub version: u64,
    /// The table's own id.
    pub id: String,
    /// The files of that version.
    pub files: Vec<DeltaFile>,
    /// The commits after the earlier version, up to this one; `None` where one of them is no longer there.
    pub commits: Option<Vec<DeltaCommit>>,
}

/// What a commit did to the files of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaCommit {
    /// The rows are the same before and after: they were only moved to other files.
    pub rearranges: bool,
    /// Files that no longer count, or not in this form.
    pub removed: Vec<DeltaFile>,
    /// Files that count from now on.
    pub added: Vec<DeltaFile>,
}

impl DeltaSummary {
    /// The time of the version as RFC 3339 in UTC.
    #[must_use]
    pub fn timestamp(&self) -> Option<String> {
        self.timestamp_ms.map(crate::delta::shown_time)
    }
}

/// How many files and samples a tree has, and which fields how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeSummary {
    /// Files in all.
    pub files: u64,
    /// Samples: distinct keys.
    pub samples: u64,
    /// The fields in the order of the schema, without the key.
    pub fields: Vec<TreeField>,
}

/// One field of a tree's samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeField {
    /// Its name: an extension, or `data`.
    pub name: String,
    /// How many samples have it.
    pub samples: u64,
}

/// The plain way to find a null: reads unit after unit until there is one.
pub(crate) fn first_null_by_reading<S: Source + ?Sized>(
    source: &S,
    column: usize,
) -> Result<Option<RowPlace>, SourceError> {
    if source.null_count(column) == Some(0) {
        return Ok(None);
    }
    let description = source.description();
    for (number, unit) in source.units().iter().enumerate() {
        let mut row = unit.first_row.unwrap_or(0);
        let mut rows = source.open_unit(number)?;
        while let Some(batch) = rows.next_batch()? {
            let Some(values) = batch.columns().get(column) else {
                return Ok(None);
            };
            if let Some(nulls) = values.logical_nulls()
                && let Some(at) = nulls.iter().position(|valid| !valid)
            {
                let file = unit.file.and_then(|file| description.files.get(file));
                return Ok(Some(RowPlace {
                    file: file.map_or_else(|| "query".to_owned(), |file| file.path.clone()),
                    row: row + at as u64,
                    key: None,
                }));
            }
            row += batch.num_rows() as u64;
        }
    }
    Ok(None)
}
