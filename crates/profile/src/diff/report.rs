//! What is compared, and what is reported.

use std::path::PathBuf;

use serde::Serialize;

/// Options of [`diff`](crate::diff).
#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    /// The column whose values identify rows; `None` to compare rows at the same position.
    pub key: Option<String>,
    /// The most differences of rows to list. All of them are counted.
    pub listed: usize,
    /// The directory for rows that do not fit into memory; `None` for the system's temporary directory.
    pub temp_dir: Option<PathBuf>,
    /// Whether the rows are known to be the same, from the hashes of their files. Then none are read.
    pub rows_are_identical: bool,
}

/// The differences between two sources, the first and the second one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diff {
    /// The numbers of rows of both.
    pub rows: (u64, u64),
    /// The columns that are not the same.
    pub columns: Vec<ColumnChange>,
    /// The names of the columns whose values were compared.
    pub compared: Vec<String>,
    /// The number of rows that only the second one has.
    pub added: u64,
    /// The number of rows that only the first one has.
    pub removed: u64,
    /// The number of rows with other values.
    pub changed: u64,
    /// The number of rows with the same values.
    pub same: u64,
    /// The first differences of rows.
    pub changes: Vec<RowChange>,
}

impl Diff {
    /// Returns whether there is no difference.
    #[must_use]
    pub const fn is_equal(&self) -> bool {
        self.columns.is_empty() && self.added == 0 && self.removed == 0 && self.changed == 0
    }
}

/// A column that is not the same in both sources. A column whose types differ is not compared by its values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ColumnChange {
    /// Its name.
    pub name: String,
    /// Its encoding or type in the first source, if that has it.
    pub before: Option<String>,
    /// Its encoding or type in the second source, if that has it.
    pub after: Option<String>,
}

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// Only the first source has it.
    Removed,
    /// Its values differ.
    Changed,
    /// Only the second source has it.
    Added,
}

/// A row that is not the same in both sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowChange {
    /// What happened.
    pub change: ChangeKind,
    /// Its key, shortened to 200 bytes; `None` if rows are compared by position.
    pub key: Option<String>,
    /// Its number in the first source, from 0.
    pub before: Option<u64>,
    /// Its number in the second source, from 0.
    pub after: Option<u64>,
    /// The names of the columns with other values.
    pub columns: Vec<String>,
}
