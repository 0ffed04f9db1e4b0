//! Opens files by untrusted names, publishes files atomically, and transfers objects to and from stores with retries.
//!
//! This crate decides four things:
//!
//! - how a name becomes an open file
//! - when a file counts as published
//! - how two writers of one directory detect each other
//! - which failures of a store or of the network are retried
//!
//! Callers decide what the files contain, and when and in which order they are published or fetched. Names are relative
//! to a directory or to a prefix of a bucket.
//!
//! The model:
//!
//! - A [`Dir`] is a directory opened once, from a path that the user gave. Symbolic links in *that* path are followed.
//!   All other names are relative to the open directory, with `/` between the parts. They cannot leave it: names with
//!   `..`, symbolic links and anything but a regular file are refused.
//! - A [`FileHandle`] is an open regular file and the length it had when it was opened. Reads detect that the file has
//!   become shorter.
//! - A [`TempFile`] is invisible until [`TempFile::publish`] renames it. By then it is complete and synchronised to the
//!   disk. Dropping it earlier removes it.
//! - A [`Claim`] is a lock file by which the processes of one machine agree which of them creates, reads or removes a
//!   file. A [`ClaimTable`] holds many claims with one descriptor.
//! - A [`Lease`] is the exclusive right of one writer to a folder. The kernel releases it when the process ends.
//! - A [`Destination`] is a directory or a prefix in a store that files are published to. [`DestinationLease`] and
//!   [`DestinationLog`] have the same interface for both.
//! - A [`Location`] is a path or a prefix in a store. A [`Remote`] reads whole objects and ranges below a prefix,
//!   uploads objects and lists them. Stores differ in their protocols and in nothing else.
//! - A [`Folder`] is a directory or a prefix in a store that a dataset is read from, by the same names.
//! - A [`SortedListing`] is spooled to a file, so its number of objects is not limited by memory.
//! - [`probe`] reports what a location supports.
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
//! Features that only Linux has (`openat2`, `/proc`) are used where they exist, with portable fallbacks.

// The modules, from the bottom up: each uses only modules above it in this list.

mod entry; // Files and objects as listings describe them, and the kinds of stores.
mod heartbeat; // Whether a lease in a store is still held.
mod open_claims; // The open claims, which a forked child gives up.
mod random; // Random numbers.
mod resolve; // Opening a name below a directory without following links.

mod error; // The error of this crate.

mod file; // Open files.
mod file_limit; // How many files this process may have open.
mod location; // Paths and URLs.

mod dir;
mod dir_handle; // Descriptors of open directories. // Open directories.

mod append; // Files to which lines are appended.
mod claim; // Lock files of the processes of one machine.
mod claim_table; // Many claims in one lock file.
mod remove; // Removal of folders that shardmill created.
mod temp; // Files that are not published yet.

mod lease; // The lease of one writer on a directory.

mod remote; // Objects in stores.

mod destination; // Directories and prefixes that are written.
mod folder; // Directories and prefixes that are read.
mod tree; // All files below a directory.

mod lease_store; // The lease of one writer on a destination.
mod log; // Logs in a destination.
mod probe; // What a location supports.

#[cfg(test)]
mod tests;

pub use shardmill_core::CancelToken;

pub use append::AppendFile;
pub use claim::{Claim, ClaimMode, ClaimState};
pub use claim_table::{ClaimTable, NumberClaim, NumberClaimState};
pub use destination::{Destination, StoreDestination};
pub use dir::{Dir, PublishMode, Space};
pub use entry::{DestinationEntry, Entry, EntryKind, FileVersion, ListedFile, StoreKind};
pub use error::StorageError;
pub use file::{FileBirth, FileHandle, FileIdentity, FileReader, read_file};
pub use file_limit::raise_file_limit;
pub use folder::{Folder, StoreFolder, Stored, StoredObject};
pub use heartbeat::LeaseWait;
pub use lease::Lease;
pub use lease_store::{DestinationLease, LEASE_PATIENCE};
pub use location::{Location, RemoteLocation};
pub use log::DestinationLog;
pub use open_claims::{after_fork_in_parent, before_fork, open_claims, take_inherited_claims};
pub use probe::{ProbeAction, ProbeOutcome, ProbeReport, ProbeStep, ProbeVerdict, probe};
pub use random::random_number;
pub use remote::{
    CredentialSource, DownloadOptions, Fetching, ListOptions, OnLeaseWait, Remote, RemoteObject,
    RemoteOptions, RemoteStats, RequestOptions, RetryOptions, SETTINGS, SINGLE_WRITER,
    SortedListing, StoreSettings, UploadOptions, settings_of,
};
pub use temp::TempFile;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
