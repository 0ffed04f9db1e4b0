//! Opens the rows of tables, trees and datasets.

use std::sync::Arc;

use shardmill_core::Error;
use shardmill_source::{Source, SourceKind, SourceOptions};
use shardmill_storage::Location;

use crate::{mds_source, tar_source};

/// Opens locations of one kind as one source: the shards of datasets as well as tables and trees.
///
/// Without [`SourceOptions::kind`], the kind is detected.
///
/// # Errors
///
/// A location or an option is not usable.
pub fn open_rows(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<Arc<dyn Source>, Error> {
    let kind = match options.kind {
        Some(kind) => kind,
        None => shardmill_source::detect(locations, &options.remote)?,
    };
    let samples = match kind {
        SourceKind::Webdataset => tar_source::samples(locations, options)?,
        SourceKind::Mds => mds_source::samples(locations, options)?,
        _ => {
            let options = SourceOptions {
                kind: Some(kind),
                ..options.clone()
            };
            return shardmill_source::open(locations, &options);
        }
    };
    shardmill_source::over(samples, options)
}
