//! Memory that a reader of shards needs and safe Rust does not give: files mapped into the address space, and aligned
//! buffers that are used again.
//!
//! This is the one crate of the workspace with `unsafe` code. It decides how a file that is cut while it is mapped
//! becomes an error instead of a signal that ends the process, and who owns a buffer. It knows nothing of shards.
//!
//! The model:
//!
//! - A [`Mapping`] shows the bytes of a file without copying them. Where pages vanish, because somebody cuts the file
//!   short or the disk fails, the bytes read as zeros and [`Mapping::is_damaged`] says so from then on. Whoever has used
//!   the bytes asks afterwards; [`damages`] tells cheaply whether asking is needed at all.
//! - A [`Buffer`] holds bytes from an address that is a multiple of 64 on, as vector instructions and tensor libraries
//!   like it. One that was taken from a [`Pool`] returns there when it is dropped, in whichever thread: fresh memory
//!   costs a page fault every 4 KiB, memory that was used before costs none.
//! - [`begin_writeback`] is the one call of the system here that has nothing to do with memory of ours: no safe wrapper has it.
//!
//! ```
//! use std::os::fd::AsFd as _;
//! use shardmill_memory::{Mapping, Pool};
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
mod sigbus;
mod writeback;

pub use buffer::{ALIGNMENT, Buffer, Pool};
pub use mapping::Mapping;
pub use sigbus::damages;
pub use writeback::begin_writeback;
