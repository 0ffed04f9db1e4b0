//! The conversion pipeline: it decodes and encodes in parallel, cuts in order, and hands the shards to a [`ShardPool`].
//!
//! One pool of threads does all computation. Threads without a shard to finish read the unit whose samples are packed
//! next, or a later unit if the memory budget allows it.
//!
//! The result does not depend on which thread ran which task: units are packed in order, and shards have numbers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shardmill_core::{Error, Progress, lock};
use shardmill_mds::Content;
use shardmill_storage::{CancelToken, Destination, PublishMode, StorageError};

use crate::chunk::{BufferPool, Chunk, Origin};
use crate::content::{DedupIndex, UnitSamples};
use crate::entry::DatasetIndex;
use crate::error;
use crate::form::ShardForm;
use crate::index::in_folder;
use crate::input::{Batches, Input};
use crate::pack::{CutShard, Keys, Packer, Position, ShardEnds, ShardSpan};
use crate::pool::{Entries, NextTask, PoolClient, PoolLimits, PoolState, ShardPool};
use crate::record::ShardRecord;
use crate::rows::RowEncoder;
use crate::shard::{FinishedShard, ShardKind, Temps};

/// Where shards are written, and their form.
pub struct Output<'a> {
    /// The root of the dataset.
    pub destination: &'a Destination,
    /// The folder for temporary files in the root, if the root is a local directory.
    pub temp_folder: &'a str,
    /// The directories of the datasets to write, relative to the root; `""` is the root itself.
    pub splits: &'a [String],
    /// The form of the shards.
    pub form: ShardForm,
    /// Where shards end.
    pub ends: ShardEnds,
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
    /// Returns a shard that an earlier run published and that has just been checked.
    fn reusable(&self, _split: usize, _shard: u64) -> Option<&ShardRecord> {
        None
    }

    /// Returns the shard number and the input position at which to resume. All shards before it must be reusable.
    ///
    /// Called only for a single split.
    fn resume_at(&self) -> Option<(u64, Position)> {
        None
    }

    /// Records a published shard.
    ///
    /// # Errors
    ///
    /// Returns an error if the record cannot be written.
    fn published(
        &self,
        shard: &ShardRecord,
        cancel: &mut CancelToken<'_>,
    ) -> Result<(), StorageError>;
}

/// The existing dataset that a run adds to.
#[derive(Debug, Default)]
pub struct Base {
    /// The number of existing shards. New shards are numbered after them.
    pub shards: u64,
    /// The number of existing samples.
    pub samples: u64,
    /// The number of the generation in the names of new files, if they have one.
    pub generation: Option<u64>,
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
) -> Result<Written, Error> {
    let jobs = resources.jobs.max(1);
    let publishers = output.destination.publishers().max(1);
    let resume = match output.splits.len() {
        1 => checkpoint.resume_at(),
        _ => None,
    };
    let start = resume.map_or(Position::default(), |(_, position)| position);
    let first_shard = resume.map_or(base.shards, |(shard, _)| shard);
    let mut conversion = Conversion {
        input,
        encoder,
        output,
        checkpoint,
        progress,
        start,
        resources: Resources { jobs, ..resources },
        generation: base.generation,
        buffers: BufferPool::new(jobs * 8),
        reading: Mutex::new(Reading {
            head: start.unit,
            next_open: start.unit,
            slots: BTreeMap::new(),
            ahead_bytes: 0,
            packers: Vec::new(),
            packed: false,
            failed: false,
            reused: 0,
            dropped: 0,
            samples: 0,
        }),
        entries: Entries::default(),
    };
    // Shards before the resume position have been checked and are kept.
    let before = (base.shards..first_shard).map(|shard| conversion.reuse(0, shard, None));
    let first_sample = base.samples + before.flatten().sum::<u64>();
    let mut dedup_index = base.dedup_index;
    let packers = (0..output.splits.len()).map(|split| {
        let keys = Keys::new(encoder.keys(), output.key_prefix, first_sample);
        let mut packer = Packer::new(split, &output.form, output.ends, first_shard, keys);
        packer.add_to(first_sample, dedup_index.take());
        packer
    });
    let packers = packers.collect();
    let reading = conversion.reading.get_mut();
    let reading = reading.unwrap_or_else(PoisonError::into_inner);
    reading.packers = packers;
    reading.reused = first_shard - base.shards;
    // Without units, or after the last one, packing ends here.
    let cut = conversion.pack(conversion.lock())?;
    let limits = PoolLimits {
        jobs,
        publishers,
        max_unfinished: usize::MAX,
        max_waiting: jobs * 2,
        first_alone: false,
    };
    let kind = ShardKind::resumable(output.form.clone());
    let pool = ShardPool::new(conversion, kind, limits);
    pool.push(cut);
    let (outcome, mut ends) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs + publishers)
            .map(|_| scope.spawn(|| pool.work()))
            .collect();
        let outcome = pool.wait(&mut || !progress.is_cancelled(), PoolState::is_over);
        let outcome = outcome.map(drop);
        let ends = threads.into_iter().map(|thread| thread.join());
        (outcome, ends.collect::<Result<Vec<Instant>, _>>())
    });
    outcome?;
    let now = Instant::now();
    let ends = ends
        .as_mut()
        .map_err(|_| error::internal("a worker thread panicked"))?;
    // All threads compute, but only `jobs` at the same time.
    ends.sort_unstable_by(|a, b| b.cmp(a));
    let idle = ends.iter().take(jobs);
    let idle = idle.map(|end| now.saturating_duration_since(*end)).sum();
    pool.client.written(base.shards, idle)
}

