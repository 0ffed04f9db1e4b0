//! Compresses groups of samples and assembles them into a file.

use std::fmt;
use std::ops::Range;

use super::tar_compression::TarCompression;
use crate::error::{CodecError, CodecProblem};

/// The default size of a group that is compressed alone. Smaller groups compress less well; larger ones take more time
/// and bandwidth for each access to a sample.
pub const GROUP_BYTES: u64 = 1 << 20;

/// The most pieces that the extra field of a gzip member can list.
const MAX_PIECES: u64 = (u16::MAX as u64 - 8) / ENTRY_BYTES;

/// The size of an entry: two 32-bit numbers, for compressed and raw bytes.
const ENTRY_BYTES: u64 = 8;

/// The magic numbers of the seekable format: that of its skippable frame, and the one at its end.
const SEEK_FRAME: [u8; 4] = 0x184d_2a5e_u32.to_le_bytes();
const SEEK_MAGIC: [u8; 4] = 0x8f92_eab1_u32.to_le_bytes();

/// The start of the empty gzip member, which has an extra field.
const GZIP_EXTRA: [u8; 10] = [0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff];

/// An empty last block of a deflate stream.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// Splits a raw shard into groups of whole samples, each at least `group_bytes` long. The last group has the remaining
/// samples and the end of the archive. `offsets` are those of `ShardMap::offsets` of `shardmill-webdataset`.
///
/// The groups, and therefore the compressed bytes, depend only on the shard and on `group_bytes`.
#[must_use]
pub fn sample_groups(offsets: &[u64], raw_bytes: u64, group_bytes: u64) -> Vec<Range<u64>> {
    let mut groups = Vec::new();
    let mut begin = 0;
    // The table of pieces has a maximum length; enlarge the groups to stay below it.
    let group_bytes = group_bytes.max(raw_bytes / (MAX_PIECES / 2));
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
    /// [`CodecProblem::Level`] (`InvalidInput`); [`CodecProblem::Failed`] (`Resource`) when there is not enough
    /// memory.
    pub fn new(compression: TarCompression) -> Result<Self, CodecError> {
        let context = match compression {
            TarCompression::Gzip { level: 0..=9 } => Context::Gzip(flate2::Compress::new(
                flate2::Compression::new(u32::from(compression.level())),
                false,
            )),
            TarCompression::Zstd { level: 1..=22 } => Context::Zstd(
                zstd::bulk::Compressor::new(i32::from(compression.level()))
                    .map_err(|error| CodecError::failed(compression.algorithm(), &error))?,
            ),
            TarCompression::Gzip { level } | TarCompression::Zstd { level } => {
                let algorithm = compression.algorithm();
                let reason = format!("{algorithm} has no compression level {level}");
                return Err(CodecProblem::Level.because(reason));
            }
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
    /// [`CodecProblem::Large`] (`Unsupported`) for 4 GiB or more; [`CodecProblem::Failed`] (`Resource`).
    pub fn compress(&mut self, raw: &[u8]) -> Result<CompressedPiece, CodecError> {
        let large = |bytes: usize| {
            CodecProblem::Large.because(format!(
                "a group of samples has {bytes} bytes, of which a compressed shard takes less than 4 GiB"
            ))
        };
        let failed =
            |error: &dyn fmt::Display| CodecError::failed(self.compression.algorithm(), error);
        let raw_bytes = u32::try_from(raw.len()).map_err(|_| large(raw.len()))?;
        let mut crc = flate2::Crc::new();
        let bytes = match &mut self.context {
            Context::Zstd(context) => context.compress(raw).map_err(|error| failed(&error))?,
            Context::Gzip(context) => {
                crc.update(raw);
                deflate(context, raw).map_err(|error| failed(&error))?
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
/// [`CodecProblem::Pieces`] (`InvalidInput`) for more pieces than a table can list.
pub fn assemble(
    compression: TarCompression,
    pieces: &[CompressedPiece],
) -> Result<Vec<u8>, CodecError> {
    if pieces.len() as u64 > MAX_PIECES {
        return Err(CodecProblem::Pieces.because(format!(
            "a compressed shard of {} pieces has more than its table can list",
            pieces.len()
        )));
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
    let lengths = pieces.iter().map(|piece| {
        let zip = u32::try_from(piece.bytes.len()).unwrap_or(u32::MAX);
        (zip, piece.raw_bytes)
    });
    write_table(compression, lengths, &mut out);
    Ok(out)
}

/// Appends the table of pieces with these compressed and raw lengths.
fn write_table(
    compression: TarCompression,
    lengths: impl ExactSizeIterator<Item = (u32, u32)>,
    out: &mut Vec<u8>,
) {
    let count = u32::try_from(lengths.len()).unwrap_or(u32::MAX);
    let entries = lengths.flat_map(|(zip, raw)| [zip.to_le_bytes(), raw.to_le_bytes()]);
    match compression {
        TarCompression::Zstd { .. } => {
            out.extend_from_slice(&SEEK_FRAME);
            out.extend_from_slice(&(8 * count + 9).to_le_bytes());
            entries.for_each(|entry| out.extend_from_slice(&entry));
            out.extend_from_slice(&count.to_le_bytes());
            out.push(0);
            out.extend_from_slice(&SEEK_MAGIC);
        }
        TarCompression::Gzip { .. } => {
            let field = u16::try_from(8 * count + 4).unwrap_or(u16::MAX);
            out.extend_from_slice(&GZIP_EXTRA);
            out.extend_from_slice(&(field + 4).to_le_bytes());
            out.extend_from_slice(b"SM");
            out.extend_from_slice(&field.to_le_bytes());
            entries.for_each(|entry| out.extend_from_slice(&entry));
            out.extend_from_slice(&count.to_le_bytes());
            out.extend_from_slice(&LAST_BLOCK);
            out.extend_from_slice(&[0; 8]);
        }
    }
}

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
) -> Result<Vec<u8>, CodecError> {
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
