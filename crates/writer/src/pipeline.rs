//! The engine: decode and encode in parallel, cut in order, finish shards in parallel, publish, index last.
//!
//! One pool of threads does everything that computes. A thread first looks for a step of a shard that is
//! already cut (finishing shards is what gives memory back), then for the next batch of the unit whose
//! samples are due, then for a batch of a later unit if the budget allows. The result does not depend on
//! which thread did what: units are packed in order, and shards carry their numbers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use shardmill_core::{Diagnostic, Progress};
use shardmill_mds::{Index, ShardConfig, ShardEntry};
use shardmill_storage::{Dir, PublishMode, StorageError};

use crate::chunk::{BufferPool, Chunk, Origin};
use crate::error::WriteError;
use crate::index::{beneath, stored_bytes};
use crate::pack::{CutShard, Packer, Position};
use crate::rows::RowEncoder;
use crate::shard::{FileCheck, FinishedShard, Outcome, Scratch, ShardKind, ShardWork, Step};

/// What the engine needs from an input: units in a fixed order, each a run of batches. Units are read by
/// several threads at once; the batches of one unit by one thread at a time.
pub trait Input: Sync {
    /// Why reading failed.
    type Error: Diagnostic + Send + 'static;

    /// The number of units.
    fn units(&self) -> usize;

    /// Starts to read a unit.
    ///
    /// # Errors
    ///
    /// Whatever the input cannot do.
    fn open(&self, unit: usize) -> Result<Box<dyn Batches<Error = Self::Error>>, Self::Error>;

    /// Names a row for a person: a file and a number.
    fn place(&self, unit: usize, row: u64) -> String;
}

/// The batches of one unit.
pub trait Batches: Send {
    /// Why reading failed.
    type Error;

    /// The next batch, `None` at the end of the unit.
    ///
    /// # Errors
    ///
    /// Whatever the input cannot do.
    fn next(&mut self) -> Result<Option<InputBatch>, Self::Error>;
}

/// Rows that go to one split.
#[derive(Debug)]
pub struct InputBatch {
    /// The split, an index into [`Output::splits`].
    pub split: usize,
    /// The rows.
    pub batch: RecordBatch,
    /// Their numbers within the unit, for messages.
    pub rows: RowNumbers,
    /// Stored bytes of input that reading them took, for progress.
    pub input_bytes: u64,
    /// Rows left out between the previous batch and the end of this one.
    pub dropped: u64,
}

/// The row numbers of a batch.
#[derive(Clone, Debug)]
pub enum RowNumbers {
    /// Consecutive, from this one.
    From(u64),
    /// One by one.
    Each(Vec<u64>),
}

impl RowNumbers {
    fn get(&self, row: usize) -> u64 {
        match self {
            Self::From(first) => first + u64::try_from(row).unwrap_or(0),
            Self::Each(rows) => rows.get(row).copied().unwrap_or(0),
        }
    }
}

/// Where shards go and what they look like.
#[derive(Debug)]
pub struct Output<'a> {
    /// The root of the data set.
    pub dir: &'a Dir,
    /// A folder in it for temporary files.
    pub temp_folder: &'a str,
    /// The data sets to write, by directory beneath the root; `""` is the root itself.
    pub splits: &'a [String],
    /// The configuration of every shard.
    pub config: Arc<ShardConfig>,
    /// Most samples of a shard, beside the size limit of the configuration.
    pub samples_per_shard: Option<u64>,
}

/// What the engine may use.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    /// Threads that compute.
    pub jobs: usize,
    /// Bytes of encoded samples that may be in memory; one shard is always allowed.
    pub budget_bytes: u64,
}

/// A memory of what an earlier, interrupted run published, and the record of what this one does.
pub trait Ledger: Sync {
    /// The shard as it was published and has just been checked, if it was.
    fn reusable(&self, split: usize, shard: u64) -> Option<&ShardEntry>;

    /// Where to start, when everything before is reusable: the number of the first shard and the position of
    /// its first sample. Only asked with a single split.
    fn resume_at(&self) -> Option<(u64, Position)>;

    /// Notes a shard that has been published.
    ///
    /// # Errors
    ///
    /// When the note cannot be written.
    fn published(&self, shard: &Published<'_>) -> Result<(), StorageError>;
}

/// A shard that has been published.
#[derive(Debug)]
pub struct Published<'a> {
    /// The split.
    pub split: usize,
    /// The shard's number.
    pub shard: u64,
    /// Where its first sample came from.
    pub start: Position,
    /// Its line in the index.
    pub entry: &'a ShardEntry,
    /// Its files.
    pub checks: &'a [FileCheck],
}

