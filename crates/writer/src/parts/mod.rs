//! Parts and commit: many writers, one dataset.
//!
//! A *part* is what one task makes of its share of the rows: shards, and a small [`Manifest`] that says what they are.
//! [`commit`] turns the manifests of one attempt of every part into a dataset: it checks that each file is there as
//! noted, gives the files their names, and writes the index last. Before that nothing exists for a reader. [`abort`]
//! removes what a job has written that was not committed, [`gc`] what jobs that were killed have left.
//!
//! Attempts never touch each other's files:
//!
//! - In a directory an attempt writes beneath `.shardmill/parts/JOB-PART-ATTEMPT`. `commit` renames what counts, which
//!   copies nothing. The names depend on the part and the number of the shard only, so the same parts give the same
//!   bytes, whoever makes them and however often it was tried.
//! - In a store, which has no rename, an attempt writes straight to the final place, under names with the job and the
//!   attempt in them. Shards have the same bytes as in a directory; the index differs in those names.
//!
//! How shards are made is not decided here: [`PartWriter`] makes them one at a time in the thread of the caller, and a
//! [`ManifestBuilder`] takes those of any other engine.
//!
//! The reasons are in `docs/decisions/0017-parts.md`.

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
/// The folder of everything that is not published, beneath the dataset. Conversions have theirs
/// in it, too.
pub use shardmill_core::WORK_FOLDER;
/// The folder of the lease of a commit.
pub const COMMIT_FOLDER: &str = ".shardmill/commit";
/// The lease of a commit.
const COMMIT_LEASE: &str = ".shardmill/commit/lease";
/// What a conversion that is not in parts goes on with, in that folder.
const JOURNAL: &str = "journal";
/// Folders in [`WORK_FOLDER`] that are no conversion's: those of the attempts and of a commit.
pub const OF_PARTS: [&str; 2] = ["parts", "commit"];
/// Most bytes of the name of a job or of an attempt.
const MOST_TOKEN_BYTES: usize = 40;
/// Most parts of a dataset.
const MOST_PARTS: u64 = 10_000_000;

/// What a commit does where there is a dataset already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SaveMode {
    /// It is an error.
    #[default]
    Create,
    /// The new samples come after those that are there.
    Append,
    /// The new samples take the place of those that are there. The old shards stay until [`gc`] removes them.
    Overwrite,
}

impl SaveMode {
    /// Its name: `error`, `append` or `overwrite`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "error",
            Self::Append => "append",
            Self::Overwrite => "overwrite",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Create, Self::Append, Self::Overwrite]
            .into_iter()
            .find(|mode| mode.name() == name)
    }
}

/// What all tasks of a job and its commit agree on. It is small, and text when it travels.
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
    /// For a place where nothing is. `job` tells this job from all others: letters and digits, at most 40.
    ///
    /// # Errors
    ///
    /// [`PartError::Token`].
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

    /// Looks at what is there and decides what the parts of a job are called. Nothing is written.
    ///
    /// Parts of a job that appends or overwrites are numbered on from those that are or were there, so that no name is
    /// used twice.
    ///
    /// # Errors
    ///
    /// [`PartError::Exists`] with [`SaveMode::Create`] where there is an index; [`PartError::Index`]; [`PartError::Token`];
    /// what reading fails with.
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

    /// The job.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.job
    }

    /// What files are called.
    #[must_use]
    pub const fn names(&self) -> &NameForm {
        &self.names
    }

    /// What happens to a dataset that is there.
    #[must_use]
    pub const fn mode(&self) -> SaveMode {
        self.mode
    }

    /// The number that the first part of the job has in the dataset.
    #[must_use]
    pub const fn first_part(&self) -> u64 {
        self.first_part
    }

    /// Whether there was an index when the job began.
    pub(crate) const fn has_base(&self) -> bool {
        self.base.is_some()
    }

    /// Whether it is the text of an index that was there when the job began.
    pub(crate) fn is_base(&self, text: Option<&[u8]>) -> bool {
        text.map(digest_of) == self.base
    }

    /// As text.
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

    /// From the text of [`to_json`](Self::to_json).
    ///
    /// # Errors
    ///
    /// [`PartError::Syntax`], [`PartError::Token`].
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

/// Letters and digits, so that the name of a file can be taken apart again.
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
