use shardmill_core::{Diagnostic, ErrorKind, escape};
use shardmill_storage::StorageError;

use crate::entry::IndexProblem;
use crate::error::WriteError;

/// The error of writing a part or of committing parts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// Rows could not be written as shards.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A storage operation failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A dataset already exists.
    #[error("there is a dataset already")]
    Exists {
        /// The index.
        place: String,
    },
    /// The dataset has changed since the job began.
    #[error("the dataset was changed since the job began")]
    Changed {
        /// The index.
        place: String,
    },
    /// Another commit to the same dataset is running or was killed.
    #[error("another commit, of job {job}, has begun and not ended")]
    Busy {
        /// The object that records the other commit.
        place: String,
        /// The job of the other commit.
        job: String,
    },
    /// The existing index cannot be read.
    #[error("the index cannot be read")]
    Index {
        /// The index.
        place: String,
        /// The cause.
        #[source]
        source: Box<IndexProblem>,
    },
    /// The existing dataset has shards of another format.
    #[error("the dataset has shards of {found}, the job writes {expected}")]
    OtherFormat {
        /// The index.
        place: String,
        /// The format of the existing dataset.
        found: String,
        /// The format of the job.
        expected: String,
    },
    /// The text is not a valid name of a job or an attempt.
    #[error(
        "`{}` is not the name of {what}: it needs 1 to 40 letters and digits",
        escape(text)
    )]
    Token {
        /// `job` or `attempt`.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// The text of a manifest or a staging description is invalid.
    #[error("{what} cannot be read: {reason}")]
    Syntax {
        /// The kind of text that was expected.
        what: &'static str,
        /// The cause.
        reason: String,
    },
    /// A part is missing.
    #[error("part {part} is missing: {given} of {parts} parts are there")]
    Missing {
        /// The root of the dataset.
        place: String,
        /// The first missing part.
        part: u64,
        /// The number of given parts.
        given: u64,
        /// The number of expected parts.
        parts: u64,
    },
    /// A part was given more than once.
    #[error("part {part} is there twice, from the attempts {first} and {second}")]
    Twice {
        /// The part.
        part: u64,
        /// One of the attempts.
        first: String,
        /// The other attempt.
        second: String,
    },
    /// The number of a part is too large.
    #[error("part {part} is above the limit of {most}")]
    Number {
        /// The part.
        part: u64,
        /// The largest allowed number.
        most: u64,
    },
    /// A manifest belongs to another job.
    #[error("part {part} is of job {found}, not of {expected}")]
    OtherJob {
        /// The part.
        part: u64,
        /// The job of the manifest.
        found: String,
        /// The job of the commit.
        expected: String,
    },
    /// The shards of two parts have different forms.
    #[error("the shards of part {part} have another form than those of part {first}: {difference}")]
    OtherForm {
        /// One part.
        part: u64,
        /// Another.
        first: u64,
        /// The settings that differ.
        difference: String,
    },
    /// There are more parts than expected.
    #[error("part {part} is one too many: there have to be {parts}")]
    Surplus {
        /// The part.
        part: u64,
        /// The number of expected parts.
        parts: u64,
    },
    /// The shards do not have the names that the job declared.
    #[error("the job was begun for shards of {expected}, not of {found}")]
    Names {
        /// The names that the job declared.
        expected: String,
        /// The names of the shards.
        found: String,
    },
    /// A file of a part is missing.
    #[error("a file of part {part} is missing")]
    FileMissing {
        /// The file.
        place: String,
        /// The part.
        part: u64,
    },
    /// A file of a part does not have the length that was written.
    #[error("a file of part {part} has {found} bytes, {expected} were written")]
    FileLength {
        /// The file.
        place: String,
        /// The part.
        part: u64,
        /// The length of the file.
        found: u64,
        /// The length that was written.
        expected: u64,
    },
    /// A file of a part does not have the hash that was written.
    #[error("a file of part {part} has another hash ({found}) than what was written ({expected})")]
    FileHash {
        /// The file.
        place: String,
        /// The part.
        part: u64,
        /// The hash of the file.
        found: String,
        /// The hash that was written.
        expected: String,
    },
    /// Two files would have the same name.
    #[error("two files would be called `{}`", escape(name))]
    NameTwice {
        /// The name.
        name: String,
    },
    /// The store does not report the age of an object.
    #[error("how old it is is not known: the store does not list times")]
    Ages {
        /// The object.
        place: String,
    },
    /// A file that no index lists has the name of a new file. It may belong to another commit.
    #[error("a file that no index names is in the way")]
    InTheWay {
        /// The file.
        place: String,
    },
}

