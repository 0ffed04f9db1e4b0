//! The JSON of an index, field by field.
//!
//! `serde_json` knows the syntax; the visitors here know the fields, so that an error can name the shard and the
//! field, which the errors of `serde` cannot. A visitor that refuses something leaves the reason in [`Parser::error`]
//! and fails with any error of `serde`.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use shardmill_core::{ErrorKind, Format, LimitExceeded, Limits, check_relative_path, escape};

use super::build::{self, Fields, RawConfig, Texts};
use super::{FileInfo, Index, IndexError, Place, ShardEntry};
use crate::config::ShardConfig;
use crate::hash::{Digest, FileHashes, HashAlgo};

/// Most characters of a value that a message repeats.
const SHOWN: usize = 120;

/// What has been read so far and where the reading is.
pub(super) struct Parser<'l> {
    pub(super) limits: &'l Limits,
    error: Option<IndexError>,
    shard: Option<u64>,
    field: &'static str,
    inner: &'static str,
    // PERF: the texts of the config of this shard and of the one before. When they are equal, which is what they
    // are in nearly every index, the config is shared instead of built.
    current: RawConfig,
    previous: RawConfig,
    config: Option<Arc<ShardConfig>>,
}

impl<'l> Parser<'l> {
    fn new(limits: &'l Limits) -> Self {
        Self {
            limits,
            error: None,
            shard: None,
            field: "",
            inner: "",
            current: RawConfig::default(),
            previous: RawConfig::default(),
            config: None,
        }
    }

    pub(super) fn place(&self) -> Place {
        let mut field = self.field.to_owned();
        if !self.inner.is_empty() {
            field.push('.');
            field.push_str(self.inner);
        }
        Place {
            shard: self.shard,
            field,
        }
    }

    /// The place of a field of the current shard.
    pub(super) fn place_of(&self, field: &str) -> Place {
        Place {
            shard: self.shard,
            field: field.to_owned(),
        }
    }

    /// A key of the current object.
    fn place_inside(&self, key: &str) -> Place {
        let mut place = self.place();
        if !place.field.is_empty() {
            place.field.push('.');
        }
        place.field.extend(key.chars().take(SHOWN));
        place
    }

    fn fail<E: serde::de::Error>(&mut self, error: IndexError) -> E {
        self.error.get_or_insert(error);
        E::custom("")
    }

    pub(super) fn field_error(&self, problem: impl Into<String>) -> IndexError {
        IndexError::Field {
            place: self.place(),
            problem: problem.into(),
        }
    }

    fn limit(&self, problem: LimitExceeded) -> IndexError {
        IndexError::Limit {
            place: self.place(),
            problem,
        }
    }

    fn check(&self, name: &'static str, value: u64, limit: u64) -> Result<(), IndexError> {
        Limits::check(name, value, limit).map_err(|problem| self.limit(problem))
    }

    fn check_string(&self, text: &str) -> Result<(), IndexError> {
        self.check("string-bytes", text.len() as u64, self.limits.string_bytes)
    }

    /// What an error of `serde_json` means, unless a visitor has said so already.
    fn explain(&mut self, error: &serde_json::Error) -> IndexError {
        if let Some(error) = self.error.take() {
            return error;
        }
        let (line, column) = (error.line() as u64, error.column() as u64);
        match error.classify() {
            Category::Eof => IndexError::Truncated { line, column },
            Category::Syntax => IndexError::NotJson {
                reason: error.to_string(),
            },
            Category::Io => IndexError::Read {
                kind: error.io_error_kind().map_or(ErrorKind::Storage, |kind| {
                    ErrorKind::from(&io::Error::from(kind))
                }),
                reason: error.to_string(),
            },
            // A value of a type that no visitor of ours takes: `invalid type: …, expected …`.
            Category::Data => {
                let text = error.to_string();
                let text = text.rfind(" at line ").and_then(|end| text.get(..end)).unwrap_or(&text);
                let text = match text.strip_prefix("invalid type: ").or_else(|| text.strip_prefix("invalid value: ")) {
                    Some(rest) => format!("found {rest}"),
                    None => text.to_owned(),
                };
                // The message repeats the value, which may be long: its two ends are what matters.
                let problem = match text.split_once(", expected ") {
                    Some((found, expected)) => format!("{}, expected {expected}", shorten(found)),
                    None => shorten(&text),
                };
                self.field_error(problem)
            }
        }
    }
}

