//! Objects for windows of neighbouring samples.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};
use shardmill_dataset::PAD_SUFFIX;
use shardmill_reader::BatchWindow;

use crate::block::numpy_array;
use crate::errors::bug;

/// Returns the number of values that a column has for each sample; `None` if it has no window.
pub(crate) fn width_of(window: Option<&BatchWindow>, column: &str) -> Option<usize> {
    let window = &window?.window;
    window.has(column).then(|| window.places(column).len())
}

/// Returns the values of a window as an array if they are numbers or arrays of one shape, and as a list otherwise.
pub(crate) fn stacked<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyAny>> {
    static STACKED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let stacked = STACKED.import(py, "shardmill.base._training_batches", "stacked")?;
    stacked.call1((values,))
}

/// Returns which values of a column are padding, as an array of truth values, and the name for them; `None` if the
/// column has no window, or windows are not padded.
pub(crate) fn padding_of<'py>(
    py: Python<'py>,
    window: Option<&BatchWindow>,
    column: &str,
    samples: usize,
) -> PyResult<Option<(String, Bound<'py, PyAny>)>> {
    let Some(BatchWindow { window, padded }) = window else {
        return Ok(None);
    };
    if !window.is_padded() || !window.has(column) {
        return Ok(None);
    }
    let positions = window.places(column);
    let rows = padded.chunks(window.offsets().len().max(1));
    let flags = rows.flat_map(|row| positions.iter().filter_map(|position| row.get(*position)));
    let bytes: Vec<u8> = flags.map(|flag| u8::from(*flag)).collect();
    let array = numpy_array(py, &bytes, "?")?;
    let array = array.call_method1("reshape", ((samples, positions.len()),))?;
    Ok(Some((format!("{column}{PAD_SUFFIX}"), array)))
}

/// Merges the samples of all offsets of each window into one sample.
pub(crate) fn merged<'py>(
    py: Python<'py>,
    batch: &BatchWindow,
    samples: &Bound<'py, PyList>,
    new_sample: impl Fn() -> PyResult<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyList>> {
    let window = &batch.window;
    let width = window.offsets().len().max(1);
    let own = window.offsets().binary_search(&0).unwrap_or_default();
    let list = PyList::empty(py);
    let count = samples.len() / width;
    let mut masks: Vec<(String, Bound<'py, PyAny>)> = Vec::new();
    for number in 0..count {
        let at = |position: usize| -> PyResult<Bound<'py, PyDict>> {
            let sample = samples.get_item(number * width + position)?;
            let sample = sample.cast_into::<PyDict>();
            sample.map_err(|_| bug("a sample that is no dict"))
        };
        let dict = new_sample()?;
        dict.update(at(own)?.as_mapping())?;
        for (key, _) in at(own)? {
            let column: String = key.extract()?;
            if !window.has(&column) {
                continue;
            }
            let values = PyList::empty(py);
            for position in window.places(&column) {
                let value = at(*position)?.get_item(&key)?;
                values.append(value.unwrap_or_else(|| py.None().into_bound(py)))?;
            }
            dict.set_item(&key, stacked(py, &values)?)?;
            if !masks
                .iter()
                .any(|(name, _)| name.strip_suffix(PAD_SUFFIX) == Some(&column))
            {
                masks.extend(padding_of(py, Some(batch), &column, count)?);
            }
            let mask = masks
                .iter()
                .find(|(name, _)| name.strip_suffix(PAD_SUFFIX) == Some(&column));
            if let Some((name, mask)) = mask {
                dict.set_item(name, mask.get_item(number)?)?;
            }
        }
        list.append(dict)?;
    }
    Ok(list)
}
