//! The batches of a rank, which threads fill in advance.
//!
//! Threads exchange groups of batches. A thread claims the next batches of the order, fills them, and puts them into
//! the queue of the caller. It wakes the caller once per group. If no batch is ready and no thread has claimed the next
//! one, the caller fills it. That is cheaper than waking a thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shardmill_cache::Activity;
use shardmill_core::Error;
use shardmill_order::{
    Cursor, Entry, Epoch, EpochConfig, Kept, ShuffleOptions, State, outside_world,
};

use crate::batch::Batch;
use crate::collate::Collator;
use crate::context::FillContext;
use crate::error::{collator_lost, no_thread};
use crate::prefetch_planner::PrefetchPlanner;
use shardmill_cache::Cancel;

/// The bytes that justify waking a thread.
const GROUP_BYTES: u64 = 512 << 10;
/// The most bytes that are filled in advance. Two batches are always allowed: one is being filled while the other
/// waits.
const QUEUE_BYTES: u64 = 64 << 20;
/// How long a caller waits before it is asked whether to continue.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(50);
/// The most batches of a group.
const MAX_GROUP: u64 = 8;

/// A function that is called from time to time and returns whether to continue waiting.
type GoOn<'a> = &'a mut dyn FnMut() -> bool;

/// Options for reading the batches of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// The rank, in the world before replication.
    pub rank: u64,
    /// The number of this loader process of the rank. It reads every `workers_per_rank`-th batch.
    pub worker: u64,
    /// The number of threads that fill batches in advance; 0 to fill each batch on demand.
    pub threads: usize,
    /// The most batches that are filled in advance; fewer if they are large.
    pub queue: u64,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            rank: 0,
            worker: 0,
            threads: 1,
            // As many as a consumer with short steps reads while one shard is opened.
            queue: 16,
        }
    }
}

/// Statistics of reading the batches of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchStats {
    /// Batches returned.
    pub batches: u64,
    /// Samples returned.
    pub samples: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Batches that were not ready when the caller needed them.
    pub waits: u64,
    /// The time that the caller spent waiting for batches or filling them.
    pub waited: Duration,
    /// The part of this time until the first batch.
    pub first: Duration,
}

impl BatchStats {
    /// Counts a batch that was not ready.
    pub(crate) fn wait(&mut self, waited: Duration) {
        self.waits += 1;
        self.waited += waited;
        if self.batches == 0 {
            self.first = waited;
        }
    }
}

/// The batches of a rank in one epoch, in order. Dropping this value stops its threads and waits for them.
#[derive(Debug)]
pub struct Batches {
    shared: Arc<Shared>,
    prefetch_planner: Arc<PrefetchPlanner>,
    collator: Collator,
    threads: Vec<JoinHandle<()>>,
    options: BatchOptions,
    config: EpochConfig,
    stats: BatchStats,
    /// Whether the epoch has ended, by an error or after its last batch.
    over: bool,
}

#[derive(Debug)]
struct Shared {
    context: Arc<FillContext>,
    /// The epoch, and its steps that are delivered.
    kept: Kept,
    /// The tick of the first batch of the epoch.
    tick: u64,
    /// The distance between two batches of this worker.
    stride: u64,
    worker: u64,
    /// The number of batches of this worker.
    batches: u64,
    queue: Mutex<Queue>,
    /// Signals that a batch is ready, or that an error occurred.
    ready: Condvar,
    /// Signals that the queue has space.
    room: Condvar,
    cancel: Cancel,
    /// Whether a thread has panicked.
    lost: AtomicBool,
    /// The size of the last batch in bytes, as an estimate for the next ones.
    batch_bytes: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    cursor: Cursor,
    /// The next batch of this worker that is not claimed.
    claimed: u64,
    /// The next batch that the caller will take.
    next: u64,
    /// The batches from `next` on; `None` for one that is still being filled.
    ready: VecDeque<Option<Result<Batch, Error>>>,
    /// Whether the caller is waiting.
    waiting: bool,
    /// The number of threads that wait for space.
    idle: usize,
}

