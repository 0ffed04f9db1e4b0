//! The manifest of one attempt of a part: text that a task sends to the process that commits.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use shardmill_core::{Error, Limits, PARTS_FOLDER, escape};
use shardmill_storage::Destination;
use shardmill_webdataset::TarCompression;

use super::names::token;
use super::staging::{MAX_PARTS, Staging, check_token, part_names};
use crate::error::WriteProblem;
use crate::form::{ShardForm, TarForm};
use crate::part_names::{PART_DIGITS, name_in};
use crate::record::ShardRecord;

/// The version of the manifest format.
const VERSION: u64 = 1;

/// The description of what one attempt of a part has written.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The settings of the job.
    pub staging: Staging,
    /// The number of the part in its job, from 0.
    pub part: u64,
    /// The attempt.
    pub attempt: String,
    /// The settings that all shards of the dataset share, as text. `None` for a part without shards.
    pub form: Option<String>,
    /// The shards, in order.
    pub shards: Vec<ShardRecord>,
    /// What the writer of the part notes for the process that commits it.
    pub about: Value,
}

impl Manifest {
    /// Creates the manifest of an attempt without rows. `part` counts the parts of the job from 0.
    ///
    /// # Errors
    ///
    /// Returns [`WriteProblem::Token`] or [`WriteProblem::PartNumber`].
    pub fn empty(staging: &Staging, part: u64, attempt: &str) -> Result<Self, Error> {
        check_token("attempt", attempt)?;
        if part > MAX_PARTS {
            let reason = format!("part {part} is above the limit of {MAX_PARTS}");
            return Err(WriteProblem::PartNumber.error(reason));
        }
        Ok(Self {
            staging: staging.clone(),
            part,
            attempt: attempt.to_owned(),
            form: None,
            shards: Vec::new(),
            about: Value::Null,
        })
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.shards
            .iter()
            .fold(0, |sum, shard| sum.saturating_add(shard.entry.samples()))
    }

    /// Returns the manifest as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let shards = self.shards.iter().map(ShardRecord::to_json);
        json!({
            "about": self.about,
            "attempt": self.attempt,
            "form": self.form,
            "part": self.part,
            "samples": self.samples(),
            "shards": shards.collect::<Vec<_>>(),
            "staging": self.staging.to_value(),
            "version": VERSION,
        })
        .to_string()
    }

    /// Parses the text of [`to_json`](Self::to_json). The text is untrusted: this function checks the names, and
    /// [`commit`](super::commit) checks the files.
    ///
    /// # Errors
    ///
    /// Returns [`WriteProblem::ManifestSyntax`], [`WriteProblem::Token`] or [`WriteProblem::PartNumber`].
    pub fn parse(text: &str, limits: &Limits) -> Result<Self, Error> {
        let mut value: Value =
            serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        if value["version"].as_u64() != Some(VERSION) {
            return Err(wrong("it has no version, or another one than 1"));
        }
        let part = value["part"].as_u64();
        let part = part.ok_or_else(|| wrong("`part` is missing"))?;
        let attempt = value["attempt"].as_str();
        let attempt = attempt.ok_or_else(|| wrong("`attempt` is missing"))?;
        let staging = Staging::of_value(&value["staging"])?;
        let mut manifest = Self::empty(&staging, part, attempt)?;
        let shards = value["shards"].as_array();
        let shards = shards.ok_or_else(|| wrong("`shards` is missing"))?;
        let shards = shards.iter().map(|shard| parse_shard(shard, limits));
        manifest.shards = shards.collect::<Result<_, _>>()?;
        manifest.form = value["form"].as_str().map(str::to_owned);
        manifest.about = value["about"].take();
        if manifest.form.is_none() != manifest.shards.is_empty() {
            return Err(wrong(
                "there are shards without a form, or a form without shards",
            ));
        }
        if value["samples"].as_u64() != Some(manifest.samples()) {
            return Err(wrong("`samples` is not the sum over its shards"));
        }
        Ok(manifest)
    }
}

fn wrong(reason: &str) -> Error {
    WriteProblem::ManifestSyntax.error(format!("a manifest cannot be read: {reason}"))
}

/// Builds the error for shards of another form than those of a part before them.
pub(super) fn part_form(part: u64, first: u64, difference: &str) -> Error {
    let reason = format!(
        "the shards of part {part} have another form than those of part {first}: {difference}"
    );
    WriteProblem::PartForm.error(reason)
}

fn parse_shard(shard: &Value, limits: &Limits) -> Result<ShardRecord, Error> {
    let record = ShardRecord::parse(shard, limits);
    let record = record.ok_or_else(|| wrong("the record of a shard is incomplete or invalid"))?;
    let files = record.files.iter();
    let named: BTreeSet<(&str, u64)> = files
        .map(|file| (file.check.name.as_str(), file.check.bytes))
        .collect();
    let listed = record.entry.stored_files().into_iter().collect();
    if named != listed || named.len() != record.files.len() {
        return Err(wrong("the files of a shard are not those of its index"));
    }
    Ok(record)
}

/// Collects the shards of a part from any writer, and determines the names of their files.
#[derive(Clone, Debug)]
pub struct ManifestBuilder {
    manifest: Manifest,
    identity: String,
    prefix: String,
    /// The number of the part in the dataset.
    number: u64,
    /// In a local directory, the folder of the files before the commit.
    folder: Option<String>,
    token: Option<String>,
}

