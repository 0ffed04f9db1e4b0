//! Options of readers and epochs: immutable objects, created from keyword arguments. Unknown arguments are errors.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use shardmill_core::ErrorKind;
use shardmill_dataset::{FileForm, FileOptions, KnownFiles, StreamFiles, StreamOptions};
use shardmill_mds::HashAlgo;
use shardmill_order::{
    EpochConfig, Mixture, SamplingOptions, ShuffleOptions, Skip, State, StreamConfig, Weight, World,
};
use shardmill_reader::{CacheOptions, ClusterOptions, Peers, ReaderOptions, TlsOptions, Window};
use shardmill_storage::{Location, RemoteOptions, StoreSettings};

use crate::decode::reader_limits;
use crate::errors::{raise, raise_with};
use crate::storage::{ARGUMENT, Settings, environment};
use crate::table::table_options;
use crate::view::PyView;

/// The keyword arguments of a class, which are taken one by one.
pub(crate) struct Keywords<'py> {
    class: &'static str,
    /// A dict of this call alone.
    left: Option<Bound<'py, PyDict>>,
}

impl<'py> Keywords<'py> {
    pub(crate) const fn new(class: &'static str, given: Option<Bound<'py, PyDict>>) -> Self {
        Self { class, left: given }
    }

    /// Takes an argument; `None` if it is missing or `None`.
    pub(crate) fn take<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<Option<T>> {
        let Some(left) = &self.left else {
            return Ok(None);
        };
        let Some(value) = left.get_item(name)? else {
            return Ok(None);
        };
        left.del_item(name)?;
        if value.is_none() {
            return Ok(None);
        }
        let extracted = value.extract::<T>().map_err(Into::<PyErr>::into);
        extracted.map(Some).map_err(
            |error| match error.is_instance_of::<PyTypeError>(left.py()) {
                true => PyTypeError::new_err(format!(
                    "{}() argument '{name}': {}",
                    self.class,
                    error.value(left.py())
                )),
                false => error,
            },
        )
    }

    /// Takes an argument that must not be missing.
    pub(crate) fn need<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<T> {
        self.take(name)?.ok_or_else(|| {
            let class = self.class;
            PyTypeError::new_err(format!("{class}() missing required argument: '{name}'"))
        })
    }

    /// Takes an argument and parses its text.
    fn parse<T>(&self, name: &str, default: T) -> PyResult<T>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        match self.take::<String>(name)? {
            // The error lists the valid values.
            Some(text) => text.parse().map_err(|error| {
                let message = format!("{name}: {error}");
                raise_with(ErrorKind::InvalidInput, "config-value", message)
            }),
            None => Ok(default),
        }
    }

    /// Rejects arguments that were not taken.
    pub(crate) fn end(self) -> PyResult<()> {
        let Some(name) = self.left.and_then(|left| left.keys().iter().next()) else {
            return Ok(());
        };
        let class = self.class;
        Err(PyTypeError::new_err(format!(
            "{class}() got an unexpected keyword argument '{name}'"
        )))
    }
}

fn wrong<T: std::fmt::Display>(name: &str, value: T, expected: &str) -> PyErr {
    let message = format!("{name}: {value} is not {expected}");
    raise_with(ErrorKind::InvalidInput, "config-value", message)
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_| wrong(name, value, "a number of seconds"))
}

/// The list of a tree of raw files, for another reader of the same tree.
#[pyclass(frozen, name = "KnownFiles", module = "shardmill._core")]
#[derive(Clone)]
pub(crate) struct PyKnownFiles(pub(crate) KnownFiles);

/// How a stream of raw files is listed: `form`, `include`, `exclude`, `relist`, `expect`, `known`.
#[pyclass(frozen, name = "FileOptions", module = "shardmill._core")]
pub(crate) struct PyFileOptions(FileOptions);

#[pymethods]
impl PyFileOptions {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(options: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        let given = Keywords::new("FileOptions", options);
        let form = match given.take::<String>("form")?.as_deref() {
            None | Some("data") => FileForm::Data,
            Some("file") => FileForm::File,
            Some("both") => FileForm::Both,
            Some(other) => {
                let expected = "`data`, `file` or `both`";
                return Err(wrong("yields", format!("`{other}`"), expected));
            }
        };
        let known = given.take::<Py<PyKnownFiles>>("known")?;
        let files = FileOptions {
            form,
            include: given.take("include")?.unwrap_or_default(),
            exclude: given.take("exclude")?.unwrap_or_default(),
            relist: given.take("relist")?.unwrap_or(false),
            expect: given.take("expect")?,
            known: known.map(|known| known.get().0.clone()),
            only: None,
        };
        given.end()?;
        Ok(Self(files))
    }
}