/// A value as a message repeats it.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = escape(text).chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The index in `json`.
pub(super) fn parse_index(json: &[u8], limits: &Limits) -> Result<Index, IndexError> {
    let too_long = |problem| IndexError::Limit {
        place: Place::default(),
        problem,
    };
    Limits::check("index-bytes", json.len() as u64, limits.index_bytes).map_err(too_long)?;
    check_start(json)?;
    run(&mut serde_json::Deserializer::from_slice(json), limits)
}

/// The index that `reader` gives.
pub(super) fn read_index(reader: impl io::Read, limits: &Limits) -> Result<Index, IndexError> {
    let failed = |error: &io::Error| IndexError::Read {
        kind: ErrorKind::from(error),
        reason: error.to_string(),
    };
    let counted = Counted {
        reader,
        left: limits.index_bytes,
        exceeded: false,
    };
    let mut reader = io::BufReader::with_capacity(256 << 10, counted);
    let start = io::BufRead::fill_buf(&mut reader).map_err(|error| failed(&error))?;
    check_start(start)?;
    let result = run(&mut serde_json::Deserializer::from_reader(&mut reader), limits);
    if reader.get_ref().exceeded {
        return Err(IndexError::Limit {
            place: Place::default(),
            problem: LimitExceeded {
                name: "index-bytes",
                value: limits.index_bytes.saturating_add(1),
                limit: limits.index_bytes,
            },
        });
    }
    result
}

/// Ends after as many bytes as an index may have and notes whether there was more.
struct Counted<R> {
    reader: R,
    left: u64,
    exceeded: bool,
}

impl<R: io::Read> io::Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if read as u64 > self.left {
            self.exceeded = true;
            return Ok(0);
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// Says what a file is that cannot be an index, by how it starts.
fn check_start(start: &[u8]) -> Result<(), IndexError> {
    let not_json = |reason: &str| {
        Err(IndexError::NotJson {
            reason: reason.to_owned(),
        })
    };
    let Some(first) = start.iter().find(|byte| !byte.is_ascii_whitespace()) else {
        return Err(IndexError::Empty);
    };
    match *first {
        b'<' => not_json("it looks like an HTML or XML page"),
        0 => not_json("it starts with zero bytes"),
        _ if start.starts_with(&[0xef, 0xbb, 0xbf]) => not_json("it starts with a byte-order mark"),
        _ if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) => not_json("it is UTF-16"),
        _ if start.starts_with(&[0x1f, 0x8b]) => not_json("it is compressed with gzip"),
        _ if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) => not_json("it is compressed with zstd"),
        _ => Ok(()),
    }
}

fn run<'de, R: serde_json::de::Read<'de>>(
    json: &mut serde_json::Deserializer<R>,
    limits: &Limits,
) -> Result<Index, IndexError> {
    let mut parser = Parser::new(limits);
    let shards = TopLevel { parser: &mut parser }
        .deserialize(&mut *json)
        .map_err(|error| parser.explain(&error))?;
    json.end().map_err(|error| trailing(&error))?;
    build::check_unique(&shards)?;
    Ok(Index { shards })
}

fn trailing(error: &serde_json::Error) -> IndexError {
    IndexError::Trailing {
        line: error.line() as u64,
        column: error.column() as u64,
    }
}

