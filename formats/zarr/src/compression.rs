//! Compressed bytes: of a chunk, or of a block of Blosc.

use std::io::Read as _;

use flate2::read::ZlibDecoder;
use shardmill_codec::Compression;
use shardmill_core::Limits;

use crate::error::ZarrError;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Compressed {
    /// Zstandard or gzip.
    File(Compression),
    Zlib,
    /// A block of LZ4.
    Lz4,
}

impl Compressed {
    /// Returns the compression with a name of Zarr, except LZ4.
    pub(crate) fn named(name: &str) -> Result<Self, ZarrError> {
        let file = match name {
            "zlib" => return Ok(Self::Zlib),
            "gzip" => "gz",
            name => name,
        };
        let found = file
            .parse()
            .ok()
            .filter(|_| matches!(name, "gzip" | "zstd"));
        let found = found.map(Self::File);
        found.ok_or_else(|| ZarrError::Codec(name.to_owned()))
    }

    /// Decompresses bytes, into exactly `size` bytes if that is known and the compression tells.
    pub(crate) fn unpack(
        self,
        bytes: &[u8],
        size: Option<u64>,
        limits: &Limits,
    ) -> Result<Vec<u8>, ZarrError> {
        match self {
            Self::File(compression) => compression
                .decompress(bytes, size, limits)
                .map_err(|error| ZarrError::chunk(error.to_string())),
            Self::Zlib => {
                let max = size.unwrap_or(limits.expansion.bytes);
                let mut raw = Vec::new();
                ZlibDecoder::new(bytes)
                    .take(max.saturating_add(1))
                    .read_to_end(&mut raw)
                    .map_err(|error| ZarrError::chunk(format!("zlib: {error}")))?;
                Ok(raw)
            }
            Self::Lz4 => {
                // A block of LZ4 expands to at most 255 times its size, so that its length bounds the memory.
                let size = size.filter(|size| size.div_ceil(256) <= bytes.len() as u64);
                let size = size.and_then(|size| usize::try_from(size).ok());
                let size = size.ok_or_else(|| ZarrError::chunk("the LZ4 block is cut short"))?;
                lz4_flex::block::decompress(bytes, size)
                    .map_err(|error| ZarrError::chunk(format!("LZ4: {error}")))
            }
        }
    }
}
