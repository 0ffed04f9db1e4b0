//! Compresses shards so that samples can still be read individually: one piece for each group of samples, and a table
//! of pieces at the end.
//!
//! Standard tools can decompress both formats. `.tar.zst` consists of zstd frames, and ends with the skippable frame of
//! zstd's *seekable format*. `.tar.gz` is a single gzip member, because CPython's `tarfile` ignores further members
//! when it streams. Its deflate stream is flushed at the end of each group, so that each can be inflated alone. An
//! empty second member has the table in its extra field.

mod pieces;
mod read;
mod tar_compression;

pub use pieces::{
    CompressedPiece, GROUP_BYTES, PieceCompressor, assemble, compress_shard, sample_groups,
};
pub use read::decompress;
pub use tar_compression::TarCompression;
