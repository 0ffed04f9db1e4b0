//! Finds and opens the rows at a location, which may be a dataset or a source.

use std::sync::Arc;

use shardmill_core::Limits;
use shardmill_dataset::View;
use shardmill_source::{Source, SourceDescription, SourceKind, VersionChoice};
use shardmill_storage::Location;

use super::dataset::{self, Found};
use super::dataset_location::DatasetLocation;
use super::{options, source_views};
use crate::args::{StorageArgs, values};
use crate::error::Stop;
use crate::output::many;

/// Finds out what a location holds: tar files, a dataset with an index (`Mds`), or a table or a tree, of which the kind is
/// not known (`None`). `location` is the text that the user typed.
pub fn find(
    location: &str,
    dataset_location: &DatasetLocation,
    limits: &Limits,
) -> Result<Option<SourceKind>, Stop> {
    match dataset::find_any(dataset_location, limits)? {
        Found::Tars => Ok(Some(SourceKind::Webdataset)),
        Found::One => Ok(Some(SourceKind::Mds)),
        Found::Splits(splits) => Err(dataset::several(location, splits)),
        Found::Nothing if dataset_location.holds_shards() => {
            Err(dataset_location.no_dataset(location).into())
        }
        Found::Nothing => Ok(None),
    }
}

/// Returns the number of files of a source, and the number of its rows as text.
pub fn size_of(source: &SourceDescription) -> (u64, String) {
    let files = source.files.len() as u64;
    let files = source.tree.as_ref().map_or(files, |tree| tree.files);
    let rows = source.rows.map(|rows| many(rows, "row"));
    (files, rows.unwrap_or("rows not counted".to_owned()))
}

/// Opens the rows at a location, all or those of a view.
pub fn open(
    location: &str,
    storage: &StorageArgs,
    limits: Limits,
    view: Option<&Location>,
    jobs: usize,
) -> Result<Arc<dyn Source>, Stop> {
    let dataset_location = DatasetLocation::parse(location, storage)?;
    let mut options = options::source(storage, limits.clone())?;
    options.resources.jobs = jobs;
    options.kind = find(location, &dataset_location, &limits)?;
    let is_source = options.kind.is_none();
    options.samples.view = view.filter(|_| !is_source).cloned();
    // A pattern of tar files has its own syntax, which sources know as well.
    let locations = values::locations(location)?;
    let source = shardmill_convert::open_rows(&locations, &options)?;
    let Some(view) = view.filter(|_| is_source) else {
        return Ok(source);
    };
    let view = View::read(view, &options.remote)?;
    let found = source_views::find(
        location,
        &dataset_location,
        storage,
        &limits,
        None,
        VersionChoice::default(),
    )?;
    let live = view.live_of(&found.target, location)?;
    Ok(shardmill_convert::live_rows(source, live, location)?)
}
