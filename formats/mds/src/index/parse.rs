//! Parses the JSON of an index, field by field.
//!
//! `serde_json` handles the syntax. The visitors here and in [`values`](super::values) handle the fields, so that an
//! error can name the shard and the field, which errors of `serde` cannot. A visitor that refuses a value stores the
//! reason with [`Parser::fail`] and returns an arbitrary error of `serde`.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read as _};
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use shardmill_core::{ErrorKind, Format, LimitExceeded, Limits};

use super::build;
use super::entry::{Index, ShardEntry};
use super::fields::{Fields, Files, RawConfig};
use super::parser::Parser;
use super::values::{Columns, File, Ignored, Nullable, Number, Sizes, Str, Strings, seeds};
use crate::config::ShardConfig;
use crate::error::{IndexPosition, MdsError, MdsProblem, not_json};
use crate::shown::parse_name;

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
        run(&mut serde_json::Deserializer::from_slice(json), limits)
    }

    /// Reads an `index.json` from `reader` without keeping its text, which for a million shards is larger than the
    /// result. It is slower than [`parse`](Self::parse) on the same bytes. The reader needs no buffer of its own.
    ///
    /// # Errors
    ///
    /// As for [`parse`](Self::parse), and [`MdsError::Read`] when the reader fails.
    pub fn read(reader: impl io::Read, limits: &Limits) -> Result<Self, MdsError> {
        let mut reader = reader.take(limits.index_bytes.saturating_add(1));
        let result = read_from(&mut reader, limits);
        if reader.limit() > 0 {
            return result;
        }
        let problem = LimitExceeded {
            name: "index-bytes",
            value: limits.index_bytes.saturating_add(1),
            limit: limits.index_bytes,
        };
        Err(MdsError::Limit(problem).at(IndexPosition::default()))
    }
}

fn read_from(reader: &mut impl io::Read, limits: &Limits) -> Result<Index, MdsError> {
    let mut start = Vec::new();
    let first = reader.by_ref().take(START_BYTES).read_to_end(&mut start);
    first.map_err(|error| MdsError::Read {
        kind: ErrorKind::from(&error),
        reason: error.to_string(),
    })?;
    check_start(&start)?;
    // PERF: serde_json reads single bytes, so the reader is buffered.
    let both = io::BufReader::with_capacity(256 << 10, (&start[..]).chain(reader));
    run(&mut serde_json::Deserializer::from_reader(both), limits)
}

/// How much is read before parsing, to recognise other kinds of files. No index starts with more whitespace.
const START_BYTES: u64 = 4096;

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

fn run<'de, R: serde_json::de::Read<'de>>(
    json: &mut serde_json::Deserializer<R>,
    limits: &Limits,
) -> Result<Index, MdsError> {
    let mut parser = Parser::new(limits);
    let shards = TopLevel {
        parser: &mut parser,
    }
    .deserialize(&mut *json)
    .map_err(|error| parser.explain(&error))?;
    json.end().map_err(|error| trailing(&error))?;
    build::check_unique(&shards)?;
    Ok(Index { shards })
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
    let object = Object {
        parser: &mut parser,
        allowed: Fields::CONFIG,
    };
    object
        .deserialize(&mut deserializer)
        .map_err(|error| parser.explain(&error))?;
    deserializer.end().map_err(|error| trailing(&error))?;
    parser.current.build(&parser)
}

seeds! {
    TopLevel: Vec<ShardEntry>, deserialize_map;
    Shards: Vec<ShardEntry>, deserialize_seq;
    Object: Files, deserialize_map;
}

/// `{"shards": […], "version": 2}`.
struct TopLevel<'p, 'l> {
    parser: &'p mut Parser<'l>,
}

impl<'de> Visitor<'de> for TopLevel<'_, '_> {
    type Value = Vec<ShardEntry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let parser = self.parser;
        let mut shards = None;
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key_seed(Str::new(parser, |parser, key| {
            parser.check_string(key)?;
            Ok(key.to_owned())
        }))? {
            if seen.contains(&key) {
                return Err(parser.fail(parser.twice(&key)));
            }
            match key.as_str() {
                "shards" => {
                    parser.field = "shards";
                    shards = Some(map.next_value_seed(Shards { parser })?);
                }
                "version" => {
                    parser.field = "version";
                    let found = map.next_value_seed(Number)?;
                    check_version(parser, found)?;
                }
                _ => map.next_value_seed(Ignored { parser, depth: 2 })?,
            }
            parser.field = "";
            seen.insert(key);
        }
        if !seen.contains("version") {
            return Err(parser.fail(parser.missing("version")));
        }
        shards.ok_or_else(|| parser.fail(parser.missing("shards")))
    }
}

fn check_version<E: serde::de::Error>(parser: &mut Parser<'_>, found: u64) -> Result<(), E> {
    if found == 2 {
        return Ok(());
    }
    let reason = format!("the version is {found}; only version 2 is supported");
    Err(parser.fail(MdsProblem::Version.because(reason)))
}

/// Visits the list of shards.
struct Shards<'p, 'l> {
    parser: &'p mut Parser<'l>,
}

