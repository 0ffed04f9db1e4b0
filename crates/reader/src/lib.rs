//! Reading shard sets on a disk: open one, find a sample, verify everything, rebuild or merge an index.
//!
//! This crate decides which file of a shard is read, what is checked before its bytes are used (reliability
//! rules V1 to V7), and in what words a damaged data set is described. It leaves the meaning of the bytes to
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

mod dataset;
mod error;
mod load;
mod merge;
mod parallel;
mod place;
mod rebuild;
mod report;
mod shard;
mod verify;

pub use dataset::{Dataset, OpenOptions};
pub use error::{Place, ReaderError};
pub use merge::{merge_index_list, merge_indexes};
pub use rebuild::{RebuildOptions, rebuild_index};
pub use report::{MOST_FINDINGS, Problem, VerifyReport};
pub use shard::{Sample, Shard};
pub use verify::{VerifyOptions, verify};
