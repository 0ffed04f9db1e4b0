//! The differences between the rows of two sources.

mod hashes; // Hashes of single values.
mod spill; // Rows that wait for their partners, in memory or in temporary files.

mod keyed; // Rows with the same key.
mod ordered; // Rows at the same position.

use std::path::PathBuf;

use serde::Serialize;
use shardmill_core::Progress;
use shardmill_source::{Source, SourceError};

use crate::column::type_name;
use hashes::{CellHasher, comparable};

/// Options of [`diff`].
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

/// The columns that two sources have in common.
pub(crate) struct Common {
    pub(crate) names: Vec<String>,
    /// For each name, the position in the first and in the second source.
    pub(crate) places: Vec<(usize, usize)>,
    pub(crate) hashers: Vec<CellHasher>,
}

impl Common {
    /// Returns the names of the columns whose hashes differ.
    fn differing(&self, before: &[u64], after: &[u64]) -> Vec<String> {
        let hashes = before.iter().zip(after);
        let names = self.names.iter().zip(hashes);
        names
            .filter(|(_, (before, after))| before != after)
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// Compares the rows of two sources. With a key, rows that share their key are compared, in any order; the k-th row with
/// a key is compared with the k-th row with that key.
///
/// Values are compared by their 64-bit hashes. Memory is bounded: rows that do not fit are written to temporary files.
///
/// # Errors
///
/// Those of the sources; [`SourceError::Foreign`] if the key is not a column of both, if a temporary file cannot be
/// written, and after a cancellation.
pub fn diff(
    sources: [&dyn Source; 2],
    options: &DiffOptions,
    progress: &Progress,
) -> Result<Diff, SourceError> {
    let (columns, common) = match_columns(sources, options.key.as_deref())?;
    let mut found = Diff {
        columns,
        compared: common.names.clone(),
        ..Diff::default()
    };
    let rows = sources.map(|source| source.description().rows.unwrap_or(0));
    let bytes = sources.map(|source| source.description().bytes);
    progress.set_totals(bytes.iter().sum(), rows.iter().sum(), 0);
    if options.rows_are_identical {
        found.rows = rows.into();
        found.same = found.rows.0;
        return Ok(found);
    }
    match &options.key {
        Some(key) => keyed::compare(sources, key, &common, options, &mut found, progress)?,
        None => ordered::compare(sources, &common, options.listed, &mut found, progress)?,
    }
    Ok(found)
}

/// Finds the columns to compare, and those that differ.
fn match_columns(
    sources: [&dyn Source; 2],
    key: Option<&str>,
) -> Result<(Vec<ColumnChange>, Common), SourceError> {
    let [before, after] = sources.map(Source::schema);
    // The types of a table and the encodings of a dataset have different names.
    let same_kind = sources[0].description().kind == sources[1].description().kind;
    let mut changes = Vec::new();
    let mut common = Common {
        names: Vec::new(),
        places: Vec::new(),
        hashers: Vec::new(),
    };
    for (at, field) in before.fields().iter().enumerate() {
        let other = after.column_with_name(field.name());
        let is_comparable =
            other.is_some_and(|(_, other)| comparable(field.data_type(), other.data_type()));
        let is_same = other.is_some_and(|(_, other)| {
            is_comparable && (!same_kind || type_name(field) == type_name(other))
        });
        if !is_same {
            changes.push(ColumnChange {
                name: field.name().clone(),
                before: Some(type_name(field)),
                after: other.map(|(_, other)| type_name(other)),
            });
        }
        if let Some((other, _)) = other.filter(|_| is_comparable && key != Some(field.name())) {
            common.names.push(field.name().clone());
            common.places.push((at, other));
            common.hashers.push(CellHasher::new(field.data_type()));
        }
    }
    for field in after.fields() {
        if before.column_with_name(field.name()).is_none() {
            changes.push(ColumnChange {
                name: field.name().clone(),
                before: None,
                after: Some(type_name(field)),
            });
        }
    }
    if let Some(key) = key {
        for (source, schema) in [&before, &after].into_iter().enumerate() {
            if schema.column_with_name(key).is_none() {
                let which = ["first", "second"].get(source).copied().unwrap_or_default();
                return Err(key_error(
                    key,
                    format!("the {which} dataset has no such column"),
                ));
            }
        }
        let types = [&before, &after].map(|schema| schema.field_with_name(key));
        if let [Ok(a), Ok(b)] = types
            && !comparable(a.data_type(), b.data_type())
        {
            let (a, b) = (a.data_type(), b.data_type());
            return Err(key_error(
                key,
                format!("it is of type {a} in one dataset and {b} in the other"),
            ));
        }
    }
    Ok((changes, common))
}

fn key_error(key: &str, message: String) -> SourceError {
    SourceError::Foreign {
        kind: shardmill_core::ErrorKind::InvalidInput,
        id: "column-unknown",
        object: Some(key.to_owned()),
        message,
        hint: Some("choose a column that both datasets have with --key".to_owned()),
    }
}
