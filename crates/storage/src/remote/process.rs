//! Values that belong to one process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// One value for each process that asks, found by the id of the process.
///
/// A forked child has a copy of all memory of its parent, but none of its threads: a client in it waits for a thread that does
/// not exist, a lock in it may be held for ever, and a socket in it is the parent's. So a child must not touch what its
/// parent made, not even to drop it, and must not wait for anything on its way to a value of its own.
///
/// INVARIANT: a slot is claimed by its process with one atomic exchange before anything else happens to it, and only the process
/// that claimed it looks at the value. Whatever another thread was about to do at the moment of the fork, it did to a slot of
/// the parent.
///
/// The slots are as many as processes that are forked from each other and all use the value; siblings share theirs.
#[derive(Debug)]
pub(super) struct PerProcess<T, const SLOTS: usize> {
    slots: [Slot<T>; SLOTS],
}

#[derive(Debug)]
struct Slot<T> {
    /// The id of the process that the value belongs to; 0 for nobody.
    owner: AtomicU32,
    value: OnceLock<T>,
}

impl<T, const SLOTS: usize> PerProcess<T, SLOTS> {
    pub(super) const fn new() -> Self {
        Self {
            slots: [const {
                Slot {
                    owner: AtomicU32::new(0),
                    value: OnceLock::new(),
                }
            }; SLOTS],
        }
    }

    /// The value of this process, made where there is none yet; `None` when all slots are taken by ancestors.
    pub(super) fn get(&self, make: impl FnOnce() -> T) -> Option<&T> {
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

    /// The value of this process, where there is one.
    pub(super) fn peek(&self) -> Option<&T> {
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
    fn each_process_has_a_value_of_its_own() {
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
    fn threads_of_a_process_share_it() {
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
    fn what_belongs_to_another_process_is_not_dropped() {
        let (ours, theirs) = (Arc::new(()), Arc::new(()));
        let mut values = PerProcess::<Arc<()>, 3>::new();
        values.get_as(10, || Arc::clone(&theirs));
        values.get_as(11, || Arc::clone(&ours));
        values.drop_as(11);
        drop(values);
        // The drop of the test is that of a third process, which left both; the one before it kept what is its own.
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
