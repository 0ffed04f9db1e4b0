//! Publishes the parts of a conversion as one dataset.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};
use shardmill_core::{Error, Progress, shell_word};
use shardmill_dataset::{IndexShape, PROVENANCE_NAME};
use shardmill_storage::{Destination, Location, RemoteOptions};
use shardmill_writer::parts::{CommitOptions, Manifest, PARTS_FOLDER, remove_leftovers};
use shardmill_writer::{Content, DatasetIndex, INDEX_NAME};

use crate::error::{ConvertProblem, conflict};
use crate::part_manifest::{AboutPart, manifests, part_of};
use crate::provenance;
use crate::target::{Target, in_folder};

/// The options of [`commit`].
#[derive(Clone, Debug)]
pub struct CommitPartsOptions {
    /// The destination of the parts.
    pub dest: Location,
    /// How the writer commits. The number of parts comes from their manifests.
    pub commit: CommitOptions,
    /// The options for accessing stores.
    pub remote: RemoteOptions,
    /// The directory for temporary files that are uploaded to a store.
    pub temp_dir: Option<PathBuf>,
}

impl CommitPartsOptions {
    /// Creates options with the defaults of the command line.
    #[must_use]
    pub fn new(dest: Location) -> Self {
        Self {
            dest,
            commit: CommitOptions::default(),
            remote: RemoteOptions::default(),
            temp_dir: None,
        }
    }
}

/// The result of [`commit`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CommitReport {
    /// The location of the dataset.
    pub dest: String,
    /// The number of parts.
    pub parts: u64,
    /// The number of samples.
    pub samples: u64,
    /// The number of shards.
    pub shards: u64,
    /// The size before compression in bytes.
    pub raw_bytes: u64,
    /// The size of the stored files in bytes.
    pub stored_bytes: u64,
    /// Whether an earlier commit had already published the dataset.
    pub was_done: bool,
}

/// Publishes the parts of a conversion as one dataset, in the order of the parts. All parts and all their files must
/// exist and be intact. Files of other attempts are removed.
///
/// # Errors
///
/// - `InvalidInput`: parts are missing, for example `parts-none` or `part-missing`.
/// - `Conflict`: another dataset exists, or the parts belong to several conversions.
/// - A file differs from what was written.
/// - The error of the disk or the store.
pub fn commit(options: &CommitPartsOptions, progress: &Progress) -> Result<CommitReport, Error> {
    let spool = options.temp_dir.as_deref();
    let destination = Destination::open(&options.dest, &options.remote, spool)?;
    let target = Target::new(&destination, progress);
    let mut known = manifests(target, &options.commit.limits)?;
    known.sort_by_key(|(manifest, _)| manifest.part);
    let dest = options.dest.to_string();
    let Some((first, about)) = known.first() else {
        return done_before(target, options);
    };
    let (staging, count) = (first.staging.clone(), about.parts);
    let part_count = u64::try_from(known.len()).unwrap_or(u64::MAX);
    if part_count < count && is_published(target, about)? {
        // An earlier commit was killed while it removed the manifests.
        return done_before(target, options);
    }
    let is_other = |(manifest, about): &&(Manifest, AboutPart)| {
        manifest.staging != staging || about.parts != count
    };
    if let Some(other) = known.iter().find(is_other) {
        let hint = format!(
            "`shardmill gc {dest} --part {part} --delete` removes one of them, `shardmill gc {dest} --delete --older-than 0` all; then make all parts in the same way",
            dest = shell_word(&dest),
            part = part_of(other),
        );
        let reason = format!(
            "it holds parts of several conversions: {}",
            conversions(&known)
        );
        return Err(conflict(dest, "parts-conflict", reason, hint));
    }
    let dropped = known.iter().map(|(_, about)| about.dropped).sum::<u64>();
    let mut side = Value::Null;
    let mut parts = Vec::with_capacity(known.len());
    for (manifest, about) in known {
        if manifest.part == 0 {
            side = about.provenance;
        }
        parts.push(manifest);
    }
    let shards = || parts.iter().flat_map(|part| &part.shards);
    let content: Content = shards().map(|shard| shard.content).collect();
    let order: Vec<(String, u64)> = shards()
        .map(|shard| (shard.entry.raw_name().to_owned(), shard.entry.samples()))
        .collect();
    let raw_bytes = shards().map(|shard| shard.entry.raw_bytes()).sum();
    let stored_bytes = shards().map(|shard| shard.entry.stored_bytes()).sum();
    let commit = CommitOptions {
        parts: Some(count),
        ..options.commit.clone()
    };
    let cancel = &mut || !progress.is_cancelled();
    let done = shardmill_writer::parts::commit(&destination, &staging, parts, &commit, cancel)?;
    let report = CommitReport {
        dest,
        parts: count,
        samples: done.samples,
        shards: done.shards,
        raw_bytes,
        stored_bytes,
        was_done: done.was_done,
    };
    if let Value::Object(side) = &mut side {
        for (key, value) in [
            ("parts", report.parts),
            ("samples", report.samples),
            ("shards", report.shards),
            ("raw_bytes", report.raw_bytes),
            ("stored_bytes", report.stored_bytes),
            ("dropped_rows", dropped),
        ] {
            side.insert(key.to_owned(), json!(value));
        }
        let order = order
            .iter()
            .map(|(name, samples)| (name.as_str(), *samples));
        let order = IndexShape::of(order).order;
        side.insert("order".to_owned(), json!(order));
        side.insert("content".to_owned(), json!(content.to_string()));
        let text = provenance::text_of(&json!(side));
        // A killed commit leaves the temporary file next to the manifests, which are removed last.
        target.publish_from(Some(PARTS_FOLDER), PROVENANCE_NAME, text.as_bytes())?;
    }
    clean(target, options)?;
    Ok(report)
}

