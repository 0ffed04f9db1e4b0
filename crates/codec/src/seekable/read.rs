//! Decompresses with bounded memory.

use std::io::{self, Read};

use shardmill_core::Limits;

use super::tar_compression::TarCompression;
use crate::decompress::Budget;
use crate::error::CodecError;

/// Decompresses a raw shard: zstd frames or gzip members, followed by nothing but skippable frames.
///
/// `raw_bytes` is the length that an index declares, and the result has exactly that length. Without it, the limits on
/// expansion bound the result. Memory is allocated as data arrives, not by the declared length.
///
/// # Errors
///
/// [`CodecError`]: `Corrupt` for truncated or damaged files and for a length that differs from the declared one;
/// `Unsupported` for exceeded limits.
pub fn decompress(
    zip: &[u8],
    raw_bytes: Option<u64>,
    limits: &Limits,
) -> Result<Vec<u8>, CodecError> {
    match run(zip, raw_bytes, limits)? {
        (out, budget, None) => budget.whole(out),
        (_, _, Some(problem)) => Err(problem),
    }
}

/// Decompresses a file up to its end, the first error, or the byte after the budget.
fn run(
    zip: &[u8],
    raw_bytes: Option<u64>,
    limits: &Limits,
) -> Result<(Vec<u8>, Budget, Option<CodecError>), CodecError> {
    let compression = TarCompression::sniff(zip).ok_or_else(|| CodecError::magic(None, zip))?;
    let budget = Budget::new(compression.algorithm(), zip, raw_bytes, limits)?;
    let mut out = Vec::new();
    let result = match compression {
        TarCompression::Gzip { .. } => {
            take(flate2::read::MultiGzDecoder::new(zip), budget.max, &mut out)
        }
        TarCompression::Zstd { .. } => zstd::stream::read::Decoder::with_buffer(zip)
            .and_then(|mut decoder| {
                // The largest power of two within the limit.
                let log = limits.zstd_window_bytes.max(1024).ilog2();
                decoder.window_log_max(log.min(31))?;
                Ok(decoder)
            })
            .and_then(|decoder| take(decoder, budget.max, &mut out)),
    };
    let problem = match result {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Some(budget.truncated()),
        Err(error) => Some(budget.damaged(&error)),
        Ok(_) if raw_bytes.is_none() && out.len() as u64 > budget.max => {
            Some(budget.exceeded(out.len() as u64))
        }
        Ok(_) => None,
    };
    Ok((out, budget, problem))
}

/// Reads at most one byte more than `most`.
fn take(reader: impl Read, max: u64, out: &mut Vec<u8>) -> io::Result<usize> {
    reader.take(max.saturating_add(1)).read_to_end(out)
}
