//! Writes samples that the caller encodes, one at a time, into shards.

mod worker_pool;

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use shardmill_mds::{Index, MdsError, ShardConfig, ShardEntry};
use shardmill_storage::Dir;

use crate::chunk::{BufferPool, Chunk, Origin};
use crate::error::WriteError;
use crate::form::ShardForm;
use crate::index::publish_last;
use crate::pack::Packer;
use crate::rows::{CHUNK_BYTES, RowEncoder};
use crate::shard::ShardKind;
pub use worker_pool::PublishedFiles;
use worker_pool::WorkerPool;

/// The maximum number of buffers kept for reuse. This is enough for one shard of 64 MiB that is being filled and seven
/// that are being finished.
const SPARE_BUFFERS: usize = 256;

/// The maximum size of unfinished shards in bytes. Two shards are always allowed if there are two threads.
const UNFINISHED_BYTES: u64 = 2 << 30;

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
/// use shardmill_storage::Dir;
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
    worker_pool: WorkerPool,
    packer: Packer,
    pool: Arc<BufferPool>,
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
        Self {
            worker_pool: WorkerPool::new(
                dir,
                ShardKind::final_only(form),
                jobs,
                unfinished,
                options.durable,
            ),
            packer,
            pool: BufferPool::new(SPARE_BUFFERS),
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
            self.open = self.pool.take(0);
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
    /// Returns [`WriteError::SampleTooLarge`] and leaves the sample out, or returns [`WriteError::Closed`].
    pub fn end(&mut self) -> Result<bool, WriteError> {
        if self.closed {
            return Err(WriteError::Closed);
        }
        let bytes = to_u64(self.open.len().saturating_sub(self.start));
        let end = match u32::try_from(self.open.len()) {
            Ok(end) if bytes <= self.sample_limit => end,
            _ => {
                self.open.truncate(self.start);
                return Err(WriteError::SampleTooLarge {
                    row: self.samples.to_string(),
                    bytes,
                    limit: self.sample_limit,
                });
            }
        };
        self.start = self.open.len();
        self.ends.push(end);
        self.samples += 1;
        // The number of samples is limited too, because empty samples add no bytes.
        Ok(self.open.len() >= CHUNK_BYTES || self.ends.len() >= CHUNK_BYTES / 4)
    }

    /// Adds one encoded sample. Waits while too many shards are unfinished, and calls `go_on` regularly during the
    /// wait.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`end`](Self::end) and [`pack`](Self::pack).
    pub fn push(
        &mut self,
        sample: &[u8],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), WriteError> {
        self.begin().extend_from_slice(sample);
        if self.end()? {
            self.pack(go_on)?;
        }
        Ok(())
    }

    /// Adds all rows of a batch, or none of them if one cannot be encoded.
    ///
    /// `encoder` must have the layout of this writer. `place` describes the location of a row for messages.
    ///
    /// # Errors
    ///
    /// Returns [`WriteError::Value`], [`WriteError::Null`], [`WriteError::SampleTooLarge`], or the errors of
    /// [`pack`](Self::pack).
    pub fn push_batch(
        &mut self,
        encoder: &RowEncoder,
        batch: &RecordBatch,
        place: impl Fn(usize) -> String,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), WriteError> {
        self.pack(go_on)?;
        let mut chunks = Vec::new();
        encoder.encode(batch, self.origin(), &self.pool, place, |chunk| {
            chunks.push(chunk)
        })?;
        for chunk in chunks {
            self.samples += to_u64(chunk.samples());
            self.push_chunk(chunk, go_on)?;
        }
        Ok(())
    }

    /// Hands over full shards to the worker threads. Waits while too many shards are unfinished; returns at once if no
    /// shard is full.
    ///
    /// # Errors
    ///
    /// Returns the error of an earlier shard that could not be written, or [`WriteError::Interrupted`] if `go_on`
    /// returns `false`. Both close the writer. Returns [`WriteError::Closed`] if the writer is closed.
    pub fn pack(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<(), WriteError> {
        if self.closed {
            return Err(WriteError::Closed);
        }
        self.open.truncate(self.start);
        if self.ends.is_empty() {
            return Ok(());
        }
        let (bytes, ends) = (
            std::mem::take(&mut self.open),
            std::mem::take(&mut self.ends),
        );
        self.ends.reserve(ends.len());
        self.start = 0;
        let mut origin = self.origin();
        origin.first = origin.first.saturating_sub(to_u64(ends.len()));
        let chunk = Chunk::new(bytes, ends, origin, &self.pool);
        self.push_chunk(chunk, go_on)
    }

    fn push_chunk(
        &mut self,
        chunk: Chunk,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), WriteError> {
        let full = self.packer.push(chunk, |row| row.to_string());
        for shard in full.inspect_err(|_| self.closed = true)? {
            self.worker_pool
                .finish(shard, go_on)
                .inspect_err(|_| self.closed = true)?;
        }
        let (shard, bytes) = (self.packer.next_shard(), self.packer.open_bytes());
        if bytes > u64::from(u32::MAX) {
            // Offsets have 32 bits. The original writer overflows here.
            self.closed = true;
            let source = MdsError::ShardTooLarge { bytes };
            return Err(WriteError::Format { shard, source });
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
    pub fn finish(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<Index, WriteError> {
        self.pack(go_on)?;
        self.closed = true;
        if let Some(shard) = self.packer.finish() {
            self.worker_pool.finish(shard, go_on)?;
        }
        let shards = self.worker_pool.end(go_on)?;
        self.pool = BufferPool::new(0);
        let index = Index { shards };
        publish_last(self.worker_pool.dir(), &index, self.worker_pool.durable())?;
        Ok(index)
    }

    /// Stops without an index and discards unfinished shards. Waits up to two seconds until each thread has ended its
    /// current step.
    pub fn abort(&mut self) {
        self.closed = true;
        self.worker_pool.stop();
    }

    /// Waits until all full shards are published, and returns their entries in order.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`pack`](Self::pack).
    pub fn shards(
        &mut self,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<ShardEntry>, WriteError> {
        if !self.closed {
            self.pack(go_on)?;
        }
        self.worker_pool.settled(go_on)
    }

    /// Returns the samples of the shard that is being filled, in order.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`pack`](Self::pack).
    pub fn open_samples(
        &mut self,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Vec<u8>>, WriteError> {
        if !self.closed {
            self.pack(go_on)?;
        }
        Ok(self.packer.open_samples())
    }

    /// Returns the size of the shard that is being filled, as the size limit counts it.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`pack`](Self::pack).
    pub fn open_bytes(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<u64, WriteError> {
        if !self.closed {
            self.pack(go_on)?;
        }
        Ok(self.packer.open_bytes())
    }

    /// Returns the number of added samples.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns a queue of published shard files, for a thread that processes them.
    #[must_use]
    pub fn published(&self) -> PublishedFiles {
        self.worker_pool.published()
    }

    fn origin(&self) -> Origin {
        Origin {
            split: 0,
            unit: 0,
            first: self.samples,
        }
    }
}

fn to_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
