//! Readers of streams, their epochs and samples.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use shardmill_core::{Error, ErrorKind, lock};
use shardmill_dataset::{
    Catalog, CatalogOptions, DatasetError, KnownFiles, Schema, SchemaColumn, TarPattern, View,
    private_folder,
};
use shardmill_mds::Layout;
use shardmill_order::{EpochConfig, Mixture, World};
use shardmill_reader::{
    Activity, BatchOptions, FileUse as RustFileUse, OrderIdentity, Reader as RustReader,
    continued_mixture, find_episodes,
};
use shardmill_storage::{Location, StorageError};

use crate::batches::{Batches, Order};
use crate::block::packed;
use crate::decode::Decoder;
use crate::errors::{bug, raise, raise_with};
use crate::options::{PyEpochOptions, PyKnownFiles, PyReaderOptions, PyStreamOptions};
use crate::process::OfProcess;
use crate::ranges::{FormatFacts, Ranges, columns_of};
use crate::storage::remote_options;
use crate::tokens::{PyTokenOptions, TokenBatches, dtype_of};
use crate::view::PyView;
use crate::waiting::wait;

/// The maximum of batches that threads prepare ahead.
const QUEUE: u64 = 16;

/// Streams that are read together, in the process that opened them. A forked child must open its own reader.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct Reader {
    reader: OfProcess<Arc<RustReader>>,
    decoder: Arc<Decoder>,
    /// For each stream the list of its raw files, which forked children reuse.
    known: Vec<Option<KnownFiles>>,
}

/// Returns the folder of a tar file or of a pattern of tar files; `None` for other locations.
#[pyfunction]
pub(crate) fn tar_folder(text: &str) -> PyResult<Option<String>> {
    match TarPattern::named(text) {
        Ok(pattern) => Ok(pattern.map(|pattern| match pattern.folder() {
            Location::Local(path) => path.to_string_lossy().into_owned(),
            folder => folder.to_string(),
        })),
        // A store that only Python can read.
        Err(DatasetError::Storage(error))
            if matches!(error.fault(), StorageError::UrlScheme { .. }) =>
        {
            Ok(None)
        }
        Err(error) => Err(raise(error)),
    }
}

/// Finds the runs of samples of a stream with equal values in a column. Returns a view of the first sample of each.
#[pyfunction]
pub(crate) fn episodes_of(
    py: Python<'_>,
    stream: &PyStreamOptions,
    column: String,
    options: &PyReaderOptions,
) -> PyResult<PyView> {
    let (stream, options) = (stream.0.clone(), options.to_options(py)?);
    let found = wait(py, move || find_episodes(&stream, &column, &options))?;
    found.map(PyView::of).map_err(raise)
}

/// Returns what views of a table name, as `sha256:` and hexadecimal digits, and the folder for files beside its cache.
#[pyfunction]
pub(crate) fn table_index(py: Python<'_>, stream: &PyStreamOptions) -> PyResult<(String, PathBuf)> {
    let stream = stream.0.clone();
    let found = wait(py, move || {
        let options = CatalogOptions {
            remote: remote_options(None)?,
            ..CatalogOptions::default()
        };
        let catalog = Catalog::open(&[stream], &options)?;
        let Some((target, stream)) = catalog.view_target(0).zip(catalog.streams().first()) else {
            return Ok(None);
        };
        let own = private_folder(&stream.local)?;
        Ok::<_, DatasetError>(Some((
            View::of_live(&target).index(),
            own.path().to_owned(),
        )))
    })?;
    found
        .map_err(raise)?
        .ok_or_else(|| bug("a catalog without its stream"))
}

/// Returns whether the Rust reader can read a remote; `None` is a local dataset.
#[pyfunction]
pub(crate) fn is_served(remote: Option<&str>) -> PyResult<bool> {
    if let Some(remote) = remote
        && tar_folder(remote)?.is_some()
    {
        return Ok(true);
    }
    match remote.map(Location::parse) {
        None | Some(Ok(_)) => Ok(true),
        Some(Err(error)) if matches!(error.fault(), StorageError::UrlScheme { .. }) => Ok(false),
        Some(Err(error)) => Err(raise(error)),
    }
}

