//! The conversion pipeline: it decodes and encodes in parallel, cuts in order, finishes shards in parallel and
//! publishes them.
//!
//! One pool of threads does all computation. A thread picks its next task in this order:
//!
//! 1. a step of a shard that is already cut, because finishing shards releases memory;
//! 2. the next batch of the unit whose samples are packed next;
//! 3. a batch of a later unit, if the memory budget allows it.
//!
//! The result does not depend on which thread ran which task: units are packed in order, and shards have numbers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shardmill_core::Progress;
use shardmill_storage::{FileVersion, GoOn, Place, PublishMode, StorageError};

use crate::chunk::{BufferPool, Chunk, Origin};
use crate::content::{DedupIndex, UnitSamples};
use crate::entry::{DatasetIndex, IndexEntry};
use crate::error::WriteError;
use crate::form::ShardForm;
use crate::index::beneath;
use crate::input::{Batches, Input};
use crate::pack::{CutShard, Keys, Packer, Position, ShardSpan};
use crate::rows::RowEncoder;
use crate::shard::{FileCheck, FinishedShard, Outcome, Scratch, ShardKind, ShardWork, Step, Temps};
use shardmill_mds::Content;

/// Where shards are written, and their form.
pub struct Output<'a> {
    /// The root of the dataset.
    pub place: &'a Place,
    /// The folder for temporary files in the root, if the root is a local directory.
    pub temp_folder: &'a str,
    /// The directories of the datasets to write, relative to the root; `""` is the root itself.
    pub splits: &'a [String],
    /// The form of the shards.
    pub form: ShardForm,
    /// The maximum number of samples in a shard, in addition to the size limit of the form.
    pub samples_per_shard: Option<u64>,
    /// Maps a file name to its path, if files do not belong in the directory of their dataset.
    pub at: Option<&'a (dyn Fn(&str) -> String + Sync)>,
    /// The prefix of numeric keys of tar samples.
    pub key_prefix: &'a str,
}

/// The resources that the pipeline may use.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    /// The number of threads that compute.
    pub jobs: usize,
    /// The maximum size of the encoded samples in memory, in bytes. One shard is always allowed.
    pub budget_bytes: u64,
}

/// The record of published shards: those of an interrupted earlier run, and those of this run.
pub trait Checkpoint: Sync {
    /// Returns a shard that an earlier run published and that has just been checked, together with its content.
    fn reusable(&self, split: usize, shard: u64) -> Option<(&IndexEntry, Content)>;

    /// Returns the shard number and the input position at which to resume. All shards before it must be reusable.
    ///
    /// Called only for a single split.
    fn resume_at(&self) -> Option<(u64, Position)>;

    /// Records a published shard.
    ///
    /// # Errors
    ///
    /// Returns an error if the record cannot be written.
    fn published(&self, shard: &Published<'_>, go_on: &mut GoOn<'_>) -> Result<(), StorageError>;
}

/// A published shard.
#[derive(Debug)]
pub struct Published<'a> {
    /// The split.
    pub split: usize,
    /// The shard's number.
    pub shard: u64,
    /// The input position of its first sample.
    pub start: Position,
    /// Its entry in the index.
    pub entry: &'a IndexEntry,
    /// The content of its samples.
    pub content: Content,
    /// Its files.
    pub checks: &'a [FileCheck],
    /// The versions of the files that the storage reported, in the same order.
    pub file_versions: &'a [FileVersion],
}

