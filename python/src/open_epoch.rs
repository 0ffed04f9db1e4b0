//! The batches of an epoch that is being read, in the process that began it.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use shardmill_core::{Error, ErrorKind, lock};
use shardmill_reader::BatchStats;

use crate::errors::{raise, raise_with};
use crate::process::OfProcess;
use crate::waiting::interruptible;

/// Batches, until they are closed.
pub(crate) struct OpenEpoch<T: Send> {
    batches: Mutex<Option<OfProcess<T>>>,
    /// The statistics at the time of closing.
    closed: Mutex<BatchStats>,
    stats: fn(&T) -> BatchStats,
}

impl<T: Send> OpenEpoch<T> {
    pub(crate) fn new(batches: T, stats: fn(&T) -> BatchStats) -> Self {
        Self {
            batches: Mutex::new(Some(OfProcess::new(batches))),
            closed: Mutex::default(),
            stats,
        }
    }

    /// Reads the next batch without the interpreter lock: a thread that holds `batches` may be waiting for that. Returns
    /// `None` after closing.
    pub(crate) fn next<B: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&mut T, &mut dyn FnMut() -> bool) -> Result<Option<B>, Error> + Send,
    ) -> PyResult<Option<B>> {
        interruptible(py, |cancel| {
            let mut batches = lock(&self.batches);
            let Some(batches) = batches.as_mut() else {
                return Ok(None);
            };
            let batches = batches.get_mut().ok_or_else(|| {
                let message = "an epoch that began before a fork cannot continue in the child";
                raise_with(ErrorKind::InvalidInput, "epoch-process", message.to_owned())
            })?;
            read(batches, cancel).map_err(raise)
        })?
    }

    /// Returns the statistics by name; times in seconds.
    pub(crate) fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = py.detach(|| {
            let batches = lock(&self.batches);
            match batches.as_ref().and_then(OfProcess::get) {
                Some(batches) => (self.stats)(batches),
                None => *lock(&self.closed),
            }
        });
        let dict = PyDict::new(py);
        dict.set_item("batches", stats.batches)?;
        dict.set_item("samples", stats.samples)?;
        dict.set_item("bytes", stats.bytes)?;
        dict.set_item("waits", stats.waits)?;
        dict.set_item("wait_seconds", stats.waited.as_secs_f64())?;
        dict.set_item("first_batch_seconds", stats.first.as_secs_f64())?;
        Ok(dict)
    }

    /// Stops the threads. Nothing can be read afterwards. Call it without the interpreter lock.
    pub(crate) fn close(&self) {
        let mut batches = lock(&self.batches);
        if let Some(batches) = batches.as_ref().and_then(OfProcess::get) {
            *lock(&self.closed) = (self.stats)(batches);
        }
        drop(batches.take());
    }
}

impl<T: Send> Drop for OpenEpoch<T> {
    fn drop(&mut self) {
        let batches = self.batches.get_mut();
        let mut batches = Some(batches.unwrap_or_else(PoisonError::into_inner).take());
        // Dropping waits for the threads, so release the interpreter lock. At interpreter exit the lock is unavailable.
        if Python::try_attach(|py| py.detach(|| drop(batches.take()))).is_none() {
            drop(batches);
        }
    }
}
