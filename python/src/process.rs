//! What must not outlive a fork.

use std::mem::ManuallyDrop;

/// A value with threads or locks of the process that made it. A child that was forked from that process inherits the
/// memory but not the threads: there the value is neither used nor dropped.
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

    /// The value, in the process that made it.
    pub(crate) fn get(&self) -> Option<&T> {
        (self.process == std::process::id()).then_some(&*self.value)
    }

    /// The value in any process, for what touches neither threads nor locks: asking for the process is a system call.
    pub(crate) fn get_mut_anywhere(&mut self) -> &mut T {
        &mut self.value
    }

    /// The value, in the process that made it.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        (self.process == std::process::id()).then_some(&mut *self.value)
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: dropped here only, and never used again.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}
