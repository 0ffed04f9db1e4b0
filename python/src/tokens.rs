//! Batches of tokens.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use shardmill_core::ErrorKind;
use shardmill_mds::DType;
use shardmill_mmap::Buffer;
use shardmill_order::{LastRows, LongDocument, PackingOptions, RowForm};
use shardmill_reader::{BatchStats, TokenBatches as RustBatches, TokenOptions};

use crate::batches::{elsewhere, stats_of};
use crate::block::Block;
use crate::errors::{bug, raise, raise_with};
use crate::options::Keywords;
use crate::process::OfProcess;

/// Which tokens to read, and how to make rows of them.
#[pyclass(frozen, name = "TokenOptions", module = "shardmill._core")]
pub(crate) struct PyTokenOptions(pub(crate) TokenOptions);

#[pymethods]
impl PyTokenOptions {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(options: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        let given = Keywords::new("TokenOptions", options);
        let dtype = given.take::<String>("dtype")?;
        let lengths = given.need::<Bound<'_, PyBytes>>("lengths")?;
        let (lengths, _) = lengths.as_bytes().as_chunks::<4>();
        let options = TokenOptions {
            column: given.need("column")?,
            dtype: dtype.map(|name| dtype_of(&name)).transpose()?,
            lengths: lengths
                .iter()
                .map(|word| u32::from_le_bytes(*word))
                .collect(),
            padding_id: given.need("padding_id")?,
            packing: PackingOptions {
                form: named(&given, "form", RowForm::from_name)?,
                tokens: given.need("tokens")?,
                pool: given.need("pool")?,
                long: named(&given, "long", LongDocument::from_name)?,
                last: named(&given, "last", LastRows::from_name)?,
            },
        };
        given.end()?;
        Ok(Self(options))
    }
}

/// Takes an argument that is a name.
fn named<T>(
    given: &Keywords<'_>,
    argument: &'static str,
    from_name: fn(&str) -> Option<T>,
) -> PyResult<T> {
    let name: String = given.need(argument)?;
    from_name(&name).ok_or_else(|| unknown(argument, &name))
}

fn unknown(argument: &str, name: &str) -> PyErr {
    let message = format!("{argument}: there is no {name:?}");
    raise_with(ErrorKind::InvalidInput, "config-value", message)
}

/// Parses the name of a type of integers.
pub(crate) fn dtype_of(name: &str) -> PyResult<DType> {
    let dtype = DType::from_name(name).filter(|dtype| !dtype.is_float());
    dtype.ok_or_else(|| unknown("dtype", name))
}

/// The token batches of a rank in one epoch, in order.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct TokenBatches {
    batches: Mutex<Option<OfProcess<RustBatches>>>,
    /// The statistics at the time of closing.
    closed: Mutex<BatchStats>,
    /// The rows of the whole epoch, without repeated ones.
    #[pyo3(get)]
    epoch_rows: u64,
}

impl TokenBatches {
    pub(crate) fn new(batches: RustBatches) -> Self {
        Self {
            epoch_rows: batches.epoch().rows(),
            batches: Mutex::new(Some(OfProcess::new(batches))),
            closed: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<OfProcess<RustBatches>>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl TokenBatches {
    /// Returns the next batch: how many rows of the order it has, and its arrays by name; `None` at the end of the epoch.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<(usize, Bound<'py, PyDict>)>> {
        let mut signal = None;
        let read = py.detach(|| {
            let mut batches = self.lock();
            let Some(batches) = batches.as_mut() else {
                return Ok(None);
            };
            let batches = batches.get_mut().ok_or_else(elsewhere)?;
            let read = batches.next_batch_while(&mut || {
                let checked = Python::attach(|py| py.check_signals());
                signal = checked.err();
                signal.is_none()
            });
            read.map_err(|error| raise(&error))
        });
        if let Some(signal) = signal {
            return Err(signal);
        }
        let Some(batch) = read? else {
            return Ok(None);
        };
        let shape = vec![batch.rows as u64, batch.width as u64];
        let columns = PyDict::new(py);
        let set = |name: &str, buffer: Buffer, dtype: DType| {
            let block = Block::new(buffer, dtype, shape.clone());
            columns.set_item(name, block.ok_or_else(|| bug("a batch without its shape"))?)
        };
        set("input_ids", batch.input_ids, DType::I64)?;
        set("labels", batch.labels, DType::I64)?;
        set("position_ids", batch.position_ids, DType::I64)?;
        set("document_ids", batch.document_ids, DType::I32)?;
        let bounds: Vec<u8> = batch
            .cu_seqlens
            .iter()
            .flat_map(|bound| bound.to_le_bytes())
            .collect();
        columns.set_item("cu_seqlens", PyBytes::new(py, &bounds))?;
        let repeated: Vec<u8> = batch.repeated.iter().map(|row| u8::from(*row)).collect();
        columns.set_item("repeated", PyBytes::new(py, &repeated))?;
        Ok(Some((batch.items, columns)))
    }

    /// Returns the statistics of reading so far, by name; times in seconds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let open = py.detach(|| {
            let batches = self.lock();
            let batches = batches.as_ref().and_then(OfProcess::get);
            batches.map(RustBatches::stats)
        });
        let closed = || *self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        stats_of(py, open.unwrap_or_else(closed))
    }

    /// Stops the thread. Nothing can be read afterwards.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let batches = self.lock().take();
            if let Some(batches) = batches.as_ref().and_then(OfProcess::get) {
                *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = batches.stats();
            }
            drop(batches);
        });
    }
}

impl Drop for TokenBatches {
    fn drop(&mut self) {
        let batches = self.batches.get_mut();
        let mut batches = Some(batches.unwrap_or_else(PoisonError::into_inner).take());
        // Dropping waits for the thread, so release the interpreter lock. At interpreter exit the lock is unavailable.
        if Python::try_attach(|py| py.detach(|| drop(batches.take()))).is_none() {
            drop(batches);
        }
    }
}

/// The lengths of a column as little-endian 32-bit integers.
pub(crate) fn as_bytes<'py>(py: Python<'py>, lengths: &[u32]) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = lengths
        .iter()
        .flat_map(|length| length.to_le_bytes())
        .collect();
    PyBytes::new(py, &bytes)
}
