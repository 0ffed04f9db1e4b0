//! Hashes and compresses files, for all formats.
//!
//! This crate defines the 17 hash algorithms of an index, the compressions of MDS shards and of tar shards, and the hash
//! of all samples of a dataset. It works in memory: it reads no files and starts no threads. Decompression is bounded by
//! the declared length or by [`Limits`](shardmill_core::Limits), and no input causes a panic.
//!
//! ```
//! use shardmill_codec::{FileHashes, HashAlgo};
//!
//! let hashes = FileHashes::of(&[HashAlgo::Xxh64], b"bytes");
//! assert!(hashes.check(HashAlgo::Xxh64, b"bytes").is_ok());
//! assert!(hashes.check(HashAlgo::Xxh64, b"other").is_err());
//! ```
//!
//! Names and digests are those of MosaicML Streaming 0.13 (`streaming/base/{compression,hashing}.py`).

mod algorithm;
mod compression;
mod content;
mod cut;
mod decompress;
mod error;
mod hash;
pub mod seekable;
mod zstd_frame;

pub use algorithm::{Algorithm, HashAlgo};
pub use compression::{Compression, Compressor};
pub use content::Content;
pub use cut::Cutter;
pub use error::{CodecError, CodecProblem};
pub use hash::{Digest, FileHashes, FileInfo, Hasher, digest, hash_hex};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
