//! Aligned buffers, and the pool that reuses them.

use std::alloc::{Layout, alloc, dealloc};
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The alignment of buffers in bytes.
pub const ALIGNMENT: usize = 64;

/// A memory allocation without content.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: this value is the only owner of the memory.
unsafe impl Send for Block {}
// SAFETY: a shared block gives no access to its memory.
unsafe impl Sync for Block {}

impl Block {
    fn new(bytes: usize) -> io::Result<Self> {
        let none = || io::Error::from(io::ErrorKind::OutOfMemory);
        let layout = layout(bytes).ok_or_else(none)?;
        if bytes == 0 {
            return Ok(Self {
                start: NonNull::<Line>::dangling().cast(),
                bytes,
            });
        }
        // SAFETY: the layout has a size.
        let start = NonNull::new(unsafe { alloc(layout) }).ok_or_else(none)?;
        Ok(Self { start, bytes })
    }
}

/// A type with the size and alignment of a cache line.
#[repr(align(64))]
struct Line;

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, ALIGNMENT).ok()
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.bytes)
            && self.bytes > 0
        {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// Bytes at an aligned address. A buffer grows as needed; one from a [`Pool`] returns its memory when it is dropped.
#[derive(Debug)]
pub struct Buffer {
    /// `None` only during `drop`.
    block: Option<Block>,
    /// INVARIANT: this many bytes from the start of the block are initialised.
    len: usize,
    pool: Weak<Pool>,
}

impl Buffer {
    /// Creates an empty buffer with capacity for `bytes`, without a pool.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the allocation fails.
    pub fn with_capacity(bytes: usize) -> io::Result<Self> {
        Ok(Self {
            block: Some(Block::new(bytes)?),
            len: 0,
            pool: Weak::new(),
        })
    }

    fn block(&self) -> (NonNull<u8>, usize) {
        match &self.block {
            Some(block) => (block.start, block.bytes),
            None => (NonNull::<Line>::dangling().cast(), 0),
        }
    }

    /// Returns the number of bytes in the buffer.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the capacity in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.block().1
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` bytes are initialised, and the borrow of `self` prevents writes.
        unsafe { std::slice::from_raw_parts(self.block().0.as_ptr(), self.len) }
    }

    /// Returns the address of the bytes. It stays the same until the buffer grows or is dropped.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.block().0.as_ptr()
    }

    /// Removes the content and keeps the capacity.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends bytes.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the buffer cannot grow; it is unchanged then.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (start, capacity) = self.block();
        if bytes.len() > capacity - self.len {
            return self.grow_and_extend(bytes);
        }
        // SAFETY: the block has space for the bytes after the initialised ones. The ranges do not overlap, because
        // `self` is borrowed mutably and owns the block.
        unsafe {
            let to = start.as_ptr().add(self.len);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        self.len += bytes.len();
        Ok(())
    }

    #[cold]
    fn grow_and_extend(&mut self, bytes: &[u8]) -> io::Result<()> {
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let wanted = self.len.checked_add(bytes.len()).ok_or_else(too_much)?;
        let wanted = wanted.max(self.capacity().saturating_mul(2)).max(256);
        let mut larger = match self.pool.upgrade() {
            Some(pool) => pool.take(wanted)?,
            None => Self::with_capacity(wanted)?,
        };
        larger.extend_from_slice(self.as_slice())?;
        // Dropping `larger` returns the old memory to the pool.
        std::mem::swap(self, &mut larger);
        self.extend_from_slice(bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take()
            && let Some(pool) = self.pool.upgrade()
        {
            pool.give_back(block);
        }
    }
}

/// Memory of dropped buffers, kept for reuse.
#[derive(Debug)]
pub struct Pool {
    /// The process that created the pool. A forked child does not use it: a thread of the parent may have held the
    /// lock.
    process: u32,
    free: Mutex<Free>,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Free {
    /// Sorted by size.
    blocks: Vec<Block>,
    bytes: usize,
}

impl Pool {
    /// Creates a pool that keeps at most `max_bytes` of free memory.
    #[must_use]
    pub fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            process: std::process::id(),
            free: Mutex::default(),
            max_bytes,
        })
    }

    /// Returns whether another process created the pool, which was then inherited by a fork.
    fn is_elsewhere(&self) -> bool {
        self.process != std::process::id()
    }

    /// Returns an empty buffer with capacity for `bytes`, and reuses memory of about that size if the pool has some.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the allocation fails.
    pub fn take(self: &Arc<Self>, bytes: usize) -> io::Result<Buffer> {
        let kept = if self.is_elsewhere() {
            None
        } else {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let at = free.blocks.partition_point(|block| block.bytes < bytes);
            // A block of more than twice the size would waste memory.
            let fits = free
                .blocks
                .get(at)
                .is_some_and(|block| block.bytes / 2 <= bytes);
            let block = fits.then(|| free.blocks.remove(at));
            free.bytes -= block.as_ref().map_or(0, |block| block.bytes);
            block
        };
        let block = match kept {
            Some(block) => block,
            // Round up in steps of at most an eighth, so that batches of similar size share memory.
            None => {
                let step = (bytes.max(1 << 9).next_power_of_two() / 16).max(ALIGNMENT);
                Block::new(bytes.checked_next_multiple_of(step).unwrap_or(bytes))?
            }
        };
        Ok(Buffer {
            block: Some(block),
            len: 0,
            pool: Arc::downgrade(self),
        })
    }

    fn give_back(&self, block: Block) {
        if self.is_elsewhere() {
            return;
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if block.bytes == 0 || block.bytes > self.max_bytes - free.bytes {
            return;
        }
        free.bytes += block.bytes;
        let at = free.blocks.partition_point(|kept| kept.bytes < block.bytes);
        free.blocks.insert(at, block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_aligned_and_keeps_bytes_when_growing() {
        let pool = Pool::new(1 << 20);
        for mut buffer in [Buffer::with_capacity(0).unwrap(), pool.take(3).unwrap()] {
            let mut expected = Vec::new();
            for number in 0..2000_usize {
                let text = vec![number.to_le_bytes()[0]; number % 70];
                buffer.extend_from_slice(&text).unwrap();
                expected.extend_from_slice(&text);
                assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            }
            assert_eq!(buffer.as_slice(), expected);
            assert!(buffer.capacity() >= buffer.len());
            buffer.clear();
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn pool_reuses_returned_memory_up_to_its_limit() {
        let pool = Pool::new(10_000);
        let first = pool.take(4000).unwrap();
        let address = first.as_ptr() as usize;
        drop(first);
        assert!(pool.free.lock().unwrap().bytes >= 4000);
        let second = pool.take(3900).unwrap();
        assert_eq!(second.as_ptr() as usize, address);
        assert_eq!(pool.free.lock().unwrap().bytes, 0);
        // Far larger than requested.
        drop(second);
        assert_ne!(pool.take(100).unwrap().as_ptr() as usize, address);
        // Memory beyond the pool's limit is freed.
        let many: Vec<Buffer> = (0..5).map(|_| pool.take(4000).unwrap()).collect();
        drop(many);
        assert!(pool.free.lock().unwrap().bytes <= 10_000);
    }

    #[test]
    fn buffer_outlives_its_pool() {
        let pool = Pool::new(1000);
        let mut buffer = pool.take(10).unwrap();
        drop(pool);
        buffer.extend_from_slice(&[1; 500]).unwrap();
        assert_eq!(buffer.as_slice(), [1; 500]);
    }

    #[test]
    fn forked_child_does_not_wait_for_the_parent_lock() {
        // The state that a forked child sees: created by another process, and locked by a thread that does not exist.
        let pool = Arc::new(Pool {
            process: 0,
            free: Mutex::default(),
            max_bytes: 1000,
        });
        let guard = pool.free.lock().unwrap();
        let mut buffer = pool.take(10).unwrap();
        buffer.extend_from_slice(&[1; 500]).unwrap();
        assert_eq!(buffer.as_slice(), [1; 500]);
        drop(buffer);
        assert_eq!(guard.bytes, 0);
    }

    #[test]
    fn impossible_allocation_is_an_error() {
        assert!(Buffer::with_capacity(usize::MAX / 2 + 1).is_err());
    }
}
