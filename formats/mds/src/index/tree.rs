//! JSON as a tree that keeps repeated keys, and the values of its objects.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_json::error::Category;
use serde_json::value::RawValue;
use shardmill_core::{LimitExceeded, Limits};

use crate::error::{IndexPosition, MdsError, MdsProblem, not_json};
use crate::shown::shorten;

/// A JSON value.
#[derive(Debug, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    /// The members in their order. Keys may repeat.
    Object(Vec<Member<'a>>),
}

/// The key and the value of a member of an object.
pub(super) type Member<'a> = (Cow<'a, str>, Json<'a>);

impl<'a> Json<'a> {
    pub(super) fn as_number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }

    pub(super) fn as_object(&self) -> Option<&[Member<'a>]> {
        match self {
            Self::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Returns the object at a position.
    pub(super) fn object(&self, position: IndexPosition) -> Result<Object<'_, 'a>, MdsError> {
        let members = self.as_object();
        let members = members.ok_or_else(|| unlike(self, OBJECT).at(position.clone()))?;
        Ok(Object { members, position })
    }
}

impl fmt::Display for Json<'_> {
    /// Describes the value as `serde_json` does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "boolean `{value}`"),
            Self::Number(number) if number.is_f64() => write!(f, "floating point `{number}`"),
            Self::Number(number) => write!(f, "integer `{number}`"),
            Self::Text(text) => write!(f, "string {text:?}"),
            Self::List(_) => f.write_str("sequence"),
            Self::Object(_) => f.write_str("map"),
        }
    }
}

/// An object of an index, and its position.
#[derive(Clone)]
pub(super) struct Object<'j, 'a> {
    pub(super) members: &'j [Member<'a>],
    pub(super) position: IndexPosition,
}

impl<'j, 'a> Object<'j, 'a> {
    /// Returns the position of a field.
    pub(super) fn position_of(&self, field: &str) -> IndexPosition {
        let IndexPosition { shard, field: own } = &self.position;
        let dot = if own.is_empty() || field.is_empty() {
            ""
        } else {
            "."
        };
        IndexPosition {
            shard: *shard,
            field: format!("{own}{dot}{field}"),
        }
    }

    /// Builds the error for a value of a field.
    pub(super) fn wrong_field(&self, field: &str, reason: impl Into<String>) -> MdsError {
        let position = self.position_of(field);
        MdsProblem::Field.because(reason).at(position)
    }

    /// Refuses unknown, repeated and missing fields.
    pub(super) fn check_fields(&self, known: &[&str]) -> Result<(), MdsError> {
        for (number, (field, _)) in self.members.iter().enumerate() {
            let before = self.members.iter().take(number);
            if !known.contains(&&**field) {
                let unknown = MdsProblem::UnknownField.because("the field is unknown");
                return Err(unknown.at(self.position_of(&shorten(field))));
            }
            if before.into_iter().any(|(other, _)| other == field) {
                return Err(self.repeated(field));
            }
        }
        let missing = known.iter().find(|field| self.find(field).is_none());
        missing.map_or(Ok(()), |field| Err(self.missing(field)))
    }

    fn find(&self, field: &str) -> Option<&'j Json<'a>> {
        let mut members = self.members.iter();
        Some(&members.find(|(known, _)| known == field)?.1)
    }

    /// Builds the error for a field that occurs twice.
    pub(super) fn repeated(&self, field: &str) -> MdsError {
        let repeated = MdsProblem::DuplicateField.because("the field occurs twice");
        repeated.at(self.position_of(&shorten(field)))
    }

    /// Builds the error for a field that is missing.
    pub(super) fn missing(&self, field: &str) -> MdsError {
        let missing = MdsProblem::MissingField.because("the field is missing");
        missing.at(self.position_of(field))
    }

    /// Returns what `read` finds in the value of a field, or says that something else is expected.
    pub(super) fn value<T>(
        &self,
        field: &str,
        expected: &str,
        read: impl FnOnce(&'j Json<'a>) -> Option<T>,
    ) -> Result<T, MdsError> {
        let json = self.find(field).ok_or_else(|| self.missing(field))?;
        read(json).ok_or_else(|| unlike(json, expected).at(self.position_of(field)))
    }

    /// Returns a whole number from 0 to 2⁶⁴ − 1.
    pub(super) fn number(&self, field: &str) -> Result<u64, MdsError> {
        self.value(field, NUMBER, Json::as_number)
    }

    pub(super) fn text(&self, field: &str) -> Result<&'j str, MdsError> {
        self.value(field, TEXT, Json::as_text)
    }

    pub(super) fn texts(&self, field: &str) -> Result<Vec<&'j str>, MdsError> {
        let list = self.value(field, "a list of strings", Json::as_list)?;
        let text = |json: &'j Json<'a>| {
            let text = json.as_text();
            text.ok_or_else(|| unlike(json, TEXT).at(self.position_of(field)))
        };
        list.iter().map(text).collect()
    }

    /// Returns the value of a field that may be null.
    pub(super) fn nullable<T>(
        &self,
        field: &str,
        read: impl FnOnce(&Self, &str) -> Result<T, MdsError>,
    ) -> Result<Option<T>, MdsError> {
        match self.find(field) {
            Some(Json::Null) => Ok(None),
            _ => read(self, field).map(Some),
        }
    }
}

pub(super) const NUMBER: &str = "a non-negative integer below 2^64";
pub(super) const TEXT: &str = "a string";
pub(super) const OBJECT: &str = "an object";

/// The fields of a shard are fewer.
pub(super) const FIELDS: u64 = 32;

/// Builds the error for a value of another type.
pub(super) fn unlike(found: impl fmt::Display, expected: &str) -> MdsError {
    let found = shorten(&found.to_string());
    MdsProblem::Field.because(format!("found {found}, expected {expected}"))
}

