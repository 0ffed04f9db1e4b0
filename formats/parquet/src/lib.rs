//! Parquet files in memory: encodes record batches as files for loaders, and checks the files of others before they are
//! decoded.
//!
//! The caller of [`ParquetEncoder`] decides where a row group ends. This crate decides everything else about the file:
//! pages, page index, compression and metadata. The bytes depend only on the rows, their division into row groups, and
//! the settings.
//!
//! The `parquet` crate trusts the files that it decodes. [`decode_footer`] and [`OneGroup`] compare the claims of a
//! footer and of each page with the available bytes first. The caller reads the bytes.

mod encode;
mod error;
mod extension;
mod fields;
mod footer;
mod int96;
mod levels;
mod media;
mod pages;
mod partitions;
mod parts;
mod sizing;
mod thrift;
mod variant;

pub use encode::{ParquetEncoder, check_type};
pub use error::ParquetEncodeError;
pub use extension::{plain_values, without_extensions};
pub use fields::{FieldsProblem, arrow_fields, plain_field};
pub use footer::{
    END_BYTES, FooterProblem, check_start, chunk_range, decode_footer, footer_range,
    group_null_count, group_ranges, group_sizes, leaf_of,
};
pub use int96::{in_microseconds, leaf_count, leaves_of};
pub use media::{media_bytes, media_column};
pub use pages::{CheckedPages, ErrorSlot, OneGroup, PageError, PageProblem};
pub use partitions::{PartitionProblem, Partitions, repeated};
pub use parts::{GroupPages, GroupPart, divide_groups, index_range};
pub use sizing::{batch_rows, fixed_bytes};
pub use variant::variant_to_text;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
