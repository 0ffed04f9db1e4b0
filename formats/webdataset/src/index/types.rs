//! The types of the `index.json` of tar shards, and how they are written as JSON.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use shardmill_codec::{FileInfo, seekable::TarCompression};
use shardmill_core::escape;

use crate::error::{WebdatasetError, WebdatasetProblem};
use crate::group::SampleEntry;
use crate::json::{quoted, write_list};

/// The format version that is written, and the only one that is read.
pub const INDEX_VERSION: u64 = 1;

/// The fields of the samples of a shard, each list sorted by code points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// The fields that every sample has.
    pub always: Vec<Box<str>>,
    /// The fields that only some samples have.
    pub sometimes: Vec<Box<str>>,
}

impl FieldSet {
    /// Returns the fields of these samples.
    #[must_use]
    pub fn of(samples: &[SampleEntry]) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for field in samples.iter().flat_map(|sample| &sample.fields) {
            *counts.entry(&field.name).or_default() += 1;
        }
        let mut set = Self::default();
        for (name, count) in counts {
            let list = if count == samples.len() {
                &mut set.always
            } else {
                &mut set.sometimes
            };
            list.push(name.into());
        }
        set
    }
}

/// One shard in an index.
///
/// PERF: a million of these must fit into memory, so shards with equal field sets share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexShard {
    /// The fields of its samples.
    pub fields: Arc<FieldSet>,
    /// The number of its samples.
    pub samples: u64,
    /// The compression of the stored file.
    pub compression: Option<TarCompression>,
    /// The uncompressed tar file.
    pub raw_data: FileInfo,
    /// The compressed file; present exactly if there is a compression.
    pub zip_data: Option<FileInfo>,
    /// The table of offsets of the uncompressed tar file; see [`write_offsets`](crate::write_offsets).
    pub offsets: Option<FileInfo>,
}

impl IndexShard {
    /// Returns the stored file: the compressed one if there is one.
    #[must_use]
    pub fn stored(&self) -> &FileInfo {
        self.zip_data.as_ref().unwrap_or(&self.raw_data)
    }

    /// Iterates over the stored files, with the table of offsets last.
    pub fn files(&self) -> impl Iterator<Item = &FileInfo> {
        std::iter::once(self.stored()).chain(&self.offsets)
    }
}

/// The shards of a dataset, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// The shards.
    pub shards: Vec<IndexShard>,
}

impl Index {
    /// Returns the text of the `index.json`: keys sorted, ASCII only, one line. Equal indexes give equal text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\"format\": \"webdataset\", \"shards\": [");
        write_list(&self.shards, &mut out, write_shard);
        // Writing to a String cannot fail.
        let _ = write!(out, "], \"version\": {INDEX_VERSION}}}");
        out
    }

    /// Returns the number of samples in all shards.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.shards
            .iter()
            .fold(0, |sum, shard| sum.saturating_add(shard.samples))
    }
}

fn write_shard(shard: &IndexShard, out: &mut String) {
    out.push_str("{\"compression\": ");
    match shard.compression {
        Some(compression) => out.push_str(&quoted(&compression.to_string())),
        None => out.push_str("null"),
    }
    out.push_str(", \"fields\": [");
    write_list(&shard.fields.always, out, |field, out| {
        out.push_str(&quoted(field));
    });
    out.push_str("], \"offsets\": ");
    write_file(shard.offsets.as_ref(), out);
    out.push_str(", \"optional_fields\": [");
    write_list(&shard.fields.sometimes, out, |field, out| {
        out.push_str(&quoted(field));
    });
    out.push_str("], \"raw_data\": ");
    write_file(Some(&shard.raw_data), out);
    // Writing to a String cannot fail.
    let _ = write!(out, ", \"samples\": {}, \"zip_data\": ", shard.samples);
    write_file(shard.zip_data.as_ref(), out);
    out.push('}');
}

fn write_file(file: Option<&FileInfo>, out: &mut String) {
    let Some(file) = file else {
        out.push_str("null");
        return;
    };
    out.push_str("{\"basename\": ");
    out.push_str(&quoted(&file.basename));
    // Writing to a String cannot fail.
    let _ = write!(out, ", \"bytes\": {}, \"hashes\": {{", file.bytes);
    write_list(file.hashes.iter(), out, |digest, out| {
        let _ = write!(out, "\"{}\": \"{digest}\"", digest.algo());
    });
    out.push_str("}}");
}

/// Refuses a file that is listed twice.
pub(super) fn check_unique(shards: &[IndexShard]) -> Result<(), WebdatasetError> {
    let mut seen: HashSet<&str> = HashSet::with_capacity(shards.len());
    for (index, shard) in shards.iter().enumerate() {
        let raw = shard.zip_data.is_some().then_some(&shard.raw_data);
        for file in shard.files().chain(raw) {
            if !seen.insert(&file.basename) {
                let name = escape(&file.basename);
                let reason = format!("shard {index}: the file `{name}` occurs twice");
                return Err(WebdatasetProblem::IndexDuplicate.because(reason));
            }
        }
    }
    Ok(())
}
