//! Opening files by names that came from data, and publishing files so that a reader sees all or nothing.
//!
//! This crate decides how a name becomes an open file (reliability rule S4), what has to happen before a
//! file counts as published (P2, P8), and how two writers of one directory notice each other (P7). It leaves
//! what is in the files, when to publish them and in which order to its callers. It knows local disks;
//! methods take names relative to a directory so that an object store can offer the same ones.
//!
//! The model:
//!
//! - A [`Dir`] is a directory opened once, from a path the user gave. Symbolic links in *that* path are
//!   followed. Everything else is named relative to the handle, with `/` between the parts, and is resolved
//!   beneath it: no `..`, no symbolic link, nothing but regular files is ever opened.
//! - A [`FileHandle`] is a regular file with the length it had when it was opened. Reading notices when the
//!   file is no longer that long.
//! - A [`TempFile`] is invisible until [`TempFile::publish`] gives it its name, complete and on the disk.
//!   Dropped before that, it is gone.
//! - A [`Lease`] is the claim of one writer on a folder, released by the kernel when the process ends.
//!
//! ```
//! use std::io::Write as _;
//! use shardmill_storage::{Dir, PublishMode};
//!
//! # let root = tempfile::tempdir()?;
//! # let path = root.path().join("out");
//! let dir = Dir::create(&path)?;
//! let mut temp = dir.temp_file(None)?;
//! temp.write_all(b"four")?;
//! temp.publish("shard.00000.mds", PublishMode::CreateNew)?;
//! assert_eq!(dir.open_file("shard.00000.mds")?.read_all(1024)?, b"four");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Linux only features are used where they exist (`openat2`, `/proc`), with portable fallbacks.

mod append;
mod dir;
mod error;
mod file;
mod lease;
mod remove;
mod resolve;
mod temp;
#[cfg(test)]
mod tests;

pub use append::AppendFile;
pub use dir::{Dir, Entry, EntryKind};
pub use error::StorageError;
pub use file::{FileHandle, FileReader, read_file};
pub use lease::Lease;
pub use temp::{PublishMode, TempFile};
