//! The table of blobs: a small state machine. Nothing in this module accesses files or waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::blobs::{BlobCatalog, BlobResult, Blobs, CachedBlob, KnownFiles, Pending};
use crate::error::CacheError;
use crate::marker::Marker;
use crate::options::CacheStats;
use crate::pace::Pace;
use crate::policy::{AccessPlan, AccessWindow};
use crate::queue::{Job, JobKey, JobQueue, Urgency};

/// The state of a blob. The documentation of the crate has a diagram.
pub(crate) enum Slot<B: Blobs> {
    /// Not known to be on disk.
    Absent,
    /// A job is queued, running, fetching, or waiting.
    Busy(Box<Work<B>>),
    /// On disk. Unless the check was deferred, the files match the catalog.
    Ready,
    /// Open: mapped from disk, or held in memory.
    Open(Box<Opened<B>>),
    /// No space was free when `room` had this value. Until it changes, the blob is read without the cache.
    Uncached { room: u64 },
    /// The blob could not be fetched or verified.
    Failed(Box<Failure<B>>),
}

/// The work in progress on a blob.
pub(crate) struct Work<B: BlobCatalog> {
    /// Whether a caller waits for the blob.
    pub(crate) needed: bool,
    /// The tick at which the blob is needed.
    pub(crate) tick: u64,
    pub(crate) stage: Stage<B>,
    /// Bytes counted as in flight.
    pub(crate) flight: u64,
    /// How often the blob was fetched and failed verification.
    pub(crate) failures: u32,
    /// The number of the fetch in this process. Answers with another number are ignored.
    pub(crate) ticket: u64,
    /// When waiting for another process or for space began.
    pub(crate) since: Option<Instant>,
    pub(crate) pause: Duration,
    /// Where the blob will be stored, with its reservation.
    pub(crate) target: FetchTarget,
    /// Whether another node waits for the blob.
    pub(crate) is_for_peer: bool,
}

impl<B: BlobCatalog> Work<B> {
    /// Returns whether the work has not started, and no caller waits for it.
    fn is_idle(&self) -> bool {
        let queued = matches!(self.stage, Stage::Queued(_));
        queued && !self.needed && matches!(self.target, FetchTarget::Unknown)
    }
}

/// Where a fetched blob is stored.
#[derive(Debug, Default)]
pub(crate) enum FetchTarget {
    /// Not decided yet.
    #[default]
    Unknown,
    /// On disk, where the marker reserves space.
    Disk(Marker),
    /// In memory, with the reserved number of bytes.
    Memory(u64),
}

/// The progress of the work on a blob.
pub(crate) enum Stage<B: BlobCatalog> {
    /// In the job queue.
    Queued(JobKey),
    /// A thread runs the job.
    Running,
    /// Waiting for another process or for space until this instant.
    Waiting(Instant),
    /// Its files are being fetched.
    Fetching {
        files: Vec<Option<Vec<u8>>>,
        pending: Vec<Pending>,
        started: Instant,
    },
    /// Its files were fetched, or the fetch failed.
    Fetched(BlobResult<Vec<Vec<u8>>, B::Error>),
}

/// An open blob in the table.
pub(crate) struct Opened<B: Blobs> {
    pub(crate) blob: Arc<CachedBlob<B::Open>>,
    /// Prevents other processes from evicting the blob.
    pin: Option<Marker>,
    /// Bytes of memory used; 0 for a mapped file.
    memory: u64,
    /// The latest tick at which a caller used the blob.
    pub(crate) used_at: u64,
    /// When the blob was last used, as a number that increases with each use.
    stamp: u64,
    /// The blob's key in `OpenBlobs::ends`, if it is listed there.
    end: Option<u64>,
}

impl<B: Blobs> Opened<B> {
    pub(crate) const fn new(
        blob: Arc<CachedBlob<B::Open>>,
        pin: Option<Marker>,
        memory: u64,
        used_at: u64,
    ) -> Self {
        Self {
            blob,
            pin,
            memory,
            used_at,
            stamp: 0,
            end: None,
        }
    }

    /// Returns whether the blob is pinned, so that other processes cannot evict it.
    fn is_pinned(&self) -> bool {
        self.pin.is_some() || self.blob.is_pinned()
    }
}

/// The error of a blob.
pub(crate) struct Failure<B: BlobCatalog> {
    pub(crate) error: Arc<CacheError<B::Error>>,
    /// Whether a caller has received the error.
    pub(crate) reported: bool,
}