#[pymethods]
impl Reader {
    /// Opens streams, reading only their indexes.
    ///
    /// `decode_value(encoding, data)` decodes what Rust does not; by default `mds_decode` does.
    /// `decode_field(field, data)` decodes fields of WebDataset samples; without it they are bytes.
    #[new]
    #[pyo3(signature = (streams, options, decode_value=None, decode_field=None))]
    fn new(
        py: Python<'_>,
        streams: Vec<PyRef<'_, PyStreamOptions>>,
        options: &PyReaderOptions,
        decode_value: Option<Py<PyAny>>,
        decode_field: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let streams: Vec<_> = streams.iter().map(|stream| stream.0.clone()).collect();
        let options = options.to_options(py)?;
        let limits = options.limits.clone();
        let count = streams.len();
        let reader = if streams.iter().any(|stream| stream.remote.is_some()) {
            wait(py, move || RustReader::open(&streams, &options))?
        } else {
            py.detach(|| RustReader::open(&streams, &options))
        };
        let reader = reader.map_err(raise)?;
        let decoder = Decoder::new(decode_value, decode_field, limits);
        let decoder = decoder.for_schemas(py, reader.catalog().schemas())?;
        Ok(Self {
            known: (0..count)
                .map(|stream| reader.catalog().known_files(stream))
                .collect(),
            reader: OfProcess::new(Arc::new(reader)),
            decoder: Arc::new(decoder),
        })
    }

    /// Total samples of all streams.
    #[getter]
    fn samples(&self) -> PyResult<u64> {
        Ok(self.here()?.catalog().samples())
    }

    /// Total shards of all streams.
    #[getter]
    fn shards(&self) -> PyResult<usize> {
        Ok(self.here()?.catalog().len())
    }