/// Removes the leftovers of this commit and of killed commits after the dataset was published.
fn clean(target: Target<'_>, options: &CommitPartsOptions) -> Result<(), Error> {
    let entries = target.entries(PARTS_FOLDER)?.into_iter();
    let files = entries.filter(|entry| !entry.is_folder);
    let names = files.map(|entry| in_folder(PARTS_FOLDER, &entry.name));
    target.remove_all(&names.collect::<Vec<_>>())?;
    let mut cancel = target.cancel();
    remove_leftovers(
        target.destination,
        options.commit.lease_patience,
        &mut || cancel(0),
    );
    Ok(())
}

/// Returns whether the existing dataset was made from the same conversion as this part.
fn is_published(target: Target<'_>, part: &AboutPart) -> Result<bool, Error> {
    if target.file_version(INDEX_NAME)?.is_none() {
        return Ok(false);
    }
    let Some(side) = provenance::read(target, "") else {
        return Ok(false);
    };
    let is_same = |key: &str| side.get(key).is_some() && side.get(key) == part.identity.get(key);
    Ok(side["parts"].as_u64() == Some(part.parts)
        && is_same("config_fingerprint")
        && is_same("source_fingerprint"))
}

/// Returns the report of a dataset that an earlier commit published.
fn done_before(target: Target<'_>, options: &CommitPartsOptions) -> Result<CommitReport, Error> {
    let dest = options.dest.to_string();
    let side = provenance::read(target, "");
    let parts = side.as_ref().and_then(|side| side.get("parts")?.as_u64());
    let index = target.read(INDEX_NAME, options.commit.limits.index_bytes)?;
    let index = index.and_then(|index| DatasetIndex::parse(&index, &options.commit.limits).ok());
    let (Some(parts), Some(index)) = (parts, index) else {
        let hint = format!(
            "write them with `shardmill convert SOURCE {} --part I/N`",
            shell_word(&dest)
        );
        let reason = "there are no parts to publish";
        return Err(ConvertProblem::NoParts.at(&dest, reason).with_hint(hint));
    };
    clean(target, options)?;
    Ok(CommitReport {
        dest,
        parts,
        samples: index.samples(),
        shards: index.shards(),
        raw_bytes: index.raw_bytes(),
        stored_bytes: index.stored_bytes(),
        was_done: true,
    })
}

/// Lists the parts of each conversion, for messages.
fn conversions(known: &[(Manifest, AboutPart)]) -> String {
    let mut jobs: BTreeMap<(&str, u64), Vec<String>> = BTreeMap::new();
    for part in known {
        let job = (part.0.staging.job(), part.1.parts);
        jobs.entry(job).or_default().push(part_of(part).to_string());
    }
    let jobs: Vec<String> = jobs.into_values().map(|parts| parts.join(", ")).collect();
    format!("one of them made {}", jobs.join(", another "))
}
