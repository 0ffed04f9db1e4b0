//! Encodes, decodes and checks WebDataset shards and their indexes, in memory.
//!
//! This crate defines how samples become the members of a tar file, and how members become samples. It writes
//! indexes, and predicts how other readers interpret a shard.
//! It does not open, download or rename files, starts no threads, and never unpacks a member. It never runs data:
//! pickles are bytes.
//!
//! A *shard* is a tar file. A *sample* is a run of members that share a *key*; the rest of a member's name is its
//! *field*. [`ShardBuilder`] writes samples into a shard, and [`ShardView`] reads them by number. [`ShardScan`] finds
//! the samples of a shard that is not completely in memory; it reads headers only. A shard without a valid end of
//! archive is refused as a whole.
//!
//! ```
//! use shardmill_core::Limits;
//! use shardmill_webdataset::{Profile, ShardBuilder, ShardView};
//!
//! let mut shard = ShardBuilder::new(Profile::default());
//! shard.push("0001", &[("txt", b"hello"), ("cls", b"7")])?;
//! let (bytes, _) = shard.finish();
//!
//! let view = ShardView::open(&bytes, &Limits::default())?;
//! let fields = view.fields(0)?;
//! assert_eq!((&*fields[0].name, fields[0].data), ("cls", &b"7"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate has no features. Input is untrusted: every length is compared with the remaining bytes before it is used,
//! memory is never allocated by a claimed size alone, and no input causes a panic.
//!
//! The rules are those of webdataset 1.0.2 if it has any. The crate's `README.md` names the specifications.

mod array;
mod braces;
#[cfg(test)]
mod compression_tests;
mod decode;
mod error;
mod field;
mod group;
mod index;
mod json;
mod lint;
mod member;
mod names;
mod npz;
mod shard;
pub mod sidecar;
mod survey;
mod tar;
#[cfg(test)]
mod testdata;

pub use array::{Array, encode_ten, npy_header};
pub use braces::{MAX_NAMES, expand_braces};
pub use decode::{Value, decode, deflate, inflate};
pub use error::{MemberKind, WebdatasetError, WebdatasetProblem};
pub use field::FieldKind;
pub use group::{FieldEntry, Grouper, SampleEntry};
pub use index::{
    FieldSet, INDEX_VERSION, Index, IndexShard, offsets_name, read_offsets, write_offsets,
};
pub use lint::{FieldSets, Finding, Severity, ShardFacts, lint};
pub use member::MemberEntry;
pub use names::Consumer;
pub use npz::read_npz;
pub use shard::*;
pub use shardmill_codec::seekable::*;
pub use shardmill_codec::{
    CodecError, Content, Digest, FileHashes, FileInfo, HashAlgo, Hasher, digest, hash_hex,
};
pub use shardmill_core::DType;
pub use survey::{Survey, Surveyor};
pub use tar::{
    Dialect, KEY_DIGITS, Member, Scanner, Step, TRAILER_BYTES, TarStyle, check_member,
    content_of_numbered, member_bytes, renumber, trailer_bytes, write_member, write_member_head,
    write_trailer,
};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
