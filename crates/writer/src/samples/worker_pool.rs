//! The threads that finish and publish shards.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use shardmill_mds::ShardEntry;
use shardmill_storage::Dir;

use crate::error::WriteError;
use crate::pack::CutShard;
use crate::shard::{FinishedShard, Outcome, Scratch, ShardKind, ShardWork, Step, Temps};

/// The number of threads that may wait for the disk at the same time. File systems combine concurrent syncs, so four
/// files take about the time of one.
const PUBLISHERS: usize = 4;

/// The maximum number of shards that wait for the disk. They are in the page cache, so they use open files but no heap
/// memory.
const WAITING_SHARDS: usize = 16;

/// The interval at which a waiting caller checks whether to continue.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a stop waits for the current step of each thread. A thread that takes longer, for example in a slow
/// compression, ends by itself and leaves no file.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct WorkerPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    dir: Dir,
    kind: ShardKind,
    jobs: usize,
    most_unfinished: usize,
    durable: bool,
    state: Mutex<State>,
    /// Signals that there is a task, or that no more tasks will come.
    work: Condvar,
    /// Signals that a task is done.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    tasks: VecDeque<Task>,
    /// Shards whose files are written but not yet published.
    finished: VecDeque<FinishedShard>,
    /// Scratch buffers that compute threads reuse between tasks.
    scratches: Vec<Scratch>,
    threads: Vec<JoinHandle<()>>,
    /// The number of threads that have not ended.
    alive: usize,
    idle: usize,
    computing: usize,
    publishing: usize,
    /// The number of shards that were handed over and are not in `finished` yet.
    unfinished: usize,
    /// Whether no more shards will be handed over.
    closing: bool,
    /// Whether all work has stopped.
    stopped: bool,
    error: Option<WriteError>,
    entries: BTreeMap<u64, ShardEntry>,
    /// Whether the first shard is published. If so, no other writer can publish shards in this directory.
    first_is_published: bool,
    /// The names of published files that [`PublishedFiles::next`] has not returned yet.
    names: VecDeque<String>,
}

#[derive(Debug)]
enum Task {
    Lay(CutShard),
    Step(Arc<ShardWork>, Step),
}

enum Job {
    Compute(Task),
    Publish(FinishedShard),
}

impl State {
    /// Returns the number of shards that wait for the disk.
    fn waiting(&self) -> usize {
        self.finished.len() + self.publishing
    }

    /// Returns the next shard to publish.
    ///
    /// INVARIANT: the first shard is published alone. Of two writers in one directory, only one can publish it. At that
    /// time the other writer has published nothing.
    fn next_to_publish(&mut self) -> Option<FinishedShard> {
        if self.first_is_published {
            return self.finished.pop_front();
        }
        let first = self
            .finished
            .iter()
            .position(|shard| shard.span.shard == 0)?;
        self.finished.remove(first)
    }

    fn is_settled(&self) -> bool {
        self.unfinished == 0 && self.waiting() == 0
    }

    /// Stops all work. Keeps the first error.
    fn fail(&mut self, error: Option<WriteError>) {
        if !self.stopped {
            self.error = error;
        }
        self.stopped = true;
        self.tasks.clear();
        // Dropping the shards removes their temporary files.
        self.finished.clear();
    }

    fn check(&mut self) -> Result<(), WriteError> {
        if self.stopped {
            return Err(self.error.take().unwrap_or(WriteError::Closed));
        }
        Ok(())
    }
}

impl WorkerPool {
    /// Creates a pool of `jobs` compute threads. Threads that wait for the disk are not counted.
    pub(super) fn new(
        dir: Dir,
        kind: ShardKind,
        jobs: usize,
        most_unfinished: usize,
        durable: bool,
    ) -> Self {
        Self(Arc::new(Shared {
            dir,
            kind,
            jobs,
            most_unfinished,
            durable,
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
        }))
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.0.dir
    }

    pub(super) fn durable(&self) -> bool {
        self.0.durable
    }

    pub(super) fn published(&self) -> PublishedFiles {
        PublishedFiles(Arc::clone(&self.0))
    }

