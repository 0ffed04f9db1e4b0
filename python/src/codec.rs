//! Hashes, compressions and merged indexes: bytes in, bytes out.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardmill_core::Limits;
use shardmill_mds::{Compression, HashAlgo, Index};

use crate::errors::raise;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(hash_names, module)?)?;
    module.add_function(wrap_pyfunction!(hash_hex, module)?)?;
    module.add_function(wrap_pyfunction!(compression_names, module)?)?;
    module.add_function(wrap_pyfunction!(compress, module)?)?;
    module.add_function(wrap_pyfunction!(decompress, module)?)?;
    module.add_function(wrap_pyfunction!(merge_indexes, module)?)
}

/// The names of all hashes.
#[pyfunction]
fn hash_names() -> Vec<&'static str> {
    HashAlgo::ALL.iter().map(|algo| algo.name()).collect()
}

/// The digest of the bytes, in lower-case hexadecimal digits.
#[pyfunction]
fn hash_hex(py: Python<'_>, algo: &str, data: &[u8]) -> PyResult<String> {
    let algo: HashAlgo = algo.parse().map_err(|error| raise(&error))?;
    Ok(py.detach(|| shardmill_mds::hash_hex(algo, data)))
}

/// The names of all compressions, with and without levels.
#[pyfunction]
fn compression_names() -> Vec<String> {
    Compression::all().map(|each| each.to_string()).collect()
}

/// The bytes as one frame, member, stream or block.
#[pyfunction]
fn compress<'py>(py: Python<'py>, name: &str, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let compression: Compression = name.parse().map_err(|error| raise(&error))?;
    let mut zip = Vec::new();
    py.detach(|| compression.compressor()?.compress(data, &mut zip))
        .map_err(|error| raise(&error))?;
    Ok(PyBytes::new(py, &zip))
}

/// What the compressed bytes hold.
#[pyfunction]
fn decompress<'py>(py: Python<'py>, name: &str, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let compression: Compression = name.parse().map_err(|error| raise(&error))?;
    let raw = py.detach(|| compression.decompress(data, None, &Limits::default()));
    Ok(PyBytes::new(py, &raw.map_err(|error| raise(&error))?))
}

/// The text of one index for the shards of several, in order. Each comes with its folder relative to that of the result.
#[pyfunction]
fn merge_indexes(py: Python<'_>, parts: Vec<(String, Vec<u8>)>) -> PyResult<String> {
    let merged = py.detach(|| {
        let mut indexes = Vec::with_capacity(parts.len());
        for (folder, json) in parts {
            indexes.push((folder, Index::parse(&json, &Limits::default())?));
        }
        Index::merge(indexes)
    });
    Ok(merged.map_err(|error| raise(&error))?.to_merged_json())
}