/// A batch that a thread has claimed.
struct Claim {
    /// The number of the batch among those of this worker.
    number: u64,
    entries: Vec<Entry>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        shardmill_core::lock(&self.queue)
    }

    fn step(&self, number: u64) -> u64 {
        self.kept.step(number * self.stride + self.worker)
    }

    /// Returns how many batches may be filled in advance, at most `most`.
    fn max(&self, max: u64) -> u64 {
        let bytes = self.batch_bytes.load(Ordering::Relaxed);
        max.min((QUEUE_BYTES / bytes.max(1)).max(2))
    }

    /// Cancels waits for shards.
    fn interrupt(&self) {
        self.cancel.set();
        if let Some(engine) = self.context.shard_cache.started() {
            engine.wake();
        }
    }

    fn fill(&self, collator: &mut Collator, claim: Claim) -> Result<Batch, Error> {
        let step = self.step(claim.number);
        let tick = self.tick + step;
        let batch = collator.fill((step, claim.number == 0), claim.entries, tick, &self.cancel)?;
        self.batch_bytes.store(batch.bytes(), Ordering::Relaxed);
        Ok(batch)
    }
}

impl Queue {
    /// Claims the next batch; `None` after the last one.
    fn claim(&mut self, shared: &Shared) -> Option<Claim> {
        if self.claimed >= shared.batches {
            return None;
        }
        let number = self.claimed;
        self.claimed += 1;
        self.ready.push_back(None);
        let entries = self.entries(shared, shared.step(number));
        Some(Claim { number, entries })
    }

    /// Returns the samples of a step.
    fn entries(&mut self, shared: &Shared, step: u64) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.cursor.read(step, &mut entries);
        shared.kept.replace(step, &mut entries);
        entries
    }

    /// Removes the batch that the caller has taken, and wakes waiting threads if there is enough space.
    fn taken(&mut self, shared: &Shared, max: u64) {
        self.ready.pop_front();
        self.next += 1;
        if self.idle > 0 && self.claimed - self.next <= max / 2 && self.claimed < shared.batches {
            shared.room.notify_all();
        }
    }

    fn put(&mut self, number: u64, batch: Result<Batch, Error>) {
        let index = number.checked_sub(self.next).map(usize::try_from);
        if let Some(Ok(index)) = index
            && let Some(slot) = self.ready.get_mut(index)
        {
            *slot = Some(batch);
        }
    }
}

impl Batches {
    pub(crate) fn new(
        context: Arc<FillContext>,
        prefetch_planner: Arc<PrefetchPlanner>,
        (kept, config, tick): (Kept, EpochConfig, u64),
        options: BatchOptions,
    ) -> Result<Self, Error> {
        let stride = config.world.workers_per_rank;
        if options.worker >= stride {
            return Err(outside_world("worker", options.worker, stride));
        }
        let batches = kept
            .steps()
            .saturating_sub(options.worker)
            .div_ceil(stride.max(1));
        let cursor = kept
            .epoch()
            .rank(options.rank)?
            .with_threads(options.threads);
        let collator = Collator::new(&context);
        Ok(Self {
            prefetch_planner,
            collator,
            shared: Arc::new(Shared {
                context,
                kept,
                tick,
                stride,
                worker: options.worker,
                batches,
                queue: Mutex::new(Queue {
                    cursor,
                    claimed: 0,
                    next: 0,
                    ready: VecDeque::new(),
                    waiting: false,
                    idle: 0,
                }),
                ready: Condvar::new(),
                room: Condvar::new(),
                cancel: Cancel::default(),
                lost: AtomicBool::new(false),
                batch_bytes: AtomicU64::new(0),
            }),
            threads: Vec::new(),
            options,
            config,
            stats: BatchStats::default(),
            over: false,
        })
    }

    /// Returns the order of the epoch.
    #[must_use]
    pub fn epoch(&self) -> &Epoch {
        self.shared.kept.epoch()
    }

