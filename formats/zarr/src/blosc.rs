//! Buffers that Blosc compressed: blocks of shuffled bytes.

use shardmill_core::Limits;

use crate::compression::Compressed;
use crate::error::ZarrError;

const HEAD: usize = 16;
/// Flags of the third byte.
const SHUFFLED: u8 = 1;
const STORED: u8 = 2;
const BIT_SHUFFLED: u8 = 4;
const WHOLE_BLOCKS: u8 = 16;
/// A block is split into as many streams as an element has bytes, unless there are more of them, or they were smaller.
const MAX_SPLITS: usize = 16;
const MIN_SPLIT: usize = 128;

/// Decompresses a buffer into exactly `bytes` bytes.
pub(crate) fn decode(packed: &[u8], bytes: u64, limits: &Limits) -> Result<Vec<u8>, ZarrError> {
    let cut = || ZarrError::chunk("the Blosc buffer is cut short");
    let [_, _, flags, item, sizes @ ..] = packed.first_chunk::<HEAD>().ok_or_else(cut)?;
    let number = |at: usize| {
        let bytes = sizes.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let (raw, block, stored) = match (number(0), number(4), number(8)) {
        (Some(raw), Some(block), Some(stored)) => (raw, block, stored),
        _ => return Err(cut()),
    };
    if raw as u64 != bytes {
        let reason = format!("the Blosc buffer has {raw} bytes, and the chunk {bytes}");
        return Err(ZarrError::chunk(reason));
    }
    let packed = packed.get(..stored).ok_or_else(cut)?;
    if flags & STORED != 0 {
        let raw = packed.get(HEAD..).filter(|kept| kept.len() == raw);
        return raw.map(<[u8]>::to_vec).ok_or_else(cut);
    }
    let item = usize::from(*item).max(1);
    let compressed = match flags >> 5 {
        1 => Compressed::Lz4,
        3 => Compressed::Zlib,
        4 => Compressed::named("zstd")?,
        0 => return Err(ZarrError::Codec("blosc with blosclz".to_owned())),
        2 => return Err(ZarrError::Codec("blosc with snappy".to_owned())),
        _ => {
            return Err(ZarrError::Codec(
                "blosc with an unknown compressor".to_owned(),
            ));
        }
    };
    if raw == 0 {
        return Ok(Vec::new());
    }
    if block == 0 {
        return Err(ZarrError::chunk(
            "the Blosc buffer has blocks without bytes",
        ));
    }
    let mut out = Vec::with_capacity(raw);
    let mut joined = Vec::new();
    for number in 0..raw.div_ceil(block) {
        let size = block.min(raw - out.len());
        let splits = flags & WHOLE_BLOCKS == 0
            && item <= MAX_SPLITS
            && block / item >= MIN_SPLIT
            && size == block;
        let splits = if splits { item } else { 1 };
        let mut at = length_at(packed, HEAD + 4 * number).ok_or_else(cut)?;
        joined.clear();
        for _ in 0..splits {
            let length = length_at(packed, at).ok_or_else(cut)?;
            let start = at + 4;
            at = start.checked_add(length).ok_or_else(cut)?;
            let stream = packed.get(start..at).ok_or_else(cut)?;
            match length == size / splits {
                true => joined.extend_from_slice(stream),
                false => joined.extend(compressed.unpack(
                    stream,
                    Some((size / splits) as u64),
                    limits,
                )?),
            }
        }
        if joined.len() != size {
            return Err(cut());
        }
        if flags & SHUFFLED != 0 && item > 1 {
            unshuffle(&joined, item, &mut out);
        } else if flags & BIT_SHUFFLED != 0 && block >= item {
            unshuffle_bits(&joined, item, &mut out);
        } else {
            out.extend_from_slice(&joined);
        }
    }
    Ok(out)
}

/// Reads a length or an offset, which is not negative.
fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    usize::try_from(i32::from_le_bytes(*bytes)).ok()
}

/// Appends the elements whose first bytes come first, then their second ones, and so on.
fn unshuffle(shuffled: &[u8], item: usize, out: &mut Vec<u8>) {
    let elements = shuffled.len() / item;
    for element in 0..elements {
        out.extend((0..item).filter_map(|byte| shuffled.get(byte * elements + element)));
    }
    out.extend(shuffled.iter().skip(elements * item));
}

/// Appends the elements whose lowest bits come first, eight elements in a byte, then their second lowest ones.
fn unshuffle_bits(shuffled: &[u8], item: usize, out: &mut Vec<u8>) {
    let elements = shuffled.len() / item;
    // Only groups of eight elements are shuffled, and a block with others is not shuffled at all.
    if !elements.is_multiple_of(8) {
        out.extend_from_slice(shuffled);
        return;
    }
    let plane = elements / 8;
    for element in 0..elements {
        for byte in 0..item {
            let bit = |bit: usize| {
                let from = shuffled.get((byte * 8 + bit) * plane + element / 8);
                (from.copied().unwrap_or(0) >> (element % 8) & 1) << bit
            };
            out.push((0..8).map(bit).sum());
        }
    }
    out.extend(shuffled.iter().skip(elements * item));
}
