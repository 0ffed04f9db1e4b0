//! A value that each process has separately, also after a fork.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// A value that each process creates separately.
///
/// A forked child must not use its parent's value: the parent's threads do not exist in it, and a lock may have been
/// held during the fork. So this type uses no lock, and a child does not even drop its parent's value.
pub(crate) struct PerProcess<T> {
    first: OnceLock<Box<Link<T>>>,
}

struct Link<T> {
    process: u32,
    value: Option<Arc<T>>,
    /// The entry of another process, forked from this one.
    next: OnceLock<Box<Link<T>>>,
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self {
            first: OnceLock::new(),
        }
    }

    /// Returns the value of this process.
    pub(crate) fn get(&self) -> Option<&Arc<T>> {
        self.get_in(std::process::id())
    }

    fn get_in(&self, process: u32) -> Option<&Arc<T>> {
        let mut at = self.first.get();
        while let Some(link) = at {
            if link.process == process {
                return link.value.as_ref();
            }
            at = link.next.get();
        }
        None
    }

    /// Returns the value of this process, creating it on first use.
    pub(crate) fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&Arc<T>, E> {
        self.get_or_make_in(std::process::id(), make)
    }

    fn get_or_make_in<E>(
        &self,
        process: u32,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&Arc<T>, E> {
        if let Some(value) = self.get_in(process) {
            return Ok(value);
        }
        let mut made = Some(Box::new(Link {
            process,
            value: Some(Arc::new(make()?)),
            next: OnceLock::new(),
        }));
        let mut place = &self.first;
        loop {
            // If several threads get here at once, all values but one are dropped.
            let link = place.get_or_init(|| {
                made.take().unwrap_or_else(|| {
                    Box::new(Link {
                        process,
                        value: None,
                        next: OnceLock::new(),
                    })
                })
            });
            if link.process == process
                && let Some(value) = &link.value
            {
                return Ok(value);
            }
            place = &link.next;
        }
    }
}

impl<T> Drop for Link<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Its threads, locks and sockets belong to the other process.
            std::mem::forget(self.value.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn each_process_has_its_own() {
        let values = PerProcess::new();
        let make = |value: u32| move || Ok::<_, Infallible>(value);
        assert!(values.get_in(1).is_none());
        assert_eq!(**values.get_or_make_in(1, make(10)).unwrap(), 10);
        assert_eq!(**values.get_or_make_in(1, make(11)).unwrap(), 10);
        assert_eq!(**values.get_or_make_in(2, make(20)).unwrap(), 20);
        assert_eq!(**values.get_or_make_in(3, make(30)).unwrap(), 30);
        assert_eq!(**values.get_in(1).unwrap(), 10);
        assert_eq!(**values.get_in(2).unwrap(), 20);
    }

    #[test]
    fn what_is_a_parents_is_not_dropped() {
        let (own, others) = (Arc::new(()), Arc::new(()));
        let values = PerProcess::new();
        let process = std::process::id();
        let make = |value: &Arc<()>| {
            let value = Arc::clone(value);
            move || Ok::<_, Infallible>(value)
        };
        values.get_or_make_in(process, make(&own)).unwrap();
        values.get_or_make_in(process + 1, make(&others)).unwrap();
        drop(values);
        assert_eq!(
            (Arc::strong_count(&own), Arc::strong_count(&others)),
            (1, 2)
        );
    }
}
