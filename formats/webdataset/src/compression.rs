//! Compresses shards so that samples can still be read individually: one piece for each group of samples, and a table
//! of pieces at the end.
//!
//! Standard tools can decompress both formats. `.tar.zst` consists of zstd frames, and ends with the skippable frame of
//! zstd's *seekable format*. `.tar.gz` is a single gzip member, because CPython's `tarfile` ignores further members
//! when it streams. Its deflate stream is flushed at the end of each group, so that each can be inflated alone. An
//! empty second member has the table in its extra field.

mod read;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use shardmill_core::{Diagnostic, ErrorKind, LimitExceeded, escape};

pub use read::{decompress, decompress_partial, decompress_piece};
pub use table::{Piece, PieceTable};

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

    /// Returns the name of the algorithm alone: `gz` or `zstd`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip { .. } => "gz",
            Self::Zstd { .. } => "zstd",
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
        write!(f, "{}:{}", self.name(), self.level())
    }
}

impl FromStr for TarCompression {
    type Err = CompressionError;

    /// Parses `gz`, `gz:0` to `gz:9`, `zstd`, `zstd:1` to `zstd:22`. Without a level, it is 9 for gzip and 3 for zstd,
    /// as for MDS.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || CompressionError::Unknown {
            name: text.to_owned(),
        };
        let (family, level) = match text.split_once(':') {
            Some((family, level)) => (family, Some(level)),
            None => (text, None),
        };
        let level = match level {
            None => None,
            Some(digits) => {
                let level: u8 = digits.parse().map_err(|_| unknown())?;
                // Signs and leading zeros are not allowed.
                Some(level).filter(|level| level.to_string() == digits)
            }
        };
        match (family, level, text.contains(':')) {
            ("gz", Some(level @ 0..=9), true) => Ok(Self::Gzip { level }),
            ("zstd", Some(level @ 1..=22), true) => Ok(Self::Zstd { level }),
            ("gz", None, false) => Ok(Self::Gzip { level: 9 }),
            ("zstd", None, false) => Ok(Self::Zstd { level: 3 }),
            _ => Err(unknown()),
        }
    }
}

const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The default size of a group that is compressed alone. Smaller groups compress less well; larger ones take more time
/// and bandwidth for each access to a sample.
pub const GROUP_BYTES: u64 = 1 << 20;

/// Splits a raw shard into groups of whole samples, each at least `group_bytes` long. The last group has the remaining
/// samples and the end of the archive. `offsets` are those of [`ShardMap::offsets`](crate::ShardMap::offsets).
///
/// The groups, and therefore the compressed bytes, depend only on the shard and on `group_bytes`.
#[must_use]
pub fn sample_groups(offsets: &[u64], raw_bytes: u64, group_bytes: u64) -> Vec<Range<u64>> {
    let mut groups = Vec::new();
    let mut begin = 0;
    // The table of pieces has a maximum length; enlarge the groups to stay below it.
    let group_bytes = group_bytes.max(raw_bytes / (table::MOST_PIECES / 2));
    let samples = offsets.split_last().map_or(offsets, |(_, samples)| samples);
    for offset in samples.iter().skip(1) {
        if offset.saturating_sub(begin) >= group_bytes.max(1) {
            groups.push(begin..*offset);
            begin = *offset;
        }
    }
    if begin < raw_bytes {
        groups.push(begin..raw_bytes);
    }
    groups
}

/// One group, compressed alone.
#[derive(Debug)]
pub struct CompressedPiece {
    bytes: Vec<u8>,
    raw_bytes: u32,
    crc: flate2::Crc,
}

impl CompressedPiece {
    /// Returns the compressed bytes, without the framing of the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Compresses groups, one after the other. Several compressors can work on one shard in parallel.
pub struct PieceCompressor {
    compression: TarCompression,
    context: Context,
}

// PERF: the tables of a context are reused from piece to piece.
enum Context {
    Gzip(flate2::Compress),
    Zstd(zstd::bulk::Compressor<'static>),
}

impl fmt::Debug for PieceCompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PieceCompressor")
            .field("compression", &self.compression)
            .finish_non_exhaustive()
    }
}

