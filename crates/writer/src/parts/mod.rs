//! Parts and commits: many tasks write one dataset.
//!
//! A *part* is what one task writes for its share of the rows: shards, and a small [`Manifest`] that describes them.
//! [`commit`] turns the manifests of one attempt of every part into a dataset. It checks each file against the
//! manifest, gives the files their final names, and writes the index last. Before that, readers see the
//! previous dataset, if there is one. [`abort`] removes the uncommitted files of a job. [`gc`] removes the leftovers of
//! killed jobs.
//!
//! Attempts never touch each other's files:
//!
//! - In a local directory, an attempt writes below `.shardmill/parts/JOB-PART-ATTEMPT`. `commit` renames the files of
//!   the committed attempts, which copies no data. Final names depend only on the number of the part and of the shard.
//!   So the same parts give the same bytes, regardless of the task and the number of attempts.
//! - In a store, which has no rename, an attempt writes directly to the final folder. The names contain the job and the
//!   attempt. The shards have the same bytes as in a directory; the index differs in these names.
//!
//! This module does not prescribe how shards are made. [`PartWriter`] writes them one at a time in the calling thread.
//! A [`ManifestBuilder`] accepts the shards of any other writer.
//!
//! The rationale is in `docs/decisions/0017-parts.md`.

mod commit;
mod error;
mod gc;
mod manifest;
mod names;
mod part;

use serde_json::{Value, json};
use shardmill_core::Limits;
use shardmill_mds::{HashAlgo, hash_hex};
use shardmill_storage::Place;

pub use commit::{CommitOptions, Committed, Verify, commit, tidy};
pub use error::PartError;
pub use gc::{GcEntry, GcOptions, GcReason, GcReport, abort, gc};
pub use manifest::{Manifest, ManifestBuilder, PartFile, PartShard};
pub use names::{NameForm, is_shard_name};
pub use part::{PartOptions, PartWriter};

use crate::entry::DatasetIndex;
use crate::index::INDEX_NAME;
use names::part_of;

/// The folder of the attempts.
pub use shardmill_core::PARTS_FOLDER;
/// The folder for unpublished files in the dataset. Conversions also keep their working files in it.
pub use shardmill_core::WORK_FOLDER;
/// The folder of the commit lease.
pub const COMMIT_FOLDER: &str = ".shardmill/commit";
/// The commit lease.
const COMMIT_LEASE: &str = ".shardmill/commit/lease";
/// The checkpoint of a conversion without parts, in [`WORK_FOLDER`].
const JOURNAL: &str = "journal";
/// The folders in [`WORK_FOLDER`] that do not belong to a conversion: those of attempts and of a commit.
pub const OF_PARTS: [&str; 2] = ["parts", "commit"];
/// The maximum length of the name of a job or an attempt, in bytes.
const MOST_TOKEN_BYTES: usize = 40;
/// The maximum number of parts of a dataset.
const MOST_PARTS: u64 = 10_000_000;

/// What a commit does if a dataset already exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SaveMode {
    /// Returns an error.
    #[default]
    Create,
    /// Adds the new samples after the existing ones.
    Append,
    /// Replaces the existing samples. The old shards remain until [`gc`] removes them.
    Overwrite,
}

impl SaveMode {
    /// Returns the name: `error`, `append` or `overwrite`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "error",
            Self::Append => "append",
            Self::Overwrite => "overwrite",
        }
    }

    /// Returns the mode with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Create, Self::Append, Self::Overwrite]
            .into_iter()
            .find(|mode| mode.name() == name)
    }
}

/// The settings that all tasks of a job and its commit share. They are small and can be sent as text.
///
/// ```
/// use shardmill_writer::parts::{NameForm, Staging};
///
/// let staging = Staging::fresh("job7", NameForm::Streaming("mds".parse()?))?;
/// assert_eq!(Staging::parse(&staging.to_json())?, staging);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staging {
    job: String,
    names: NameForm,
    mode: SaveMode,
    first_part: u64,
    base: Option<String>,
}

impl Staging {
    /// Creates settings for an empty root. `job` identifies the job: up to 40 ASCII letters and digits.
    ///
    /// # Errors
    ///
    /// Returns [`PartError::Token`] if the name is invalid.
    pub fn fresh(job: &str, names: NameForm) -> Result<Self, PartError> {
        check_token("job", job)?;
        Ok(Self {
            job: job.to_owned(),
            names,
            mode: SaveMode::Create,
            first_part: 0,
            base: None,
        })
    }

