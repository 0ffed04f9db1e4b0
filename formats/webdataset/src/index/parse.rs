//! Parses the JSON of an index.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use shardmill_codec::{Digest, FileHashes, FileInfo, HashAlgo, seekable::TarCompression};
use shardmill_core::{Limits, check_relative_path, escape};

use super::types::{FieldSet, INDEX_VERSION, Index, IndexShard, check_unique};
use crate::error::{WebdatasetError, WebdatasetProblem};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawIndex {
    format: String,
    shards: RawShards,
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawShard {
    // With an explicit deserializer, an absent key is an error; otherwise it would be null.
    #[serde(deserialize_with = "Option::deserialize")]
    compression: Option<String>,
    fields: Vec<Box<str>>,
    #[serde(deserialize_with = "Option::deserialize")]
    offsets: Option<RawFile>,
    optional_fields: Vec<Box<str>>,
    raw_data: RawFile,
    samples: u64,
    #[serde(deserialize_with = "Option::deserialize")]
    zip_data: Option<RawFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    basename: Box<str>,
    bytes: u64,
    hashes: RawHashes,
}

/// Hashes as pairs, so that a repeated name can be detected.
struct RawHashes(Vec<(String, String)>);

impl<'de> Deserialize<'de> for RawHashes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = RawHashes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of hashes")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHashes, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry::<String, String>()? {
                    if pairs.len() >= HashAlgo::ALL.len() {
                        return Err(serde::de::Error::custom("more hashes than there are"));
                    }
                    pairs.push(pair);
                }
                Ok(RawHashes(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// Converts shards while they are parsed, so that the raw form of all of them is never in memory at once.
struct RawShards(Result<Vec<IndexShard>, WebdatasetError>);

impl<'de> Deserialize<'de> for RawShards {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shards;
        impl<'de> Visitor<'de> for Shards {
            type Value = RawShards;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of shards")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawShards, A::Error> {
                let mut shards: Vec<IndexShard> = Vec::new();
                let mut problem = None;
                while let Some(raw) = seq.next_element::<RawShard>()? {
                    if problem.is_some() {
                        continue;
                    }
                    let before = shards.last().map(|shard| &shard.fields);
                    match build(shards.len() as u64, raw, before) {
                        Ok(shard) => shards.push(shard),
                        Err(error) => problem = Some(error),
                    }
                }
                Ok(RawShards(problem.map_or(Ok(shards), Err)))
            }
        }
        deserializer.deserialize_seq(Shards)
    }
}

impl Index {
    /// Parses an `index.json`.
    ///
    /// # Errors
    ///
    /// [`WebdatasetError`]: `Corrupt` for an index that is damaged, ambiguous or contradicts itself; `Unsupported` for other
    /// versions and formats, unknown names, and exceeded limits.
    pub fn parse(json: &[u8], limits: &Limits) -> Result<Self, WebdatasetError> {
        Limits::check("index-bytes", json.len() as u64, limits.index_bytes)?;
        let raw: RawIndex = serde_json::from_slice(json).map_err(|error| {
            let text = error.to_string();
            // The message of `serde_json` ends with the position.
            let reason = text
                .rsplit_once(" at line ")
                .map_or(&*text, |(reason, _)| reason);
            let (line, column) = (error.line(), error.column());
            WebdatasetProblem::IndexSyntax.because(format!(
                "the index is damaged at line {line}, byte {column}: {reason}"
            ))
        })?;
        if raw.format != "webdataset" {
            let reason = format!("the index is of format `{}`", escape(&raw.format));
            return Err(WebdatasetProblem::IndexFormat.because(reason));
        }
        if raw.version != INDEX_VERSION {
            let found = raw.version;
            let reason =
                format!("the version is {found}; only version {INDEX_VERSION} is supported");
            return Err(WebdatasetProblem::IndexVersion.because(reason));
        }
        let shards = raw.shards.0?;
        Limits::check("shards", shards.len() as u64, limits.shards)?;
        for shard in &shards {
            Limits::check("shard-bytes", shard.raw_data.bytes, limits.shard_bytes)?;
            let fields = shard.fields.always.len() + shard.fields.sometimes.len();
            Limits::check("tar-fields", fields as u64, limits.tar.fields)?;
            for file in shard.files().chain([&shard.raw_data]) {
                Limits::check("shard-bytes", file.bytes, limits.shard_bytes)?;
            }
        }
        check_unique(&shards)?;
        Ok(Self { shards })
    }
}

