//! The worker threads of the blob cache, and the operations that callers wait for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shardmill_core::{Diagnostic as _, ErrorKind, lock};

use crate::blobs::{Access, BlobEntry, BlobPart, BlobProblem, BlobResult, Blobs, CachedBlob};
use crate::capacity::{Capacity, Scheduler, Wanted};
use crate::error::CacheError;
use crate::options::{CacheOptions, CacheStats, Cancel};
use crate::outcome::Outcome;
use crate::policy::AccessPlan;
use crate::queue::Job;
use crate::state::{Blocked, Failure, FetchTarget, Opened, Slot, Stage, State, Work};
use crate::uncached_blobs::UncachedBlobs;

/// How often a waiting thread checks whether to stop, in case it misses a notification.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long an idle thread waits; a new job wakes it sooner.
const IDLE: Duration = Duration::from_secs(3600);

/// How long prefetching waits for other processes to free space before it tries again.
const ROOM_AGAIN: Duration = Duration::from_millis(50);

/// How many batches ahead existing files are verified.
pub(crate) const NEAR: u64 = 64;

/// Most bytes in flight before the first batch, so that prefetching does not take bandwidth from it.
const START_BYTES: u64 = 32 << 20;

/// Missing bytes from which fetching parts of blobs, in two rounds of requests, is faster than fetching the blobs.
const WORTH_PARTS: u64 = 8 << 20;

/// The most shards in flight at a time: each counts as at least this part of the bytes in flight. A fetch takes a
/// connection, and in each set one lock file is open while there are fetches.
const MAX_SHARDS: u64 = 60;

/// The most blobs in flight of more than 16 sets.
const MAX_OF_MANY_SETS: u64 = 32;

/// The most raw files in flight at a time. They are smaller than shards, so that the latency of the store counts more.
const MAX_FILES: u64 = 128;

/// How often a blob is fetched before it is reported as bad.
pub(crate) const ATTEMPTS: u32 = 3;

/// The cache in one process.
pub struct Engine<B: Blobs> {
    pub(crate) blobs: Arc<B>,
    pub(crate) options: CacheOptions,
    pub(crate) capacity: Capacity<B>,
    state: Mutex<State<B>>,
    changed: Condvar,
    generation: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Blobs in memory that are not in the table.
    pub(crate) uncached: Mutex<UncachedBlobs<B::Open>>,
    /// Notified when the fetch of a blob that is not in the table ends.
    pub(crate) loaded: Condvar,
}

/// Marks a blob as failed if the thread that works on it panics.
struct Watchdog<'a, B: Blobs> {
    engine: &'a Engine<B>,
    blob: usize,
}

impl<B: Blobs> Drop for Watchdog<'_, B> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let name = self.engine.blobs.name(self.blob);
            let error = CacheError::WorkerLost { name };
            self.engine.settle(self.blob, Outcome::Failed(error));
        }
    }
}

