//! Tracks the current position in an index, and translates errors at that position.

use std::io;
use std::str::FromStr;
use std::sync::Arc;

use serde_json::error::Category;
use shardmill_core::{ErrorKind, LimitExceeded, Limits, escape};

use super::build::RawConfig;
use super::{IndexError, Place};
use crate::config::ShardConfig;

/// The most characters of a value that a message repeats.
pub(super) const SHOWN: usize = 120;

/// The current position and the fields read so far.
pub(super) struct Parser<'l> {
    pub(super) limits: &'l Limits,
    error: Option<IndexError>,
    pub(super) shard: Option<u64>,
    pub(super) field: &'static str,
    pub(super) inner: &'static str,
    // PERF: the raw configs of this shard and of the previous one. In nearly every index they are equal, and then the
    // built config is shared instead of built again.
    pub(super) current: RawConfig,
    pub(super) previous: RawConfig,
    pub(super) config: Option<Arc<ShardConfig>>,
}

impl<'l> Parser<'l> {
    pub(super) fn new(limits: &'l Limits) -> Self {
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

    /// Returns the position of a field of the current shard.
    pub(super) fn place_of(&self, field: &str) -> Place {
        Place {
            shard: self.shard,
            field: field.to_owned(),
        }
    }

    /// Returns the position of a key of the current object.
    pub(super) fn place_inside(&self, key: &str) -> Place {
        let mut place = self.place();
        if !place.field.is_empty() {
            place.field.push('.');
        }
        place.field.extend(key.chars().take(SHOWN));
        place
    }

    pub(super) fn fail<E: serde::de::Error>(&mut self, error: IndexError) -> E {
        self.error.get_or_insert(error);
        E::custom("")
    }

    pub(super) fn field_error(&self, problem: impl Into<String>) -> IndexError {
        IndexError::Field {
            place: self.place(),
            problem: problem.into(),
        }
    }

    pub(super) fn limit(&self, problem: LimitExceeded) -> IndexError {
        IndexError::Limit {
            place: self.place(),
            problem,
        }
    }

    pub(super) fn check(
        &self,
        name: &'static str,
        value: u64,
        limit: u64,
    ) -> Result<(), IndexError> {
        Limits::check(name, value, limit).map_err(|problem| self.limit(problem))
    }

    pub(super) fn check_string(&self, text: &str) -> Result<(), IndexError> {
        self.check("string-bytes", text.len() as u64, self.limits.string_bytes)
    }

    /// Translates an error of `serde_json`, unless a visitor has already recorded one.
    pub(super) fn explain(&mut self, error: &serde_json::Error) -> IndexError {
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
            // A value of a type that no visitor accepts: `invalid type: …, expected …`.
            Category::Data => {
                let text = error.to_string();
                let text = text
                    .rfind(" at line ")
                    .and_then(|end| text.get(..end))
                    .unwrap_or(&text);
                let text = match text
                    .strip_prefix("invalid type: ")
                    .or_else(|| text.strip_prefix("invalid value: "))
                {
                    Some(rest) => format!("found {rest}"),
                    None => text.to_owned(),
                };
                // The message repeats the value, which may be long; shorten that part and keep what is expected.
                let problem = match text.split_once(", expected ") {
                    Some((found, expected)) => format!("{}, expected {expected}", shorten(found)),
                    None => shorten(&text),
                };
                self.field_error(problem)
            }
        }
    }
}

/// Returns a value as a message repeats it, shortened.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = escape(text).chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Parses a name. The error for an unknown name repeats it, so a long name is shortened first.
pub(super) fn parse_name<T: FromStr>(name: &str) -> Result<T, T::Err> {
    let short = name
        .char_indices()
        .nth(SHOWN)
        .and_then(|(end, _)| name.get(..end));
    // If the shortened name happens to be known, the error for the full name is used.
    name.parse().map_err(|error| {
        short
            .and_then(|short| short.parse::<T>().err())
            .unwrap_or(error)
    })
}
