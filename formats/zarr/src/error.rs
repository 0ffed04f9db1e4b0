//! The error of this crate.

use shardmill_core::{LimitExceeded, escape};

/// The error of bytes that are not of the format, or need what is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZarrError {
    /// The metadata is not valid, or states what no array has.
    #[error("{0}")]
    Metadata(String),
    /// The elements have a type that is not supported.
    #[error("has the type {}, which is not supported", escape(.0))]
    Type(String),
    /// The chunks have a codec that is not supported.
    #[error("needs the codec `{}`, which is not supported", escape(.0))]
    Codec(String),
    /// The values are times that timestamps cannot have.
    #[error("{0}")]
    Time(String),
    /// The bytes of a chunk are corrupt.
    #[error("{0}")]
    Chunk(String),
    /// The metadata states a size above a limit.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

impl ZarrError {
    pub(crate) fn metadata(reason: impl Into<String>) -> Self {
        Self::Metadata(reason.into())
    }

    pub(crate) fn chunk(reason: impl Into<String>) -> Self {
        Self::Chunk(reason.into())
    }
}
