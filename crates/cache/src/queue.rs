//! The queue of jobs, and the blobs that wait for another process or for space.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How soon a job is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// A caller waits for the blob.
    Needed,
    /// The blob is prefetched.
    Ahead,
}

/// The two jobs of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Job {
    /// Find the blob, make space and start the fetch.
    Start,
    /// Verify the fetched bytes and store them.
    Finish,
}

/// The order of jobs: needed before prefetched, `Start` before `Finish`, then the earlier tick, then the older job.
pub(crate) type JobKey = (Urgency, Job, u64, u64);

/// Queued jobs, and blobs whose job is to be queued later.
#[derive(Debug, Default)]
pub(crate) struct JobQueue {
    jobs: BTreeMap<JobKey, usize>,
    /// Blobs that wait for another process or for space, by when to retry.
    waiting: BTreeSet<(Instant, usize)>,
    numbers: u64,
}

impl JobQueue {
    /// Queues a job and returns its key.
    pub(crate) fn push(&mut self, blob: usize, needed: bool, job: Job, tick: u64) -> JobKey {
        let urgency = if needed {
            Urgency::Needed
        } else {
            Urgency::Ahead
        };
        let key = (urgency, job, tick, self.next_number());
        self.jobs.insert(key, blob);
        key
    }

    /// Returns a number larger than all that this function has returned.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Removes a job; false if it is not queued any more.
    pub(crate) fn remove(&mut self, key: JobKey) -> bool {
        self.jobs.remove(&key).is_some()
    }

    /// Returns the jobs in the order to run them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobKey, usize)> + '_ {
        self.jobs.iter().map(|(key, blob)| (*key, *blob))
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns whether a caller waits for a queued job.
    pub(crate) fn has_needed(&self) -> bool {
        let first = self.jobs.first_key_value();
        first.is_some_and(|(key, _)| key.0 == Urgency::Needed)
    }

    /// Lets a blob wait until an instant.
    pub(crate) fn wait_until(&mut self, until: Instant, blob: usize) {
        self.waiting.insert((until, blob));
    }

    /// Ends the wait of a blob.
    pub(crate) fn end_wait(&mut self, until: Instant, blob: usize) {
        self.waiting.remove(&(until, blob));
    }

    /// Removes and returns a blob whose wait is over.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<usize> {
        let (until, blob) = self.waiting.first().copied()?;
        if until > now {
            return None;
        }
        self.waiting.remove(&(until, blob));
        Some(blob)
    }

    /// Returns the time until the first wait is over; `None` if no blob waits.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let (until, _) = self.waiting.first()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn clear(&mut self) {
        self.jobs.clear();
    }
}
