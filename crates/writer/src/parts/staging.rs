//! The settings of a job: its name, the names of its shards, and the dataset that it found.

use serde_json::{Value, json};
use shardmill_core::{Error, Limits, escape};
use shardmill_mds::{HashAlgo, hash_hex};
use shardmill_storage::Destination;

use super::names::NameForm;
use crate::entry::DatasetIndex;
use crate::error::{self, WriteProblem};
use crate::index::INDEX_NAME;
use crate::part_names::part_of;

/// The maximum length of the name of a job or an attempt, in bytes.
const MAX_TOKEN_BYTES: usize = 40;
/// The maximum number of parts of a dataset.
pub(super) const MAX_PARTS: u64 = 10_000_000;

shardmill_core::named_enum! {
    /// What a commit does if a dataset already exists.
    #[derive(Default)]
    pub enum SaveMode {
        /// Returns an error.
        #[default]
        Create = "error",
        /// Adds the new samples after the existing ones.
        Append = "append",
        /// Replaces the existing samples. The old shards remain until [`gc`](super::gc) removes them.
        Overwrite = "overwrite",
    }
}

/// The settings that all tasks of a job and its commit share. They are small and can be sent as text.
///
/// ```
/// use shardmill_writer::parts::{NameForm, Staging};
///
/// let staging = Staging::fresh("job7", NameForm::Mds)?;
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
    /// Returns [`WriteProblem::Token`] if the name is invalid.
    pub fn fresh(job: &str, names: NameForm) -> Result<Self, Error> {
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
    /// Returns [`WriteProblem::DatasetExists`] with [`SaveMode::Create`] if there is an index. Returns the error of an
    /// index that cannot be read, [`WriteProblem::Token`], or the error of the storage.
    pub fn begin(
        destination: &Destination,
        job: &str,
        names: NameForm,
        mode: SaveMode,
        limits: &Limits,
        cancel: &mut dyn FnMut() -> bool,
    ) -> Result<Self, Error> {
        let mut staging = Self::fresh(job, names)?;
        staging.mode = mode;
        let Some(text) = destination.read(INDEX_NAME, limits.index_bytes, &mut |_| cancel())?
        else {
            return Ok(staging);
        };
        if mode == SaveMode::Create {
            return Err(dataset_exists(destination));
        }
        let index = parse_index(destination, &text, limits)?;
        let prefix = staging.names.prefix();
        let listed = index.stored_files().into_iter();
        let mut last = listed.filter_map(|(name, _)| part_of(name, prefix)).max();
        for entry in destination.entries("", &mut |_| cancel())? {
            last = last.max(part_of(&entry.name, prefix));
        }
        staging.first_part = last.map_or(0, |last| last.saturating_add(1));
        staging.base = Some(hash_hex(HashAlgo::Sha256, &text));
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
        text.map(|text| hash_hex(HashAlgo::Sha256, text)) == self.base
    }

    /// Returns the settings as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.to_value().to_string()
    }

    pub(super) fn to_value(&self) -> Value {
        json!({
            "base": self.base,
            "first_part": self.first_part,
            "job": self.job,
            "mode": self.mode.name(),
            "names": self.names.to_json(),
            "version": 1,
        })
    }

    /// Parses the text of [`to_json`](Self::to_json).
    ///
    /// # Errors
    ///
    /// Returns [`WriteProblem::ManifestSyntax`] or [`WriteProblem::Token`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let value = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        Self::of_value(&value)
    }

    pub(super) fn of_value(value: &Value) -> Result<Self, Error> {
        if value["version"].as_u64() != Some(1) {
            return Err(wrong("it has no version, or another one than 1"));
        }
        let string = |key: &str| value[key].as_str();
        let names = string("names").and_then(NameForm::parse);
        let mut staging = Self::fresh(
            string("job").ok_or_else(|| wrong("`job` is missing"))?,
            names.ok_or_else(|| wrong("`names` is missing or unknown"))?,
        )?;
        staging.mode = string("mode")
            .and_then(SaveMode::from_name)
            .ok_or_else(|| wrong("`mode` is missing or unknown"))?;
        let first_part = value["first_part"].as_u64();
        staging.first_part = first_part
            .filter(|part| *part <= MAX_PARTS)
            .ok_or_else(|| wrong("`first_part` is missing or too large"))?;
        staging.base = string("base").map(str::to_owned);
        Ok(staging)
    }
}

fn wrong(reason: &str) -> Error {
    let reason = format!("the parameters of a job cannot be read: {reason}");
    WriteProblem::ManifestSyntax.error(reason)
}

/// Checks that a name has only letters and digits, so that file names can be parsed.
pub(super) fn check_token(what: &'static str, text: &str) -> Result<(), Error> {
    let fits = !text.is_empty()
        && text.len() <= MAX_TOKEN_BYTES
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if fits {
        return Ok(());
    }
    let text = escape(text);
    let reason = format!("`{text}` is not the name of {what}: it needs 1 to 40 letters and digits");
    Err(WriteProblem::Token.error(reason))
}

/// Builds the error for shards that do not have the names that the job declared.
pub(super) fn part_names(staging: &Staging, found: &str) -> Error {
    let expected = staging.names().to_json();
    let reason = format!("the job was begun for shards of {expected}, not of {found}");
    WriteProblem::PartNames.error(reason)
}

/// Builds the error for a destination that already has a dataset.
pub(super) fn dataset_exists(destination: &Destination) -> Error {
    WriteProblem::DatasetExists.at(
        destination.display(INDEX_NAME),
        "there is a dataset already",
    )
}

pub(super) fn parse_index(
    destination: &Destination,
    text: &[u8],
    limits: &Limits,
) -> Result<DatasetIndex, Error> {
    DatasetIndex::parse(text, limits)
        .map_err(|source| error::index_error(&destination.display(INDEX_NAME), source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_round_trips_through_json() {
        let names = NameForm::Mds;
        let mut staging = Staging::fresh("job7", names).unwrap();
        staging.mode = SaveMode::Append;
        staging.first_part = 12;
        staging.base = Some("abc".to_owned());
        assert_eq!(Staging::parse(&staging.to_json()).unwrap(), staging);
        for text in [
            "",
            "{}",
            "{\"version\":2}",
            &staging.to_json().replace("job7", "job-7"),
            &staging.to_json().replace("append", "merge"),
            &staging.to_json().replace("mds", "tar"),
            &staging.to_json().replace("12", "12000000000"),
        ] {
            assert!(Staging::parse(text).is_err(), "{text}");
        }
    }
}
