//! Zarr arrays: the bytes of metadata and chunks in, values out.
//!
//! [`ZarrArray`] is the metadata of an array, from [`ZarrArray::parse_v2`] or [`ZarrArray::parse_v3`]. It tells which
//! object holds a chunk ([`ZarrArray::place`]), and decodes the object ([`ZarrArray::decode`]) into little-endian values
//! in row-major order. Of a sharded array, the chunks are the inner ones, and [`Shard`] finds them in their object.
//! [`copy_region`] copies a part of one array into another, and [`CfDecoder`] decodes what is stored into physical values
//! by the CF conventions. [`consolidated`] returns the metadata of all arrays from one object.
//!
//! Codecs: `bytes`, `transpose`, `sharding_indexed`, `gzip`, `zlib`, `zstd`, `lz4`, `blosc` with LZ4, zlib or Zstandard,
//! and `crc32c`. The caller opens objects. Every length in them is checked before memory is allocated, and a chunk has
//! exactly the size that the metadata states.
//!
//! Formats: Zarr storage specification version 2, Zarr core specification version 3, and version 1 of the Blosc format.

mod array;
mod blosc;
mod cf;
mod codec;
mod compression;
mod consolidated;
mod dtype;
mod error;
mod json;
mod number;
mod region;
mod shard;
mod time;
mod v2;
mod v3;

pub use array::{ChunkLocation, ZarrArray};
pub use cf::{CfDecoder, PhysicalType};
pub use consolidated::{attributes, consolidated};
pub use error::ZarrError;
pub use region::copy_region;
pub use shard::Shard;
pub use shardmill_core::DType;
pub use time::{NOT_A_TIME, TimeUnit};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
