//! Finds and opens the rows at a location, which may be a dataset or a source.

use std::sync::Arc;

use shardmill_core::Limits;
use shardmill_source::{SchemaRule, Source, SourceKind, SourceOptions};
use shardmill_storage::Location;

use super::dataset::{self, Found};
use super::dataset_location::DatasetLocation;
use super::options;
use crate::args::{StorageArgs, parse_locations};
use crate::error::Stop;

/// What a location holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsFound {
    /// Tar files.
    Tars,
    /// A dataset with an index.
    Mds,
    /// A table or a tree.
    Source,
}

/// Finds out what a location holds. `location` is the text that the user typed.
pub fn find(
    location: &str,
    dataset_location: &DatasetLocation,
    limits: &Limits,
) -> Result<RowsFound, Stop> {
    match dataset::find_any(dataset_location, limits)? {
        Found::Tars => Ok(RowsFound::Tars),
        Found::One => Ok(RowsFound::Mds),
        Found::Splits(splits) => Err(dataset::several(location, splits)),
        Found::Nothing if dataset_location.holds_shards() => {
            Err(dataset_location.no_dataset(location).into())
        }
        Found::Nothing => Ok(RowsFound::Source),
    }
}

/// Returns the options for reading a source as it is.
pub fn source_options(storage: &StorageArgs, limits: Limits) -> Result<SourceOptions, Stop> {
    let mut source = SourceOptions {
        remote: options::remote(storage)?,
        limits,
        ..SourceOptions::default()
    };
    // Objects are read as in a conversion.
    source.text.raw_objects = true;
    source.schema.rule = SchemaRule::Union;
    Ok(source)
}

/// Opens the rows at a location.
pub fn open(
    location: &str,
    storage: &StorageArgs,
    limits: Limits,
    view: Option<&Location>,
    jobs: usize,
) -> Result<Arc<dyn Source>, Stop> {
    let dataset_location = DatasetLocation::parse(location, storage)?;
    let found = find(location, &dataset_location, &limits)?;
    let mut options = source_options(storage, limits)?;
    options.resources.jobs = jobs;
    options.samples.view = view.cloned();
    options.kind = match found {
        RowsFound::Tars => Some(SourceKind::Webdataset),
        RowsFound::Mds => Some(SourceKind::Mds),
        RowsFound::Source => None,
    };
    // A pattern of tar files has its own syntax, which sources know as well.
    let places = parse_locations(location)?;
    Ok(shardmill_convert::open_rows(&places, &options)?)
}
