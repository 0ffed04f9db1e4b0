//! Commits a job: turns the manifests of all parts into one index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use shardmill_core::{Error, Limits, WORK_FOLDER, escape, parallel};
use shardmill_mds::{
    COLUMNS_NAME, PENDING_NAME, PROVENANCE_NAME, Pending, RECORD_NAME, TOMBSTONES_NAME,
};
use shardmill_storage::{Destination, DestinationLease, Dir, PublishMode, StorageError};

use super::gc::abort;
use super::lease::{claim, release, remove_leftovers};
use super::manifest::{Manifest, columns_of, difference, part_form};
use super::names::NameForm;
use super::staging::{SaveMode, Staging, dataset_exists, parse_index, part_names};
use crate::entry::{DatasetIndex, IndexEntry};
use crate::error::{self, WriteProblem};
use crate::index::INDEX_NAME;
use crate::record::{FileRecord, FileState, Verify};

/// The number of files in a store that are checked at the same time.
const CONCURRENT_CHECKS: usize = 16;
/// The interval at which a waiting caller checks whether to continue.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The options of [`commit`].
#[derive(Clone, Debug, Default)]
pub struct CommitOptions {
    /// The expected number of parts. Without it, the given parts must be numbered from 0 without a gap.
    pub parts: Option<u64>,
    /// How thoroughly files are checked.
    pub verify: Verify,
    /// The time without a heartbeat after which this commit takes over the lease of another commit in a store. `None`
    /// means [`LEASE_PATIENCE`](shardmill_storage::LEASE_PATIENCE).
    pub lease_patience: Option<Duration>,
    /// The limits for reading indexes.
    pub limits: Limits,
}

/// The result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The number of shards of the job.
    pub shards: u64,
    /// The number of samples of the job.
    pub samples: u64,
    /// The number of samples of the dataset, including those that existed before.
    pub total_samples: u64,
    /// Whether an earlier call had already published the shards of the job.
    pub was_done: bool,
}

