//! The pool that finishes shards: it lays them out, compresses, hashes and writes them, and publishes their files.
//!
//! Its threads come from the caller: each runs [`ShardPool::work`]. A thread picks its next job in this order:
//!
//! 1. publish a shard whose files are written, because that completes it;
//! 2. a step of a shard that is already cut, because finishing shards releases memory;
//! 3. a task of the client that produces shards.
//!
//! The number of threads that compute, and the number that wait for the disk or the store, are limited separately.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shardmill_core::{Error, lock};
use shardmill_mds::Content;

use crate::entry::IndexEntry;
use crate::error;
use crate::pack::CutShard;
use crate::shard::{FinishedShard, Outcome, Scratch, ShardKind, ShardWork, Step, Temps};

/// The interval at which a waiting caller checks whether to continue.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The source of the shards of a pool, and their destination.
pub(crate) trait PoolClient: Sync {
    /// A task that produces shards.
    type Task: Send;

    /// Picks a task. `unfinished` is the number of shards in the pool that use memory.
    fn pick(&self, unfinished: usize) -> NextTask<Self::Task>;

    /// Runs a task and returns the shards that became full.
    fn run(&self, task: Self::Task) -> Result<Vec<CutShard>, Error>;

    /// Returns the location of temporary files.
    fn temps(&self) -> Temps<'_>;

    /// Publishes the files of a shard. `cancel` returns whether to continue.
    fn publish(&self, shard: FinishedShard, cancel: &mut dyn FnMut() -> bool) -> Result<(), Error>;

    /// Returns whether the caller has cancelled the work.
    fn is_cancelled(&self) -> bool;

    /// Returns the number of samples so far, for the error of an interruption.
    fn samples(&self) -> u64;
}

/// The answer of a client that is asked for a task.
pub(crate) enum NextTask<T> {
    Task(T),
    /// Nothing can be done before another job of the pool is done.
    Wait,
    /// No more shards will come.
    End,
}

/// The limits of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolLimits {
    /// The number of threads that may compute at the same time.
    pub(crate) jobs: usize,
    /// The number of threads that may publish at the same time.
    pub(crate) publishers: usize,
    /// The number of shards that may be unfinished when [`ShardPool::accept`] adds another.
    pub(crate) max_unfinished: usize,
    /// The number of shards that may wait to be published when more are produced or added. They are in the page cache,
    /// so they use open files but no heap memory.
    pub(crate) max_waiting: usize,
    /// Whether shard 0 is published before all others.
    pub(crate) first_alone: bool,
}

/// Finishes shards.
pub(crate) struct ShardPool<C: PoolClient> {
    pub(crate) client: C,
    kind: ShardKind,
    pub(crate) limits: PoolLimits,
    state: Mutex<PoolState>,
    /// Signals every change of the state.
    changed: Condvar,
}

pub(crate) struct PoolState {
    steps: VecDeque<ShardJob>,
    /// Shards whose files are written but not yet published.
    finished: VecDeque<FinishedShard>,
    /// Buffers that computing threads reuse.
    scratches: Vec<Scratch>,
    /// The number of threads that have not ended.
    alive: usize,
    computing: usize,
    publishing: usize,
    /// The number of shards that are cut and not in `finished` yet.
    unfinished: usize,
    first_is_published: bool,
    /// Whether no more shards will come.
    closing: bool,
    /// Whether all work has stopped.
    stopped: bool,
    error: Option<Error>,
}

enum ShardJob {
    Lay(CutShard),
    Step(Arc<ShardWork>, Step),
}

enum Job<T> {
    Shard(ShardJob),
    Produce(T),
    Publish(FinishedShard),
}

/// The result of a job that computes.
enum Done {
    Cut(Vec<CutShard>),
    Steps(Arc<ShardWork>, Vec<Step>),
    Finished(Box<FinishedShard>),
}

impl PoolState {
    fn waiting(&self) -> usize {
        self.finished.len() + self.publishing
    }

    /// Returns whether all shards so far are published.
    pub(crate) fn is_settled(&self) -> bool {
        self.unfinished == 0 && self.computing == 0 && self.waiting() == 0
    }

    /// Returns whether no job is left or will come.
    pub(crate) fn is_over(&self) -> bool {
        self.stopped || self.closing && self.is_settled()
    }

    /// Returns whether no shard will be published any more, except those in the pool.
    pub(crate) fn is_closing(&self) -> bool {
        self.stopped || self.closing
    }

    /// Stops all work. Keeps the first error.
    fn fail(&mut self, error: Option<Error>) {
        if !self.stopped {
            self.error = error;
        }
        self.stopped = true;
        self.steps.clear();
        // Dropping the shards removes their temporary files.
        self.finished.clear();
    }