/// Which blobs are open, and when to close them.
#[derive(Debug, Default)]
pub(crate) struct OpenBlobs {
    /// Least recently used first.
    by_use: BTreeMap<u64, usize>,
    uses: u64,
    /// Blobs that are closed after their last use, by the tick of that use.
    ends: BTreeSet<(u64, usize)>,
    /// Last use of closed blobs, as in `Opened::stamp`; only without an access plan.
    recent: BTreeMap<usize, u64>,
    /// The number of pinned blobs.
    pub(crate) pins: usize,
    /// Whether to close blobs after their last use, because space is limited.
    limited: bool,
    /// Increases when a blob is closed.
    pub(crate) closed: u64,
}

/// What to fetch before it is needed.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) plan: Arc<AccessPlan>,
    /// The access windows to prefetch, in order. `cursor` is the next one.
    pub(crate) windows: VecDeque<AccessWindow>,
    pub(crate) cursor: usize,
    /// The next window whose existing files are to be verified.
    pub(crate) near: usize,
    /// Set while prefetching is stopped for lack of space.
    pub(crate) blocked: Option<Blocked>,
    /// Preloaded blobs whose fetch has not begun.
    pub(crate) requested: VecDeque<usize>,
    /// Preloaded blobs whose fetch has begun, until they are used.
    pub(crate) preloading: BTreeSet<usize>,
}

/// A prefetch for which there was no space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    /// The value of `Budget::room` then.
    pub(crate) room: u64,
    pub(crate) since: Instant,
    /// When the blob is needed.
    pub(crate) tick: u64,
}

/// The bytes in use.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    pub(crate) in_flight: u64,
    pub(crate) memory: u64,
    /// Increases whenever space may have become free.
    pub(crate) room: u64,
}

/// What this process knows about files.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// Identities of the files that this process has verified.
    pub(crate) known: BTreeMap<usize, KnownFiles>,
    /// Blobs whose files changed: earlier checks, also by other processes, do not count.
    pub(crate) doubted: BTreeSet<usize>,
    /// Blobs larger than the largest file that the file system or the process can write.
    pub(crate) unwritable: BTreeSet<usize>,
}

/// The table, and all else that the mutex protects.
pub(crate) struct State<B: Blobs> {
    pub(crate) slots: Vec<Slot<B>>,
    pub(crate) queue: JobQueue,
    pub(crate) open: OpenBlobs,
    /// Closed blobs, which are dropped only after the lock is released.
    pub(crate) to_drop: Vec<Opened<B>>,
    pub(crate) ahead: Ahead,
    pub(crate) budget: Budget,
    pub(crate) checks: Checks,
    /// The position of the consumer. 0 until the first batch was delivered.
    pub(crate) now: u64,
    pub(crate) pace: Pace,
    pub(crate) stats: CacheStats,
    pub(crate) stopped: bool,
    /// The number of threads that wait for a blob.
    pub(crate) waiters: usize,
}

