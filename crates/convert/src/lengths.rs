//! Writes the lengths and the videos of columns beside the index of an existing dataset.

use serde::Serialize;
use shardmill_core::{Error, Limits, Progress};
use shardmill_dataset::{Dataset, DatasetError, DatasetProblem, Lengths, OpenOptions, Videos};
use shardmill_storage::{Destination, Location, RemoteOptions, StorageError};

use crate::target::Target;

/// The options of [`write_lengths`].
#[derive(Clone, Debug)]
pub struct LengthsOptions {
    /// The columns.
    pub columns: Vec<String>,
    /// The number of shards read in parallel; 0 means one per core.
    pub jobs: usize,
    /// The limits for reading files.
    pub limits: Limits,
    /// The options for accessing stores.
    pub remote: RemoteOptions,
}

/// The lengths of one column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenLengths {
    /// The column.
    pub column: String,
    /// The name of the file beside the index.
    pub file: String,
    /// What is counted: `elements` or `bytes`.
    pub unit: &'static str,
    /// The number of samples, deleted ones counted.
    pub samples: u64,
    /// The sum of the lengths.
    pub total: u64,
    /// Whether the file was written. An existing file of the same dataset is kept.
    pub written: bool,
}

/// Writes the lengths of columns of an MDS dataset beside its index. A file that belongs to the dataset is kept, and one
/// that is damaged or of an earlier index is replaced.
///
/// # Errors
///
/// Errors of opening and reading the dataset, and of writing; `InvalidInput` for a column without lengths.
pub fn write_lengths(
    location: &Location,
    options: &LengthsOptions,
    progress: &Progress,
) -> Result<Vec<WrittenLengths>, Error> {
    let dataset = open(location, options)?;
    let mut done = Vec::with_capacity(options.columns.len());
    for column in &options.columns {
        let file = Lengths::file_name(column);
        let (lengths, written) = match Lengths::of(&dataset, column) {
            Ok(lengths) => (lengths, false),
            Err(error) if is_outdated(error.problem()) => {
                let jobs = options.jobs;
                let lengths = Lengths::measure(&dataset, column, jobs, progress)?;
                publish(location, options, &file, &lengths.to_bytes(), progress)?;
                (lengths, true)
            }
            Err(error) => return Err(error.into()),
        };
        done.push(WrittenLengths {
            column: column.clone(),
            file,
            unit: lengths.unit().name(),
            samples: lengths.values().len() as u64,
            total: lengths.values().iter().map(|value| u64::from(*value)).sum(),
            written,
        });
    }
    Ok(done)
}

/// Writes the index of the videos of columns of an MDS dataset beside its index, as [`write_lengths`] does. A file that
/// belongs to the dataset is kept.
pub(crate) fn write_videos(
    location: &Location,
    options: &LengthsOptions,
    progress: &Progress,
) -> Result<(), Error> {
    let dataset = open(location, options)?;
    for column in &options.columns {
        // A damaged file is replaced, too.
        if !matches!(Videos::of(&dataset, column), Ok(Some(_))) {
            let videos = Videos::find(&dataset, column, options.jobs, progress)?;
            let name = Videos::file_name(column);
            publish(location, options, &name, &videos.to_bytes(), progress)?;
        }
    }
    Ok(())
}

fn open(location: &Location, options: &LengthsOptions) -> Result<Dataset, DatasetError> {
    let opened = OpenOptions {
        limits: options.limits.clone(),
        with_deleted: true,
        ..OpenOptions::default()
    };
    Dataset::open_at(location, &opened, &options.remote)
}

fn publish(
    location: &Location,
    options: &LengthsOptions,
    name: &str,
    bytes: &[u8],
    progress: &Progress,
) -> Result<(), StorageError> {
    let destination = Destination::open(location, &options.remote, None)?;
    Target::new(&destination, progress).publish_from(None, name, bytes)
}

/// Returns whether a file of lengths with this problem is written again.
const fn is_outdated(problem: Option<DatasetProblem>) -> bool {
    matches!(
        problem,
        Some(
            DatasetProblem::LengthsMissing
                | DatasetProblem::LengthsOther
                | DatasetProblem::LengthsDamaged
                | DatasetProblem::LengthsVersion
        )
    )
}
