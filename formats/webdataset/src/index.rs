//! `index.json` of a WebDataset dataset: its shards, with sizes, hashes and where their offsets are.
//!
//! The form and the reasons are in `docs/decisions/0013-webdataset-index.md`.

mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, Limits, NameError, escape};
use shardmill_hash::{FileInfo, HashError};

use crate::compression::TarCompression;
use crate::group::SampleEntry;
use crate::json::{write_list, write_string};

/// The version of the form that is written, and the only one that is read.
pub const INDEX_VERSION: u64 = 1;

/// The fields of the samples of a shard, each list in the order of code points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Those that every sample has.
    pub always: Vec<Box<str>>,
    /// Those that only some samples have.
    pub sometimes: Vec<Box<str>>,
}

impl FieldSet {
    /// The fields of these samples.
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

/// One shard of an index.
///
/// PERF: a million of these are meant to fit into memory; field sets that are equal from shard to shard are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexShard {
    /// The fields of its samples.
    pub fields: Arc<FieldSet>,
    /// Its samples.
    pub samples: u64,
    /// How the stored file is compressed.
    pub compression: Option<TarCompression>,
    /// The uncompressed tar file.
    pub raw_data: FileInfo,
    /// The compressed file; there exactly when there is a compression.
    pub zip_data: Option<FileInfo>,
    /// The table of offsets of the uncompressed tar file, see [`write_offsets`].
    pub offsets: Option<FileInfo>,
}

impl IndexShard {
    /// The file that is stored: the compressed one where there is one.
    #[must_use]
    pub fn stored(&self) -> &FileInfo {
        self.zip_data.as_ref().unwrap_or(&self.raw_data)
    }

    /// Every file that is stored, the table of offsets last.
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
    /// Reads an `index.json`.
    ///
    /// # Errors
    ///
    /// [`IndexError`]: `Corrupt` for what is damaged, ambiguous or contradicts itself; `Unsupported` for other versions and
    /// formats, unknown names of things, and what is above the limits.
    pub fn parse(json: &[u8], limits: &Limits) -> Result<Self, IndexError> {
        parse::parse(json, limits)
    }

    /// The text of the `index.json`: keys sorted, ASCII only, one line. The same index gives the same text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\"format\": \"webdataset\", \"shards\": [");
        write_list(&self.shards, &mut out, write_shard);
        // Writing to a String cannot fail.
        let _ = write!(out, "], \"version\": {INDEX_VERSION}}}");
        out
    }

    /// Samples in all shards.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.shards
            .iter()
            .fold(0, |sum, shard| sum.saturating_add(shard.samples))
    }

    /// Adds the shards of another index whose folder is `folder`, relative to this one; empty for the same folder.
    ///
    /// # Errors
    ///
    /// [`IndexError::Duplicate`] (`Corrupt`) when a file would belong to two shards; this index is as before then.
    pub fn append(&mut self, folder: &str, other: Self) -> Result<(), IndexError> {
        let before = self.shards.len();
        for mut shard in other.shards {
            let files = [
                Some(&mut shard.raw_data),
                shard.zip_data.as_mut(),
                shard.offsets.as_mut(),
            ];
            if !folder.is_empty() {
                for file in files.into_iter().flatten() {
                    file.basename = format!("{folder}/{}", file.basename).into();
                }
            }
            self.shards.push(shard);
        }
        parse::check_unique(&self.shards).inspect_err(|_| self.shards.truncate(before))
    }
}

