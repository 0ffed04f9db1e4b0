//! Parquet files for loaders: record batches in, the bytes of a file out.
//!
//! The caller decides where a row group ends. This crate decides everything else about the file: pages, page index,
//! compression and metadata. The bytes depend only on the rows, their division into row groups, and the settings.

mod encode;
mod error;

pub use encode::{ParquetEncoder, check_type};
pub use error::ParquetEncodeError;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
