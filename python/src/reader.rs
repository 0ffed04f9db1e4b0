//! Readers of streams, their epochs and samples.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use shardmill_core::{ErrorKind, Limits};
use shardmill_dataset::{
    DatasetError, FileForm, FileOptions, KnownFiles, Schema, SchemaColumn, StreamOptions,
    TarPattern,
};
use shardmill_mds::HashAlgo;
use shardmill_order::{EpochConfig, State, Weight, World};
use shardmill_reader::{
    BatchOptions, CacheOptions, FileUse as RustFileUse, OrderIdentity, Peers, Reader as RustReader,
    ReaderOptions, StateError,
};
use shardmill_storage::{Location, RemoteOptions, StorageError, settings_of};

use crate::batches::{Batches, Order};
use crate::decode::Decoder;
use crate::errors::{raise, raise_with};
use crate::process::OfProcess;
use crate::waiting::wait;

/// Streams that are read together, in the process that opened them. A forked child must open its own reader.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct Reader {
    reader: OfProcess<Arc<RustReader>>,
    decoder: Arc<Decoder>,
    /// For each stream the list of its raw files, which forked children reuse.
    known: Vec<Option<KnownFiles>>,
}

/// The list of a tree of raw files, for another reader of the same tree.
#[pyclass(frozen, name = "KnownFiles", module = "shardmill._core")]
#[derive(Clone)]
pub(crate) struct PyKnownFiles(KnownFiles);

fn wrong<T: std::fmt::Display>(name: &str, value: T, expected: &str) -> PyErr {
    let message = format!("{name}: {value} is not {expected}");
    raise_with(ErrorKind::InvalidInput, "config-value", message)
}

/// Returns a value of a dict; `None` if it is missing or `None`.
fn value<'py, T>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<Option<T>>
where
    T: FromPyObjectOwned<'py>,
{
    match dict.get_item(key)? {
        Some(value) if !value.is_none() => Ok(Some(value.extract().map_err(Into::into)?)),
        _ => Ok(None),
    }
}

fn parse<T>(dict: &Bound<'_, PyDict>, key: &str, or: T) -> PyResult<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    match value::<String>(dict, key)? {
        // The error lists the valid values.
        Some(text) => text.parse().map_err(|error| {
            let message = format!("{key}: {error}");
            raise_with(ErrorKind::InvalidInput, "config-value", message)
        }),
        None => Ok(or),
    }
}

fn weight(stream: &Bound<'_, PyDict>) -> PyResult<Weight> {
    let proportion = value::<f64>(stream, "proportion")?.map(Weight::Proportion);
    let repeat = value::<f64>(stream, "repeat")?.map(Weight::Repeat);
    let choose = value::<u64>(stream, "choose")?.map(Weight::Choose);
    let mut given = [proportion, repeat, choose].into_iter().flatten();
    let weight = given.next().unwrap_or_default();
    match given.next() {
        None => Ok(weight),
        Some(_) => Err(raise_with(
            ErrorKind::InvalidInput,
            "config-weight",
            "a stream has at most one of proportion, repeat and choose".to_owned(),
        )),
    }
}

fn hash(options: &Bound<'_, PyDict>) -> PyResult<Option<HashAlgo>> {
    let Some(name) = value::<String>(options, "validate_hash")? else {
        return Ok(None);
    };
    match name.parse() {
        Ok(algo) => Ok(Some(algo)),
        Err(_) => {
            let names: Vec<&str> = HashAlgo::ALL.iter().map(|algo| algo.name()).collect();
            let known = format!("one of {}", names.join(", "));
            Err(wrong("validate_hash", format!("`{name}`"), &known))
        }
    }
}

