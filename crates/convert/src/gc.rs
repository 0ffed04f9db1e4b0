//! Finds and removes the leftovers of conversions that will not be resumed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use shardmill_core::{Error, Limits, Progress, check_relative_path};
use shardmill_dataset::{COLUMNS_FOLDER, PROVENANCE_NAME, RECORD_NAME, TOMBSTONES_NAME};
use shardmill_storage::{Destination, LEASE_PATIENCE, Location, RemoteOptions, StorageError};
use shardmill_writer::parts::{self, GcEntry, GcReason};
use shardmill_writer::{DatasetIndex, INDEX_NAME, ShardFormat};

use crate::dataset_files::{orphan_columns, orphan_shards};
use crate::error::{ConvertProblem, conflict};
use crate::journal::Found;
use crate::options::Part;
use crate::part_manifest::{self, WaitingPart};
use crate::replace;
use crate::target::{LEASE_NAME, OF_PARTS, Target, WORK_FOLDER, folder_of, in_folder, side_name};

/// The options of [`gc`].
#[derive(Clone, Debug)]
pub struct GcOptions {
    /// The destination of the conversions.
    pub dest: Location,
    /// Whether the leftovers are removed.
    pub delete: bool,
    /// The options for accessing stores.
    pub remote: RemoteOptions,
    /// The directory for temporary files that are uploaded to a store.
    pub temp_dir: Option<PathBuf>,
    /// Selects files of uncommitted parts only if they are older than this, because parts may still be running.
    pub older_than: Duration,
    /// Selects only this uncommitted part, regardless of its age.
    pub part: Option<Part>,
    /// The time without a heartbeat after which the lease of another writer in a store is taken over.
    pub lease_patience: Duration,
    /// The limits for reading files.
    pub limits: Limits,
}

impl GcOptions {
    /// Creates options that find leftovers and remove nothing.
    #[must_use]
    pub fn new(dest: Location) -> Self {
        Self {
            dest,
            delete: false,
            remote: RemoteOptions::default(),
            temp_dir: None,
            older_than: Duration::from_secs(24 * 60 * 60),
            part: None,
            lease_patience: LEASE_PATIENCE,
            limits: Limits::default(),
        }
    }
}

/// The result of [`gc`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GcReport {
    /// The files that belong to no dataset, with paths relative to the destination, in the order of removal.
    pub files: Vec<GcEntry>,
    /// The files of uncommitted parts that are too recent to be selected.
    pub kept: Vec<GcEntry>,
    /// The parts that waited for a commit before the removal.
    pub parts: Vec<WaitingPart>,
    /// Whether the files were removed.
    pub deleted: bool,
}

/// Finds the leftovers of conversions, and removes them if the options say so. Files that an index lists are never
/// removed.
///
/// Leftovers are:
///
/// - files of an interrupted conversion: shards that its journal lists and no index does, side files, its work folder;
/// - files of parts that were not committed;
/// - shards that an index no longer lists, among them those of a dataset that was replaced;
/// - shards of late columns that `index.columns` does not list.
///
/// # Errors
///
/// Returns `Conflict` if files are to be removed while a conversion is running, or the error of the disk or the store.
pub fn gc(options: &GcOptions, progress: &Progress) -> Result<GcReport, Error> {
    let spool = options.temp_dir.as_deref();
    let destination = Destination::open(&options.dest, &options.remote, spool)?;
    let target = Target::new(&destination, progress);
    let mut waiting = part_manifest::waiting(target, &options.limits)?;
    let only = match options.part {
        None => None,
        Some(part) => Some(names_of(&mut waiting, part, options)?),
    };
    let mut entries = target.entries("")?.into_iter();
    let has_work = entries.any(|entry| entry.name == WORK_FOLDER && entry.is_folder)
        || !orphan_columns(target, &options.limits)?.is_empty()
        || !orphan_shards(target, &options.limits)?.is_empty();
    let mut files = match (has_work && only.is_none(), options.delete) {
        (false, _) => Vec::new(),
        (true, false) => left(target, &options.limits)?,
        (true, true) => remove(target, options)?,
    };
    let rules = parts::GcOptions {
        delete: options.delete,
        // A zero age selects everything, even if the store does not report ages.
        before: (!options.older_than.is_zero())
            .then(|| SystemTime::now().checked_sub(options.older_than))
            .flatten(),
        only,
        lease_patience: Some(options.lease_patience),
        limits: options.limits.clone(),
        ..parts::GcOptions::default()
    };
    let of_parts = parts::gc(&destination, &rules, &mut || !progress.is_cancelled())?;
    let known: BTreeSet<String> = files.iter().map(|file| file.name.clone()).collect();
    let is_new = |entry: &GcEntry| !known.contains(&entry.name);
    files.extend(of_parts.entries.into_iter().filter(is_new));
    Ok(GcReport {
        files,
        kept: of_parts.kept.into_iter().filter(is_new).collect(),
        parts: waiting,
        deleted: options.delete,
    })
}

/// Keeps only the waiting parts with this number, and returns the names of their files.
fn names_of(
    waiting: &mut Vec<WaitingPart>,
    part: Part,
    options: &GcOptions,
) -> Result<BTreeSet<String>, Error> {
    let part = part.to_string();
    let known = waiting.iter().map(|waiting| waiting.part.clone());
    let known: Vec<String> = known.collect();
    waiting.retain(|waiting| waiting.part == part);
    if waiting.is_empty() {
        let hint = match known.as_slice() {
            [] => "there are no uncommitted parts".to_owned(),
            known => format!("the uncommitted parts are {}", known.join(", ")),
        };
        let reason = format!("there is no part {part} to remove");
        return Err(ConvertProblem::NoSuchPart
            .at(options.dest.to_string(), reason)
            .with_hint(hint));
    }
    let names = waiting.iter().flat_map(|waiting| waiting.names.clone());
    Ok(names.collect())
}