/// A stream: `remote`, `local`, `split`, `keep_zip`, `with_deleted`, `view`, `validate_hash`, `expect_index`, `settings` of the
/// store, one of `proportion`, `repeat` and `choose`, `files` for a tree of raw files, and `table` for a table: its columns (all if
/// empty), the version of a Delta table, and whether nulls are zeros that columns mark.
#[pyclass(frozen, name = "StreamOptions", module = "shardmill._core")]
pub(crate) struct PyStreamOptions(pub(crate) StreamOptions);

#[pymethods]
impl PyStreamOptions {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(options: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        let given = Keywords::new("StreamOptions", options);
        let remote = given.take::<String>("remote")?;
        let local = given.take::<PathBuf>("local")?;
        let files = given.take::<Py<PyFileOptions>>("files")?;
        let mut files = files.map(|files| StreamFiles::from(files.get().0.clone()));
        if let Some((columns, version, masks_nulls)) = given.take("table")? {
            // The caller decides when the table is listed, and the table which files belong to it.
            let listed = files.unwrap_or_default().options;
            let table = table_options(columns, version, masks_nulls).files();
            files = Some(StreamFiles {
                options: FileOptions {
                    relist: listed.relist,
                    expect: listed.expect,
                    known: listed.known,
                    ..table.options
                },
                ..table
            });
        }
        let named = match files {
            None => StreamOptions::named(remote.as_deref(), local),
            // The location of a tree is never parsed as a pattern.
            Some(_) => remote
                .map(|remote| Location::parse(&remote))
                .transpose()
                .map(|remote| StreamOptions {
                    remote,
                    local,
                    ..StreamOptions::default()
                })
                .map_err(Into::into),
        };
        let stream = StreamOptions {
            split: given
                .take::<String>("split")?
                .filter(|split| !split.is_empty()),
            weight: weight(&given)?,
            keep_zip: given.take("keep_zip")?.unwrap_or(false),
            with_deleted: given.take("with_deleted")?.unwrap_or(false),
            view: given
                .take::<Py<PyView>>("view")?
                .map(|view| Arc::clone(&view.get().0)),
            validate_hash: hash(&given)?,
            expect_index: given.take("expect_index")?,
            settings: store_settings(&given)?,
            files,
            ..named.map_err(raise)?
        };
        given.end()?;
        Ok(Self(stream))
    }
}

fn weight(given: &Keywords<'_>) -> PyResult<Weight> {
    let proportion = given.take("proportion")?.map(Weight::Proportion);
    let repeat = given.take("repeat")?.map(Weight::Repeat);
    let choose = given.take("choose")?.map(Weight::Choose);
    let mut weights = [proportion, repeat, choose].into_iter().flatten();
    let weight = weights.next().unwrap_or_default();
    match weights.next() {
        None => Ok(weight),
        Some(_) => Err(raise_with(
            ErrorKind::InvalidInput,
            "config-weight",
            "a stream has at most one of proportion, repeat and choose".to_owned(),
        )),
    }
}

fn hash(given: &Keywords<'_>) -> PyResult<Option<HashAlgo>> {
    let Some(name) = given.take::<String>("validate_hash")? else {
        return Ok(None);
    };
    name.parse().map(Some).map_err(|_| {
        let names: Vec<&str> = HashAlgo::ALL.iter().map(|algo| algo.name()).collect();
        let known = format!("one of {}", names.join(", "));
        wrong("validate_hash", format!("`{name}`"), &known)
    })
}

/// The neighbours that are read with each sample.
///
/// `offsets` are those of all columns, or else `columns` has the offsets of some. `episodes` has a view of the first samples of
/// the episodes for each stream; `None` if all its samples are one episode.
#[pyclass(frozen, name = "Window", module = "shardmill._core")]
pub(crate) struct PyWindow(pub(crate) Arc<Window>);

#[pymethods]
impl PyWindow {
    #[new]
    fn new(
        offsets: Option<Vec<i64>>,
        columns: Vec<(String, Vec<i64>)>,
        pad: bool,
        episodes: Vec<Option<Py<PyView>>>,
    ) -> PyResult<Self> {
        let window = match offsets {
            Some(offsets) => Window::new(offsets, None),
            None => Window::of_columns(columns),
        };
        let episodes = episodes
            .iter()
            .map(|view| Some(Arc::clone(&view.as_ref()?.get().0)));
        let window = window.map_err(raise)?.with_padding(pad);
        Ok(Self(Arc::new(window.with_episodes(episodes.collect()))))
    }
}

