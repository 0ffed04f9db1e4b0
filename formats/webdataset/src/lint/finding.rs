//! Describes a problem, and the facts about a shard that a lint needs.

use shardmill_codec::{FileHashes, seekable::TarCompression};
use shardmill_core::Diagnostic as _;

use crate::error::WebdatasetError;
use crate::member::MemberEntry;
use crate::names::Consumer;

shardmill_core::named_enum! {
    /// How serious a finding is.
    pub enum Severity {
        /// Information only.
        Note = "note",
        /// Some reader returns something other than the author intended.
        Warning = "warning",
        /// Samples are lost, truncated, mixed up or refused.
        Error = "error",
    }
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
    /// The affected member.
    pub member: Option<String>,
    /// The offset in the raw shard.
    pub offset: Option<u64>,
    /// A sentence that describes the problem, without a full stop.
    pub text: String,
}

impl Finding {
    /// Creates a warning about the whole dataset.
    #[must_use]
    pub fn warning(id: &'static str, text: String) -> Self {
        Self::new(id, Severity::Warning, text)
    }

    /// Creates an error about the whole shard.
    pub(super) fn error(id: &'static str, text: String) -> Self {
        Self::new(id, Severity::Error, text)
    }

    pub(super) fn new(id: &'static str, severity: Severity, text: String) -> Self {
        Self {
            id,
            severity,
            consumer: None,
            member: None,
            offset: None,
            text,
        }
    }

    pub(super) fn of_member(mut self, member: &MemberEntry) -> Self {
        self.member = Some(member.name.to_string());
        self.at(member.begin)
    }

    pub(super) fn of(error: &WebdatasetError) -> Self {
        Self {
            member: error.member().map(str::to_owned),
            offset: error.offset(),
            ..Self::error(error.id(), error.to_string())
        }
    }

    pub(super) fn at(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    pub(super) fn for_consumer(mut self, consumer: Consumer) -> Self {
        self.consumer = Some(consumer);
        self
    }
}

/// Facts about a shard that its headers do not contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardFacts<'a> {
    /// The name of the shard.
    pub name: &'a str,
    /// The compression of the stored file.
    pub compression: Option<TarCompression>,
    /// The hashes that the index declares for the stored file, and its actual hashes.
    pub hashes: Option<(&'a FileHashes, &'a FileHashes)>,
}