impl<'de> Visitor<'de> for Shards<'_, '_> {
    type Value = Vec<ShardEntry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of shards")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let parser = self.parser;
        let mut shards: Vec<ShardEntry> = Vec::new();
        loop {
            let number = shards.len() as u64;
            parser.shard = Some(number);
            parser.field = "";
            let object = Object {
                parser,
                allowed: Fields::ENTRY,
            };
            let Some(files) = seq.next_element_seed(object)? else {
                break;
            };
            Limits::check("shards", number + 1, parser.limits.shards)
                .map_err(|problem| parser.fail(problem.into()))?;
            let entry = parser.entry(files).map_err(|error| parser.fail(error))?;
            shards.push(entry);
        }
        parser.shard = None;
        Ok(shards)
    }
}

impl Parser<'_> {
    /// Builds the entry of the shard whose fields were just read.
    fn entry(&mut self, files: Files) -> Result<ShardEntry, MdsError> {
        let config = match &self.config {
            Some(config) if self.current == self.previous => Arc::clone(config),
            _ => Arc::new(self.current.build(self)?),
        };
        std::mem::swap(&mut self.current, &mut self.previous);
        self.config = Some(Arc::clone(&config));
        build::entry(self, config, files)
    }
}

/// Visits a shard of an index, or the config in a shard. The config is stored in [`Parser::current`].
struct Object<'p, 'l> {
    parser: &'p mut Parser<'l>,
    allowed: Fields,
}

impl<'de> Visitor<'de> for Object<'_, '_> {
    type Value = Files;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Files, A::Error> {
        let Self { parser, allowed } = self;
        parser.current.clear();
        let mut files = Files::default();
        loop {
            parser.field = "";
            parser.inner = "";
            let key = Str::new(parser, |parser, key| {
                Fields::named(key)
                    .filter(|field| allowed.contains(*field))
                    .ok_or_else(|| parser.unknown(key))
            });
            let Some(field) = map.next_key_seed(key)? else {
                break;
            };
            if parser.current.fields.contains(field) {
                return Err(parser.fail(parser.twice(field.name())));
            }
            parser.field = field.name();
            parser.current.fields.insert(field);
            match field {
                Fields::COLUMN_ENCODINGS => map.next_value_seed(Strings {
                    parser,
                    list: |config| &mut config.encodings,
                })?,
                Fields::COLUMN_NAMES => map.next_value_seed(Strings {
                    parser,
                    list: |config| &mut config.names,
                })?,
                Fields::COLUMN_SIZES => map.next_value_seed(Sizes { parser })?,
                Fields::COLUMNS => map.next_value_seed(Columns { parser })?,
                Fields::COMPRESSION => {
                    let set = Parser::set(|config| &mut config.compression);
                    let given = map
                        .next_value_seed(Nullable(Str::new(parser, set)))?
                        .is_some();
                    parser.current.compressed = given;
                }
                Fields::FORMAT => {
                    let format = map.next_value_seed(Str::new(parser, |_, name| {
                        Ok(parse_name::<Format>(name)?)
                    }))?;
                    parser.current.format = Some(format);
                }
                Fields::HASHES => map.next_value_seed(Strings {
                    parser,
                    list: |config| &mut config.hashes,
                })?,
                Fields::NEWLINE => {
                    let set = Parser::set(|config| &mut config.newline);
                    map.next_value_seed(Str::new(parser, set))?;
                }
                Fields::SEPARATOR => {
                    let set = Parser::set(|config| &mut config.separator);
                    map.next_value_seed(Str::new(parser, set))?;
                }
                Fields::SIZE_LIMIT => {
                    parser.current.size_limit = map.next_value_seed(Nullable(Number))?
                }
                Fields::VERSION => {
                    let found = map.next_value_seed(Number)?;
                    check_version(parser, found)?;
                }
                Fields::SAMPLES => files.samples = map.next_value_seed(Number)?,
                Fields::RAW_DATA => files.raw_data = Some(map.next_value_seed(File { parser })?),
                Fields::RAW_META => files.raw_meta = Some(map.next_value_seed(File { parser })?),
                Fields::ZIP_DATA => {
                    files.zip_data = map.next_value_seed(Nullable(File { parser }))?
                }
                _ => files.zip_meta = map.next_value_seed(Nullable(File { parser }))?,
            }
        }
        let format = parser.current.format;
        let needed = allowed.of_format(format);
        if let Some(field) = needed.first_not_in(parser.current.fields) {
            return Err(parser.fail(parser.missing(field.name())));
        }
        if let Some(field) = parser.current.fields.first_not_in(needed) {
            return Err(parser.fail(parser.unknown(field.name())));
        }
        Ok(files)
    }
}

impl Parser<'_> {
    /// Returns a function that stores a string in the config being read.
    fn set(
        slot: impl FnOnce(&mut RawConfig) -> &mut String,
    ) -> impl FnOnce(&mut Parser<'_>, &str) -> Result<(), MdsError> {
        |parser, text| {
            parser.check_string(text)?;
            slot(&mut parser.current).push_str(text);
            Ok(())
        }
    }
}
