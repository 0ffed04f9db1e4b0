//! Tables that are read in place.

use pyo3::prelude::*;
use shardmill_storage::{Folder, Location};
use shardmill_table::{NullValues, TableForm, TableOptions, VersionChoice};

use crate::errors::raised;
use crate::storage::{Settings, remote_options};

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTableOptions>()?;
    module.add_function(wrap_pyfunction!(delta_version, module)?)
}

/// A table that is read in place: its `columns` (all if empty), the `version` of a Delta table, and whether nulls are
/// zeros that columns mark.
#[pyclass(frozen, name = "TableOptions", module = "shardmill._core")]
pub(crate) struct PyTableOptions(pub(crate) TableOptions);

#[pymethods]
impl PyTableOptions {
    #[new]
    #[pyo3(signature = (columns, version=None, masks_nulls=false))]
    fn new(columns: Vec<String>, version: Option<u64>, masks_nulls: bool) -> Self {
        let form = match version {
            None => TableForm::Parquet,
            Some(_) => TableForm::Delta(VersionChoice {
                version,
                timestamp_ms: None,
            }),
        };
        let nulls = match masks_nulls {
            true => NullValues::Mask,
            false => NullValues::None,
        };
        Self(TableOptions {
            columns,
            form,
            nulls,
            rows_only: false,
        })
    }
}

/// Returns the number of the latest version of a Delta table.
#[pyfunction]
#[pyo3(signature = (location, settings=None))]
fn delta_version(py: Python<'_>, location: &str, settings: Option<Settings>) -> PyResult<u64> {
    let found = py.detach(|| {
        let location = Location::parse(location)?;
        let source = Folder::open(&location, &remote_options(settings)?)?;
        shardmill_table::delta_version(&source, &VersionChoice::default())
    });
    found.map_err(raised)
}
