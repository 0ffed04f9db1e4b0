//! Views: selected samples of a dataset.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardmill_core::ErrorKind;
use shardmill_dataset::View;
use shardmill_storage::{Dir, Location, PublishMode};

use crate::errors::{raise, raise_with};
use crate::storage::{Settings, folder_and_name, remote_options};
use crate::waiting::wait;

/// Selected samples of a dataset, by their stored numbers.
#[pyclass(frozen, name = "View", module = "shardmill._core")]
pub(crate) struct PyView(pub(crate) Arc<View>);

impl PyView {
    pub(crate) fn of(view: View) -> Self {
        Self(Arc::new(view))
    }
}

#[pymethods]
impl PyView {
    /// Reads a file, or an object of a store.
    #[staticmethod]
    #[pyo3(signature = (path, settings=None))]
    fn read(py: Python<'_>, path: &str, settings: Option<Settings>) -> PyResult<Self> {
        let location = Location::parse(path).map_err(raise)?;
        let remote = remote_options(settings).map_err(raise)?;
        let read = wait(py, move || View::read(&location, &remote))?;
        read.map(Self::of).map_err(raise)
    }

    /// Parses the bytes of a file.
    #[staticmethod]
    fn from_bytes(data: &[u8]) -> PyResult<Self> {
        View::parse(data, "view").map(Self::of).map_err(raise)
    }

    /// Returns the bytes of the file.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| self.0.to_bytes());
        PyBytes::new(py, &bytes)
    }

    /// Writes the file. It is complete or not there.
    fn save(&self, py: Python<'_>, path: PathBuf, overwrite: bool) -> PyResult<()> {
        let (folder, name) = folder_and_name(&path).ok_or_else(|| {
            let message = format!("path: `{}` names no file", path.display());
            raise_with(ErrorKind::InvalidInput, "config-value", message)
        })?;
        let mode = match overwrite {
            true => PublishMode::Replace,
            false => PublishMode::CreateNew,
        };
        py.detach(|| {
            let dir = Dir::open(folder)?;
            dir.publish_bytes(None, name, &self.0.to_bytes(), mode)
        })
        .map_err(raise)
    }

    /// The hash of the index of the dataset, as `sha256:` and 64 hexadecimal digits.
    #[getter]
    fn index(&self) -> String {
        self.0.index()
    }

    /// The number of samples that the dataset stores.
    #[getter]
    fn stored(&self) -> u64 {
        self.0.stored()
    }

    /// Returns the stored numbers of the samples, as little-endian 64-bit integers.
    fn numbers<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = py.detach(|| self.0.iter().flat_map(u64::to_le_bytes).collect());
        PyBytes::new(py, &bytes)
    }

    fn intersection(&self, other: &Self) -> PyResult<Self> {
        self.0.and(&other.0).map(Self::of).map_err(raise)
    }

    fn union(&self, other: &Self) -> PyResult<Self> {
        self.0.or(&other.0).map(Self::of).map_err(raise)
    }

    fn difference(&self, other: &Self) -> PyResult<Self> {
        self.0.minus(&other.0).map(Self::of).map_err(raise)
    }

    fn inverted(&self) -> Self {
        Self::of(self.0.inverted())
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.0.len()).unwrap_or(usize::MAX)
    }

    fn __contains__(&self, number: u64) -> bool {
        self.0.contains(number)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