/// The existing dataset that a run adds to.
#[derive(Debug, Default)]
pub struct Base {
    /// The number of existing shards. New shards are numbered after them.
    pub shards: u64,
    /// The number of existing samples.
    pub samples: u64,
    /// The existing samples to match by content. Samples that match are not added again.
    pub dedup_index: Option<DedupIndex>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Written {
    /// The index of the new shards of each split, not yet published. Existing shards are not included.
    pub indexes: Vec<DatasetIndex>,
    /// The content of the samples in each index.
    pub contents: Vec<Content>,
    /// For each split, what happened to the samples of each unit that was read.
    pub units: Vec<BTreeMap<usize, UnitSamples>>,
    /// The dedup index of [`Base`], with all matches marked.
    pub dedup_index: Option<DedupIndex>,
    /// The number of shards reused from an earlier run, in all splits.
    pub reused: u64,
    /// The number of dropped rows.
    pub dropped: u64,
    /// The core seconds between the last task of each thread and the end of the run.
    pub idle: Duration,
}

/// Runs the pipeline to the end. Shards are published when they are complete. The caller publishes the indexes.
///
/// # Errors
///
/// Returns the error of the earliest unit that failed, or the first error of a shard. No partial file keeps a final
/// name.
pub fn run<I: Input>(
    input: &I,
    encoder: &RowEncoder,
    output: &Output<'_>,
    base: Base,
    resources: Resources,
    checkpoint: &dyn Checkpoint,
    progress: &Progress,
) -> Result<Written, I::Error> {
    let jobs = resources.jobs.max(1);
    let resume = (output.splits.len() == 1)
        .then(|| checkpoint.resume_at())
        .flatten();
    let start = resume.map_or(Position::default(), |(_, position)| position);
    let first_shard = resume.map_or(base.shards, |(shard, _)| shard);
    let before = (base.shards..first_shard).filter_map(|shard| checkpoint.reusable(0, shard));
    let first_sample = base.samples + before.map(|(entry, _)| entry.samples()).sum::<u64>();
    let mut dedup_index = base.dedup_index;
    let engine = Engine {
        input,
        encoder,
        output,
        kind: ShardKind::resumable(output.form.clone()),
        pool: BufferPool::new(jobs * 8),
        checkpoint,
        progress,
        start,
        first_shard: base.shards,
        budget_bytes: resources.budget_bytes,
        jobs,
        state: Mutex::new(State {
            head: start.unit,
            next_open: start.unit,
            slots: BTreeMap::new(),
            ahead_bytes: 0,
            packers: (0..output.splits.len())
                .map(|split| {
                    let mut packer = Packer::new(
                        split,
                        &output.form,
                        output.samples_per_shard,
                        first_shard,
                        Keys::new(encoder.keys(), output.key_prefix, first_sample),
                    );
                    packer.add_to(first_sample, dedup_index.take());
                    packer
                })
                .collect(),
            steps: VecDeque::new(),
            unfinished: 0,
            busy: 0,
            packed: false,
            error: None,
            reused: 0,
            dropped: 0,
            samples: 0,
        }),
        wake: Condvar::new(),
        entries: output.splits.iter().map(|_| Mutex::default()).collect(),
    };
    // Shards before the resume position have been checked and are kept.
    for shard in base.shards..first_shard {
        if let Some((entry, content)) = checkpoint.reusable(0, shard) {
            progress.add_shard(entry.stored_bytes());
            progress.add_samples(entry.samples());
            engine.keep(0, shard, entry.clone(), content);
            engine.lock().reused += 1;
        }
    }
    let (sender, receiver) = sync_channel::<FinishedShard>(jobs * 2);
    let receiver = Arc::new(Mutex::new(receiver));
    let ends: Vec<Instant> = std::thread::scope(|scope| {
        let engine = &engine;
        let publishers: Vec<_> = (0..output.place.publishers().max(1))
            .map(|_| {
                let receiver = Arc::clone(&receiver);
                scope.spawn(move || engine.publish(&receiver))
            })
            .collect();
        // INVARIANT: only publishers own the receiver, and the last one drops it, even in a panic. Otherwise workers
        // could wait forever for space in the channel.
        drop(receiver);
        let workers: Vec<_> = (0..jobs)
            .map(|_| {
                let sender = sender.clone();
                scope.spawn(move || engine.work(sender))
            })
            .collect();
        drop(sender);
        let ends = workers
            .into_iter()
            .filter_map(|worker| worker.join().ok())
            .collect();
        // Publishers end when the last worker has dropped its sender.
        for publisher in publishers {
            let _ = publisher.join();
        }
        ends
    });
    let now = Instant::now();
    let idle = ends
        .iter()
        .map(|end| now.saturating_duration_since(*end))
        .sum();
    if ends.len() < jobs {
        return Err(WriteError::Bug {
            what: "a worker thread ended early",
        }
        .into());
    }
    engine.written(idle)
}

/// Stops all threads if one of them panics. The others would wait forever for its work.
struct Alarm<'a, 'b, I: Input>(&'a Engine<'b, I>);

impl<I: Input> Drop for Alarm<'_, '_, I> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let bug = WriteError::Bug {
                what: "a worker thread panicked",
            };
            self.0.lock().error.get_or_insert(bug.into());
            self.0.wake.notify_all();
        }
    }
}

