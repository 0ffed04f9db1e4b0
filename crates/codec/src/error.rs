//! Errors of hashes and compression.

use std::fmt;
use std::str::FromStr;

use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, escape};

use crate::algorithm::{Algorithm, HashAlgo};

/// An error of hashes or compression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum CodecError {
    /// The name is not one of the 17 hash algorithms.
    #[error("unknown hash `{}`", escape(name))]
    UnknownHash { name: String },
    /// The text is not a digest of the algorithm.
    #[error(
        "`{}` is not a {algo} digest of {expected} lower-case hexadecimal digits",
        escape(text)
    )]
    HashSyntax {
        algo: HashAlgo,
        expected: usize,
        /// The text as given, truncated if it is long.
        text: String,
    },
    /// The bytes have another hash.
    #[error("{algo} is {found}, not {expected} as the index says")]
    HashMismatch {
        algo: HashAlgo,
        expected: String,
        found: String,
    },
    /// The index has no hash of the algorithm.
    #[error("the index has no {algo} hash")]
    HashAbsent { algo: HashAlgo },
    /// The name is not a compression of the format.
    #[error("unknown compression `{}`", escape(name))]
    UnknownCompression {
        name: String,
        /// The compressions of the format, for the hint.
        known: &'static str,
    },
    /// The algorithm does not have the level.
    #[error("{algorithm} has no compression level {level}")]
    Level { algorithm: Algorithm, level: u8 },
    /// A group is too large for the table of pieces.
    #[error(
        "a group of samples has {bytes} bytes, of which a compressed shard takes less than 4 GiB"
    )]
    Large { bytes: u64 },
    /// There are more groups than the table of pieces can list.
    #[error("a compressed shard of {pieces} pieces has more than its table can list")]
    Pieces { pieces: u64 },
    /// A compressor failed.
    #[error("{algorithm} cannot compress: {reason}")]
    Failed {
        algorithm: Algorithm,
        reason: String,
    },
    /// There is not enough memory for the result.
    #[error("{bytes} bytes of memory are not available")]
    Memory { bytes: u64 },
    /// The file does not begin with the magic bytes of its algorithm.
    #[error("the file begins with {found:02x?}, which is {}", Expected(*algorithm))]
    Magic {
        /// The algorithm that the index declares; `None` if gzip and zstd are allowed.
        algorithm: Option<Algorithm>,
        /// The first bytes, at most 4.
        found: Vec<u8>,
    },
    /// The file ends within its content.
    #[error("the {algorithm} file ends after {bytes} bytes, within its content")]
    Truncated { algorithm: Algorithm, bytes: u64 },
    /// Bytes follow the content.
    #[error("the {algorithm} content ends at byte {offset} of {bytes}; something else follows")]
    Trailing {
        algorithm: Algorithm,
        offset: u64,
        bytes: u64,
    },
    /// Bytes that no compressor writes, or that do not match their checksum.
    #[error("the {algorithm} file is damaged: {reason}")]
    Damaged {
        algorithm: Algorithm,
        reason: String,
    },
    /// More raw bytes than the index declares.
    #[error("the {algorithm} file expands to more than the {declared} bytes that are declared")]
    TooLong { algorithm: Algorithm, declared: u64 },
    /// Fewer raw bytes than the index declares.
    #[error("the {algorithm} file expands to {found} bytes, but {declared} are declared")]
    TooShort {
        algorithm: Algorithm,
        declared: u64,
        found: u64,
    },
    /// A zstd frame whose header does not match its blocks.
    #[error(
        "the zstd frame at byte {offset} declares {declared} bytes, which is not what its blocks hold"
    )]
    ZstdFrameSize { offset: u64, declared: u64 },
    /// A zstd frame that needs a dictionary.
    #[error("the zstd frame at byte {offset} needs the dictionary {dictionary}")]
    ZstdDictionary { offset: u64, dictionary: u32 },
    /// A zstd frame that contains no data (a skippable frame).
    #[error("the zstd frame at byte {offset} is a skippable one")]
    ZstdSkippable { offset: u64 },
    /// A zstd frame of a version before 0.8, when the format became stable.
    #[error("the zstd frame at byte {offset} has the format of version 0.{minor}")]
    ZstdLegacy {
        offset: u64,
        /// The version after `0.`.
        minor: u8,
    },
    /// A zstd frame that uses a reserved feature.
    #[error("the zstd frame at byte {offset} uses a reserved feature")]
    ZstdReserved { offset: u64 },
    /// The table of pieces does not match the file.
    #[error("the table of pieces {reason}")]
    Table { reason: &'static str },
    /// A limit is exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

/// Says what a file is not.
struct Expected(Option<Algorithm>);

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(algorithm) => write!(f, "not {algorithm}"),
            None => f.write_str("neither gzip nor zstd"),
        }
    }
}