/// The config that is stored in a shard.
pub(crate) fn parse_config(json: &[u8], limits: &Limits) -> Result<ShardConfig, IndexError> {
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

/// `{"shards": […], "version": 2}`.
struct TopLevel<'p, 'l> {
    parser: &'p mut Parser<'l>,
}

impl<'de> DeserializeSeed<'de> for TopLevel<'_, '_> {
    type Value = Vec<ShardEntry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TopLevel<'_, '_> {
    type Value = Vec<ShardEntry>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let parser = self.parser;
        let (mut shards, mut version) = (None, false);
        let mut unknown = BTreeSet::new();
        loop {
            let key = Str::new(parser, |parser, key| {
                parser.check_string(key)?;
                Ok(match key {
                    "shards" => TopKey::Shards,
                    "version" => TopKey::Version,
                    other => TopKey::Other(other.to_owned()),
                })
            });
            let Some(key) = map.next_key_seed(key)? else { break };
            let twice = match &key {
                TopKey::Shards => shards.is_some(),
                TopKey::Version => version,
                TopKey::Other(name) => unknown.contains(name),
            };
            if twice {
                let name = match &key {
                    TopKey::Shards => "shards",
                    TopKey::Version => "version",
                    TopKey::Other(name) => name,
                };
                let place = parser.place_inside(name);
                return Err(parser.fail(IndexError::DuplicateField { place }));
            }
            match key {
                TopKey::Shards => {
                    parser.field = "shards";
                    shards = Some(map.next_value_seed(Shards { parser })?);
                }
                TopKey::Version => {
                    parser.field = "version";
                    let found = map.next_value_seed(Number)?;
                    version = true;
                    check_version(parser, found)?;
                }
                TopKey::Other(name) => {
                    map.next_value_seed(Ignored { parser, depth: 2 })?;
                    unknown.insert(name);
                }
            }
            parser.field = "";
        }
        if !version {
            let place = parser.place_inside("version");
            return Err(parser.fail(IndexError::MissingField { place }));
        }
        shards.ok_or_else(|| {
            let place = parser.place_inside("shards");
            parser.fail(IndexError::MissingField { place })
        })
    }
}

enum TopKey {
    Shards,
    Version,
    Other(String),
}

fn check_version<E: serde::de::Error>(parser: &mut Parser<'_>, found: u64) -> Result<(), E> {
    if found == 2 {
        return Ok(());
    }
    let place = parser.place();
    Err(parser.fail(IndexError::Version { place, found }))
}

/// A value nobody asked for, of any type but a bounded depth.
struct Ignored<'p, 'l> {
    parser: &'p mut Parser<'l>,
    depth: u64,
}

impl<'de> DeserializeSeed<'de> for Ignored<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Ignored<'_, '_> {
    fn enter<E: serde::de::Error>(&mut self) -> Result<(), E> {
        let depth = Limits::check("json-depth", self.depth, self.parser.limits.json_depth);
        depth.map_err(|problem| {
            let error = self.parser.limit(problem);
            self.parser.fail(error)
        })
    }
}

impl<'de> Visitor<'de> for Ignored<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.parser.check_string(text).map_err(|error| self.parser.fail(error))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        self.enter()?;
        let depth = self.depth + 1;
        while seq
            .next_element_seed(Ignored {
                parser: self.parser,
                depth,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.enter()?;
        let depth = self.depth + 1;
        while map
            .next_key_seed(Str::new(self.parser, |parser, key| parser.check_string(key)))?
            .is_some()
        {
            map.next_value_seed(Ignored {
                parser: self.parser,
                depth,
            })?;
        }
        Ok(())
    }
}

/// A string, handed to a function while it is borrowed.
struct Str<'p, 'l, T, F: FnOnce(&mut Parser<'l>, &str) -> Result<T, IndexError>> {
    parser: &'p mut Parser<'l>,
    then: F,
    value: PhantomData<fn() -> T>,
}

impl<'p, 'l, T, F: FnOnce(&mut Parser<'l>, &str) -> Result<T, IndexError>> Str<'p, 'l, T, F> {
    const fn new(parser: &'p mut Parser<'l>, then: F) -> Self {
        Self {
            parser,
            then,
            value: PhantomData,
        }
    }
}

impl<'de, 'l, T, F: FnOnce(&mut Parser<'l>, &str) -> Result<T, IndexError>> DeserializeSeed<'de>
    for Str<'_, 'l, T, F>
{
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'l, T, F: FnOnce(&mut Parser<'l>, &str) -> Result<T, IndexError>> Visitor<'_> for Str<'_, 'l, T, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.then)(self.parser, text).map_err(|error| self.parser.fail(error))
    }
}