/// A unit that is being read.
struct Slot {
    /// `None` while a thread reads from it.
    batches: Option<Box<dyn Batches>>,
    /// The number of samples that the unit has produced for each split so far.
    given: Vec<u64>,
    /// Encoded chunks that wait until earlier units are packed.
    queue: VecDeque<Chunk>,
    /// The result of the unit, once it is read.
    end: Option<Result<(), Error>>,
}

struct Reading {
    /// The unit that is being packed.
    head: usize,
    next_open: usize,
    slots: BTreeMap<usize, Slot>,
    /// The encoded bytes of the units after the head.
    ahead_bytes: u64,
    packers: Vec<Packer>,
    packed: bool,
    /// Whether packing has failed. Nothing is packed after that, because a chunk is missing.
    failed: bool,
    reused: u64,
    dropped: u64,
    samples: u64,
}

/// Reads the next batch of a unit.
struct ReadTask {
    unit: usize,
    /// `None` if the unit is not open yet.
    batches: Option<Box<dyn Batches>>,
    given: Vec<u64>,
}

/// Reads the input and produces shards.
struct Conversion<'a, I: Input> {
    input: &'a I,
    encoder: &'a RowEncoder,
    output: &'a Output<'a>,
    checkpoint: &'a dyn Checkpoint,
    progress: &'a Progress,
    start: Position,
    resources: Resources,
    generation: Option<u64>,
    buffers: Arc<BufferPool>,
    reading: Mutex<Reading>,
    entries: Entries,
}

