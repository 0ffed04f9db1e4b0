//! Encodes and decodes the index of a file of tokens of Megatron: the lengths and offsets of its sequences, and the
//! documents that they belong to.
//!
//! The index is little-endian: a head of 34 bytes, a length of 32 bits and an offset of 64 bits for each sequence, the
//! 64-bit numbers of the sequences at which documents begin and the last one ends, and, in files of several modalities, a byte for
//! each sequence.

use shardmill_core::DType;

use crate::error::RecordError;

/// The number of bytes before the lengths: magic, version, type, sequences and bounds of documents.
pub const INDEX_HEAD: usize = 34;

const MAGIC: [u8; 9] = *b"MMIDIDX\0\0";
const VERSION: u64 = 1;

/// The size of a length.
const LENGTH_BYTES: u64 = 4;
/// The size of an offset, and of a bound of documents.
const OFFSET_BYTES: u64 = 8;

/// The types of tokens. The code of a type in an index is its position here, from 1.
pub const TOKEN_TYPES: [DType; 8] = [
    DType::UInt8,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::Float64,
    DType::Float32,
    DType::UInt16,
];

/// The head of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexHead {
    /// The type of the tokens.
    pub tokens: DType,
    /// The number of sequences.
    pub sequences: u64,
    /// The number of bounds of documents, which is one more than the number of documents.
    pub bounds: u64,
}

/// The offsets of the parts of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexParts {
    /// The offset of the lengths.
    pub lengths: u64,
    /// The offset of the offsets of sequences.
    pub places: u64,
    /// The offset of the bounds of documents.
    pub bounds: u64,
    /// The offset of the modes, if the index has them.
    pub modes: Option<u64>,
}

const fn wrong(reason: &'static str) -> RecordError {
    RecordError::Index { reason }
}

