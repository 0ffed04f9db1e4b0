//! Reads and writes the `index.json` of a WebDataset dataset: its shards, with sizes, hashes and offset tables.
//!
//! `docs/decisions/0013-webdataset-index.md` describes the format and its rationale.

mod parse;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use shardmill_codec::{CodecError, FileInfo};
use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, Limits, NameError, escape};

use crate::group::SampleEntry;
use crate::json::{write_list, write_string};
use shardmill_codec::seekable::TarCompression;

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
    /// The table of offsets of the uncompressed tar file; see [`write_offsets`].
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
    /// Parses an `index.json`.
    ///
    /// # Errors
    ///
    /// [`IndexError`]: `Corrupt` for an index that is damaged, ambiguous or contradicts itself; `Unsupported` for other
    /// versions and formats, unknown names, and exceeded limits.
    pub fn parse(json: &[u8], limits: &Limits) -> Result<Self, IndexError> {
        parse::parse(json, limits)
    }

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

    /// Adds the shards of another index. `folder` is its folder relative to this one; empty for the same folder.
    ///
    /// # Errors
    ///
    /// [`IndexError::Duplicate`] (`Corrupt`) when a file would belong to two shards. This index is then unchanged.
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

/// Returns the offset table of a raw shard as the bytes of a file: the begin of each sample and the end of the last
/// one, as little-endian 64-bit numbers.
///
/// This is also the `.tar.idx` of Megatron-Energon, which therefore finds its table in place.
#[must_use]
pub fn write_offsets(offsets: &[u64]) -> Vec<u8> {
    offsets
        .iter()
        .flat_map(|offset| offset.to_le_bytes())
        .collect()
}

/// Parses the offsets in such a file. [`ShardView::with_offsets`](crate::ShardView::with_offsets) checks that they
/// match the shard.
///
/// # Errors
///
/// [`IndexError::Offsets`] (`Corrupt`) for a length that does not match `samples`.
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

/// Returns the name of a shard's offset table: `a.tar.idx` for both `a.tar` and `a.tar.zst`.
#[must_use]
pub fn offsets_name(shard: &str) -> String {
    let raw = [".gz", ".zst"]
        .iter()
        .find_map(|ending| shard.strip_suffix(ending))
        .unwrap_or(shard);
    format!("{raw}.idx")
}

/// The reason why an index cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// Text that is not JSON or is truncated, unknown, missing or repeated keys, or values of the wrong type.
    #[error("the index is damaged at line {line}, byte {column}: {reason}")]
    Syntax {
        /// The line, from 1.
        line: u64,
        /// The byte in that line.
        column: u64,
        /// The error at that position.
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
    /// A value that does not match another one.
    #[error("shard {shard}: {problem}")]
    Shard {
        /// The shard, counted from 0.
        shard: u64,
        /// What is wrong.
        problem: String,
    },
    /// A name that is not a valid path within the folder of the index.
    #[error("shard {shard}: `{}`: {problem}", escape(basename))]
    Name {
        /// The shard, counted from 0.
        shard: u64,
        /// The name.
        basename: String,
        /// What is wrong with it.
        problem: NameError,
    },
    /// A hash that is unknown or malformed.
    #[error("shard {shard}: {problem}")]
    Hash {
        /// The shard, counted from 0.
        shard: u64,
        /// What is wrong with it.
        problem: CodecError,
    },
    /// A file that belongs to two shards.
    #[error("shard {shard}: the file `{}` is there twice", escape(basename))]
    Duplicate {
        /// The second shard that lists it, counted from 0.
        shard: u64,
        /// The name.
        basename: String,
    },
    /// A table of offsets of the wrong length.
    #[error("a table of offsets of {bytes} bytes does not fit {samples} samples")]
    Offsets {
        /// Its length.
        bytes: u64,
        /// The number of samples in the shard.
        samples: u64,
    },
    /// A limit is exceeded.
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
