//! Errors of hashes and compression.

use std::fmt;
use std::str::FromStr;

use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, escape};

use crate::algorithm::{Algorithm, HashAlgo};

const PLAIN_ZSTD: &str = "compress the raw file again with plain zstd";

shardmill_core::problems! {
    /// What is wrong with a hash or a compressed file, if a sentence says all that is known about it.
    #[non_exhaustive]
    pub enum CodecProblem {
        /// A text that is not a digest of the algorithm.
        HashSyntax => (Corrupt, "hash-syntax"),
        /// Bytes with another hash.
        HashMismatch => (Corrupt, "hash-mismatch", "the file was damaged or replaced; fetch or write it again"),
        /// A hash that the index does not have.
        HashAbsent => (InvalidInput, "hash-absent"),
        /// A level that the algorithm does not have.
        Level => (InvalidInput, "compression-unknown", "use gz:0 to gz:9 or zstd:1 to zstd:22"),
        /// A group that is too large for the table of pieces.
        Large => (Unsupported, "compression-pieces"),
        /// More groups than the table of pieces can list.
        Pieces => (InvalidInput, "compression-pieces"),
        /// A compressor that failed.
        Failed => (Resource, "compression-failed"),
        /// Not enough memory for the result.
        Memory => (Resource, "out-of-memory"),
        /// A file that does not begin with the magic bytes of its algorithm.
        Magic => (Corrupt, "compression-magic"),
        /// A file that ends within its content.
        Truncated => (Corrupt, "compression-truncated"),
        /// Bytes after the content.
        Trailing => (Corrupt, "compression-trailing"),
        /// Bytes that no compressor writes, or that do not match their checksum.
        Damaged => (Corrupt, "compression-damaged"),
        /// Another number of raw bytes than the index declares.
        Size => (Corrupt, "compression-size"),
        /// A zstd frame whose header does not match its blocks.
        ZstdFrameSize => (Corrupt, "zstd-frame-size"),
        /// A zstd frame that needs a dictionary.
        ZstdDictionary => (Unsupported, "zstd-dictionary", PLAIN_ZSTD),
        /// A zstd frame that contains no data (a skippable frame).
        ZstdSkippable => (Unsupported, "zstd-skippable", PLAIN_ZSTD),
        /// A zstd frame of a version before 0.8, when the format became stable.
        ZstdLegacy => (Unsupported, "zstd-legacy", PLAIN_ZSTD),
        /// A zstd frame that uses a reserved feature.
        ZstdReserved => (Unsupported, "zstd-reserved", PLAIN_ZSTD),
    }
}

impl CodecProblem {
    /// Builds the error with this problem.
    pub(crate) fn because(self, reason: impl Into<String>) -> CodecError {
        CodecError::Input {
            problem: self,
            reason: reason.into(),
        }
    }
}

/// An error of hashes or compression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum CodecError {
    /// A sentence says all that is known about the problem.
    #[error("{reason}")]
    Input {
        problem: CodecProblem,
        reason: String,
    },
    /// The name is not one of the 17 hash algorithms.
    #[error("unknown hash `{}`", escape(name))]
    UnknownHash { name: String },
    /// The name is not a compression of the format.
    #[error("unknown compression `{}`", escape(name))]
    UnknownCompression {
        name: String,
        /// The compressions of the format, for the hint.
        known: &'static str,
    },
    /// A limit is exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

impl CodecError {
    /// Builds the error for a hash that the index does not have.
    #[must_use]
    pub fn hash_absent(algo: HashAlgo) -> Self {
        CodecProblem::HashAbsent.because(format!("the index has no {algo} hash"))
    }

    pub(crate) fn failed(algorithm: Algorithm, error: &dyn fmt::Display) -> Self {
        CodecProblem::Failed.because(format!("{algorithm} cannot compress: {error}"))
    }

    pub(crate) fn memory(bytes: u64) -> Self {
        CodecProblem::Memory.because(format!("{bytes} bytes of memory are not available"))
    }

    /// Builds the error for a file that is not of the algorithm, or neither gzip nor zstd.
    pub(crate) fn magic(algorithm: Option<Algorithm>, file: &[u8]) -> Self {
        let found = file.get(..4).unwrap_or(file);
        let expected = match algorithm {
            Some(algorithm) => format!("not {algorithm}"),
            None => "neither gzip nor zstd".to_owned(),
        };
        let reason = format!("the file begins with {found:02x?}, which is {expected}");
        CodecProblem::Magic.because(reason)
    }

    pub(crate) fn truncated(algorithm: Algorithm, bytes: u64) -> Self {
        CodecProblem::Truncated.because(format!(
            "the {algorithm} file ends after {bytes} bytes, within its content"
        ))
    }

    pub(crate) fn trailing(algorithm: Algorithm, offset: u64, bytes: u64) -> Self {
        CodecProblem::Trailing.because(format!(
            "the {algorithm} content ends at byte {offset} of {bytes}; something else follows"
        ))
    }

    pub(crate) fn damaged(algorithm: Algorithm, reason: &dyn fmt::Display) -> Self {
        CodecProblem::Damaged.because(format!("the {algorithm} file is damaged: {reason}"))
    }

    pub(crate) fn too_long(algorithm: Algorithm, declared: u64) -> Self {
        CodecProblem::Size.because(format!(
            "the {algorithm} file expands to more than the {declared} bytes that are declared"
        ))
    }

    pub(crate) fn zstd_frame_size(offset: u64, declared: u64) -> Self {
        CodecProblem::ZstdFrameSize.because(format!(
            "the zstd frame at byte {offset} declares {declared} bytes, which is not what its blocks hold"
        ))
    }
}

impl FromStr for HashAlgo {
    type Err = CodecError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::from_name(name).ok_or_else(|| CodecError::UnknownHash {
            name: name.to_owned(),
        })
    }
}

impl Diagnostic for CodecError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Input { problem, .. } => problem.facts().0,
            Self::UnknownHash { .. } | Self::UnknownCompression { .. } | Self::Limit(_) => {
                ErrorKind::Unsupported
            }
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Input { problem, .. } => problem.facts().1,
            Self::UnknownHash { .. } => "hash-unknown",
            Self::UnknownCompression { .. } => "compression-unknown",
            Self::Limit(limit) => limit.id(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Input { problem, .. } => problem.facts().2.map(str::to_owned),
            Self::UnknownHash { .. } => {
                let names = HashAlgo::ALL.map(HashAlgo::name);
                Some(format!("known are {}", names.join(", ")))
            }
            Self::UnknownCompression { known, .. } => Some(format!("use {known}")),
            Self::Limit(limit) => Some(limit.hint()),
        }
    }
}