impl ManifestBuilder {
    /// Creates a builder for an attempt of a part. `part` counts the parts of the job from 0.
    ///
    /// # Errors
    ///
    /// Returns [`WriteProblem::Token`] or [`WriteProblem::PartNumber`], or [`WriteProblem::PartNames`] if the job was begun for another
    /// form.
    pub fn new(
        destination: &Destination,
        staging: &Staging,
        part: u64,
        attempt: &str,
        form: &ShardForm,
    ) -> Result<Self, Error> {
        let manifest = Manifest::empty(staging, part, attempt)?;
        if !staging.names().fits(form) {
            return Err(part_names(staging, &form.format().to_string()));
        }
        let is_local = destination.as_local().is_some();
        Ok(Self {
            identity: identity(form),
            prefix: staging.names().prefix().to_owned(),
            number: part.saturating_add(staging.first_part()),
            folder: is_local.then(|| {
                let job = staging.job();
                format!("{PARTS_FOLDER}/{job}-{part:0PART_DIGITS$}-{attempt}")
            }),
            token: (!is_local).then(|| token(staging.job(), attempt)),
            manifest,
        })
    }

    /// Describes how another form differs from the form of the part.
    pub(super) fn difference(&self, form: &ShardForm) -> String {
        difference(&self.identity, &identity(form))
    }

    /// Returns the number of the part in its job.
    pub(super) const fn part(&self) -> u64 {
        self.manifest.part
    }

    /// Returns the number of the part in the dataset.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the folder for the files of the part before the commit, relative to the dataset. Returns `None` in a
    /// store.
    #[must_use]
    pub fn folder(&self) -> Option<&str> {
        self.folder.as_deref()
    }

    /// Returns the prefix of numeric keys of tar samples.
    #[must_use]
    pub fn key_prefix(&self) -> String {
        format!("{:0PART_DIGITS$}-", self.number)
    }

    /// Returns the path of a shard file before the commit, relative to the dataset. `basename` is its name in a dataset
    /// that contains only this part.
    #[must_use]
    pub fn at(&self, basename: &str) -> String {
        match &self.folder {
            Some(folder) => format!("{folder}/{basename}"),
            None => self.name(basename),
        }
    }

    fn name(&self, basename: &str) -> String {
        name_in(basename, &self.prefix, self.number, self.token.as_deref())
    }

    /// Adds the next shard. Its files must be at the paths that [`at`](Self::at) returns.
    ///
    /// The names in the record are those of a dataset that contains only this part.
    pub fn add(&mut self, mut shard: ShardRecord) {
        shard.entry.rename_files(|basename| self.name(basename));
        for file in &mut shard.files {
            file.at = self.at(&file.check.name);
            file.check.name = self.name(&file.check.name);
        }
        self.manifest.form = Some(self.identity.clone());
        self.manifest.shards.push(shard);
    }

    /// Returns the manifest.
    #[must_use]
    pub fn finish(self) -> Manifest {
        self.manifest
    }
}

/// Returns the settings that all shards of a dataset share, as text. Shards with equal texts may be in one index.
fn identity(form: &ShardForm) -> String {
    match form {
        ShardForm::Streaming(config) => config.to_json(),
        ShardForm::Tar(form) => {
            let TarForm {
                pattern,
                profile,
                compression,
                hashes,
                size_limit,
                fields: _,
            } = &**form;
            json!({
                "compression": compression.map(|name: TarCompression| name.to_string()),
                "format": "webdataset",
                "hashes": hashes.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "pattern": pattern.to_string(),
                "profile": format!("{profile:?}"),
                "size_limit": size_limit,
            })
            .to_string()
        }
        // Tables are not written in parts; see `NameForm`.
        ShardForm::Table(form) => format!("{form:?}"),
    }
}

/// Returns the columns of a form, with their encodings if they have any.
pub(super) fn columns_of(form: &str) -> Vec<(String, Option<String>)> {
    let value: Value = serde_json::from_str(form).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(columns) = value.get("columns").and_then(Value::as_object) {
        let columns = columns.iter();
        return columns
            .map(|(name, encoding)| (name.clone(), text(encoding)))
            .collect();
    }
    let list = |key: &str| value.get(key).and_then(Value::as_array).cloned();
    let names = list("column_names").unwrap_or_default();
    let encodings = list("column_encodings").unwrap_or_default();
    names
        .iter()
        .zip(&encodings)
        .filter_map(|(name, encoding)| Some((text(name)?, text(encoding))))
        .collect()
}

/// Describes how two forms differ: by their columns, or else by other shared settings.
pub(super) fn difference(first: &str, other: &str) -> String {
    let (there, here) = (columns_of(first), columns_of(other));
    let named = |(name, encoding): &(String, Option<String>)| {
        format!(
            "{} {}",
            escape(name),
            escape(encoding.as_deref().unwrap_or_default())
        )
    };
    let only = |mine: &[(String, Option<String>)], others: &[(String, Option<String>)]| {
        let mine = mine.iter().filter(|column| !others.contains(column));
        mine.map(named).collect::<Vec<_>>().join(", ")
    };
    if there != here {
        let (here, there) = (only(&here, &there), only(&there, &here));
        return format!("columns [{here}], not [{there}]");
    }
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let (there, here) = (parse(first), parse(other));
    let keys = here.as_object().into_iter().flatten();
    let keys = keys.filter(|(key, value)| there.get(key) != Some(value));
    let differences = keys.map(|(key, value)| {
        let before = there.get(key).unwrap_or(&Value::Null);
        format!("{key} {value}, not {before}")
    });
    differences.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_names_the_differing_columns_or_limit() {
        let form = |encoding: &str, limit: u64| {
            json!({"column_names": ["n", "x"], "column_encodings": ["int", encoding], "size_limit": limit})
                .to_string()
        };
        assert_eq!(
            difference(&form("ndarray:int64:2", 1), &form("ndarray:int64:3", 2)),
            "columns [x ndarray:int64:3], not [x ndarray:int64:2]"
        );
        assert_eq!(
            difference(&form("str", 1), &form("str", 2)),
            "size_limit 2, not 1"
        );
    }
}
