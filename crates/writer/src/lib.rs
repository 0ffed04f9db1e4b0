//! Turns Arrow record batches into published shards: it encodes, cuts, compresses, hashes and publishes them.
//!
//! This crate decides four things: how an Arrow value becomes bytes of a sample, where a shard ends, which thread does
//! what, and when a file gets its final name. Callers provide the batches ([`Input`]) and the record of an earlier run
//! ([`Checkpoint`]). Callers also decide when to publish the index ([`publish_index`]). A value that does not fit its
//! encoding is an error; the error names the column and the row.
//!
//! The model:
//!
//! 1. One thread decodes and encodes a batch into *chunks* of encoded samples. Sample bytes are copied once, in this
//!    step.
//! 2. Chunks are packed into shards in source order, by one thread at a time. A shard is a list of slices of chunks.
//! 3. Any thread can finish a shard: header, hashes, compression, temporary files. If the compression supports
//!    segments, several threads compress the segments of one shard at the same time.
//! 4. A publisher writes the files to disk and renames them to their final names, in any order.
//! 5. The caller publishes the index last.
//!
//! Samples that the caller encodes one at a time follow the same path from step 2: see [`SampleWriter`].
//!
//! Many tasks can write one dataset as [`parts`]. A commit then publishes all parts together.
//!
//! The bytes depend only on the rows and the configuration, not on the number of threads. Memory is bounded by
//! [`Resources::budget_bytes`], or by the size of one shard if that is larger.
//!
//! The formats follow `docs/formats/mds.md` and `docs/formats/webdataset.md`. Format-specific code is in [`ShardForm`]
//! and [`RowEncoder`].

#[cfg(not(target_endian = "little"))]
compile_error!(
    "Arrow buffers are passed through as little-endian bytes; a big-endian machine would need a swap"
);

mod chunk;
mod columns;
mod content;
mod entry;
mod error;
mod fill;
mod form;
mod index;
mod input;
mod memory;
mod nulls;
mod pack;
mod part_names;
pub mod parts;
mod pipeline;
mod pool;
mod record;
mod rows;
mod samples;
mod shard;
mod table;

pub use columns::{
    ColumnEncoder, ENCODED_KEY, ENCODED_TEXT, ENCODING_KEY, EXPRESSION_KEY, FieldEncoding,
    NullHint, Offsets, ParseFieldEncodingError, Target, default_field, default_target, encoded_as,
    is_json_text, leaf_type, number_lists, number_type, stores_null,
};
pub use content::{DedupIndex, UnitSamples};
pub use entry::{DatasetIndex, IndexEntry};
pub use error::{
    ValueReason, WriteProblem, index_error, internal, interrupted, table_not_encoded,
    type_unsupported,
};
pub use fill::parse_value;
pub use form::{
    PatternError, ShardForm, ShardFormat, ShardPattern, TableForm, TarForm, is_table_file_name,
};
pub use index::{INDEX_NAME, TABLE_INDEX_NAME, in_folder, publish_index};
pub use input::{Batches, Input, InputBatch, RowNumbers};
pub use memory::MemoryShard;
pub use nulls::{MASK_SUFFIX, NullPlan, NullPolicy, masked_value};
pub use pack::{Position, ShardEnds};
pub use pipeline::{Base, Checkpoint, Output, Resources, Written, run};
pub use record::{FileRecord, FileState, ShardRecord};
pub use rows::{RowEncoder, TarKeys, TarRows};
pub use samples::{PublishedFiles, SampleOptions, SampleWriter};
pub use shard::{FileCheck, hash_all, hash_each};
pub use shardmill_mds::Content;
pub use table::{EncodeTable, TableError, TableFile, TableIndex};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
