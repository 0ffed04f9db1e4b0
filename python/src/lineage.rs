//! Lineage: the samples of a step, the steps that delivered a sample, and where samples come from.

use std::sync::Arc;

use pyo3::prelude::*;
use shardmill_core::Error;
use shardmill_order::{Epoch, SampleId};

use crate::errors::raise;
use crate::options::PyEpochOptions;
use crate::reader::Reader;
use crate::tokens::PyTokenOptions;
use crate::waiting::wait;

/// Rank, position, sample, and whether the sample is repeated.
type Member = (u64, u64, u64, bool);

/// Epoch, step, samples of the epoch before it, rank, position, and whether the sample is repeated.
type FoundStep = (u64, u64, u64, u64, u64, bool);

fn before(epoch: &Epoch, step: u64) -> u64 {
    let start = epoch.resolved().sample_in_epoch;
    start.saturating_add(step.saturating_mul(epoch.global_batch()))
}

/// Returns the epoch, how many of its samples were delivered before the step, and the samples of the step: of a rank,
/// or of all ranks in order.
///
/// With `tokens`, rows of tokens count instead of samples. The position is the row in the batch of the rank; a sample is
/// listed once for each of its pieces.
#[pyfunction]
#[pyo3(signature = (reader, options, step, rank=None, tokens=None))]
pub(crate) fn samples_of_step(
    py: Python<'_>,
    reader: &Reader,
    options: &PyEpochOptions,
    step: u64,
    rank: Option<u64>,
    tokens: Option<&PyTokenOptions>,
) -> PyResult<(u64, u64, Vec<Member>)> {
    let config = reader.config(options)?;
    let found = py.detach(|| -> Result<_, Error> {
        let replicas = config.replication.unwrap_or(1);
        let receivers =
            |replica_group: u64| replica_group * replicas..(replica_group + 1) * replicas;
        let mut members = Vec::new();
        let Some(tokens) = tokens else {
            let epoch = Epoch::new(&config)?;
            let ranks = match rank {
                Some(rank) => vec![(rank, epoch.step_of_rank(step, rank)?)],
                None => (0_u64..)
                    .zip(epoch.step(step)?)
                    .flat_map(|(replica_group, entries)| {
                        receivers(replica_group).map(move |rank| (rank, entries.clone()))
                    })
                    .collect(),
            };
            for (rank, entries) in ranks {
                let entries = (0_u64..).zip(entries);
                members.extend(
                    entries
                        .map(|(position, entry)| (rank, position, entry.sample.0, entry.repeated)),
                );
            }
            return Ok((epoch.resolved().epoch, before(&epoch, step), members));
        };
        let epoch = tokens.epoch(&config)?;
        if let Some(rank) = rank {
            // Checks that the rank exists.
            epoch.rank(rank)?;
        }
        for (replica_group, rows) in (0_u64..).zip(epoch.step(step)?) {
            for receiver in
                receivers(replica_group).filter(|each| rank.is_none_or(|rank| rank == *each))
            {
                for (position, row) in (0_u64..).zip(&rows) {
                    let pieces = row.pieces.iter();
                    members.extend(
                        pieces.map(|piece| (receiver, position, piece.sample.0, row.repeated)),
                    );
                }
            }
        }
        let number = epoch.base().resolved().epoch;
        Ok((number, epoch.rows_before(step), members))
    });
    found.map_err(raise)
}

/// Returns the steps of this and the following epochs that delivered a sample. With `tokens`, the position is the row in
/// the batch of the rank.
#[pyfunction]
#[pyo3(signature = (reader, options, sample, epochs, tokens=None))]
pub(crate) fn steps_of_sample(
    py: Python<'_>,
    reader: &Reader,
    options: &PyEpochOptions,
    sample: u64,
    epochs: u64,
    tokens: Option<&PyTokenOptions>,
) -> PyResult<Vec<FoundStep>> {
    let mut config = reader.config(options)?;
    let found = py.detach(|| -> Result<_, Error> {
        let replicas = config.replication.unwrap_or(1);
        let mut found = Vec::new();
        for _ in 0..epochs {
            let (state, deliveries, before): (_, _, Box<dyn Fn(u64) -> u64>) = match tokens {
                None => {
                    let epoch = Epoch::new(&config)?;
                    let deliveries = epoch.deliveries(SampleId(sample))?;
                    let state = epoch.state_after(epoch.batches());
                    (
                        state,
                        deliveries,
                        Box::new(move |step| before(&epoch, step)),
                    )
                }
                Some(tokens) => {
                    let epoch = tokens.epoch(&config)?;
                    let deliveries = epoch.deliveries(SampleId(sample))?;
                    let state = epoch.base().state_after(epoch.base().batches());
                    (
                        state,
                        deliveries,
                        Box::new(move |step| epoch.rows_before(step)),
                    )
                }
            };
            let number = config.resolve()?.epoch;
            for delivery in deliveries {
                let ranks = delivery.rank * replicas..(delivery.rank + 1) * replicas;
                found.extend(ranks.map(|rank| {
                    (
                        number,
                        delivery.step,
                        before(delivery.step),
                        rank,
                        delivery.position,
                        delivery.repeated,
                    )
                }));
            }
            config.resume = Some(state);
            config.epoch = state.epoch;
        }
        Ok(found)
    });
    found.map_err(raise)
}

/// Sample, stream, shard, name of the shard, position in the shard, file and row of the source.
type PySampleLocation = (u64, usize, usize, String, u64, Option<String>, Option<u64>);

/// Kind of the source, id and version of the table, and what is unknown.
type PySources = (Option<String>, Option<String>, Option<u64>, Option<String>);

/// Returns the locations of samples, and what is known about the source of each stream.
#[pyfunction]
pub(crate) fn places_of(
    py: Python<'_>,
    reader: &Reader,
    samples: Vec<u64>,
) -> PyResult<(Vec<PySampleLocation>, Vec<PySources>)> {
    let reader = Arc::clone(reader.here()?);
    let lineage = wait(py, move || reader.lineage())?.map_err(raise)?;
    let mut locations = Vec::with_capacity(samples.len());
    for sample in samples {
        let location = lineage.place_of(sample).map_err(raise)?;
        locations.push((
            location.sample,
            location.stream,
            location.shard,
            location.shard_name,
            location.index,
            location.file,
            location.row,
        ));
    }
    let sources = lineage.sources().iter().map(|source| {
        (
            source.kind.clone(),
            source.table_id.clone(),
            source.table_version,
            source.unknown.clone(),
        )
    });
    Ok((locations, sources.collect()))
}
