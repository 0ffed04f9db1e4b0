//! Ranges of bytes that make up a data file, and their compression.

use std::ops::Range;
use std::sync::Arc;

use shardmill_core::Error;
use shardmill_mds::{Compression, Compressor};
use shardmill_webdataset::{CompressedPiece, FieldSet, PieceCompressor, TarCompression};

use crate::chunk::Chunk;
use crate::error;
use crate::pack::Piece;

/// A range of bytes of a data file.
#[derive(Clone, Debug)]
pub(super) enum Slice {
    /// Bytes that the format adds: the header or the trailer.
    Frame(Arc<Vec<u8>>, Range<usize>),
    /// Bytes of samples.
    Chunk(Arc<Chunk>, Range<usize>),
}

impl Slice {
    pub(super) fn frame(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self::Frame(Arc::new(bytes), range)
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Frame(_, range) | Self::Chunk(_, range) => range.len(),
        }
    }

    fn split_at(mut self, at: usize) -> (Self, Self) {
        let mut head = self.clone();
        let (Self::Frame(_, first) | Self::Chunk(_, first)) = &mut head;
        let (Self::Frame(_, rest) | Self::Chunk(_, rest)) = &mut self;
        rest.start += at;
        first.end = rest.start;
        (head, self)
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Frame(bytes, range) => &bytes[range.clone()],
            Self::Chunk(chunk, range) => chunk.slice(range.clone()),
        }
    }
}

/// The contents of a shard, as its format arranges them.
#[derive(Debug)]
pub(super) struct Layout {
    /// The segments that are compressed separately. There is one segment without compression, or if the compression
    /// does not support segments.
    pub(super) segments: Vec<Vec<Slice>>,
    pub(super) side: Side,
    /// The rows of a file of a table, which has no other contents.
    pub(super) table: Option<TableRows>,
}

/// The rows of a file of a table.
#[derive(Debug, Default)]
pub(crate) struct TableRows {
    pub(super) pieces: Vec<Piece>,
    /// The size of each row.
    pub(super) sizes: Vec<u32>,
}

impl TableRows {
    /// Returns the size of all rows in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.range.len()).sum()
    }
}

/// The data of a shard besides its samples.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// The contents of a second file: the meta file or the offset table.
    pub(super) file: Option<Vec<u8>>,
    /// The fields of the samples of a tar shard.
    pub(super) fields: Arc<FieldSet>,
}

/// Cuts a file into segments of these lengths. The rest becomes the last segment.
pub(super) fn segments(
    slices: Vec<Slice>,
    mut lengths: impl Iterator<Item = usize>,
) -> Vec<Vec<Slice>> {
    let mut segments = Vec::new();
    let mut open = Vec::new();
    let mut room = lengths.next().unwrap_or(usize::MAX);
    for mut slice in slices {
        while slice.len() > room {
            let (head, tail) = slice.split_at(room);
            open.push(head);
            segments.push(std::mem::take(&mut open));
            slice = tail;
            room = lengths.next().unwrap_or(usize::MAX);
        }
        room -= slice.len();
        if slice.len() > 0 {
            open.push(slice);
        }
    }
    if !open.is_empty() || segments.is_empty() {
        segments.push(open);
    }
    segments
}

/// A compression of either format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Codec {
    Streaming(Compression),
    Tar(TarCompression),
}

/// A compressed segment.
#[derive(Debug)]
pub(super) enum Compressed {
    Bytes(Vec<u8>),
    Piece(CompressedPiece),
}

/// Buffers and a compressor that a thread reuses between steps.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    compressor: Option<(Codec, AnyCompressor)>,
    contiguous: Vec<u8>,
}

#[derive(Debug)]
enum AnyCompressor {
    Streaming(Compressor),
    Tar(PieceCompressor),
}

impl Scratch {
    pub(super) fn compress(
        &mut self,
        codec: Codec,
        slices: &[impl AsRef<[u8]>],
        shard: u64,
    ) -> Result<Compressed, Error> {
        let contiguous: &[u8] = match slices {
            [slice] => slice.as_ref(),
            _ => {
                self.contiguous.clear();
                for slice in slices {
                    self.contiguous.extend_from_slice(slice.as_ref());
                }
                &self.contiguous
            }
        };
        let fail = |source| error::not_compressed(shard, source);
        if self.compressor.as_ref().is_none_or(|(of, _)| *of != codec) {
            let compressor = match codec {
                Codec::Streaming(compression) => {
                    AnyCompressor::Streaming(compression.compressor().map_err(fail)?)
                }
                Codec::Tar(compression) => {
                    AnyCompressor::Tar(PieceCompressor::new(compression).map_err(fail)?)
                }
            };
            self.compressor = Some((codec, compressor));
        }
        match &mut self.compressor {
            Some((_, AnyCompressor::Streaming(compressor))) => {
                let mut out = Vec::new();
                compressor.compress(contiguous, &mut out).map_err(fail)?;
                out.shrink_to_fit();
                Ok(Compressed::Bytes(out))
            }
            Some((_, AnyCompressor::Tar(compressor))) => {
                let piece = compressor.compress(contiguous).map_err(fail)?;
                Ok(Compressed::Piece(piece))
            }
            None => Err(error::internal("a thread without a compressor")),
        }
    }
}
