//! Complete orders as arrays: partitions, shuffles, sampling and epochs.
//!
//! Arrays are passed as little-endian 64-bit integers. Results are `bytearray`s, so that NumPy can reshape them without
//! a copy and callers can modify them.

use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use shardmill_core::ErrorKind;
use shardmill_order::tables::{self, Cut, Sampling, ShuffleConfig, Source, Work};
use shardmill_order::{EpochConfig, Mixture, Resolved, World};

use crate::errors::{raise, raise_with};
use crate::options::PyEpochOptions;

/// Converts an int64 array to numbers. Negative numbers are errors.
fn numbers(name: &str, bytes: &[u8]) -> PyResult<Vec<u64>> {
    let (words, rest) = bytes.as_chunks::<8>();
    let each = words
        .iter()
        .map(|word| u64::try_from(i64::from_le_bytes(*word)).ok());
    match each.collect() {
        Some(numbers) if rest.is_empty() => Ok(numbers),
        _ => Err(raise_with(
            ErrorKind::InvalidInput,
            "config-value",
            format!("{name} must be integers that are not negative"),
        )),
    }
}

/// Converts numbers to an int64 array.
fn array(py: Python<'_>, numbers: Vec<i64>) -> PyResult<Bound<'_, PyByteArray>> {
    PyByteArray::new_with(py, numbers.len() * 8, |bytes| {
        let (words, _) = bytes.as_chunks_mut::<8>();
        for (word, number) in words.iter_mut().zip(numbers) {
            *word = number.to_le_bytes();
        }
        Ok(())
    })
}

fn signed(numbers: Vec<u64>) -> Vec<i64> {
    numbers.into_iter().map(u64::cast_signed).collect()
}

/// Returns positions by node, rank, worker, batch and position in the batch. Also returns whether there are too few
/// samples for the canonical nodes, and for the ranks of a node.
#[pyfunction]
pub(crate) fn partitions<'py>(
    py: Python<'py>,
    options: &PyEpochOptions,
    samples: u64,
) -> PyResult<(Bound<'py, PyByteArray>, bool, bool)> {
    let config = options.config();
    let cut = Cut {
        samples,
        canonical_nodes: canonical_nodes(config),
        nodes: config.world.nodes,
        ranks_per_node: config.world.ranks_per_node,
        batch_size: config.batch_size,
        drop: config.resume.map_or(0, |point| point.sample_in_epoch),
    };
    let initial_nodes = config.resume.and_then(|point| point.initial_physical_nodes);
    let workers = config.world.workers_per_rank;
    let table = py
        .detach(|| tables::partition(config.partition_algo, cut, workers, initial_nodes))
        .map_err(raise)?;
    Ok((array(py, table.entries)?, table.tiny, table.scarce))
}

fn canonical_nodes(config: &EpochConfig) -> u64 {
    config.num_canonical_nodes.unwrap_or(config.world.nodes)
}

/// Returns a big id by position: an index into the samples of all units in sequence.
#[pyfunction]
pub(crate) fn shuffle<'py>(
    py: Python<'py>,
    algo: &str,
    sizes: &[u8],
    canonical_nodes: u64,
    seed: u64,
    epoch: u64,
    block: u64,
) -> PyResult<Bound<'py, PyByteArray>> {
    let sizes = numbers("shard sizes", sizes)?;
    let config = ShuffleConfig {
        algo: algo.parse().map_err(raise)?,
        canonical_nodes,
        seed,
        epoch,
        block,
    };
    let order = py
        .detach(|| tables::shuffle(&sizes, &config).map(signed))
        .map_err(raise)?;
    array(py, order)
}

/// How samples are drawn from shards.
#[pyclass(frozen, name = "Sampling", module = "shardmill._core")]
pub(crate) struct PySampling(Sampling);

#[pymethods]
impl PySampling {
    /// `epoch_counts` and `epoch_members` are whether the epoch is added to the seed: for how many samples are drawn
    /// from each shard, and for which.
    #[new]
    const fn new(
        granularity: u64,
        seed: u64,
        epoch: u64,
        epoch_counts: bool,
        epoch_members: bool,
    ) -> Self {
        Self(Sampling {
            seed,
            epoch,
            epoch_counts,
            epoch_members,
            granularity,
        })
    }
}