impl<I: Input> PoolClient for Conversion<'_, I> {
    type Task = ReadTask;

    fn pick(&self, unfinished: usize) -> NextTask<ReadTask> {
        let mut reading = self.lock();
        if reading.packed {
            return NextTask::End;
        }
        // The thread that failed is about to end the run.
        if reading.failed {
            return NextTask::Wait;
        }
        // Unfinished shards will release memory. If there are none, the head may always continue. Otherwise a shard
        // larger than the budget would block the run.
        let budget = self.resources.budget_bytes;
        let room = self.buffers.live() < budget;
        let ahead_room = room && reading.ahead_bytes < budget / 2;
        let head = reading.head;
        let may_read = |unit: usize| match unit == head {
            true => room || unfinished == 0,
            false => ahead_room,
        };
        let mut slots = reading.slots.iter_mut();
        let task = slots.find_map(|(unit, slot)| {
            Some(ReadTask {
                unit: *unit,
                batches: Some(slot.batches.take_if(|_| may_read(*unit))?),
                given: slot.given.clone(),
            })
        });
        if let Some(task) = task {
            return NextTask::Task(task);
        }
        let unit = reading.next_open;
        let max_open = self.resources.jobs * 2;
        if unit == self.input.units() || !may_read(unit) || reading.slots.len() >= max_open {
            return NextTask::Wait;
        }
        reading.next_open += 1;
        let given = vec![0; self.output.splits.len()];
        let slot = Slot {
            batches: None,
            given: given.clone(),
            queue: VecDeque::new(),
            end: None,
        };
        reading.slots.insert(unit, slot);
        NextTask::Task(ReadTask {
            unit,
            batches: None,
            given,
        })
    }

    fn run(&self, task: ReadTask) -> Result<Vec<CutShard>, Error> {
        self.read(task)
    }

    fn temps(&self) -> Temps<'_> {
        Temps::Destination(self.output.destination, self.output.temp_folder)
    }

    fn publish(
        &self,
        mut shard: FinishedShard,
        cancel: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        if let Some(generation) = self.generation {
            let form = &self.output.form;
            shard.rename_files(|name| form.numbered(name, generation));
        }
        let folder = self.output.splits.get(shard.span.split);
        let folder = folder.map_or("", String::as_str);
        let record = ShardRecord::publish(shard, |name, temp| {
            let at = match self.output.at {
                Some(at) => at(name),
                None => in_folder(folder, name),
            };
            let (destination, mode) = (self.output.destination, PublishMode::Replace);
            let version = destination.publish(temp, &at, mode, &mut |_| cancel())?;
            Ok((at, version))
        })?;
        self.checkpoint.published(&record, &mut |_| cancel())?;
        self.progress.add_shard(record.entry.stored_bytes());
        self.entries
            .add((record.split, record.shard), record.entry, record.content);
        Ok(())
    }

    fn is_cancelled(&self) -> bool {
        self.progress.is_cancelled()
    }

    fn samples(&self) -> u64 {
        self.lock().samples
    }
}

