//! The differences between the rows of two sources.

mod report; // What is reported.

mod hashes; // Hashes of single values.
mod spill; // Rows that wait for their partners, in memory or in temporary files.

mod common; // Columns of both.

mod keyed; // Rows with the same key.
mod ordered; // Rows at the same position.

use shardmill_core::Progress;
use shardmill_source::{Source, SourceError};

pub use report::{ChangeKind, ColumnChange, Diff, DiffOptions, RowChange};

use common::match_columns;

/// Compares the rows of two sources. With a key, rows that share their key are compared, in any order; the k-th row with
/// a key is compared with the k-th row with that key.
///
/// Values are compared by their 64-bit hashes. Memory is bounded: rows that do not fit are written to temporary files.
///
/// # Errors
///
/// Those of the sources; [`SourceError::Described`] if the key is not a column of both, if a temporary file cannot be
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
