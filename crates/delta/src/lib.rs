//! Reads the log of Delta tables: the files of a version, their columns and their deleted rows.
//!
//! The Delta kernel replays the log. This crate refuses tables that need a feature it does not know, and names the
//! damaged file where the kernel only says that something is wrong. It does not read rows.
//!
//! - [`DeltaTable`] is a folder or a prefix of a store that has a log. [`DeltaTable::open`] returns a [`Version`] of it,
//!   and [`DeltaTable::history`] the changes since an earlier one.
//! - [`Version::columns`] are the columns of the table as Arrow types, and [`Version::files`] its data files.
//! - [`Version::locate`] finds the columns in a data file, and [`Shape::apply`] converts what was decoded to the types of
//!   the table.
//! - [`Version::deleted`] and [`Version::partition_values`] return what the log says about the rows of a file.
//!
//! Format: the Delta transaction log protocol.

mod error;
mod log;
mod schema;
mod shape;
mod store;
mod summary;
mod time;
mod values;

pub use log::{Deletion, DeltaTable, LOG_FOLDER, LogFile, LogPath, Version};
pub use schema::Column;
pub use shape::{ColumnOrigin, Found, Shape, file_fields};
pub use summary::{
    DeltaCommit, DeltaFile, DeltaHistory, DeltaProtocol, DeltaSummary, VersionChoice,
};
pub use time::parse_time;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
