//! Work without the interpreter lock that handles signals such as Ctrl-C.

use std::sync::mpsc;
use std::time::Duration;

use pyo3::prelude::*;
use shardmill_core::Error;
use shardmill_reader::no_thread;

use crate::errors::{bug, raise};

/// Runs `work` without the interpreter lock. `work` calls its argument to check for signals, and stops if it returns
/// `false`: a signal handler has raised.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> T + Send,
) -> PyResult<T> {
    let mut signal = None;
    let outcome = py.detach(|| {
        work(&mut || {
            // The first signal stays: a later check must not discard it.
            if signal.is_none() {
                signal = Python::attach(|py| py.check_signals()).err();
            }
            signal.is_none()
        })
    });
    match signal {
        Some(signal) => Err(signal),
        None => Ok(outcome),
    }
}

/// As [`interruptible`], for work that fails with an error of a crate.
pub(crate) fn detached<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<T, E> + Send,
) -> PyResult<T> {
    interruptible(py, work)?.map_err(raise)
}

/// The interval between checks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `work` in its own thread, and checks for signals until it is done. If a signal handler raises, the wait ends,
/// but the work continues until its own deadlines, and its result is discarded.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = mpsc::channel();
    let spawned = std::thread::Builder::new()
        .name("shardmill-wait".to_owned())
        // Sending fails if the wait has ended.
        .spawn(move || drop(sender.send(work())));
    spawned.map_err(|source| raise(no_thread(source)))?;
    py.detach(move || {
        loop {
            match receiver.recv_timeout(SIGNAL_INTERVAL) {
                Ok(result) => return Ok(result),
                Err(mpsc::RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals())?,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(bug("a thread that was to read ended without an answer"));
                }
            }
        }
    })
}