impl<I: Input> Conversion<'_, I> {
    fn lock(&self) -> MutexGuard<'_, Reading> {
        lock(&self.reading)
    }

    /// Decodes and encodes one batch of a unit.
    fn read(&self, task: ReadTask) -> Result<Vec<CutShard>, Error> {
        let ReadTask {
            unit,
            batches,
            mut given,
        } = task;
        let batches = batches.map_or_else(|| self.input.open(unit), Ok);
        let next = batches.and_then(|mut batches| Ok(batches.next()?.map(|next| (batches, next))));
        let (batches, next) = match next {
            Ok(Some(next)) => next,
            end => {
                let mut reading = self.lock();
                if let Some(slot) = reading.slots.get_mut(&unit) {
                    slot.end = Some(end.map(drop));
                }
                return self.pack(reading);
            }
        };
        let mut chunks = Vec::new();
        let mut encoded = Ok(());
        let rows = u64::try_from(next.batch.num_rows()).unwrap_or(0);
        if let Some(first) = given.get_mut(next.split) {
            // Samples before the resume position are not encoded again.
            let skip = match unit == self.start.unit {
                true => self.start.sample.saturating_sub(*first).min(rows),
                false => 0,
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
                let describe_row = |row| self.input.row_origin(unit, next.rows.get(row + skipped));
                let add = |mut chunk: Chunk| {
                    if !chunk.keys.is_empty() {
                        chunk.rows = Some(next.rows.from(row));
                    }
                    row += chunk.samples();
                    chunk.note_contents();
                    chunks.push(chunk);
                };
                let encoder = self.encoder;
                encoded = encoder.encode(&batch, origin, &self.buffers, describe_row, add);
            }
        }
        self.progress.add_input_bytes(next.input_bytes);
        let mut reading = self.lock();
        reading.dropped += next.dropped;
        if reading.head != unit {
            reading.ahead_bytes += bytes_of(&chunks);
        }
        if let Some(slot) = reading.slots.get_mut(&unit) {
            slot.given = given;
            slot.queue.extend(chunks);
            match encoded {
                Ok(()) => slot.batches = Some(batches),
                Err(error) => slot.end = Some(Err(error)),
            }
        }
        self.pack(reading)
    }

    /// Packs all chunks that are ready, in order. Returns the shards to write. Only the first error is returned.
    fn pack(&self, mut reading: MutexGuard<'_, Reading>) -> Result<Vec<CutShard>, Error> {
        if reading.failed {
            return Ok(Vec::new());
        }
        let cut = self.pack_ready(&mut reading);
        reading.failed = cut.is_err();
        cut
    }

    fn pack_ready(&self, reading: &mut Reading) -> Result<Vec<CutShard>, Error> {
        let mut cut = Vec::new();
        while let Some(slot) = reading.slots.get_mut(&reading.head) {
            while let Some(chunk) = slot.queue.pop_front() {
                let samples = u64::try_from(chunk.samples()).unwrap_or(0);
                reading.samples += samples;
                self.progress.add_samples(samples);
                let unit = chunk.origin.unit;
                if let Some(packer) = reading.packers.get_mut(chunk.origin.split) {
                    cut.extend(packer.push(chunk, |row| self.input.row_origin(unit, row))?);
                }
            }
            match slot.end.take() {
                Some(end) => end?,
                None => break,
            }
            reading.slots.remove(&reading.head);
            reading.head += 1;
            if let Some(next) = reading.slots.get(&reading.head) {
                let bytes = bytes_of(&next.queue);
                reading.ahead_bytes = reading.ahead_bytes.saturating_sub(bytes);
            }
        }
        if reading.head == self.input.units() && !reading.packed {
            cut.extend(reading.packers.iter_mut().filter_map(Packer::finish));
            reading.packed = true;
        }
        cut.retain(|shard| {
            let ShardSpan {
                split,
                shard,
                samples,
                ..
            } = shard.span;
            let is_reused = self.reuse(split, shard, Some(samples)).is_some();
            reading.reused += u64::from(is_reused);
            !is_reused
        });
        Ok(cut)
    }

    /// Keeps a shard of an earlier run, if there is one with this number of samples. Returns the number of samples.
    fn reuse(&self, split: usize, shard: u64, samples: Option<u64>) -> Option<u64> {
        let record = self.checkpoint.reusable(split, shard)?;
        let entry = &record.entry;
        if samples.is_some_and(|samples| samples != entry.samples()) {
            return None;
        }
        self.progress.add_shard(entry.stored_bytes());
        if samples.is_none() {
            self.progress.add_samples(entry.samples());
        }
        self.entries
            .add((split, shard), entry.clone(), record.content);
        Some(entry.samples())
    }

    fn written(&self, first_shard: u64, idle: Duration) -> Result<Written, Error> {
        let mut reading = self.lock();
        let mut written = Written {
            indexes: Vec::new(),
            contents: Vec::new(),
            units: Vec::new(),
            dedup_index: None,
            reused: reading.reused,
            dropped: reading.dropped,
            idle,
        };
        for (split, packer) in std::mem::take(&mut reading.packers).into_iter().enumerate() {
            let entries = self.entries.of_split(split, first_shard)?;
            let contents = entries.iter().map(|(_, content)| *content);
            written.contents.push(contents.collect());
            let entries = entries.into_iter().map(|(entry, _)| entry);
            written.indexes.push(self.output.form.index(entries));
            let (units, dedup_index) = packer.into_units();
            written.units.push(units);
            written.dedup_index = written.dedup_index.or(dedup_index);
        }
        Ok(written)
    }
}

fn bytes_of<'a>(chunks: impl IntoIterator<Item = &'a Chunk>) -> u64 {
    let lengths = chunks.into_iter().map(Chunk::len);
    u64::try_from(lengths.sum::<usize>()).unwrap_or(u64::MAX)
}
