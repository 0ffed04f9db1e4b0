//! The compression of a tar shard: parses its name, and detects it from the first bytes of a file.

use std::fmt;
use std::str::FromStr;

use crate::algorithm::Algorithm;
use crate::compression::Compression;
use crate::error::CodecError;

/// The compression of a whole shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TarCompression {
    /// gzip, levels 0 to 9.
    Gzip {
        /// The level.
        level: u8,
    },
    /// Zstandard, levels 1 to 22.
    Zstd {
        /// The level.
        level: u8,
    },
}

impl TarCompression {
    /// Returns the extension after `.tar`.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Gzip { .. } => ".gz",
            Self::Zstd { .. } => ".zst",
        }
    }

    /// Detects the compression of a file from its first bytes; `None` for an uncompressed file. The level in the result
    /// is arbitrary.
    #[must_use]
    pub fn sniff(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(&GZIP_MAGIC) {
            Some(Self::Gzip { level: 6 })
        } else if bytes.starts_with(&ZSTD_MAGIC) {
            Some(Self::Zstd { level: 3 })
        } else {
            None
        }
    }

    /// Returns the algorithm.
    #[must_use]
    pub const fn algorithm(self) -> Algorithm {
        match self {
            Self::Gzip { .. } => Algorithm::Gzip,
            Self::Zstd { .. } => Algorithm::Zstd,
        }
    }

    /// Returns the level.
    #[must_use]
    pub const fn level(self) -> u8 {
        match self {
            Self::Gzip { level } | Self::Zstd { level } => level,
        }
    }
}

impl fmt::Display for TarCompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm(), self.level())
    }
}

impl FromStr for TarCompression {
    type Err = CodecError;

    /// Parses `gz`, `gz:0` to `gz:9`, `zstd`, `zstd:1` to `zstd:22`. Without a level, it is 9 for gzip and 3 for zstd,
    /// as for MDS.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.parse::<Compression>().ok();
        match parsed.map(|compression| (compression.algorithm(), compression.level())) {
            Some((Algorithm::Gzip, level)) => Ok(Self::Gzip { level }),
            Some((Algorithm::Zstd, level)) => Ok(Self::Zstd { level }),
            _ => Err(CodecError::UnknownCompression {
                name: text.to_owned(),
                known: "gz:0 to gz:9 or zstd:1 to zstd:22",
            }),
        }
    }
}

const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
