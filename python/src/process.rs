//! What a forked process must not use of its parent.

use std::mem::ManuallyDrop;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use shardmill_storage::{after_fork_in_parent, before_fork, take_inherited_claims};

/// Has forked processes give up the claims of their parent. Otherwise these would stay locked until the last child ends
/// if the parent is killed.
pub(crate) fn register_at_fork(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let options = PyDict::new(py);
    options.set_item("before", wrap_pyfunction!(await_claims, module)?)?;
    options.set_item("after_in_parent", wrap_pyfunction!(allow_claims, module)?)?;
    options.set_item("after_in_child", wrap_pyfunction!(give_up_claims, module)?)?;
    py.import("os")?
        .call_method("register_at_fork", (), Some(&options))?;
    Ok(())
}

/// Waits until the claims that other threads are opening are recorded.
#[pyfunction]
fn await_claims() {
    before_fork();
}

/// Lets other threads open claims again.
#[pyfunction]
fn allow_claims() {
    after_fork_in_parent();
}

/// Replaces the inherited descriptors by ones that hold no lock.
#[pyfunction]
fn give_up_claims(py: Python<'_>) -> PyResult<()> {
    let claims = take_inherited_claims();
    if claims.is_empty() {
        return Ok(());
    }
    let os = py.import("os")?;
    let null = os.call_method1("open", (os.getattr("devnull")?, os.getattr("O_RDONLY")?))?;
    for claim in claims {
        os.call_method1("dup2", (&null, claim, false))?;
    }
    os.call_method1("close", (null,))?;
    Ok(())
}

/// A value with threads or locks of the process that created it. A forked child inherits the memory but not the
/// threads, so that the value is neither used nor dropped there.
#[derive(Debug)]
pub(crate) struct OfProcess<T> {
    process: u32,
    value: ManuallyDrop<T>,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            process: std::process::id(),
            value: ManuallyDrop::new(value),
        }
    }

    /// Returns the value in the process that created it.
    pub(crate) fn get(&self) -> Option<&T> {
        (self.process == std::process::id()).then_some(&*self.value)
    }

    /// Returns the value in any process, for uses without threads or locks.
    ///
    /// PERF: checking the process is a system call.
    pub(crate) fn get_mut_anywhere(&mut self) -> &mut T {
        &mut self.value
    }

    /// Returns the value in the process that created it.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        (self.process == std::process::id()).then_some(&mut *self.value)
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: the value is dropped only here, and never used again.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}
