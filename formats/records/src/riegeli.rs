//! Decodes chunks of Riegeli records, of which ArrayRecord files consist.
//!
//! Every 64 KiB, a block header of 24 bytes interrupts the chunks. A chunk has a head of 40 bytes and its data. Numbers are
//! little-endian, and hashes are HighwayHash.

use highway::{HighwayHash as _, HighwayHasher, Key};

use crate::error::RecordError;
use crate::protobuf::{Message, Wire};

/// The size of a block.
const BLOCK: u64 = 64 << 10;
const BLOCK_HEAD: u64 = 24;
const USABLE: u64 = BLOCK - BLOCK_HEAD;

/// The number of bytes of the head of a chunk.
pub const CHUNK_HEAD: usize = 40;

/// The texts `Riegeli/` and `records\n`, twice.
const KEY: Key = Key([
    0x2f69_6c65_6765_6952,
    0x0a73_6472_6f63_6572,
    0x2f69_6c65_6765_6952,
    0x0a73_6472_6f63_6572,
]);

/// The number that marks the last records of an ArrayRecord file.
const MAGIC: u64 = 0x7193_0e70_4fda_e05e;

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// No records: the signature of a file, metadata or padding.
    Other,
    /// Records.
    Simple,
    /// Records whose fields are stored by column.
    Transposed,
}

/// The head of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// The length of the data, without block headers.
    pub data_bytes: u64,
    /// What the data is.
    pub kind: ChunkKind,
    /// The number of records.
    pub records: u64,
    /// The sum of the lengths of the records.
    pub decoded_bytes: u64,
    data_hash: u64,
}

/// A compression of the parts of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPacking {
    /// No compression.
    None,
    /// Brotli.
    Brotli,
    /// Zstandard.
    Zstd,
    /// Snappy, without frames.
    Snappy,
}

/// A part of a chunk, and its length before compression; `None` if it is not compressed.
pub type PackedPart<'a> = (&'a [u8], Option<u64>);

/// The data of a chunk of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleChunk<'a> {
    /// The compression of both parts.
    pub packing: RecordPacking,
    /// The lengths of the records.
    pub sizes: PackedPart<'a>,
    /// The records.
    pub values: PackedPart<'a>,
}

const fn wrong(reason: &'static str) -> RecordError {
    RecordError::Riegeli { reason }
}

fn hash(bytes: &[u8]) -> u64 {
    HighwayHasher::new(KEY).hash64(bytes)
}

impl ChunkHead {
    /// Decodes the head of a chunk.
    ///
    /// # Errors
    ///
    /// [`RecordError::Riegeli`] if its hash differs, or if the kind of chunk is unknown.
    pub fn decode(bytes: &[u8; CHUNK_HEAD]) -> Result<Self, RecordError> {
        let number = |at: usize| -> u64 {
            let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        if hash(bytes.get(8..).unwrap_or_default()) != number(0) {
            return Err(wrong("the hash of the head of a chunk differs"));
        }
        let kind = match bytes.get(24) {
            Some(b's' | b'm' | b'p') => ChunkKind::Other,
            Some(b'r') => ChunkKind::Simple,
            Some(b't') => ChunkKind::Transposed,
            _ => return Err(wrong("the kind of a chunk is unknown")),
        };
        Ok(Self {
            data_bytes: number(8),
            kind,
            records: number(24) >> 8,
            decoded_bytes: number(32),
            data_hash: number(16),
        })
    }

    /// Checks the data against its hash.
    ///
    /// # Errors
    ///
    /// [`RecordError::Riegeli`] if it differs.
    pub fn check_data(&self, data: &[u8]) -> Result<(), RecordError> {
        match hash(data) == self.data_hash {
            true => Ok(()),
            false => Err(wrong("the hash of the data of a chunk differs")),
        }
    }

    /// Returns the offset at which a chunk ends that begins at this offset; `None` if it is beyond any file.
    #[must_use]
    pub fn end(&self, begin: u64) -> Option<u64> {
        let stored = stored_end(begin, self.data_bytes.checked_add(CHUNK_HEAD as u64)?)?;
        let padded = begin.checked_add(self.records)?;
        // A chunk does not end within a block header or just after it.
        let left = BLOCK - 1 - padded.wrapping_sub(1) % BLOCK;
        let padded = padded.checked_add(left.saturating_sub(USABLE - 1))?;
        Some(stored.max(padded))
    }
}

/// Returns the offset after some bytes of a chunk that begin at an offset, block headers included.
#[must_use]
pub fn stored_end(begin: u64, bytes: u64) -> Option<u64> {
    let within = (begin % BLOCK + USABLE - 1) % BLOCK;
    let headers = bytes.checked_add(within)? / USABLE;
    begin
        .checked_add(bytes)?
        .checked_add(headers.checked_mul(BLOCK_HEAD)?)
}

/// Removes the block headers from bytes that begin at an offset of the file.
#[must_use]
pub fn without_block_headers(bytes: &[u8], begin: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    let mut at = begin % BLOCK;
    while !rest.is_empty() {
        let in_block = usize::try_from(BLOCK - at)
            .unwrap_or(usize::MAX)
            .min(rest.len());
        let (block, after) = rest.split_at(in_block);
        let skipped = usize::try_from(BLOCK_HEAD.saturating_sub(at)).unwrap_or(0);
        out.extend_from_slice(block.get(skipped..).unwrap_or_default());
        (rest, at) = (after, 0);
    }
    out
}

/// Splits the data of a chunk of records.
///
/// # Errors
///
/// [`RecordError::Riegeli`] if its parts do not fit.
pub fn simple_chunk(data: &[u8]) -> Result<SimpleChunk<'_>, RecordError> {
    const SHORT: RecordError = wrong("the data of a chunk ends within its lengths");
    let (packing, rest) = data.split_first().ok_or(SHORT)?;
    let packing = match packing {
        0 => RecordPacking::None,
        b'b' => RecordPacking::Brotli,
        b'z' => RecordPacking::Zstd,
        b's' => RecordPacking::Snappy,
        _ => return Err(wrong("the compression of a chunk is unknown")),
    };
    let mut rest = Message(rest);
    let length = rest
        .varint()
        .and_then(|length| usize::try_from(length).ok());
    let parts = length.and_then(|length| rest.0.split_at_checked(length));
    let (sizes, values) = parts.ok_or(SHORT)?;
    let part = |bytes| -> Result<PackedPart<'_>, RecordError> {
        let mut part = Message(bytes);
        Ok(match packing {
            RecordPacking::None => (bytes, None),
            _ => {
                let length = part.varint().ok_or(SHORT)?;
                (part.0, Some(length))
            }
        })
    };
    Ok(SimpleChunk {
        packing,
        sizes: part(sizes)?,
        values: part(values)?,
    })
}