impl<B: Blobs> State<B> {
    pub(crate) fn new(blobs: usize) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(blobs, || Slot::Absent);
        Self {
            slots,
            queue: JobQueue::default(),
            open: OpenBlobs::default(),
            to_drop: Vec::new(),
            ahead: Ahead {
                plan: Arc::new(AccessPlan::new(blobs)),
                windows: VecDeque::new(),
                cursor: 0,
                near: 0,
                blocked: None,
                requested: VecDeque::new(),
                preloading: BTreeSet::new(),
            },
            budget: Budget::default(),
            checks: Checks::default(),
            now: 0,
            pace: Pace::default(),
            stats: CacheStats::default(),
            stopped: false,
            waiters: 0,
        }
    }

    pub(crate) fn work(&mut self, blob: usize) -> Option<&mut Work<B>> {
        match self.slots.get_mut(blob) {
            Some(Slot::Busy(work)) => Some(work),
            _ => None,
        }
    }

    pub(crate) fn set(&mut self, blob: usize, slot: Slot<B>) {
        if let Some(current) = self.slots.get_mut(blob) {
            *current = slot;
        }
    }

    /// Returns whether a blob is open or on disk.
    pub(crate) fn is_present(&self, blob: usize) -> bool {
        matches!(self.slots.get(blob), Some(Slot::Open(_) | Slot::Ready))
    }

    /// Queues the first job of a blob that has none.
    pub(crate) fn begin(&mut self, blob: usize, needed: bool, tick: u64, flight: u64) {
        let key = self.queue.push(blob, needed, Job::Start, tick);
        self.budget.in_flight = self.budget.in_flight.saturating_add(flight);
        let work = Work {
            needed,
            tick,
            stage: Stage::Queued(key),
            flight,
            failures: 0,
            ticket: 0,
            since: None,
            pause: Duration::from_millis(1),
            target: FetchTarget::Unknown,
            is_for_peer: false,
        };
        self.set(blob, Slot::Busy(Box::new(work)));
    }

    /// Queues a blob that another node waits for. Its fetch may exceed the limit of bytes in flight: those may wait for that
    /// node, which would wait for this one.
    pub(crate) fn begin_for_peer(&mut self, blob: usize) {
        if matches!(
            self.slots.get(blob),
            Some(Slot::Absent | Slot::Uncached { .. })
        ) {
            self.begin(blob, true, self.now, 0);
        }
        if let Some(work) = self.work(blob) {
            work.is_for_peer = true;
        }
    }

    /// Queues another job of a busy blob.
    pub(crate) fn queue_again(&mut self, blob: usize, job: Job) {
        let Some(Slot::Busy(work)) = self.slots.get_mut(blob) else {
            return;
        };
        let key = self.queue.push(blob, work.needed, job, work.tick);
        // `Finish` needs the fetched bytes in the stage.
        if job == Job::Start {
            work.stage = Stage::Queued(key);
        }
    }

    /// Marks a busy blob as needed at a tick, and moves its job forward in the queue.
    pub(crate) fn prioritize(&mut self, blob: usize, tick: u64) {
        let Some(work) = self.work(blob) else {
            return;
        };
        let earlier = tick < work.tick || !work.needed;
        work.tick = work.tick.min(tick);
        work.needed = true;
        if !earlier {
            return;
        }
        let queued = match work.stage {
            Stage::Queued(key) => Some(key),
            // The key of a `Finish` job is not stored; the queue is short.
            Stage::Fetched(_) => {
                let found = self.queue.iter().find(|(_, queued)| *queued == blob);
                found.map(|(key, _)| key)
            }
            Stage::Running | Stage::Waiting(_) | Stage::Fetching { .. } => None,
        };
        if let Some(key) = queued
            && self.queue.remove(key)
        {
            self.queue_again(blob, key.1);
        }
    }

    /// Takes the first job that can run. A job that would fetch is skipped if it exceeds the limit of bytes in flight.
    pub(crate) fn take_job(
        &mut self,
        max_in_flight: u64,
        only_needed: bool,
        flight: impl Fn(usize) -> u64,
    ) -> Option<(usize, Job)> {
        let runnable = |(key, blob): (JobKey, usize)| {
            let Some(Slot::Busy(work)) = self.slots.get(blob) else {
                return Some((key, blob, 0));
            };
            // A blob known to be on disk is not fetched.
            let fetches =
                key.1 == Job::Start && work.flight == 0 && !self.checks.known.contains_key(&blob);
            let bytes = if fetches { flight(blob) } else { 0 };
            let in_flight = self.budget.in_flight;
            let fits = !fetches
                || in_flight == 0
                || work.is_for_peer
                || in_flight.saturating_add(bytes) <= max_in_flight;
            fits.then_some((key, blob, bytes))
        };
        let may_run = |(key, _): &(JobKey, usize)| !only_needed || key.0 == Urgency::Needed;
        let mut jobs = self.queue.iter().take_while(may_run);
        let found = jobs.find_map(runnable);
        drop(jobs);
        let (key, blob, bytes) = found?;
        self.queue.remove(key);
        self.budget.in_flight = self.budget.in_flight.saturating_add(bytes);
        let work = self.work(blob)?;
        if key.1 == Job::Start {
            work.flight = work.flight.saturating_add(bytes);
            work.stage = Stage::Running;
        }
        Some((blob, key.1))
    }

    /// Queues the blobs again whose pause is over.
    pub(crate) fn resume_waiting(&mut self) {
        let now = Instant::now();
        while let Some(blob) = self.queue.pop_due(now) {
            self.queue_again(blob, Job::Start);
        }
    }

    /// Ends the work on a blob and releases its bytes in flight. Returns the work, with its reservation.
    pub(crate) fn end_work(&mut self, blob: usize) -> Option<Box<Work<B>>> {
        let slot = self.slots.get_mut(blob);
        let slot = slot.filter(|slot| matches!(slot, Slot::Busy(_)))?;
        let Slot::Busy(work) = std::mem::replace(slot, Slot::Absent) else {
            return None;
        };
        self.budget.in_flight = self.budget.in_flight.saturating_sub(work.flight);
        if let Stage::Waiting(until) = work.stage {
            self.queue.end_wait(until, blob);
        }
        Some(work)
    }

    pub(crate) fn open(&mut self, blob: usize, mut opened: Opened<B>) {
        self.open.uses += 1;
        opened.stamp = self.open.uses;
        opened.end = None;
        self.open.by_use.insert(opened.stamp, blob);
        self.open.pins += usize::from(opened.is_pinned());
        self.ahead.preloading.remove(&blob);
        let watched = self.open.limited || opened.memory > 0;
        self.set(blob, Slot::Open(Box::new(opened)));
        if watched {
            self.watch(blob);
        }
    }

    /// Switches to limited space: blobs are closed after their last use, including those already open.
    pub(crate) fn limit(&mut self) {
        if self.open.limited {
            return;
        }
        self.open.limited = true;
        let open: Vec<usize> = self.open.by_use.values().copied().collect();
        for blob in open {
            self.watch(blob);
        }
    }

    /// Lists an open blob by the tick of its last use.
    fn watch(&mut self, blob: usize) {
        let now = self.now;
        let Some(Slot::Open(opened)) = self.slots.get_mut(blob) else {
            return;
        };
        let at = opened.used_at.max(now);
        let window = self.ahead.plan.next(blob, at);
        let lasts = window
            .filter(|window| window.first <= at)
            .map_or(opened.used_at, |window| window.last);
        // A blob opened early stays open until its first use.
        let end = if opened.used_at > now {
            lasts.max(opened.used_at)
        } else {
            lasts
        };
        if let Some(old) = opened.end.replace(end) {
            self.open.ends.remove(&(old, blob));
        }
        self.open.ends.insert((end, blob));
    }

    /// Records a use of an open blob at a tick, and returns the blob.
    pub(crate) fn touch(&mut self, blob: usize, tick: u64) -> Option<Arc<CachedBlob<B::Open>>> {
        let Some(Slot::Open(opened)) = self.slots.get_mut(blob) else {
            return None;
        };
        self.open.by_use.remove(&opened.stamp);
        self.open.uses += 1;
        opened.stamp = self.open.uses;
        self.open.by_use.insert(opened.stamp, blob);
        let later = tick > opened.used_at;
        opened.used_at = opened.used_at.max(tick);
        let open = Arc::clone(&opened.blob);
        if later && opened.end.is_some_and(|end| end < tick) {
            self.watch(blob);
        }
        Some(open)
    }

    /// Closes an open blob. `kept`: its file stays on disk.
    pub(crate) fn close(&mut self, blob: usize, kept: bool) {
        let Some(slot) = self.slots.get_mut(blob) else {
            return;
        };
        if !matches!(slot, Slot::Open(_)) {
            return;
        }
        if let Slot::Open(opened) = std::mem::replace(slot, Slot::Absent) {
            self.open.by_use.remove(&opened.stamp);
            if self.ahead.plan.is_empty() && (opened.is_pinned() || opened.end.is_some()) {
                self.open.recent.insert(blob, opened.stamp);
            }
            if let Some(end) = opened.end {
                self.open.ends.remove(&(end, blob));
            }
            self.budget.memory = self.budget.memory.saturating_sub(opened.memory);
            self.open.pins -= usize::from(opened.is_pinned());
            if kept && opened.memory == 0 {
                self.set(blob, Slot::Ready);
            }
            self.to_drop.push(*opened);
        }
        self.open.closed += 1;
        self.budget.room += 1;
    }

    /// Forgets a blob that is evicted. Returns false if it is in use.
    pub(crate) fn evict(&mut self, blob: usize) -> bool {
        if self.is_in_use(blob) {
            return false;
        }
        self.cancel_prefetch(blob);
        self.close(blob, false);
        self.set(blob, Slot::Absent);
        self.checks.known.remove(&blob);
        self.ahead.preloading.remove(&blob);
        self.open.recent.remove(&blob);
        self.budget.room += 1;
        self.rewind(blob);
        true
    }

    /// Returns whether a batch in progress may use a blob, or a job of the blob is in progress.
    pub(crate) fn is_in_use(&self, blob: usize) -> bool {
        match self.slots.get(blob) {
            Some(Slot::Busy(work)) => !work.is_idle(),
            Some(Slot::Open(opened)) => opened.used_at >= self.now,
            _ => false,
        }
    }

    /// Removes a queued prefetch that has not started.
    fn cancel_prefetch(&mut self, blob: usize) {
        let Some(work) = self.work(blob).filter(|work| work.is_idle()) else {
            return;
        };
        if let Stage::Queued(key) = work.stage {
            self.queue.remove(key);
        }
        drop(self.end_work(blob));
    }

    /// Moves the consumer to a tick, and closes blobs whose last use is over.
    pub(crate) fn move_to(&mut self, tick: u64) {
        if tick <= self.now {
            return;
        }
        self.now = tick;
        while let Some((end, blob)) = self.open.ends.first().copied() {
            if end >= tick {
                break;
            }
            self.open.ends.remove(&(end, blob));
            if let Some(Slot::Open(opened)) = self.slots.get_mut(blob) {
                opened.end = None;
                let in_use =
                    opened.used_at >= tick || self.ahead.plan.next_use(blob, tick) == Some(tick);
                if in_use {
                    self.watch(blob);
                } else {
                    self.close(blob, true);
                }
            }
        }
        let ahead = &mut self.ahead;
        while ahead.cursor > 0 && ahead.windows.front().is_some_and(|first| first.last < tick) {
            ahead.windows.pop_front();
            ahead.cursor -= 1;
            ahead.near = ahead.near.saturating_sub(1);
        }
    }

    /// Closes the least recently used blobs until at most `most` are open. Stops at a blob that is held in memory.
    pub(crate) fn close_beyond(&mut self, max: usize) {
        while self.open.by_use.len() > max {
            let Some((_, blob)) = self.open.by_use.first_key_value() else {
                return;
            };
            let blob = *blob;
            // Closing it would lose its content.
            let memory = matches!(self.slots.get(blob), Some(Slot::Open(open)) if open.memory > 0);
            if memory {
                return;
            }
            self.close(blob, true);
        }
    }

    /// Replaces the access plan. With `now`, the consumer moves there.
    pub(crate) fn set_plan(&mut self, plan: AccessPlan, now: Option<u64>) {
        if let Some(now) = now {
            self.now = now;
        }
        self.ahead.windows = plan.in_order(self.now).collect();
        self.ahead.plan = Arc::new(plan);
        self.ahead.cursor = 0;
        self.ahead.near = 0;
        self.ahead.blocked = None;
        self.budget.room += 1;
        let watched: Vec<usize> = self.open.ends.iter().map(|(_, blob)| *blob).collect();
        for blob in watched {
            if let Some(Slot::Open(opened)) = self.slots.get_mut(blob)
                && now.is_some()
            {
                // Ticks of the previous plan are meaningless in the new one.
                opened.used_at = 0;
                if self.ahead.plan.next_use(blob, self.now) != Some(self.now) {
                    self.close(blob, true);
                    continue;
                }
            }
            self.watch(blob);
        }
    }

    /// Moves the prefetch position back to the next use of an evicted blob.
    pub(crate) fn rewind(&mut self, blob: usize) {
        if let Some(next) = self.ahead.plan.next(blob, self.now) {
            let windows = &self.ahead.windows;
            let at = windows.partition_point(|window| window.first < next.first);
            self.ahead.cursor = self.ahead.cursor.min(at);
        }
    }

    /// Returns when a blob is needed next, from `tick` on. Without an access plan, the least recently used blob ranks
    /// as needed last, and preloaded blobs rank as needed next.
    pub(crate) fn next_use(&self, blob: usize, tick: u64) -> Option<u64> {
        if !self.ahead.plan.is_empty() {
            return self.ahead.plan.next_use(blob, tick);
        }
        if self.ahead.preloading.contains(&blob) {
            return Some(tick.saturating_add(1));
        }
        let stamp = match self.slots.get(blob) {
            Some(Slot::Open(opened)) => opened.stamp,
            _ => *self.open.recent.get(&blob)?,
        };
        Some(u64::MAX - 1 - stamp)
    }

    pub(crate) fn open_blobs(&self) -> usize {
        self.open.by_use.len()
    }

    /// Closes all blobs, ends all work and empties the queues.
    pub(crate) fn clear(&mut self) -> Vec<(usize, Box<Work<B>>)> {
        let mut work = Vec::new();
        for blob in 0..self.slots.len() {
            match self.slots.get(blob) {
                Some(Slot::Open(_)) => self.close(blob, false),
                Some(Slot::Busy(_)) => work.extend(self.end_work(blob).map(|work| (blob, work))),
                _ => {}
            }
        }
        self.queue.clear();
        self.ahead.requested.clear();
        self.ahead.windows.clear();
        work
    }
}
