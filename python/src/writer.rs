//! Writing of shards from Python objects, Arrow batches and encoded samples.

pub(crate) mod arrow;
mod values;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::arrow::datatypes::SchemaRef;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyBytes, PyDict};
use shardmill_core::{ErrorKind, Format, Limits};
use shardmill_mds::{Column, Encoding, Index, ShardConfig, TextColumn};
use shardmill_storage::Dir;
use shardmill_writer::{RowEncoder, SampleOptions, SampleWriter as Shards};

use crate::errors::{bug, parse, raise, raise_with};
use crate::options::Keywords;
use crate::process::OfProcess;
use crate::waiting::detached;
use arrow::Batches;
use values::Program;

/// Returns whether an MDS encoding is one of the format's, in its usual spelling.
#[pyfunction]
pub(crate) fn is_encoding(encoding: &str) -> bool {
    encoding.parse::<Encoding>().is_ok()
}

/// Writes a dataset to a folder. Background threads, which do not use Python, finish the shards.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct SampleWriter {
    state: Mutex<OfProcess<State>>,
    /// The thread that holds the lock of `state`; 0 for none.
    holder: AtomicUsize,
    program: Program,
    config: Arc<ShardConfig>,
    limits: Limits,
}

struct State {
    shards: Shards,
    /// The schema of the last batches, and its encoder.
    rows: Option<(SchemaRef, RowEncoder)>,
}

/// The name, the encoding and the encoder in Python of a column.
type CodedColumn = (String, String, Py<PyAny>);

fn config(given: &Keywords<'_>, columns: &[CodedColumn]) -> PyResult<ShardConfig> {
    let compression = given.take::<String>("compression")?;
    let compression = compression.as_deref().map(parse).transpose()?;
    let hashes: Vec<String> = given.take("hashes")?.unwrap_or_default();
    let hashes = hashes.iter().map(|name| parse(name));
    let hashes = hashes.collect::<PyResult<Vec<_>>>()?;
    let names = || {
        let columns = columns.iter();
        columns.map(|(name, encoding, _)| (name.clone(), encoding))
    };
    let text_columns = || {
        let columns = names().map(|(name, encoding)| {
            let encoding = parse(encoding)?;
            Ok(TextColumn { name, encoding })
        });
        columns.collect::<PyResult<Vec<_>>>()
    };
    let newline: Option<String> = given.take("newline")?;
    let newline = newline.as_deref().unwrap_or("\n");
    let separator: Option<String> = given.take("separator")?;
    let limit = given.take("size_limit")?;
    let name: String = given.need("format")?;
    let format = Format::ALL
        .into_iter()
        .find(|format| format.name() == name)
        .ok_or_else(|| {
            let message = format!("there is no format `{name}`");
            raise_with(ErrorKind::InvalidInput, "config-format", message)
        })?;
    let config = match format {
        Format::Mds => {
            let columns = names().map(|(name, encoding)| {
                let encoding = parse(encoding)?;
                Ok(Column { name, encoding })
            });
            let columns = columns.collect::<PyResult<Vec<_>>>()?;
            ShardConfig::new_mds(columns, compression, hashes, limit)
        }
        Format::Json => ShardConfig::new_json(text_columns()?, newline, compression, hashes, limit),
        Format::Csv | Format::Tsv | Format::Xsv => ShardConfig::new_xsv(
            format,
            text_columns()?,
            newline,
            separator.as_deref(),
            compression,
            hashes,
            limit,
        ),
    };
    config.map_err(raise)
}

/// The locked state.
struct Held<'a> {
    state: MutexGuard<'a, OfProcess<State>>,
    holder: &'a AtomicUsize,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}

/// Returns a number that is unique to this thread among living threads.
fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

impl SampleWriter {
    fn lock(&self, py: Python<'_>) -> PyResult<Held<'_>> {
        let me = this_thread();
        // An encoder in Python or a signal handler that calls the writer again would deadlock.
        if self.holder.load(Ordering::Relaxed) == me {
            return Err(PyRuntimeError::new_err(
                "the writer is in use by this very thread, further up",
            ));
        }
        let state = self
            .state
            .lock_py_attached(py)
            .unwrap_or_else(PoisonError::into_inner);
        self.holder.store(me, Ordering::Relaxed);
        Ok(Held {
            state,
            holder: &self.holder,
        })
    }

    fn state<'a>(guard: &'a mut Held<'_>) -> PyResult<&'a mut State> {
        guard.state.get_mut().ok_or_else(|| {
            PyRuntimeError::new_err(
                "the writer belongs to the process that this one was forked from",
            )
        })
    }
}

#[pymethods]
impl SampleWriter {
    /// `options` are `format`, `columns` with name, encoding and encoder, `newline`, `separator`, `compression`, `hashes`,
    /// `size_limit`, `jobs`, and `durable`: whether files are synchronized with the disk.
    #[new]
    #[pyo3(signature = (folder, **options))]
    fn new(py: Python<'_>, folder: &str, options: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        let given = Keywords::new("SampleWriter", options);
        let columns: Vec<CodedColumn> = given.need("columns")?;
        let config = Arc::new(config(&given, &columns)?);
        let coder = |name: &str| {
            let column = columns.iter().find(|(known, ..)| known == name);
            column
                .map(|(_, _, coder)| coder.clone_ref(py))
                .ok_or_else(|| bug("a column without an encoder"))
        };
        let program = Program::new(py, &config, coder)?;
        let limits = Limits::default();
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let settings = SampleOptions {
            jobs: given.take("jobs")?.unwrap_or_else(cores),
            sample_limit: limits.sample_bytes,
            durable: given.take("durable")?.unwrap_or(true),
        };
        given.end()?;
        let dir = Dir::open(folder.as_ref()).map_err(raise)?;
        let shards = Shards::new(dir, Arc::clone(&config), settings);
        Ok(Self {
            state: Mutex::new(OfProcess::new(State { shards, rows: None })),
            holder: AtomicUsize::new(0),
            program,
            config,
            limits,
        })
    }

