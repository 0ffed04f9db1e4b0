//! Datasets in every format: detects and opens them, finds samples, verifies all files, and rebuilds or merges indexes.
//!
//! This crate decides which file of a shard to read and what to check before its bytes are used. It also words the
//! errors for damaged datasets. `shardmill-mds` and `shardmill-webdataset` decode the bytes, `shardmill-storage` opens
//! the files, `shardmill-reader` streams batches, and the callers do all writing of datasets.
//!
//! The model:
//!
//! - A [`Dataset`] is an index and its directory. [`Dataset::locate`] finds the shard of a sample and its position in
//!   the shard. [`Dataset::shard`] reads and checks a whole shard. [`Dataset::sample`] reads one sample, without the
//!   rest of the shard where that is possible.
//! - A shard that is read in place is checked for length and structure. Its hash is checked as well if
//!   [`OpenOptions::validate_hash`] names one.
//! - The stored form of a compressed shard is the compressed file. Other readers cache the raw file next to it. In a
//!   local directory, that raw file is read instead if it has the length that the index declares. [`verify`] checks
//!   both.
//! - [`verify`] reads every file and lists the problems. [`rebuild_index`] and [`merge_indexes`] return an
//!   [`Index`](shardmill_mds::Index) for the caller to publish.
//!
//! ```no_run
//! use std::path::Path;
//! use shardmill_core::Progress;
//! use shardmill_dataset::{Dataset, OpenOptions, VerifyOptions, verify};
//!
//! let dataset = Dataset::open(Path::new("data/train"), &OpenOptions::default())?;
//! println!("{} samples", dataset.len());
//! let sample = dataset.sample(0)?;
//! for field in sample.fields()? {
//!     println!("{}: {} bytes", field.name, field.datum.len());
//! }
//! let report = verify(&dataset, &VerifyOptions::default(), &Progress::new())?;
//! assert!(report.is_clean());
//! # Ok::<(), shardmill_dataset::DatasetError>(())
//! ```

mod bits;
mod body;
mod cached_index;
mod catalog;
mod column_file;
mod computed;
mod dataset;
mod entry;
mod error;
mod file_frame;
mod files;
mod index_file;
mod keys;
mod late;
mod lengths;
mod live;
mod mapped;
mod merge;
pub mod mp4;
mod place;
mod problem;
mod rebuild;
mod report;
mod sample_sources;
mod schema;
mod shard;
mod shard_checks;
mod side_files;
mod stream;
mod stream_index;
mod tar;
mod tars;
mod verify;
mod videos;
mod view;
mod windows;

pub use body::{Body, LateShard};
pub use catalog::Catalog;
pub use computed::{
    ComputeShards, Computed, ComputedStream, FileRanges, OpenComputed, StreamFiles,
};
pub use dataset::{Dataset, OpenOptions, read_ahead};
pub use entry::{Entry, Part, Shards};
pub use error::{DatasetError, samples_of};
pub use files::{
    ChosenFiles, DATA_COLUMN, FILE_COLUMN, FileEntry, FileForm, FileList, FileOptions, KnownFiles,
    PATH_COLUMN,
};
pub use keys::Keys;
pub use late::{COLUMNS_FOLDER, COLUMNS_NAME, LateColumns};
pub use lengths::{LengthUnit, Lengths};
pub use live::{LiveSamples, LiveShards};
pub use mapped::{Piece, ShardBytes, map, version_of};
pub use merge::{MergePart, Merged, merge_index_list, merge_indexes, merge_parts};
pub use place::StoredValue;
pub use problem::{DatasetProblem, Subject, ValueLocation};
pub use rebuild::{RebuildOptions, rebuild_index};
pub use report::{ContentReport, MAX_FINDINGS, Problem, ReadTotals, VerifyReport};
pub use sample_sources::{SampleSource, SampleSources};
pub use schema::{KEY_COLUMN, NULL_MASK_SUFFIX, SampleForm, Schema, SchemaColumn};
pub use shard::{Sample, Shard};
pub use shard_checks::{ShardCheck, VerifyOptions, check_files};
pub use shardmill_cache::private_folder;
pub use side_files::{
    IndexShape, PENDING_BYTES, PENDING_NAME, PROVENANCE_BYTES, PROVENANCE_NAME, Pending,
    RECORD_NAME, SIDE_BYTES, TOMBSTONES_NAME, check_sides, tombstones_note, unfinished_in,
};
pub use stream::{CatalogOptions, Stream, StreamOptions};
pub use tar::{TarProblem, TarSample};
pub use tars::{
    FoundIndex, RepeatedKey, RepeatedKeys, TarFile, TarPattern, TarSet, each_in_order,
    folder_holds_tars, holds_tars, is_tar_name, splits_in, verify_tars,
};
pub use verify::verify;
pub use videos::Videos;
pub use view::{View, ViewTarget};
pub use windows::{MAX_OFFSETS, PAD_SUFFIX, Window};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