impl<B: Blobs> Engine<B> {
    pub(crate) fn new(blobs: Arc<B>, options: &CacheOptions) -> BlobResult<Self, B::Error> {
        Ok(Self {
            capacity: Capacity::new(Arc::clone(&blobs), options)?,
            state: Mutex::new(State::new(blobs.len())),
            options: options.clone(),
            blobs,
            changed: Condvar::new(),
            generation: AtomicU64::new(0),
            threads: Mutex::default(),
            uncached: Mutex::default(),
            loaded: Condvar::new(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<B>> {
        lock(&self.state)
    }

    /// Releases the lock, wakes all waiting threads, and only then drops closed blobs.
    pub(crate) fn unlock(&self, mut state: MutexGuard<'_, State<B>>) {
        let to_drop = std::mem::take(&mut state.to_drop);
        self.generation.store(state.open.closed, Ordering::Release);
        drop(state);
        self.changed.notify_all();
        drop(to_drop);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the bytes that a blob counts as in flight: 0 if it is read in place or known to be on disk.
    pub(crate) fn flight(&self, state: &State<B>, blob: usize) -> u64 {
        if state.checks.known.contains_key(&blob) {
            return 0;
        }
        self.fetch_bytes(blob)
    }

    fn fetch_bytes(&self, blob: usize) -> u64 {
        let blob = self.blobs.blob(blob).filter(|blob| blob.is_kept);
        blob.map_or(0, |blob| {
            let max = match (self.blobs.sets().len(), blob.is_unhashed) {
                (17.., _) => MAX_OF_MANY_SETS,
                (_, true) => MAX_FILES,
                (_, false) => MAX_SHARDS,
            };
            blob.total_bytes().max(self.options.in_flight / max)
        })
    }

    /// Returns the error for a blob that cannot be used.
    pub(crate) fn problem(&self, blob: usize, problem: BlobProblem) -> CacheError<B::Error> {
        CacheError::Blob(Box::new(self.blobs.error(blob, problem)))
    }

    /// Returns a blob with its set; an error if there is none of this number.
    pub(crate) fn entry(&self, blob: usize) -> BlobResult<BlobEntry<'_>, B::Error> {
        let entry = self.blobs.entry(blob);
        entry.ok_or_else(|| self.problem(blob, BlobProblem::Absent))
    }

    /// Returns an open blob, or `None` without waiting if it is not open.
    pub fn get(&self, blob: usize) -> Option<Arc<CachedBlob<B::Open>>> {
        let mut state = self.lock();
        let now = state.now;
        state.touch(blob, now)
    }

    /// Makes the blobs readable that a batch needs at `tick`, and waits until all are.
    ///
    /// # Errors
    ///
    /// The error of a blob that cannot be read; [`CacheError::Interrupted`], [`CacheError::Stopped`].
    pub fn need(
        self: &Arc<Self>,
        blobs: &[usize],
        tick: u64,
        cancel: &Cancel,
    ) -> BlobResult<Vec<Access<B::Open>>, B::Error> {
        let start = Instant::now();
        let mut waited = false;
        let mut is_first_check = true;
        let mut found: Vec<Option<Access<B::Open>>> = blobs.iter().map(|_| None).collect();
        let mut state = self.lock();
        loop {
            if state.stopped {
                return Err(CacheError::Stopped);
            }
            for (blob, access) in blobs.iter().zip(&mut found) {
                // The caller holds what it has found: another blob may take its place in the table.
                if access.is_none() {
                    *access = self.inspect(&mut state, *blob, tick, is_first_check)?;
                }
            }
            if found.iter().all(Option::is_some) {
                if waited {
                    state.stats.waits += 1;
                    state.stats.waited += start.elapsed();
                }
                return Ok(found.into_iter().flatten().collect());
            }
            is_first_check = false;
            if cancel.is_set() {
                return Err(CacheError::Interrupted);
            }
            state.resume_waiting();
            let helps_ahead = self.options.threads == 0;
            if let Some((blob, job)) = self.take_job(&mut state, !helps_ahead) {
                drop(state);
                self.run(blob, job);
                state = self.lock();
                continue;
            }
            waited = true;
            state.waiters += 1;
            let pause = state
                .queue
                .next_due()
                .map_or(POLL_INTERVAL, |due| due.min(POLL_INTERVAL));
            let changed = self.changed.wait_timeout(state, pause);
            state = changed.unwrap_or_else(PoisonError::into_inner).0;
            state.waiters -= 1;
        }
    }

    /// Returns access to a blob, or queues a job for it.
    fn inspect(
        &self,
        state: &mut State<B>,
        blob: usize,
        tick: u64,
        is_first_check: bool,
    ) -> BlobResult<Option<Access<B::Open>>, B::Error> {
        let room = state.budget.room;
        match state.slots.get_mut(blob) {
            None => return Err(self.problem(blob, BlobProblem::Absent)),
            Some(Slot::Open(_)) => return Ok(state.touch(blob, tick).map(Access::Open)),
            Some(Slot::Uncached { room: then }) if *then == room => {
                return Ok(Some(Access::Uncached));
            }
            Some(Slot::Busy(_)) => state.prioritize(blob, tick),
            Some(Slot::Failed(failure)) if !(is_first_check && failure.reported) => {
                failure.reported = true;
                return Err(CacheError::Shared(Arc::clone(&failure.error) as _));
            }
            Some(Slot::Absent | Slot::Ready | Slot::Uncached { .. } | Slot::Failed(_)) => {
                state.begin(blob, true, tick, 0);
            }
        }
        Ok(None)
    }

    /// Returns how to read these blobs without waiting. Open blobs are read as a whole; parts of the others are read
    /// without the cache while the blobs are fetched. `None` if that would not be faster.
    pub fn at_once(&self, blobs: &[usize], tick: u64) -> Option<Vec<Access<B::Open>>> {
        let mut state = self.lock();
        let mut missing = 0_u64;
        for &blob in blobs {
            match state.slots.get(blob)? {
                Slot::Open(_) | Slot::Ready => {}
                Slot::Absent | Slot::Busy(_) | Slot::Uncached { .. }
                    if self.blobs.is_divisible(blob) =>
                {
                    let found = self.blobs.blob(blob).filter(|blob| blob.is_kept);
                    missing = missing.saturating_add(found.map_or(0, |blob| blob.total_bytes()));
                }
                _ => return None,
            }
        }
        if missing < WORTH_PARTS {
            return None;
        }
        let access = |blob: &usize| {
            let open = state.touch(*blob, tick);
            open.map_or(Access::Uncached, Access::Open)
        };
        Some(blobs.iter().map(access).collect())
    }

    /// Returns whether a caller waits for a busy blob, and how urgently it needs space.
    pub(crate) fn wanted(&self, blob: usize) -> Option<(bool, Wanted)> {
        let mut state = self.lock();
        let now = state.now;
        let slack = self.options.slack.unwrap_or_else(|| state.pace.slack());
        let work = state.work(blob)?;
        let wanted = Wanted {
            blob,
            // The job may have been queued long ago, and no use lies in the past.
            at: work.tick.max(now),
            now,
            urgent: work.needed || work.tick <= now.saturating_add(slack),
        };
        Some((work.needed, wanted))
    }

    fn take_job(&self, state: &mut State<B>, only_needed: bool) -> Option<(usize, Job)> {
        let bytes = |blob| self.fetch_bytes(blob);
        state.take_job(self.options.in_flight, only_needed, bytes)
    }

    /// Records that an epoch begins at a tick. Files left in use for the same owner in an earlier epoch may then be
    /// evicted.
    pub fn begin_epoch(&self, epoch: u64, tick: u64) {
        self.capacity.positions.begin_epoch(epoch, tick);
    }

    /// Replaces the access plan, and starts prefetching. With `now`, the consumer moves there; otherwise its position
    /// stays, because the new plan continues the old one.
    pub fn set_plan(self: &Arc<Self>, plan: AccessPlan, now: Option<u64>) {
        let mut state = self.lock();
        state.set_plan(plan, now);
        let more = self.queue_prefetches(&mut state);
        self.unlock(state);
        if more {
            self.start_threads();
        }
    }

    /// Moves the consumer to a tick: all earlier batches have been delivered.
    pub fn move_to(self: &Arc<Self>, tick: u64) {
        let mut state = self.lock();
        if tick <= state.now {
            return;
        }
        let ticks = tick - state.now;
        state.pace.ticked(ticks, Instant::now());
        state.move_to(tick);
        let more = self.queue_prefetches(&mut state);
        if more || !state.to_drop.is_empty() {
            self.unlock(state);
        } else {
            drop(state);
        }
        if more {
            self.start_threads();
        }
        self.capacity.move_to(tick);
    }

    /// Queues prefetches within the budget of bytes in flight. Returns whether any were queued.
    pub(crate) fn queue_prefetches(&self, state: &mut State<B>) -> bool {
        // Jobs that a caller waits for come first, also for the bytes in flight.
        if state.stopped || state.queue.has_needed() {
            return false;
        }
        let mut more = self.pump_requested(state);
        if let Some(blocked) = state.ahead.blocked {
            if blocked.room == state.budget.room && blocked.since.elapsed() < ROOM_AGAIN {
                return more;
            }
            state.ahead.blocked = None;
        }
        let max = match state.now {
            0 => self.options.in_flight.min(START_BYTES),
            _ => self.options.in_flight,
        };
        let lookahead = self.options.lookahead;
        let end = lookahead.map_or(u64::MAX, |batches| state.now.saturating_add(batches));
        while let Some(window) = state.ahead.windows.get(state.ahead.cursor).copied()
            && window.first <= end
        {
            let absent = match state.slots.get(window.blob) {
                Some(Slot::Absent) => true,
                Some(Slot::Uncached { room }) => *room != state.budget.room,
                _ => false,
            };
            if window.last >= state.now && absent {
                let bytes = self.flight(state, window.blob);
                let in_flight = state.budget.in_flight;
                if bytes > 0 && in_flight > 0 && in_flight.saturating_add(bytes) > max {
                    break;
                }
                if bytes > 0 {
                    state.begin(window.blob, false, window.first.max(state.now), bytes);
                    more = true;
                }
            }
            state.ahead.cursor += 1;
        }
        // Files that already exist are verified shortly before they are needed.
        while let Some(window) = state.ahead.windows.get(state.ahead.near).copied()
            && window.first <= state.now.saturating_add(NEAR)
        {
            let found = matches!(state.slots.get(window.blob), Some(Slot::Ready));
            if found && !state.checks.known.contains_key(&window.blob) {
                state.begin(window.blob, false, window.first.max(state.now), 0);
                more = true;
            }
            state.ahead.near += 1;
        }
        more
    }

    pub(crate) fn start_threads(self: &Arc<Self>) {
        let mut threads = lock(&self.threads);
        if !threads.is_empty() || self.lock().stopped {
            return;
        }
        for number in 0..self.options.threads {
            let engine = Arc::clone(self);
            let thread = std::thread::Builder::new()
                .name(format!("shardmill-cache-{number}"))
                .spawn(move || engine.work());
            // If a thread cannot be created, waiting callers run the jobs.
            threads.extend(thread.ok());
        }
    }

    /// Runs jobs until the engine stops.
    fn work(self: Arc<Self>) {
        let mut state = self.lock();
        while !state.stopped {
            state.resume_waiting();
            if let Some((blob, job)) = self.take_job(&mut state, false) {
                drop(state);
                self.run(blob, job);
                state = self.lock();
                continue;
            }
            let pause = state.queue.next_due().unwrap_or(IDLE);
            let changed = self.changed.wait_timeout(state, pause);
            state = changed.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Runs one job; false if there is none.
    #[cfg(test)]
    pub(crate) fn turn(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        state.resume_waiting();
        let job = self.take_job(&mut state, false);
        drop(state);
        let Some((blob, job)) = job else {
            return false;
        };
        self.run(blob, job);
        true
    }

    /// Returns the number of threads that wait for a blob.
    #[cfg(test)]
    pub(crate) fn waiters(&self) -> usize {
        self.lock().waiters
    }

    fn run(self: &Arc<Self>, blob: usize, job: Job) {
        let _watchdog = Watchdog { engine: self, blob };
        let outcome = match job {
            Job::Start => self.start(blob),
            Job::Finish => self.finish(blob),
        };
        match outcome {
            Outcome::Fetch(target) => self.begin_fetch(blob, target),
            outcome => self.settle(blob, outcome),
        }
    }

    /// Records the outcome of a job in the table, and queues what can be done next.
    pub(crate) fn settle(&self, blob: usize, outcome: Outcome<B>) {
        let mut state = self.lock();
        if self.capacity.is_limited() {
            state.limit();
        }
        let outcome = match outcome {
            Outcome::Later { .. } | Outcome::Full => {
                if self.wait(&mut state, blob) {
                    return self.unlock(state);
                }
                Outcome::Failed(self.waited_too_long(blob, outcome))
            }
            outcome => outcome,
        };
        let Some(work) = state.end_work(blob) else {
            return self.unlock(state);
        };
        let Work { needed, tick, .. } = *work;
        match outcome {
            Outcome::Open {
                blob: open,
                pin,
                memory,
                known,
            } => {
                state.checks.known.extend(known.map(|known| (blob, known)));
                state.open(blob, Opened::new(open, pin, memory, tick));
                let max = self.options.open_shards.max(1);
                state.close_beyond(max);
            }
            Outcome::Ready { known } => {
                state.checks.known.extend(known.map(|known| (blob, known)));
                state.set(blob, Slot::Ready);
            }
            Outcome::Uncached => {
                let room = state.budget.room;
                state.set(blob, Slot::Uncached { room });
            }
            Outcome::NotNow if needed => state.begin(blob, true, tick, 0),
            Outcome::NotNow => {
                if state.ahead.preloading.remove(&blob) {
                    // There is no space for later preloads either.
                    state.ahead.requested.clear();
                }
                let room = state.budget.room;
                let blocked = state.ahead.blocked;
                if blocked.is_none_or(|blocked| blocked.room != room || blocked.tick > tick) {
                    state.ahead.blocked = Some(Blocked {
                        room,
                        since: Instant::now(),
                        tick,
                    });
                }
                state.rewind(blob);
            }
            Outcome::Failed(error) => {
                state.ahead.preloading.remove(&blob);
                // A failed prefetch may succeed when the blob is needed, unless its data is corrupt or in conflict.
                let lasts = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Conflict);
                if needed || lasts {
                    let failure = Failure {
                        error: Arc::new(error),
                        reported: false,
                    };
                    state.set(blob, Slot::Failed(Box::new(failure)));
                }
            }
            Outcome::Fetch(_) | Outcome::Later { .. } | Outcome::Full => {}
        }
        self.queue_prefetches(&mut state);
        self.unlock(state);
        drop(work);
    }

    /// Schedules another attempt after a pause, which doubles each time up to 100 ms. Returns false once the timeout
    /// has passed.
    fn wait(&self, state: &mut State<B>, blob: usize) -> bool {
        const MAX_PAUSE: Duration = Duration::from_millis(100);

        let now = Instant::now();
        let Some(work) = state.work(blob) else {
            return true;
        };
        let since = *work.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= self.options.timeout {
            return false;
        }
        let until = now + work.pause;
        work.pause = (work.pause * 2).min(MAX_PAUSE);
        work.stage = Stage::Waiting(until);
        let flight = std::mem::take(&mut work.flight);
        state.budget.in_flight = state.budget.in_flight.saturating_sub(flight);
        state.queue.wait_until(until, blob);
        true
    }

    /// Returns the error for a blob that has waited for another process or for space until the timeout.
    fn waited_too_long(&self, blob: usize, outcome: Outcome<B>) -> CacheError<B::Error> {
        let seconds = self.options.timeout.as_secs();
        match outcome {
            Outcome::Later { path, pid } => CacheError::Waited {
                path,
                seconds,
                what: "fetches or removes this shard",
                pid,
            },
            _ => CacheError::NoRoom {
                name: self.blobs.name(blob),
                bytes: self.blobs.blob(blob).map_or(0, |blob| blob.total_bytes()),
                // On a full disk, the space in use is the limit.
                limit: self.options.limit.unwrap_or_else(|| self.capacity.used()),
                seconds,
            },
        }
    }

    /// Starts fetching the files of a blob. `received` handles the results.
    fn begin_fetch(self: &Arc<Self>, blob: usize, target: FetchTarget) {
        let Some(entry) = self.blobs.blob(blob) else {
            return;
        };
        let parts: &[BlobPart] = match entry.table {
            Some(_) => &[BlobPart::Data, BlobPart::Table],
            None => &[BlobPart::Data],
        };
        let stored = entry.files().map(|file| file.stored().bytes);
        let stored = stored.fold(0, u64::saturating_add);
        let flight = self.fetch_bytes(blob);
        let mut state = self.lock();
        let ticket = state.queue.next_number();
        let Some(work) = state.work(blob) else {
            return;
        };
        work.target = target;
        work.ticket = ticket;
        let first = work.failures == 0;
        let more = flight.saturating_sub(work.flight);
        work.flight = work.flight.max(flight);
        work.stage = Stage::Fetching {
            files: vec![None; parts.len()],
            pending: Vec::new(),
            started: Instant::now(),
        };
        state.budget.in_flight = state.budget.in_flight.saturating_add(more);
        state.stats.fetched_shards += 1;
        state.stats.fetched_bytes = state.stats.fetched_bytes.saturating_add(stored);
        drop(state);
        self.start_threads();

        let mut started = Vec::with_capacity(parts.len());
        for (number, part) in parts.iter().enumerate() {
            if first && let Some(bytes) = self.existing_packed(blob, *part) {
                self.received(blob, ticket, number, Ok(bytes));
                continue;
            }
            let this = Arc::downgrade(self);
            let done = Box::new(move |result| {
                if let Some(engine) = this.upgrade() {
                    engine.received(blob, ticket, number, result);
                }
            });
            started.push(self.blobs.fetch(blob, *part, done));
        }
        let mut state = self.lock();
        if let Some(work) = state.work(blob)
            && work.ticket == ticket
            && let Stage::Fetching { pending, .. } = &mut work.stage
        {
            *pending = started;
        }
    }

    /// Stores one fetched file of a blob. Queues the `Finish` job after the last one or after an error.
    fn received(
        &self,
        blob: usize,
        ticket: u64,
        number: usize,
        result: BlobResult<Vec<u8>, B::Error>,
    ) {
        let mut state = self.lock();
        let Some(work) = state.work(blob).filter(|work| work.ticket == ticket) else {
            return;
        };
        let Stage::Fetching { files, started, .. } = &mut work.stage else {
            return;
        };
        let lasted = started.elapsed();
        let fetched = match result {
            Ok(bytes) => {
                if let Some(file) = files.get_mut(number) {
                    *file = Some(bytes);
                }
                if files.iter().any(Option::is_none) {
                    return;
                }
                Ok(files.drain(..).flatten().collect())
            }
            Err(error) => Err(error),
        };
        // Dropping it cancels the fetch of the other file; the lock must not be held then.
        let old = std::mem::replace(&mut work.stage, Stage::Fetched(fetched));
        state.pace.fetched(lasted);
        state.queue_again(blob, Job::Finish);
        self.unlock(state);
        drop(old);
    }

    /// Discards what is known about a blob whose files changed. The next use verifies it again.
    pub fn forget_verification(&self, blob: usize) {
        let mut state = self.lock();
        state.checks.known.remove(&blob);
        state.checks.doubted.insert(blob);
        match state.slots.get(blob) {
            Some(Slot::Open(_)) => state.close(blob, false),
            Some(Slot::Ready) => state.set(blob, Slot::Absent),
            _ => {}
        }
        self.unlock(state);
    }

    /// Counts parts of blobs that were read without the cache.
    pub fn count_parts(&self, parts: u64) {
        self.lock().stats.alone_samples += parts;
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let (used, evictions) = (self.capacity.used(), self.capacity.evictions());
        let state = self.lock();
        CacheStats {
            resident_bytes: used,
            evictions,
            memory_bytes: state.budget.memory,
            open_shards: state.open_blobs() as u64,
            ..state.stats
        }
    }

    /// Returns the position of the consumer.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.lock().now
    }

    /// Returns the bytes that the folders use before any blob is cached.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.capacity.base
    }

    /// Returns the smallest limit with which the cache of these blobs can be opened.
    #[must_use]
    pub const fn minimum(&self) -> u64 {
        self.capacity.minimum
    }

    /// Checks that the limit has space for files whose paths are needed at the same time.
    ///
    /// # Errors
    ///
    /// [`CacheError::TooSmall`].
    pub fn check_room(&self, blobs: &[usize]) -> BlobResult<(), B::Error> {
        self.capacity.check_room(blobs)
    }

    /// Wakes all waiting threads, so that they check whether to stop.
    pub fn wake(&self) {
        // The lock ensures that no thread misses the notification between its check and its wait.
        let state = self.lock();
        self.changed.notify_all();
        drop(state);
        self.loaded.notify_all();
    }

    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        self.unlock(state);
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // A thread that panicked has printed a message, and its blob is marked as failed.
            let _ended = thread.join();
        }
        let mut state = self.lock();
        let works = state.clear();
        self.unlock(state);
        for (blob, work) in works {
            if let FetchTarget::Disk(marker) = work.target {
                // Otherwise a later process would have to clean it up.
                let _removed = self.capacity.discard(blob, marker, self);
            }
        }
    }
}

impl<B: Blobs> Scheduler for Engine<B> {
    fn is_busy(&self, blob: usize) -> bool {
        self.lock().is_in_use(blob)
    }

    fn next_use(&self, blob: usize, tick: u64) -> Option<u64> {
        self.lock().next_use(blob, tick)
    }

    fn evict(&self, blob: usize) -> bool {
        let mut state = self.lock();
        let evicted = state.evict(blob);
        if evicted {
            self.unlock(state);
        }
        evicted
    }

    fn is_stopped(&self) -> bool {
        self.lock().stopped
    }
}
