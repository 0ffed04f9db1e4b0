//! What views of tables, files and trees refer to.

use shardmill_core::Limits;
use shardmill_dataset::{Catalog, CatalogOptions, Stream, StreamOptions, ViewTarget};
use shardmill_source::{SourceKind, unit_rows};
use shardmill_storage::StorageError;
use shardmill_table::{TableForm, TableOptions, VersionChoice};

use super::dataset_location::DatasetLocation;
use super::options;
use crate::args::{StorageArgs, values};
use crate::error::Stop;

/// What views select from.
pub struct SelectTarget {
    pub target: ViewTarget,
    /// The number of stored samples of each shard, or of rows of each row group. Files and trees have no shards.
    pub shards: Vec<u64>,
    pub kind: SourceKind,
}

/// Returns the format of a table that streams read in place.
pub fn table_format(kind: SourceKind, location: &DatasetLocation) -> Option<&'static str> {
    match kind {
        SourceKind::Parquet if location.is_folder() => Some("parquet"),
        SourceKind::Delta => Some("delta"),
        _ => None,
    }
}

/// Finds what views of the rows at a location refer to. `text` is what the user typed. Without `kind`, it is detected.
///
/// A folder of Parquet files, or a Delta table, is named as a stream that reads it in place. Everything else is named by
/// the paths, sizes and times of its files.
pub fn find(
    text: &str,
    location: &DatasetLocation,
    storage: &StorageArgs,
    limits: &Limits,
    kind: Option<SourceKind>,
    version: VersionChoice,
) -> Result<SelectTarget, Stop> {
    let kind = match kind {
        Some(kind) => kind,
        None => shardmill_source::detect(&values::locations(text)?, &options::remote(storage)?)?,
    };
    let form = match kind {
        _ if table_format(kind, location).is_none() => None,
        SourceKind::Delta => Some(TableForm::Delta(version)),
        _ => Some(TableForm::Parquet),
    };
    if let Some(form) = form {
        return of_table(text, location, storage, limits, kind, form);
    }
    let mut options = options::source(storage, limits.clone())?;
    options.kind = Some(kind);
    options.delta.choice = version;
    let source = shardmill_convert::open_rows(&values::locations(text)?, &options)?;
    let name = format!("{kind} {}", source.description().fingerprint);
    let rows = unit_rows(&*source)?.iter().sum();
    Ok(SelectTarget {
        target: ViewTarget::of_rows(&name, rows),
        shards: Vec::new(),
        kind,
    })
}

/// Opens a table whose row groups are the shards of a stream.
fn of_table(
    text: &str,
    location: &DatasetLocation,
    storage: &StorageArgs,
    limits: &Limits,
    kind: SourceKind,
    form: TableForm,
) -> Result<SelectTarget, Stop> {
    let table = TableOptions {
        form,
        rows_only: true,
        ..TableOptions::default()
    };
    // The list of the files and their footers.
    let cache = tempfile::tempdir().map_err(|source| StorageError::Io {
        action: "create a folder in",
        path: std::env::temp_dir(),
        source,
    })?;
    let stream = StreamOptions {
        files: Some(table.files()),
        ..StreamOptions::remote(location.location(), cache.path())
    };
    let options = CatalogOptions {
        limits: limits.clone(),
        remote: options::remote(storage)?,
        ..CatalogOptions::default()
    };
    let catalog = Catalog::open(&[stream], &options)?;
    let target = catalog.view_target(0);
    let target = target.ok_or_else(|| location.no_dataset(text))?;
    let shards = catalog.streams().iter().flat_map(Stream::shard_sizes);
    Ok(SelectTarget {
        target,
        shards: shards.collect(),
        kind,
    })
}
