//! Types that every shardmill crate shares: names, sizes, formats, error kinds, limits and progress.
//!
//! This crate decides how byte sizes are written, and which names from data may become paths. It defines the categories
//! of failure, and how much a hostile file may request. It does no I/O and has no clock and no async code. Its only
//! threads are those of [`parallel`].
//!
//! Terms: a *sample* is one training example, a map from column to value. A *shard* is one file of samples. An *index*
//! lists the shards of a dataset with their columns, sizes and hashes.
//!
//! Every error of every crate is an [`Error`], or a [`Diagnostic`] that becomes one with `?`. So the command line and
//! the Python package display all errors in one form. They map [`ErrorKind`] to an exit code or an exception class.
//!
//! ```
//! use shardmill_core::ByteSize;
//!
//! let limit: ByteSize = "64MiB".parse()?;
//! assert_eq!(limit.bytes(), 67_108_864);
//! assert_eq!(limit.to_string(), "64.0 MiB");
//! # Ok::<(), shardmill_core::SizeError>(())
//! ```

mod advice;
pub mod catch_panic;
mod contents;
mod dtype;
mod error;
mod format;
mod json_string;
mod limits;
mod lock;
mod name;
mod named;
pub mod number;
pub mod parallel;
mod problems;
mod process;
mod progress;
mod size;
mod token;
mod unfinished;

pub use advice::{column_option, column_word, omit_option, shell_word, sql_name};
pub use contents::{
    Contents, FileClass, Verdict, accompanies, begins_as_tar_index, stray_among_tars,
};
pub use dtype::DType;
pub use error::{Diagnostic, Error, ErrorKind, io_error_id};
pub use format::{ENCODING_KEY, Format, ParseFormatError};
pub use json_string::{plain_run, write_json_string};
pub use limits::{ExpansionLimits, LimitExceeded, Limits, ParquetLimits, TarLimits};
pub use lock::lock;
pub use name::{
    INDEX_NAME, JOURNAL_NAME, NameError, PARTS_FOLDER, TABLE_INDEX_NAME, WORK_FOLDER,
    check_relative_path, escape,
};
pub use process::PerProcess;
pub use progress::{CancelToken, Progress, Snapshot};
pub use size::{ByteSize, SizeError, parse_sample_count};
pub use token::{is_equal_token, is_token};
pub use unfinished::Unfinished;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