/// A unit that is being read.
struct Slot<E> {
    /// `None` while a thread reads from it.
    batches: Option<Box<dyn Batches<Error = E>>>,
    /// The number of samples that the unit has produced for each split so far.
    given: Vec<u64>,
    /// Encoded chunks that wait until earlier units are packed.
    queue: VecDeque<Chunk>,
    done: bool,
    error: Option<E>,
}

struct State<E> {
    /// The unit that is being packed.
    head: usize,
    next_open: usize,
    slots: BTreeMap<usize, Slot<E>>,
    /// The encoded bytes of the units after the head.
    ahead_bytes: u64,
    packers: Vec<Packer>,
    steps: VecDeque<(Arc<ShardWork>, Step)>,
    /// The number of shards that are cut but not yet finished.
    unfinished: usize,
    /// The number of threads that run a task.
    busy: usize,
    packed: bool,
    error: Option<E>,
    reused: u64,
    dropped: u64,
    samples: u64,
}

enum Job<E> {
    Step(Arc<ShardWork>, Step),
    Open(usize),
    Read(usize, Box<dyn Batches<Error = E>>, Vec<u64>),
}

struct Engine<'a, I: Input> {
    input: &'a I,
    encoder: &'a RowEncoder,
    output: &'a Output<'a>,
    kind: ShardKind,
    pool: Arc<BufferPool>,
    checkpoint: &'a dyn Checkpoint,
    progress: &'a Progress,
    start: Position,
    /// The number of the first new shard.
    first_shard: u64,
    budget_bytes: u64,
    jobs: usize,
    state: Mutex<State<I::Error>>,
    wake: Condvar,
    entries: Vec<Mutex<BTreeMap<u64, (IndexEntry, Content)>>>,
}