/// The cache and the stores of a reader: `cache_limit`, `lookahead`, `memory`, `in_flight`, `peers`, `owner`, `pins`,
/// `cache_timeout`, `download_retry`, `download_timeout`, `settings`; the `cluster`; the `window` of each sample; and the
/// names of the `encodings` that the program registered in the process that opened the dataset.
#[pyclass(frozen, name = "ReaderOptions", module = "shardmill._core")]
pub(crate) struct PyReaderOptions {
    pub(crate) cache: CacheOptions,
    pub(crate) remote: RemoteOptions,
    pub(crate) window: Option<Arc<Window>>,
    pub(crate) cluster: Option<ClusterOptions>,
    encodings: BTreeSet<String>,
}

impl PyReaderOptions {
    /// Returns the options of a reader.
    pub(crate) fn to_options(&self, py: Python<'_>) -> PyResult<ReaderOptions> {
        Ok(ReaderOptions {
            limits: reader_limits(py, &self.encodings)?,
            remote: self.remote.clone(),
            cache: self.cache.clone(),
            validate_hash: None,
            window: self.window.clone(),
            cluster: self.cluster.clone(),
        })
    }
}

#[pymethods]
impl PyReaderOptions {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(options: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        let given = Keywords::new("ReaderOptions", options);
        let options = Self {
            cache: cache(&given)?,
            remote: remote(&given)?,
            window: given
                .take::<Py<PyWindow>>("window")?
                .map(|window| Arc::clone(&window.get().0)),
            cluster: given
                .take::<(Vec<String>, u64, u64, String, Option<[PathBuf; 3]>)>("cluster")?
                .map(|(peers, node, nodes, token, tls)| ClusterOptions {
                    peers,
                    node,
                    nodes,
                    token,
                    tls: tls.map(|[cert, key, ca]| TlsOptions { cert, key, ca }),
                }),
            encodings: given.take("encodings")?.unwrap_or_default(),
        };
        given.end()?;
        Ok(options)
    }

    /// The maximum number of requests for one object or part.
    #[getter]
    const fn attempts(&self) -> u32 {
        self.remote.retry.attempts
    }

    /// The longest time without new data, in seconds.
    #[getter]
    const fn idle_timeout(&self) -> f64 {
        self.remote.request.idle_timeout.as_secs_f64()
    }

    /// The deadline for one object or part with all its retries, in seconds.
    #[getter]
    const fn total_timeout(&self) -> f64 {
        self.remote.request.total_timeout.as_secs_f64()
    }
}

fn cache(given: &Keywords<'_>) -> PyResult<CacheOptions> {
    let mut cache = CacheOptions {
        limit: given.take("cache_limit")?,
        lookahead: given.take("lookahead")?,
        ..CacheOptions::default()
    };
    cache.memory = given.take("memory")?.unwrap_or(cache.memory);
    cache.owner = given.take("owner")?.unwrap_or(cache.owner);
    cache.pins = given.take("pins")?.unwrap_or(cache.pins);
    if let Some(timeout) = given.take("cache_timeout")? {
        cache.timeout = seconds("timeout", timeout)?;
    }
    cache.in_flight = given.take("in_flight")?.unwrap_or(cache.in_flight);
    if let Some((rank, ranks, run)) = given.take::<(u64, u64, u64)>("peers")? {
        cache.peers = (ranks > 1).then_some(Peers { rank, ranks, run });
    }
    Ok(cache)
}

fn store_settings(given: &Keywords<'_>) -> PyResult<StoreSettings> {
    let settings = given.take::<Settings>("settings")?.unwrap_or_default();
    StoreSettings::checked(settings, ARGUMENT).map_err(raise)
}

/// The retries from which the store's own maximum of requests applies: the default of `download_retry`.
const USUAL_RETRIES: u32 = 2;