    fn check(&mut self) -> Result<(), Error> {
        match self.stopped {
            true => Err(self.error.take().unwrap_or_else(error::closed)),
            false => Ok(()),
        }
    }

    fn push(&mut self, cut: Vec<CutShard>) {
        self.unfinished += cut.len();
        self.steps.extend(cut.into_iter().map(ShardJob::Lay));
    }

    /// Returns the next shard to publish.
    ///
    /// INVARIANT: with `first_alone`, the first shard is published alone. Of two writers in one directory, only one can
    /// publish it. At that time the other writer has published nothing.
    fn next_to_publish(&mut self, limits: &PoolLimits) -> Option<FinishedShard> {
        if self.publishing == limits.publishers {
            return None;
        }
        if self.first_is_published || !limits.first_alone {
            return self.finished.pop_front();
        }
        let mut finished = self.finished.iter();
        let first = finished.position(|shard| shard.span.shard == 0)?;
        self.finished.remove(first)
    }

    fn take(&mut self, done: Done) {
        if self.stopped {
            return;
        }
        match done {
            Done::Cut(cut) => self.push(cut),
            Done::Steps(work, steps) => {
                // These steps run before waiting shards, because they release memory.
                for step in steps.into_iter().rev() {
                    let work = Arc::clone(&work);
                    self.steps.push_front(ShardJob::Step(work, step));
                }
            }
            Done::Finished(shard) => {
                self.unfinished -= 1;
                self.finished.push_back(*shard);
            }
        }
    }
}