/// A whole number from 0 to 2⁶⁴ − 1.
struct Number;

impl<'de> DeserializeSeed<'de> for Number {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_u64(self)
    }
}

impl Visitor<'_> for Number {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a non-negative integer below 2^64")
    }

    fn visit_u64<E>(self, value: u64) -> Result<u64, E> {
        Ok(value)
    }
}

/// `null` or what the seed takes.
struct Nullable<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Nullable<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null or a value")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// A list of strings, each appended to `into`.
struct Strings<'p, 'l> {
    parser: &'p mut Parser<'l>,
    into: &'p mut Texts,
}

impl<'de> DeserializeSeed<'de> for Strings<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Strings<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { parser, into } = self;
        while seq
            .next_element_seed(Str::new(parser, |parser, text| parser.add_text(into, text)))?
            .is_some()
        {}
        Ok(())
    }
}

/// `column_sizes`.
struct Sizes<'p, 'l> {
    parser: &'p mut Parser<'l>,
}

impl<'de> DeserializeSeed<'de> for Sizes<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Sizes<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of numbers and nulls")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(size) = seq.next_element_seed(Nullable(Number))? {
            let parser = &mut *self.parser;
            let count = parser.current.sizes.len() as u64 + 1;
            parser
                .check("columns", count, parser.limits.columns)
                .map_err(|error| parser.fail(error))?;
            parser.current.sizes.push(size);
        }
        Ok(())
    }
}

/// The `columns` of the JSON format: an object of names and encodings. A name that is there twice is found when the
/// config is built, as for the other formats.
struct Columns<'p, 'l> {
    parser: &'p mut Parser<'l>,
    names: &'p mut Texts,
    encodings: &'p mut Texts,
}

impl<'de> DeserializeSeed<'de> for Columns<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Columns<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of column names and encodings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self {
            parser,
            names,
            encodings,
        } = self;
        while map
            .next_key_seed(Str::new(parser, |parser, name| parser.add_text(names, name)))?
            .is_some()
        {
            map.next_value_seed(Str::new(parser, |parser, text| parser.add_text(encodings, text)))?;
        }
        Ok(())
    }
}

impl Parser<'_> {
    /// Appends to a list of names, encodings or hashes. None of them is longer than columns may be many.
    fn add_text(&self, into: &mut Texts, text: &str) -> Result<(), IndexError> {
        self.check_string(text)?;
        into.push(text);
        self.check("columns", into.len() as u64, self.limits.columns)
    }
}

/// The hashes of a file.
struct Hashes<'p, 'l> {
    parser: &'p mut Parser<'l>,
}

impl<'de> DeserializeSeed<'de> for Hashes<'_, '_> {
    type Value = FileHashes;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FileHashes, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Hashes<'_, '_> {
    type Value = FileHashes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of hash names and digests")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FileHashes, A::Error> {
        let parser = self.parser;
        let hash_error = |parser: &Parser<'_>, problem| IndexError::Hash {
            place: parser.place(),
            problem,
        };
        let mut hashes = FileHashes::default();
        while let Some(algo) = map.next_key_seed(Str::new(parser, |parser, name| {
            let name: String = name.chars().take(SHOWN).collect();
            name.parse::<HashAlgo>().map_err(|problem| hash_error(parser, problem))
        }))? {
            if hashes.get(algo).is_some() {
                let place = parser.place_inside(algo.name());
                return Err(parser.fail(IndexError::DuplicateField { place }));
            }
            let digest = map.next_value_seed(Str::new(parser, |parser, hex| {
                Digest::parse(algo, hex).map_err(|problem| hash_error(parser, problem))
            }))?;
            hashes.insert(digest);
        }
        Ok(hashes)
    }
}

/// A file of a shard.
struct File<'p, 'l> {
    parser: &'p mut Parser<'l>,
}