    /// Returns the number of batches of this worker from the start of the epoch, or from where it is resumed.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.shared.batches
    }

    /// Returns whether there are no batches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the statistics so far.
    #[must_use]
    pub const fn stats(&self) -> BatchStats {
        self.stats
    }

    /// Returns the state from which a run can resume after the batches returned so far. It assumes that all workers of
    /// the rank have returned as many batches as this one.
    #[must_use]
    pub fn state(&self) -> State {
        let steps = self.stats.batches.saturating_mul(self.shared.stride);
        let kept = &self.shared.kept;
        kept.epoch().state_after(kept.passed(steps))
    }

    /// Returns the configuration of the next epoch. It is the same, with the values that a resumed state has set.
    #[must_use]
    pub fn next_config(&self) -> EpochConfig {
        let epoch = self.epoch();
        // Only a state records how many nodes the run began with.
        let next = epoch.state_after(epoch.batches());
        EpochConfig {
            epoch: next.epoch,
            num_canonical_nodes: next.num_canonical_nodes,
            shuffle: ShuffleOptions {
                seed: next.shuffle_seed,
                ..self.config.shuffle
            },
            resume: Some(next),
            ..self.config.clone()
        }
    }

    /// Returns the next batch, or `None` at the end of the epoch and after an error.
    ///
    /// # Errors
    ///
    /// Errors of fetching, opening or reading a shard.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        self.next(None)
    }

    fn next(&mut self, cancel: Option<GoOn<'_>>) -> Result<Option<Batch>, Error> {
        if self.over || self.stats.batches >= self.shared.batches {
            self.over = true;
            return Ok(None);
        }
        let ready = self.take_ready();
        let result = match ready {
            Some(result) => result,
            None => {
                let start = Instant::now();
                let step = self.shared.context.timings.start(Activity::Wait);
                let result = self.take_or_fill(cancel);
                drop(step);
                self.stats.wait(start.elapsed());
                result
            }
        };
        match result {
            Ok(batch) => {
                self.stats.batches += 1;
                self.stats.samples += batch.len() as u64;
                self.stats.bytes += batch.bytes();
                let shared = &self.shared;
                if let Some(engine) = shared.context.shard_cache.started() {
                    engine.move_to(shared.tick + batch.step + 1);
                }
                if self.stats.batches == 1 {
                    // Background work starts after the first batch, so that it does not delay it.
                    self.prefetch_planner
                        .prepare(self.next_config(), self.node());
                    self.start_threads()?;
                }
                Ok(Some(batch))
            }
            Err(error) => {
                self.over = true;
                self.stop();
                Err(error)
            }
        }
    }

    /// Like [`Self::next_batch`], but calls `cancel` about every 50 milliseconds while it waits for shards. If `cancel`
    /// returns false, the epoch ends with an error.
    ///
    /// # Errors
    ///
    /// `Interrupted` if `cancel` returns false; otherwise as [`Self::next_batch`].
    pub fn next_batch_while(
        &mut self,
        cancel: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Batch>, Error> {
        if !self.shared.context.catalog.is_cached() || self.is_at_hand() {
            return self.next(Some(cancel));
        }
        // A scoped thread fills the batch, which may wait for shards, while this thread calls `cancel`.
        let shared = Arc::clone(&self.shared);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            // A closed channel means that the result is no longer needed.
            let waiting = move || drop(sender.send(self.next_batch()));
            let spawned = std::thread::Builder::new()
                .name("shardmill-wait".to_owned())
                .spawn_scoped(scope, waiting);
            spawned.map_err(no_thread)?;
            loop {
                match receiver.recv_timeout(CHECK_EVERY) {
                    Ok(batch) => return batch,
                    Err(mpsc::RecvTimeoutError::Disconnected) => {
                        return Err(collator_lost());
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        if !cancel() {
                            shared.interrupt();
                        }
                    }
                }
            }
        })
    }

    /// Returns whether the next batch is ready, claimed by a thread, or made of open shards.
    fn is_at_hand(&self) -> bool {
        let mut queue = self.shared.lock();
        if queue.claimed > queue.next || queue.claimed >= self.shared.batches {
            return true;
        }
        let step = self.shared.step(queue.claimed);
        let entries = queue.entries(&self.shared, step);
        drop(queue);
        self.collator.has(&entries)
    }

    /// Returns the next batch if it is ready.
    fn take_ready(&mut self) -> Option<Result<Batch, Error>> {
        let shared = &self.shared;
        let mut queue = shared.lock();
        let batch = queue.ready.front_mut()?.take()?;
        queue.taken(shared, self.options.queue);
        drop(queue);
        self.collator.release_old();
        Some(batch)
    }

    /// Returns the next batch. Fills it on this thread if no thread has claimed it.
    fn take_or_fill(&mut self, mut cancel: Option<GoOn<'_>>) -> Result<Batch, Error> {
        let shared = Arc::clone(&self.shared);
        let mut queue = shared.lock();
        if queue.claimed == queue.next
            && let Some(claim) = queue.claim(&shared)
        {
            drop(queue);
            let batch = shared.fill(&mut self.collator, claim);
            shared.lock().taken(&shared, self.options.queue);
            return batch;
        }
        loop {
            if let Some(batch) = queue.ready.front_mut().and_then(Option::take) {
                queue.taken(&shared, self.options.queue);
                queue.waiting = false;
                return batch;
            }
            if shared.lost.load(Ordering::Acquire) {
                return Err(collator_lost());
            }
            queue.waiting = true;
            // No own deadline: the thread that fills the batch has one, and always stores a result.
            let (locked, wait) = shared
                .ready
                .wait_timeout(queue, CHECK_EVERY)
                .unwrap_or_else(PoisonError::into_inner);
            queue = locked;
            if wait.timed_out()
                && let Some(cancel) = cancel.as_mut()
            {
                // `cancel` may wait for a thread that waits for this lock.
                drop(queue);
                if !cancel() {
                    shared.interrupt();
                }
                queue = shared.lock();
            }
        }
    }

    fn node(&self) -> u64 {
        self.options.rank / self.config.world.ranks_per_node.max(1)
    }

    fn start_threads(&mut self) -> Result<(), Error> {
        for number in 0..self.options.threads {
            let shared = Arc::clone(&self.shared);
            let queue = self.options.queue.max(1);
            let thread = std::thread::Builder::new()
                .name(format!("shardmill-fill-{number}"))
                .spawn(move || work(&shared, queue))
                .map_err(no_thread)?;
            self.threads.push(thread);
        }
        if !self.threads.is_empty() {
            // From here on, threads fill the batches: the shards of the first batch must not stay pinned here.
            self.collator.release();
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.shared.interrupt();
        {
            // The lock ensures that no thread is between its check and its wait.
            let _queue = self.shared.lock();
            self.shared.room.notify_all();
        }
        for thread in self.threads.drain(..) {
            // A panic of the thread was already reported when it happened.
            let _ended = thread.join();
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Notifies the caller when a thread panics, so that it does not wait for the batches of that thread.
struct Alarm<'a>(&'a Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lost.store(true, Ordering::Release);
            // The lock ensures that the caller is not between its check and its wait.
            let _queue = self.0.lock();
            self.0.ready.notify_all();
        }
    }
}