    /// Inspects the existing dataset and chooses the names of the parts. Nothing is written.
    ///
    /// A job that appends or overwrites numbers its parts after all existing parts. So no name is used twice.
    ///
    /// # Errors
    ///
    /// Returns [`PartError::Exists`] with [`SaveMode::Create`] if there is an index. Returns [`PartError::Index`],
    /// [`PartError::Token`], or the error of the storage.
    pub fn begin(
        place: &Place,
        job: &str,
        names: NameForm,
        mode: SaveMode,
        limits: &Limits,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Self, PartError> {
        let mut staging = Self::fresh(job, names)?;
        staging.mode = mode;
        let Some(text) = place.read(INDEX_NAME, limits.index_bytes, &mut |_| go_on())? else {
            return Ok(staging);
        };
        if mode == SaveMode::Create {
            return Err(PartError::Exists {
                place: place.display(INDEX_NAME),
            });
        }
        let index = parse_index(place, &text, limits)?;
        let prefix = staging.names.prefix();
        let listed = index.stored_files().into_iter();
        let mut last = listed.filter_map(|(name, _)| part_of(name, prefix)).max();
        for entry in place.entries("", &mut |_| go_on())? {
            last = last.max(part_of(&entry.name, prefix));
        }
        staging.first_part = last.map_or(0, |last| last.saturating_add(1));
        staging.base = Some(digest_of(&text));
        Ok(staging)
    }

    /// Returns the name of the job.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Returns the form of the file names.
    #[must_use]
    pub const fn names(&self) -> &NameForm {
        &self.names
    }

    /// Returns what happens to an existing dataset.
    #[must_use]
    pub const fn mode(&self) -> SaveMode {
        self.mode
    }

    /// Returns the number of the job's first part in the dataset.
    #[must_use]
    pub const fn first_part(&self) -> u64 {
        self.first_part
    }

    /// Returns whether an index existed when the job began.
    pub(crate) const fn has_base(&self) -> bool {
        self.base.is_some()
    }

    /// Returns whether the index still has the text that it had when the job began.
    pub(crate) fn is_base(&self, text: Option<&[u8]>) -> bool {
        text.map(digest_of) == self.base
    }

    /// Returns the settings as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        json!({
            "base": self.base,
            "first_part": self.first_part,
            "job": self.job,
            "mode": self.mode.name(),
            "names": self.names.to_json(),
            "version": 1,
        })
        .to_string()
    }

    /// Parses the text of [`to_json`](Self::to_json).
    ///
    /// # Errors
    ///
    /// Returns [`PartError::Syntax`] or [`PartError::Token`].
    pub fn parse(text: &str) -> Result<Self, PartError> {
        let wrong = |reason: &'static str| PartError::Syntax {
            what: "what a job is told",
            reason: reason.to_owned(),
        };
        let value: Value = serde_json::from_str(text).map_err(|error| PartError::Syntax {
            what: "what a job is told",
            reason: error.to_string(),
        })?;
        if value.get("version").and_then(Value::as_u64) != Some(1) {
            return Err(wrong("it has no version, or another one than 1"));
        }
        let string = |key: &str| value.get(key).and_then(Value::as_str);
        let names = string("names").and_then(NameForm::parse);
        let mut staging = Self::fresh(
            string("job").ok_or_else(|| wrong("`job` is missing"))?,
            names.ok_or_else(|| wrong("`names` is missing or unknown"))?,
        )?;
        staging.mode = string("mode")
            .and_then(SaveMode::parse)
            .ok_or_else(|| wrong("`mode` is missing or unknown"))?;
        staging.first_part = value
            .get("first_part")
            .and_then(Value::as_u64)
            .filter(|part| *part <= MOST_PARTS)
            .ok_or_else(|| wrong("`first_part` is missing or too large"))?;
        staging.base = string("base").map(str::to_owned);
        Ok(staging)
    }
}

/// Checks that a name has only letters and digits, so that file names can be parsed.
fn check_token(what: &'static str, text: &str) -> Result<(), PartError> {
    let fits = !text.is_empty()
        && text.len() <= MOST_TOKEN_BYTES
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if fits {
        return Ok(());
    }
    Err(PartError::Token {
        what,
        text: text.to_owned(),
    })
}

fn digest_of(text: &[u8]) -> String {
    hash_hex(HashAlgo::Sha256, text)
}

fn parse_index(place: &Place, text: &[u8], limits: &Limits) -> Result<DatasetIndex, PartError> {
    DatasetIndex::parse(text, limits).map_err(|source| PartError::Index {
        place: place.display(INDEX_NAME),
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests;
