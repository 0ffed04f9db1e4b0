//! Reads and writes the `index.json` of a WebDataset dataset: its shards, with sizes, hashes and offset tables.
//!
//! `docs/decisions/0013-webdataset-index.md` describes the format and its rationale.

mod offsets;
mod parse;
#[cfg(test)]
mod tests;
mod types;

pub use offsets::{offsets_name, read_offsets, write_offsets};
pub use types::{FieldSet, INDEX_VERSION, Index, IndexShard};
