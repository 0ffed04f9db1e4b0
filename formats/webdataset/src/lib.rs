//! WebDataset shards and their indexes: bytes in, bytes out.
//!
//! This crate decides how samples become the members of a tar file and how the members of a tar file become samples, how
//! shards are compressed so that samples stay reachable, what an index says about them, and what other readers would
//! make of a shard. It leaves files, stores, threads and progress to others: nothing here opens, fetches or renames
//! anything, and no member is ever unpacked. It refuses to run data: pickles are bytes.
//!
//! The model in a few lines. A *shard* is a tar file. A *sample* is a run of members that share a *key*; what stands behind
//! the key is the *field*. [`ShardBuilder`] puts samples into a shard, [`ShardView`] takes them out by number,
//! [`ShardScan`] finds them in a shard that is not at hand as a whole, reading headers only. A shard is whole when its
//! archive ends as tar files end; without that no sample of it is believed, unless somebody asks for a repair.
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
//! There are no features. Hostile input: every length is compared with the bytes that remain before it is used, nothing
//! is allocated on the word of a file, and no input makes a function of this crate panic.
//!
//! The rules are those of webdataset 1.0.2 where it has any; the crate's `README.md` names the specifications.

mod array;
mod braces;
mod compression;
mod decode;
mod encode;
mod error;
mod field;
mod group;
mod index;
mod json;
mod lint;
mod names;
mod npz;
mod shard;
pub mod sidecar;
mod survey;
mod tar;
#[cfg(test)]
mod testdata;

pub use array::{Array, DType, npy_header};
pub use braces::{BraceError, MOST_NAMES, expand_braces};
pub use decode::{Value, decode, inflate};
pub use encode::{Datum, deflate, encode};
pub use error::{MemberKind, TarError, WriteError};
pub use field::{FieldError, FieldKind};
pub use group::{FieldEntry, Grouper, SampleEntry};
pub use index::{
    FieldSet, INDEX_VERSION, Index, IndexError, IndexShard, offsets_name, read_offsets,
    write_offsets,
};
pub use lint::{
    Change, Finding, FixError, Fixed, Lint, Lost, Repaired, Severity, ShardFacts, Split, fix,
    repair, splits,
};
pub use names::{Consumer, ParseConsumerError, shard_name};
pub use npz::read_npz;
pub use shardmill_hash::{
    Content, Digest, FileHashes, FileInfo, HashAlgo, HashError, Hasher, digest, hash_hex,
};
pub use survey::{MemberEntry, Survey, Surveyor};
pub use tar::{
    Dialect, KEY_DIGITS, Member, Owner, Scanner, Step, TRAILER_BYTES, TarStyle, check_member,
    content_of_numbered, member_bytes, renumber, trailer_bytes, write_member, write_member_head,
    write_trailer,
};
pub use {compression::*, shard::*};
