//! The worker threads of the shard cache, and the operations that callers wait for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shardmill_core::{Diagnostic as _, ErrorKind};

use crate::error::ReaderError;
use crate::open::OpenShard;
use crate::shard_cache::capacity::{Capacity, Scheduler, Wanted, is_kept};
use crate::shard_cache::error::CacheError;
use crate::shard_cache::origin::{Fetch, PartKind, no_shard, stored};
use crate::shard_cache::shard::Outcome;
use crate::shard_cache::state::{
    DeferredDrop, Failure, Kind, Opened, Place, Slot, Stage, State, Urgency, Work,
};
use crate::shard_cache::uncached::Uncached;
use crate::shard_cache::{Access, CacheOptions, CacheStats, Cancel};
use shardmill_cache::AccessPlan;
use shardmill_dataset::Catalog;
use shardmill_dataset::Entry;

/// How often a waiting thread checks whether to stop, in case it misses a notification.
const LOOK: Duration = Duration::from_millis(100);

/// How long prefetching waits for other processes to free space before it tries again.
const ROOM_AGAIN: Duration = Duration::from_millis(50);

/// How many batches ahead existing files are verified.
pub(crate) const NEAR: u64 = 64;

/// Most bytes in flight before the first batch, so that prefetching does not take bandwidth from it.
const START_BYTES: u64 = 32 << 20;

/// Missing bytes from which fetching single samples, in two rounds of requests, is faster than fetching the shards.
const WORTH_SAMPLES: u64 = 8 << 20;

/// The least that a raw file counts as in flight. It allows 256 files within the default budget: more are not faster,
/// and stopping has to discard the reservation of each.
const LEAST_FILE: u64 = 1 << 20;

/// How often a shard is fetched before it is reported as bad.
pub(crate) const ATTEMPTS: u32 = 3;

/// The shard cache of one reader in one process.
pub(crate) struct Engine {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) options: CacheOptions,
    pub(crate) fetch: Arc<dyn Fetch>,
    pub(crate) capacity: Capacity,
    state: Mutex<State>,
    changed: Condvar,
    generation: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Shards in memory that were fetched for single samples and are not in the table.
    pub(crate) uncached: Mutex<Uncached>,
}

/// Marks a shard as failed if the thread that works on it panics.
struct Watchdog<'a> {
    engine: &'a Engine,
    shard: usize,
}

impl Drop for Watchdog<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let place = self.engine.catalog.place(self.shard);
            let error = CacheError::WorkerLost { place };
            self.engine
                .settle(self.shard, Outcome::Failed(error.into()));
        }
    }
}

