//! Reads a tree of files as a dataset: each file is a shard of one sample.
//!
//! This module lists the files of a tree, sorts and stores the list, and checks that a file is still the one that was
//! listed. The cache (`shardmill-cache`) fetches, stores and evicts files like shards, in the same order.
//!
//! The model:
//!
//! - Files are listed once and sorted by the bytes of their paths. The list is stored next to the cache, so that all
//!   processes of the machine, and a resumed run, use the same one.
//! - There are no hashes of raw files. A file is identified by its length and its tag: the `ETag` of a store, or the
//!   modification time in a file system. A different tag at the time of reading is an error.
//! - A sample contains the local path, the bytes, or both ([`FileForm`]).

mod list;
mod tree;

pub use list::{LIST, open_list};
pub use tree::{
    ChosenFiles, DATA_COLUMN, FILE_COLUMN, FileEntry, FileForm, FileList, FileOptions, KnownFiles,
    PATH_COLUMN,
};