fn stream(options: &Bound<'_, PyDict>) -> PyResult<StreamOptions> {
    let remote = value::<String>(options, "remote")?;
    let local = value::<PathBuf>(options, "local")?;
    let files = value::<Bound<'_, PyDict>>(options, "files")?;
    let named = match &files {
        None => StreamOptions::named(remote.as_deref(), local).map_err(|error| raise(&error))?,
        // The location of a tree is never parsed as a pattern.
        Some(_) => StreamOptions {
            remote: remote
                .map(|remote| Location::parse(&remote))
                .transpose()
                .map_err(|error| raise(&error))?,
            local,
            ..StreamOptions::default()
        },
    };
    Ok(StreamOptions {
        split: value::<String>(options, "split")?.filter(|split| !split.is_empty()),
        weight: weight(options)?,
        keep_zip: value::<bool>(options, "keep_zip")?.unwrap_or(false),
        with_deleted: value::<bool>(options, "with_deleted")?.unwrap_or(false),
        validate_hash: hash(options)?,
        expect_index: value::<String>(options, "expect_index")?,
        files: files.map(|files| file_options(&files)).transpose()?,
        ..named
    })
}

fn file_options(options: &Bound<'_, PyDict>) -> PyResult<FileOptions> {
    let form = match value::<String>(options, "form")?.as_deref() {
        None | Some("data") => FileForm::Data,
        Some("file") => FileForm::File,
        Some("both") => FileForm::Both,
        Some(other) => {
            let expected = "`data`, `file` or `both`";
            return Err(wrong("yields", format!("`{other}`"), expected));
        }
    };
    Ok(FileOptions {
        form,
        include: value(options, "include")?.unwrap_or_default(),
        exclude: value(options, "exclude")?.unwrap_or_default(),
        relist: value(options, "relist")?.unwrap_or(false),
        expect: value(options, "expect")?,
        known: value::<Py<PyKnownFiles>>(options, "known")?.map(|known| known.get().0.clone()),
    })
}

fn remote_options(options: &Bound<'_, PyDict>) -> PyResult<RemoteOptions> {
    let mut remote = RemoteOptions {
        settings: settings_of(std::env::vars()),
        ..RemoteOptions::default()
    };
    let retries = value::<u32>(options, "download_retry")?;
    if let Some(retries) = retries {
        remote.retry.attempts = remote.retry.attempts.max(retries.saturating_add(1));
    }
    // COMPAT: the timeout of an attempt without new data, like `read_timeout` in `streaming`.
    if let Some(timeout) = value::<f64>(options, "download_timeout")? {
        let timeout = Duration::try_from_secs_f64(timeout)
            .map_err(|_| wrong("download_timeout", timeout, "a number of seconds"))?;
        let attempts = retries.unwrap_or(2).saturating_add(1);
        remote.request.total_timeout = timeout.checked_mul(attempts).unwrap_or(Duration::MAX);
        remote.request.idle_timeout = remote.request.idle_timeout.min(timeout);
        remote.request.connect_timeout = remote.request.connect_timeout.min(timeout);
    }
    if let Some(settings) = value::<Bound<'_, PyDict>>(options, "settings")? {
        let given: Vec<(String, String)> = settings
            .iter()
            .map(|(name, value)| -> PyResult<(String, String)> {
                Ok((name.extract()?, value.extract()?))
            })
            .collect::<PyResult<_>>()?;
        remote = remote.with_settings(settings_of(given.into_iter()));
    }
    Ok(remote)
}

fn cache_options(options: &Bound<'_, PyDict>) -> PyResult<CacheOptions> {
    let mut cache = CacheOptions {
        limit: value(options, "cache_limit")?,
        lookahead: value(options, "lookahead")?,
        ..CacheOptions::default()
    };
    if let Some(memory) = value(options, "memory")? {
        cache.memory = memory;
    }
    if let Some(owner) = value(options, "owner")? {
        cache.owner = owner;
    }
    if let Some(pins) = value(options, "pins")? {
        cache.pins = pins;
    }
    if let Some(timeout) = value::<f64>(options, "cache_timeout")? {
        cache.timeout = Duration::try_from_secs_f64(timeout)
            .map_err(|_| wrong("timeout", timeout, "a number of seconds"))?;
    }
    if let Some(in_flight) = value(options, "in_flight")? {
        cache.in_flight = in_flight;
    }
    if let Some((rank, ranks, run)) = value::<(u64, u64, u64)>(options, "peers")? {
        cache.peers = (ranks > 1).then_some(Peers { rank, ranks, run });
    }
    Ok(cache)
}

