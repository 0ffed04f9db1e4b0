//! Writes samples that the caller encodes, one at a time, into shards.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use shardmill_core::{Error, lock};
use shardmill_mds::{Index, MdsError, ShardConfig, ShardEntry};
use shardmill_storage::{Dir, PublishMode};

use crate::chunk::{BufferPool, Chunk, Origin};
use crate::error::{self, WriteProblem, check_size};
use crate::form::ShardForm;
use crate::index::publish_last;
use crate::pack::{CutShard, Packer};
use crate::pool::{Entries, NextTask, PoolClient, PoolLimits, PoolState, ShardPool};
use crate::rows::{CHUNK_BYTES, RowEncoder};
use crate::shard::{FinishedShard, ShardKind, Temps};

/// The maximum number of buffers kept for reuse. This is enough for one shard of 64 MiB that is being filled and seven
/// that are being finished.
const SPARE_BUFFERS: usize = 256;

/// The maximum size of unfinished shards in bytes. Two shards are always allowed if there are two threads.
const UNFINISHED_BYTES: u64 = 2 << 30;

/// The number of threads that may wait for the disk at the same time. File systems combine concurrent syncs, so four
/// files take about the time of one.
const PUBLISHERS: usize = 4;

/// The maximum number of shards that wait for the disk.
const WAITING_SHARDS: usize = 16;

/// How long a stop waits for the current step of each thread. A thread that takes longer, for example in a slow
/// compression, ends by itself and leaves no file.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The options of a [`SampleWriter`].
#[derive(Clone, Copy, Debug)]
pub struct SampleOptions {
    /// The number of threads that compute, and the maximum number of unfinished shards. Fewer shards are allowed if
    /// they would take more than 2 GiB.
    pub jobs: usize,
    /// The maximum size of a sample in bytes.
    pub sample_limit: u64,
    /// Whether files are synced to disk before they get their final names. Files that are uploaded and then removed do
    /// not need it.
    pub durable: bool,
}

/// Writes encoded samples as a dataset.
///
/// The writer cuts samples into shards as the original does. It finishes and publishes the shards in its own threads,
/// and publishes the index last.
///
/// The writer never replaces a file. A directory that already contains shards is an error:
/// [`StorageError::Exists`](shardmill_storage::StorageError::Exists). If several writers use one directory, the writer
/// that publishes its first shard first continues, and the others fail.
///
/// The first full shard starts the threads. If the writer is dropped without [`finish`](Self::finish), it publishes
/// nothing more and removes its temporary files. Published shards remain.
///
/// ```
/// use std::sync::Arc;
///
/// use shardmill_mds::{Column, Encoding, ShardConfig};
/// use shardmill_storage::{Dir, PublishMode};
/// use shardmill_writer::{SampleOptions, SampleWriter};
///
/// # let root = tempfile::tempdir()?;
/// let columns = vec![Column { name: "n".to_owned(), encoding: Encoding::Int }];
/// let config = Arc::new(ShardConfig::new_mds(columns, None, Vec::new(), Some(1 << 26))?);
/// let options = SampleOptions { jobs: 2, sample_limit: 1 << 30, durable: true };
/// let mut writer = SampleWriter::new(Dir::open(root.path())?, config, options);
/// for n in 0..10_i64 {
///     writer.push(&n.to_le_bytes(), &mut || true)?;
/// }
/// assert_eq!(writer.finish(&mut || true)?.samples(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SampleWriter {
    pool: Arc<ShardPool<SampleShards>>,
    threads: Vec<JoinHandle<Instant>>,
    packer: Packer,
    buffers: Arc<BufferPool>,
    sample_limit: u64,
    /// The samples that are not packed yet, concatenated.
    open: Vec<u8>,
    ends: Vec<u32>,
    /// The position in `open` of the sample that is being added.
    start: usize,
    samples: u64,
    closed: bool,
}

