//! From Arrow record batches to published shards: encode, cut, compress, hash, publish.
//!
//! This crate decides how an Arrow value becomes bytes of a sample, where a shard ends, which thread does
//! what, and when a file may get its name. It leaves to its callers where batches come from ([`Input`]), what
//! an earlier run has already published ([`Checkpoint`]), and when the index goes out ([`publish_index`]). It
//! refuses to guess: a value that does not fit its encoding is an error that names the column and the row.
//!
//! The model:
//!
//! 1. A batch is decoded and encoded in one thread, into *chunks* of encoded samples. That is the one copy.
//! 2. Chunks are packed in source order, by one thread at a time, into shards, which are slices of chunks.
//! 3. A shard is finished by any thread: header, hashes, compression, temporary files. With a compression
//!    that knows segments, the segments of one shard are finished by several threads at once.
//! 4. A publisher brings the files to the disk and gives them their names, in any order.
//! 5. The index is the caller's last act.
//!
//! Samples that the caller encodes, one at a time, take the same way from step 2 on: [`SampleWriter`].
//!
//! Many tasks write one dataset as [`parts`], which a commit publishes together.
//!
//! The bytes depend on the rows and the configuration alone, not on the number of threads. Memory is bounded
//! by [`Resources::budget_bytes`], or by one shard if that is more.
//!
//! The formats follow `docs/formats/mds.md` and `docs/formats/webdataset.md`. What is particular to one of them is in
//! [`ShardForm`] and [`RowEncoder`].

#[cfg(not(target_endian = "little"))]
compile_error!(
    "Arrow buffers are passed through as little-endian bytes; a big-endian machine would need a swap"
);

mod chunk;
mod columns;
mod content;
mod entry;
mod error;
mod form;
mod index;
mod input;
mod pack;
pub mod parts;
mod pipeline;
mod rows;
mod samples;
mod shard;

pub use columns::{
    ColumnEncoder, ENCODED_KEY, ENCODED_TEXT, ENCODING_KEY, FieldEncoding, ParseFieldEncodingError,
    Target, default_field, default_target, is_json_text, stores_null,
};
pub use content::{DedupIndex, UnitSamples};
pub use entry::{DatasetIndex, IndexEntry, IndexProblem, stored_bytes};
pub use error::{ValueReason, WriteError};
pub use form::{PatternError, ShardForm, ShardFormat, ShardPattern, TarForm};
pub use index::{INDEX_NAME, publish_index};
pub use input::{Batches, Input, InputBatch, RowNumbers};
pub use pack::Position;
pub use pipeline::{Base, Checkpoint, Output, PipelineError, Published, Resources, Written, run};
pub use rows::{RowEncoder, TarKeys, TarRows};
pub use samples::{PublishedFiles, SampleOptions, SampleWriter};
pub use shard::FileCheck;
pub use shardmill_mds::Content;