/// Returns the folder of a tar file or of a pattern of tar files; `None` for other locations.
#[pyfunction]
#[pyo3(signature = (text))]
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
        Err(error) => Err(raise(&error)),
    }
}

/// Returns whether the Rust reader can read a remote; `None` is a local dataset.
#[pyfunction]
#[pyo3(signature = (remote))]
pub(crate) fn is_served(remote: Option<&str>) -> PyResult<bool> {
    if let Some(remote) = remote
        && tar_folder(remote)?.is_some()
    {
        return Ok(true);
    }
    match remote.map(Location::parse) {
        None | Some(Ok(_)) => Ok(true),
        Some(Err(error)) if matches!(error.fault(), StorageError::UrlScheme { .. }) => Ok(false),
        Some(Err(error)) => Err(raise(&error)),
    }
}

/// Builds the configuration of an epoch.
pub(crate) fn epoch_config(
    streams: Vec<shardmill_order::StreamConfig>,
    options: &Bound<'_, PyDict>,
) -> PyResult<EpochConfig> {
    let need = |key: &str| -> PyResult<u64> {
        value(options, key)?.ok_or_else(|| wrong(key, "nothing", "a number"))
    };
    let world = World {
        nodes: need("nodes")?,
        ranks_per_node: need("ranks_per_node")?,
        workers_per_rank: need("workers_per_rank")?,
    };
    let default = EpochConfig::new(streams, need("batch_size")?, world);
    let resume = match value::<Bound<'_, PyDict>>(options, "resume")? {
        None => None,
        Some(state) => Some(State {
            epoch: value(&state, "epoch")?.ok_or_else(|| wrong("epoch", "nothing", "a number"))?,
            sample_in_epoch: value(&state, "sample_in_epoch")?
                .ok_or_else(|| wrong("sample_in_epoch", "nothing", "a number"))?,
            num_canonical_nodes: value(&state, "num_canonical_nodes")?,
            shuffle_seed: value(&state, "shuffle_seed")?
                .ok_or_else(|| wrong("shuffle_seed", "nothing", "a number"))?,
            initial_physical_nodes: value(&state, "initial_physical_nodes")?,
        }),
    };
    Ok(EpochConfig {
        epoch_size: value(options, "epoch_size")?,
        num_canonical_nodes: value(options, "num_canonical_nodes")?,
        shuffle_block_size: value(options, "shuffle_block_size")?,
        replication: value(options, "replication")?,
        shuffle: value(options, "shuffle")?.unwrap_or(false),
        shuffle_algo: parse(options, "shuffle_algo", default.shuffle_algo)?,
        shuffle_seed: value(options, "shuffle_seed")?.unwrap_or(default.shuffle_seed),
        sampling_method: parse(options, "sampling_method", default.sampling_method)?,
        sampling_granularity: value(options, "sampling_granularity")?
            .unwrap_or(default.sampling_granularity),
        partition_algo: parse(options, "partition_algo", default.partition_algo)?,
        batching_method: parse(options, "batching_method", default.batching_method)?,
        epoch: value(options, "epoch")?.unwrap_or(0),
        resume,
        ..default
    })
}

