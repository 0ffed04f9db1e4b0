//! Tables and file trees as ordered Arrow record batches.
mod error;
mod options;
mod source;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use error::SourceError;
pub use options::{ParseSourceKindError, SelectColumn, SourceKind, SourceOptions, TreeGroup};
pub use source::{
    ENCODING_KEY, RowPlace, Rows, Source, SourceDescription, SourceFile, TreeField, TreeSummary, Unit,
};

/// What a location holds, by its name and, for a directory, by the names in it.
///
/// # Errors
///
/// [`SourceError`] when the location does not exist or is of a kind that is not supported yet.
pub fn detect(location: &Path) -> Result<SourceKind, SourceError> {
    Err(SourceError::NotFound { location: location.display().to_string() })
}

/// Opens locations (files, directories, patterns) as one source.
///
/// # Errors
///
/// [`SourceError`] when an option, a location or its metadata is not usable.
pub fn open(locations: &[PathBuf], options: &SourceOptions) -> Result<Arc<dyn Source>, SourceError> {
    let _ = options;
    let location = locations.first().map(|path| path.display().to_string()).unwrap_or_default();
    Err(SourceError::NotFound { location })
}
