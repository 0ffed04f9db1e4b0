//! The manifests of parts that wait for a commit.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shardmill_core::{Error, Limits};
use shardmill_storage::StorageError;
use shardmill_writer::parts::{Manifest, PARTS_FOLDER};

use crate::error::ConvertProblem;
use crate::options::Part;
use crate::target::{Target, in_folder};

/// The suffix of manifests, which are stored next to the attempts.
pub(crate) const MANIFEST: &str = ".json";
/// The maximum size of a manifest in bytes.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// What a part notes for the commit beside its shards.
#[derive(Serialize, Deserialize)]
pub(crate) struct AboutPart {
    /// The number of parts.
    pub(crate) parts: u64,
    pub(crate) identity: Value,
    /// All parts have the same provenance, so only the first stores it.
    pub(crate) provenance: Value,
    pub(crate) dropped: u64,
}

/// Parses the manifest of a part.
pub(crate) fn parse(text: &[u8], limits: &Limits) -> Result<(Manifest, AboutPart), String> {
    let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
    let mut manifest = Manifest::parse(text, limits).map_err(|error| error.to_string())?;
    let about = serde_json::from_value(manifest.about.take());
    Ok((manifest, about.map_err(|error| error.to_string())?))
}

/// Returns the part of a manifest.
pub(crate) fn part_of((manifest, about): &(Manifest, AboutPart)) -> Part {
    Part {
        number: manifest.part,
        count: about.parts,
    }
}

/// Reads all manifests at the destination.
pub(crate) fn manifests(
    target: Target<'_>,
    limits: &Limits,
) -> Result<Vec<(Manifest, AboutPart)>, Error> {
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
        known.push(parse(&text, limits).map_err(|reason| {
            let reason = format!("it is not a manifest of a part: {reason}");
            ConvertProblem::Manifest.at(target.destination.display(name), reason)
        })?);
    }
    Ok(known)
}

/// A part that waits for a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
pub(crate) fn waiting(target: Target<'_>, limits: &Limits) -> Result<Vec<WaitingPart>, Error> {
    let mut known = manifests(target, limits)?;
    let job = |manifest: &Manifest| manifest.staging.job().to_owned();
    known.sort_by_key(|(manifest, _)| (job(manifest), manifest.part));
    let folders = target.entries(PARTS_FOLDER)?;
    let parts = known.into_iter().map(|known| {
        let (manifest, _) = &known;
        let stem = format!("{}-{:05}", manifest.staging.job(), manifest.part);
        let attempts = folders.iter().filter(|entry| {
            let rest = entry.name.strip_prefix(&stem);
            rest.is_some_and(|rest| rest.starts_with(['-', '.']))
        });
        let files = || manifest.shards.iter().flat_map(|shard| &shard.files);
        let mut names: BTreeSet<String> = files().map(|file| file.at.clone()).collect();
        names.extend(attempts.map(|entry| in_folder(PARTS_FOLDER, &entry.name)));
        WaitingPart {
            part: part_of(&known).to_string(),
            conversion: job(manifest),
            samples: manifest.samples(),
            shards: u64::try_from(manifest.shards.len()).unwrap_or(u64::MAX),
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
