//! Values that belong to one process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// One value per process, found by the process id.
///
/// A forked child has a copy of the memory of its parent, but none of its threads. A client in that copy waits for a thread
/// that does not exist. A lock may be held forever, and a socket belongs to the parent. So a child must not touch a value
/// of its parent, not even to drop it. Until it has a value of its own, it must not wait for anything.
///
/// INVARIANT: a process claims a slot with one atomic exchange before it does anything else with it, and only that
/// process accesses the value. Whatever another thread was doing at the moment of the fork, it did in a slot of the
/// parent.
///
/// Each ancestor that uses the value needs a slot of its own; siblings use the same slot.
#[derive(Debug)]
pub struct PerProcess<T, const SLOTS: usize> {
    slots: [Slot<T>; SLOTS],
}

#[derive(Debug)]
struct Slot<T> {
    /// The id of the process that owns the value; 0 if the slot is free.
    owner: AtomicU32,
    value: OnceLock<T>,
}

impl<T, const SLOTS: usize> PerProcess<T, SLOTS> {
    /// Returns a value that no process has yet.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "it is the initial value of statics"
    )]
    pub const fn new() -> Self {
        Self {
            slots: [const {
                Slot {
                    owner: AtomicU32::new(0),
                    value: OnceLock::new(),
                }
            }; SLOTS],
        }
    }

    /// Returns the value of this process, and creates it on the first call. Returns `None` if ancestors own all slots.
    pub fn get(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.get_as(std::process::id(), make)
    }

    fn get_as(&self, process: u32, make: impl FnOnce() -> T) -> Option<&T> {
        let slot = self.slots.iter().find(|slot| {
            let claimed =
                slot.owner
                    .compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire);
            claimed.is_ok() || claimed == Err(process)
        })?;
        Some(slot.value.get_or_init(make))
    }

    /// Returns the value of this process, if it has one.
    pub fn peek(&self) -> Option<&T> {
        let process = std::process::id();
        self.slots
            .iter()
            .find(|slot| slot.owner.load(Ordering::Acquire) == process)?
            .value
            .get()
    }

    fn drop_as(&mut self, process: u32) {
        for slot in &mut self.slots {
            if *slot.owner.get_mut() != process {
                // Dropping it would touch sockets and locks of another process.
                std::mem::forget(slot.value.take());
            }
        }
    }
}

impl<T, const SLOTS: usize> Drop for PerProcess<T, SLOTS> {
    fn drop(&mut self) {
        self.drop_as(std::process::id());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn each_process_has_its_own_value() {
        let values = PerProcess::<u32, 3>::new();
        assert_eq!(values.get_as(10, || 1), Some(&1));
        assert_eq!(values.get_as(11, || 2), Some(&2));
        assert_eq!(values.get_as(10, || 3), Some(&1));
        assert_eq!(values.peek(), None);
        assert_eq!(values.get(|| 4), Some(&4));
        assert_eq!(values.peek(), Some(&4));
        assert_eq!(values.get_as(12, || 5), None);
    }

    #[test]
    fn threads_of_a_process_share_the_value() {
        let values = PerProcess::<usize, 4>::new();
        let made = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let value = values.get(|| made.fetch_add(1, Ordering::Relaxed));
                    assert_eq!(value, Some(&0));
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn value_of_another_process_is_not_dropped() {
        let (ours, theirs) = (Arc::new(()), Arc::new(()));
        let mut values = PerProcess::<Arc<()>, 3>::new();
        values.get_as(10, || Arc::clone(&theirs));
        values.get_as(11, || Arc::clone(&ours));
        values.drop_as(11);
        drop(values);
        // The drop at the end of the test is that of a third process, which forgot both values. The drop before it kept
        // the value of its own process.
        assert_eq!(
            (Arc::strong_count(&theirs), Arc::strong_count(&ours)),
            (2, 2)
        );
        let values = PerProcess::<Arc<()>, 3>::new();
        values.get(|| Arc::clone(&ours));
        drop(values);
        assert_eq!(Arc::strong_count(&ours), 2);
    }
}
