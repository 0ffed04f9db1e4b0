//! Parses the values in an index, from numbers to files.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use shardmill_codec::{Digest, FileHashes, FileInfo, HashAlgo};
use shardmill_core::{Limits, check_relative_path};

use super::fields::{RawConfig, Texts};
use super::parser::Parser;
use crate::error::MdsError;
use crate::shown::{parse_name, shorten};

/// Implements [`DeserializeSeed`] for visitors that request one kind of value.
macro_rules! seeds {
    ($($name:ident: $value:ty, $request:ident;)*) => {$(
        impl<'de> DeserializeSeed<'de> for $name<'_, '_> {
            type Value = $value;

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<$value, D::Error> {
                deserializer.$request(self)
            }
        }
    )*};
}
pub(super) use seeds;

seeds! {
    Ignored: (), deserialize_any;
    Strings: (), deserialize_seq;
    Sizes: (), deserialize_seq;
    Columns: (), deserialize_map;
    Hashes: FileHashes, deserialize_map;
    File: FileInfo, deserialize_map;
}

/// Skips a value of any type, up to a bounded depth.
pub(super) struct Ignored<'p, 'l> {
    pub(super) parser: &'p mut Parser<'l>,
    pub(super) depth: u64,
}

impl Ignored<'_, '_> {
    fn enter<E: serde::de::Error>(&mut self) -> Result<(), E> {
        Limits::check("json-depth", self.depth, self.parser.limits.json_depth)
            .map_err(|problem| self.parser.fail(problem.into()))
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
        self.parser
            .check_string(text)
            .map_err(|error| self.parser.fail(error))
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
            .next_key_seed(Str::new(self.parser, |parser, key| {
                parser.check_string(key)
            }))?
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

/// Parses a string and passes it to a function while it is borrowed.
pub(super) struct Str<'p, 'l, T, F: FnOnce(&mut Parser<'l>, &str) -> Result<T, MdsError>> {
    pub(super) parser: &'p mut Parser<'l>,
    then: F,
    value: PhantomData<fn() -> T>,
}

impl<'p, 'l, T, F: FnOnce(&mut Parser<'l>, &str) -> Result<T, MdsError>> Str<'p, 'l, T, F> {
    pub(super) const fn new(parser: &'p mut Parser<'l>, then: F) -> Self {
        Self {
            parser,
            then,
            value: PhantomData,
        }
    }
}

impl<'de, 'l, T, F: FnOnce(&mut Parser<'l>, &str) -> Result<T, MdsError>> DeserializeSeed<'de>
    for Str<'_, 'l, T, F>
{
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'l, T, F: FnOnce(&mut Parser<'l>, &str) -> Result<T, MdsError>> Visitor<'_>
    for Str<'_, 'l, T, F>
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.then)(self.parser, text).map_err(|error| self.parser.fail(error))
    }
}

/// Parses a whole number from 0 to 2⁶⁴ − 1.
pub(super) struct Number;

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

/// Parses `null` or what the seed accepts.
pub(super) struct Nullable<S>(pub(super) S);

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

/// Parses a list of strings and appends each to a list of the config.
pub(super) struct Strings<'p, 'l> {
    pub(super) parser: &'p mut Parser<'l>,
    pub(super) list: fn(&mut RawConfig) -> &mut Texts,
}

impl<'de> Visitor<'de> for Strings<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { parser, list } = self;
        while seq
            .next_element_seed(Str::new(parser, |parser, text| parser.add_text(list, text)))?
            .is_some()
        {}
        Ok(())
    }
}

/// Parses `column_sizes`.
pub(super) struct Sizes<'p, 'l> {
    pub(super) parser: &'p mut Parser<'l>,
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
            Limits::check("columns", count, parser.limits.columns)
                .map_err(|problem| parser.fail(problem.into()))?;
            parser.current.sizes.push(size);
        }
        Ok(())
    }
}

/// Parses the `columns` of the JSON format: an object of names and encodings. As in the other formats, repeated names
/// are found when the config is built.
pub(super) struct Columns<'p, 'l> {
    pub(super) parser: &'p mut Parser<'l>,
}

impl<'de> Visitor<'de> for Columns<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of column names and encodings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let parser = self.parser;
        while map
            .next_key_seed(Str::new(parser, |parser, name| {
                parser.add_text(|config| &mut config.names, name)
            }))?
            .is_some()
        {
            map.next_value_seed(Str::new(parser, |parser, text| {
                parser.add_text(|config| &mut config.encodings, text)
            }))?;
        }
        Ok(())
    }
}

impl Parser<'_> {
    /// Appends to a list of names, encodings or hashes. The limit on columns applies to each of these lists.
    fn add_text(
        &mut self,
        list: impl FnOnce(&mut RawConfig) -> &mut Texts,
        text: &str,
    ) -> Result<(), MdsError> {
        self.check_string(text)?;
        let list = list(&mut self.current);
        list.push(text);
        Ok(Limits::check(
            "columns",
            list.len() as u64,
            self.limits.columns,
        )?)
    }
}

/// Parses the hashes of a file.
pub(super) struct Hashes<'p, 'l> {
    pub(super) parser: &'p mut Parser<'l>,
}

impl<'de> Visitor<'de> for Hashes<'_, '_> {
    type Value = FileHashes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of hash names and digests")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FileHashes, A::Error> {
        let parser = self.parser;
        let mut hashes = FileHashes::default();
        while let Some(algo) = map.next_key_seed(Str::new(parser, |_, name| {
            Ok(parse_name::<HashAlgo>(name)?)
        }))? {
            if hashes.get(algo).is_some() {
                return Err(parser.fail(parser.twice(algo.name())));
            }
            let digest =
                map.next_value_seed(Str::new(parser, |_, hex| Ok(Digest::parse(algo, hex)?)))?;
            hashes.insert(digest);
        }
        Ok(hashes)
    }
}

/// Parses a file of a shard.
pub(super) struct File<'p, 'l> {
    pub(super) parser: &'p mut Parser<'l>,
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
                known.ok_or_else(|| parser.unknown(key))
            });
            let Some(key) = map.next_key_seed(key)? else {
                break;
            };
            parser.inner = key;
            let twice = match key {
                "basename" => {
                    let name = map.next_value_seed(Str::new(parser, check_name))?;
                    basename.replace(name).is_some()
                }
                "bytes" => bytes.replace(map.next_value_seed(Number)?).is_some(),
                _ => hashes
                    .replace(map.next_value_seed(Hashes { parser })?)
                    .is_some(),
            };
            if twice {
                parser.inner = "";
                return Err(parser.fail(parser.twice(key)));
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
                Err(parser.fail(parser.missing(missing)))
            }
        }
    }
}

fn check_name(parser: &mut Parser<'_>, name: &str) -> Result<Box<str>, MdsError> {
    parser.check_string(name)?;
    check_relative_path(name).map_err(|problem| MdsError::Path {
        name: shorten(name),
        problem,
    })?;
    Ok(name.into())
}