    /// Encodes a sample and adds it. A sample that cannot be encoded is not added.
    fn write(&self, sample: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = sample.py();
        let mut guard = self.lock(py)?;
        // PERF: a fork is detected only when the buffer is full. Until then a forked child fills its own copy.
        let shards = &mut guard.state.get_mut_anywhere().shards;
        self.program.encode(sample, shards.begin())?;
        if shards.end().map_err(raise)? {
            let state = Self::state(&mut guard)?;
            detached(py, |cancel| state.shards.pack(cancel))?;
        }
        Ok(())
    }

    /// Adds an encoded sample.
    fn push(&self, py: Python<'_>, sample: &[u8]) -> PyResult<()> {
        let mut guard = self.lock(py)?;
        let state = Self::state(&mut guard)?;
        state.shards.begin().extend_from_slice(sample);
        if state.shards.end().map_err(raise)? {
            detached(py, |cancel| state.shards.pack(cancel))?;
        }
        Ok(())
    }

    /// Adds the rows of an Arrow table, batch or stream. Returns the number of rows. If a row cannot be encoded,
    /// earlier rows may have been added.
    fn write_arrow(&self, object: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = object.py();
        let batches = Batches::of(object)?;
        let mut guard = self.lock(py)?;
        let state = Self::state(&mut guard)?;
        let schema = batches.schema();
        let encoder = match state.rows.take() {
            Some((known, encoder)) if known == schema => encoder,
            _ => arrow::encoder(&schema, &self.config, &self.limits)?,
        };
        let shards = &mut state.shards;
        let rows = batches.each_slice(py, |slice, before| {
            let row_origin =
                |row: usize| format!("row {}", before + u64::try_from(row).unwrap_or(0));
            detached(py, |cancel| {
                shards.push_batch(&encoder, slice, row_origin, cancel)
            })
        })?;
        state.rows = Some((schema, encoder));
        Ok(rows)
    }

    /// Finishes all shards and publishes the index.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let mut guard = self.lock(py)?;
        let state = Self::state(&mut guard)?;
        detached(py, |cancel| state.shards.finish(cancel)).map(drop)
    }

    /// Stops without writing an index.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let mut guard = self.lock(py)?;
        // A forked child has no threads to stop.
        if let Some(state) = guard.state.get_mut() {
            py.detach(|| state.shards.abort());
        }
        Ok(())
    }

    /// Returns the index of the finished shards as text. Waits until they are published.
    fn index(&self, py: Python<'_>) -> PyResult<String> {
        let mut guard = self.lock(py)?;
        let state = Self::state(&mut guard)?;
        let shards = detached(py, |cancel| state.shards.shards(cancel))?;
        Ok(Index { shards }.to_json())
    }

    /// Returns the encoded samples of the current shard.
    fn open_samples<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let mut guard = self.lock(py)?;
        let state = Self::state(&mut guard)?;
        let samples = detached(py, |cancel| state.shards.open_samples(cancel))?;
        Ok(samples
            .iter()
            .map(|sample| PyBytes::new(py, sample))
            .collect())
    }

    /// Returns the size of the current shard in bytes, as counted for the size limit.
    fn open_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        let mut guard = self.lock(py)?;
        let state = Self::state(&mut guard)?;
        detached(py, |cancel| state.shards.open_bytes(cancel))
    }

    /// Returns the configuration as stored in every shard.
    fn config(&self) -> String {
        self.config.to_json()
    }

    /// Returns the names of shard files as they are published.
    fn published(&self, py: Python<'_>) -> PyResult<PublishedFiles> {
        let mut guard = self.lock(py)?;
        let files = Self::state(&mut guard)?.shards.published();
        Ok(PublishedFiles(OfProcess::new(files)))
    }
}

/// The names of files as they are published, for one thread.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct PublishedFiles(OfProcess<shardmill_writer::PublishedFiles>);

#[pymethods]
impl PublishedFiles {
    /// Waits for the next names; `None` at the end.
    fn next(&self, py: Python<'_>) -> Option<Vec<String>> {
        let files = self.0.get()?;
        py.detach(|| files.next())
    }
}
