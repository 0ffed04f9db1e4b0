//! Reads and writes the `index.json` of a WebDataset dataset: its shards, with sizes, hashes and offset tables.
//!
//! `docs/decisions/0013-webdataset-index.md` describes the format and its rationale.

mod entry;
mod offsets;
mod parse;
#[cfg(test)]
mod tests;

pub use entry::{FieldSet, INDEX_VERSION, Index, IndexShard};
pub use offsets::{offsets_name, read_offsets, write_offsets};