impl SampleWriter {
    /// Creates a writer of a dataset in `dir` with shards of this configuration.
    #[must_use]
    pub fn new(dir: Dir, config: Arc<ShardConfig>, options: SampleOptions) -> Self {
        let form = ShardForm::from(Arc::clone(&config));
        let packer = Packer::like_original(&config);
        let jobs = options.jobs.max(1);
        let fit = UNFINISHED_BYTES / config.size_limit.unwrap_or(UNFINISHED_BYTES).max(1);
        let unfinished = usize::try_from(fit).unwrap_or(usize::MAX).max(2).min(jobs);
        let shards = SampleShards {
            dir,
            durable: options.durable,
            entries: Entries::default(),
            names: Mutex::default(),
        };
        let limits = PoolLimits {
            jobs,
            publishers: PUBLISHERS,
            max_unfinished: unfinished,
            max_waiting: WAITING_SHARDS,
            first_alone: true,
        };
        Self {
            pool: Arc::new(ShardPool::new(shards, ShardKind::final_only(form), limits)),
            threads: Vec::new(),
            packer,
            buffers: BufferPool::new(SPARE_BUFFERS),
            sample_limit: options.sample_limit.min(u64::from(u32::MAX)),
            open: Vec::new(),
            ends: Vec::new(),
            start: 0,
            samples: 0,
            closed: false,
        }
    }