impl IndexHead {
    /// Decodes the head of an index.
    ///
    /// # Errors
    ///
    /// [`RecordError::Index`] for other files and versions.
    pub fn decode(bytes: &[u8; INDEX_HEAD]) -> Result<Self, RecordError> {
        let rest = bytes.strip_prefix(&MAGIC);
        let rest = rest.ok_or(wrong("it does not begin with MMIDIDX"))?;
        let number = |at: usize| -> u64 {
            let bytes = rest.get(at..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        if number(0) != VERSION {
            return Err(wrong("its version is not 1"));
        }
        let code = usize::from(rest.get(8).copied().unwrap_or(0));
        let tokens = code.checked_sub(1).and_then(|at| TOKEN_TYPES.get(at));
        let head = Self {
            tokens: *tokens.ok_or(wrong("the type of its tokens is unknown"))?,
            sequences: number(9),
            bounds: number(17),
        };
        match head.bounds {
            0 => Err(wrong("it has no bounds of documents")),
            _ => Ok(head),
        }
    }

    fn encode(self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        let code = (1..)
            .zip(TOKEN_TYPES)
            .find(|(_, known)| *known == self.tokens);
        out.push(code.map_or(0, |(code, _)| code));
        out.extend(self.sequences.to_le_bytes());
        out.extend(self.bounds.to_le_bytes());
        out
    }

    /// Returns the offsets of the parts of an index of this length.
    ///
    /// # Errors
    ///
    /// [`RecordError::Index`] if the index has another length.
    pub fn parts(&self, file_bytes: u64) -> Result<IndexParts, RecordError> {
        let of = |count: u64, bytes: u64| count.checked_mul(bytes);
        let parts = || {
            let lengths = INDEX_HEAD as u64;
            let places = lengths.checked_add(of(self.sequences, LENGTH_BYTES)?)?;
            let bounds = places.checked_add(of(self.sequences, OFFSET_BYTES)?)?;
            let end = bounds.checked_add(of(self.bounds, OFFSET_BYTES)?)?;
            let with_modes = end.checked_add(self.sequences)?;
            let modes = match file_bytes {
                bytes if bytes == end => None,
                bytes if bytes == with_modes => Some(end),
                _ => return None,
            };
            Some(IndexParts {
                lengths,
                places,
                bounds,
                modes,
            })
        };
        parts().ok_or(wrong(
            "its length does not fit its numbers of sequences and documents",
        ))
    }
}

/// The index of tokens that are written in order.
#[derive(Clone, Debug)]
pub struct IndexBuilder {
    tokens: DType,
    lengths: Vec<i32>,
    bounds: Vec<u64>,
}

impl IndexBuilder {
    /// Creates an index without sequences.
    #[must_use]
    pub fn new(tokens: DType) -> Self {
        Self {
            tokens,
            lengths: Vec::new(),
            bounds: vec![0],
        }
    }

    /// Adds a sequence of so many tokens.
    pub fn add_sequence(&mut self, tokens: i32) {
        self.lengths.push(tokens);
    }

    /// Ends the document of the sequences since the last end.
    pub fn end_document(&mut self) {
        self.bounds.push(self.lengths.len() as u64);
    }

    /// Returns the number of documents.
    #[must_use]
    pub fn documents(&self) -> u64 {
        self.bounds.len() as u64 - 1
    }

    /// Encodes the index in pieces.
    ///
    /// # Errors
    ///
    /// Returns the first error of `emit`.
    pub fn encode<E>(&self, mut emit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        const PIECE: usize = 8 << 10;
        let mut out = IndexHead {
            tokens: self.tokens,
            sequences: self.lengths.len() as u64,
            bounds: self.bounds.len() as u64,
        }
        .encode();
        emit(&out)?;
        for piece in self.lengths.chunks(PIECE) {
            out.clear();
            out.extend(piece.iter().flat_map(|length| length.to_le_bytes()));
            emit(&out)?;
        }
        let mut offset = 0_u64;
        for piece in self.lengths.chunks(PIECE) {
            out.clear();
            for length in piece {
                out.extend(offset.to_le_bytes());
                offset += u64::from(length.unsigned_abs()) * self.tokens.size() as u64;
            }
            emit(&out)?;
        }
        for piece in self.bounds.chunks(PIECE) {
            out.clear();
            out.extend(piece.iter().flat_map(|bound| bound.to_le_bytes()));
            emit(&out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: &[u8]) -> Result<IndexHead, RecordError> {
        IndexHead::decode(bytes.first_chunk().unwrap())
    }

    fn index() -> Vec<u8> {
        let mut builder = IndexBuilder::new(DType::UInt16);
        builder.add_sequence(3);
        builder.add_sequence(0);
        builder.end_document();
        builder.add_sequence(5);
        builder.end_document();
        assert_eq!(builder.documents(), 2);
        let mut out = Vec::new();
        builder
            .encode(|piece| {
                out.extend_from_slice(piece);
                Ok::<_, ()>(())
            })
            .unwrap();
        out
    }

    #[test]
    fn index_head_locates_lengths_offsets_and_bounds() {
        let bytes = index();
        let head = head(&bytes).unwrap();
        assert_eq!(
            (head.tokens, head.sequences, head.bounds),
            (DType::UInt16, 3, 3)
        );
        let parts = head.parts(bytes.len() as u64).unwrap();
        assert_eq!((parts.lengths, parts.places, parts.bounds), (34, 46, 70));
        assert_eq!(
            &bytes[46..70],
            &[[0; 8], [6, 0, 0, 0, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0, 0, 0]].concat()[..]
        );
        assert_eq!(parts.modes, None);
        assert_eq!(head.parts(97).unwrap().modes, Some(94));
        assert!(head.parts(95).is_err());
    }

    #[test]
    fn invalid_megatron_index_is_an_error() {
        let good = index();
        for (at, byte) in [(0, b'X'), (9, 2), (17, 0), (17, 9), (26, 0)] {
            let mut bytes = good.clone();
            bytes[at] = byte;
            assert!(
                matches!(head(&bytes), Err(RecordError::Index { .. })),
                "{at}"
            );
        }
        let mut absurd = good;
        absurd[18..26].fill(0xff);
        assert!(head(&absurd).unwrap().parts(94).is_err());
    }
}
