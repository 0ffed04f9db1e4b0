//! Implements the five compressions of the format: their names and levels, compression of pieces, and bounded
//! decompression.

use std::fmt;
use std::io::{Cursor, Write};
use std::str::FromStr;

use shardmill_core::Limits;

use crate::algorithm::Algorithm;
use crate::decompress::{decompress, try_reserve};
use crate::error::CodecError;

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
    /// [`CodecProblem::Failed`](crate::CodecProblem::Failed) (`Resource`) when there is not enough memory.
    pub fn compressor(&self) -> Result<Compressor, CodecError> {
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
    /// [`CodecError`]: `Corrupt` for truncated, damaged or trailing bytes, and for a length that differs from the
    /// declared one. `Unsupported` for zstd dictionaries, skippable frames and legacy frames, and for exceeded limits
    /// on the shard, on expansion or on the zstd window.
    pub fn decompress(
        &self,
        zip: &[u8],
        raw_bytes: Option<u64>,
        limits: &Limits,
    ) -> Result<Vec<u8>, CodecError> {
        decompress(self.algorithm, zip, raw_bytes, limits)
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
    type Err = CodecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::all()
            .find(|compression| compression.to_string() == text)
            .ok_or_else(|| CodecError::UnknownCompression {
                name: text.to_owned(),
                known: "br:0 to br:11, bz2:1 to bz2:9, gz:0 to gz:9, snappy, or zstd:1 to zstd:22",
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
    fn new(compression: Compression) -> Result<Self, CodecError> {
        let context = match compression.algorithm {
            Algorithm::Zstd => Context::Zstd(
                zstd::bulk::Compressor::new(i32::from(compression.level()))
                    .map_err(|error| CodecError::failed(Algorithm::Zstd, &error))?,
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
    /// [`CodecError`] (`Resource`) without enough memory, or if the compressor fails. Snappy refuses 2³² bytes or more.
    /// After an error, `out` ends with an unspecified part of a frame.
    pub fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        let level = u32::from(self.compression.level());
        let failed =
            |error: &dyn fmt::Display| CodecError::failed(self.compression.algorithm, error);
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

#[cfg(test)]
mod tests;