    /// Returns the buffer for the next sample. The caller appends the sample and calls [`end`](Self::end). The existing
    /// contents must not change.
    ///
    /// PERF: the sample is encoded directly into the buffer that is later written, so its bytes are copied once.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        self.open.truncate(self.start);
        if self.open.capacity() == 0 {
            self.open = self.buffers.take(0);
            self.open.clear();
            self.open.reserve(CHUNK_BYTES);
        }
        &mut self.open
    }

    /// Ends the sample that was appended to [`begin`](Self::begin). Returns `true` if the caller should call
    /// [`pack`](Self::pack).
    ///
    /// # Errors
    ///
    /// `Corrupt` for a sample that is too large, which is left out; `InvalidInput` if the writer is closed.
    pub fn end(&mut self) -> Result<bool, Error> {
        if self.closed {
            return Err(error::closed());
        }
        let bytes = self.open.len().saturating_sub(self.start);
        let checked = check_size(bytes, self.sample_limit, || format!("row {}", self.samples));
        let end = match u32::try_from(self.open.len()) {
            Ok(end) if checked.is_ok() => end,
            _ => {
                self.open.truncate(self.start);
                return checked.map(|()| false);
            }
        };
        self.start = self.open.len();
        self.ends.push(end);
        self.samples += 1;
        // The number of samples is limited too, because empty samples add no bytes.
        Ok(self.open.len() >= CHUNK_BYTES || self.ends.len() >= CHUNK_BYTES / 4)
    }

    /// Adds one encoded sample. Waits while too many shards are unfinished, and calls `cancel` regularly during the
    /// wait.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`end`](Self::end) and [`pack`](Self::pack).
    pub fn push(&mut self, sample: &[u8], cancel: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.begin().extend_from_slice(sample);
        if self.end()? {
            self.pack(cancel)?;
        }
        Ok(())
    }

    /// Adds all rows of a batch, or none of them if one cannot be encoded.
    ///
    /// `encoder` must have the layout of this writer. `describe_row` describes a row of the batch, for errors.
    ///
    /// # Errors
    ///
    /// Returns the error of a value that its column cannot hold, [`WriteProblem::Null`], [`WriteProblem::SampleTooLarge`],
    /// or the errors of [`pack`](Self::pack).
    pub fn push_batch(
        &mut self,
        encoder: &RowEncoder,
        batch: &RecordBatch,
        describe_row: impl Fn(usize) -> String,
        cancel: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        self.pack(cancel)?;
        let mut chunks = Vec::new();
        encoder.encode(batch, self.origin(), &self.buffers, describe_row, |chunk| {
            chunks.push(chunk)
        })?;
        for chunk in chunks {
            self.samples += chunk.samples() as u64;
            self.push_chunk(chunk, cancel)?;
        }
        Ok(())
    }

    /// Hands over full shards to the worker threads. Waits while too many shards are unfinished; returns at once if no
    /// shard is full.
    ///
    /// # Errors
    ///
    /// Returns the error of an earlier shard that could not be written, or `Interrupted` if `cancel` returns `false`.
    /// Both close the writer. Returns `InvalidInput` if the writer is closed.
    pub fn pack(&mut self, cancel: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        if self.closed {
            return Err(error::closed());
        }
        self.open.truncate(self.start);
        if self.ends.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.open);
        let ends = std::mem::take(&mut self.ends);
        self.ends.reserve(ends.len());
        self.start = 0;
        let mut origin = self.origin();
        origin.first = origin.first.saturating_sub(ends.len() as u64);
        let chunk = Chunk::new(bytes, ends, origin, &self.buffers);
        self.push_chunk(chunk, cancel)
    }

    fn push_chunk(&mut self, chunk: Chunk, cancel: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        let full = self.packer.push(chunk, |row| format!("row {row}"));
        for shard in full.inspect_err(|_| self.closed = true)? {
            self.write(shard, cancel)
                .inspect_err(|_| self.closed = true)?;
        }
        let (shard, bytes) = (self.packer.next_shard(), self.packer.open_bytes());
        if bytes > u64::from(u32::MAX) {
            // Offsets have 32 bits. The original writer overflows here.
            self.closed = true;
            return Err(error::not_encoded(shard, MdsError::shard_too_large(bytes)));
        }
        Ok(())
    }

    /// Finishes all shards, waits until they are published, and publishes the index. The index exists once this
    /// returns. No samples can be added afterwards.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`pack`](Self::pack), or [`StorageError::Exists`](shardmill_storage::StorageError::Exists)
    /// if an index already exists.
    pub fn finish(&mut self, cancel: &mut dyn FnMut() -> bool) -> Result<Index, Error> {
        self.pack(cancel)?;
        self.closed = true;
        if let Some(shard) = self.packer.finish() {
            self.write(shard, cancel)?;
        }
        let shards = self.settled(cancel);
        self.close(shards.is_err());
        self.buffers = BufferPool::new(0);
        let index = Index { shards: shards? };
        let SampleShards { dir, durable, .. } = &self.pool.client;
        publish_last(dir, &index, *durable)?;
        Ok(index)
    }

    /// Hands a shard to the pool, and starts its threads with the first one.
    fn write(&mut self, shard: CutShard, cancel: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.pool.accept(shard, cancel)?;
        let limits = self.pool.limits;
        while self.threads.len() < limits.jobs + limits.publishers {
            let pool = Arc::clone(&self.pool);
            pool.add_thread();
            let builder = std::thread::Builder::new().name("shardmill-write".to_owned());
            match builder.spawn(move || pool.work()) {
                Ok(thread) => self.threads.push(thread),
                Err(source) => {
                    self.pool.remove_thread();
                    // Existing threads can do the work.
                    if self.threads.is_empty() {
                        let reason = "no thread could be started";
                        return Err(WriteProblem::Thread.error(reason).because(source));
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits until all shards are published, and returns their entries in order.
    fn settled(&self, cancel: &mut dyn FnMut() -> bool) -> Result<Vec<ShardEntry>, Error> {
        self.pool.wait(cancel, PoolState::is_settled).map(drop)?;
        let entries = self.pool.client.entries.of_split(0, 0)?.into_iter();
        let entries = entries.map(|(entry, _)| entry.streaming().cloned());
        entries
            .collect::<Option<_>>()
            .ok_or_else(|| error::internal("a shard of another form"))
    }

    /// Ends the threads. With `discard`, shards that are not published yet are discarded.
    fn close(&mut self, discard: bool) {
        self.pool.close(discard);
        if self.pool.wait_for_threads(STOP_TIMEOUT) {
            for thread in self.threads.drain(..) {
                // A thread that panicked has stored an error.
                let _ = thread.join();
            }
        }
    }

    /// Stops without an index and discards unfinished shards. Waits up to two seconds until each thread has ended its
    /// current step.
    pub fn abort(&mut self) {
        self.closed = true;
        self.close(true);
    }

    /// Waits until all full shards are published, and returns their entries in order.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`pack`](Self::pack).
    pub fn shards(&mut self, cancel: &mut dyn FnMut() -> bool) -> Result<Vec<ShardEntry>, Error> {
        self.pack_rest(cancel)?;
        self.settled(cancel)
    }

    /// Returns the samples of the shard that is being filled, in order.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`pack`](Self::pack).
    pub fn open_samples(
        &mut self,
        cancel: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Vec<u8>>, Error> {
        self.pack_rest(cancel)?;
        Ok(self.packer.open_samples())
    }

    /// Returns the size of the shard that is being filled, as the size limit counts it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`pack`](Self::pack).
    pub fn open_bytes(&mut self, cancel: &mut dyn FnMut() -> bool) -> Result<u64, Error> {
        self.pack_rest(cancel)?;
        Ok(self.packer.open_bytes())
    }

    /// Packs the samples that are left, if the writer is open.
    fn pack_rest(&mut self, cancel: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        match self.closed {
            true => Ok(()),
            false => self.pack(cancel),
        }
    }

    /// Returns the number of added samples.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns a queue of published shard files, for a thread that processes them.
    #[must_use]
    pub fn published(&self) -> PublishedFiles {
        PublishedFiles(Arc::clone(&self.pool))
    }

    fn origin(&self) -> Origin {
        Origin {
            first: self.samples,
            ..Origin::default()
        }
    }
}

impl Drop for SampleWriter {
    fn drop(&mut self) {
        self.close(true);
    }
}

/// The published shards of a [`SampleWriter`].
struct SampleShards {
    dir: Dir,
    durable: bool,
    entries: Entries,
    /// The names of published files that [`PublishedFiles::next`] has not returned yet.
    names: Mutex<VecDeque<String>>,
}

impl PoolClient for SampleShards {
    type Task = Infallible;

    fn pick(&self, _: usize) -> NextTask<Infallible> {
        NextTask::Wait
    }

    fn run(&self, task: Infallible) -> Result<Vec<CutShard>, Error> {
        match task {}
    }

    fn temps(&self) -> Temps<'_> {
        Temps::Dir(&self.dir)
    }

    fn publish(&self, shard: FinishedShard, _: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        let mut names = Vec::with_capacity(shard.files.len());
        for (name, temp) in shard.files {
            // A file of another writer must not be replaced: its index may already exist.
            temp.publish_pending(&name, PublishMode::CreateNew, self.durable)?;
            names.push(name);
        }
        let span = shard.span;
        self.entries
            .add((span.split, span.shard), shard.entry, span.content);
        let mut published = lock(&self.names);
        published.extend(names);
        Ok(())
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn samples(&self) -> u64 {
        self.entries.samples()
    }
}

/// The published files of a dataset that is being written.
#[derive(Debug)]
pub struct PublishedFiles(Arc<ShardPool<SampleShards>>);

impl PublishedFiles {
    /// Waits for published files and returns their names, at least one. Returns `None` if no more files will follow.
    ///
    /// Each call returns the files since the previous call. A data file precedes its meta file.
    #[must_use]
    pub fn next(&self) -> Option<Vec<String>> {
        self.0.wait_for(|state| {
            let names = &self.0.client.names;
            let mut names = lock(names);
            match names.is_empty() {
                false => Some(Some(names.drain(..).collect())),
                true => state.is_closing().then_some(None),
            }
        })
    }
}
