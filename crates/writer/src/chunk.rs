//! Chunks of encoded samples, and the pool of their buffers.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::record_batch::RecordBatch;
use shardmill_core::lock;

use crate::input::RowNumbers;
use shardmill_mds::Content;

/// A sequence of encoded samples in source order.
///
/// The thread that decoded the batch creates the chunk. Its bytes are never copied again, because shards are slices of
/// chunks. Samples of tables are not encoded yet: their chunk holds the rows, and the positions of samples count the sizes
/// of the rows.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    len: usize,
    /// The end of each sample.
    ends: Vec<u32>,
    pub(crate) origin: Origin,
    /// The hashes of the keys of tar samples, if keys must be checked for uniqueness.
    pub(crate) keys: Vec<u128>,
    /// The content of each sample; empty unless [`note_contents`](Self::note_contents) was called.
    pub(crate) contents: Vec<Content>,
    /// The row numbers of the samples, if `keys` is not empty.
    pub(crate) rows: Option<RowNumbers>,
    /// The rows, if the samples belong to a table.
    table: Option<RecordBatch>,
    pool: Arc<BufferPool>,
}

/// The source of the samples of a chunk, and the split they belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The split that the samples belong to.
    pub(crate) split: usize,
    /// The unit of the input.
    pub(crate) unit: usize,
    /// The position of the first sample among the samples of this unit that belong to the split.
    pub(crate) first: u64,
}

impl Chunk {
    /// Creates a chunk of the first `ends.last()` bytes of `bytes`.
    pub(crate) fn new(
        bytes: Vec<u8>,
        ends: Vec<u32>,
        origin: Origin,
        pool: &Arc<BufferPool>,
    ) -> Self {
        let len = ends.last().map_or(0, |end| *end as usize);
        pool.live.fetch_add(len as u64, Ordering::Relaxed);
        Self {
            bytes,
            len,
            ends,
            origin,
            keys: Vec::new(),
            contents: Vec::new(),
            rows: None,
            table: None,
            pool: Arc::clone(pool),
        }
    }

    /// Creates a chunk of the rows of a table. `ends` are the sums of their sizes. No row has the size 0.
    pub(crate) fn of_table(
        rows: RecordBatch,
        ends: Vec<u32>,
        origin: Origin,
        pool: &Arc<BufferPool>,
    ) -> Self {
        let mut chunk = Self::new(Vec::new(), ends, origin, pool);
        chunk.table = Some(rows);
        chunk
    }

    /// Returns the rows of a table in a range of sizes.
    pub(crate) fn table_rows(&self, range: Range<usize>) -> Option<RecordBatch> {
        let row = |at: usize| {
            let is_before = |end: &u32| usize::try_from(*end).is_ok_and(|end| end <= at);
            self.ends.partition_point(is_before)
        };
        let rows = row(range.start)..row(range.end);
        Some(self.table.as_ref()?.slice(rows.start, rows.len()))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn samples(&self) -> usize {
        self.ends.len()
    }

    /// Returns the end of sample `sample`, which is the start of the next one.
    pub(crate) fn end(&self, sample: usize) -> u32 {
        self.ends[sample]
    }

    /// Returns the bytes of a sample, to change them before the chunk is shared.
    pub(crate) fn sample_mut(&mut self, sample: usize) -> &mut [u8] {
        let begin = match sample.checked_sub(1) {
            Some(before) => self.ends[before] as usize,
            None => 0,
        };
        &mut self.bytes[begin..self.ends[sample] as usize]
    }

    /// Computes the content of each sample, except in a table. Must run before samples get their numbers, which change the bytes.
    pub(crate) fn note_contents(&mut self) {
        if self.table.is_some() {
            return;
        }
        let mut begin = 0;
        let contents = self.ends.iter().map(|end| {
            let end = *end as usize;
            let content = Content::of(&self.bytes[begin..end]);
            begin = end;
            content
        });
        self.contents = contents.collect();
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let bytes = self.len as u64;
        self.pool.live.fetch_sub(bytes, Ordering::Relaxed);
        self.pool.give(std::mem::take(&mut self.bytes));
    }
}

/// A pool of reusable buffers. A new buffer would cost a page fault every 4 KiB.
#[derive(Debug)]
pub(crate) struct BufferPool {
    free: Mutex<Vec<Vec<u8>>>,
    live: AtomicU64,
    keep: usize,
}

impl BufferPool {
    /// Creates a pool that keeps at most `keep` unused buffers.
    pub(crate) fn new(keep: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::default(),
            live: AtomicU64::new(0),
            keep,
        })
    }

    /// Returns a buffer of at least `len` bytes with arbitrary contents.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let mut buffer = {
            let mut free = lock(&self.free);
            match free.iter().rposition(|buffer| buffer.len() >= len) {
                Some(at) => free.swap_remove(at),
                None => free.pop().unwrap_or_default(),
            }
        };
        if buffer.len() < len {
            // A new allocation avoids copying the old contents.
            if buffer.capacity() < len {
                buffer = Vec::new();
            }
            buffer.resize(len, 0);
        }
        buffer
    }

    fn give(&self, buffer: Vec<u8>) {
        let mut free = lock(&self.free);
        if free.len() < self.keep && buffer.capacity() > 0 {
            free.push(buffer);
        }
    }

    /// Returns the size of the encoded samples in memory, in bytes.
    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_chunk_returns_its_buffer_to_the_pool() {
        let pool = BufferPool::new(4);
        let origin = Origin::default();
        let buffer = pool.take(1000);
        let address = buffer.as_ptr();
        let chunk = Chunk::new(buffer, vec![10, 30], origin, &pool);
        assert_eq!((chunk.len(), chunk.samples(), pool.live()), (30, 2, 30));
        drop(chunk);
        assert_eq!(pool.live(), 0);
        let again = pool.take(900);
        assert_eq!(again.as_ptr(), address, "the same memory again");
    }
}
