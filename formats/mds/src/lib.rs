//! MDS, JSON and XSV shards and their index: bytes in, bytes out.
//!
//! This crate decides how a value becomes the bytes of a column, how samples become a shard, where a shard is
//! cut, how it is compressed and hashed, and how an index lists shards; and it reads all of that back from
//! bytes that nobody vouches for. It leaves files, stores, threads and progress to others: nothing here opens,
//! fetches or renames anything. It refuses to run data: a `pkl` column is carried as opaque bytes.
//!
//! The model in a few lines. A *sample* is a map from column name to value. An [`Encoding`] says how the values
//! of one column become bytes, its *datum*; [`decode()`] turns a datum into a borrowed [`Value`] without copying
//! it, [`check_datum`] says whether every reader could. The writers of this crate (`write_*`, `encode_*`) append
//! to a buffer of the caller. Text is spelled as Python spells it, because the original writer is Python and
//! the bytes have to agree.
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
//! There are no features. Hostile input: every length is compared with the bytes that remain before it is used,
//! nothing is allocated on the word of a file, and no input makes a function of this crate panic.
//!
//! The formats are those of MosaicML Streaming 0.13; the specification followed is named in the crate's
//! `README.md`.

mod compression;
mod config;
mod cut;
mod decode;
mod encode;
mod encoding;
mod error;
mod frame;
mod hash;
mod index;
mod json;
mod limits;
mod merge;
mod names;
mod shard;
#[cfg(test)]
mod testdata;
mod text;
mod value;

pub use decode::decode;
pub use encode::{check_datum, encode_jpeg_array, encode_list, encode_pil, ndarray_header};
pub use encoding::{DType, Encoding, ImageKind};
pub use error::{EncodingError, ValueError};
pub use half::f16;
pub use json::{check_json, check_new_json};
pub use text::{reaches_over, write_decimal, write_float, write_json_float, write_json_string};
pub use value::{Image, NdArray, PilFrame, Value};
pub use {compression::*, config::*, hash::*, index::*, shard::*};