impl Diagnostic for PartError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Write(source) => source.kind(),
            Self::Storage(source) => source.kind(),
            Self::Index { source, .. } => source.kind(),
            Self::Exists { .. }
            | Self::Changed { .. }
            | Self::Busy { .. }
            | Self::OtherFormat { .. }
            | Self::InTheWay { .. } => ErrorKind::Conflict,
            Self::Ages { .. } => ErrorKind::Unsupported,
            Self::Token { .. }
            | Self::Missing { .. }
            | Self::Twice { .. }
            | Self::Number { .. }
            | Self::Surplus { .. }
            | Self::OtherJob { .. }
            | Self::OtherForm { .. }
            | Self::Names { .. } => ErrorKind::InvalidInput,
            Self::Syntax { .. }
            | Self::FileMissing { .. }
            | Self::FileLength { .. }
            | Self::FileHash { .. }
            | Self::NameTwice { .. } => ErrorKind::Corrupt,
        }
    }

    fn id(&self) -> &'static str {
        match self {
            Self::Write(source) => source.id(),
            Self::Storage(source) => source.id(),
            Self::Index { source, .. } => source.id(),
            Self::Exists { .. } => "dest-exists",
            Self::Changed { .. } => "dest-changed",
            Self::Busy { .. } => "other-writer",
            Self::OtherFormat { .. } => "dest-format",
            Self::Token { .. } => "config-value",
            Self::Syntax { .. } => "manifest-syntax",
            Self::Missing { .. } => "part-missing",
            Self::Twice { .. } => "part-twice",
            Self::Number { .. } | Self::Surplus { .. } => "limit-parts",
            Self::OtherJob { .. } => "part-job",
            Self::OtherForm { .. } | Self::Names { .. } => "part-form",
            Self::FileMissing { .. } => "part-file-missing",
            Self::FileLength { .. } => "part-file-length",
            Self::FileHash { .. } => "part-file-hash",
            Self::NameTwice { .. } => "path-duplicate",
            Self::InTheWay { .. } => "dest-not-empty",
            Self::Ages { .. } => "store-unsupported",
        }
    }

    fn object(&self) -> Option<String> {
        match self {
            Self::Write(source) => source.object(),
            Self::Storage(source) => source.object(),
            Self::Exists { place }
            | Self::Changed { place }
            | Self::Missing { place, .. }
            | Self::Busy { place, .. }
            | Self::Index { place, .. }
            | Self::OtherFormat { place, .. }
            | Self::FileMissing { place, .. }
            | Self::FileLength { place, .. }
            | Self::FileHash { place, .. }
            | Self::Ages { place }
            | Self::InTheWay { place } => Some(place.clone()),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Write(source) => source.hint(),
            Self::Storage(source) => source.hint(),
            Self::Index { source, .. } => source.hint(),
            Self::Exists { .. } => Some("choose another place, or append or overwrite".to_owned()),
            Self::Changed { .. } => Some("run the job again on what is there now".to_owned()),
            Self::Busy { .. } => Some(
                "wait for it; if it is dead, gc removes what it has left".to_owned(),
            ),
            Self::OtherFormat { .. } => {
                Some("append shards of the same format and columns, or overwrite".to_owned())
            }
            Self::OtherForm { .. } => Some(
                "write all parts with the same columns, encodings and options; name an encoding where values differ in shape".to_owned(),
            ),
            Self::Missing { parts, .. } => Some(format!(
                "make the missing parts as the others were made, and commit all {parts} together"
            )),
            Self::Twice { .. } => Some("commit one attempt of each part".to_owned()),
            Self::FileMissing { .. } | Self::FileLength { .. } | Self::FileHash { .. } => {
                Some("write the part again".to_owned())
            }
            Self::Ages { .. } => Some(
                "see to it that no job is at work, and remove what there is whatever its age"
                    .to_owned(),
            ),
            Self::InTheWay { .. } => Some(
                "the file system has no locks, so nobody knows whether another commit is at work; if none is, gc removes the file".to_owned(),
            ),
            _ => None,
        }
    }
}
