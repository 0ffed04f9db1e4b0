use shardmill_core::{Diagnostic, ErrorKind, escape};
use shardmill_storage::StorageError;

use crate::entry::IndexProblem;
use crate::error::WriteError;

/// Why a part could not be written, or parts could not become a dataset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// Rows could not become shards.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The disk or the store refused.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A dataset is there already.
    #[error("there is a dataset already")]
    Exists {
        /// The index.
        place: String,
    },
    /// The dataset is not the one that was there when the job began.
    #[error("the dataset was changed since the job began")]
    Changed {
        /// The index.
        place: String,
    },
    /// Somebody else commits to the same dataset, or died while doing so.
    #[error("another commit, of job {job}, has begun and not ended")]
    Busy {
        /// The object that says so.
        place: String,
        /// Whose it is.
        job: String,
    },
    /// The index that is there cannot be read.
    #[error("the index cannot be read")]
    Index {
        /// The index.
        place: String,
        /// Why.
        #[source]
        source: Box<IndexProblem>,
    },
    /// The dataset that is there has shards of another kind.
    #[error("the dataset has shards of {found}, the job writes {expected}")]
    OtherFormat {
        /// The index.
        place: String,
        /// What is there.
        found: String,
        /// What was written.
        expected: String,
    },
    /// A text that is not the name of a job or of an attempt.
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
    /// A text that is no manifest, or not what a job is told.
    #[error("{what} cannot be read: {reason}")]
    Syntax {
        /// What it should be.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A part that is not there.
    #[error("part {part} is missing: {given} of {parts} parts are there")]
    Missing {
        /// Where they are to be committed.
        place: String,
        /// The first that is missing.
        part: u64,
        /// How many there are.
        given: u64,
        /// How many there have to be.
        parts: u64,
    },
    /// A part that is there more than once.
    #[error("part {part} is there twice, from the attempts {first} and {second}")]
    Twice {
        /// The part.
        part: u64,
        /// One attempt.
        first: String,
        /// Another.
        second: String,
    },
    /// A part with a number that no part has.
    #[error("part {part} is above the limit of {most}")]
    Number {
        /// The part.
        part: u64,
        /// The largest there can be.
        most: u64,
    },
    /// A manifest of another job.
    #[error("part {part} is of job {found}, not of {expected}")]
    OtherJob {
        /// The part.
        part: u64,
        /// The job of the manifest.
        found: String,
        /// The job that is committed.
        expected: String,
    },
    /// Parts whose shards do not have the same form.
    #[error("the shards of part {part} have another form than those of part {first}: {difference}")]
    OtherForm {
        /// One part.
        part: u64,
        /// Another.
        first: u64,
        /// What the first has that the other has not, and the other way round.
        difference: String,
    },
    /// A part too many.
    #[error("part {part} is one too many: there have to be {parts}")]
    Surplus {
        /// The part.
        part: u64,
        /// How many there have to be.
        parts: u64,
    },
    /// Shards whose names are not those of the job.
    #[error("the job was begun for shards of {expected}, not of {found}")]
    Names {
        /// What the job was told.
        expected: String,
        /// What shards would be.
        found: String,
    },
    /// A file of a part that is not there.
    #[error("a file of part {part} is missing")]
    FileMissing {
        /// The file.
        place: String,
        /// The part.
        part: u64,
    },
    /// A file of a part that is not as it was written.
    #[error("a file of part {part} has {found} bytes, {expected} were written")]
    FileLength {
        /// The file.
        place: String,
        /// The part.
        part: u64,
        /// Its length.
        found: u64,
        /// What it was.
        expected: u64,
    },
    /// A file of a part that is not as it was written.
    #[error("a file of part {part} has another hash ({found}) than what was written ({expected})")]
    FileHash {
        /// The file.
        place: String,
        /// The part.
        part: u64,
        /// Its hash.
        found: String,
        /// What it was.
        expected: String,
    },
    /// A name that two files would have.
    #[error("two files would be called `{}`", escape(name))]
    NameTwice {
        /// The name.
        name: String,
    },
    /// How old an object is is not known.
    #[error("how old it is is not known: the store does not list times")]
    Ages {
        /// The object.
        place: String,
    },
    /// A file that is in the way and may be another commit's.
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
