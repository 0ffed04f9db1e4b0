//! Tables that are read in place.

use pyo3::prelude::*;
use shardmill_storage::{Folder, Location};
use shardmill_table::{NullValues, TableForm, TableOptions, VersionChoice};

use crate::errors::raise;
use crate::storage::{Settings, remote_options};

/// Returns the options of a table of Parquet files, or of the `version` of a Delta table.
pub(crate) fn table_options(
    columns: Vec<String>,
    version: Option<u64>,
    masks_nulls: bool,
) -> TableOptions {
    TableOptions {
        columns,
        form: match version {
            None => TableForm::Parquet,
            Some(_) => TableForm::Delta(VersionChoice {
                version,
                timestamp_ms: None,
            }),
        },
        nulls: match masks_nulls {
            true => NullValues::Mask,
            false => NullValues::None,
        },
        rows_only: false,
    }
}

/// Returns the number of the latest version of a Delta table.
#[pyfunction]
#[pyo3(signature = (location, settings=None))]
pub(crate) fn delta_version(
    py: Python<'_>,
    location: &str,
    settings: Option<Settings>,
) -> PyResult<u64> {
    let found = py.detach(|| {
        let location = Location::parse(location)?;
        let source = Folder::open(&location, &remote_options(settings)?)?;
        shardmill_table::delta_version(&source, &VersionChoice::default())
    });
    found.map_err(raise)
}
