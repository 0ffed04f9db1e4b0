//! Test helpers for several crates: datasets written from the specification, child processes, snapshots of directories,
//! and pseudo-random numbers.
//!
//! Nothing here uses shardmill's own code for its work. [`mds`] writes shards byte by byte from the specification. So
//! it can verify the writer, and can create files that the writer never would. [`process`] runs a program and measures
//! its cost. [`files`] detects changes of a directory, and [`mount`] mounts file
//! systems. [`s3`] is an object store that fails on demand. `delta`, with
//! the feature of that name, is a table whose rows are known.

#[cfg(feature = "delta")]
pub mod delta;
pub mod draw;
pub mod files;
pub mod mds;
pub mod mount;
pub mod process;
pub mod s3;
pub mod stub;
pub mod tfrecord;