/// Removes the leftovers of an interrupted conversion while holding the lease.
fn remove(target: Target<'_>, options: &GcOptions) -> Result<Vec<GcEntry>, Error> {
    let destination = target.destination;
    let cancel = &mut target.cancel();
    let lease = target.lease(options.lease_patience)?;
    replace::recover(target, options.limits.index_bytes)?;
    // The files are listed while holding the lease, so no other process changes them.
    let mut files = left(target, &options.limits)?;
    // The files of a replaced dataset, in their order.
    replace::finish(target, options.limits.index_bytes)?;
    // The lease belongs to this process.
    files.retain(|file| file.name != LEASE_NAME);
    // The journal is removed after the files that it lists, so that an interrupted removal can be repeated.
    for in_work in [false, true] {
        let names = files.iter().rev().map(|file| file.name.as_str());
        let names = names.filter(|name| name.starts_with(WORK_FOLDER) == in_work);
        target.remove_all(&names.collect::<Vec<_>>())?;
        destination.sync()?;
    }
    lease.end(cancel)?;
    let mut folders: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| Some(file.name.rsplit_once('/')?.0))
        .collect();
    if folders
        .iter()
        .any(|folder| folder.starts_with(COLUMNS_FOLDER))
    {
        folders.insert(COLUMNS_FOLDER);
    }
    for folder in folders.into_iter().rev() {
        if target.entries(folder)?.is_empty() {
            destination.remove_folder(folder)?;
        }
    }
    Ok(files)
}

/// Returns the files that belong to no dataset.
fn left(target: Target<'_>, limits: &Limits) -> Result<Vec<GcEntry>, Error> {
    let mut files = Vec::new();
    let replaced = replace::leftovers(target, limits.index_bytes)?;
    add(target, replaced, GcReason::Unlisted, &mut files)?;
    let orphans = orphan_columns(target, limits)?;
    add(target, orphans, GcReason::Unlisted, &mut files)?;
    if let Some(found) = Found::read(target, limits)? {
        let to = found.format();
        for folder in found.folders() {
            let index = in_folder(&folder, to.map_or(INDEX_NAME, ShardFormat::index_name));
            let index = match target.read(&index, limits.index_bytes)? {
                Some(bytes) => Some(DatasetIndex::parse(&bytes, limits).map_err(|error| {
                    let reason = format!(
                        "it cannot be read, so the files that belong to it are not known: {error}"
                    );
                    let hint = "repair the index, or remove the dataset yourself";
                    let dest = target.destination.display(&index);
                    conflict(dest, "dest-conflict", reason, hint)
                })?),
                None => None,
            };
            let stored = index.iter().flat_map(DatasetIndex::stored_files);
            let listed: BTreeSet<String> =
                stored.map(|(name, _)| in_folder(&folder, name)).collect();
            let own = found.files().map(|file| &file.at);
            let own = own.filter(|at| folder_of(at) == folder && !listed.contains(*at));
            let mut names: Vec<String> = own.cloned().collect();
            if index.is_none() {
                let sides = [PROVENANCE_NAME, RECORD_NAME, TOMBSTONES_NAME];
                names.extend(sides.map(|name| match to {
                    Some(to) => in_folder(&folder, &side_name(to, name)),
                    None => in_folder(&folder, name),
                }));
            }
            add(target, names, GcReason::Journal, &mut files)?;
        }
    }
    let mut work = Vec::new();
    below(target, WORK_FOLDER, 0, &mut work)?;
    // The lease excludes other writers, so it is removed last.
    work.sort_by_key(|name| name == LEASE_NAME);
    add(target, work, GcReason::Journal, &mut files)?;
    let mut orphans = orphan_shards(target, limits)?;
    orphans.retain(|orphan| files.iter().all(|file| file.name != *orphan));
    add(target, orphans, GcReason::Unlisted, &mut files)?;
    Ok(files)
}

/// Adds the files that exist.
fn add(
    target: Target<'_>,
    names: Vec<String>,
    reason: GcReason,
    files: &mut Vec<GcEntry>,
) -> Result<(), StorageError> {
    let file_versions = target.for_each(&names, 1, |name| target.file_version(name))?;
    let there = names.into_iter().zip(file_versions);
    files.extend(there.filter_map(|(name, file_version)| {
        Some(GcEntry {
            name,
            bytes: file_version?.bytes,
            reason,
            is_folder: false,
        })
    }));
    Ok(())
}

/// Lists all files below a folder.
fn below(
    target: Target<'_>,
    folder: &str,
    depth: usize,
    names: &mut Vec<String>,
) -> Result<(), StorageError> {
    /// Deeper than any folder that a writer creates.
    const DEEPEST: usize = 8;

    for entry in target.entries(folder)? {
        let name = in_folder(folder, &entry.name);
        // The files of parts are found separately.
        let is_of_parts = folder == WORK_FOLDER && OF_PARTS.contains(&entry.name.as_str());
        if is_of_parts || check_relative_path(&name).is_err() {
            continue;
        }
        match entry.is_folder {
            true if depth < DEEPEST => below(target, &name, depth + 1, names)?,
            true => {}
            false => names.push(name),
        }
    }
    Ok(())
}
