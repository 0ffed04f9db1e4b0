use std::io;

use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, escape, io_error_id};

use crate::SourceKind;

/// Why a source could not be opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A location does not exist, or a pattern matches nothing.
    #[error("no such file or directory")]
    NotFound {
        /// The location as given.
        location: String,
    },
    /// The operating system refused or failed.
    #[error("cannot {action}")]
    Io {
        /// What was attempted: `open`, `read`, `list`.
        action: &'static str,
        /// The path.
        path: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A broken invariant inside this crate.
    #[error("{what}")]
    Bug {
        /// What should not have happened.
        what: String,
    },
    /// A limit of [`Limits`](shardmill_core::Limits) is exceeded.
    #[error("{limit}")]
    Limit {
        /// The file or column.
        object: String,
        /// Which limit, and by how much.
        limit: LimitExceeded,
    },
    /// Locations hold different kinds of data.
    #[error("holds {second_kind}, but {} holds {first_kind}", escape(first))]
    Mixed {
        /// The first location.
        first: String,
        /// What it holds.
        first_kind: SourceKind,
        /// The location that differs.
        second: String,
        /// What that holds.
        second_kind: SourceKind,
    },
    /// A location that this crate does not read.
    #[error("{what}")]
    Unsupported {
        /// The location as given.
        location: String,
        /// What it is and that it is not supported.
        what: &'static str,
        /// What to do instead.
        hint: &'static str,
    },
}

impl Diagnostic for SourceError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Io { source, .. } => ErrorKind::from(source),
            Self::Bug { .. } => ErrorKind::Bug,
            Self::Limit { .. } => ErrorKind::Corrupt,
            Self::Mixed { .. } => ErrorKind::InvalidInput,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "source-not-found",
            Self::Io { source, .. } => io_error_id(source),
            Self::Bug { .. } => "bug",
            Self::Limit { limit, .. } => limit.id(),
            Self::Mixed { .. } => "source-mixed",
            Self::Unsupported { .. } => "source-unsupported",
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::NotFound { location } | Self::Unsupported { location, .. } => Some(escape(location).into_owned()),
            Self::Io { path, .. } => Some(escape(path).into_owned()),
            Self::Limit { object, .. } => Some(escape(object).into_owned()),
            Self::Mixed { second, .. } => Some(escape(second).into_owned()),
            Self::Bug { .. } => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Limit { limit, .. } => Some(limit.hint()),
            Self::Unsupported { hint, .. } => Some((*hint).to_owned()),
            Self::Mixed { .. } => Some("convert them one by one, or say what they hold with --from".to_owned()),
            _ => None,
        }
    }
}
