//! Reads the JSON of a state strictly: its size is limited, and keys are unique.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use shardmill_core::{Error, escape};

use crate::error::{ReaderProblem, STATE, state_field, state_missing};

/// The most bytes of a state.
pub const MAX_STATE_BYTES: u64 = 64 << 10;

/// The newest version of the key `shardmill` that this program reads.
pub(super) const VERSION: u64 = 1;

/// Larger counts are not exact as floats in other programs, and no order has them.
pub(super) const MAX_COUNT: u64 = 1 << 53;

pub(super) fn check_size(bytes: u64) -> Result<(), Error> {
    if bytes > MAX_STATE_BYTES {
        return Err(ReaderProblem::StateSize.at(
            STATE,
            format!("it has {bytes} bytes, more than the {MAX_STATE_BYTES} of the longest state"),
        ));
    }
    Ok(())
}

pub(super) fn parse_json(bytes: &[u8]) -> Result<Json, Error> {
    serde_json::from_slice(bytes).map_err(|error| {
        ReaderProblem::StateFormat.at(STATE, format!("it is not the JSON of a state: {error}"))
    })
}

/// A JSON value without repeated keys in its objects.
#[derive(Debug)]
pub(super) enum Json {
    Null,
    Unsigned(u64),
    Signed(i64),
    Text(String),
    Map(Vec<(String, Json)>),
    /// A value that no state has, as shown in messages.
    Other(String),
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Unsigned(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Text(text) => f.write_str(&text_found(text)),
            Self::Map(_) => f.write_str("an object"),
            Self::Other(shown) => f.write_str(shown),
        }
    }
}

/// Formats a string from a state for a message.
pub(super) fn text_found(text: &str) -> String {
    let mut shown: String = text.chars().take(40).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("`{}`", escape(&shown))
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Strict)
    }
}

struct Strict;

impl<'de> Visitor<'de> for Strict {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Other(value.to_string()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Unsigned(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Signed(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        Ok(Json::Other(format!("{number:?}")))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        // The elements of a list are not used, but must be JSON without repeated keys too.
        while items.next_element::<Json>()?.is_some() {}
        Ok(Json::Other("a list".to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut map: Vec<(String, Json)> = Vec::new();
        while let Some(entry) = entries.next_entry::<String, Json>()? {
            map.push(entry);
        }
        let mut keys: Vec<&str> = map.iter().map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        if let Some([key, _]) = keys
            .array_windows::<2>()
            .find(|[left, right]| left == right)
        {
            return Err(A::Error::custom(format_args!(
                "the key {} occurs twice",
                text_found(key)
            )));
        }
        Ok(Json::Map(map))
    }
}

/// The keys and values of an object.
pub(super) struct Object<'a>(&'a [(String, Json)]);

impl<'a> Object<'a> {
    pub(super) fn new(name: &'static str, value: &'a Json) -> Result<Self, Error> {
        match value {
            Json::Map(map) => Ok(Self(map)),
            other => Err(state_field(name, other, "an object")),
        }
    }

    pub(super) fn get(&self, field: &str) -> Option<&'a Json> {
        self.0
            .iter()
            .find(|(key, _)| key == field)
            .map(|(_, value)| value)
    }

    /// Returns the fields that are numbers or strings, formatted for messages.
    pub(super) fn texts(&self) -> Vec<(String, String)> {
        let shown = |value: &Json| match value {
            Json::Text(text) => Some(text.chars().take(40).collect()),
            Json::Unsigned(number) => Some(number.to_string()),
            _ => None,
        };
        let fields = self.0.iter();
        fields
            .filter_map(|(name, value)| Some((name.clone(), shown(value)?)))
            .collect()
    }

    pub(super) fn need(&self, field: &'static str) -> Result<&'a Json, Error> {
        self.get(field).ok_or_else(|| state_missing(field))
    }

    pub(super) fn whole(&self, field: &'static str) -> Result<u64, Error> {
        match self.need(field)? {
            Json::Unsigned(number) => Ok(*number),
            other => Err(state_field(field, other, "a whole number from 0 on")),
        }
    }

    /// Reads a number of epochs or samples.
    pub(super) fn count(&self, field: &'static str) -> Result<u64, Error> {
        match self.whole(field)? {
            found if found > MAX_COUNT => Err(ReaderProblem::StatePosition
                .at(STATE, format!("{field} is {found}, beyond {MAX_COUNT}"))),
            found => Ok(found),
        }
    }

    /// Reads a number of nodes, which may be `null`.
    pub(super) fn nodes(&self, field: &'static str, value: &Json) -> Result<Option<u64>, Error> {
        match value {
            Json::Null => Ok(None),
            Json::Unsigned(nodes @ 1..) => Ok(Some(*nodes)),
            other => Err(state_field(field, other, "a number from 1 on, or null")),
        }
    }
}