/// Publishes the parts of a job as a dataset, in the order of their numbers.
///
/// Every file is checked before any file gets its final name, and the index is written last. So a reader finds either
/// the previous dataset or the complete new one. Committing the same manifests again is not an error, even after a
/// commit was killed. At the end, the commit removes the files of other attempts of the job.
///
/// # Errors
///
/// - `InvalidInput`: parts are missing, duplicated, or belong to another job or form.
/// - `Corrupt`: files differ from what was written.
/// - `Conflict`: a dataset already exists or has changed since the job began, or another commit is running.
/// - The error of the disk or the store.
///
/// After any error the dataset is unchanged.
pub fn commit(
    destination: &Destination,
    staging: &Staging,
    manifests: Vec<Manifest>,
    options: &CommitOptions,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<Committed, Error> {
    let manifests = in_order(destination, staging, manifests, options.parts)?;
    let shards = manifests.iter().flat_map(|manifest| {
        let shards = manifest.shards.iter();
        shards.map(|shard| (manifest.part, shard))
    });
    let entries: Vec<IndexEntry> = shards
        .clone()
        .map(|(_, shard)| shard.entry.clone())
        .collect();
    let files = shards.flat_map(|(part, shard)| shard.files.iter().map(move |file| (part, file)));
    let mut done = Committed {
        shards: u64::try_from(entries.len()).unwrap_or(u64::MAX),
        samples: manifests.iter().map(Manifest::samples).sum(),
        total_samples: 0,
        was_done: false,
    };
    let mut commit = Commit {
        destination,
        staging,
        options,
        entries,
        files: files.collect(),
        cancel,
    };
    if let Some(total) = commit
        .index()?
        .and_then(|text| commit.published(&text).transpose())
    {
        (done.total_samples, done.was_done) = (total?, true);
        // `gc` finds the files that cannot be removed now.
        let _ = abort(destination, staging, &options.limits, commit.cancel);
        remove_leftovers(destination, options.lease_patience, commit.cancel);
        return Ok(done);
    }
    destination.make_folder(WORK_FOLDER)?;
    let lease = claim(destination, options.lease_patience, commit.cancel)?;
    let outcome = commit.publish(&lease);
    if outcome.is_ok() {
        // `gc` finds the files that cannot be removed now.
        let _ = abort(destination, staging, &options.limits, commit.cancel);
    }
    release(lease, destination, commit.cancel);
    (done.total_samples, done.was_done) = outcome?;
    Ok(done)
}

/// The shards to publish.
struct Commit<'a> {
    destination: &'a Destination,
    staging: &'a Staging,
    options: &'a CommitOptions,
    entries: Vec<IndexEntry>,
    /// The files, each with the number of its part.
    files: Vec<(u64, &'a FileRecord)>,
    cancel: &'a mut dyn FnMut() -> bool,
}

impl Commit<'_> {
    /// Reads the existing index.
    fn index(&mut self) -> Result<Option<Vec<u8>>, StorageError> {
        let max = self.options.limits.index_bytes;
        self.destination
            .read(INDEX_NAME, max, &mut |_| (self.cancel)())
    }

    /// Publishes while holding the lease. Returns the number of samples of the dataset, and whether another call had
    /// already published the same manifests.
    fn publish(&mut self, lease: &DestinationLease) -> Result<(u64, bool), Error> {
        let destination = self.destination;
        let changed = || {
            let reason = "the dataset was changed since the job began";
            WriteProblem::DatasetChanged.at(destination.display(INDEX_NAME), reason)
        };
        let text = self.index()?;
        if !self.staging.is_base(text.as_deref()) {
            if let Some(text) = &text
                && let Some(total) = self.published(text)?
            {
                return Ok((total, true));
            }
            return Err(match self.staging.mode() {
                SaveMode::Create => dataset_exists(destination),
                SaveMode::Append | SaveMode::Overwrite => changed(),
            });
        }
        let limits = &self.options.limits;
        let before = text
            .map(|text| parse_index(destination, &text, limits))
            .transpose()?;
        let index = joined(
            destination,
            self.staging,
            before,
            std::mem::take(&mut self.entries),
        )?;
        self.check_files()?;
        if let Some(dir) = destination.as_local() {
            self.rename(dir, lease.is_exclusive())?;
        }
        // The renames must be durable before the index is published.
        destination.sync()?;
        if lease.is_lost() {
            return Err(changed());
        }
        let mode = match self.staging.has_base() {
            false => PublishMode::CreateNew,
            true => PublishMode::Replace,
        };
        let text = index.to_json();
        let gone = match self.staging.mode() {
            SaveMode::Overwrite => self.note_gone(&text)?,
            SaveMode::Create | SaveMode::Append => Vec::new(),
        };
        let cancel = &mut |_| (self.cancel)();
        destination
            .publish_bytes(Some(WORK_FOLDER), INDEX_NAME, text.as_bytes(), mode, cancel)
            .map_err(|error| match error {
                StorageError::Exists { .. } => dataset_exists(destination),
                error => error.into(),
            })?;
        if !gone.is_empty() {
            destination.sync()?;
            for name in gone.into_iter().chain([PENDING_NAME]) {
                destination.remove(name, cancel)?;
            }
            destination.sync()?;
        }
        Ok((index.samples(), false))
    }

    /// Notes that the new index has none of the side files of the one that it replaces, and returns their names. Readers
    /// then ignore files that are not removed yet.
    fn note_gone(&mut self, index: &str) -> Result<Vec<&'static str>, StorageError> {
        let destination = self.destination;
        let cancel = &mut |_| (self.cancel)();
        let mut gone = Vec::new();
        for name in [PROVENANCE_NAME, RECORD_NAME, TOMBSTONES_NAME, COLUMNS_NAME] {
            if destination.file_version(name, cancel)?.is_some() {
                gone.push(name);
            }
        }
        if !gone.is_empty() {
            let pending = Pending::new(index, gone.iter().map(|name| (*name, None)));
            let text = serde_json::to_string(&pending).unwrap_or_default();
            let (folder, mode) = (Some(WORK_FOLDER), PublishMode::Replace);
            destination.publish_bytes(folder, PENDING_NAME, text.as_bytes(), mode, cancel)?;
            destination.sync()?;
        }
        Ok(gone)
    }

    /// Returns the number of samples of the dataset if an earlier call has already published these shards in it. `text`
    /// is its index.
    fn published(&mut self, text: &[u8]) -> Result<Option<u64>, Error> {
        let staging = self.staging;
        if staging.is_base(Some(text)) {
            return Ok(None);
        }
        let index = parse_index(self.destination, text, &self.options.limits)?;
        let samples = index.samples();
        let listed: Vec<String> = index.entries.iter().map(IndexEntry::to_json).collect();
        let own: Vec<String> = self.entries.iter().map(IndexEntry::to_json).collect();
        // Other jobs may have appended shards after these.
        let is_listed = match (staging.mode(), own.first()) {
            (SaveMode::Append, None) => false,
            (SaveMode::Append, Some(first)) if staging.has_base() => {
                let at = listed.iter().position(|entry| entry == first);
                at.and_then(|at| listed.get(at..))
                    .is_some_and(|listed| listed.starts_with(&own))
            }
            (SaveMode::Create | SaveMode::Overwrite, None) => listed.is_empty(),
            (_, Some(_)) => listed.starts_with(&own),
        };
        let is_done = is_listed
            && match self.destination.as_local() {
                Some(dir) => self.are_renamed(dir)?,
                // In a store, the names contain the job and the attempt.
                None => true,
            };
        Ok(is_done.then_some(samples))
    }

    /// Returns whether the files with the final names were moved there by a commit of these manifests. Another job that
    /// began on the same index writes files with the same names, and often with the same lengths.
    fn are_renamed(&mut self, dir: &Dir) -> Result<bool, Error> {
        // INVARIANT: a commit moves all files before it writes the index.
        for (_, file) in &self.files {
            if dir.exists(&file.at)? {
                return Ok(false);
            }
        }
        for (_, file) in &self.files {
            if !is_moved(self.destination, file, self.cancel)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Checks all files. In a store, several files are checked at the same time.
    fn check_files(&mut self) -> Result<(), Error> {
        let (destination, files, verify) = (self.destination, &self.files, self.options.verify);
        let jobs = match destination {
            Destination::Local(_) => 1,
            Destination::Store(_) => CONCURRENT_CHECKS,
        };
        let stopped = AtomicBool::new(false);
        let stay = || !stopped.load(Ordering::Relaxed);
        let check = |at: usize, (): &mut ()| match files.get(at) {
            Some((part, file)) => check_file(destination, *part, file, verify, &mut || stay()),
            None => Ok(()),
        };
        let (running, ended) = channel::<()>();
        let cancel = &mut *self.cancel;
        std::thread::scope(|scope| {
            let checks = scope.spawn(move || {
                let _running = running;
                parallel::for_each(files.len(), jobs, check)
            });
            while ended.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if !cancel() {
                    stopped.store(true, Ordering::Relaxed);
                }
            }
            match checks.join() {
                _ if !stay() => Err(error::interrupted(0)),
                Ok(checked) => checked,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Renames all files to their final names. Files that a killed commit has already moved are skipped.
    fn rename(&mut self, dir: &Dir, is_exclusive: bool) -> Result<(), Error> {
        for (_, file) in &self.files {
            // No index lists the file that has this name, and no other commit is running. So a killed commit has left
            // it.
            let mode = match is_exclusive {
                true => PublishMode::Replace,
                false => PublishMode::CreateNew,
            };
            match dir.rename(&file.at, &file.check.name, mode) {
                Ok(()) => {}
                Err(error) if error.is_not_found() && dir.exists(&file.check.name)? => {}
                Err(StorageError::Exists { .. }) => {
                    if !is_moved(self.destination, file, self.cancel)? {
                        return Err(WriteProblem::FileInTheWay.at(
                            self.destination.display(&file.check.name),
                            "a file that no index names is in the way",
                        ));
                    }
                    // The file was committed already, so its copy in the attempt folder is removed.
                    dir.remove(&file.at)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Sorts the manifests by part number and checks that they are complete and compatible.
fn in_order(
    destination: &Destination,
    staging: &Staging,
    manifests: Vec<Manifest>,
    parts: Option<u64>,
) -> Result<Vec<Manifest>, Error> {
    let given = u64::try_from(manifests.len()).unwrap_or(u64::MAX);
    let mut by_part: BTreeMap<u64, Manifest> = BTreeMap::new();
    for manifest in manifests {
        let part = manifest.part;
        if manifest.staging.job() != staging.job() {
            let (found, expected) = (manifest.staging.job(), staging.job());
            let reason = format!("part {part} is of job {found}, not of {expected}");
            return Err(WriteProblem::PartJob.error(reason));
        }
        if let Some(first) = by_part.get(&part) {
            let (first, second) = (&first.attempt, manifest.attempt);
            let reason =
                format!("part {part} exists twice, from the attempts {first} and {second}");
            return Err(WriteProblem::PartTwice.error(reason));
        }
        let is_tar = matches!(staging.names(), NameForm::Tar(_));
        let mut entries = manifest.shards.iter().map(|shard| &shard.entry);
        if entries.any(|entry| entry.tar().is_some() != is_tar) {
            return Err(part_names(staging, "another format"));
        }
        by_part.insert(part, manifest);
    }
    let max = parts.unwrap_or(given);
    let missing = (0..max).find(|part| !by_part.contains_key(part));
    if let Some(part) = missing {
        let last = by_part.last_key_value().map_or(0, |(part, _)| part + 1);
        let parts = parts.unwrap_or(last);
        let reason = format!("part {part} is missing: {given} of {parts} parts are there");
        return Err(WriteProblem::PartMissing
            .at(destination.location().to_string(), reason)
            .with_hint(format!(
                "make the missing parts as the others were made, and commit all {parts} together"
            )));
    }
    if let Some((part, _)) = by_part.range(max..).next() {
        let reason = format!("part {part} is one too many: there have to be {max}");
        return Err(WriteProblem::PartNumber.error(reason));
    }
    let mut formed = by_part
        .values()
        .filter_map(|part| Some((part.part, part.form.as_ref()?)));
    if let Some((first, form)) = formed.next()
        && let Some((part, other)) = formed.find(|(_, other)| *other != form)
    {
        return Err(part_form(part, first, &difference(form, other)));
    }
    Ok(by_part.into_values().collect())
}

/// Combines the existing index and the new shards into one index.
fn joined(
    destination: &Destination,
    staging: &Staging,
    before: Option<DatasetIndex>,
    new: Vec<IndexEntry>,
) -> Result<DatasetIndex, Error> {
    let before = before.map_or_else(Vec::new, |index| index.entries);
    let mut names = BTreeSet::new();
    let listed = before.iter().chain(&new);
    for (name, _) in listed.flat_map(IndexEntry::stored_files) {
        if !names.insert(name) {
            let reason = format!("two files would be called `{}`", escape(name));
            return Err(WriteProblem::NameTwice.error(reason));
        }
    }
    let kept = match staging.mode() {
        SaveMode::Append => before,
        SaveMode::Create | SaveMode::Overwrite => Vec::new(),
    };
    if let (Some(old), Some(new)) = (kept.last(), new.first())
        && !alike(old, new)
    {
        let (found, expected) = (described(old), described(new));
        let reason = format!("the dataset has shards of {found}, the job writes {expected}");
        return Err(WriteProblem::DatasetFormat.at(destination.display(INDEX_NAME), reason));
    }
    let entries = kept.into_iter().chain(new);
    Ok(DatasetIndex::new(staging.names().format(), entries))
}

/// Returns whether one index may list both entries.
fn alike(old: &IndexEntry, new: &IndexEntry) -> bool {
    match (old, new) {
        (IndexEntry::Streaming(old), IndexEntry::Streaming(new)) => {
            old.config.layout == new.config.layout
        }
        (IndexEntry::Tar(_), IndexEntry::Tar(_)) => true,
        _ => false,
    }
}

fn described(entry: &IndexEntry) -> String {
    match entry {
        IndexEntry::Streaming(entry) => {
            let columns = columns_of(&entry.config.to_json());
            let columns: Vec<String> = columns
                .into_iter()
                .map(|(name, encoding)| match encoding {
                    Some(encoding) => format!("{} {}", escape(&name), escape(&encoding)),
                    None => escape(&name).into_owned(),
                })
                .collect();
            format!("{} ({})", entry.config.format(), columns.join(", "))
        }
        IndexEntry::Tar(_) => "webdataset".to_owned(),
        IndexEntry::Table(_) => "parquet".to_owned(),
    }
}

/// Returns whether the file with the final name of a file is the same.
fn is_moved(
    destination: &Destination,
    file: &FileRecord,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<bool, Error> {
    let state = file.compare(destination, &file.check.name, Verify::Hashes, cancel)?;
    Ok(state == FileState::Intact)
}

fn check_file(
    destination: &Destination,
    part: u64,
    file: &FileRecord,
    verify: Verify,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<(), Error> {
    let mut at = &file.at;
    let mut state = file.compare(destination, at, verify, cancel)?;
    if state == FileState::Missing && destination.as_local().is_some() {
        // A killed commit may have moved it already.
        let moved = file.compare(destination, &file.check.name, Verify::Hashes, cancel)?;
        if moved != FileState::Missing {
            (at, state) = (&file.check.name, moved);
        }
    }
    let (problem, what) = match state {
        FileState::Intact => return Ok(()),
        FileState::Missing => (WriteProblem::PartFileMissing, "is missing".to_owned()),
        FileState::Length(bytes) => (
            WriteProblem::PartFileLength,
            format!("has {bytes} bytes, {} were written", file.check.bytes),
        ),
        FileState::Hash { found, noted } => (
            WriteProblem::PartFileHash,
            format!("has another hash ({found}) than what was written ({noted})"),
        ),
    };
    let reason = format!("a file of part {part} {what}");
    Err(problem.at(destination.display(at), reason))
}
