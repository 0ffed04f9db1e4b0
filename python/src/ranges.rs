//! Consecutive samples by number, without an epoch.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use shardmill_core::{ErrorKind, Limits, lock};
use shardmill_dataset::{KEY_COLUMN, SampleForm, Schema};
use shardmill_mds::{Layout, TextColumn};
use shardmill_reader::{Batch, Cancel, Ranges as RustRanges, Reader as RustReader};

use crate::decode::Decoder;
use crate::errors::{raise, raise_with};
use crate::process::OfProcess;
use crate::waiting::wait;

/// A name, an encoding, whether every sample has a value, and the hidden column that marks nulls.
type ColumnFacts = (String, String, bool, Option<String>);
/// A format and its columns.
pub(crate) type FormatFacts = (&'static str, Vec<ColumnFacts>);

/// Returns the format of shards and their columns.
pub(crate) fn columns_of(schema: &Schema) -> FormatFacts {
    match schema {
        Schema::Binary { form, columns, .. } => {
            let form = match form {
                SampleForm::Mds => "mds",
                SampleForm::WebDataset => "webdataset",
                SampleForm::File => "files",
            };
            let facts = columns.iter().map(|column| {
                let mask = column.null_mask.and_then(|at| columns.get(at));
                let mask = mask.map(|mask| mask.name.clone());
                (column.name.clone(), column.encoding.to_string(), true, mask)
            });
            (form, facts.collect())
        }
        Schema::Fields(fields) => {
            let always: HashSet<&str> = fields.always.iter().map(|name| &**name).collect();
            let facts = schema.names().into_iter().map(|name| match name {
                KEY_COLUMN => (name.to_owned(), "str".to_owned(), true, None),
                name => {
                    let is_always = always.contains(name);
                    (name.to_owned(), "bytes".to_owned(), is_always, None)
                }
            });
            ("webdataset", facts.collect())
        }
        Schema::Text(Layout::Json { columns, .. }) => ("json", text_columns(columns)),
        Schema::Text(Layout::Xsv { columns, .. }) => ("xsv", text_columns(columns)),
        Schema::Text(Layout::Mds { .. }) => ("mds", Vec::new()),
    }
}

fn text_columns(columns: &[TextColumn]) -> Vec<ColumnFacts> {
    columns
        .iter()
        .map(|column| {
            let encoding = column.encoding.name().to_owned();
            (column.name.clone(), encoding, true, None)
        })
        .collect()
}

/// Reads ranges of samples in the order of their numbers.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct Ranges {
    reader: OfProcess<Arc<RustReader>>,
    decoder: Decoder,
    /// `None` while a range is read, and after a read that was interrupted.
    ranges: Mutex<Option<OfProcess<RustRanges>>>,
}

impl Ranges {
    pub(crate) fn new(reader: Arc<RustReader>, decode_value: Py<PyAny>) -> Self {
        Self {
            reader: OfProcess::new(reader),
            // Tables have masks of their own for nulls.
            decoder: Decoder::new(Some(decode_value), None, Limits::default()).with_masks(),
            ranges: Mutex::new(None),
        }
    }

    fn batch(&self, py: Python<'_>, samples: Range<u64>) -> PyResult<Batch> {
        let reader = self.reader.get().ok_or_else(|| {
            let message = "samples were requested in another process than the one that opened them";
            raise_with(ErrorKind::Bug, "reader-process", message.to_owned())
        })?;
        let known = || lock(&self.ranges);
        let before = known().take();
        let mut ranges = before.unwrap_or_else(|| OfProcess::new(reader.ranges()));
        let is_local = samples.clone().all(|sample| reader.is_at_hand(sample));
        let read = move || {
            let batch = ranges.get_mut_anywhere().read(samples, &Cancel::default());
            (ranges, batch)
        };
        let (ranges, batch) = if is_local {
            py.detach(read)
        } else {
            wait(py, read)?
        };
        *known() = Some(ranges);
        batch.map_err(raise)
    }
}

#[pymethods]
impl Ranges {
    /// Returns the samples from `start` to `stop`, exclusive, as their number and their columns, as
    /// `Batches.next_columns` does.
    #[pyo3(signature = (start, stop, only=None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        start: u64,
        stop: u64,
        only: Option<HashSet<String>>,
    ) -> PyResult<(usize, Bound<'py, PyAny>)> {
        let batch = self.batch(py, start..stop)?;
        let samples = batch.len();
        let plans = self.decoder.plans_of(py, &batch)?;
        let ready = py.detach(|| self.decoder.ready(batch, plans))?;
        let columns = self.decoder.columns_or_dicts(py, ready, only.as_ref())?;
        Ok((samples, columns))
    }
}
