//! Reads the headers of zstd frames (RFC 8878): what a frame requires, before any of it is decompressed.

use shardmill_core::Limits;

use crate::algorithm::Algorithm;
use crate::error::{CodecError, CodecProblem};

const MAGIC: u32 = 0xfd2f_b528;
/// Sixteen magic numbers that differ only in their last four bits.
const SKIPPABLE: u32 = 0x184d_2a50;
/// Versions 0.2 to 0.7, whose magic numbers are consecutive; 0.8 is the current format.
const LEGACY: std::ops::RangeInclusive<u32> = 0xfd2f_b522..=0xfd2f_b527;
/// Version 0.1 wrote its magic number in the opposite byte order.
const LEGACY_FIRST: u32 = 0xfd2f_b51e_u32.swap_bytes();
/// The most bytes that one block expands to.
const BLOCK_BYTES: u64 = 128 << 10;

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// All of its bytes.
    pub(crate) bytes: &'a [u8],
    /// The content size in its header.
    pub(crate) content: Option<u64>,
    /// The most bytes that its blocks can expand to.
    pub(crate) bound: u64,
}

/// Reads little-endian numbers without running past the end.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let (number, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(
            number
                .iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u64::from(*byte)),
        )
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }
}

/// Returns the first frame of `zip` at `offset`.
///
/// # Errors
///
/// [`CodecError`] for a frame that is damaged, unsupported or above a limit.
pub(crate) fn next<'a>(
    zip: &'a [u8],
    offset: usize,
    limits: &Limits,
) -> Result<Frame<'a>, CodecError> {
    let rest = zip.get(offset..).unwrap_or_default();
    let at = offset as u64;
    check_magic(zip, rest, at)?;
    let mut cursor = Cursor { rest };
    let truncated = || CodecError::truncated(Algorithm::Zstd, zip.len() as u64);
    cursor.skip(4).ok_or_else(truncated)?;

    let flags = cursor.number(1).ok_or_else(truncated)?;
    let single_segment = flags & 0x20 != 0;
    if flags & 0x08 != 0 {
        let reason = format!("the zstd frame at byte {at} uses a reserved feature");
        return Err(CodecProblem::ZstdReserved.because(reason));
    }
    if !single_segment {
        let descriptor = cursor.number(1).ok_or_else(truncated)?;
        let base = 1_u64 << (10 + (descriptor >> 3));
        let window = base + base / 8 * (descriptor & 7);
        Limits::check("zstd-window-bytes", window, limits.zstd_window_bytes)?;
    }
    // The window of a single-segment frame is its content, which is bounded separately.
    let dictionary_bytes = [0, 1, 2, 4].get((flags & 3) as usize).copied().unwrap_or(0);
    let dictionary = cursor.number(dictionary_bytes).ok_or_else(truncated)?;
    if dictionary != 0 {
        let reason = format!("the zstd frame at byte {at} needs the dictionary {dictionary}");
        return Err(CodecProblem::ZstdDictionary.because(reason));
    }
    let content = match flags >> 6 {
        0 if !single_segment => None,
        0 => Some(cursor.number(1).ok_or_else(truncated)?),
        1 => Some(cursor.number(2).ok_or_else(truncated)? + 256),
        2 => Some(cursor.number(4).ok_or_else(truncated)?),
        _ => Some(cursor.number(8).ok_or_else(truncated)?),
    };

    let mut bound = 0_u64;
    loop {
        let header = cursor.number(3).ok_or_else(truncated)?;
        let size = header >> 3;
        let (stored, expanded) = match header >> 1 & 3 {
            0 => (size, size),
            1 => (1, size.min(BLOCK_BYTES)),
            2 => (size, BLOCK_BYTES),
            _ => {
                let reason = format!("a block of the frame at byte {at} is of a reserved type");
                return Err(CodecError::damaged(Algorithm::Zstd, &reason));
            }
        };
        cursor.skip(stored).ok_or_else(truncated)?;
        bound = bound.saturating_add(expanded);
        if header & 1 != 0 {
            break;
        }
    }
    if flags & 0x04 != 0 {
        cursor.skip(4).ok_or_else(truncated)?;
    }
    if let Some(declared) = content.filter(|content| *content > bound) {
        return Err(CodecError::zstd_frame_size(at, declared));
    }
    let bytes = rest
        .get(..rest.len() - cursor.rest.len())
        .unwrap_or_default();
    Ok(Frame {
        offset: at,
        bytes,
        content,
        bound,
    })
}

fn check_magic(zip: &[u8], rest: &[u8], at: u64) -> Result<(), CodecError> {
    let no_frame = || match at {
        0 => CodecError::magic(Some(Algorithm::Zstd), rest),
        at => CodecError::trailing(Algorithm::Zstd, at, zip.len() as u64),
    };
    let legacy = |minor| {
        let reason = format!("the zstd frame at byte {at} has the format of version 0.{minor}");
        CodecProblem::ZstdLegacy.because(reason)
    };
    let Some(magic) = rest.first_chunk::<4>() else {
        // A prefix of a magic number is a truncated frame; anything else is not a frame.
        return Err(match MAGIC.to_le_bytes().starts_with(rest) {
            true => CodecError::truncated(Algorithm::Zstd, zip.len() as u64),
            false => no_frame(),
        });
    };
    let magic = u32::from_le_bytes(*magic);
    match magic {
        MAGIC => Ok(()),
        LEGACY_FIRST => Err(legacy(1)),
        _ if LEGACY.contains(&magic) => Err(legacy(magic & 0xf)),
        _ if magic & !0xf == SKIPPABLE => {
            let reason = format!("the zstd frame at byte {at} is a skippable one");
            Err(CodecProblem::ZstdSkippable.because(reason))
        }
        _ => Err(no_frame()),
    }
}