impl PieceCompressor {
    /// Creates a compressor for an algorithm and level.
    ///
    /// # Errors
    ///
    /// [`CompressionError::Level`] (`InvalidInput`); [`CompressionError::Failed`] (`Resource`) when there is not enough
    /// memory.
    pub fn new(compression: TarCompression) -> Result<Self, CompressionError> {
        let level = CompressionError::Level { compression };
        let context = match compression {
            TarCompression::Gzip { level: 0..=9 } => Context::Gzip(flate2::Compress::new(
                flate2::Compression::new(u32::from(compression.level())),
                false,
            )),
            TarCompression::Zstd { level: 1..=22 } => Context::Zstd(
                zstd::bulk::Compressor::new(i32::from(compression.level()))
                    .map_err(|error| CompressionError::failed(compression, &error))?,
            ),
            TarCompression::Gzip { .. } | TarCompression::Zstd { .. } => return Err(level),
        };
        Ok(Self {
            compression,
            context,
        })
    }

    /// Compresses one group. The bytes depend only on `raw` and the compression.
    ///
    /// # Errors
    ///
    /// [`CompressionError::Large`] (`Unsupported`) for 4 GiB or more; [`CompressionError::Failed`] (`Resource`).
    pub fn compress(&mut self, raw: &[u8]) -> Result<CompressedPiece, CompressionError> {
        let large = |bytes: usize| CompressionError::Large {
            bytes: bytes as u64,
        };
        let raw_bytes = u32::try_from(raw.len()).map_err(|_| large(raw.len()))?;
        let mut crc = flate2::Crc::new();
        let bytes = match &mut self.context {
            Context::Zstd(context) => context
                .compress(raw)
                .map_err(|error| CompressionError::failed(self.compression, &error))?,
            Context::Gzip(context) => {
                crc.update(raw);
                deflate(context, raw)
                    .map_err(|error| CompressionError::failed(self.compression, &error))?
            }
        };
        if u32::try_from(bytes.len()).is_err() {
            return Err(large(bytes.len()));
        }
        Ok(CompressedPiece {
            bytes,
            raw_bytes,
            crc,
        })
    }
}

/// Returns deflated bytes that end at a byte boundary and refer to no earlier bytes. More may follow.
fn deflate(context: &mut flate2::Compress, raw: &[u8]) -> Result<Vec<u8>, flate2::CompressError> {
    context.reset();
    let mut out = Vec::with_capacity(raw.len() / 2 + 64);
    loop {
        let read = usize::try_from(context.total_in()).unwrap_or(usize::MAX);
        let rest = raw.get(read..).unwrap_or_default();
        let before = out.len();
        context.compress_vec(rest, &mut out, flate2::FlushCompress::Full)?;
        // The flush is complete if the output has spare capacity.
        let all_read = context.total_in() == raw.len() as u64;
        if all_read && (out.len() < out.capacity() || out.len() == before) {
            return Ok(out);
        }
        out.reserve(raw.len() / 4 + 4096);
    }
}

/// Assembles the pieces of a shard into a file that standard tools decompress to the raw shard.
///
/// # Errors
///
/// [`CompressionError::Pieces`] (`InvalidInput`) for more pieces than a table can list.
pub fn assemble(
    compression: TarCompression,
    pieces: &[CompressedPiece],
) -> Result<Vec<u8>, CompressionError> {
    if pieces.len() as u64 > table::MOST_PIECES {
        return Err(CompressionError::Pieces {
            pieces: pieces.len() as u64,
        });
    }
    let total: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    let mut out = Vec::with_capacity(total + 64 + 8 * pieces.len());
    if let TarCompression::Gzip { .. } = compression {
        // No time, no name and an unknown system, so that equal input gives equal bytes.
        out.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]);
    }
    let mut crc = flate2::Crc::new();
    for piece in pieces {
        out.extend_from_slice(&piece.bytes);
        crc.combine(&piece.crc);
    }
    if let TarCompression::Gzip { .. } = compression {
        out.extend_from_slice(&LAST_BLOCK);
        out.extend_from_slice(&crc.sum().to_le_bytes());
        out.extend_from_slice(&crc.amount().to_le_bytes());
    }
    table::write(compression, pieces, &mut out);
    Ok(out)
}

