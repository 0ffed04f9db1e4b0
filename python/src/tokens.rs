//! Batches of tokens.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use shardmill_core::{Error, ErrorKind};
use shardmill_mds::DType;
use shardmill_mmap::Buffer;
use shardmill_order::{
    Epoch, EpochConfig, LastRows, LongDocument, PackedEpoch, PackingOptions, RowForm,
};
use shardmill_reader::{TokenBatches as RustBatches, TokenOptions};

use crate::block::{Block, packed};
use crate::errors::{bug, raise_with};
use crate::open_epoch::OpenEpoch;
use crate::options::Keywords;

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

impl PyTokenOptions {
    /// Returns the rows of an epoch.
    pub(crate) fn epoch(&self, config: &EpochConfig) -> Result<PackedEpoch, Error> {
        let base = Epoch::new(&PackedEpoch::base_config(config)?)?;
        PackedEpoch::new(base, config, Arc::clone(&self.0.lengths), self.0.packing)
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
pub(crate) struct TokenBatches(OpenEpoch<RustBatches>);

impl TokenBatches {
    pub(crate) fn new(batches: RustBatches) -> Self {
        Self(OpenEpoch::new(batches, RustBatches::stats))
    }
}

#[pymethods]
impl TokenBatches {
    /// Returns the next batch: how many rows of the order it has, and its arrays by name; `None` at the end of the epoch.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<(usize, Bound<'py, PyDict>)>> {
        let Some(batch) = self.0.next(py, RustBatches::next_batch_while)? else {
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
        let bounds = batch.cu_seqlens.iter().map(|bound| bound.to_le_bytes());
        columns.set_item("cu_seqlens", packed(py, bounds))?;
        let repeated = batch.repeated.iter().map(|row| [u8::from(*row)]);
        columns.set_item("repeated", packed(py, repeated))?;
        Ok(Some((batch.items, columns)))
    }

    /// Returns the statistics of reading so far, by name; times in seconds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.0.stats(py)
    }

    /// Stops the thread. Nothing can be read afterwards.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}