/// Returns how many samples to draw from each shard.
#[pyfunction]
pub(crate) fn sample_counts<'py>(
    py: Python<'py>,
    sizes: &[u8],
    choose: u64,
    sampling: &PySampling,
) -> PyResult<Bound<'py, PyByteArray>> {
    let sizes = numbers("shard sizes", sizes)?;
    let counts = py
        .detach(|| tables::sample(&sizes, choose, &sampling.0).map(signed))
        .map_err(raise)?;
    array(py, counts)
}

/// Returns the sizes of units, and the sample ids of all units in sequence. A stream is its first shard, the exclusive
/// end of its shards, and how many samples to choose.
#[pyfunction]
pub(crate) fn resample<'py>(
    py: Python<'py>,
    shards: &[u8],
    streams: Vec<(usize, usize, u64)>,
    sampling: &PySampling,
) -> PyResult<(Bound<'py, PyByteArray>, Bound<'py, PyByteArray>)> {
    let shards = numbers("samples of shards", shards)?;
    let streams: Vec<_> = streams
        .into_iter()
        .map(|(first, last, choose)| (first..last, choose))
        .collect();
    let (units, samples) = py
        .detach(|| {
            let found = tables::resample(&shards, &streams, &sampling.0);
            found.map(|found| (signed(found.units), signed(found.samples)))
        })
        .map_err(raise)?;
    Ok((array(py, units)?, array(py, samples)?))
}

/// The sizes of units, the sample ids of all units in sequence, and the proportion of the stream.
type PySource<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, f64);

/// Returns an epoch: sample ids by node, rank, worker, batch and position. `epoch_seed` is whether the epoch is added to
/// the seed for the order of batches.
#[pyfunction]
pub(crate) fn work<'py>(
    py: Python<'py>,
    options: &PyEpochOptions,
    epoch_seed: bool,
    sources: Vec<PySource<'py>>,
) -> PyResult<Bound<'py, PyByteArray>> {
    let mut arrays = Vec::with_capacity(sources.len());
    for (units, samples, proportion) in &sources {
        let units = numbers("units", units.extract()?)?;
        let samples = numbers("sample ids", samples.extract()?)?;
        arrays.push((units, samples, *proportion));
    }
    let config = options.config();
    let (resume, block) = (config.resume.as_ref(), config.shuffle.block_size);
    let entries = py.detach(|| {
        let sources: Vec<_> = arrays
            .iter()
            .map(|(units, samples, proportion)| Source {
                units,
                samples,
                proportion: *proportion,
            })
            .collect();
        tables::work(&Work {
            batching: config.batching_method,
            partition: config.partition_algo,
            batch_size: config.batch_size,
            resolved: &Resolved {
                world: config.world,
                epoch: config.epoch,
                sample_in_epoch: resume.map_or(0, |point| point.sample_in_epoch),
                canonical_nodes: canonical_nodes(config),
                seed: config.shuffle.seed,
                initial_nodes: resume.and_then(|point| point.initial_physical_nodes),
                block: block.unwrap_or(0),
                epoch_seed,
            },
            shuffle: (config.shuffle.enabled && block.is_some()).then_some(config.shuffle.algo),
            sources: &sources,
        })
    });
    array(py, entries.map_err(raise)?)
}

/// Returns the nodes and ranks per node if each group of consecutive ranks receives the same samples.
#[pyfunction]
pub(crate) fn replicate(nodes: u64, ranks: u64, replication: u64) -> PyResult<(u64, u64)> {
    let world = World {
        nodes,
        ranks_per_node: ranks,
        workers_per_rank: 1,
    };
    let world = world.replicate(replication).map_err(raise)?;
    Ok((world.nodes, world.ranks_per_node))
}

/// First sample, exclusive end, planned samples and taken samples of each stream.
type Window = (u64, u64, Vec<f64>, Vec<u64>);

/// Returns the windows of an epoch with a mixture, given as JSON.
#[pyfunction]
pub(crate) fn mixture_windows(
    mixture: &str,
    sizes: Vec<u64>,
    epoch_size: u64,
    epoch: u64,
) -> PyResult<Vec<Window>> {
    let mixture = Mixture::from_json(mixture.as_bytes()).map_err(raise)?;
    let windows = mixture.windows(&sizes, epoch_size, epoch).map_err(raise)?;
    let windows = windows.into_iter();
    Ok(windows
        .map(|one| (one.from_sample, one.to_sample, one.planned, one.taken))
        .collect())
}
