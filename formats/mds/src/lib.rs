//! Encodes and decodes MDS, JSON and XSV shards and their index, in memory.
//!
//! This crate defines how a value becomes the bytes of a column, how samples form a shard, and where a shard is cut. It
//! writes the index of shards. It also reads all of these from untrusted bytes. It does not
//! open, download or rename files, and starts no threads. It never runs data: a `pkl` column is passed on as opaque
//! bytes.
//!
//! A *sample* is a map from column name to value. An [`Encoding`] defines how the values of one column become bytes;
//! the bytes of one value are its *datum*. [`decode()`] turns a datum into a borrowed [`Value`] without copying it, and
//! [`check_datum`] checks that every reader can decode it. The writers of this crate (`write_*`, `encode_*`) append to
//! a buffer of the caller. Text is formatted exactly as Python does it, because the original writer is Python and the
//! bytes have to agree.
//!
//! ```
//! use shardmill_core::Limits;
//! use shardmill_mds::{Encoding, Value, decode};
//!
//! let encoding: Encoding = "ndarray:int16".parse()?;
//! let Value::NdArray(array) = decode(&encoding, &[4, 2, 1, 0, 0xff, 0xff], &Limits::default())? else {
//!     unreachable!();
//! };
//! assert_eq!((array.shape, array.data), (vec![2], &[1, 0, 0xff, 0xff][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate has no features. Input is untrusted: every length is compared with the remaining bytes before it is used,
//! memory is never allocated by a claimed size alone, and no input causes a panic.
//!
//! The formats are those of MosaicML Streaming 0.13. The crate's `README.md` names the specification.

#[cfg(test)]
mod codec_tests;
mod config;
mod cut;
mod decode;
mod encode;
mod encoding;
mod encoding_name;
mod error;
mod frame;
mod index;
mod json;
mod late;
mod limits;
mod merge;
mod names;
mod pending;
mod shard;
mod shown;
mod side_names;
#[cfg(test)]
mod testdata;
mod text;
mod value;
pub mod value_json;

pub use decode::decode;
pub use encode::{check_datum, encode_jpeg_array, encode_list, ndarray_header};
pub use encoding::{DType, Encoding, ImageKind};
pub use error::{IndexPosition, MdsError, MdsProblem};
pub use half::f16;
pub use json::{check_json, check_new_json};
pub use shardmill_codec::{
    Algorithm, CodecError, Compression, Compressor, Content, Cutter, Digest, FileHashes, FileInfo,
    HashAlgo, Hasher, digest, hash_hex,
};
pub use shardmill_core::write_json_string;
pub use text::{reaches_over, write_decimal, write_float, write_json_float};
pub use value::{Image, NdArray, PilFrame, Value};
pub use {config::*, index::*, late::*, pending::*, shard::*, side_names::*};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
