//! Tables of Parquet files, and Delta tables, as streams: each row group is a shard, without a conversion. A large row
//! group is divided at pages, if its file has offset indexes.
//!
//! - [`TableOptions`] chooses the columns. [`TableOptions::files`] are the
//!   [`StreamOptions::files`](shardmill_dataset::StreamOptions::files) of a stream over the table.
//! - When a stream is opened, all footers are read, with one request each, and kept next to the cache.
//! - When a shard is needed, the cache fetches the chosen columns of its row group. The rows are decoded and encoded as
//!   an MDS shard, with the types and values of a conversion. The cache keeps this shard.
//!
//! Of a Delta table, the log tells the files of the chosen version, their deleted rows and the values of the partition
//! columns.
//!
//! A null is a zero that a mask column marks, as with `--nulls mask` of a conversion. See [`NullValues`].
//!
//! The order of the samples depends on the number of rows in each shard only. A dataset of MDS shards with the same
//! numbers of samples has the same order.

mod columns;
mod delta;
mod error;
mod files;
mod footers;
mod group;
mod stream;

pub use shardmill_delta::VersionChoice;
pub use stream::{NullValues, TableForm, TableOptions, delta_version};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