fn shard_error(shard: u64, problem: &str) -> WebdatasetError {
    WebdatasetProblem::IndexShard.because(format!("shard {shard}: {problem}"))
}

fn build(
    shard: u64,
    raw: RawShard,
    before: Option<&Arc<FieldSet>>,
) -> Result<IndexShard, WebdatasetError> {
    let error = |problem: &str| shard_error(shard, problem);
    let compression = match raw.compression {
        None => None,
        Some(text) => Some(parse_compression(&text).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            error(&format!("unknown compression `{}`", escape(&shown)))
        })?),
    };
    if compression.is_some() != raw.zip_data.is_some() {
        return Err(error(
            "`zip_data` is required exactly when there is a compression",
        ));
    }
    for list in [&raw.fields, &raw.optional_fields] {
        if !list.is_sorted_by(|a, b| a < b) {
            return Err(error("the fields are not in ascending order"));
        }
    }
    let fields = FieldSet {
        always: raw.fields,
        sometimes: raw.optional_fields,
    };
    let fields = match before {
        Some(before) if **before == fields => Arc::clone(before),
        _ => Arc::new(fields),
    };
    if let Some(offsets) = &raw.offsets
        && raw.samples.checked_add(1).and_then(|n| n.checked_mul(8)) != Some(offsets.bytes)
    {
        return Err(WebdatasetError::offsets_length(offsets.bytes, raw.samples));
    }
    // Every sample takes at least one header block.
    if raw.samples > raw.raw_data.bytes / 512 {
        let (samples, bytes) = (raw.samples, raw.raw_data.bytes);
        return Err(error(&format!(
            "{samples} samples do not fit {bytes} bytes"
        )));
    }
    Ok(IndexShard {
        fields,
        samples: raw.samples,
        compression,
        raw_data: file(shard, raw.raw_data)?,
        zip_data: raw.zip_data.map(|raw| file(shard, raw)).transpose()?,
        offsets: raw.offsets.map(|raw| file(shard, raw)).transpose()?,
    })
}

fn file(shard: u64, raw: RawFile) -> Result<FileInfo, WebdatasetError> {
    check_relative_path(&raw.basename).map_err(|problem| WebdatasetError::IndexName {
        shard,
        basename: raw.basename.to_string(),
        problem,
    })?;
    let hash_error = |problem| WebdatasetError::IndexHash { shard, problem };
    let mut digests = Vec::with_capacity(raw.hashes.0.len());
    for (algo, hex) in &raw.hashes.0 {
        let algo: HashAlgo = algo.parse().map_err(hash_error)?;
        let digest = Digest::parse(algo, hex).map_err(hash_error)?;
        if digests.iter().any(|one: &Digest| one.algo() == algo) {
            return Err(shard_error(shard, &format!("the hash {algo} occurs twice")));
        }
        digests.push(digest);
    }
    Ok(FileInfo {
        basename: raw.basename,
        bytes: raw.bytes,
        hashes: digests.into_iter().collect::<FileHashes>(),
    })
}

/// Parses `gz:6` or `zstd:3`. The level is required, so that each compression has only one spelling in an index.
fn parse_compression(text: &str) -> Option<TarCompression> {
    let compression: TarCompression = text.parse().ok()?;
    (compression.to_string() == text).then_some(compression)
}
