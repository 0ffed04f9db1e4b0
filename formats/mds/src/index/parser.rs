//! Tracks the current position in an index, and translates errors at that position.

use std::io;
use std::sync::Arc;

use serde_json::error::Category;
use shardmill_core::{ErrorKind, Limits};

use super::fields::RawConfig;
use crate::config::ShardConfig;
use crate::error::{IndexPosition, MdsError, MdsProblem, not_json};
use crate::shown::shorten;

/// The current position and the fields read so far.
pub(super) struct Parser<'l> {
    pub(super) limits: &'l Limits,
    error: Option<MdsError>,
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

    pub(super) fn position(&self) -> IndexPosition {
        let mut field = self.field.to_owned();
        if !self.inner.is_empty() {
            field.push('.');
            field.push_str(self.inner);
        }
        IndexPosition {
            shard: self.shard,
            field,
        }
    }

    /// Returns the position of a field of the current shard.
    pub(super) fn position_of(&self, field: &str) -> IndexPosition {
        IndexPosition {
            shard: self.shard,
            field: field.to_owned(),
        }
    }

    /// Returns the position of a key of the current object.
    pub(super) fn position_inside(&self, key: &str) -> IndexPosition {
        let mut position = self.position();
        if !position.field.is_empty() {
            position.field.push('.');
        }
        position.field.push_str(&shorten(key));
        position
    }

    /// Builds the error for a value of a field of the current shard.
    pub(super) fn wrong_field(&self, field: &str, reason: impl Into<String>) -> MdsError {
        MdsProblem::Field
            .because(reason)
            .at(self.position_of(field))
    }

    /// Builds the error for a missing key of the current object.
    pub(super) fn missing(&self, key: &str) -> MdsError {
        let missing = MdsProblem::MissingField.because("the field is missing");
        missing.at(self.position_inside(key))
    }

    /// Builds the error for an unknown key of the current object.
    pub(super) fn unknown(&self, key: &str) -> MdsError {
        let unknown = MdsProblem::UnknownField.because("the field is unknown");
        unknown.at(self.position_inside(key))
    }

    /// Builds the error for a repeated key of the current object.
    pub(super) fn twice(&self, key: &str) -> MdsError {
        let twice = MdsProblem::DuplicateField.because("the field occurs twice");
        twice.at(self.position_inside(key))
    }

    /// Stores an error, at the current position unless it has one, and returns one of `serde`.
    pub(super) fn fail<E: serde::de::Error>(&mut self, error: MdsError) -> E {
        let error = match error {
            MdsError::At { .. } => error,
            error => error.at(self.position()),
        };
        self.error.get_or_insert(error);
        E::custom("")
    }

    pub(super) fn check_string(&self, text: &str) -> Result<(), MdsError> {
        let (bytes, limit) = (text.len() as u64, self.limits.string_bytes);
        Ok(Limits::check("string-bytes", bytes, limit)?)
    }

    /// Translates an error of `serde_json`, unless a visitor has already recorded one.
    pub(super) fn explain(&mut self, error: &serde_json::Error) -> MdsError {
        if let Some(error) = self.error.take() {
            return error;
        }
        let (line, column) = (error.line(), error.column());
        match error.classify() {
            Category::Eof => MdsProblem::IndexTruncated
                .because(format!("the index ends after line {line}, byte {column}")),
            Category::Syntax => not_json(error),
            Category::Io => MdsError::Read {
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
                MdsProblem::Field.because(problem).at(self.position())
            }
        }
    }
}