impl Engine {
    pub(crate) fn new(
        catalog: Arc<Catalog>,
        options: &CacheOptions,
        fetch: Arc<dyn Fetch>,
    ) -> Result<Self, ReaderError> {
        Ok(Self {
            capacity: Capacity::new(Arc::clone(&catalog), options)?,
            state: Mutex::new(State::new(catalog.len())),
            options: options.clone(),
            catalog,
            fetch,
            changed: Condvar::new(),
            generation: AtomicU64::new(0),
            threads: Mutex::default(),
            uncached: Mutex::default(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock, wakes all waiting threads, and only then drops closed shards.
    pub(crate) fn unlock(&self, state: MutexGuard<'_, State>, deferred_drop: DeferredDrop) {
        self.generation.store(state.generation, Ordering::Release);
        drop(state);
        self.changed.notify_all();
        drop(deferred_drop);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the bytes that a shard counts as in flight: 0 if it is read in place or known to be on disk.
    pub(crate) fn flight(&self, state: &State, shard: usize) -> u64 {
        if state.known.contains_key(&shard) {
            return 0;
        }
        self.bytes_on_the_way(shard)
    }

    fn bytes_on_the_way(&self, shard: usize) -> u64 {
        let Some((stream, number)) = self.catalog.stream_of(shard) else {
            return 0;
        };
        let Some(entry) = stream.shards.get(number) else {
            return 0;
        };
        if !is_kept(stream, entry) {
            return 0;
        }
        // A dataset may have a million small files, so their number in flight is limited too.
        match entry.raw_file() {
            Some(file) => file.info.bytes.max(LEAST_FILE),
            None => entry.bytes(),
        }
    }

    pub(crate) fn get(&self, shard: usize) -> Option<Arc<OpenShard>> {
        let mut state = self.lock();
        let now = state.now;
        state.touch(shard, now)
    }

    pub(crate) fn need(
        self: &Arc<Self>,
        shards: &[usize],
        tick: u64,
        cancel: &Cancel,
    ) -> Result<Vec<Access>, ReaderError> {
        let start = Instant::now();
        let mut waited = false;
        let mut first_look = true;
        let mut state = self.lock();
        loop {
            if state.stopped {
                return Err(CacheError::Stopped.into());
            }
            if let Some(found) = Self::look(&mut state, shards, tick, first_look)
                .map_err(|shard| shard.unwrap_or_else(|shard| no_shard(&self.catalog, shard)))?
            {
                if waited {
                    state.stats.waits += 1;
                    state.stats.waited += start.elapsed();
                }
                return Ok(found);
            }
            first_look = false;
            if cancel.is_set() {
                return Err(ReaderError::Interrupted);
            }
            Self::resume_waiting(&mut state);
            let helps_ahead = self.options.threads == 0;
            if let Some((shard, kind)) = self.take_job(&mut state, !helps_ahead) {
                drop(state);
                self.run(shard, kind);
                state = self.lock();
                continue;
            }
            waited = true;
            let pause = Self::pause(&state).min(LOOK);
            state.waiters += 1;
            let (next, _) = self
                .changed
                .wait_timeout(state, pause)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.waiters -= 1;
        }
    }

    /// See [`super::ShardCache::at_once`].
    pub(crate) fn at_once(&self, shards: &[usize], tick: u64) -> Option<Vec<Access>> {
        let mut state = self.lock();
        let mut missing = 0_u64;
        for &shard in shards {
            match state.slots.get(shard)? {
                Slot::Open(_) | Slot::Ready => {}
                Slot::Absent | Slot::Busy(_) | Slot::Alone { .. } if self.is_plain(shard) => {
                    missing = missing.saturating_add(self.bytes_on_the_way(shard));
                }
                _ => return None,
            }
        }
        if missing < WORTH_SAMPLES {
            return None;
        }
        let access = |shard: &usize| {
            state
                .touch(*shard, tick)
                .map_or(Access::Alone, Access::Open)
        };
        Some(shards.iter().map(access).collect())
    }

    /// Returns whether a caller waits for a busy shard, and how urgently it needs space.
    pub(crate) fn wanted(&self, shard: usize) -> Option<(bool, Wanted)> {
        let mut state = self.lock();
        let now = state.now;
        let slack = self.options.slack.unwrap_or_else(|| state.pace.slack());
        let work = state.work(shard)?;
        let wanted = Wanted {
            shard,
            // The job may have been queued long ago, and no use lies in the past.
            at: work.tick.max(now),
            now,
            urgent: work.needed || work.tick <= now.saturating_add(slack),
        };
        Some((work.needed, wanted))
    }

    /// Returns access to all shards of a batch, or `None` if some are missing. Queues jobs for the missing ones.
    fn look(
        state: &mut State,
        shards: &[usize],
        tick: u64,
        first_look: bool,
    ) -> Result<Option<Vec<Access>>, Result<ReaderError, usize>> {
        let mut found = Vec::with_capacity(shards.len());
        for &shard in shards {
            let room = state.room;
            match state.slots.get_mut(shard) {
                None => return Err(Err(shard)),
                Some(Slot::Open(_)) => {
                    found.extend(state.touch(shard, tick).map(Access::Open));
                }
                Some(Slot::Alone { room: then }) if *then == room => found.push(Access::Alone),
                Some(Slot::Busy(_)) => state.hurry(shard, tick),
                Some(Slot::Failed(failure)) if !(first_look && failure.told) => {
                    failure.told = true;
                    return Err(Ok(ReaderError::Shared(Arc::clone(&failure.error))));
                }
                Some(Slot::Absent | Slot::Ready | Slot::Alone { .. } | Slot::Failed(_)) => {
                    state.begin(shard, true, tick, 0);
                }
            }
        }
        Ok((found.len() == shards.len()).then_some(found))
    }

    fn take_job(&self, state: &mut State, only_needed: bool) -> Option<(usize, Kind)> {
        let bytes = |shard| self.bytes_on_the_way(shard);
        state.take_job(self.options.in_flight, only_needed, bytes)
    }

    /// Queues the shards again whose pause is over.
    fn resume_waiting(state: &mut State) {
        let now = Instant::now();
        while let Some((until, shard)) = state.waiting.first().copied() {
            if until > now {
                return;
            }
            state.waiting.remove(&(until, shard));
            state.queue(shard, Kind::Start);
        }
    }

    fn pause(state: &State) -> Duration {
        state.waiting.first().map_or(LOOK, |(until, _)| {
            until.saturating_duration_since(Instant::now())
        })
    }

    /// Replaces the access plan, and queues prefetches.
    pub(crate) fn foresee(self: &Arc<Self>, access_plan: AccessPlan, now: Option<u64>) {
        let mut deferred_drop = DeferredDrop::default();
        let mut state = self.lock();
        state.foresee(access_plan, now, &mut deferred_drop);
        let more = self.pump(&mut state);
        self.unlock(state, deferred_drop);
        if more {
            self.start_threads();
        }
    }

    pub(crate) fn at(self: &Arc<Self>, tick: u64) {
        let mut deferred_drop = DeferredDrop::default();
        let mut state = self.lock();
        if tick <= state.now {
            return;
        }
        let ticks = tick - state.now;
        state.pace.ticked(ticks, Instant::now());
        state.begun = true;
        state.move_to(tick, &mut deferred_drop);
        let more = self.pump(&mut state);
        if more || !deferred_drop.is_empty() {
            self.unlock(state, deferred_drop);
        } else {
            drop(state);
        }
        if more {
            self.start_threads();
        }
        self.capacity.move_to(tick);
    }

    /// Queues prefetches within the budget of bytes in flight. Returns whether any were queued.
    pub(crate) fn pump(&self, state: &mut State) -> bool {
        // Jobs that a caller waits for come first, also for the bytes in flight.
        let needed = state.jobs.first_key_value();
        if state.stopped || needed.is_some_and(|(key, _)| key.0 == Urgency::Needed) {
            return false;
        }
        let mut more = self.pump_asked(state);
        if let Some((room, at, _)) = state.blocked {
            if room == state.room && at.elapsed() < ROOM_AGAIN {
                return more;
            }
            state.blocked = None;
        }
        let budget = if state.begun {
            self.options.in_flight
        } else {
            self.options.in_flight.min(START_BYTES)
        };
        while let Some(access_window) = state.ahead.get(state.cursor).copied() {
            let beyond = self
                .options
                .lookahead
                .is_some_and(|lookahead| access_window.first > state.now.saturating_add(lookahead));
            if beyond {
                break;
            }
            let absent = match state.slots.get(access_window.shard) {
                Some(Slot::Absent) => true,
                Some(Slot::Alone { room }) => *room != state.room,
                _ => false,
            };
            if access_window.last >= state.now && absent {
                let bytes = self.flight(state, access_window.shard);
                if bytes > 0 {
                    let full =
                        state.in_flight > 0 && state.in_flight.saturating_add(bytes) > budget;
                    if full {
                        break;
                    }
                    let tick = access_window.first.max(state.now);
                    state.begin(access_window.shard, false, tick, bytes);
                    more = true;
                }
            }
            state.cursor += 1;
        }
        // Files that already exist are verified shortly before they are needed.
        while let Some(access_window) = state.ahead.get(state.near).copied()
            && access_window.first <= state.now.saturating_add(NEAR)
        {
            let found = matches!(state.slots.get(access_window.shard), Some(Slot::Ready));
            if found && !state.known.contains_key(&access_window.shard) {
                state.begin(
                    access_window.shard,
                    false,
                    access_window.first.max(state.now),
                    0,
                );
                more = true;
            }
            state.near += 1;
        }
        more
    }

    pub(crate) fn start_threads(self: &Arc<Self>) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
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
            Self::resume_waiting(&mut state);
            if let Some((shard, kind)) = self.take_job(&mut state, false) {
                drop(state);
                self.run(shard, kind);
                state = self.lock();
                continue;
            }
            state = if state.waiting.is_empty() {
                self.changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner)
            } else {
                let pause = Self::pause(&state);
                let waited = self.changed.wait_timeout(state, pause);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    /// Runs one job; false if there is none.
    #[cfg(test)]
    pub(crate) fn turn(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        Self::resume_waiting(&mut state);
        let job = self.take_job(&mut state, false);
        drop(state);
        let Some((shard, kind)) = job else {
            return false;
        };
        self.run(shard, kind);
        true
    }

    /// Returns the number of threads that wait for a shard.
    #[cfg(test)]
    pub(crate) fn waiters(&self) -> usize {
        self.lock().waiters
    }

    fn run(self: &Arc<Self>, shard: usize, kind: Kind) {
        let _watchdog = Watchdog {
            engine: self,
            shard,
        };
        let outcome = match kind {
            Kind::Start => self.start(shard),
            Kind::Finish => self.finish(shard),
        };
        match outcome {
            Outcome::Fetch(place) => self.begin_fetch(shard, place),
            outcome => self.settle(shard, outcome),
        }
    }

    /// Records the outcome of a job in the table, and queues what can be done next.
    pub(crate) fn settle(&self, shard: usize, outcome: Outcome) {
        let mut deferred_drop = DeferredDrop::default();
        let mut state = self.lock();
        if self.capacity.is_limited() {
            state.limit();
        }
        let outcome = match outcome {
            Outcome::Later { path, pid } => {
                let waited = |seconds| CacheError::Waited {
                    path,
                    seconds,
                    what: "fetches or removes this shard",
                    pid,
                };
                match self.wait_for(&mut state, shard, waited) {
                    None => return self.unlock(state, deferred_drop),
                    Some(error) => Outcome::Failed(error),
                }
            }
            Outcome::Full => {
                let full = |seconds| CacheError::NoRoom {
                    place: self.catalog.place(shard),
                    bytes: self.catalog.entry(shard).map_or(0, Entry::bytes),
                    // On a full disk, the space in use is the limit.
                    limit: self.options.limit.unwrap_or_else(|| self.capacity.used()),
                    seconds,
                };
                match self.wait_for(&mut state, shard, full) {
                    None => return self.unlock(state, deferred_drop),
                    Some(error) => Outcome::Failed(error),
                }
            }
            outcome => outcome,
        };
        let Some(work) = state.end_work(shard) else {
            return self.unlock(state, deferred_drop);
        };
        let Work { needed, tick, .. } = *work;
        match outcome {
            Outcome::Open {
                shard: open,
                pin,
                memory,
                known,
            } => {
                if let Some(known) = known {
                    state.known.insert(shard, known);
                }
                let opened = Opened {
                    shard: open,
                    pin,
                    memory,
                    used_at: tick,
                    stamp: 0,
                    end: None,
                };
                state.open(shard, opened);
                let most = self.options.open_shards.max(1);
                state.close_beyond(most, &mut deferred_drop);
            }
            Outcome::Ready { known } => {
                if let Some(known) = known {
                    state.known.insert(shard, known);
                }
                state.set(shard, Slot::Ready);
            }
            Outcome::Alone => {
                let room = state.room;
                state.set(shard, Slot::Alone { room });
            }
            Outcome::NotNow if needed => state.begin(shard, true, tick, 0),
            Outcome::NotNow => {
                if state.promised.remove(&shard) {
                    // There is no space for later preloads either.
                    state.asked_ahead.clear();
                }
                let sooner = state
                    .blocked
                    .is_some_and(|(room, _, at)| room == state.room && at <= tick);
                if !sooner {
                    state.blocked = Some((state.room, Instant::now(), tick));
                }
                state.rewind(shard);
            }
            Outcome::Failed(error) => {
                state.promised.remove(&shard);
                // A failed prefetch may succeed when the shard is needed, unless its data is corrupt or in conflict.
                let lasts = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Conflict);
                if needed || lasts {
                    let failure = Failure {
                        error: Arc::new(error),
                        told: false,
                    };
                    state.set(shard, Slot::Failed(Box::new(failure)));
                }
            }
            Outcome::Fetch(_) | Outcome::Later { .. } | Outcome::Full => {}
        }
        self.pump(&mut state);
        self.unlock(state, deferred_drop);
        drop(work);
    }

    /// Schedules another attempt after a pause, which doubles each time up to 100 ms. Returns an error once the
    /// timeout has passed.
    fn wait_for(
        &self,
        state: &mut State,
        shard: usize,
        error: impl FnOnce(u64) -> CacheError,
    ) -> Option<ReaderError> {
        const MOST_PAUSE: Duration = Duration::from_millis(100);

        let now = Instant::now();
        let work = state.work(shard)?;
        let since = *work.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= self.options.timeout {
            return Some(error(self.options.timeout.as_secs()).into());
        }
        let until = now + work.pause;
        work.pause = (work.pause * 2).min(MOST_PAUSE);
        work.stage = Stage::Waiting(until);
        let flight = std::mem::take(&mut work.flight);
        state.in_flight = state.in_flight.saturating_sub(flight);
        state.waiting.insert((until, shard));
        None
    }

    /// Starts fetching the files of a shard. `received` handles the results.
    pub(crate) fn begin_fetch(self: &Arc<Self>, shard: usize, place: Place) {
        let kinds: &[PartKind] = match self.catalog.entry(shard) {
            Some(entry) if entry.table().is_some() => &[PartKind::Data, PartKind::Meta],
            _ => &[PartKind::Data],
        };
        let stored_bytes = kinds
            .iter()
            .filter_map(|kind| stored(&self.catalog, shard, *kind))
            .fold(0, |sum: u64, info| sum.saturating_add(info.bytes));
        let mut state = self.lock();
        state.next_ticket += 1;
        let ticket = state.next_ticket;
        let flight = self.bytes_on_the_way(shard);
        let Some(work) = state.work(shard) else {
            return;
        };
        work.place = place;
        work.ticket = ticket;
        let first = work.failures == 0;
        let more = flight.saturating_sub(work.flight);
        work.flight = work.flight.max(flight);
        work.stage = Stage::Fetching {
            files: vec![None; kinds.len()],
            pending: Vec::new(),
            begun: Instant::now(),
        };
        state.in_flight = state.in_flight.saturating_add(more);
        state.stats.fetched_shards += 1;
        state.stats.fetched_bytes = state.stats.fetched_bytes.saturating_add(stored_bytes);
        drop(state);
        self.start_threads();

        let mut started = Vec::with_capacity(kinds.len());
        for (number, kind) in kinds.iter().enumerate() {
            if first && let Some(bytes) = self.zip_at_hand(shard, *kind) {
                self.received(shard, ticket, number, Ok(bytes));
                continue;
            }
            let this = Arc::downgrade(self);
            let done = Box::new(move |result| {
                if let Some(engine) = this.upgrade() {
                    engine.received(shard, ticket, number, result);
                }
            });
            started.push(self.fetch.fetch(&self.catalog, shard, *kind, done));
        }
        let mut state = self.lock();
        if let Some(work) = state.work(shard)
            && work.ticket == ticket
            && let Stage::Fetching { pending, .. } = &mut work.stage
        {
            *pending = started;
        }
    }

    /// Stores one fetched file of a shard. Queues the `Finish` job after the last one or after an error.
    fn received(
        &self,
        shard: usize,
        ticket: u64,
        number: usize,
        result: Result<Vec<u8>, ReaderError>,
    ) {
        let mut state = self.lock();
        let Some(work) = state.work(shard).filter(|work| work.ticket == ticket) else {
            return;
        };
        let Stage::Fetching { files, begun, .. } = &mut work.stage else {
            return;
        };
        let lasted = begun.elapsed();
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
        state.queue(shard, Kind::Finish);
        self.unlock(state, DeferredDrop::default());
        drop(old);
    }

    /// See [`super::ShardCache::distrust`].
    pub(crate) fn distrust(&self, shard: usize) {
        let mut deferred_drop = DeferredDrop::default();
        let mut state = self.lock();
        state.known.remove(&shard);
        state.doubted.insert(shard);
        match state.slots.get(shard) {
            Some(Slot::Open(_)) => state.let_go(shard, false, &mut deferred_drop),
            Some(Slot::Ready) => state.set(shard, Slot::Absent),
            _ => {}
        }
        self.unlock(state, deferred_drop);
    }

    pub(crate) fn stats(&self) -> CacheStats {
        let (used, evictions) = (self.capacity.used(), self.capacity.evictions());
        let state = self.lock();
        CacheStats {
            resident_bytes: used,
            evictions,
            memory_bytes: state.memory,
            open_shards: state.open_shards() as u64,
            ..state.stats
        }
    }

    pub(crate) fn wake(&self) {
        // The lock ensures that no thread misses the notification between its check and its wait.
        let state = self.lock();
        self.changed.notify_all();
        drop(state);
    }

    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        self.unlock(state, DeferredDrop::default());
        let threads = {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *threads)
        };
        for thread in threads {
            // A thread that panicked has printed a message, and its shard is marked as failed.
            let _ended = thread.join();
        }
        let mut deferred_drop = DeferredDrop::default();
        let mut state = self.lock();
        let works = state.clear(&mut deferred_drop);
        self.unlock(state, deferred_drop);
        for (shard, work) in works {
            if let Place::Disk(marker) = work.place {
                // Otherwise a later process would have to clean it up.
                let _removed = self.capacity.discard(shard, marker, self);
            }
        }
    }
}

impl Scheduler for Engine {
    fn is_busy(&self, shard: usize) -> bool {
        self.lock().is_in_use(shard)
    }

    fn next_use(&self, shard: usize, tick: u64) -> Option<u64> {
        let state = self.lock();
        if !state.access_plan.is_empty() {
            return state.access_plan.next_use(shard, tick);
        }
        // Without an access plan, the least recently used shard is evicted first; preloaded shards are evicted last.
        if state.promised.contains(&shard) {
            return Some(tick.saturating_add(1));
        }
        state.stamp(shard).map(|stamp| u64::MAX - 1 - stamp)
    }

    fn let_go(&self, shard: usize) -> bool {
        let mut deferred_drop = DeferredDrop::default();
        let mut state = self.lock();
        if state.is_in_use(shard) {
            return false;
        }
        state.call_off(shard);
        state.let_go(shard, false, &mut deferred_drop);
        state.set(shard, Slot::Absent);
        state.known.remove(&shard);
        state.promised.remove(&shard);
        state.recent.remove(&shard);
        state.room += 1;
        state.rewind(shard);
        self.unlock(state, deferred_drop);
        true
    }

    fn is_stopped(&self) -> bool {
        self.lock().stopped
    }
}
