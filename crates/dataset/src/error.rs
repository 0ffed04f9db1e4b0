//! The errors of datasets.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use shardmill_core::{
    Diagnostic, Error, ErrorKind, FileClass, Limits, Progress, Unfinished, escape,
};
use shardmill_mds::{CodecError, MdsError};
use shardmill_storage::StorageError;
use shardmill_webdataset::WebdatasetError;

use crate::problem::{DatasetProblem, Subject, ValueLocation};

/// An error of opening or reading a dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages explain the fields")]
pub enum DatasetError {
    /// A sentence says all that is known about the problem.
    #[error("{reason}")]
    Input {
        problem: DatasetProblem,
        subject: Subject,
        reason: String,
        /// The hint, if it is not that of the problem.
        hint: Option<String>,
    },
    /// A file or directory could not be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Another crate describes the problem: a shard could not be computed from the files of a table, the files could
    /// not be used, or a pattern of tar files cannot be expanded.
    #[error("{0}")]
    Described(Error),
    /// An index, a shard, a sample or a value cannot be read, a file does not have its hash or does not decompress, a
    /// file demands more than the limits allow, or an index cannot contain a name.
    #[error("{action}")]
    Reading {
        subject: Subject,
        /// What failed.
        action: Cow<'static, str>,
        #[source]
        source: Error,
    },
    /// The caller requested to stop.
    #[error("stopped before the end")]
    Interrupted,
}

impl From<Error> for DatasetError {
    fn from(error: Error) -> Self {
        Self::Described(error)
    }
}

/// Returns what failed, if the shard or the sample at a location cannot be read.
const fn reading(location: &ValueLocation) -> &'static str {
    match location.sample {
        Some(_) => "cannot read the sample",
        None => "cannot read the shard",
    }
}

/// Formats a range of samples for a message.
#[must_use]
pub fn samples_of(first: u64, samples: u64) -> String {
    match samples {
        0 => "no samples".to_owned(),
        1 => format!("sample {first}"),
        _ => format!("samples {first} to {}", first.saturating_add(samples - 1)),
    }
}

impl DatasetProblem {
    /// Builds the error with this problem.
    pub fn at(self, subject: impl Into<Subject>, reason: impl Into<String>) -> DatasetError {
        self.with_hint(subject, reason, None)
    }

    /// Builds the error with this problem and another hint, if there is one.
    fn with_hint(
        self,
        subject: impl Into<Subject>,
        reason: impl Into<String>,
        hint: Option<String>,
    ) -> DatasetError {
        DatasetError::Input {
            problem: self,
            subject: subject.into(),
            reason: reason.into(),
            hint,
        }
    }

    /// Builds the error with this problem about the call as a whole.
    pub fn of_call(self, reason: impl Into<String>) -> DatasetError {
        self.at(Subject::Call, reason)
    }
}

impl DatasetError {
    /// Makes an error about a shard from one of the format crate. Sample numbers within the shard become numbers in the
    /// dataset, both in the location and in the message.
    pub fn shard(location: ValueLocation, first_sample: u64, source: MdsError) -> Self {
        Self::shard_with(location, |at| at.saturating_add(first_sample), source)
    }

    /// Like [`Self::shard`], with `number` to convert a position in the shard to a number in the dataset.
    pub fn shard_with(
        mut location: ValueLocation,
        number: impl FnOnce(u64) -> u64,
        mut source: MdsError,
    ) -> Self {
        if let MdsError::Sample { sample, .. }
        | MdsError::SampleEnd { sample, .. }
        | MdsError::Value { sample, .. } = &mut source
        {
            *sample = number(*sample);
            location.sample = Some(*sample);
        }
        match source {
            MdsError::Value {
                column, problem, ..
            } => {
                location.column = Some(column);
                Self::value(location, *problem)
            }
            source => {
                if let MdsError::SampleEnd { column, .. } = &source {
                    location.column = Some(column.clone());
                }
                Self::reading(reading(&location), location, source)
            }
        }
    }