/// An empty last block of a deflate stream.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// Compresses a raw shard on one thread. See [`sample_groups`] for `offsets` and `group_bytes`.
///
/// # Errors
///
/// As for [`PieceCompressor::new`] and [`PieceCompressor::compress`].
pub fn compress_shard(
    raw: &[u8],
    offsets: &[u64],
    compression: TarCompression,
    group_bytes: u64,
) -> Result<Vec<u8>, CompressionError> {
    let mut compressor = PieceCompressor::new(compression)?;
    let pieces = sample_groups(offsets, raw.len() as u64, group_bytes)
        .into_iter()
        .map(|group| {
            let piece = usize::try_from(group.start)
                .ok()
                .zip(usize::try_from(group.end).ok())
                .and_then(|(begin, end)| raw.get(begin..end));
            compressor.compress(piece.unwrap_or_default())
        })
        .collect::<Result<Vec<_>, _>>()?;
    assemble(compression, &pieces)
}

/// An error of a compressed shard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// A name that is not a compression of shards.
    #[error("unknown compression `{}`", escape(name))]
    Unknown {
        /// The text as given.
        name: String,
    },
    /// A level that the algorithm does not have.
    #[error("{compression} is no level of its compression")]
    Level {
        /// The compression.
        compression: TarCompression,
    },
    /// A group that is too large for the table of pieces.
    #[error(
        "a group of samples has {bytes} bytes, of which a compressed shard takes less than 4 GiB"
    )]
    Large {
        /// Its bytes.
        bytes: u64,
    },
    /// More groups than the table of pieces can list.
    #[error("a compressed shard of {pieces} pieces has more than its table can list")]
    Pieces {
        /// The number of pieces.
        pieces: u64,
    },
    /// A compressor failed.
    #[error("{family} cannot compress: {reason}")]
    Failed {
        /// The algorithm.
        family: &'static str,
        /// The library's message.
        reason: String,
    },
    /// A file that does not begin like gzip or zstd.
    #[error("the file begins with {found:02x?}, which is neither gzip nor zstd")]
    Magic {
        /// The first bytes, at most 4.
        found: Vec<u8>,
    },
    /// The file ends within its content.
    #[error("the {family} file ends after {bytes} bytes, within its content")]
    Truncated {
        /// The algorithm.
        family: &'static str,
        /// The length of the file.
        bytes: u64,
    },
    /// Bytes that no compressor writes, or that do not match their checksum.
    #[error("the {family} file is damaged: {reason}")]
    Damaged {
        /// The algorithm.
        family: &'static str,
        /// The decoder's message.
        reason: String,
    },
    /// A number of raw bytes that differs from the declared one.
    #[error("the {family} content has {found} bytes or more, but {declared} are declared")]
    Size {
        /// The algorithm.
        family: &'static str,
        /// The declared raw length.
        declared: u64,
        /// The actual raw length, as far as it was read.
        found: u64,
    },
    /// A table of pieces that does not match the file.
    #[error("the table of pieces {reason}")]
    Table {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A limit is exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
}

impl CompressionError {
    fn failed(compression: TarCompression, error: &dyn fmt::Display) -> Self {
        Self::Failed {
            family: compression.name(),
            reason: error.to_string(),
        }
    }
}

impl Diagnostic for CompressionError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Level { .. } | Self::Pieces { .. } => ErrorKind::InvalidInput,
            Self::Unknown { .. } | Self::Large { .. } | Self::Limit(_) => ErrorKind::Unsupported,
            Self::Failed { .. } => ErrorKind::Resource,
            Self::Magic { .. }
            | Self::Truncated { .. }
            | Self::Damaged { .. }
            | Self::Size { .. }
            | Self::Table { .. } => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::Level { .. } => "compression-unknown",
            Self::Large { .. } | Self::Pieces { .. } => "compression-pieces",
            Self::Failed { .. } => "compression-failed",
            Self::Magic { .. } => "compression-magic",
            Self::Truncated { .. } => "compression-truncated",
            Self::Damaged { .. } => "compression-damaged",
            Self::Size { .. } => "compression-size",
            Self::Table { .. } => "compression-table",
            Self::Limit(limit) => limit.id(),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { .. } | Self::Level { .. } => {
                Some("use gz:0 to gz:9 or zstd:1 to zstd:22".to_owned())
            }
            Self::Limit(limit) => Some(limit.hint()),
            _ => None,
        }
    }
}