#[pymethods]
impl Reader {
    /// Opens streams, reading only their indexes.
    ///
    /// `streams` are dicts of `remote`, `local`, `split`, `keep_zip`, `with_deleted`, `validate_hash`, `expect_index`,
    /// and one of `proportion`, `repeat` and `choose`. A tree of raw files also has `files`: a dict of `form`,
    /// `include`, `exclude`, `relist`, `expect`, `known`.
    ///
    /// `options` is a dict of `cache_limit`, `lookahead`, `memory`, `in_flight`, `peers`, `owner`, `pins`,
    /// `cache_timeout`, `download_retry`, `download_timeout`, `settings`.
    ///
    /// `decode_value(encoding, data)` and `decode_line(layout, data)` decode what Rust does not.
    /// `decode_field(field, data)` decodes fields of WebDataset samples; without it they are bytes.
    #[new]
    #[pyo3(signature = (streams, options, decode_value, decode_line, decode_field=None))]
    fn new(
        py: Python<'_>,
        streams: Vec<Bound<'_, PyDict>>,
        options: &Bound<'_, PyDict>,
        decode_value: Py<PyAny>,
        decode_line: Py<PyAny>,
        decode_field: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let streams = streams.iter().map(stream).collect::<PyResult<Vec<_>>>()?;
        let options = ReaderOptions {
            limits: Limits::default(),
            remote: remote_options(options)?,
            cache: cache_options(options)?,
            validate_hash: None,
        };
        let limits = options.limits.clone();
        let count = streams.len();
        let reader = if streams.iter().any(|stream| stream.remote.is_some()) {
            wait(py, move || RustReader::open(&streams, &options))?
        } else {
            py.detach(|| RustReader::open(&streams, &options))
        };
        let reader = reader.map_err(|error| raise(&error))?;
        Ok(Self {
            known: (0..count)
                .map(|stream| reader.known_files(stream))
                .collect(),
            reader: OfProcess::new(Arc::new(reader)),
            decoder: Arc::new(Decoder::new(
                (decode_value, decode_line, decode_field),
                limits,
            )),
        })
    }

    /// Total samples of all streams.
    #[getter]
    fn samples(&self) -> PyResult<u64> {
        Ok(self.here()?.samples())
    }

    /// Total shards of all streams.
    #[getter]
    fn shards(&self) -> PyResult<usize> {
        Ok(self.here()?.shards())
    }

