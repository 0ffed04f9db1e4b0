//! Decoding of WebDataset fields by their extension.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyTuple};
use shardmill_core::Limits;
use shardmill_webdataset::{Array, FieldKind, Value, WebdatasetError, decode, inflate, read_npz};

use crate::errors::raise;

/// Decodes a field to a kind and a value: `int`, `text`, `json` (its text), `array`, `arrays`, `named` or `bytes`. An
/// array is a name, type, shape and bytes; the type of a complete NumPy file is `npy`. A trailing `.gz` means gzip,
/// which is decompressed.
#[pyfunction]
pub(crate) fn decode_field<'py>(
    py: Python<'py>,
    field: &str,
    data: &[u8],
) -> PyResult<(&'static str, Bound<'py, PyAny>)> {
    let limits = Limits::default();
    let (kind, _) = FieldKind::of(field);
    let data = inflate(field, data, &limits).map_err(raise)?;
    if kind == FieldKind::Npz {
        let files = read_npz(field, &data, &limits).map_err(raise)?;
        let list = PyList::empty(py);
        for (name, bytes) in &files {
            match decode("npy", bytes, &limits) {
                Ok(Value::Array(one)) => list.append(array(py, name, &one)?)?,
                Ok(_) => list.append(numpy_file(py, name, bytes)?)?,
                Err(error) => return Err(raise(error)),
            }
        }
        return Ok(("named", list.into_any()));
    }
    // Unpickling runs code, so the bytes are returned.
    if kind == FieldKind::Pickle {
        return Ok(("bytes", PyBytes::new(py, &data).into_any()));
    }
    let value = decode(field, &data, &limits).map_err(|error: WebdatasetError| raise(error))?;
    Ok(match value {
        Value::Bytes(bytes) => ("bytes", PyBytes::new(py, bytes).into_any()),
        Value::Text(text) => ("text", text.into_pyobject(py)?.into_any()),
        Value::Json(text) => ("json", text.into_pyobject(py)?.into_any()),
        Value::Int(number) => ("int", number.into_pyobject(py)?.into_any()),
        Value::BigInt(text) => ("int", py.get_type::<PyInt>().call1((text,))?),
        Value::Array(one) => ("array", array(py, "", &one)?.into_any()),
        Value::NumPy(file) => ("array", numpy_file(py, "", file)?.into_any()),
        Value::Arrays(several) => {
            let list = PyList::empty(py);
            for one in &several {
                list.append(array(py, "", one)?)?;
            }
            ("arrays", list.into_any())
        }
    })
}

/// Returns `(name, type, shape, bytes)`.
fn array<'py>(py: Python<'py>, name: &str, array: &Array<'_>) -> PyResult<Bound<'py, PyTuple>> {
    (
        name,
        array.dtype.short(),
        array.shape.clone(),
        PyBytes::new(py, array.data),
    )
        .into_pyobject(py)
}

/// Returns the same tuple for a complete NumPy file, with the type `npy` and no shape, for NumPy to read.
fn numpy_file<'py>(py: Python<'py>, name: &str, file: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
    (name, "npy", Vec::<u64>::new(), PyBytes::new(py, file)).into_pyobject(py)
}
