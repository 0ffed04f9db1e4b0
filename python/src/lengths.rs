//! Reads how long the values of a column are, from the file of lengths beside the index of a dataset.

use std::collections::BTreeSet;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardmill_dataset::{Dataset, DatasetError, Lengths, OpenOptions};
use shardmill_storage::Location;

use crate::decode::reader_limits;
use crate::errors::raise;
use crate::storage::{Settings, remote_options};
use crate::view::PyView;
use crate::waiting::wait;

/// Returns the length of a column in every sample, as little-endian 32-bit integers.
#[pyfunction]
#[pyo3(signature = (path, column, with_deleted=false, settings=None, view=None))]
pub(crate) fn lengths<'py>(
    py: Python<'py>,
    path: &str,
    column: String,
    with_deleted: bool,
    settings: Option<Settings>,
    view: Option<Py<PyView>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let location = Location::parse(path).map_err(raise)?;
    let remote = remote_options(settings).map_err(raise)?;
    let options = OpenOptions {
        with_deleted,
        view: view.map(|view| Arc::clone(&view.get().0)),
        limits: reader_limits(py, &BTreeSet::new())?,
        ..OpenOptions::default()
    };
    let read = wait(py, move || {
        let dataset = Dataset::open_at(&location, &options, &remote)?;
        let lengths = Lengths::of(&dataset, &column)?;
        let values = lengths.live_values(dataset.live()).into_iter();
        Ok::<_, DatasetError>(values.flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
    })?;
    Ok(PyBytes::new(py, &read.map_err(raise)?))
}