impl CodecError {
    pub(crate) fn failed(algorithm: Algorithm, error: &dyn fmt::Display) -> Self {
        Self::Failed {
            algorithm,
            reason: error.to_string(),
        }
    }

    /// Returns the error for a file that is not of the algorithm.
    pub(crate) fn magic(algorithm: Option<Algorithm>, file: &[u8]) -> Self {
        Self::Magic {
            algorithm,
            found: file.iter().copied().take(4).collect(),
        }
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
            Self::HashAbsent { .. } | Self::Level { .. } | Self::Pieces { .. } => {
                ErrorKind::InvalidInput
            }
            Self::UnknownHash { .. }
            | Self::UnknownCompression { .. }
            | Self::Large { .. }
            | Self::ZstdDictionary { .. }
            | Self::ZstdSkippable { .. }
            | Self::ZstdLegacy { .. }
            | Self::ZstdReserved { .. }
            | Self::Limit(_) => ErrorKind::Unsupported,
            Self::Failed { .. } | Self::Memory { .. } => ErrorKind::Resource,
            Self::HashSyntax { .. }
            | Self::HashMismatch { .. }
            | Self::Magic { .. }
            | Self::Truncated { .. }
            | Self::Trailing { .. }
            | Self::Damaged { .. }
            | Self::TooLong { .. }
            | Self::TooShort { .. }
            | Self::ZstdFrameSize { .. }
            | Self::Table { .. } => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::UnknownHash { .. } => "hash-unknown",
            Self::HashSyntax { .. } => "hash-syntax",
            Self::HashMismatch { .. } => "hash-mismatch",
            Self::HashAbsent { .. } => "hash-absent",
            Self::UnknownCompression { .. } | Self::Level { .. } => "compression-unknown",
            Self::Large { .. } | Self::Pieces { .. } => "compression-pieces",
            Self::Failed { .. } => "compression-failed",
            Self::Memory { .. } => "out-of-memory",
            Self::Magic { .. } => "compression-magic",
            Self::Truncated { .. } => "compression-truncated",
            Self::Trailing { .. } => "compression-trailing",
            Self::Damaged { .. } => "compression-damaged",
            Self::TooLong { .. } | Self::TooShort { .. } => "compression-size",
            Self::ZstdFrameSize { .. } => "zstd-frame-size",
            Self::ZstdDictionary { .. } => "zstd-dictionary",
            Self::ZstdSkippable { .. } => "zstd-skippable",
            Self::ZstdLegacy { .. } => "zstd-legacy",
            Self::ZstdReserved { .. } => "zstd-reserved",
            Self::Table { .. } => "compression-table",
            Self::Limit(limit) => limit.id(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownHash { .. } => {
                let names = HashAlgo::ALL.map(HashAlgo::name);
                Some(format!("known are {}", names.join(", ")))
            }
            Self::HashMismatch { .. } => {
                Some("the file was damaged or replaced; fetch or write it again".to_owned())
            }
            Self::UnknownCompression { known, .. } => Some(format!("use {known}")),
            Self::Level { .. } => Some("use gz:0 to gz:9 or zstd:1 to zstd:22".to_owned()),
            Self::Limit(limit) => Some(limit.hint()),
            Self::ZstdDictionary { .. }
            | Self::ZstdSkippable { .. }
            | Self::ZstdLegacy { .. }
            | Self::ZstdReserved { .. } => {
                Some("compress the raw file again with plain zstd".to_owned())
            }
            _ => None,
        }
    }
}