impl<C: PoolClient> ShardPool<C> {
    pub(crate) fn new(client: C, kind: ShardKind, limits: PoolLimits) -> Self {
        Self {
            client,
            kind,
            limits,
            state: Mutex::new(PoolState {
                steps: VecDeque::new(),
                finished: VecDeque::new(),
                scratches: Vec::new(),
                alive: 0,
                computing: 0,
                publishing: 0,
                unfinished: 0,
                first_is_published: false,
                closing: false,
                stopped: false,
                error: None,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        lock(&self.state)
    }

    fn interrupted(&self) -> Error {
        error::interrupted(self.client.samples())
    }

    /// Adds shards at once.
    pub(crate) fn push(&self, cut: Vec<CutShard>) {
        self.lock().push(cut);
    }

    /// Adds a shard; waits until there is space for it.
    pub(crate) fn accept(
        &self,
        shard: CutShard,
        cancel: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        let limits = self.limits;
        let mut state = self.wait(cancel, |state| {
            state.unfinished < limits.max_unfinished && state.waiting() < limits.max_waiting
        })?;
        state.push(vec![shard]);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until the state is as wanted, or returns the error of the pool. Calls `cancel` regularly.
    pub(crate) fn wait(
        &self,
        cancel: &mut dyn FnMut() -> bool,
        is_reached: impl Fn(&PoolState) -> bool,
    ) -> Result<MutexGuard<'_, PoolState>, Error> {
        let mut checked = Instant::now();
        let mut state = self.lock();
        loop {
            state.check()?;
            if is_reached(&state) {
                return Ok(state);
            }
            let rest = CHECK_INTERVAL.saturating_sub(checked.elapsed());
            (state, _) = self
                .changed
                .wait_timeout(state, rest)
                .unwrap_or_else(PoisonError::into_inner);
            if checked.elapsed() < CHECK_INTERVAL {
                continue;
            }
            // The callback may take locks of its own.
            drop(state);
            let stay = cancel();
            checked = Instant::now();
            state = self.lock();
            if !stay {
                state.fail(Some(self.interrupted()));
                self.changed.notify_all();
            }
        }
    }

    /// Waits until `next` returns a value, without a timeout.
    pub(crate) fn wait_for<T>(&self, mut next: impl FnMut(&PoolState) -> Option<T>) -> T {
        let mut state = self.lock();
        loop {
            if let Some(value) = next(&state) {
                return value;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Declares that no more shards will come. With `discard`, shards that are not published yet are discarded.
    pub(crate) fn close(&self, discard: bool) {
        let mut state = self.lock();
        state.closing = true;
        if discard {
            state.fail(None);
        }
        self.changed.notify_all();
    }

    /// Counts a thread that is about to run [`work`](Self::work).
    pub(crate) fn add_thread(&self) {
        self.lock().alive += 1;
    }

    /// Takes back [`add_thread`](Self::add_thread).
    pub(crate) fn remove_thread(&self) {
        let mut state = self.lock();
        state.alive = state.alive.saturating_sub(1);
    }

    /// Waits for the end of all threads. Returns whether they have ended in time.
    pub(crate) fn wait_for_threads(&self, timeout: Duration) -> bool {
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), timeout, |state| state.alive > 0)
            .unwrap_or_else(PoisonError::into_inner);
        state.alive == 0
    }

    /// Runs a thread of the pool. Returns the time at which it finished its last computation.
    pub(crate) fn work(&self) -> Instant {
        let _alarm = Alarm(self);
        let mut last = Instant::now();
        let mut state = self.lock();
        while !state.is_over() {
            if self.client.is_cancelled() {
                state.fail(Some(self.interrupted()));
                break;
            }
            let Some(job) = self.pick(&mut state) else {
                if !state.is_over() {
                    state = self
                        .changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                continue;
            };
            let outcome = if let Job::Publish(shard) = job {
                state.publishing += 1;
                drop(state);
                let cancel = &mut || !self.client.is_cancelled() && !self.lock().stopped;
                let outcome = self.client.publish(shard, cancel);
                state = self.lock();
                state.publishing -= 1;
                state.first_is_published = true;
                outcome.map_err(|error| match self.client.is_cancelled() {
                    true => self.interrupted(),
                    false => error,
                })
            } else {
                state.computing += 1;
                let mut scratch = state.scratches.pop().unwrap_or_default();
                drop(state);
                let outcome = self.compute(job, &mut scratch);
                last = Instant::now();
                state = self.lock();
                state.computing -= 1;
                state.scratches.push(scratch);
                outcome.map(|done| state.take(done))
            };
            if let Err(error) = outcome {
                state.fail(Some(error));
            }
            self.changed.notify_all();
        }
        last
    }

    fn pick(&self, state: &mut PoolState) -> Option<Job<C::Task>> {
        if let Some(shard) = state.next_to_publish(&self.limits) {
            return Some(Job::Publish(shard));
        }
        if state.computing == self.limits.jobs {
            return None;
        }
        if let Some(job) = state.steps.pop_front() {
            return Some(Job::Shard(job));
        }
        if state.closing || state.waiting() >= self.limits.max_waiting {
            return None;
        }
        match self.client.pick(state.unfinished) {
            NextTask::Task(task) => Some(Job::Produce(task)),
            NextTask::Wait => None,
            NextTask::End => {
                state.closing = true;
                self.changed.notify_all();
                None
            }
        }
    }

    fn compute(&self, job: Job<C::Task>, scratch: &mut Scratch) -> Result<Done, Error> {
        Ok(match job {
            Job::Publish(_) => Done::Cut(Vec::new()),
            Job::Produce(task) => Done::Cut(self.client.run(task)?),
            Job::Shard(ShardJob::Lay(shard)) => {
                let (work, steps) = ShardWork::new(shard, &self.kind)?;
                Done::Steps(work, steps)
            }
            Job::Shard(ShardJob::Step(work, step)) => {
                match work.run(&step, &self.kind, self.client.temps(), scratch)? {
                    Outcome::Steps(steps) => Done::Steps(work, steps),
                    Outcome::Finished(shard) => Done::Finished(shard),
                }
            }
        })
    }
}

impl<C: PoolClient> fmt::Debug for ShardPool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardPool").finish_non_exhaustive()
    }
}

/// Counts the end of a thread. If the thread panicked, stops all others, which would wait forever for its work.
struct Alarm<'a, C: PoolClient>(&'a ShardPool<C>);

impl<C: PoolClient> Drop for Alarm<'_, C> {
    fn drop(&mut self) {
        self.0.remove_thread();
        if std::thread::panicking() {
            let bug = error::internal("a worker thread panicked");
            self.0.lock().fail(Some(bug));
        }
        self.0.changed.notify_all();
    }
}

/// The index entries of finished shards, by split and number.
#[derive(Debug, Default)]
pub(crate) struct Entries(Mutex<BTreeMap<(usize, u64), (IndexEntry, Content)>>);

impl Entries {
    /// Adds a shard, by its split and number.
    pub(crate) fn add(&self, shard: (usize, u64), entry: IndexEntry, content: Content) {
        let mut entries = lock(&self.0);
        entries.insert(shard, (entry, content));
    }

    /// Returns the entries of a split, whose first shard has the number `first`.
    pub(crate) fn of_split(
        &self,
        split: usize,
        first: u64,
    ) -> Result<Vec<(IndexEntry, Content)>, Error> {
        let entries = lock(&self.0);
        let of_split = entries.range((split, 0)..=(split, u64::MAX));
        // INVARIANT: shard numbers have no gap.
        if !(first..)
            .zip(of_split.clone())
            .all(|(at, (key, _))| key.1 == at)
        {
            return Err(error::internal("a shard is missing from the index"));
        }
        Ok(of_split.map(|(_, entry)| entry.clone()).collect())
    }

    pub(crate) fn samples(&self) -> u64 {
        let entries = lock(&self.0);
        entries.values().map(|(entry, _)| entry.samples()).sum()
    }
}
