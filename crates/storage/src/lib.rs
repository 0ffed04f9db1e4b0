//! Opening files by names that came from data, publishing files so that a reader sees all or nothing, and fetching
//! objects from a store and putting them there so that what arrives is whole.
//!
//! This crate decides how a name becomes an open file (reliability rule S4), what has to happen before a
//! file counts as published (P2, P8), how two writers of one directory notice each other (P7), and what is tried again
//! when a store or the network fails (V3, V4, N1 to N5). It leaves what is in the files, when to publish or fetch them
//! and in which order to its callers. Names are relative to a directory or to a prefix of a bucket.
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
//! - A [`Claim`] is how processes of one machine agree on a file: who makes it, who reads it, who may remove it.
//! - A [`Lease`] is the claim of one writer on a folder, released by the kernel when the process ends.
//! - A [`Place`] is a directory or a prefix in a store, written to in the same way, with a [`PlaceLease`] and a
//!   [`PlaceLog`] that do not tell either.
//! - A [`Location`] is a path or a prefix in a store, and a [`Remote`] reads whole objects and ranges beneath one, puts
//!   objects there and lists them. Stores differ in how they are spoken to, and in nothing else.
//! - A [`Folder`] is a directory or a prefix in a store to read a dataset from, by the same names.
//! - A [`Manifest`] is a listing as a file, of as many objects as there are. [`probe`] says what a location is good for.
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
mod claim;
mod dir;
mod error;
mod fault;
mod file;
mod folder;
mod heartbeat;
mod lease;
mod lease_store;
mod location;
mod log;
mod place;
mod probe;
mod remote;
mod remove;
mod resolve;
mod temp;
#[cfg(test)]
mod tests;
mod tree;

pub use append::AppendFile;
pub use claim::{Claim, ClaimMode, ClaimState};
pub use dir::{Dir, Entry, EntryKind, Space};
pub use error::StorageError;
pub use fault::{ProfileFault, RemoteFault, UrlFault};
pub use file::{FileBirth, FileHandle, FileIdentity, FileReader, read_file};
pub use folder::{Folder, StoreFolder, Stored, StoredObject};
pub use heartbeat::LeaseWait;
pub use lease::Lease;
pub use lease_store::{LEASE_PATIENCE, PlaceLease};
pub use location::{Location, RemoteLocation, StoreKind};
pub use log::PlaceLog;
pub use place::{FileVersion, Place, PlaceEntry, StorePlace};
pub use probe::{ProbeAction, ProbeOutcome, ProbeReport, ProbeStep, ProbeVerdict, probe};
pub use remote::{
    Fetching, GoOn, ListOptions, ListReport, Manifest, ManifestEntries, ManifestEntry, Remote,
    RemoteObject, RemoteOptions, RemoteStats, SETTINGS, random_number, settings_of,
};
pub use temp::{PublishMode, TempFile};
