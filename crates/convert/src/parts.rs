//! Converts in parts: independent runs each write a part of the shards, and a commit publishes all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use shardmill_core::{Limits, Progress, shell_word};
use shardmill_dataset::PROVENANCE_NAME;
use shardmill_storage::{
    FileVersion, GoOn, LEASE_PATIENCE, Location, Place, PublishMode, RemoteOptions, StorageError,
    random_number,
};
use shardmill_writer::parts::{
    CommitOptions, Manifest, ManifestBuilder, NameForm, PARTS_FOLDER, Staging, Verify, WORK_FOLDER,
    tidy,
};
use shardmill_writer::{
    Base, Batches, Checkpoint, Content, DatasetIndex, FileCheck, INDEX_NAME, IndexEntry, Input,
    Output, Position, Published, Resources, ShardForm,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::dest::{self, Dest};
use crate::error::ConvertError;
use crate::input::SourceInput;
use crate::journal::Found;
use crate::plan::ConvertPlan;
use crate::provenance::{self, in_folder};
use crate::report::{ConvertReport, Outcome, SplitReport};
use crate::run;
use crate::target::Target;

/// The suffix of manifests, which are stored next to the attempts.
const MANIFEST: &str = ".json";
/// The maximum size of a manifest in bytes.
const MOST_BYTES: u64 = 1 << 30;

/// One part of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 0.
    pub number: u64,
    /// The number of parts.
    pub count: u64,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

/// Writes one part. Its shards belong to no dataset before [`commit`].
pub(crate) fn run_part(
    plan: &ConvertPlan,
    part: Part,
    progress: &Progress,
) -> Result<ConvertReport, ConvertError> {
    let began = Instant::now();
    let options = &plan.options;
    let place = Place::create(&options.dest, &options.remote, options.spool())?;
    let target = Target::new(&place, progress);
    if let Some(Dest::Done(indexes)) = look(target, plan)? {
        let done = Outcome::AlreadyDone;
        return Ok(run::report(plan, &indexes, done, 0, began, Duration::ZERO));
    }
    let names = match &plan.form {
        ShardForm::Streaming(config) => NameForm::Streaming(config.format()),
        ShardForm::Tar(form) => NameForm::Tar(form.pattern.clone()),
    };
    let staging = Staging::fresh(&job(plan, part.count), names)?;
    let name = format!(
        "{PARTS_FOLDER}/{}-{:05}{MANIFEST}",
        staging.job(),
        part.number
    );
    if let Some(text) = target.read(&name, MOST_BYTES)?
        && let Ok(known) = Known::parse(&text, &options.limits)
        && is_intact(target, &known.manifest, options.jobs)?
    {
        let shards = known.manifest.shards.into_iter();
        let entries: Vec<IndexEntry> = shards.map(|shard| shard.entry).collect();
        let done = Outcome::AlreadyDone;
        return Ok(part_report(plan, &entries, done, 0, began, Duration::ZERO));
    }

    // The attempt name is unique, so two runs of the same part do not touch each other's files.
    let attempt = format!("{:016x}", random_number());
    let builder = ManifestBuilder::new(&place, &staging, part.number, &attempt, &plan.form)?;
    let checkpoint = Gathered::default();
    let written = write(plan, part, target, &builder, &checkpoint, progress);
    let written = written.and_then(|written| {
        let mut builder = builder.clone();
        let mut entries = Vec::new();
        let gathered = checkpoint.take();
        for (entry, files) in gathered.into_values() {
            entries.push(entry.clone());
            builder.add(entry, &files);
        }
        let known = Known {
            count: part.count,
            staging: staging.clone(),
            manifest: builder.finish(),
            config: plan.identity.to_json(),
            provenance: described(plan),
            content: written.contents.iter().copied().collect(),
            dropped: written.dropped,
        };
        place.make_folder(PARTS_FOLDER)?;
        target.publish_bytes(&name, known.to_json().as_bytes(), PublishMode::Replace)?;
        let done = Outcome::Converted;
        let (dropped, idle) = (written.dropped, written.idle);
        Ok(part_report(plan, &entries, done, dropped, began, idle))
    });
    if written.is_err() {
        // The original error is reported. `gc` finds files that cannot be removed here.
        discard(target, &builder, &checkpoint);
    }
    written
}

/// Inspects the destination. Returns the finished dataset if there is one, or an error if something else is in the way.
fn look(target: Target<'_>, plan: &ConvertPlan) -> Result<Option<Dest>, ConvertError> {
    let options = &plan.options;
    if target.file_version(INDEX_NAME)?.is_some() {
        return dest::finished(target, &plan.folders, &plan.identity, options).map(Some);
    }
    if Found::read(target, &options.limits)?.is_some() {
        return Err(ConvertError::Conflict {
            dest: options.dest_text(),
            reason: "it holds an interrupted conversion that is not in parts".to_owned(),
            id: "dest-conflict",
            hint: format!(
                "run that conversion again to finish it, or remove what is left with `shardmill gc {} --delete`",
                shell_word(&options.dest_text())
            )
            .into(),
        });
    }
    Ok(None)
}

/// Returns the job of a conversion. It is the same for the same source, configuration and number of parts.
fn job(plan: &ConvertPlan, count: u64) -> String {
    let text = json!([
        plan.identity.config_fingerprint,
        plan.identity.source_fingerprint,
        count
    ]);
    format!("{:032x}", xxh3_128(text.to_string().as_bytes()))
}

fn write(
    plan: &ConvertPlan,
    part: Part,
    target: Target<'_>,
    builder: &ManifestBuilder,
    checkpoint: &Gathered,
    progress: &Progress,
) -> Result<shardmill_writer::Written, ConvertError> {
    let input = PartInput::new(plan, part);
    progress.set_totals(input.bytes, 0, 0);
    if let Some(folder) = builder.folder() {
        target.place.make_folder(folder)?;
    }
    let at = |name: &str| builder.at(name);
    let prefix = builder.key_prefix();
    let output = Output {
        place: target.place,
        temp_folder: builder.folder().unwrap_or(WORK_FOLDER),
        splits: &plan.folders,
        form: plan.form.clone(),
        samples_per_shard: plan.options.samples_per_shard,
        at: Some(&at),
        key_prefix: &prefix,
    };
    let resources = Resources {
        jobs: plan.options.jobs,
        budget_bytes: run::budget(plan),
    };
    shardmill_writer::run(
        &input,
        &plan.encoder,
        &output,
        Base::default(),
        resources,
        checkpoint,
        progress,
    )
}

/// Removes the files of an attempt.
fn discard(target: Target<'_>, builder: &ManifestBuilder, checkpoint: &Gathered) {
    match (target.place, builder.folder()) {
        (Place::Local(dir), Some(folder)) => {
            let _ = dir.remove_all_in(folder);
            let _ = dir.remove_dir(folder);
        }
        _ => {
            let names: Vec<String> = checkpoint
                .take()
                .into_values()
                .flat_map(|(_, files)| files)
                .map(|(check, _)| builder.at(&check.name))
                .collect();
            let _ = target.for_each(names.len(), 1, |at| {
                names.get(at).map_or(Ok(()), |name| target.remove(name))
            });
        }
    }
}

/// Returns whether all files of a part are intact.
fn is_intact(target: Target<'_>, manifest: &Manifest, jobs: usize) -> Result<bool, ConvertError> {
    let files: Vec<_> = manifest
        .shards
        .iter()
        .flat_map(|shard| &shard.files)
        .collect();
    let intact = target.for_each(files.len(), jobs, |at| {
        let Some(file) = files.get(at) else {
            return Ok(true);
        };
        let file_version = target.file_version(&file.at)?;
        Ok(file_version.is_some_and(|file_version| {
            file_version.bytes == file.bytes && file_version.etag == file.etag
        }))
    })?;
    Ok(intact.into_iter().all(|is_intact| is_intact))
}

/// Returns the provenance of the dataset, without the values that are only known at the commit.
fn described(plan: &ConvertPlan) -> Value {
    let none = SplitReport {
        name: String::new(),
        samples: 0,
        shards: 0,
        raw_bytes: 0,
        stored_bytes: 0,
    };
    let text = provenance::provenance(plan, &none, None, None, (None, None));
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

fn part_report(
    plan: &ConvertPlan,
    entries: &[IndexEntry],
    outcome: Outcome,
    dropped: u64,
    began: Instant,
    idle: Duration,
) -> ConvertReport {
    let index = plan.form.index(entries.iter().cloned());
    run::report(plan, &[index], outcome, dropped, began, idle)
}

/// The units of one part.
struct PartInput {
    all: SourceInput,
    first: usize,
    count: usize,
    bytes: u64,
}

impl PartInput {
    /// Divides the units among the parts by size, in order. A part gets the units whose middle lies in its share.
    fn new(plan: &ConvertPlan, part: Part) -> Self {
        let all = SourceInput {
            source: std::sync::Arc::clone(&plan.source),
            nulls: std::sync::Arc::clone(&plan.nulls),
            split: std::sync::Arc::clone(&plan.split),
        };
        let units = plan.source.units();
        // The weight is at least 1, so that units of unknown size are divided too.
        let weight = |unit: &shardmill_source::Unit| u128::from(unit.bytes) + 1;
        let total: u128 = units.iter().map(weight).sum();
        let mut before = 0;
        let parts = units.iter().map(|unit| {
            let middle = 2 * before + weight(unit);
            before += weight(unit);
            middle * u128::from(part.count) / (2 * total).max(1)
        });
        let wanted = u128::from(part.number);
        let mut own = (units.len(), 0, 0);
        for (at, (of, unit)) in parts.zip(units).enumerate() {
            if of == wanted {
                own = (own.0.min(at), own.1 + 1, own.2 + unit.bytes);
            }
        }
        Self {
            all,
            first: own.0,
            count: own.1,
            bytes: own.2,
        }
    }
}

impl Input for PartInput {
    type Error = ConvertError;

    fn units(&self) -> usize {
        self.count
    }

    fn open(&self, unit: usize) -> Result<Box<dyn Batches<Error = ConvertError>>, ConvertError> {
        self.all.open(self.first + unit)
    }

    fn place(&self, unit: usize, row: u64) -> String {
        self.all.place(self.first + unit, row)
    }
}

/// The shards of a part, by number.
#[derive(Default)]
struct Gathered(Mutex<Shards>);

type Shards = BTreeMap<u64, (IndexEntry, Vec<(FileCheck, FileVersion)>)>;

impl Gathered {
    fn take(&self) -> Shards {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Checkpoint for Gathered {
    fn reusable(&self, _: usize, _: u64) -> Option<(&IndexEntry, Content)> {
        None
    }

    fn resume_at(&self) -> Option<(u64, Position)> {
        None
    }

    fn published(&self, shard: &Published<'_>, _: &mut GoOn<'_>) -> Result<(), StorageError> {
        let files = shard
            .checks
            .iter()
            .cloned()
            .zip(shard.file_versions.iter().cloned());
        let mut shards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shards.insert(shard.shard, (shard.entry.clone(), files.collect()));
        Ok(())
    }
}

/// The data that a part stores for the commit.
struct Known {
    count: u64,
    staging: Staging,
    manifest: Manifest,
    config: Value,
    provenance: Value,
    content: Content,
    dropped: u64,
}

impl Known {
    fn part(&self) -> Part {
        Part {
            number: self.manifest.part,
            count: self.count,
        }
    }

    fn to_json(&self) -> String {
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

    fn parse(text: &[u8], limits: &Limits) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let number = |key: &str| value.get(key).and_then(Value::as_u64);
        let string = |key: &str| {
            let text = value.get(key).and_then(Value::as_str);
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
            config: value.get("identity").cloned().unwrap_or_default(),
            provenance: value.get("provenance").cloned().unwrap_or_default(),
            content: Content::parse(string("content")?).ok_or("`content` is no hash")?,
            dropped: number("dropped").unwrap_or(0),
        })
    }
}

/// The options of [`commit`].
#[derive(Clone, Debug)]
pub struct CommitPartsOptions {
    /// The destination of the parts.
    pub dest: Location,
    /// How thoroughly files are checked.
    pub verify: Verify,
    /// The options for accessing stores.
    pub remote: RemoteOptions,
    /// The directory for temporary files that are uploaded to a store.
    pub temp_dir: Option<PathBuf>,
    /// The time without a heartbeat after which the lease of another writer in a store is taken over.
    pub lease_patience: Duration,
    /// The limits for reading files.
    pub limits: Limits,
}

impl CommitPartsOptions {
    /// Creates options with the defaults of the command line.
    #[must_use]
    pub fn new(dest: Location) -> Self {
        Self {
            dest,
            verify: Verify::Sizes,
            remote: RemoteOptions::default(),
            temp_dir: None,
            lease_patience: LEASE_PATIENCE,
            limits: Limits::default(),
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
pub fn commit(
    options: &CommitPartsOptions,
    progress: &Progress,
) -> Result<CommitReport, ConvertError> {
    let spool = options.temp_dir.as_deref();
    let place = Place::open(&options.dest, &options.remote, spool)?;
    let target = Target::new(&place, progress);
    let known = manifests(target, &options.limits)?;
    let dest = options.dest.to_string();
    let Some(first) = known.first() else {
        return done_before(target, options);
    };
    let (staging, count) = (first.staging.clone(), first.count);
    let held = u64::try_from(known.len()).unwrap_or(u64::MAX);
    if held < count && is_published(target, first)? {
        // An earlier commit was killed while it removed the manifests.
        return done_before(target, options);
    }
    let dropped = known.iter().map(|known| known.dropped).sum::<u64>();
    let content: Content = known.iter().map(|known| known.content).collect();
    let mut side = Value::Null;
    let mixed = conversions(&known);
    let mut parts = Vec::with_capacity(known.len());
    for known in known {
        if known.staging != staging || known.count != count {
            let hint = format!(
                "`shardmill gc {dest} --part {part} --delete` removes one of them, `shardmill gc {dest} --delete --older-than 0` all; then make all parts in the same way",
                dest = shell_word(&dest),
                part = known.part(),
            );
            return Err(ConvertError::Conflict {
                dest,
                reason: format!("it holds parts of several conversions: {mixed}"),
                id: "parts-conflict",
                hint: hint.into(),
            });
        }
        if known.manifest.part == 0 {
            side = known.provenance;
        }
        parts.push(known.manifest);
    }
    let entries: Vec<IndexEntry> = parts
        .iter()
        .flat_map(|part| part.shards.iter().map(|shard| shard.entry.clone()))
        .collect();
    let commit = CommitOptions {
        parts: Some(count),
        verify: options.verify,
        lease_patience: Some(options.lease_patience),
        limits: options.limits.clone(),
    };
    let go_on = &mut || !progress.is_cancelled();
    let done = shardmill_writer::parts::commit(&place, &staging, parts, &commit, go_on)?;
    let sum = |bytes: &dyn Fn(&IndexEntry) -> u64| entries.iter().map(bytes).sum::<u64>();
    let report = CommitReport {
        dest,
        parts: count,
        samples: done.samples,
        shards: done.shards,
        raw_bytes: sum(&IndexEntry::raw_bytes),
        stored_bytes: sum(&IndexEntry::stored_bytes),
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
        side.insert("content".to_owned(), json!(content.to_string()));
        let mut text = serde_json::to_string_pretty(side).unwrap_or_default();
        text.push('\n');
        // A killed commit leaves the temporary file next to the manifests, which are removed last.
        target.publish_from(PARTS_FOLDER, PROVENANCE_NAME, text.as_bytes())?;
    }
    clean(target, options)?;
    Ok(report)
}

/// Removes the leftovers of this commit and of killed commits after the dataset was published.
fn clean(target: Target<'_>, options: &CommitPartsOptions) -> Result<(), ConvertError> {
    let entries = target.entries(PARTS_FOLDER)?;
    let names: Vec<String> = entries
        .iter()
        .filter(|entry| !entry.is_folder)
        .map(|entry| in_folder(PARTS_FOLDER, &entry.name))
        .collect();
    target.for_each(names.len(), 1, |at| {
        names.get(at).map_or(Ok(()), |name| target.remove(name))
    })?;
    let mut go_on = target.go_on();
    tidy(target.place, Some(options.lease_patience), &mut || go_on(0));
    Ok(())
}

/// Returns whether the existing dataset was made from the same conversion as this part.
fn is_published(target: Target<'_>, known: &Known) -> Result<bool, ConvertError> {
    if target.file_version(INDEX_NAME)?.is_none() {
        return Ok(false);
    }
    let Some(side) = provenance::read(target, "") else {
        return Ok(false);
    };
    let is_same = |key: &str| side.get(key).is_some() && side.get(key) == known.config.get(key);
    Ok(
        side.get("parts").and_then(Value::as_u64) == Some(known.count)
            && is_same("config_fingerprint")
            && is_same("source_fingerprint"),
    )
}

/// Returns the report of a dataset that an earlier commit published.
fn done_before(
    target: Target<'_>,
    options: &CommitPartsOptions,
) -> Result<CommitReport, ConvertError> {
    let dest = options.dest.to_string();
    let side = provenance::read(target, "");
    let parts = side.as_ref().and_then(|side| side.get("parts")?.as_u64());
    let index = target.read(INDEX_NAME, options.limits.index_bytes)?;
    let (Some(parts), Some(index)) = (parts, index) else {
        return Err(ConvertError::NoParts { dest });
    };
    let Ok(index) = DatasetIndex::parse(&index, &options.limits) else {
        return Err(ConvertError::NoParts { dest });
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

/// Reads all manifests at the destination.
fn manifests(target: Target<'_>, limits: &Limits) -> Result<Vec<Known>, ConvertError> {
    let entries = target.entries(PARTS_FOLDER)?.into_iter();
    let names: Vec<String> = entries
        .filter(|entry| !entry.is_folder && entry.name.ends_with(MANIFEST))
        .map(|entry| in_folder(PARTS_FOLDER, &entry.name))
        .collect();
    let texts = target.for_each(names.len(), 1, |at| {
        names
            .get(at)
            .map_or(Ok(None), |name| target.read(name, MOST_BYTES))
    })?;
    let mut known = Vec::with_capacity(names.len());
    for (name, text) in names.iter().zip(texts) {
        // Another commit has removed the manifest since it was listed.
        let Some(text) = text else { continue };
        let parsed = Known::parse(&text, limits);
        known.push(parsed.map_err(|reason| ConvertError::Manifest {
            path: target.place.display(name),
            reason,
        })?);
    }
    Ok(known)
}

/// Lists the parts of each conversion, for messages.
fn conversions(known: &[Known]) -> String {
    let mut jobs: BTreeMap<(&str, u64), Vec<String>> = BTreeMap::new();
    for known in known {
        let job = (known.staging.job(), known.count);
        jobs.entry(job).or_default().push(known.part().to_string());
    }
    let jobs: Vec<String> = jobs.into_values().map(|parts| parts.join(", ")).collect();
    format!("one of them made {}", jobs.join(", another "))
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
            bytes: files().map(|file| file.bytes).sum(),
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
    fn what_is_no_manifest_is_told() {
        let limits = Limits::default();
        for (text, reason) in [
            ("", "EOF"),
            ("{}", "version"),
            (r#"{"version":1}"#, "`parts` is missing"),
            (r#"{"version":1,"parts":2}"#, "`staging` is missing"),
        ] {
            let found = Known::parse(text.as_bytes(), &limits).err().unwrap();
            assert!(found.contains(reason), "{text}: {found}");
        }
    }
}
