//! Samples that somebody else encodes, one at a time, into shards.

mod worker_pool;

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use shardmill_mds::{Index, ShardConfig, ShardEntry, ShardError};
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

/// Most buffers that are kept for the next samples: those of a shard of 64 MiB that is filled and of seven that are
/// finished.
const SPARE_BUFFERS: usize = 256;

/// Bytes of shards that may be unfinished at a time, beyond two shards.
const UNFINISHED_BYTES: u64 = 2 << 30;

/// What a [`SampleWriter`] may use.
#[derive(Clone, Copy, Debug)]
pub struct SampleOptions {
    /// Threads that compute, and shards that may be unfinished; fewer shards where they would take more than 2 GiB.
    pub jobs: usize,
    /// Most bytes of a sample.
    pub sample_limit: u64,
    /// Whether files are brought to the disk before they get their names. For what is going to be uploaded and removed
    /// that is not worth the while.
    pub durable: bool,
}

/// Writes encoded samples as a dataset: cuts them into shards as the original does, finishes and publishes the shards
/// in threads of its own, and publishes the index last.
///
/// No file is replaced: a directory that holds shards ends it with
/// [`StorageError::Exists`](shardmill_storage::StorageError::Exists). So of several writers in one directory the one whose
/// first shard is published first gets on, and the others end.
///
/// Threads are started by the first shard that is full. Dropped without [`finish`](Self::finish), the writer publishes
/// nothing more and leaves no temporary file; shards that have their names keep them.
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
    /// Samples that are not packed yet, end to end.
    open: Vec<u8>,
    ends: Vec<u32>,
    /// Where the sample begins that is being added to `open`.
    start: usize,
    samples: u64,
    closed: bool,
}

impl SampleWriter {
    /// A writer of a dataset in `dir`, of shards of that configuration.
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

    /// Where the next sample is to be appended. What is appended becomes a sample by [`end`](Self::end); what was there
    /// before must stay.
    ///
    /// PERF: a sample is encoded where it stays until it is in a file, so this is its one copy.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        self.open.truncate(self.start);
        if self.open.capacity() == 0 {
            self.open = self.pool.take(0);
            self.open.clear();
            self.open.reserve(CHUNK_BYTES);
        }
        &mut self.open
    }

    /// Ends the sample that was appended to [`begin`](Self::begin). `true`: it is time for [`pack`](Self::pack).
    ///
    /// # Errors
    ///
    /// [`WriteError::SampleTooLarge`]: the sample is left out. [`WriteError::Closed`].
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
        // Samples without bytes must not wait for ever either.
        Ok(self.open.len() >= CHUNK_BYTES || self.ends.len() >= CHUNK_BYTES / 4)
    }

    /// Adds one encoded sample; waits while too many shards are unfinished. `go_on` is asked now and then while it waits.
    ///
    /// # Errors
    ///
    /// As [`end`](Self::end) and [`pack`](Self::pack).
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

    /// Adds all rows of a batch, or none of them when one cannot be encoded. `encoder` is for the layout of this writer;
    /// `place` names a row for a person.
    ///
    /// # Errors
    ///
    /// [`WriteError::Value`], [`WriteError::Null`] and [`WriteError::SampleTooLarge`]; as [`pack`](Self::pack).
    pub fn push_batch(
        &mut self,
        encoder: &RowEncoder,
        batch: &RecordBatch,
        place: impl Fn(usize) -> String,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), WriteError> {
        self.pack(go_on)?;
        let mut chunks = Vec::new();
        encoder
            .encode(batch, self.origin(), &self.pool, |chunk| chunks.push(chunk))
            .map_err(|error| error.locate(encoder, place))?;
        for chunk in chunks {
            self.samples += to_u64(chunk.samples());
            self.push_chunk(chunk, go_on)?;
        }
        Ok(())
    }

    /// Hands over what is full. Waits while too many shards are unfinished; answers at once where none is full.
    ///
    /// # Errors
    ///
    /// What kept a shard from being written, whenever that was; then, and when `go_on` says no
    /// ([`WriteError::Interrupted`]), the writer is closed. [`WriteError::Closed`].
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
        let mut full = Vec::new();
        let packed = self.packer.push(chunk, |shard| full.push(shard));
        if packed.is_err() {
            self.closed = true;
            return Err(WriteError::Bug {
                what: "samples without keys were refused for their keys",
            });
        }
        for shard in full {
            self.worker_pool
                .finish(shard, go_on)
                .inspect_err(|_| self.closed = true)?;
        }
        let (shard, bytes) = (self.packer.next_shard(), self.packer.open_bytes());
        if bytes > u64::from(u32::MAX) {
            // Offsets have 32 bits; the original wraps around.
            self.closed = true;
            let source = ShardError::TooLarge { bytes };
            return Err(WriteError::Format { shard, source });
        }
        Ok(())
    }

    /// Finishes all shards, waits until they are published, and publishes the index, which exists once this returns.
    /// Nothing can be added afterwards.
    ///
    /// # Errors
    ///
    /// As [`pack`](Self::pack); [`StorageError::Exists`](shardmill_storage::StorageError::Exists) when there is an index
    /// already.
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

    /// Stops without an index: what is unfinished is discarded. Waits for the step of a shard that each thread is at.
    pub fn abort(&mut self) {
        self.closed = true;
        self.worker_pool.stop();
    }

    /// The shards so far, once all that are full are published, in order.
    ///
    /// # Errors
    ///
    /// As [`pack`](Self::pack).
    pub fn shards(
        &mut self,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<ShardEntry>, WriteError> {
        if !self.closed {
            self.pack(go_on)?;
        }
        self.worker_pool.settled(go_on)
    }

    /// The samples of the shard that is being filled, in order.
    ///
    /// # Errors
    ///
    /// As [`pack`](Self::pack).
    pub fn open_samples(
        &mut self,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Vec<u8>>, WriteError> {
        if !self.closed {
            self.pack(go_on)?;
        }
        Ok(self.packer.open_samples())
    }

    /// The bytes of the shard that is being filled as the size limit counts them.
    ///
    /// # Errors
    ///
    /// As [`pack`](Self::pack).
    pub fn open_bytes(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<u64, WriteError> {
        if !self.closed {
            self.pack(go_on)?;
        }
        Ok(self.packer.open_bytes())
    }

    /// Samples that were added.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// The files of shards as they are published, for a thread that does something with them.
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
