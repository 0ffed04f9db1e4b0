//! What tests of several crates need: datasets written by the specification alone, processes under watch,
//! snapshots of directories, and numbers that look random.
//!
//! Nothing here knows how shardmill does its work. [`mds`] writes shards one byte after the other as the
//! specification says, so that it can stand beside the writer as a second opinion, and can write what the
//! writer never would. [`process`] runs a program as a user does and says what it cost. [`files`] tells whether a
//! directory is what it was. [`s3`] is an object store that fails on demand. `delta`, with the feature of that name, is a
//! table whose rows are known.

#[cfg(feature = "delta")]
pub mod delta;
pub mod draw;
pub mod files;
pub mod mds;
pub mod process;
pub mod s3;