/// Fills batches until there are no more, or the epoch is cancelled.
fn work(shared: &Shared, max: u64) {
    let _alarm = Alarm(shared);
    let mut collator = Collator::new(&shared.context);
    let mut claims = Vec::new();
    let mut filled = Vec::new();
    loop {
        {
            let mut queue = shared.lock();
            let room = loop {
                if shared.cancel.is_set() || queue.claimed >= shared.batches {
                    return;
                }
                let room = shared.max(max).saturating_sub(queue.claimed - queue.next);
                if room > 0 {
                    break room;
                }
                // Idle threads release their shards, so that those can be evicted.
                collator.release();
                queue.idle += 1;
                queue = shared
                    .room
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            };
            let bytes = shared.batch_bytes.load(Ordering::Relaxed);
            let group = (GROUP_BYTES / bytes.max(1)).clamp(1, MAX_GROUP);
            for _ in 0..group.min(room) {
                claims.extend(queue.claim(shared));
            }
        }
        let claimed = claims.len();
        for (index, claim) in claims.drain(..).enumerate() {
            let number = claim.number;
            let batch = shared.fill(&mut collator, claim);
            let failed = batch.is_err();
            filled.push((number, batch));
            let waiting = {
                let mut queue = shared.lock();
                // A caller that waits for this batch should not wait for the rest of the group.
                if queue.waiting || failed || index + 1 == claimed {
                    for (number, batch) in filled.drain(..) {
                        queue.put(number, batch);
                    }
                }
                queue.waiting
            };
            if waiting {
                shared.ready.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests;