    /// Accepts a shard; waits until there is space for it.
    pub(super) fn finish(
        &self,
        shard: CutShard,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), WriteError> {
        let shared = &self.0;
        let mut state = shared.wait_until(go_on, |state| {
            state.unfinished < shared.most_unfinished && state.waiting() < WAITING_SHARDS
        })?;
        state.unfinished += 1;
        state.tasks.push_back(Task::Lay(shard));
        shared.call(&mut state);
        state.check()
    }

    /// Waits until all shards are published, and returns their entries.
    pub(super) fn settled(
        &self,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<ShardEntry>, WriteError> {
        let state = self.0.wait_until(go_on, State::is_settled)?;
        // INVARIANT: shards are numbered from 0 without a gap.
        let complete = state
            .entries
            .keys()
            .enumerate()
            .all(|(at, shard)| u64::try_from(at) == Ok(*shard));
        if !complete {
            return Err(WriteError::Bug {
                what: "a shard is missing from the index",
            });
        }
        Ok(state.entries.values().cloned().collect())
    }

    /// Waits like [`Self::settled`], then ends the threads.
    pub(super) fn end(
        &self,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<ShardEntry>, WriteError> {
        let entries = self.settled(go_on);
        match &entries {
            Ok(_) => self.close(),
            Err(_) => self.stop(),
        }
        entries
    }

    /// Discards unpublished shards and ends the threads.
    pub(super) fn stop(&self) {
        self.0.lock().fail(None);
        self.close();
    }

    fn close(&self) {
        let shared = &self.0;
        let mut state = shared.lock();
        state.closing = true;
        shared.work.notify_all();
        shared.done.notify_all();
        let (mut state, _) = shared
            .done
            .wait_timeout_while(state, FAREWELL, |state| state.alive > 0)
            .unwrap_or_else(PoisonError::into_inner);
        let threads = std::mem::take(&mut state.threads);
        let all_ended = state.alive == 0;
        drop(state);
        if all_ended {
            for thread in threads {
                // A thread that panicked has stored an error.
                let _ = thread.join();
            }
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The published files of a dataset that is being written.
#[derive(Debug)]
pub struct PublishedFiles(Arc<Shared>);

impl PublishedFiles {
    /// Waits for published files and returns their names, at least one. Returns `None` if no more files will follow.
    ///
    /// Each call returns the files since the previous call. A data file precedes its meta file.
    #[must_use]
    pub fn next(&self) -> Option<Vec<String>> {
        let mut state = self.0.lock();
        loop {
            if !state.names.is_empty() {
                return Some(state.names.drain(..).collect());
            }
            if state.closing || state.stopped {
                return None;
            }
            state = self
                .0
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Counts the end of a thread. If the thread panicked, stops all others, which would wait forever for its work.
struct Alarm<'a>(&'a Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.alive = state.alive.saturating_sub(1);
        if std::thread::panicking() {
            state.fail(Some(WriteError::Bug {
                what: "a worker thread panicked",
            }));
        }
        drop(state);
        self.0.work.notify_all();
        self.0.done.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(
        &self,
        go_on: &mut dyn FnMut() -> bool,
        is_reached: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'_, State>, WriteError> {
        let mut state = self.lock();
        loop {
            state.check()?;
            if is_reached(&state) {
                return Ok(state);
            }
            let (guard, time_out) = self
                .done
                .wait_timeout(state, PATIENCE)
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if time_out.timed_out() {
                // The callback may take locks of its own.
                drop(state);
                let stay = go_on();
                state = self.lock();
                if !stay {
                    let samples = state.entries.values().map(|entry| entry.samples).sum();
                    state.fail(Some(WriteError::Interrupted { samples }));
                    self.work.notify_all();
                }
            }
        }
    }

    /// Wakes or starts enough threads for the available tasks.
    fn call(self: &Arc<Self>, state: &mut State) {
        let tasks = state
            .tasks
            .len()
            .min(self.jobs.saturating_sub(state.computing));
        let shards = state
            .finished
            .len()
            .min(PUBLISHERS.saturating_sub(state.publishing));
        self.work.notify_all();
        let most = self.jobs + PUBLISHERS;
        let missing = (tasks + shards).saturating_sub(state.idle);
        for _ in 0..missing.min(most.saturating_sub(state.threads.len())) {
            let shared = Arc::clone(self);
            let builder = std::thread::Builder::new().name("shardmill-write".to_owned());
            match builder.spawn(move || shared.work()) {
                Ok(thread) => {
                    state.threads.push(thread);
                    state.alive += 1;
                }
                // Existing threads can do the work.
                Err(_) if !state.threads.is_empty() => return,
                Err(source) => state.fail(Some(WriteError::Thread { source })),
            }
        }
    }

    /// Runs a thread of the pool.
    fn work(self: &Arc<Self>) {
        let _alarm = Alarm(self);
        let mut state = self.lock();
        while !state.stopped {
            let outcome = match self.pick(&mut state) {
                Some(Job::Compute(task)) => {
                    state.computing += 1;
                    let mut scratch = state.scratches.pop().unwrap_or_default();
                    drop(state);
                    let outcome = self.compute(task, &mut scratch);
                    state = self.lock();
                    state.computing -= 1;
                    state.scratches.push(scratch);
                    outcome.map(|next| self.take(&mut state, next))
                }
                Some(Job::Publish(shard)) => {
                    state.publishing += 1;
                    drop(state);
                    let outcome = self.publish(shard);
                    state = self.lock();
                    state.publishing -= 1;
                    outcome.map(|(shard, entry, names)| {
                        state.first_is_published = true;
                        state.entries.insert(shard, entry);
                        state.names.extend(names);
                    })
                }
                None if state.closing && state.is_settled() => break,
                None => {
                    state.idle += 1;
                    state = self
                        .work
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                    state.idle -= 1;
                    continue;
                }
            };
            if let Err(error) = outcome {
                state.fail(Some(error));
            }
            self.call(&mut state);
            self.done.notify_all();
        }
    }

    /// Picks the next task. Publishing comes first, because it completes a shard.
    fn pick(&self, state: &mut State) -> Option<Job> {
        if state.publishing < PUBLISHERS
            && let Some(shard) = state.next_to_publish()
        {
            return Some(Job::Publish(shard));
        }
        if state.computing < self.jobs {
            return state.tasks.pop_front().map(Job::Compute);
        }
        None
    }

    fn compute(&self, task: Task, scratch: &mut Scratch) -> Result<Next, WriteError> {
        match task {
            Task::Lay(shard) => {
                let (work, steps) = ShardWork::new(shard, &self.kind)?;
                Ok(Next::Steps(work, steps))
            }
            Task::Step(work, step) => {
                match work.run(&step, &self.kind, Temps::Dir(&self.dir), scratch)? {
                    Outcome::Nothing => Ok(Next::Nothing),
                    Outcome::Next(step) => Ok(Next::Steps(work, vec![step])),
                    Outcome::Finished(shard) => Ok(Next::Finished(shard)),
                }
            }
        }
    }

    fn take(&self, state: &mut State, next: Next) {
        if state.stopped {
            return;
        }
        match next {
            Next::Nothing => {}
            Next::Steps(work, steps) => {
                // These steps run before waiting shards, because they release memory.
                for step in steps.into_iter().rev() {
                    state.tasks.push_front(Task::Step(Arc::clone(&work), step));
                }
            }
            Next::Finished(shard) => {
                state.unfinished = state.unfinished.saturating_sub(1);
                state.finished.push_back(*shard);
            }
        }
    }

    fn publish(&self, shard: FinishedShard) -> Result<(u64, ShardEntry, Vec<String>), WriteError> {
        let mut names = Vec::with_capacity(shard.files.len());
        for (name, temp) in shard.files {
            // A file of another writer must not be replaced: its index may already exist.
            temp.publish_pending_first(&name, self.durable)?;
            names.push(name);
        }
        let entry = shard.entry.into_streaming().ok_or(WriteError::Bug {
            what: "a shard of another form",
        })?;
        Ok((shard.span.shard, entry, names))
    }
}

enum Next {
    Nothing,
    Steps(Arc<ShardWork>, Vec<Step>),
    Finished(Box<FinishedShard>),
}