fn remote(given: &Keywords<'_>) -> PyResult<RemoteOptions> {
    let mut remote = RemoteOptions {
        settings: environment(),
        ..RemoteOptions::default()
    };
    let retries = given.take::<u32>("download_retry")?;
    if let Some(retries) = retries {
        let attempts = retries.saturating_add(1);
        // COMPAT: `streaming` makes several requests for each retry, so that its default stands for more requests.
        remote.retry.outlasts_outages = retries >= USUAL_RETRIES;
        remote.retry.attempts = match remote.retry.outlasts_outages {
            true => remote.retry.attempts.max(attempts),
            false => attempts,
        };
    }
    // COMPAT: the timeout of an attempt without new data, like `read_timeout` in `streaming`.
    if let Some(timeout) = given.take("download_timeout")? {
        let timeout = seconds("download_timeout", timeout)?;
        let attempts = retries.unwrap_or(USUAL_RETRIES).saturating_add(1);
        remote.request.total_timeout = timeout.checked_mul(attempts).unwrap_or(Duration::MAX);
        remote.request.idle_timeout = timeout;
        remote.request.connect_timeout = remote.request.connect_timeout.min(timeout);
    }
    match given.take::<Settings>("settings")? {
        Some(settings) => remote.with_checked(settings, ARGUMENT).map_err(raise),
        None => Ok(remote),
    }
}

/// The inputs that decide the sample order of an epoch, as in the order of `shardmill order --json`.
#[pyclass(frozen, name = "EpochOptions", module = "shardmill._core")]
pub(crate) struct PyEpochOptions {
    epoch: EpochConfig,
    skip: Skip,
}

#[pymethods]
impl PyEpochOptions {
    #[new]
    #[pyo3(signature = (**options))]
    fn new(options: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        let given = Keywords::new("EpochOptions", options);
        let world = World {
            nodes: given.need("nodes")?,
            ranks_per_node: given.need("ranks_per_node")?,
            workers_per_rank: given.need("workers_per_rank")?,
        };
        let default = EpochConfig::new(Vec::new(), given.need("batch_size")?, world);
        let epoch = EpochConfig {
            epoch_size: given.take("epoch_size")?,
            num_canonical_nodes: given.take("num_canonical_nodes")?,
            replication: given.take("replication")?,
            shuffle: ShuffleOptions {
                enabled: given.take("shuffle")?.unwrap_or(false),
                algo: given.parse("shuffle_algo", default.shuffle.algo)?,
                seed: given.take("shuffle_seed")?.unwrap_or(default.shuffle.seed),
                block_size: given.take("shuffle_block_size")?,
            },
            sampling: SamplingOptions {
                method: given.parse("sampling_method", default.sampling.method)?,
                granularity: given
                    .take("sampling_granularity")?
                    .unwrap_or(default.sampling.granularity),
                mixture: given
                    .take::<String>("mixture")?
                    .map(|text| Mixture::from_json(text.as_bytes()).map(Arc::new))
                    .transpose()
                    .map_err(raise)?,
            },
            partition_algo: given.parse("partition_algo", default.partition_algo)?,
            batching_method: given.parse("batching_method", default.batching_method)?,
            epoch: given.take("epoch")?.unwrap_or(0),
            resume: resume(&given)?,
            ..default
        };
        let steps = given.take::<Vec<(u64, u64)>>("skip")?.unwrap_or_default();
        let samples = given.take("skip_samples")?.unwrap_or_default();
        let ranges = steps.into_iter().map(|(first, end)| first..end);
        given.end()?;
        Ok(Self {
            epoch,
            skip: Skip::new(ranges, samples),
        })
    }
}

/// Takes the position that a run resumes from: epoch, sample in the epoch, seed, canonical nodes, nodes of the first run.
fn resume(given: &Keywords<'_>) -> PyResult<Option<State>> {
    let resume = given.take::<(u64, u64, u64, Option<u64>, Option<u64>)>("resume")?;
    Ok(resume.map(
        |(epoch, sample_in_epoch, shuffle_seed, num_canonical_nodes, initial)| State {
            epoch,
            sample_in_epoch,
            num_canonical_nodes,
            shuffle_seed,
            initial_physical_nodes: initial,
        },
    ))
}

impl PyEpochOptions {
    /// Returns the steps and samples that are left out.
    pub(crate) const fn skip(&self) -> &Skip {
        &self.skip
    }

    /// Returns the configuration of an epoch without streams.
    pub(crate) const fn config(&self) -> &EpochConfig {
        &self.epoch
    }

    /// Returns the configuration of an epoch of these streams.
    pub(crate) fn with_streams(&self, streams: Vec<StreamConfig>) -> EpochConfig {
        EpochConfig {
            streams,
            ..self.epoch.clone()
        }
    }
}
