//! The manifests of parts that wait for a commit.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use shardmill_core::Limits;
use shardmill_storage::StorageError;
use shardmill_writer::Content;
use shardmill_writer::parts::{Manifest, PARTS_FOLDER, Staging};

use crate::error::{ConvertError, ConvertProblem};
use crate::options::Part;
use crate::target::{Target, in_folder};

/// The suffix of manifests, which are stored next to the attempts.
pub(crate) const MANIFEST: &str = ".json";
/// The maximum size of a manifest in bytes.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// The data that a part stores for the commit.
pub(crate) struct PartManifest {
    pub(crate) count: u64,
    pub(crate) staging: Staging,
    pub(crate) manifest: Manifest,
    pub(crate) config: Value,
    pub(crate) provenance: Value,
    pub(crate) content: Content,
    pub(crate) dropped: u64,
}

impl PartManifest {
    pub(crate) fn part(&self) -> Part {
        Part {
            number: self.manifest.part,
            count: self.count,
        }
    }

    pub(crate) fn to_json(&self) -> String {
        json!({
            "version": 1,
            "parts": self.count,
            "staging": self.staging.to_json(),
            "manifest": self.manifest.to_json(),
            "identity": self.config,
            // All parts have the same provenance, so only the first stores it.
            "provenance": (self.manifest.part == 0).then_some(&self.provenance),
            "content": self.content.to_string(),
            "dropped": self.dropped,
        })
        .to_string()
    }

    pub(crate) fn parse(text: &[u8], limits: &Limits) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let number = |key: &str| value[key].as_u64();
        let string = |key: &str| {
            let text = value[key].as_str();
            text.ok_or_else(|| format!("`{key}` is missing"))
        };
        if number("version") != Some(1) {
            return Err("it has no version, or another one than 1".to_owned());
        }
        Ok(Self {
            count: number("parts").ok_or("`parts` is missing")?,
            staging: Staging::parse(string("staging")?).map_err(|error| error.to_string())?,
            manifest: Manifest::parse(string("manifest")?, limits)
                .map_err(|error| error.to_string())?,
            config: value["identity"].clone(),
            provenance: value["provenance"].clone(),
            content: Content::parse(string("content")?).ok_or("`content` is no hash")?,
            dropped: number("dropped").unwrap_or(0),
        })
    }
}

/// Reads all manifests at the destination.
pub(crate) fn manifests(
    target: Target<'_>,
    limits: &Limits,
) -> Result<Vec<PartManifest>, ConvertError> {
    let entries = target.entries(PARTS_FOLDER)?.into_iter();
    let names: Vec<String> = entries
        .filter(|entry| !entry.is_folder && entry.name.ends_with(MANIFEST))
        .map(|entry| in_folder(PARTS_FOLDER, &entry.name))
        .collect();
    let texts = target.for_each(&names, 1, |name| target.read(name, MAX_BYTES))?;
    let mut known = Vec::with_capacity(names.len());
    for (name, text) in names.iter().zip(texts) {
        // Another commit has removed the manifest since it was listed.
        let Some(text) = text else { continue };
        let parsed = PartManifest::parse(&text, limits);
        known.push(parsed.map_err(|reason| {
            let reason = format!("it is not a manifest of a part: {reason}");
            ConvertProblem::Manifest.at(&target.destination.display(name), reason, None)
        })?);
    }
    Ok(known)
}

/// A part that waits for a commit.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct WaitingPart {
    /// Its number and the number of parts, as in `--part`: `0/4`.
    pub part: String,
    /// The id of the conversion. Parts of the same conversion have the same id.
    pub conversion: String,
    /// The number of samples.
    pub samples: u64,
    /// The number of shards.
    pub shards: u64,
    /// The size of its files in bytes.
    pub bytes: u64,
    /// The paths of its files relative to the destination, and in a local directory also the folder of the attempt.
    #[serde(skip)]
    pub(crate) names: BTreeSet<String>,
}

/// Returns the parts that wait for a commit, in order.
pub(crate) fn waiting(
    target: Target<'_>,
    limits: &Limits,
) -> Result<Vec<WaitingPart>, ConvertError> {
    let mut known = manifests(target, limits)?;
    known.sort_by_key(|known| (known.staging.job().to_owned(), known.manifest.part));
    let folders = target.entries(PARTS_FOLDER)?;
    let parts = known.into_iter().map(|known| {
        let stem = format!("{}-{:05}", known.staging.job(), known.manifest.part);
        let attempts = folders.iter().filter(|entry| {
            let rest = entry.name.strip_prefix(&stem);
            rest.is_some_and(|rest| rest.starts_with(['-', '.']))
        });
        let files = || known.manifest.shards.iter().flat_map(|shard| &shard.files);
        let mut names: BTreeSet<String> = files().map(|file| file.at.clone()).collect();
        names.extend(attempts.map(|entry| in_folder(PARTS_FOLDER, &entry.name)));
        WaitingPart {
            part: known.part().to_string(),
            conversion: known.staging.job().to_owned(),
            samples: known.manifest.samples(),
            shards: u64::try_from(known.manifest.shards.len()).unwrap_or(u64::MAX),
            bytes: files().map(|file| file.check.bytes).sum(),
            names,
        }
    });
    Ok(parts.collect())
}

/// Returns whether parts wait for a commit.
pub(crate) fn are_there(target: Target<'_>) -> Result<bool, StorageError> {
    let mut entries = target.entries(PARTS_FOLDER)?.into_iter();
    Ok(entries.any(|entry| !entry.is_folder && entry.name.ends_with(MANIFEST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_part_manifest_is_an_error() {
        let limits = Limits::default();
        for (text, reason) in [
            ("", "EOF"),
            ("{}", "version"),
            (r#"{"version":1}"#, "`parts` is missing"),
            (r#"{"version":1,"parts":2}"#, "`staging` is missing"),
        ] {
            let found = PartManifest::parse(text.as_bytes(), &limits).err().unwrap();
            assert!(found.contains(reason), "{text}: {found}");
        }
    }
}