impl<'de> DeserializeSeed<'de> for File<'_, '_> {
    type Value = FileInfo;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FileInfo, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for File<'_, '_> {
    type Value = FileInfo;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with basename, bytes and hashes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FileInfo, A::Error> {
        const KEYS: [&str; 3] = ["basename", "bytes", "hashes"];
        let parser = self.parser;
        let (mut basename, mut bytes, mut hashes) = (None, None, None);
        loop {
            parser.inner = "";
            let key = Str::new(parser, |parser, key| {
                let known = KEYS.into_iter().find(|known| *known == key);
                known.ok_or_else(|| IndexError::UnknownField {
                    place: parser.place_inside(key),
                })
            });
            let Some(key) = map.next_key_seed(key)? else { break };
            parser.inner = key;
            let twice = match key {
                "basename" => {
                    let name = map.next_value_seed(Str::new(parser, check_name))?;
                    basename.replace(name).is_some()
                }
                "bytes" => bytes.replace(map.next_value_seed(Number)?).is_some(),
                _ => hashes.replace(map.next_value_seed(Hashes { parser })?).is_some(),
            };
            if twice {
                let place = parser.place();
                return Err(parser.fail(IndexError::DuplicateField { place }));
            }
        }
        match (basename, bytes, hashes) {
            (Some(basename), Some(bytes), Some(hashes)) => Ok(FileInfo {
                basename,
                bytes,
                hashes,
            }),
            (basename, bytes, _) => {
                let missing = match (basename, bytes) {
                    (None, _) => "basename",
                    (_, None) => "bytes",
                    _ => "hashes",
                };
                let place = parser.place_inside(missing);
                Err(parser.fail(IndexError::MissingField { place }))
            }
        }
    }
}

fn check_name(parser: &mut Parser<'_>, name: &str) -> Result<Box<str>, IndexError> {
    parser.check_string(name)?;
    check_relative_path(name).map_err(|problem| IndexError::Path {
        place: parser.place(),
        name: name.chars().take(SHOWN).collect(),
        problem,
    })?;
    Ok(name.into())
}

/// The list of shards.
struct Shards<'p, 'l> {
    parser: &'p mut Parser<'l>,
}

impl<'de> DeserializeSeed<'de> for Shards<'_, '_> {
    type Value = Vec<ShardEntry>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
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
        loop {
            let number = shards.len() as u64;
            parser.shard = Some(number);
            parser.field = "";
            let object = Object {
                parser,
                allowed: Fields::ENTRY,
            };
            let Some(files) = seq.next_element_seed(object)? else { break };
            parser
                .check("shards", number + 1, parser.limits.shards)
                .map_err(|error| parser.fail(error))?;
            let entry = parser.entry(files).map_err(|error| parser.fail(error))?;
            shards.push(entry);
        }
        parser.shard = None;
        Ok(shards)
    }
}

impl Parser<'_> {
    /// The entry of the shard whose fields were just read.
    fn entry(&mut self, files: Files) -> Result<ShardEntry, IndexError> {
        let config = match &self.config {
            Some(config) if self.current == self.previous => Arc::clone(config),
            _ => Arc::new(self.current.build(self)?),
        };
        std::mem::swap(&mut self.current, &mut self.previous);
        self.config = Some(Arc::clone(&config));
        build::entry(self, config, files)
    }
}

/// The files and the count of a shard entry.
#[derive(Default)]
pub(super) struct Files {
    pub(super) samples: u64,
    pub(super) raw_data: Option<FileInfo>,
    pub(super) zip_data: Option<FileInfo>,
    pub(super) raw_meta: Option<FileInfo>,
    pub(super) zip_meta: Option<FileInfo>,
}

/// A shard of an index or the config in a shard. The config goes to [`Parser::current`].
struct Object<'p, 'l> {
    parser: &'p mut Parser<'l>,
    allowed: Fields,
}

