//! Where one shard ends and the next begins: chunks in, shards out. Sequential, cheap, and the only place
//! that decides.

use std::ops::Range;
use std::sync::Arc;

use shardmill_mds::{Cutter, ShardConfig};

use crate::chunk::Chunk;

/// A position in the input: where a shard's first sample came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The unit of the input.
    pub unit: usize,
    /// The sample's position among those that the unit gave to the split.
    pub sample: u64,
}

/// A slice of a chunk.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) chunk: Arc<Chunk>,
    pub(crate) range: Range<usize>,
}

/// One shard, cut but not yet written.
#[derive(Debug)]
pub(crate) struct CutShard {
    pub(crate) split: usize,
    pub(crate) shard: u64,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) sizes: Vec<u32>,
    pub(crate) start: Position,
}

/// Cuts the samples of one split into shards.
#[derive(Debug)]
pub(crate) struct Packer {
    split: usize,
    cutter: Cutter,
    next_shard: u64,
    /// The next sample opens a shard whatever the cutter says: a shard was flushed before it in an earlier run.
    flushed: bool,
    pieces: Vec<Piece>,
    sizes: Vec<u32>,
    start: Option<Position>,
}

impl Packer {
    pub(crate) fn new(
        split: usize,
        config: &ShardConfig,
        samples_per_shard: Option<u64>,
        first_shard: u64,
    ) -> Self {
        Self {
            split,
            cutter: Cutter::new(config, samples_per_shard),
            next_shard: first_shard,
            flushed: first_shard > 0,
            pieces: Vec::new(),
            sizes: Vec::new(),
            start: None,
        }
    }

    /// Takes the samples of a chunk; `emit` gets every shard that is full.
    pub(crate) fn push(&mut self, chunk: Chunk, mut emit: impl FnMut(CutShard)) {
        let chunk = Arc::new(chunk);
        let mut piece_start = 0_usize;
        let mut sample_start = 0_u32;
        for sample in 0..chunk.samples() {
            let end = chunk.end(sample);
            let size = end - sample_start;
            let flush = self.cutter.push(u64::from(size));
            let position = Position {
                unit: chunk.origin.unit,
                sample: chunk.origin.first + u64::try_from(sample).unwrap_or(0),
            };
            if flush && !self.flushed {
                let cut = usize::try_from(sample_start).unwrap_or(usize::MAX);
                self.close_piece(&chunk, piece_start..cut);
                piece_start = cut;
                emit(self.take(position));
            }
            self.flushed = false;
            if self.sizes.is_empty() {
                self.start = Some(position);
            }
            self.sizes.push(size);
            sample_start = end;
        }
        self.close_piece(&chunk, piece_start..chunk.len());
    }

    /// Takes the last shard, if a sample is left for it.
    pub(crate) fn finish(&mut self) -> Option<CutShard> {
        (!self.sizes.is_empty()).then(|| self.take(Position::default()))
    }

    /// The number of the shard that is being filled.
    pub(crate) const fn next_shard(&self) -> u64 {
        self.next_shard
    }

    /// Bytes of the shard that is being filled, as the limit counts them.
    pub(crate) const fn open_bytes(&self) -> u64 {
        self.cutter.bytes()
    }

    /// The samples of the shard that is being filled.
    pub(crate) fn open_samples(&self) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            bytes.extend_from_slice(piece.chunk.slice(piece.range.clone()));
        }
        let mut rest = bytes.as_slice();
        let sizes = self.sizes.iter();
        sizes
            .map(|size| {
                let at = usize::try_from(*size).unwrap_or(usize::MAX);
                let (sample, after) = rest.split_at(at.min(rest.len()));
                rest = after;
                sample.to_vec()
            })
            .collect()
    }

    fn close_piece(&mut self, chunk: &Arc<Chunk>, range: Range<usize>) {
        if !range.is_empty() {
            self.pieces.push(Piece {
                chunk: Arc::clone(chunk),
                range,
            });
        }
    }

    fn take(&mut self, next: Position) -> CutShard {
        let shard = CutShard {
            split: self.split,
            shard: self.next_shard,
            pieces: std::mem::take(&mut self.pieces),
            sizes: std::mem::take(&mut self.sizes),
            // An empty first shard starts where the second one does.
            start: self.start.take().unwrap_or(next),
        };
        self.next_shard += 1;
        shard
    }
}