/// Returns the lengths of the records of a chunk, from its decompressed lengths.
///
/// # Errors
///
/// [`RecordError::Riegeli`] if their number or their sum is not that of the head.
pub fn record_sizes(bytes: &[u8], head: &ChunkHead) -> Result<Vec<u64>, RecordError> {
    const SIZES: RecordError =
        wrong("the lengths of the records do not fit the head of their chunk");
    let mut rest = Message(bytes);
    let mut sizes = Vec::new();
    let mut sum = 0_u64;
    while !rest.0.is_empty() {
        let size = rest.varint().ok_or(SIZES)?;
        sum = sum.checked_add(size).ok_or(SIZES)?;
        sizes.push(size);
    }
    match (sizes.len() as u64, sum) == (head.records, head.decoded_bytes) {
        true => Ok(sizes),
        false => Err(SIZES),
    }
}

/// Returns the offset of the footer of an ArrayRecord file, from a record at its end.
#[must_use]
pub fn footer_place(record: &[u8]) -> Option<u64> {
    let (mut offset, mut magic) = (None, None);
    for field in Message(record) {
        match field? {
            (1, Wire::Varint(value)) => offset = Some(value),
            (2, Wire::Varint(value)) => magic = Some(value),
            _ => {}
        }
    }
    offset.filter(|_| magic == Some(MAGIC))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of every file: a chunk without data, after a block header.
    const SIGNATURE: [u8; 40] = [
        0x91, 0xba, 0xc2, 0x3c, 0x92, 0x87, 0xe1, 0xa9, 0, 0, 0, 0, 0, 0, 0, 0, 0xe1, 0x9f, 0x13,
        0xc0, 0xe9, 0xb1, 0xc3, 0x72, 0x73, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn file_signature_is_decoded_and_flipped_bits_are_errors() {
        let head = ChunkHead::decode(&SIGNATURE).unwrap();
        assert_eq!((head.kind, head.data_bytes), (ChunkKind::Other, 0));
        assert_eq!(head.end(0), Some(64));
        assert!(head.check_data(b"").is_ok() && head.check_data(b"x").is_err());
        for bit in 0..320 {
            let mut wrong = SIGNATURE;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(ChunkHead::decode(&wrong).is_err(), "{bit}");
        }
    }

    #[test]
    fn block_headers_are_removed_from_chunks() {
        assert_eq!(stored_end(0, 40), Some(64));
        assert_eq!(stored_end(64, 1), Some(65));
        assert_eq!(stored_end(65_535, 1), Some(65_536));
        assert_eq!(stored_end(65_535, 2), Some(65_536 + 25));
        assert_eq!(stored_end(u64::MAX, 1), None);
        let bytes: Vec<u8> = (0..200).collect();
        assert_eq!(without_block_headers(&bytes, 65_526).len(), 200 - 24);
        assert_eq!(without_block_headers(&bytes, 65_526)[9..12], [9, 34, 35]);
        assert_eq!(without_block_headers(&bytes, 0)[0], 24);
    }
}