    /// Returns for each stream the samples of its shards, as little-endian 64-bit integers.
    fn shard_sizes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let config = self.here()?.epoch_config(1, World::SINGLE);
        let streams = config.streams.iter();
        Ok(streams
            .map(|stream| packed(py, stream.shards.iter().map(|size| size.to_le_bytes())))
            .collect())
    }

    /// Returns the ranges of deleted samples of a stream, by their stored numbers.
    fn deleted_samples(&self, stream: usize) -> PyResult<Vec<(u64, u64)>> {
        Ok(self.here()?.deleted_samples(stream))
    }

    /// Returns the size of the largest shard in bytes, raw and compressed together.
    fn largest_shard(&self) -> PyResult<u64> {
        Ok(self.here()?.largest_shard())
    }

    /// The size of all shards before compression, in bytes.
    #[getter]
    fn raw_bytes(&self) -> PyResult<u64> {
        Ok(self.here()?.raw_bytes())
    }

    /// Returns each distinct set of columns: the format of its shards, and the name and encoding of each column, and
    /// whether every sample has it.
    fn schemas(&self) -> PyResult<Vec<FormatFacts>> {
        let schemas = self.here()?.catalog().schemas();
        Ok(schemas.iter().map(|schema| columns_of(schema)).collect())
    }

    /// Returns a reader of consecutive samples. `decode_value` is as for the constructor; fields are bytes.
    fn ranges(&self, decode_value: Py<PyAny>) -> PyResult<Ranges> {
        Ok(Ranges::new(Arc::clone(self.here()?), decode_value))
    }

    /// Returns the names of the columns with an encoding, in any shard.
    fn columns_of(&self, encoding: &str) -> PyResult<Vec<String>> {
        let mut names = Vec::new();
        for schema in self.here()?.catalog().schemas() {
            let Schema::Binary { columns, .. } = &**schema else {
                continue;
            };
            let of = |column: &&SchemaColumn| column.encoding.to_string() == encoding;
            names.extend(columns.iter().filter(of).map(|column| column.name.clone()));
        }
        Ok(names)
    }

    /// Returns whether a sample has a column of this name.
    fn has_column(&self, sample: u64, name: &str) -> PyResult<bool> {
        let schema = self.here()?.schema(sample);
        Ok(schema.is_some_and(|schema| match &**schema {
            Schema::Binary { columns, .. } => columns.iter().any(|column| column.name == name),
            Schema::Text(Layout::Json { columns, .. } | Layout::Xsv { columns, .. }) => {
                columns.iter().any(|column| column.name == name)
            }
            Schema::Text(Layout::Mds { .. }) | Schema::Fields(_) => false,
        }))
    }

    /// Returns whether Rust decodes all columns, without Python callables.
    fn is_native(&self, py: Python<'_>) -> PyResult<bool> {
        for schema in self.here()?.catalog().schemas() {
            if !self.decoder.plan(py, schema)?.is_native() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns one decoded sample.
    fn sample<'py>(&self, py: Python<'py>, sample: u64) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.here()?;
        if reader.catalog().window().is_some() {
            return self.window(py, sample);
        }
        let found = fetched(py, reader, sample, RustReader::sample)?;
        let plan = self.decoder.plan(py, &found.schema)?;
        self.decoder.sample(py, &plan, &found.bytes)
    }

    /// Starts an epoch and returns the batches of `rank` and `worker`.
    ///
    /// `hold` is the number of returned batches whose raw files stay pinned, and the process that may use them for a
    /// while after the batches are closed, if any.
    #[pyo3(signature = (options, rank, worker, threads=1, hold=(1, None)))]
    fn epoch(
        &self,
        py: Python<'_>,
        options: &PyEpochOptions,
        rank: u64,
        worker: u64,
        threads: usize,
        hold: (usize, Option<u64>),
    ) -> PyResult<Batches> {
        let reader = self.here()?;
        let config = self.config(options)?;
        let skip = options.skip();
        let options = batch_options(rank, worker, threads);
        let batches = py.detach(|| reader.epoch_without(&config, options, skip));
        let batches = batches.map_err(raise)?;
        Ok(Batches::new(batches, Arc::clone(&self.decoder), hold))
    }

    /// Starts an epoch and returns the token batches of `rank` and `worker`. The batch size of `options` counts rows.
    fn token_batches(
        &self,
        py: Python<'_>,
        options: &PyEpochOptions,
        tokens: &PyTokenOptions,
        rank: u64,
        worker: u64,
    ) -> PyResult<TokenBatches> {
        let reader = self.here()?;
        let config = self.config(options)?;
        let skip = options.skip();
        let options = batch_options(rank, worker, 1);
        let tokens = tokens.0.clone();
        let batches = py.detach(|| reader.token_batches(&config, options, tokens, skip));
        batches.map(TokenBatches::new).map_err(raise)
    }

    /// Returns the number of rows of an epoch, without repeated ones.
    fn token_rows(
        &self,
        py: Python<'_>,
        options: &PyEpochOptions,
        tokens: &PyTokenOptions,
    ) -> PyResult<u64> {
        let config = self.config(options)?;
        let epoch = py.detach(|| tokens.epoch(&config)).map_err(raise)?;
        Ok(epoch.rows())
    }

    /// Reads all samples and returns the number of tokens of each, as little-endian 32-bit integers.
    #[pyo3(signature = (column, dtype=None))]
    fn token_lengths<'py>(
        &self,
        py: Python<'py>,
        column: String,
        dtype: Option<&str>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let reader = Arc::clone(self.here()?);
        let dtype = dtype.map(dtype_of).transpose()?;
        let lengths = wait(py, move || reader.token_lengths(&column, dtype))?;
        Ok(packed(
            py,
            lengths
                .map_err(raise)?
                .iter()
                .map(|length| length.to_le_bytes()),
        ))
    }

    /// Returns the sample order of `rank` and `worker` in an epoch, without reading samples.
    fn order(
        &self,
        py: Python<'_>,
        options: &PyEpochOptions,
        rank: u64,
        worker: u64,
    ) -> PyResult<Order> {
        let config = self.config(options)?;
        py.detach(|| Order::new(&config, (rank, worker), options.skip()))
            .map_err(raise)
    }

    /// Returns the identity of an order, as JSON for states.
    fn order_identity(&self, py: Python<'_>, options: &PyEpochOptions) -> PyResult<String> {
        let config = self.config(options)?;
        let identity = py.detach(|| OrderIdentity::new(&config, config.num_canonical_nodes));
        Ok(identity.map_err(raise)?.render())
    }

    /// Raises an error if the identity is of another order than the options describe.
    fn check_order_identity(
        &self,
        py: Python<'_>,
        options: &PyEpochOptions,
        identity: &str,
    ) -> PyResult<()> {
        let config = self.config(options)?;
        let checked = py.detach(|| {
            OrderIdentity::parse(identity.as_bytes())?.check(&config, config.num_canonical_nodes)
        });
        checked.map_err(|error: Error| raise(error))
    }

    /// Returns the stream of a sample, its stored number in it, and the hash of the index of the stream.
    fn stored_place(&self, sample: u64) -> PyResult<(usize, u64, String)> {
        let stored = self.here()?.stored_place(sample).map_err(raise)?;
        let digest = stored.index_digest.iter();
        let digest: String = digest.map(|byte| format!("{byte:02x}")).collect();
        Ok((stored.stream, stored.number, format!("sha256:{digest}")))
    }

    /// Returns the offset of a value in the raw file of its shard, and its bytes; `None` if the sample has none.
    fn value_at<'py>(
        &self,
        py: Python<'py>,
        sample: u64,
        column: String,
    ) -> PyResult<Option<(u64, Bound<'py, PyBytes>)>> {
        let reader = Arc::clone(self.here()?);
        let found = wait(py, move || reader.value_at(sample, &column))?.map_err(raise)?;
        Ok(found.map(|(offset, bytes)| (offset, PyBytes::new(py, &bytes))))
    }

    /// Reads ranges of the raw file of the shard of a sample.
    fn read_ranges<'py>(
        &self,
        py: Python<'py>,
        sample: u64,
        ranges: Vec<(u64, u64)>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let reader = Arc::clone(self.here()?);
        let ranges: Vec<_> = ranges.into_iter().map(|(start, end)| start..end).collect();
        let read = wait(py, move || reader.read_ranges(sample, &ranges))?;
        let read = read.map_err(raise)?;
        Ok(read.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }

    /// Returns the mixture with which a run continues from a state that recorded one, as JSON. The options contain the
    /// position of the state, and the mixture of the program if it has one.
    fn continued_mixture(&self, options: &PyEpochOptions, recorded: &str) -> PyResult<String> {
        let config = self.config(options)?;
        let recorded = Mixture::from_json(recorded.as_bytes()).map_err(raise)?;
        let Some(state) = config.resume else {
            return Ok(recorded.to_json());
        };
        let continued = continued_mixture(&recorded, &config, &state);
        Ok(continued.map_err(raise)?.to_json())
    }

    /// Returns the sample number of a raw file, by its path in the tree.
    fn find_file(&self, path: &str) -> PyResult<u64> {
        self.here()?.catalog().find_file(path).map_err(raise)
    }

    /// Returns the number of the sample in a tar file with this key; `None` if there is none.
    fn find_key(&self, py: Python<'_>, key: &str) -> PyResult<Option<u64>> {
        let reader = self.here()?;
        py.detach(|| reader.find_key(key)).map_err(raise)
    }

    /// Returns the key of a sample in a tar file; `None` for other samples.
    fn key_of(&self, py: Python<'_>, sample: u64) -> PyResult<Option<String>> {
        let reader = self.here()?;
        py.detach(|| reader.key_of(sample)).map_err(raise)
    }

    /// Returns the path of a raw file in its tree; `None` for other samples.
    fn file_path(&self, sample: u64) -> PyResult<Option<&str>> {
        Ok(self.here()?.file_path(sample))
    }

    /// Returns the list of raw files of a stream, in any process; `None` for streams of shards.
    fn known_files(&self, stream: usize) -> Option<PyKnownFiles> {
        self.known.get(stream)?.clone().map(PyKnownFiles)
    }

    /// Returns a digest of the paths and lengths of all raw files; `None` without raw files.
    fn files_digest(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let reader = self.here()?;
        Ok(py.detach(|| reader.catalog().files_digest()))
    }

    /// Returns the SHA-256 of the index of each stream, or of its list of raw files, in hexadecimal.
    fn index_digests(&self) -> PyResult<Vec<String>> {
        let streams = self.here()?.catalog().streams().iter();
        let digests = streams.map(|stream| stream.index_digest.map(|byte| format!("{byte:02x}")));
        Ok(digests.map(|digits| digits.concat()).collect())
    }

    /// Pins a raw file, downloading it if necessary.
    fn hold_file(&self, py: Python<'_>, sample: u64) -> PyResult<FileUse> {
        let reader = self.here()?;
        let file_use = fetched(py, reader, sample, RustReader::hold_file)?;
        Ok(FileUse {
            path: file_use.path(),
            file_use: Mutex::new(Some(OfProcess::new(file_use))),
        })
    }

    /// Starts downloading raw files in the background, in this order, as far as space allows. Returns how many were not
    /// known to be cached.
    fn preload(&self, py: Python<'_>, samples: Vec<u64>) -> PyResult<u64> {
        let reader = self.here()?;
        py.detach(|| reader.preload(&samples)).map_err(raise)
    }

    /// Returns how many preloaded files are still pending.
    fn preloading(&self) -> PyResult<u64> {
        Ok(self.here()?.preloading())
    }

    /// Reads a raw file from its source, bypassing the cache.
    fn read_file<'py>(&self, py: Python<'py>, sample: u64) -> PyResult<Bound<'py, PyBytes>> {
        let reader = Arc::clone(self.here()?);
        let bytes = wait(py, move || reader.read_file(sample))?;
        bytes.map(|bytes| PyBytes::new(py, &bytes)).map_err(raise)
    }

    /// Checks at the source that a raw file is unchanged since it was listed.
    fn check_file(&self, py: Python<'_>, sample: u64) -> PyResult<()> {
        let reader = Arc::clone(self.here()?);
        wait(py, move || reader.check_file(sample))?.map_err(raise)
    }

    /// Returns the minimum cache limit for pinning any `count` raw files at once, plus the file list; 0 without
    /// cached raw files.
    fn least_limit(&self, py: Python<'_>, count: usize) -> PyResult<u64> {
        let reader = self.here()?;
        py.detach(|| reader.least_limit(count)).map_err(raise)
    }

    /// Returns the minimum cache limit for opening the streams; 0 if any limit suffices.
    fn least_cache_limit(&self, py: Python<'_>) -> PyResult<u64> {
        let reader = self.here()?;
        py.detach(|| reader.least_cache_limit()).map_err(raise)
    }

    /// Returns whether the shard of a sample is on this machine.
    fn is_here(&self, py: Python<'_>, sample: u64) -> PyResult<bool> {
        let reader = self.here()?;
        py.detach(|| reader.is_here(sample)).map_err(raise)
    }

    /// Returns statistics of the cache and the stores, by name; times in seconds.
    fn cache_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.here()?.cache_stats();
        let dict = PyDict::new(py);
        dict.set_item("fetched_shards", stats.fetched_shards)?;
        dict.set_item("fetched_bytes", stats.fetched_bytes)?;
        dict.set_item("bad_fetches", stats.bad_fetches)?;
        dict.set_item("found_shards", stats.found_shards)?;
        dict.set_item("cache_waits", stats.waits)?;
        dict.set_item("cache_wait_seconds", stats.waited.as_secs_f64())?;
        dict.set_item("evicted_shards", stats.evictions)?;
        dict.set_item("bypassed_shards", stats.bypasses)?;
        dict.set_item("single_samples", stats.alone_samples)?;
        dict.set_item("cached_bytes", stats.resident_bytes)?;
        dict.set_item("memory_bytes", stats.memory_bytes)?;
        dict.set_item("open_shards", stats.open_shards)?;
        for (name, activity) in [
            ("fetch_seconds", Activity::Fetch),
            ("hash_seconds", Activity::Hash),
            ("decompress_seconds", Activity::Decompress),
            ("store_seconds", Activity::Store),
            ("fill_seconds", Activity::Fill),
        ] {
            dict.set_item(name, self.here()?.busy(activity).as_secs_f64())?;
        }
        let remote = self.here()?.remote_stats();
        dict.set_item("requests", remote.requests)?;
        dict.set_item("retries", remote.retries)?;
        dict.set_item("throttled", remote.throttled)?;
        dict.set_item("received_bytes", remote.bytes)?;
        let cluster = self.here()?.cluster_stats();
        dict.set_item("peer_files", cluster.files)?;
        dict.set_item("peer_bytes", cluster.bytes)?;
        dict.set_item("peer_failures", cluster.failures)?;
        Ok(dict)
    }

    /// Begins to record the steps of this reader.
    fn start_trace(&self) -> PyResult<()> {
        self.here()?.start_trace();
        Ok(())
    }

    /// Stops recording. Returns the activity, lane, start and duration in seconds of each step.
    fn end_trace(&self) -> PyResult<Vec<(&'static str, usize, f64, f64)>> {
        let steps = self.here()?.end_trace().into_iter().map(|step| {
            let (start, duration) = (step.start.as_secs_f64(), step.duration.as_secs_f64());
            (step.activity.name(), step.lane, start, duration)
        });
        Ok(steps.collect())
    }
}