/// What was written.
#[derive(Debug)]
pub struct Written {
    /// The index of each split, not yet published.
    pub indexes: Vec<Index>,
    /// Shards taken over from an earlier run, all splits together.
    pub reused: u64,
    /// Rows left out.
    pub dropped: u64,
    /// Core seconds between the last work of each thread and the end.
    pub idle: Duration,
}

/// Why the engine stopped.
#[derive(Debug)]
pub enum PipelineError<E> {
    /// The input failed.
    Input(E),
    /// Encoding or writing failed.
    Write(WriteError),
}

impl<E> From<WriteError> for PipelineError<E> {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

/// Runs the engine to the end. Shards are published when they are complete; indexes are the caller's.
///
/// # Errors
///
/// The error of the earliest unit that failed, or of the first shard; nothing is left half-written.
pub fn run<I: Input>(
    input: &I,
    encoder: &RowEncoder,
    output: &Output<'_>,
    resources: Resources,
    ledger: &dyn Ledger,
    progress: &Progress,
) -> Result<Written, PipelineError<I::Error>> {
    let jobs = resources.jobs.max(1);
    let resume = (output.splits.len() == 1)
        .then(|| ledger.resume_at())
        .flatten();
    let start = resume.map_or(Position::default(), |(_, position)| position);
    let first_shard = resume.map_or(0, |(shard, _)| shard);
    let engine = Engine {
        input,
        encoder,
        output,
        kind: ShardKind::resumable(Arc::clone(&output.config)),
        pool: BufferPool::new(jobs * 8),
        ledger,
        progress,
        start,
        budget_bytes: resources.budget_bytes,
        jobs,
        state: Mutex::new(State {
            head: start.unit,
            next_open: start.unit,
            slots: BTreeMap::new(),
            ahead_bytes: 0,
            packers: (0..output.splits.len())
                .map(|split| {
                    Packer::new(split, &output.config, output.samples_per_shard, first_shard)
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
    // What lies before the resumed shard was checked and stays.
    for shard in 0..first_shard {
        if let Some(entry) = ledger.reusable(0, shard) {
            progress.add_shard(stored_bytes(entry));
            progress.add_samples(entry.samples);
            engine.keep(0, shard, entry.clone());
            engine.lock().reused += 1;
        }
    }
    let (sender, receiver) = sync_channel::<FinishedShard>(jobs * 2);
    let ends: Vec<Instant> = std::thread::scope(|scope| {
        let engine = &engine;
        let publisher = scope.spawn(move || engine.publish(receiver));
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
        // The receiver ends when the last worker has dropped its sender.
        let _ = publisher.join();
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

/// Stops all threads when one of them panics: the others would wait for its work forever.
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
    /// Taken while a thread reads from it.
    batches: Option<Box<dyn Batches<Error = E>>>,
    /// Samples that the unit gave to each split so far.
    given: Vec<u64>,
    /// Encoded and waiting for the units before.
    queue: VecDeque<Chunk>,
    done: bool,
    error: Option<PipelineError<E>>,
}

struct State<E> {
    /// The unit whose samples are packed now.
    head: usize,
    next_open: usize,
    slots: BTreeMap<usize, Slot<E>>,
    /// Encoded bytes of the units behind the head.
    ahead_bytes: u64,
    packers: Vec<Packer>,
    steps: VecDeque<(Arc<ShardWork>, Step)>,
    /// Shards that are cut and not yet finished.
    unfinished: usize,
    /// Threads that are doing something.
    busy: usize,
    packed: bool,
    error: Option<PipelineError<E>>,
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
    ledger: &'a dyn Ledger,
    progress: &'a Progress,
    start: Position,
    budget_bytes: u64,
    jobs: usize,
    state: Mutex<State<I::Error>>,
    wake: Condvar,
    entries: Vec<Mutex<BTreeMap<u64, ShardEntry>>>,
}

impl<I: Input> Engine<'_, I> {
    fn lock(&self) -> MutexGuard<'_, State<I::Error>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a worker; answers when it last had something to do.
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
                    // The time-out is for cancellation, which nobody announces.
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

    /// The most useful thing to do now.
    fn pick(&self, state: &mut State<I::Error>) -> Option<Job<I::Error>> {
        if let Some((work, step)) = state.steps.pop_front() {
            return Some(Job::Step(work, step));
        }
        if state.packed {
            return None;
        }
        // Unfinished shards give their memory back. With none of them the head may always go on: otherwise a
        // shard larger than the budget would stop everything.
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
            // No unit at all, or resumed behind the last one.
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
    ) -> Result<(), PipelineError<I::Error>> {
        match job {
            Job::Step(work, step) => {
                match work.run(
                    &step,
                    &self.kind,
                    self.output.dir,
                    Some(self.output.temp_folder),
                    scratch,
                )? {
                    Outcome::Nothing => {}
                    // Ahead of all others: it frees memory, and it is the end of a chain.
                    Outcome::Next(step) => self.lock().steps.push_front((work, step)),
                    Outcome::Finished(shard) => {
                        drop(work);
                        self.lock().unfinished -= 1;
                        // The receiver only goes away after an error, which is in the state.
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
                Err(error) => self.end_unit(unit, Some(PipelineError::Input(error))),
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
            Err(error) => return self.end_unit(unit, Some(PipelineError::Input(error))),
        };
        let mut chunks = Vec::new();
        let mut failure = None;
        let rows = u64::try_from(next.batch.num_rows()).unwrap_or(0);
        if let Some(first) = given.get_mut(next.split) {
            // Samples before the position that an earlier run reached are not encoded again.
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
                let encoded = self
                    .encoder
                    .encode(&batch, origin, &self.pool, |chunk| chunks.push(chunk));
                failure = encoded.err().map(|error| {
                    error.locate(self.encoder, |row| {
                        self.input.place(unit, next.rows.get(row + skipped))
                    })
                });
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

    fn end_unit(&self, unit: usize, error: Option<PipelineError<I::Error>>) {
        let mut state = self.lock();
        if let Some(slot) = state.slots.get_mut(&unit) {
            slot.done = true;
            slot.batches = None;
            slot.error = error;
        }
        self.pack(state);
    }

    /// Packs whatever is due, in order.
    fn pack(&self, mut guard: MutexGuard<'_, State<I::Error>>) {
        let state = &mut *guard;
        let mut cut = Vec::new();
        while let Some(slot) = state.slots.get_mut(&state.head) {
            while let Some(chunk) = slot.queue.pop_front() {
                let samples = u64::try_from(chunk.samples()).unwrap_or(0);
                state.samples += samples;
                self.progress.add_samples(samples);
                if let Some(packer) = state.packers.get_mut(chunk.origin.split) {
                    packer.push(chunk, |shard| cut.push(shard));
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
            let (split, number) = (shard.split, shard.shard);
            let samples = u64::try_from(shard.sizes.len()).unwrap_or(0);
            if let Some(entry) = self
                .ledger
                .reusable(split, number)
                .filter(|entry| entry.samples == samples)
            {
                self.progress.add_shard(stored_bytes(entry));
                self.keep(split, number, entry.clone());
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

    fn keep(&self, split: usize, shard: u64, entry: ShardEntry) {
        if let Some(entries) = self.entries.get(split) {
            entries
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(shard, entry);
        }
    }

    /// The life of the publisher: waiting for the disk is not work, so it has a thread of its own.
    fn publish(&self, receiver: Receiver<FinishedShard>) {
        while let Ok(shard) = receiver.recv() {
            if self.lock().error.is_some() {
                // Temporary files vanish with the shard.
                continue;
            }
            if let Err(error) = self.publish_one(shard) {
                self.lock()
                    .error
                    .get_or_insert(WriteError::from(error).into());
                self.wake.notify_all();
            }
        }
    }

    fn publish_one(&self, shard: FinishedShard) -> Result<(), StorageError> {
        let FinishedShard {
            split,
            shard,
            start,
            files,
            entry,
            checks,
        } = shard;
        let folder = self.output.splits.get(split).map_or("", String::as_str);
        for (name, temp) in files {
            temp.publish(&beneath(folder, &name), PublishMode::Replace)?;
        }
        self.ledger.published(&Published {
            split,
            shard,
            start,
            entry: &entry,
            checks: &checks,
        })?;
        self.progress.add_shard(stored_bytes(&entry));
        self.keep(split, shard, entry);
        Ok(())
    }

    fn written(self, idle: Duration) -> Result<Written, PipelineError<I::Error>> {
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.error {
            return Err(error);
        }
        let mut indexes = Vec::with_capacity(self.entries.len());
        for entries in self.entries {
            let entries = entries.into_inner().unwrap_or_else(PoisonError::into_inner);
            // INVARIANT: shards are numbered from 0 without a gap.
            let complete = entries
                .keys()
                .enumerate()
                .all(|(at, shard)| u64::try_from(at) == Ok(*shard));
            if !complete {
                return Err(WriteError::Bug {
                    what: "a shard is missing from the index",
                }
                .into());
            }
            indexes.push(Index {
                shards: entries.into_values().collect(),
            });
        }
        Ok(Written {
            indexes,
            reused: state.reused,
            dropped: state.dropped,
            idle,
        })
    }
}