    /// Makes an error about a value that violates its encoding.
    #[must_use]
    pub fn value(location: ValueLocation, source: MdsError) -> Self {
        Self::reading("cannot decode the value", location, source)
    }

    /// Makes an error about an index. `action` is what failed.
    pub(crate) fn index(action: &str, path: &Path, source: MdsError) -> Self {
        // The error of the index does not include the position in its message.
        let position = source.place().map(|position| format!(" at {position}"));
        let action = format!("{action}{}", position.unwrap_or_default());
        Self::reading(action, path, source)
    }

    pub(crate) fn reading(
        action: impl Into<Cow<'static, str>>,
        subject: impl Into<Subject>,
        source: impl Into<Error>,
    ) -> Self {
        Self::Reading {
            subject: subject.into(),
            action: action.into(),
            source: source.into(),
        }
    }

    /// Builds the error for a folder without an index, in which a conversion may have left something.
    pub(crate) fn index_missing(folder: &Path, unfinished: Option<Unfinished>) -> Self {
        let (problem, more) = match unfinished {
            None => (DatasetProblem::IndexMissing, ""),
            Some(Unfinished::Conversion) => (
                DatasetProblem::IndexMissing,
                ", and a conversion into it is not finished",
            ),
            Some(Unfinished::Parts) => (
                DatasetProblem::Uncommitted,
                ", but uncommitted parts of a conversion",
            ),
        };
        let reason = format!("there is no index.json in this directory{more}");
        problem.with_hint(
            folder,
            reason,
            unfinished.map(|found| found.hint(&folder.to_string_lossy())),
        )
    }

    /// Builds the error for a folder with the shards that an unfinished conversion has written so far. `more` is added
    /// to the hint for an unfinished conversion.
    pub(crate) fn unfinished(folder: &Path, found: Unfinished, more: &str) -> Self {
        let (problem, more) = match found {
            Unfinished::Conversion => (DatasetProblem::Unfinished, more),
            Unfinished::Parts => (DatasetProblem::Uncommitted, ""),
        };
        let hint = format!("{}{more}", found.hint(&folder.to_string_lossy()));
        problem.with_hint(folder, found.to_string(), Some(hint))
    }

    /// Builds the error for a folder without tar files and without an index.
    pub(crate) fn no_tars(folder: &Path) -> Self {
        DatasetProblem::NoTars.at(folder, "there is neither a tar file nor an index.json here")
    }

    /// Builds the error for a tar file with another number of samples than its index declares.
    pub(crate) fn tar_samples(location: ValueLocation, expected: u64, found: u64) -> Self {
        let reason = format!("it holds {found} samples, and the index says {expected}");
        DatasetProblem::TarSamples.at(location, reason)
    }

    /// Builds the error for a missing file of a shard that stores `samples` samples from number `first` on.
    #[must_use]
    pub fn shard_missing(location: ValueLocation, first: u64, samples: u64) -> Self {
        let lost = samples_of(first, samples);
        let reason = format!("the file is missing, and with it {lost}");
        DatasetProblem::ShardMissing.at(location, reason)
    }

    /// Builds the error for a file of a shard that does not have the length that the index declares.
    #[must_use]
    pub fn shard_length(location: ValueLocation, expected: u64, found: u64) -> Self {
        let problem = match FileClass::of(&location.file) {
            FileClass::Tar => DatasetProblem::TarLength,
            _ => DatasetProblem::ShardLength,
        };
        let reason = format!("the file has {found} bytes, not {expected} as the index says");
        problem.at(location, reason)
    }

    /// Builds the error for a file of a shard that was truncated or written while it was read.
    pub(crate) fn shard_changed(location: ValueLocation) -> Self {
        DatasetProblem::ShardChanged.at(location, "the file was changed while it was read")
    }

    /// Builds the error for a file that changed, or became unreadable, while it was read.
    #[must_use]
    pub fn file_changed(path: PathBuf) -> Self {
        let reason = "the file changed, or could not be read, while it was read";
        DatasetProblem::FileChanged.at(path, reason)
    }

