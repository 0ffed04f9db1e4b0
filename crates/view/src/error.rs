//! The errors of starting the server.

use std::io;

use shardmill_core::{Diagnostic, ErrorKind, io_error_id};

/// An error of starting the server or writing the page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum ViewError {
    /// The chosen token is too short, or has characters that an address cannot carry.
    #[error("a token has at least 16 letters, digits, `-` or `_`")]
    Token,
    /// An option has a value that cannot be used.
    #[error("{reason}")]
    Value {
        object: String,
        reason: String,
        hint: &'static str,
    },
    /// A port, a random number or a process is not available.
    #[error("not available")]
    System {
        object: String,
        #[source]
        source: io::Error,
    },
}

impl Diagnostic for ViewError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Token | Self::Value { .. } => ErrorKind::InvalidInput,
            Self::System { source, .. } => ErrorKind::from(source),
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Token | Self::Value { .. } => "usage-value",
            Self::System { source, .. } => io_error_id(source),
        }
    }

    fn object(&self) -> Option<String> {
        Some(match self {
            Self::Token => "--read-only-token".to_owned(),
            Self::Value { object, .. } | Self::System { object, .. } => object.clone(),
        })
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Token => Some("omit it for a random one".to_owned()),
            Self::Value { hint, .. } => Some((*hint).to_owned()),
            Self::System { .. } => None,
        }
    }
}