/// A pinned raw file, which stays in place until it is released.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct FileUse {
    path: PathBuf,
    file_use: Mutex<Option<OfProcess<RustFileUse>>>,
}

#[pymethods]
impl FileUse {
    /// The local path.
    #[getter]
    fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is pinned.
    #[getter]
    fn is_held(&self) -> bool {
        let file_use = lock(&self.file_use);
        file_use.as_ref().and_then(OfProcess::get).is_some()
    }

    /// Allows the file to be evicted. A second call does nothing.
    fn release(&self, py: Python<'_>) {
        py.detach(|| {
            let file_use = lock(&self.file_use).take();
            drop(file_use);
        });
    }
}

impl Reader {
    pub(crate) fn config(&self, options: &PyEpochOptions) -> PyResult<EpochConfig> {
        let streams = self.here()?.epoch_config(1, World::SINGLE).streams;
        Ok(options.with_streams(streams))
    }

    /// Returns the window of a sample.
    fn window<'py>(&self, py: Python<'py>, sample: u64) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.here()?;
        let batch = fetched(py, reader, sample, RustReader::window)?;
        let plans = self.decoder.plans_of(py, &batch)?;
        let ready = py.detach(|| self.decoder.ready(batch, plans))?;
        self.decoder.dicts(py, ready)?.get_item(0)
    }

    pub(crate) fn here(&self) -> PyResult<&Arc<RustReader>> {
        self.reader.get().ok_or_else(|| {
            let message = "a reader was used in another process than the one that made it";
            raise_with(ErrorKind::Bug, "reader-process", message.to_owned())
        })
    }
}

const fn batch_options(rank: u64, worker: u64, threads: usize) -> BatchOptions {
    BatchOptions {
        rank,
        worker,
        threads,
        queue: QUEUE,
    }
}

/// Calls a reader for one sample. Signals are handled while the sample is fetched.
fn fetched<T: Send + 'static>(
    py: Python<'_>,
    reader: &Arc<RustReader>,
    sample: u64,
    call: fn(&RustReader, u64) -> Result<T, Error>,
) -> PyResult<T> {
    let result = if reader.is_at_hand(sample) {
        py.detach(|| call(reader, sample))
    } else {
        let reader = Arc::clone(reader);
        wait(py, move || call(&reader, sample))?
    };
    result.map_err(raise)
}
