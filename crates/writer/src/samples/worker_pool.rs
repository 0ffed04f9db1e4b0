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

/// Threads that may wait for the disk at the same time. Four files reach it in the time of one: file systems write what
/// several threads wait for in one go.
const PUBLISHERS: usize = 4;

/// Shards that may wait for the disk. They are in the page cache, so they take open files and no memory of ours.
const WAITING_SHARDS: usize = 16;

/// How often somebody who waits is asked whether to go on.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long whoever stops waits for the steps that threads are at. A thread that takes longer, in a slow compression,
/// ends by itself and leaves no file either.
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
    /// There is something to do, or nothing more will come.
    work: Condvar,
    /// Something was done.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    tasks: VecDeque<Task>,
    /// Shards whose files are written and have no names yet.
    finished: VecDeque<FinishedShard>,
    /// What threads that compute keep between tasks.
    scratches: Vec<Scratch>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that have not ended.
    alive: usize,
    idle: usize,
    computing: usize,
    publishing: usize,
    /// Shards that were handed over and are not in `finished` yet.
    unfinished: usize,
    /// No shard will be handed over any more.
    closing: bool,
    /// Nothing is to be done any more.
    stopped: bool,
    error: Option<WriteError>,
    entries: BTreeMap<u64, ShardEntry>,
    /// The first shard has its name: no other writer can publish any here.
    first_is_published: bool,
    /// Names of published files that nobody has asked for.
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
    /// Shards that wait for the disk.
    fn waiting(&self) -> usize {
        self.finished.len() + self.publishing
    }

    /// INVARIANT: the first shard goes alone. Of two writers in one folder only one can publish it, and the other one has
    /// left nothing in the way by then.
    fn next_to_publish(&mut self) -> Option<FinishedShard> {
        if self.first_is_published {
            return self.finished.pop_front();
        }
        let first = self.finished.iter().position(|shard| shard.shard == 0)?;
        self.finished.remove(first)
    }

    fn is_settled(&self) -> bool {
        self.unfinished == 0 && self.waiting() == 0
    }

    /// Stops everything; the first error stays.
    fn fail(&mut self, error: Option<WriteError>) {
        if !self.stopped {
            self.error = error;
        }
        self.stopped = true;
        self.tasks.clear();
        // Their temporary files vanish with them.
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
    /// A crew of `jobs` threads, without those that wait for the disk.
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

    /// Takes a shard, as soon as there is room for it.
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

    /// Waits until all shards are published, and gives their entries.
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

    /// As [`Self::settled`], and lets the threads go.
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

    /// Discards what is not published, and lets the threads go.
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
                // A thread that panicked has left an error.
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

/// The files of a dataset that is being written.
#[derive(Debug)]
pub struct PublishedFiles(Arc<Shared>);

impl PublishedFiles {
    /// The names of files that have been published since the last call, at least one; a file of data stands before its
    /// file of offsets. Waits for them. `None` when there will be no more.
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

/// Tells of the end of a thread, and stops all others when it panics: they would wait for its work for ever.
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
                // It may take locks of its own.
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

    /// Sees to it that somebody does what there is to do.
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
                // Fewer threads do the same.
                Err(_) if !state.threads.is_empty() => return,
                Err(source) => state.fail(Some(WriteError::Thread { source })),
            }
        }
    }

    /// The life of a thread.
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

    /// Publishing first: it is the end of a chain.
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
                // Ahead of the shards that wait: it frees memory.
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
            // What another writer has given a name to is not ours to replace: its index may be there already.
            temp.publish_pending_first(&name, self.durable)?;
            names.push(name);
        }
        let entry = shard.entry.into_streaming().ok_or(WriteError::Bug {
            what: "a shard of another form",
        })?;
        Ok((shard.shard, entry, names))
    }
}

enum Next {
    Nothing,
    Steps(Arc<ShardWork>, Vec<Step>),
    Finished(Box<FinishedShard>),
}
