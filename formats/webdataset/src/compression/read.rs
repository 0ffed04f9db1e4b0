//! Decompresses with bounded memory.

use std::io::{self, Read};

use shardmill_core::{LimitExceeded, Limits};

use super::{CompressionError, TarCompression};

/// Decompresses a raw shard: zstd frames or gzip members, followed by nothing but skippable frames.
///
/// `raw_bytes` is the length that an index declares, and the result has exactly that length. Without it, the limits on
/// expansion bound the result. Memory is allocated as data arrives, not by the declared length.
///
/// # Errors
///
/// [`CompressionError`]: `Corrupt` for truncated or damaged files and for a length that differs from the declared one;
/// `Unsupported` for exceeded limits.
pub fn decompress(
    zip: &[u8],
    raw_bytes: Option<u64>,
    limits: &Limits,
) -> Result<Vec<u8>, CompressionError> {
    let (out, family, problem) = run(zip, raw_bytes, limits)?;
    let found = out.len() as u64;
    match (problem, raw_bytes) {
        (Some(problem), _) => Err(problem),
        (None, Some(declared)) if declared != found => Err(CompressionError::Size {
            family,
            declared,
            found,
        }),
        (None, _) => Ok(out),
    }
}

/// Decompresses as much as possible of a damaged file, for repairs. Also returns the error that stopped it. The limits
/// are those of [`decompress`] for a file of undeclared length.
///
/// # Errors
///
/// [`CompressionError::Magic`] (`Corrupt`); [`CompressionError::Limit`] (`Unsupported`).
pub fn decompress_partial(
    zip: &[u8],
    limits: &Limits,
) -> Result<(Vec<u8>, Option<CompressionError>), CompressionError> {
    let (out, _, problem) = run(zip, None, limits)?;
    match problem {
        Some(problem @ CompressionError::Limit(_)) => Err(problem),
        problem => Ok((out, problem)),
    }
}

/// Decompresses a file up to its end or the first error, and also returns the name of its algorithm.
fn run(
    zip: &[u8],
    raw_bytes: Option<u64>,
    limits: &Limits,
) -> Result<(Vec<u8>, &'static str, Option<CompressionError>), CompressionError> {
    let Some(compression) = TarCompression::sniff(zip) else {
        return Err(CompressionError::Magic {
            found: zip.iter().take(4).copied().collect(),
        });
    };
    let family = compression.name();
    let zip_bytes = zip.len() as u64;
    Limits::check("shard-bytes", zip_bytes, limits.shard_bytes)?;
    let bound = limits.expansion_bytes.min(limits.shard_bytes);
    let most = match raw_bytes {
        Some(raw_bytes) => {
            Limits::check("shard-bytes", raw_bytes, limits.shard_bytes)?;
            raw_bytes
        }
        None => bound.min(zip_bytes.saturating_mul(limits.expansion_ratio)),
    };
    let mut out = Vec::new();
    let result = match compression {
        TarCompression::Gzip { .. } => take(flate2::read::MultiGzDecoder::new(zip), most, &mut out),
        TarCompression::Zstd { .. } => zstd::stream::read::Decoder::with_buffer(zip)
            .and_then(|mut decoder| {
                // The largest power of two within the limit.
                let log = limits.zstd_window_bytes.max(1024).ilog2();
                decoder.window_log_max(log.min(31))?;
                Ok(decoder)
            })
            .and_then(|decoder| take(decoder, most, &mut out)),
    };
    let found = out.len() as u64;
    let problem = match result {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Some(CompressionError::Truncated {
                family,
                bytes: zip_bytes,
            })
        }
        Err(error) => Some(CompressionError::Damaged {
            family,
            reason: error.to_string(),
        }),
        Ok(_) if raw_bytes.is_none() && found > most => {
            Some(CompressionError::Limit(if most == bound {
                LimitExceeded {
                    name: "expansion-bytes",
                    value: found,
                    limit: most,
                }
            } else {
                LimitExceeded {
                    name: "expansion-ratio",
                    value: found.div_ceil(zip_bytes.max(1)),
                    limit: limits.expansion_ratio,
                }
            }))
        }
        Ok(_) => None,
    };
    Ok((out, family, problem))
}

/// Reads at most one byte more than `most`.
fn take(reader: impl Read, most: u64, out: &mut Vec<u8>) -> io::Result<usize> {
    reader.take(most.saturating_add(1)).read_to_end(out)
}

/// Decompresses one piece of a compressed shard, as listed in its [`PieceTable`](super::PieceTable). `raw_bytes` is the
/// length of its raw range.
///
/// # Errors
///
/// As for [`decompress`].
pub fn decompress_piece(
    compression: TarCompression,
    zip: &[u8],
    raw_bytes: u64,
    limits: &Limits,
) -> Result<Vec<u8>, CompressionError> {
    match compression {
        TarCompression::Zstd { .. } => decompress(zip, Some(raw_bytes), limits),
        TarCompression::Gzip { .. } => {
            Limits::check("shard-bytes", raw_bytes, limits.shard_bytes)?;
            let family = compression.name();
            let mut out = Vec::new();
            // A piece has no last block, which the decoder would treat as a truncation; so the block is appended.
            let whole = zip.chain(&super::LAST_BLOCK[..]);
            take(
                flate2::read::DeflateDecoder::new(whole),
                raw_bytes,
                &mut out,
            )
            .map_err(|error| CompressionError::Damaged {
                family,
                reason: error.to_string(),
            })?;
            if out.len() as u64 != raw_bytes {
                return Err(CompressionError::Size {
                    family,
                    declared: raw_bytes,
                    found: out.len() as u64,
                });
            }
            Ok(out)
        }
    }
}