/// What the parsing of a text shares: its limits, and the limit that it exceeded.
pub(super) struct Parser<'l> {
    pub(super) limits: &'l Limits,
    pub(super) error: Option<MdsError>,
    /// The keys that lead to the error, innermost first.
    path: Vec<String>,
    pub(super) shard: Option<u64>,
}

impl<'l> Parser<'l> {
    pub(super) const fn new(limits: &'l Limits) -> Self {
        Self {
            limits,
            error: None,
            path: Vec::new(),
            shard: None,
        }
    }

    /// Keeps an error, which errors of `serde` cannot carry, and returns one of `serde`.
    pub(super) fn fail<E: Error>(&mut self, error: impl Into<MdsError>) -> E {
        self.error.get_or_insert(error.into());
        E::custom("")
    }

    fn check<E: Error>(&mut self, check: Result<(), LimitExceeded>) -> Result<(), E> {
        check.map_err(|exceeded| self.fail(exceeded))
    }

    /// Returns the position of the error that was kept.
    pub(super) fn position(&self) -> IndexPosition {
        let path: Vec<&str> = self.path.iter().rev().map(String::as_str).collect();
        IndexPosition {
            shard: self.shard,
            field: path.join("."),
        }
    }

    /// Parses the value of the member of an object.
    pub(super) fn member<'de, A: MapAccess<'de>>(
        &mut self,
        map: &mut A,
        key: &str,
        depth: u64,
        is_kept: bool,
    ) -> Result<Json<'de>, A::Error> {
        let value = map.next_value_seed(self.tree(depth, is_kept));
        value.inspect_err(|_| self.path.push(shorten(key)))
    }

    /// Parses the value of a field of the current shard.
    pub(super) fn field<'de>(
        &mut self,
        key: &str,
        json: &'de RawValue,
    ) -> Result<Json<'de>, MdsError> {
        let value = self.tree(4, true).deserialize(json);
        value.map_err(|error| {
            self.path.push(shorten(key));
            self.explain(&error)
        })
    }

    /// Translates an error of `serde_json`, unless one was kept.
    pub(super) fn explain(&mut self, error: &serde_json::Error) -> MdsError {
        match self.error.take() {
            Some(error @ MdsError::At { .. }) => return error,
            Some(error) => return error.at(self.position()),
            None => {}
        }
        let (line, column) = (error.line(), error.column());
        match error.classify() {
            Category::Eof => MdsProblem::IndexTruncated
                .because(format!("the index ends after line {line}, byte {column}")),
            // The index or a shard is no object, or the shards are no list: `invalid type: …, expected … at line …`.
            Category::Data => {
                let text = error.to_string();
                let text = text.trim_start_matches("invalid type: ");
                let (text, _) = text.rsplit_once(" at line ").unwrap_or((text, ""));
                let (found, expected) = text.split_once(", expected ").unwrap_or((text, OBJECT));
                unlike(found, expected).at(self.position())
            }
            Category::Syntax | Category::Io => not_json(error),
        }
    }

    /// Adds a value to those that are at most `more` more than columns.
    pub(super) fn keep<T, E: Error>(
        &mut self,
        all: &mut Vec<T>,
        next: T,
        more: u64,
    ) -> Result<(), E> {
        all.push(next);
        let limit = self.limits.columns.saturating_add(more);
        self.check(Limits::check("columns", all.len() as u64, limit))
    }

    /// Parses a value at a depth.
    pub(super) const fn tree(&mut self, depth: u64, is_kept: bool) -> Tree<'_, 'l> {
        Tree {
            parser: self,
            depth,
            is_kept,
        }
    }
}

/// The depth of the fields of a file. Of their values, only `hashes` has members.
const FILE_DEPTH: u64 = 5;

/// Parses a value. A list or an object that is not kept becomes an empty one, and may have any length.
pub(super) struct Tree<'p, 'l> {
    parser: &'p mut Parser<'l>,
    depth: u64,
    is_kept: bool,
}

impl Tree<'_, '_> {
    fn enter<E: Error>(&mut self) -> Result<(), E> {
        let limit = self.parser.limits.json_depth;
        let check = Limits::check("json-depth", self.depth, limit);
        self.parser.check(check)
    }

    fn text<'a, E: Error>(self, text: Cow<'a, str>) -> Result<Json<'a>, E> {
        let limit = self.parser.limits.string_bytes;
        let check = Limits::check("string-bytes", text.len() as u64, limit);
        self.parser.check(check)?;
        Ok(Json::Text(text))
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_, '_> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_, '_> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        // INVARIANT: numbers in JSON are finite.
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Json<'de>, E> {
        self.text(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json<'de>, E> {
        self.text(Cow::Owned(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Json<'de>, A::Error> {
        self.enter()?;
        let mut values = Vec::new();
        while let Some(value) =
            seq.next_element_seed(self.parser.tree(self.depth + 1, self.is_kept))?
        {
            if self.is_kept {
                self.parser.keep(&mut values, value, 0)?;
            }
        }
        Ok(Json::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Json<'de>, A::Error> {
        self.enter()?;
        let mut members = Vec::new();
        let depth = self.depth + 1;
        while let Some(key) = map.next_key_seed(self.parser.tree(depth, true))? {
            let Json::Text(key) = key else { continue };
            let is_kept = self.is_kept && (depth < FILE_DEPTH || key == "hashes");
            let value = self.parser.member(&mut map, &key, depth, is_kept)?;
            if self.is_kept {
                self.parser.keep(&mut members, (key, value), FIELDS)?;
            }
        }
        Ok(Json::Object(members))
    }
}