    /// Returns for each stream the samples of its shards, as little-endian 64-bit integers.
    fn shard_sizes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let config = self.here()?.epoch_config(1, World::SINGLE);
        let sizes = config.streams.iter().map(|stream| {
            let bytes: Vec<u8> = stream
                .shards
                .iter()
                .flat_map(|size| size.to_le_bytes())
                .collect();
            PyBytes::new(py, &bytes)
        });
        Ok(sizes.collect())
    }

    /// Returns the ranges of deleted samples of a stream, by their stored numbers.
    fn deleted_samples(&self, stream: usize) -> PyResult<Vec<(u64, u64)>> {
        Ok(self.here()?.deleted_samples(stream))
    }

    /// Returns the size of the largest shard in bytes, raw and compressed together.
    fn largest_shard(&self) -> PyResult<u64> {
        Ok(self.here()?.largest_shard())
    }

    /// Returns the names of the columns with an encoding, in any shard.
    fn columns_of(&self, encoding: &str) -> PyResult<Vec<String>> {
        let mut names = Vec::new();
        for schema in self.here()?.schemas() {
            let Schema::Binary { columns, .. } = &**schema else {
                continue;
            };
            let of = |column: &&SchemaColumn| column.encoding.to_string() == encoding;
            names.extend(columns.iter().filter(of).map(|column| column.name.clone()));
        }
        Ok(names)
    }

    /// Returns whether Rust decodes all columns, without Python callables.
    fn is_native(&self, py: Python<'_>) -> PyResult<bool> {
        for schema in self.here()?.schemas() {
            if !self.decoder.plan(py, schema)?.is_native() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns one decoded sample.
    fn sample<'py>(&self, py: Python<'py>, sample: u64) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.here()?;
        let found = if reader.is_at_hand(sample) {
            py.detach(|| reader.sample(sample))
        } else {
            let reader = Arc::clone(reader);
            wait(py, move || reader.sample(sample))?
        };
        let found = found.map_err(|error| raise(&error))?;
        let plan = self.decoder.plan(py, &found.schema)?;
        self.decoder.sample(py, &plan, &found.bytes)
    }

    /// Starts an epoch and returns the batches of `rank` and `worker`. `config` is like the order of
    /// `shardmill order --json`.
    ///
    /// `keep` is the number of returned batches whose raw files stay pinned. `owner` is the process that may use them
    /// for a while after the batches are closed, if any.
    #[pyo3(signature = (config, rank, worker, threads=1, queue=16, keep=1, owner=None))]
    #[expect(
        clippy::too_many_arguments,
        reason = "a method of a class, with defaults"
    )]
    fn epoch(
        &self,
        py: Python<'_>,
        config: &Bound<'_, PyDict>,
        rank: u64,
        worker: u64,
        threads: usize,
        queue: u64,
        keep: usize,
        owner: Option<u64>,
    ) -> PyResult<Batches> {
        let reader = self.here()?;
        let streams = reader.epoch_config(1, World::SINGLE).streams;
        let config = epoch_config(streams, config)?;
        let options = BatchOptions {
            rank,
            worker,
            threads,
            queue,
        };
        let batches = py.detach(|| reader.epoch(&config, options));
        let batches = batches.map_err(|error| raise(&error))?;
        Ok(Batches::new(
            batches,
            Arc::clone(&self.decoder),
            (keep, owner),
        ))
    }

    /// Returns the sample order of `rank` and `worker` in an epoch; `config` is as for `epoch`.
    fn order(
        &self,
        py: Python<'_>,
        config: &Bound<'_, PyDict>,
        rank: u64,
        worker: u64,
    ) -> PyResult<Order> {
        let streams = self.here()?.epoch_config(1, World::SINGLE).streams;
        let config = epoch_config(streams, config)?;
        py.detach(|| Order::new(&config, rank, worker))
            .map_err(|error| raise(&error))
    }

    /// Returns the identity of the order that `config` (as for `epoch`) describes, as JSON for states.
    fn order_identity(&self, py: Python<'_>, config: &Bound<'_, PyDict>) -> PyResult<String> {
        let config = epoch_config(self.here()?.epoch_config(1, World::SINGLE).streams, config)?;
        let identity = py.detach(|| OrderIdentity::new(&config, config.num_canonical_nodes));
        Ok(identity.map_err(|error| raise(&error))?.render())
    }

    /// Raises an error if the identity is of another order than `config` (as for `epoch`) describes.
    fn check_order_identity(
        &self,
        py: Python<'_>,
        config: &Bound<'_, PyDict>,
        identity: &str,
    ) -> PyResult<()> {
        let config = epoch_config(self.here()?.epoch_config(1, World::SINGLE).streams, config)?;
        let checked = py.detach(|| {
            OrderIdentity::parse(identity.as_bytes())?.check(&config, config.num_canonical_nodes)
        });
        checked.map_err(|error: StateError| raise(&error))
    }

    /// Returns the sample number of a raw file, by its path in the tree.
    fn find_file(&self, path: &str) -> PyResult<u64> {
        self.here()?.find_file(path).map_err(|error| raise(&error))
    }

    /// Returns the number of the sample in a tar file with this key; `None` if there is none.
    fn find_key(&self, py: Python<'_>, key: &str) -> PyResult<Option<u64>> {
        let reader = self.here()?;
        py.detach(|| reader.find_key(key))
            .map_err(|error| raise(&error))
    }

    /// Returns the key of a sample in a tar file; `None` for other samples.
    fn key_of(&self, py: Python<'_>, sample: u64) -> PyResult<Option<String>> {
        let reader = self.here()?;
        py.detach(|| reader.key_of(sample))
            .map_err(|error| raise(&error))
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
        Ok(py.detach(|| reader.files_digest()))
    }

    /// Pins a raw file, downloading it if necessary.
    fn hold_file(&self, py: Python<'_>, sample: u64) -> PyResult<FileUse> {
        let reader = self.here()?;
        let held = if reader.is_at_hand(sample) {
            py.detach(|| reader.hold_file(sample))
        } else {
            let reader = Arc::clone(reader);
            wait(py, move || reader.hold_file(sample))?
        };
        let held = held.map_err(|error| raise(&error))?;
        Ok(FileUse {
            path: held.path(),
            held: Mutex::new(Some(OfProcess::new(held))),
        })
    }

    /// Starts downloading raw files in the background, in this order, as far as space allows. Returns how many were not
    /// known to be cached.
    fn preload(&self, py: Python<'_>, samples: Vec<u64>) -> PyResult<u64> {
        let reader = self.here()?;
        py.detach(|| reader.preload(&samples))
            .map_err(|error| raise(&error))
    }

    /// Returns how many preloaded files are still pending.
    fn preloading(&self) -> PyResult<u64> {
        Ok(self.here()?.preloading())
    }

    /// Reads a raw file from its source, bypassing the cache.
    fn read_file<'py>(&self, py: Python<'py>, sample: u64) -> PyResult<Bound<'py, PyBytes>> {
        let reader = Arc::clone(self.here()?);
        let bytes = wait(py, move || reader.read_file(sample))?;
        bytes
            .map(|bytes| PyBytes::new(py, &bytes))
            .map_err(|error| raise(&error))
    }

    /// Checks at the source that a raw file is unchanged since it was listed.
    fn check_file(&self, py: Python<'_>, sample: u64) -> PyResult<()> {
        let reader = Arc::clone(self.here()?);
        wait(py, move || reader.check_file(sample))?.map_err(|error| raise(&error))
    }

    /// Returns the minimum cache limit for pinning any `count` raw files at once, plus the file list; 0 without
    /// cached raw files.
    fn least_limit(&self, py: Python<'_>, count: usize) -> PyResult<u64> {
        let reader = self.here()?;
        py.detach(|| reader.least_limit(count))
            .map_err(|error| raise(&error))
    }

    /// Returns the minimum cache limit for opening the streams; 0 if any limit suffices.
    fn least_cache_limit(&self, py: Python<'_>) -> PyResult<u64> {
        let reader = self.here()?;
        py.detach(|| reader.least_cache_limit())
            .map_err(|error| raise(&error))
    }

    /// Returns whether the shard of a sample is on this machine.
    fn is_here(&self, py: Python<'_>, sample: u64) -> PyResult<bool> {
        let reader = self.here()?;
        py.detach(|| reader.is_here(sample))
            .map_err(|error| raise(&error))
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
        let remote = self.here()?.remote_stats();
        dict.set_item("requests", remote.requests)?;
        dict.set_item("retries", remote.retries)?;
        dict.set_item("received_bytes", remote.bytes)?;
        Ok(dict)
    }
}

/// A pinned raw file, which stays in place until it is released.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct FileUse {
    path: PathBuf,
    held: Mutex<Option<OfProcess<RustFileUse>>>,
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
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().and_then(OfProcess::get).is_some()
    }

    /// Allows the file to be evicted. A second call does nothing.
    fn release(&self, py: Python<'_>) {
        py.detach(|| {
            let held = self
                .held
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            drop(held);
        });
    }
}

impl Reader {
    fn here(&self) -> PyResult<&Arc<RustReader>> {
        self.reader.get().ok_or_else(|| {
            let message = "a reader was used in another process than the one that made it";
            raise_with(ErrorKind::Bug, "reader-process", message.to_owned())
        })
    }
}
