//! Waiting for stores, with an ear for Ctrl-C.

use std::sync::mpsc;
use std::time::Duration;

use pyo3::prelude::*;
use shardmill_reader::ReaderError;

use crate::errors::{bug, raise};

/// How long Ctrl-C may go unheard.
const PATIENCE: Duration = Duration::from_millis(50);

/// Runs `work` on a thread of its own, and looks for signals until it is done. A signal whose handler raises ends the wait
/// and not the work: that has deadlines of its own, and nobody takes what comes of it.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = mpsc::channel();
    let spawned = std::thread::Builder::new()
        .name("shardmill-wait".to_owned())
        // Without a receiver, nobody waits any more.
        .spawn(move || drop(sender.send(work())));
    spawned.map_err(|source| raise(&ReaderError::Thread { source }))?;
    py.detach(move || {
        loop {
            match receiver.recv_timeout(PATIENCE) {
                Ok(result) => return Ok(result),
                Err(mpsc::RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals())?,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(bug("a thread that was to read ended without an answer"));
                }
            }
        }
    })
}
