//! Hashes, compressions and merged indexes of bytes.

use std::collections::{BTreeSet, HashMap};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use shardmill_core::Limits;
use shardmill_dataset::{MergePart, merge_parts};
use shardmill_mds::{Compression, HashAlgo, Index};

use crate::decode::reader_limits;
use crate::errors::raise;

/// Returns the names of all hashes.
#[pyfunction]
pub(crate) fn hash_names() -> Vec<&'static str> {
    HashAlgo::ALL.iter().map(|algo| algo.name()).collect()
}

/// Returns the digest of the bytes as lower-case hexadecimal digits.
#[pyfunction]
pub(crate) fn hash_hex(py: Python<'_>, algo: &str, data: &[u8]) -> PyResult<String> {
    let algo: HashAlgo = algo.parse().map_err(raise)?;
    Ok(py.detach(|| shardmill_mds::hash_hex(algo, data)))
}

/// Returns the names of all compressions, with and without levels.
#[pyfunction]
pub(crate) fn compression_names() -> Vec<String> {
    Compression::all().map(|each| each.to_string()).collect()
}

/// Compresses the bytes to one frame, member, stream or block.
#[pyfunction]
pub(crate) fn compress<'py>(
    py: Python<'py>,
    name: &str,
    data: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let compression: Compression = name.parse().map_err(raise)?;
    let mut zip = Vec::new();
    py.detach(|| compression.compressor()?.compress(data, &mut zip))
        .map_err(raise)?;
    Ok(PyBytes::new(py, &zip))
}

/// Decompresses the bytes.
#[pyfunction]
pub(crate) fn decompress<'py>(
    py: Python<'py>,
    name: &str,
    data: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let compression: Compression = name.parse().map_err(raise)?;
    let raw = py.detach(|| compression.decompress(data, None, &Limits::default()));
    Ok(PyBytes::new(py, &raw.map_err(raise)?))
}

/// A folder, its index, and its side files by name.
type PartIndex = (String, Vec<u8>, HashMap<String, Vec<u8>>);

/// Merges several indexes in order. Returns the text of the merged index, and its side files by name. Each part is the
/// folder of a dataset relative to that of the result, its index, and its side files by name.
#[pyfunction]
pub(crate) fn merge_indexes(
    py: Python<'_>,
    parts: Vec<PartIndex>,
) -> PyResult<(String, Vec<(&'static str, String)>)> {
    let limits = reader_limits(py, &BTreeSet::new())?;
    py.detach(|| {
        let mut indexes = Vec::with_capacity(parts.len());
        for (folder, json, files) in parts {
            let index = Index::parse(&json, &limits).map_err(raise)?;
            let read = |name: &str, _| Ok(files.get(name).cloned());
            let part = MergePart::new(folder, index, &read, &limits);
            indexes.push(part.map_err(raise)?);
        }
        let merged = merge_parts(indexes).map_err(raise)?;
        Ok((merged.index.to_merged_json(), merged.files))
    })
}