impl<'de> DeserializeSeed<'de> for Object<'_, '_> {
    type Value = Files;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Files, D::Error> {
        deserializer.deserialize_map(self)
    }
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
                    .ok_or_else(|| IndexError::UnknownField {
                        place: parser.place_inside(key),
                    })
            });
            let Some(field) = map.next_key_seed(key)? else { break };
            parser.field = field.name();
            if parser.current.fields.contains(field) {
                let place = parser.place();
                return Err(parser.fail(IndexError::DuplicateField { place }));
            }
            parser.current.fields.insert(field);
            match field {
                Fields::COLUMN_ENCODINGS => {
                    let mut into = std::mem::take(&mut parser.current.encodings);
                    map.next_value_seed(Strings { parser, into: &mut into })?;
                    parser.current.encodings = into;
                }
                Fields::COLUMN_NAMES => {
                    let mut into = std::mem::take(&mut parser.current.names);
                    map.next_value_seed(Strings { parser, into: &mut into })?;
                    parser.current.names = into;
                }
                Fields::COLUMN_SIZES => map.next_value_seed(Sizes { parser })?,
                Fields::COLUMNS => {
                    let mut names = std::mem::take(&mut parser.current.names);
                    let mut encodings = std::mem::take(&mut parser.current.encodings);
                    map.next_value_seed(Columns {
                        parser,
                        names: &mut names,
                        encodings: &mut encodings,
                    })?;
                    parser.current.names = names;
                    parser.current.encodings = encodings;
                }
                Fields::COMPRESSION => {
                    let seed = Nullable(Str::new(parser, Parser::set(|config| &mut config.compression)));
                    let given = map.next_value_seed(seed)?.is_some();
                    parser.current.compressed = given;
                }
                Fields::FORMAT => {
                    let format = map.next_value_seed(Str::new(parser, |parser, name| {
                        let name: String = name.chars().take(SHOWN).collect();
                        name.parse::<Format>().map_err(|problem| IndexError::Format {
                            place: parser.place(),
                            problem,
                        })
                    }))?;
                    parser.current.format = Some(format);
                }
                Fields::HASHES => {
                    let mut into = std::mem::take(&mut parser.current.hashes);
                    map.next_value_seed(Strings { parser, into: &mut into })?;
                    parser.current.hashes = into;
                }
                Fields::NEWLINE => {
                    map.next_value_seed(Str::new(parser, Parser::set(|config| &mut config.newline)))?;
                }
                Fields::SEPARATOR => {
                    map.next_value_seed(Str::new(parser, Parser::set(|config| &mut config.separator)))?;
                }
                Fields::SIZE_LIMIT => parser.current.size_limit = map.next_value_seed(Nullable(Number))?,
                Fields::VERSION => {
                    let found = map.next_value_seed(Number)?;
                    check_version(parser, found)?;
                }
                Fields::SAMPLES => files.samples = map.next_value_seed(Number)?,
                Fields::RAW_DATA => files.raw_data = Some(map.next_value_seed(File { parser })?),
                Fields::RAW_META => files.raw_meta = Some(map.next_value_seed(File { parser })?),
                Fields::ZIP_DATA => files.zip_data = map.next_value_seed(Nullable(File { parser }))?,
                _ => files.zip_meta = map.next_value_seed(Nullable(File { parser }))?,
            }
        }
        let format = parser.current.format;
        let needed = allowed.of_format(format);
        if let Some(field) = needed.first_not_in(parser.current.fields) {
            let place = parser.place_of(field.name());
            return Err(parser.fail(IndexError::MissingField { place }));
        }
        if let Some(field) = parser.current.fields.first_not_in(needed) {
            let place = parser.place_of(field.name());
            return Err(parser.fail(IndexError::UnknownField { place }));
        }
        Ok(files)
    }
}

impl Parser<'_> {
    /// A function that stores a string in the config that is being read.
    fn set(
        slot: impl FnOnce(&mut RawConfig) -> &mut String,
    ) -> impl FnOnce(&mut Parser<'_>, &str) -> Result<(), IndexError> {
        |parser, text| {
            parser.check_string(text)?;
            slot(&mut parser.current).push_str(text);
            Ok(())
        }
    }
}