fn write_shard(shard: &IndexShard, out: &mut String) {
    out.push_str("{\"compression\": ");
    match shard.compression {
        Some(compression) => write_string(&compression.to_string(), out),
        None => out.push_str("null"),
    }
    out.push_str(", \"fields\": [");
    write_list(&shard.fields.always, out, |field, out| {
        write_string(field, out);
    });
    out.push_str("], \"offsets\": ");
    write_file(shard.offsets.as_ref(), out);
    out.push_str(", \"optional_fields\": [");
    write_list(&shard.fields.sometimes, out, |field, out| {
        write_string(field, out);
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
    write_string(&file.basename, out);
    // Writing to a String cannot fail.
    let _ = write!(out, ", \"bytes\": {}, \"hashes\": {{", file.bytes);
    write_list(file.hashes.iter(), out, |digest, out| {
        let _ = write!(out, "\"{}\": \"{digest}\"", digest.algo());
    });
    out.push_str("}}");
}

/// The table of offsets of a raw shard, as a file: where each sample begins, and where the last one ends, 64 bits each,
/// little-endian.
///
/// This is the `.tar.idx` of Megatron-Energon, which therefore finds it in place.
#[must_use]
pub fn write_offsets(offsets: &[u64]) -> Vec<u8> {
    offsets
        .iter()
        .flat_map(|offset| offset.to_le_bytes())
        .collect()
}

/// The offsets in such a file. Whether they fit a shard is checked with the shard, by
/// [`ShardView::with_offsets`](crate::ShardView::with_offsets).
///
/// # Errors
///
/// [`IndexError::Offsets`] (`Corrupt`) for a length that does not fit `samples`.
pub fn read_offsets(bytes: &[u8], samples: u64) -> Result<Vec<u64>, IndexError> {
    let needed = samples.checked_add(1).and_then(|n| n.checked_mul(8));
    if needed != Some(bytes.len() as u64) {
        return Err(IndexError::Offsets {
            bytes: bytes.len() as u64,
            samples,
        });
    }
    Ok(bytes
        .chunks_exact(8)
        .filter_map(|word| word.first_chunk().map(|word| u64::from_le_bytes(*word)))
        .collect())
}

/// The name of the table of offsets of a shard, by the name of the shard: `a.tar` and `a.tar.zst` have `a.tar.idx`.
#[must_use]
pub fn offsets_name(shard: &str) -> String {
    let raw = [".gz", ".zst"]
        .iter()
        .find_map(|ending| shard.strip_suffix(ending))
        .unwrap_or(shard);
    format!("{raw}.idx")
}

/// Why an index cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// Something that is not JSON, breaks off, has unknown, missing or repeated keys, or values of other types.
    #[error("the index is damaged at line {line}, byte {column}: {reason}")]
    Syntax {
        /// The line, from 1.
        line: u64,
        /// The byte in that line.
        column: u64,
        /// What is wrong there.
        reason: String,
    },
    /// An index of another format.
    #[error("the index is of format `{}`", escape(found))]
    Format {
        /// The format.
        found: String,
    },
    /// Another version.
    #[error("the version is {found}, of which only {INDEX_VERSION} is known")]
    Version {
        /// The version.
        found: u64,
    },
    /// A value that contradicts another one.
    #[error("shard {shard}: {problem}")]
    Shard {
        /// The shard, counted from 0.
        shard: u64,
        /// What is wrong.
        problem: String,
    },
    /// A name that leaves the folder of the index.
    #[error("shard {shard}: `{}`: {problem}", escape(basename))]
    Name {
        /// The shard, counted from 0.
        shard: u64,
        /// The name.
        basename: String,
        /// What is wrong with it.
        problem: NameError,
    },
    /// A hash that is unknown or spelled wrong.
    #[error("shard {shard}: {problem}")]
    Hash {
        /// The shard, counted from 0.
        shard: u64,
        /// What is wrong with it.
        problem: HashError,
    },
    /// A file that belongs to two shards.
    #[error("shard {shard}: the file `{}` is there twice", escape(basename))]
    Duplicate {
        /// The second shard with it, counted from 0.
        shard: u64,
        /// The name.
        basename: String,
    },
    /// A table of offsets of the wrong length.
    #[error("a table of offsets of {bytes} bytes does not fit {samples} samples")]
    Offsets {
        /// Its length.
        bytes: u64,
        /// The samples of the shard.
        samples: u64,
    },
    /// More than the limits allow.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

impl Diagnostic for IndexError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Format { .. } | Self::Version { .. } | Self::Limit(_) => ErrorKind::Unsupported,
            Self::Hash { problem, .. } => problem.kind(),
            _ => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "index-syntax",
            Self::Format { .. } => "index-format",
            Self::Version { .. } => "index-version",
            Self::Shard { .. } => "index-shard",
            Self::Name { problem, .. } => problem.id(),
            Self::Hash { problem, .. } => problem.id(),
            Self::Duplicate { .. } => "index-duplicate",
            Self::Offsets { .. } => "tar-offsets",
            Self::Limit(limit) => limit.id(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Limit(limit) => Some(limit.hint()),
            Self::Syntax { .. } | Self::Offsets { .. } => {
                Some("make the index anew from the shards".to_owned())
            }
            _ => None,
        }
    }
}