impl<I: Input> Engine<'_, I> {
    fn lock(&self) -> MutexGuard<'_, State<I::Error>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a worker thread. Returns the time at which it finished its last task.
    fn work(&self, sender: SyncSender<FinishedShard>) -> Instant {
        let _alarm = Alarm(self);
        let mut scratch = Scratch::default();
        let mut last = Instant::now();
        let mut state = self.lock();
        loop {
            if self.progress.is_cancelled() && state.error.is_none() {
                let samples = state.samples;
                state.error = Some(WriteError::Interrupted { samples }.into());
            }
            if state.error.is_some() {
                break;
            }
            match self.pick(&mut state) {
                Some(job) => {
                    state.busy += 1;
                    drop(state);
                    let outcome = self.perform(job, &sender, &mut scratch);
                    last = Instant::now();
                    state = self.lock();
                    state.busy -= 1;
                    if let Err(error) = outcome {
                        state.error.get_or_insert(error);
                    }
                    self.wake.notify_all();
                }
                None if state.packed && state.steps.is_empty() && state.busy == 0 => break,
                None => {
                    // Cancellation does not notify the condition variable, so the wait has a timeout.
                    let (guard, _) = self
                        .wake
                        .wait_timeout(state, Duration::from_millis(100))
                        .unwrap_or_else(PoisonError::into_inner);
                    state = guard;
                }
            }
        }
        drop(state);
        self.wake.notify_all();
        last
    }

    /// Picks the most useful next task.
    fn pick(&self, state: &mut State<I::Error>) -> Option<Job<I::Error>> {
        if let Some((work, step)) = state.steps.pop_front() {
            return Some(Job::Step(work, step));
        }
        if state.packed {
            return None;
        }
        // Unfinished shards will release memory. If there are none, the head may always continue. Otherwise a shard
        // larger than the budget would block the run.
        let room = self.pool.live() < self.budget_bytes;
        let head_room = room || state.unfinished == 0;
        let ahead_room = room && state.ahead_bytes < self.budget_bytes / 2;
        let head = state.head;
        let chosen = state
            .slots
            .iter()
            .find(|(unit, slot)| {
                slot.batches.is_some()
                    && !slot.done
                    && if **unit == head {
                        head_room
                    } else {
                        ahead_room
                    }
            })
            .map(|(unit, _)| *unit);
        if let Some(unit) = chosen
            && let Some(slot) = state.slots.get_mut(&unit)
            && let Some(batches) = slot.batches.take()
        {
            let given = slot.given.clone();
            return Some(Job::Read(unit, batches, given));
        }
        let unit = state.next_open;
        let may_open = if unit == head { head_room } else { ahead_room };
        if unit < self.input.units() && may_open && state.slots.len() < self.jobs * 2 {
            state.next_open += 1;
            let slot = Slot {
                batches: None,
                given: vec![0; self.output.splits.len()],
                queue: VecDeque::new(),
                done: false,
                error: None,
            };
            state.slots.insert(unit, slot);
            return Some(Job::Open(unit));
        }
        if self.input.units() == head && !state.packed {
            // There are no units, or the run resumed after the last one.
            let mut cut = Vec::new();
            self.finish_packing(state, &mut cut);
            self.schedule(state, cut);
            return state
                .steps
                .pop_front()
                .map(|(work, step)| Job::Step(work, step));
        }
        None
    }

    fn perform(
        &self,
        job: Job<I::Error>,
        sender: &SyncSender<FinishedShard>,
        scratch: &mut Scratch,
    ) -> Result<(), I::Error> {
        match job {
            Job::Step(work, step) => {
                match work.run(
                    &step,
                    &self.kind,
                    Temps::Place(self.output.place, self.output.temp_folder),
                    scratch,
                )? {
                    Outcome::Nothing => {}
                    // The last step runs before all others: it releases the memory of the shard.
                    Outcome::Next(step) => self.lock().steps.push_front((work, step)),
                    Outcome::Finished(shard) => {
                        drop(work);
                        self.lock().unfinished -= 1;
                        // The receiver is dropped only after an error, and the error is in the state.
                        let _ = sender.send(*shard);
                    }
                }
            }
            Job::Open(unit) => match self.input.open(unit) {
                Ok(batches) => {
                    let mut state = self.lock();
                    if let Some(slot) = state.slots.get_mut(&unit) {
                        slot.batches = Some(batches);
                    }
                }
                Err(error) => self.end_unit(unit, Some(error)),
            },
            Job::Read(unit, batches, given) => self.read(unit, batches, given),
        }
        Ok(())
    }

    /// Decodes and encodes one batch of a unit.
    fn read(
        &self,
        unit: usize,
        mut batches: Box<dyn Batches<Error = I::Error>>,
        mut given: Vec<u64>,
    ) {
        let next = match batches.next() {
            Ok(Some(next)) => next,
            Ok(None) => return self.end_unit(unit, None),
            Err(error) => return self.end_unit(unit, Some(error)),
        };
        let mut chunks = Vec::new();
        let mut failure = None;
        let rows = u64::try_from(next.batch.num_rows()).unwrap_or(0);
        if let Some(first) = given.get_mut(next.split) {
            // Samples before the resume position are not encoded again.
            let skip = if unit == self.start.unit {
                self.start.sample.saturating_sub(*first).min(rows)
            } else {
                0
            };
            let skipped = usize::try_from(skip).unwrap_or(usize::MAX);
            let origin = Origin {
                split: next.split,
                unit,
                first: *first + skip,
            };
            *first += rows;
            if skip < rows {
                let batch = next.batch.slice(skipped, next.batch.num_rows() - skipped);
                let mut row = skipped;
                let place = |row| self.input.place(unit, next.rows.get(row + skipped));
                let encoded =
                    self.encoder
                        .encode(&batch, origin, &self.pool, place, |mut chunk| {
                            if !chunk.keys.is_empty() {
                                chunk.rows = Some(next.rows.from(row));
                            }
                            row += chunk.samples();
                            chunk.note_contents();
                            chunks.push(chunk);
                        });
                failure = encoded.err();
            }
        }
        self.progress.add_input_bytes(next.input_bytes);
        let mut state = self.lock();
        state.dropped += next.dropped;
        let is_head = state.head == unit;
        if let Some(slot) = state.slots.get_mut(&unit) {
            slot.given = given;
            let bytes: u64 = chunks
                .iter()
                .map(|chunk| u64::try_from(chunk.len()).unwrap_or(0))
                .sum();
            slot.queue.extend(chunks);
            match failure {
                None => slot.batches = Some(batches),
                Some(error) => {
                    slot.done = true;
                    slot.error = Some(error.into());
                }
            }
            if !is_head {
                state.ahead_bytes += bytes;
            }
        }
        self.pack(state);
    }

    fn end_unit(&self, unit: usize, error: Option<I::Error>) {
        let mut state = self.lock();
        if let Some(slot) = state.slots.get_mut(&unit) {
            slot.done = true;
            slot.batches = None;
            slot.error = error;
        }
        self.pack(state);
    }

    /// Packs all chunks that are ready, in order.
    fn pack(&self, mut guard: MutexGuard<'_, State<I::Error>>) {
        let state = &mut *guard;
        let mut cut = Vec::new();
        while let Some(slot) = state.slots.get_mut(&state.head) {
            while let Some(chunk) = slot.queue.pop_front() {
                let samples = u64::try_from(chunk.samples()).unwrap_or(0);
                state.samples += samples;
                self.progress.add_samples(samples);
                let unit = chunk.origin.unit;
                let packed = match state.packers.get_mut(chunk.origin.split) {
                    Some(packer) => packer.push(chunk, |row| self.input.place(unit, row)),
                    None => Ok(Vec::new()),
                };
                match packed {
                    Ok(full) => cut.extend(full),
                    Err(error) => {
                        state.error.get_or_insert(error.into());
                        return;
                    }
                }
            }
            if !slot.done {
                break;
            }
            if let Some(error) = slot.error.take() {
                state.error.get_or_insert(error);
                break;
            }
            state.slots.remove(&state.head);
            state.head += 1;
            if let Some(next) = state.slots.get(&state.head) {
                let bytes: u64 = next
                    .queue
                    .iter()
                    .map(|chunk| u64::try_from(chunk.len()).unwrap_or(0))
                    .sum();
                state.ahead_bytes = state.ahead_bytes.saturating_sub(bytes);
            }
        }
        if state.error.is_none() && state.head == self.input.units() {
            self.finish_packing(state, &mut cut);
        }
        self.schedule(state, cut);
    }

    fn finish_packing(&self, state: &mut State<I::Error>, cut: &mut Vec<CutShard>) {
        if !state.packed {
            cut.extend(state.packers.iter_mut().filter_map(Packer::finish));
            state.packed = true;
        }
    }

    fn schedule(&self, state: &mut State<I::Error>, cut: Vec<CutShard>) {
        for shard in cut {
            let ShardSpan {
                split,
                shard: number,
                samples,
                ..
            } = shard.span;
            if let Some((entry, content)) = self
                .checkpoint
                .reusable(split, number)
                .filter(|(entry, _)| entry.samples() == samples)
            {
                self.progress.add_shard(entry.stored_bytes());
                self.keep(split, number, entry.clone(), content);
                state.reused += 1;
                continue;
            }
            match ShardWork::new(shard, &self.kind) {
                Ok((work, steps)) => {
                    state.unfinished += 1;
                    state
                        .steps
                        .extend(steps.into_iter().map(|step| (Arc::clone(&work), step)));
                }
                Err(error) => {
                    state.error.get_or_insert(error.into());
                }
            }
        }
    }

    fn keep(&self, split: usize, shard: u64, entry: IndexEntry, content: Content) {
        if let Some(entries) = self.entries.get(split) {
            entries
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(shard, (entry, content));
        }
    }

    /// Runs a publisher thread. Publishing waits for the disk or the store, so it does not occupy a worker.
    fn publish(&self, receiver: &Mutex<Receiver<FinishedShard>>) {
        let _alarm = Alarm(self);
        let next = || {
            receiver
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv()
        };
        while let Ok(shard) = next() {
            if self.lock().error.is_some() {
                // Dropping the shard removes its temporary files.
                continue;
            }
            if let Err(error) = self.publish_one(shard) {
                let mut state = self.lock();
                let error = match self.progress.is_cancelled() {
                    true => WriteError::Interrupted {
                        samples: state.samples,
                    },
                    false => error.into(),
                };
                state.error.get_or_insert(error.into());
                drop(state);
                self.wake.notify_all();
            }
        }
    }

    fn publish_one(&self, shard: FinishedShard) -> Result<(), StorageError> {
        let FinishedShard {
            span,
            files,
            entry,
            checks,
        } = shard;
        let ShardSpan {
            split,
            shard,
            start,
            content,
            ..
        } = span;
        let folder = self.output.splits.get(split).map_or("", String::as_str);
        // Stops waiting if the run has failed.
        let go_on = &mut |_| !self.progress.is_cancelled() && self.lock().error.is_none();
        let mut file_versions = Vec::with_capacity(files.len());
        for (name, temp) in files {
            let name = match self.output.at {
                Some(at) => at(&name),
                None => beneath(folder, &name),
            };
            let place = self.output.place;
            file_versions.push(place.publish(temp, &name, PublishMode::Replace, go_on)?);
        }
        let published = Published {
            split,
            shard,
            start,
            entry: &entry,
            content,
            checks: &checks,
            file_versions: &file_versions,
        };
        self.checkpoint.published(&published, go_on)?;
        self.progress.add_shard(entry.stored_bytes());
        self.keep(split, shard, entry, content);
        Ok(())
    }

    fn written(self, idle: Duration) -> Result<Written, I::Error> {
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.error {
            return Err(error);
        }
        let mut indexes = Vec::with_capacity(self.entries.len());
        let mut contents = Vec::with_capacity(self.entries.len());
        for entries in self.entries {
            let entries = entries.into_inner().unwrap_or_else(PoisonError::into_inner);
            // INVARIANT: shard numbers have no gap.
            let complete = (self.first_shard..)
                .zip(entries.keys())
                .all(|(expected, shard)| expected == *shard);
            if !complete {
                return Err(WriteError::Bug {
                    what: "a shard is missing from the index",
                }
                .into());
            }
            contents.push(entries.values().map(|(_, content)| *content).collect());
            let entries = entries.into_values().map(|(entry, _)| entry);
            indexes.push(self.output.form.index(entries));
        }
        let mut units = Vec::with_capacity(state.packers.len());
        let mut dedup_index = None;
        for packer in state.packers {
            let (of_split, left) = packer.into_units();
            units.push(of_split);
            dedup_index = dedup_index.or(left);
        }
        Ok(Written {
            indexes,
            contents,
            units,
            dedup_index,
            reused: state.reused,
            dropped: state.dropped,
            idle,
        })
    }
}
