//! Memory-mapped files and aligned, reusable buffers.
//!
//! This is the only crate of the workspace with `unsafe` code. It turns the `SIGBUS` signal of a truncated mapped file
//! into an error that callers can check, and it manages the ownership of buffers. It is independent of shard formats.
//!
//! - A [`Mapping`] gives access to the bytes of a file without copying them. If pages disappear, because the file was
//!   truncated or the disk failed, their bytes read as zeros and [`Mapping::is_damaged`] returns true from then on.
//!   Callers check it after they have used the bytes.
//! - A [`Buffer`] holds bytes at an address that is a multiple of 64, for vector instructions and tensor libraries. A
//!   buffer from a [`Pool`] returns to it when any thread drops it. New memory costs a page fault every 4 KiB; reused
//!   memory costs none.
//! - [`begin_writeback`] and [`lock_byte`] are the only system calls here that are unrelated to memory. No safe wrappers
//!   for them exist.
//!
//! ```
//! use std::os::fd::AsFd as _;
//! use shardmill_mmap::{Mapping, Pool};
//!
//! # let mut file = tempfile::tempfile()?;
//! # std::io::Write::write_all(&mut file, b"four")?;
//! let mapping = Mapping::new(file.as_fd(), 4)?;
//! let pool = Pool::new(1 << 20);
//! let mut buffer = pool.take(4)?;
//! buffer.extend_from_slice(mapping.bytes())?;
//! assert!(!mapping.is_damaged());
//! assert_eq!(buffer.as_slice(), b"four");
//! # Ok::<(), std::io::Error>(())
//! ```

mod buffer;
mod mapping;
mod range_lock;
mod sigbus;
mod writeback;

pub use buffer::{ALIGNMENT, Buffer, Pool};
pub use mapping::Mapping;
pub use range_lock::{RangeLock, lock_byte};
pub use writeback::begin_writeback;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
