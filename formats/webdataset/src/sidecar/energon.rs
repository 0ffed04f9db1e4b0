//! Writes the folder `.nv-meta` of Megatron-Energon 7.4, without running its `prepare`.
//!
//! The table next to each shard, `NAME.tar.idx`, is that of [`write_offsets`](crate::write_offsets). The database
//! `index.sqlite` is returned as rows; the caller, which links SQLite, writes it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

use shardmill_core::escape;

use super::SidecarShard;
use crate::error::{WebdatasetError, WebdatasetProblem};
use crate::json::{quoted, write_list};
use crate::{HashAlgo, hash_hex};

/// The version of Energon whose files these are.
pub const VERSION: &str = "7.4.0";

/// The tables of `index.sqlite`.
pub const TABLES: &str = "\
CREATE TABLE samples (tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE, sample_index INTEGER NOT NULL, \
byte_offset INTEGER, byte_size INTEGER);
CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT, content_byte_offset INTEGER, \
content_byte_size INTEGER);
";

/// The indexes of `index.sqlite`.
pub const INDEXES: &str = "\
CREATE INDEX idx_samples_by_tar_and_idx ON samples (tar_file_id, sample_index);
CREATE INDEX idx_sample_parts_seq ON sample_parts (tar_file_id, sample_index, content_byte_offset);
CREATE INDEX idx_sample_parts_full ON sample_parts (tar_file_id, sample_index, part_name, content_byte_offset, \
content_byte_size);
";

/// A row of the table `samples`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleRow<'a> {
    /// The number of the shard in `.info.json`.
    pub tar_file_id: u64,
    /// The key; unique in the whole dataset.
    pub sample_key: &'a str,
    /// The number of the sample in the shard.
    pub sample_index: u64,
    /// The offset of its first header.
    pub byte_offset: u64,
    /// Its bytes, including headers.
    pub byte_size: u64,
}

/// A row of the table `sample_parts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRow<'a> {
    /// The number of the shard in `.info.json`.
    pub tar_file_id: u64,
    /// The number of the sample in the shard.
    pub sample_index: u64,
    /// The field.
    pub part_name: &'a str,
    /// The offset of its content.
    pub content_byte_offset: u64,
    /// The bytes of its content.
    pub content_byte_size: u64,
}

/// The rows of `index.sqlite`, in the order in which Energon inserts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows<'a> {
    /// The rows of the table `samples`.
    pub samples: Vec<SampleRow<'a>>,
    /// The rows of the table `sample_parts`.
    pub parts: Vec<PartRow<'a>>,
}

/// Returns the rows for these shards.
///
/// # Errors
///
/// [`WebdatasetProblem::SidecarSameKey`] (`Unsupported`) for a key in two samples, which `prepare` refuses as well.
pub fn rows<'a>(shards: &[SidecarShard<'a>]) -> Result<Rows<'a>, WebdatasetError> {
    let mut rows = Rows::default();
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for (tar_file_id, shard) in (0..).zip(shards) {
        for (sample_index, sample) in (0..).zip(shard.samples) {
            if let Some(first) = seen.insert(&sample.key, shard.name) {
                return Err(WebdatasetProblem::SidecarSameKey.because(format!(
                    "energon allows the key `{}` once, and it is in `{}` and `{}`",
                    escape(&sample.key),
                    escape(first),
                    escape(shard.name)
                )));
            }
            // The range of a sample extends to the next one, as in its offset table.
            rows.samples.push(SampleRow {
                tar_file_id,
                sample_key: &sample.key,
                sample_index,
                byte_offset: sample.begin,
                byte_size: sample.end.saturating_sub(sample.begin),
            });
            rows.parts.extend(sample.fields.iter().map(|field| PartRow {
                tar_file_id,
                sample_index,
                part_name: &field.name,
                content_byte_offset: field.offset,
                content_byte_size: field.bytes,
            }));
        }
    }
    Ok(rows)
}

/// Returns `.nv-meta/index.uuid`, by which Energon checks that joins were made with this `index.sqlite`. It is derived
/// from the bytes of that file, so equal indexes have the same UUID; Energon generates a random one.
#[must_use]
pub fn index_uuid(index: &[u8]) -> String {
    let digest = hash_hex(HashAlgo::Sha256, index);
    let part = |range: Range<usize>| digest.get(range).unwrap_or_default();
    // RFC 9562 version 8, whose bits may be chosen freely.
    format!(
        "{}-{}-8{}-8{}-{}",
        part(0..8),
        part(8..12),
        part(12..15),
        part(15..18),
        part(18..30)
    )
}

/// Returns `.nv-meta/.info.json`: the number of samples in each shard, in order.
///
/// # Errors
///
/// [`WebdatasetProblem::SidecarEmpty`] (`Unsupported`) for a shard without samples, which `prepare` refuses as well.
pub fn info_json(shards: &[SidecarShard<'_>]) -> Result<String, WebdatasetError> {
    let mut out = format!("{{\"energon_version\": \"{VERSION}\", \"shard_counts\": {{");
    if let Some(empty) = shards.iter().find(|shard| shard.samples.is_empty()) {
        return Err(WebdatasetError::sidecar_empty("energon", empty.name));
    }
    write_list(shards, &mut out, |shard, out| {
        out.push_str(&quoted(shard.name));
        // Writing to a String cannot fail.
        let _ = write!(out, ": {}", shard.samples.len());
    });
    out.push_str("}}");
    Ok(out)
}

/// Assigns shards to splits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split<'a> {
    /// Shards for training.
    pub train: Vec<&'a str>,
    /// Shards for validation.
    pub val: Vec<&'a str>,
    /// Shards for tests.
    pub test: Vec<&'a str>,
}

/// Returns `.nv-meta/split.yaml`.
#[must_use]
pub fn split_yaml(split: &Split<'_>) -> String {
    let mut out = String::from("exclude: []\nsplit_parts:\n");
    for (name, shards) in [
        ("train", &split.train),
        ("val", &split.val),
        ("test", &split.test),
    ] {
        if shards.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  {name}: []");
            continue;
        }
        let _ = writeln!(out, "  {name}:");
        for shard in shards {
            // A JSON string is also a YAML string.
            let _ = writeln!(out, "  - {}", quoted(shard));
        }
    }
    out
}

/// Returns `.nv-meta/dataset.yaml` for a dataset whose samples are returned unchanged, field by field.
#[must_use]
pub const fn crude_dataset_yaml() -> &'static str {
    "__module__: megatron.energon\n__class__: CrudeWebdataset\n"
}
