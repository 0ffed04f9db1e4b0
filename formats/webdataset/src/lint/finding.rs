//! Describes a problem, and the facts about a shard that a lint needs.

use shardmill_codec::seekable::TarCompression;
use shardmill_core::Diagnostic as _;

use crate::error::WebdatasetError;
use crate::names::Consumer;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Some reader returns something other than the author intended.
    Warning,
    /// Samples are lost, truncated, mixed up or refused.
    Error,
}

/// One problem found by a lint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A stable id: that of the error of a strict reader, if there is one.
    pub id: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The affected reader; `None` for all of them.
    pub consumer: Option<Consumer>,
    /// A sentence that describes the problem, without a full stop. It begins with the affected reader.
    pub text: String,
}

impl Finding {
    pub(super) fn warning(id: &'static str, text: String) -> Self {
        Self::new(id, Severity::Warning, text)
    }

    pub(super) fn error(id: &'static str, text: String) -> Self {
        Self::new(id, Severity::Error, text)
    }

    pub(super) fn new(id: &'static str, severity: Severity, text: String) -> Self {
        Self {
            id,
            severity,
            consumer: None,
            text,
        }
    }

    pub(super) fn of(error: &WebdatasetError) -> Self {
        Self::error(error.id(), error.to_string())
    }

    pub(super) fn for_consumer(self, consumer: Consumer) -> Self {
        Self {
            consumer: Some(consumer),
            text: format!("{consumer}: {}", self.text),
            ..self
        }
    }
}

/// Facts about a shard that its headers do not contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardFacts<'a> {
    /// The name of the shard.
    pub name: &'a str,
    /// The compression of the stored file.
    pub compression: Option<TarCompression>,
    /// Whether it is the first shard of the dataset, whose first samples decide the fields of all for some readers.
    pub is_first: bool,
}