    /// Builds the error for a listed file that does not exist any more.
    #[must_use]
    pub fn file_missing(location: ValueLocation) -> Self {
        DatasetProblem::FileMissing.at(location, "the file was removed after it was listed")
    }

    /// Builds the error for a listed file that has changed; `is_object` says whether it is in a store.
    #[must_use]
    pub fn listed_file_changed(
        location: ValueLocation,
        listed: u64,
        found: u64,
        is_object: bool,
    ) -> Self {
        let more = match (listed == found, is_object) {
            (false, _) => "",
            (true, false) => ", and another time of change",
            (true, true) => ", and another ETag",
        };
        let reason = format!(
            "the file has changed since it was listed: {listed} bytes then, {found} now{more}"
        );
        DatasetProblem::ListedFileChanged.at(location, reason)
    }

    /// Builds the error for a request for raw files of streams that have none.
    #[must_use]
    pub fn no_tree() -> Self {
        DatasetProblem::NoTree.of_call("the dataset has no raw files")
    }

    /// Builds the error for memory that cannot be allocated.
    #[must_use]
    pub fn out_of_memory(bytes: u64) -> Self {
        let reason = format!("{bytes} bytes of memory are not available");
        DatasetProblem::OutOfMemory.of_call(reason)
    }

    /// Makes an error about a damaged tar file.
    #[must_use]
    pub fn tar_file(path: &Path, source: WebdatasetError) -> Self {
        Self::tar_shard(ValueLocation::file(&path.to_string_lossy()), source)
    }

    /// Makes an error about the sample of a tar file with this number.
    pub fn tar(mut location: ValueLocation, sample: u64, source: WebdatasetError) -> Self {
        location.sample = Some(sample);
        Self::tar_shard(location, source)
    }

    /// Makes an error about a location in a tar file.
    pub(crate) fn tar_shard(location: ValueLocation, source: WebdatasetError) -> Self {
        Self::reading(reading(&location), location, source)
    }

    /// Makes an error about an index of tar files, or about the offsets of one.
    pub(crate) fn tar_index(path: impl Into<PathBuf>, source: WebdatasetError) -> Self {
        Self::reading("cannot read the index", path.into(), source)
    }

    /// Returns [`Self::Interrupted`] after a cancellation.
    pub(crate) fn check_cancelled(progress: &Progress) -> Result<(), Self> {
        match progress.is_cancelled() {
            true => Err(Self::Interrupted),
            false => Ok(()),
        }
    }

