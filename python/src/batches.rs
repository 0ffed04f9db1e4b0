//! Returns the batches of an epoch to Python, and pins the raw files of the last ones.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use shardmill_core::{Error, lock};
use shardmill_order::{Cursor, Epoch, EpochConfig, Kept, Skip, outside_world};
use shardmill_reader::{Batches as RustBatches, Held};

use crate::decode::{Decoder, ReadyBatch};
use crate::open_epoch::OpenEpoch;

/// The batches of a rank in one epoch, in order.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct Batches {
    open: OpenEpoch<RustBatches>,
    decoder: Arc<Decoder>,
    /// Pins the raw files of the last `keep` batches, so that they are not evicted.
    held: Mutex<VecDeque<Held>>,
    keep: usize,
    /// The process that may still use files of the last batches after this is closed, and the epoch.
    post_exit_hold: Option<(u64, u64)>,
}

/// A batch with the numbers of its samples.
type Filled = (Vec<u64>, ReadyBatch);

impl Batches {
    pub(crate) fn new(
        batches: RustBatches,
        decoder: Arc<Decoder>,
        (keep, owner): (usize, Option<u64>),
    ) -> Self {
        let epoch = batches.epoch().resolved().epoch;
        Self {
            open: OpenEpoch::new(batches, RustBatches::stats),
            decoder,
            held: Mutex::default(),
            keep,
            post_exit_hold: owner.map(|owner| (owner, epoch)),
        }
    }

    fn fill(&self, py: Python<'_>) -> PyResult<Option<Filled>> {
        let held = || lock(&self.held);
        let batch = self.open.next(py, |batches, cancel| {
            // A caller that requests the next batch no longer uses the oldest one.
            let mut before = held();
            let old = (before.len() + 1).saturating_sub(self.keep);
            let old = old.min(before.len());
            let released: Vec<Held> = before.drain(..old).collect();
            drop((before, released));
            batches.next_batch_while(cancel)
        })?;
        let Some(batch) = batch else {
            return Ok(None);
        };
        if !batch.held.is_empty() {
            held().push_back(batch.held.clone());
        }
        let samples = batch.entries.iter().map(|entry| entry.sample.0).collect();
        let plans = self.decoder.plans_of(py, &batch)?;
        let ready = py.detach(|| self.decoder.ready(batch, plans))?;
        Ok(Some((samples, ready)))
    }
}

#[pymethods]
impl Batches {
    /// Returns the next batch as a list of dicts; `None` at the end of the epoch or after closing.
    fn next_samples<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        match self.fill(py)? {
            None => Ok(None),
            Some((_, batch)) => self.decoder.dicts(py, batch).map(Some),
        }
    }

    /// Returns the next batch as its sample numbers and a list of dicts; `None` at the end of the epoch.
    fn next_numbered<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Option<(Vec<u64>, Bound<'py, PyList>)>> {
        match self.fill(py)? {
            None => Ok(None),
            Some((numbers, batch)) => Ok(Some((numbers, self.decoder.dicts(py, batch)?))),
        }
    }

    /// Returns the next batch as its number of samples and its columns; `None` at the end of the epoch. Columns are a
    /// `Block` for numbers and a list for other values. If samples have different columns, the result is a list of
    /// dicts. With `only`, other columns are not decoded.
    #[pyo3(signature = (only=None))]
    fn next_columns<'py>(
        &self,
        py: Python<'py>,
        only: Option<HashSet<String>>,
    ) -> PyResult<Option<(usize, Bound<'py, PyAny>)>> {
        let Some((numbers, batch)) = self.fill(py)? else {
            return Ok(None);
        };
        let columns = self.decoder.columns_or_dicts(py, batch, only.as_ref())?;
        Ok(Some((numbers.len(), columns)))
    }

    /// Returns the statistics of reading so far, by name; times in seconds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.open.stats(py)
    }

    /// Stops the threads. Nothing can be read afterwards.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            self.open.close();
            let mut held = lock(&self.held);
            for files in held.drain(..) {
                if let Some((owner, epoch)) = self.post_exit_hold {
                    // Best effort: without it the files may be evicted sooner.
                    let _left = files.leave_in_use(owner, epoch);
                }
            }
        });
    }
}

/// The sample numbers of a rank and worker in one epoch, batch by batch, without reading samples.
#[pyclass(frozen, module = "shardmill._core")]
pub(crate) struct Order {
    kept: Kept,
    stride: u64,
    worker: u64,
    /// The cursor, and how many batches it has returned.
    next: Mutex<(Cursor, u64)>,
}

impl Order {
    pub(crate) fn new(
        config: &EpochConfig,
        (rank, worker): (u64, u64),
        skip: &Skip,
    ) -> Result<Self, Error> {
        let workers = config.world.workers_per_rank;
        if worker >= workers {
            return Err(outside_world("worker", worker, workers));
        }
        let epoch = Epoch::new(config)?;
        let cursor = epoch.rank(rank)?;
        Ok(Self {
            kept: epoch.without(skip)?,
            stride: config.world.workers_per_rank.max(1),
            worker,
            next: Mutex::new((cursor, 0)),
        })
    }
}

#[pymethods]
impl Order {
    /// Returns the sample numbers of the next batch; `None` at the end of the epoch.
    fn next_numbers(&self, py: Python<'_>) -> Option<Vec<u64>> {
        py.detach(|| {
            let mut next = lock(&self.next);
            let (cursor, given) = &mut *next;
            let number = given
                .saturating_mul(self.stride)
                .saturating_add(self.worker);
            if number >= self.kept.steps() {
                return None;
            }
            *given += 1;
            let step = self.kept.step(number);
            let mut entries = Vec::new();
            cursor.read(step, &mut entries);
            self.kept.replace(step, &mut entries);
            Some(entries.iter().map(|entry| entry.sample.0).collect())
        })
    }
}
