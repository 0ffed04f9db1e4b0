//! Values that must not be used after a fork.

use std::mem::ManuallyDrop;

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
