//! Implements the five compressions of the format: their names and levels, compression of pieces, and bounded
//! decompression.

mod decompress;
mod zstd_frame;

use std::fmt;
use std::io::{Cursor, Write};
use std::str::FromStr;

use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, Limits, escape};

/// A compression algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Brotli, a raw stream.
    Brotli,
    /// bzip2.
    Bzip2,
    /// gzip.
    Gzip,
    /// Snappy, a raw block without framing.
    Snappy,
    /// Zstandard.
    Zstd,
}

impl Algorithm {
    /// All algorithms, in declaration order.
    pub const ALL: [Self; 5] = [
        Self::Brotli,
        Self::Bzip2,
        Self::Gzip,
        Self::Snappy,
        Self::Zstd,
    ];

    /// Returns the name used in indexes without a level, which is also the file extension.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Bzip2 => "bz2",
            Self::Gzip => "gz",
            Self::Snappy => "snappy",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the level that the name without a level means; 0 for Snappy, which has no levels.
    #[must_use]
    pub const fn default_level(self) -> u8 {
        match self {
            Self::Brotli => 11,
            Self::Bzip2 | Self::Gzip => 9,
            Self::Snappy => 0,
            Self::Zstd => 3,
        }
    }

    /// Returns the levels that a name may specify.
    const fn levels(self) -> Option<std::ops::RangeInclusive<u8>> {
        match self {
            Self::Brotli => Some(0..=11),
            Self::Bzip2 => Some(1..=9),
            Self::Gzip => Some(0..=9),
            Self::Snappy => None,
            Self::Zstd => Some(1..=22),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One of the 58 compressions of the format: `zstd`, `zstd:7`, `snappy`, …
///
/// `zstd` and `zstd:3` do the same but are not equal, because an index distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Compression {
    algorithm: Algorithm,
    // `None` for the name without a level.
    level: Option<u8>,
}

impl Compression {
    /// Returns the algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the level, or the default level if the name has none; 0 for Snappy, which has no levels.
    #[must_use]
    pub const fn level(&self) -> u8 {
        match self.level {
            Some(level) => level,
            None => self.algorithm.default_level(),
        }
    }

    /// Returns the extension of a compressed file, without the dot and without a level: `br`, `bz2`, `gz`, `snappy`,
    /// `zstd`.
    #[must_use]
    pub const fn extension(&self) -> &'static str {
        self.algorithm.name()
    }

    /// Iterates over all 58 compressions.
    pub fn all() -> impl Iterator<Item = Self> {
        Algorithm::ALL.into_iter().flat_map(|algorithm| {
            let levels = algorithm.levels().into_iter().flatten().map(Some);
            std::iter::once(None)
                .chain(levels)
                .map(move |level| Self { algorithm, level })
        })
    }

    /// Returns the size in bytes of the pieces that a raw shard is split into, each compressed to one frame. `None`
    /// means that the whole shard is one frame.
    ///
    /// Several threads can compress the pieces, and the result does not depend on their number. Above level 12, frame
    /// boundaries would cost more than they gain.
    #[must_use]
    pub const fn segment_bytes(&self) -> Option<usize> {
        match self.algorithm {
            Algorithm::Zstd if self.level() <= 12 => Some(8 << 20),
            _ => None,
        }
    }

    /// Creates a compressor. Creating one is expensive, reusing it is not.
    ///
    /// # Errors
    ///
    /// [`CompressionError::Failed`] (`Resource`) when there is not enough memory.
    pub fn compressor(&self) -> Result<Compressor, CompressionError> {
        Compressor::new(*self)
    }

    /// Decompresses a file: a Brotli stream, a Snappy block, or one or more zstd frames, gzip members or bzip2 streams,
    /// and nothing after them.
    ///
    /// `raw_bytes` is the length that the index declares, and the result has exactly that length. Without it, the
    /// limits on expansion bound the result. Memory is allocated as data arrives, not by the declared length.
    ///
    /// # Errors
    ///
    /// [`CompressionError`]: `Corrupt` for truncated, damaged or trailing bytes, and for a length that differs from the
    /// declared one. `Unsupported` for zstd dictionaries, skippable frames and legacy frames, and for exceeded limits
    /// on the shard, on expansion or on the zstd window.
    pub fn decompress(
        &self,
        zip: &[u8],
        raw_bytes: Option<u64>,
        limits: &Limits,
    ) -> Result<Vec<u8>, CompressionError> {
        decompress::decompress(self.algorithm, zip, raw_bytes, limits)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm.name())?;
        match self.level {
            Some(level) => write!(f, ":{level}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Compression {
    type Err = CompressionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::all()
            .find(|compression| compression.to_string() == text)
            .ok_or_else(|| CompressionError::Unknown {
                name: text.to_owned(),
            })
    }
}

/// Compresses pieces of shards, one after the other.
pub struct Compressor {
    compression: Compression,
    context: Context,
}

// PERF: a zstd context has tables of half a megabyte to some hundred megabytes, so it is reused. The other contexts are
// recreated for each piece, because theirs cost little compared to the compression.
enum Context {
    Zstd(zstd::bulk::Compressor<'static>),
    Snappy(Box<snap::raw::Encoder>),
    Stateless,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("compression", &self.compression)
            .finish_non_exhaustive()
    }
}

impl Compressor {
    fn new(compression: Compression) -> Result<Self, CompressionError> {
        let context = match compression.algorithm {
            Algorithm::Zstd => Context::Zstd(
                zstd::bulk::Compressor::new(i32::from(compression.level()))
                    .map_err(|error| CompressionError::failed(Algorithm::Zstd, &error))?,
            ),
            Algorithm::Snappy => Context::Snappy(Box::new(snap::raw::Encoder::new())),
            Algorithm::Brotli | Algorithm::Bzip2 | Algorithm::Gzip => Context::Stateless,
        };
        Ok(Self {
            compression,
            context,
        })
    }

    /// Returns the compression that this compressor is for.
    #[must_use]
    pub const fn compression(&self) -> Compression {
        self.compression
    }

    /// Appends `raw` to `out` as one frame, member, stream or block. The bytes depend only on `raw` and the
    /// compression.
    ///
    /// # Errors
    ///
    /// [`CompressionError::Failed`] and [`CompressionError::Memory`] (`Resource`). Snappy refuses 2³² bytes or more.
    /// After an error, `out` ends with an unspecified part of a frame.
    pub fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), CompressionError> {
        let level = u32::from(self.compression.level());
        let failed =
            |error: &dyn fmt::Display| CompressionError::failed(self.compression.algorithm, error);
        match (&mut self.context, self.compression.algorithm) {
            (Context::Zstd(compressor), _) => {
                try_reserve(out, zstd::zstd_safe::compress_bound(raw.len()))?;
                let end = out.len();
                // The buffer is written from the cursor's position.
                let mut cursor = Cursor::new(std::mem::take(out));
                cursor.set_position(end as u64);
                let result = compressor.compress_to_buffer(raw, &mut cursor);
                *out = cursor.into_inner();
                result.map_err(|error| failed(&error))?;
            }
            (Context::Snappy(encoder), _) => {
                let start = out.len();
                let bound = snap::raw::max_compress_len(raw.len());
                try_reserve(out, bound)?;
                out.resize(start + bound, 0);
                let room = out.get_mut(start..).unwrap_or_default();
                let written = encoder
                    .compress(raw, room)
                    .map_err(|error| failed(&error))?;
                out.truncate(start + written);
            }
            (Context::Stateless, Algorithm::Bzip2) => {
                let mut encoder = bzip2::write::BzEncoder::new(out, bzip2::Compression::new(level));
                encoder
                    .write_all(raw)
                    .and_then(|()| encoder.try_finish())
                    .map_err(|error| failed(&error))?;
            }
            (Context::Stateless, Algorithm::Gzip) => {
                // COMPAT: the original stores the time of compression, which its readers ignore. Here it is 0, so that
                // equal input gives equal bytes.
                let mut encoder = flate2::GzBuilder::new()
                    .mtime(0)
                    .write(out, flate2::Compression::new(level));
                encoder
                    .write_all(raw)
                    .and_then(|()| encoder.try_finish())
                    .map_err(|error| failed(&error))?;
            }
            (Context::Stateless, _) => {
                let params = brotli::enc::BrotliEncoderParams {
                    quality: i32::from(self.compression.level()),
                    lgwin: 22,
                    size_hint: raw.len(),
                    ..Default::default()
                };
                brotli::BrotliCompress(&mut &*raw, out, &params).map_err(|error| failed(&error))?;
            }
        }
        Ok(())
    }
}

/// Reserves `additional` bytes, or returns an error if there is not enough memory.
fn try_reserve(out: &mut Vec<u8>, additional: usize) -> Result<(), CompressionError> {
    out.try_reserve_exact(additional)
        .map_err(|_| CompressionError::Memory {
            bytes: (out.len() as u64).saturating_add(additional as u64),
        })
}

/// An error of compression or decompression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// A name that is not one of the 58.
    #[error("unknown compression `{}`", escape(name))]
    Unknown {
        /// The name as given.
        name: String,
    },
    /// A compressor failed.
    #[error("{algorithm} cannot compress: {reason}")]
    Failed {
        /// The algorithm.
        algorithm: Algorithm,
        /// The library's message.
        reason: String,
    },
    /// There is not enough memory for the result.
    #[error("there is no memory for {bytes} bytes")]
    Memory {
        /// The requested bytes.
        bytes: u64,
    },
    /// A file that does not begin with the magic bytes of its algorithm.
    #[error("the file begins with {found:02x?}, which is not {algorithm}")]
    Magic {
        /// The algorithm that the index declares.
        algorithm: Algorithm,
        /// The first bytes, at most 4.
        found: Vec<u8>,
    },
    /// The file ends within its content.
    #[error("the {algorithm} file ends after {bytes} bytes, within its content")]
    Truncated {
        /// The algorithm.
        algorithm: Algorithm,
        /// The length of the file.
        bytes: u64,
    },
    /// Bytes follow the content.
    #[error("the {algorithm} content ends at byte {offset} of {bytes}; something else follows")]
    Trailing {
        /// The algorithm.
        algorithm: Algorithm,
        /// Where the content ends.
        offset: u64,
        /// The length of the file.
        bytes: u64,
    },
    /// Bytes that no compressor writes, or that do not match their checksum.
    #[error("the {algorithm} file is damaged: {reason}")]
    Damaged {
        /// The algorithm.
        algorithm: Algorithm,
        /// The decoder's message.
        reason: String,
    },
    /// More raw bytes than the index declares.
    #[error("the {algorithm} file expands to more than the {declared} bytes that are declared")]
    TooLong {
        /// The algorithm.
        algorithm: Algorithm,
        /// The raw length in the index.
        declared: u64,
    },
    /// Fewer raw bytes than the index declares.
    #[error("the {algorithm} file expands to {found} bytes, but {declared} are declared")]
    TooShort {
        /// The algorithm.
        algorithm: Algorithm,
        /// The raw length in the index.
        declared: u64,
        /// The actual raw length.
        found: u64,
    },
    /// A zstd frame whose header does not match its blocks.
    #[error(
        "the zstd frame at byte {offset} declares {declared} bytes, which is not what its blocks hold"
    )]
    ZstdFrameSize {
        /// Where the frame begins.
        offset: u64,
        /// The content size in its header.
        declared: u64,
    },
    /// A zstd frame that needs a dictionary.
    #[error("the zstd frame at byte {offset} needs the dictionary {dictionary}")]
    ZstdDictionary {
        /// Where the frame begins.
        offset: u64,
        /// The number of the dictionary.
        dictionary: u32,
    },
    /// A zstd frame that contains no data (a skippable frame).
    #[error("the zstd frame at byte {offset} is a skippable one")]
    ZstdSkippable {
        /// Where the frame begins.
        offset: u64,
    },
    /// A zstd frame of a version before 0.8, when the format became stable.
    #[error("the zstd frame at byte {offset} has the format of version 0.{minor}")]
    ZstdLegacy {
        /// Where the frame begins.
        offset: u64,
        /// The version after `0.`.
        minor: u8,
    },
    /// A zstd frame that uses a reserved feature.
    #[error("the zstd frame at byte {offset} uses a reserved feature")]
    ZstdReserved {
        /// Where the frame begins.
        offset: u64,
    },
    /// More than the limits allow.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

impl CompressionError {
    fn failed(algorithm: Algorithm, error: &dyn fmt::Display) -> Self {
        Self::Failed {
            algorithm,
            reason: error.to_string(),
        }
    }
}

impl Diagnostic for CompressionError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. }
            | Self::ZstdDictionary { .. }
            | Self::ZstdSkippable { .. }
            | Self::ZstdLegacy { .. }
            | Self::ZstdReserved { .. }
            | Self::Limit(_) => ErrorKind::Unsupported,
            Self::Failed { .. } | Self::Memory { .. } => ErrorKind::Resource,
            Self::Magic { .. }
            | Self::Truncated { .. }
            | Self::Trailing { .. }
            | Self::Damaged { .. }
            | Self::TooLong { .. }
            | Self::TooShort { .. }
            | Self::ZstdFrameSize { .. } => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "compression-unknown",
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
            Self::Limit(limit) => limit.id(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { .. } => Some(
                "use br:0 to br:11, bz2:1 to bz2:9, gz:0 to gz:9, snappy, or zstd:1 to zstd:22"
                    .to_owned(),
            ),
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

#[cfg(test)]
mod tests;
