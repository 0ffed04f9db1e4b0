//! Parses the JSON of an index, shard by shard.
//!
//! `serde_json` handles the syntax. The values of a shard become small trees, from which [`build`](super::build) takes the
//! fields, so that an error can name the shard and the field.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use shardmill_core::Limits;

use super::build::{self, RawShard};
use super::entry::{Index, ShardEntry};
use super::tree::{FIELDS, Json, Member, OBJECT, Object, Parser};
use crate::config::ShardConfig;
use crate::error::{IndexPosition, MdsError, MdsProblem, not_json};

impl Index {
    /// Parses an `index.json`.
    ///
    /// Parsing is strict, because no checksum protects an index. It refuses what the original reader refuses: unknown
    /// and missing fields of a shard, and other versions. It also refuses what readers could interpret differently:
    /// repeated keys, repeated file names and trailing bytes. Like the original, it ignores unknown keys next to
    /// `shards` and `version`.
    ///
    /// # Errors
    ///
    /// [`MdsError`]: `Corrupt` for an index that is damaged or contradicts itself; `Unsupported` for other versions,
    /// unknown names and exceeded limits.
    pub fn parse(json: &[u8], limits: &Limits) -> Result<Self, MdsError> {
        let too_long = |problem| MdsError::Limit(problem).at(IndexPosition::default());
        Limits::check("index-bytes", json.len() as u64, limits.index_bytes).map_err(too_long)?;
        check_start(json)?;
        let mut parser = Parser::new(limits);
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let shards = deserializer.deserialize_map(TopLevel {
            parser: &mut parser,
        });
        let shards = shards.map_err(|error| parser.explain(&error))?;
        deserializer.end().map_err(|error| trailing(&error))?;
        build::check_unique(&shards)?;
        Ok(Self { shards })
    }
}

/// Refuses a file that cannot be an index, and describes it by how it starts.
fn check_start(start: &[u8]) -> Result<(), MdsError> {
    let not_json = |reason: &str| Err(not_json(reason));
    let Some(first) = start.iter().find(|byte| !byte.is_ascii_whitespace()) else {
        return Err(MdsProblem::IndexEmpty.because("the index is empty"));
    };
    match *first {
        b'<' => not_json("it looks like an HTML or XML page"),
        0 => not_json("it starts with zero bytes"),
        _ if start.starts_with(&[0xef, 0xbb, 0xbf]) => not_json("it starts with a byte-order mark"),
        _ if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) => {
            not_json("it is UTF-16")
        }
        _ if start.starts_with(&[0x1f, 0x8b]) => not_json("it is compressed with gzip"),
        _ if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) => not_json("it is compressed with zstd"),
        _ => Ok(()),
    }
}

fn trailing(error: &serde_json::Error) -> MdsError {
    let (line, column) = (error.line(), error.column());
    let reason = format!("something follows the index at line {line}, byte {column}");
    MdsProblem::Trailing.because(reason)
}

/// Parses the config that is stored in a shard.
pub(crate) fn parse_config(json: &[u8], limits: &Limits) -> Result<ShardConfig, MdsError> {
    let mut parser = Parser::new(limits);
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let tree = parser.tree(1, true).deserialize(&mut deserializer);
    let tree = tree.map_err(|error| parser.explain(&error))?;
    deserializer.end().map_err(|error| trailing(&error))?;
    build::config(&tree.object(IndexPosition::default())?, limits, false)
}

/// `{"shards": […], "version": 2}`.
struct TopLevel<'p, 'l> {
    parser: &'p mut Parser<'l>,
}

impl<'de> Visitor<'de> for TopLevel<'_, '_> {
    type Value = Vec<ShardEntry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(OBJECT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let parser = self.parser;
        let (mut shards, mut version) = (None, None);
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key_seed(parser.tree(2, true))? {
            let Json::Text(key) = key else { continue };
            if seen.contains(&key) {
                return Err(parser.fail(top_level(&[]).repeated(&key)));
            }
            if key == "shards" {
                shards = Some(map.next_value_seed(Shards { parser })?);
            } else {
                let value = parser.member(&mut map, &key, 2, key == "version")?;
                version = version.or((key == "version").then(|| (key.clone(), value)));
            }
            seen.insert(key);
        }
        let top_level = top_level(version.as_slice());
        build::check_version(&top_level).map_err(|error| parser.fail(error))?;
        shards.ok_or_else(|| parser.fail(top_level.missing("shards")))
    }
}

const fn top_level<'j, 'a>(members: &'j [Member<'a>]) -> Object<'j, 'a> {
    let position = IndexPosition {
        shard: None,
        field: String::new(),
    };
    Object { members, position }
}

/// Visits the list of shards.
struct Shards<'p, 'l> {
    parser: &'p mut Parser<'l>,
}

impl<'de> DeserializeSeed<'de> for Shards<'_, '_> {
    type Value = Vec<ShardEntry>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Shards<'_, '_> {
    type Value = Vec<ShardEntry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of shards")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let parser = self.parser;
        let mut shards: Vec<ShardEntry> = Vec::new();
        let mut last = None;
        loop {
            let number = shards.len() as u64;
            parser.shard = Some(number);
            let members = RawMembers {
                parser: &mut *parser,
            };
            let Some(shard) = seq.next_element_seed(members)? else {
                break;
            };
            Limits::check("shards", number + 1, parser.limits.shards)
                .map_err(|exceeded| parser.fail(exceeded))?;
            let entry = build::entry(shard, number, parser, &mut last);
            shards.push(entry.map_err(|error| parser.fail(error))?);
        }
        parser.shard = None;
        Ok(shards)
    }
}

/// Visits a shard, and leaves its values as texts.
struct RawMembers<'p, 'l> {
    parser: &'p mut Parser<'l>,
}

impl<'de> DeserializeSeed<'de> for RawMembers<'_, '_> {
    type Value = RawShard<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RawMembers<'_, '_> {
    type Value = RawShard<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(OBJECT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(key) = map.next_key_seed(self.parser.tree(4, true))? {
            if let Json::Text(key) = key {
                let next = (key, map.next_value()?);
                self.parser.keep(&mut members, next, FIELDS)?;
            }
        }
        Ok(members)
    }
}
