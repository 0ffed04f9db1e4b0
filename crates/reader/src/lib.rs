//! Reads datasets: opens them, finds samples, streams batches through a cache, verifies all files, and rebuilds or
//! merges indexes.
//!
//! Raw files that are samples themselves are read in the same order and through the same cache: see [`FileOptions`].
//!
//! This crate decides which file of a shard to read and what to check before its bytes are used. It also words the
//! errors for damaged datasets. `shardmill-mds` decodes the bytes, `shardmill-storage` opens the files, and the callers
//! do all writing of datasets.
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
//! use shardmill_reader::{Dataset, OpenOptions, VerifyOptions, verify};
//!
//! let dataset = Dataset::open(Path::new("data/train"), &OpenOptions::default())?;
//! println!("{} samples", dataset.len());
//! let sample = dataset.sample(0)?;
//! for field in sample.fields()? {
//!     println!("{}: {} bytes", field.name, field.datum.len());
//! }
//! let report = verify(&dataset, &VerifyOptions::default(), &Progress::new())?;
//! assert!(report.is_clean());
//! # Ok::<(), shardmill_reader::ReaderError>(())
//! ```

mod batch;
mod batches;
mod catalog;
mod collate;
mod dataset;
mod entry;
mod error;
mod files;
mod keys;
mod live;
mod load;
mod merge;
mod open;
mod place;
mod prefetch_planner;
mod reader;
mod rebuild;
mod report;
mod scan;
mod schema;
mod shard;
mod shard_cache;
mod side_files;
mod state;
mod stream_live;
#[cfg(test)]
mod streaming_tests;
mod tar;
mod tars;
mod verify;
mod walks;

pub use batch::{Batch, BatchData, ColumnData, Held};
pub use batches::{BatchOptions, BatchStats, Batches};
pub use catalog::StreamOptions;
pub use dataset::{Dataset, OpenOptions};
pub use error::{Place, ReaderError};
pub use files::{
    DATA_COLUMN, FILE_COLUMN, FileError, FileForm, FileOptions, KnownFiles, PATH_COLUMN,
};
pub use live::LiveSamples;
pub use merge::{MergePart, Merged, merge_index_list, merge_indexes, merge_parts};
pub use reader::{EncodedSample, FileUse, Reader, ReaderOptions};
pub use rebuild::{RebuildOptions, rebuild_index};
pub use report::{ContentReport, MOST_FINDINGS, Problem, VerifyReport};
pub use schema::{SampleForm, Schema, SchemaColumn};
pub use shard::{Sample, Shard};
pub use shard_cache::{CacheOptions, CacheStats, Peers};
pub use shardmill_cache::{
    CacheEpoch, CacheForecast, EpochFacts, Forecast, ForecastOptions, NodeForecast, Point,
    ShardCost, forecast,
};
pub use side_files::{
    PENDING_BYTES, PENDING_NAME, PROVENANCE_BYTES, PROVENANCE_NAME, Pending, RECORD_NAME,
    SIDE_BYTES, SideError, TOMBSTONES_NAME, check_sides, tombstones_note, unfinished_in,
};
pub use state::{
    Fingerprint, MOST_STATE_BYTES, OrderDifferences, OrderIdentity, RunState, StateError,
};
pub use tar::KEY_COLUMN;
pub use tars::{
    FoundIndex, MOST_SPLITS, PatternFault, RepeatedKey, RepeatedKeys, TarData, TarFile, TarPattern,
    TarSet, TarSetError, each_in_order, folder_holds_tars, holds_tars, is_tar_name, verify_tars,
    version_of,
};
pub use verify::{VerifyOptions, verify};