    /// Checks a limit, given by its name and value.
    pub fn check_limit(
        (name, limit): (&'static str, u64),
        value: u64,
        path: impl FnOnce() -> PathBuf,
    ) -> Result<(), Self> {
        Limits::check(name, value, limit)
            .map_err(|source| Self::reading("it asks for too much", path(), MdsError::from(source)))
    }

    /// Makes an error about a compressed file that does not decompress.
    pub(crate) fn decompress(location: ValueLocation, source: CodecError) -> Self {
        Self::reading("cannot decompress", location, source)
    }

    /// Makes an error about a file with another hash than the index declares. `raw` says whether it is the hash of the
    /// raw bytes of a compressed file.
    #[must_use]
    pub fn hash(location: ValueLocation, raw: bool, source: CodecError) -> Self {
        let action = match raw {
            true => "after decompression the hash is wrong",
            false => "the hash is wrong",
        };
        Self::reading(action, location, source)
    }

    /// Returns the location in the dataset, if the error has one.
    #[must_use]
    pub fn location(&self) -> Option<&ValueLocation> {
        match self.subject() {
            Some(Subject::ValueLocation(location)) => Some(location),
            _ => None,
        }
    }

    const fn subject(&self) -> Option<&Subject> {
        match self {
            Self::Input { subject, .. } | Self::Reading { subject, .. } => Some(subject),
            _ => None,
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::Storage(error) => error.path(),
            _ => match self.subject() {
                Some(Subject::Path(path)) => Some(path),
                _ => None,
            },
        }
    }

    /// Returns the problem, if a sentence says all that is known about it.
    #[must_use]
    pub const fn problem(&self) -> Option<DatasetProblem> {
        match self {
            Self::Input { problem, .. } => Some(*problem),
            _ => None,
        }
    }

    /// Completes the path of an error about a side file of an index, which is only a name.
    #[must_use]
    pub fn with_side_path(mut self, path_of: impl FnOnce(&str) -> PathBuf) -> Self {
        if let Self::Input {
            subject: Subject::Path(path),
            ..
        } = &mut self
            && let Some(name) = path.to_str().filter(|name| !name.contains('/'))
        {
            *path = path_of(name);
        }
        self
    }

    /// Returns whether a conversion into the folder is not finished, or not committed.
    #[must_use]
    pub const fn is_unfinished(&self) -> bool {
        use DatasetProblem::{Uncommitted, Unfinished};
        matches!(self.problem(), Some(Unfinished | Uncommitted))
    }

    /// Returns whether a file of a shard is missing.
    #[must_use]
    pub const fn is_shard_missing(&self) -> bool {
        matches!(self.problem(), Some(DatasetProblem::ShardMissing))
    }

    /// Returns whether a file of a shard does not have the length that the index declares.
    pub(crate) const fn is_shard_length(&self) -> bool {
        use DatasetProblem::{ShardLength, TarLength};
        matches!(self.problem(), Some(ShardLength | TarLength))
    }

    /// Returns whether the error is about the list of deleted samples.
    #[must_use]
    pub const fn is_of_tombstones(&self) -> bool {
        use DatasetProblem::{TombstonesDamaged, TombstonesMissing};
        matches!(self.problem(), Some(TombstonesMissing | TombstonesDamaged))
    }

    /// Returns the name of the side file that the error is about.
    #[must_use]
    pub const fn side_name(&self) -> &'static str {
        match self.is_of_tombstones() {
            true => "index.tombstones",
            false => "index.provenance",
        }
    }

    /// Returns whether a raw file at the source differs from the listed one, so that retries cannot help.
    #[must_use]
    pub const fn is_file_change(&self) -> bool {
        use DatasetProblem::{ListedFileChanged, ObjectChanged};
        matches!(self.problem(), Some(ListedFileChanged | ObjectChanged))
    }

    /// Returns the object of the error. A path within `root` is shown relative to it.
    pub fn object_below(&self, root: &Path) -> Option<String> {
        match self.path().and_then(|path| path.strip_prefix(root).ok()) {
            Some(path) if !path.as_os_str().is_empty() => {
                Some(escape(&path.to_string_lossy()).into_owned())
            }
            _ => self.object(),
        }
    }
}

impl Diagnostic for DatasetError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Storage(error) => error.kind(),
            Self::Described(error) | Self::Reading { source: error, .. } => error.kind(),
            Self::Input { problem, .. } => problem.facts().0,
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Storage(error) => error.id(),
            Self::Described(error) | Self::Reading { source: error, .. } => error.id(),
            Self::Input { problem, .. } => problem.facts().1,
            Self::Interrupted => "interrupted",
        }
    }

    fn object(&self) -> Option<String> {
        if let Some(location) = self.location() {
            return Some(location.to_string());
        }
        match self {
            Self::Storage(source) => source.object(),
            Self::Described(error) => error.object().map(str::to_owned),
            _ => Some(escape(&self.path()?.to_string_lossy()).into_owned()),
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Storage(error) => error.hint(),
            Self::Described(error) | Self::Reading { source: error, .. } => {
                error.hint().map(str::to_owned)
            }
            Self::Input { problem, hint, .. } => {
                hint.clone().or(problem.facts().2.map(str::to_owned))
            }
            Self::Interrupted => None,
        }
    }
}
