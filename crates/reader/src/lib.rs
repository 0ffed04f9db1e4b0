//! Reading shard sets on a disk: open one, find a sample, verify everything, rebuild or merge an index.
//!
//! Raw files that are samples themselves are read in the same order and through the same cache: see [`FileOptions`].
//!
//! This crate decides which file of a shard is read, what is checked before its bytes are used (reliability
//! rules V1 to V7), and in what words a damaged dataset is described. It leaves the meaning of the bytes to
//! `shardmill-mds`, opening files to `shardmill-storage`, and writing anything at all to its callers.
//!
//! The model:
//!
//! - A [`Dataset`] is an index and the directory it lies in. [`Dataset::locate`] turns the number of a sample
//!   into a shard and a place in it; [`Dataset::shard`] reads and checks a whole shard; [`Dataset::sample`]
//!   reads one sample, without the rest of the shard where that is possible.
//! - Read in place, a shard is checked for length and structure, and for its hash when
//!   [`OpenOptions::validate_hash`] names one.
//! - Of a compressed shard the compressed file is the stored form. The raw file, which other readers leave
//!   behind as a cache, is read instead of it where it has the length that the index declares, or where it is
//!   all there is. [`verify`] checks both.
//! - [`verify`] goes through every file and lists what is wrong, [`rebuild_index`] and [`merge_indexes`] make
//!   an [`Index`](shardmill_mds::Index) for the caller to publish.
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
mod cache;
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
pub use cache::{
    AccessPlan, AccessWindow, CacheEpoch, CacheForecast, EpochFacts, Forecast, ForecastOptions,
    NodeForecast, Point, Policy, Resident, ShardCost, SimEpoch, SimReport, forecast, make_room,
    simulate,
};
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
