//! What conversions left behind that nobody goes on with.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;
use shardmill_core::{Limits, Progress, check_relative_path};
use shardmill_reader::{PROVENANCE_NAME, RECORD_NAME, TOMBSTONES_NAME};
use shardmill_storage::{LEASE_PATIENCE, Location, Place, PlaceLease, RemoteOptions, StorageError};
use shardmill_writer::{DatasetIndex, INDEX_NAME, parts as writer_parts};

use crate::error::ConvertError;
use crate::increment::recover;
use crate::journal::{Found, LEASE_NAME, OF_PARTS, WORK_FOLDER};
use crate::parts::{self, Part, WaitingPart};
use crate::provenance::in_folder;
use crate::target::Target;

/// What to look for, and whether to remove it.
#[derive(Clone, Debug)]
pub struct GcOptions {
    /// Where conversions wrote.
    pub dest: Location,
    /// Whether what is found is removed.
    pub delete: bool,
    /// How stores are spoken to.
    pub remote: RemoteOptions,
    /// Where files for a store are made.
    pub temp_dir: Option<PathBuf>,
    /// Only what parts have left before that long ago: others may be at work.
    pub older_than: Duration,
    /// Only this part, which waits for a commit, whatever its age.
    pub part: Option<Part>,
    /// How long the lease of another writer in a store may go without a heartbeat before it is taken over.
    pub lease_patience: Duration,
    /// What a file may ask for.
    pub limits: Limits,
}

impl GcOptions {
    /// To look, and remove nothing.
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

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GcReport {
    /// Files that belong to no dataset, by their names beneath the place, in the order in which they go.
    pub files: Vec<GcFile>,
    /// Files of uncommitted parts that were written too lately to be removed.
    pub kept: Vec<GcFile>,
    /// The parts that wait for a commit, before anything was removed.
    pub parts: Vec<WaitingPart>,
    /// Whether the files were removed.
    pub deleted: bool,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GcFile {
    /// Its name.
    pub name: String,
    /// Its length; of a folder, that of all files in it.
    pub bytes: u64,
    /// Why it is not needed: `journal`, what an interrupted conversion left; `attempt`, of a part that was not committed;
    /// `unlisted`, a shard that the index does not name; `temporary`.
    pub reason: &'static str,
}

/// Finds what an interrupted conversion left (shards that its journal names and no index does, its side files, its work
/// folder), what parts of a conversion have left that were not committed, and shards that an index has dropped. Removes it
/// where that is asked for. What an index names is never touched.
///
/// # Errors
///
/// `Conflict` where something is to be removed while a conversion is at work; what the disk or the store says.
pub fn gc(options: &GcOptions, progress: &Progress) -> Result<GcReport, ConvertError> {
    let spool = options.temp_dir.as_deref();
    let place = Place::open(&options.dest, &options.remote, spool)?;
    let target = Target::new(&place, progress);
    let mut waiting = parts::waiting(target, &options.limits)?;
    let only = match options.part {
        None => None,
        Some(part) => Some(names_of(&mut waiting, part, options)?),
    };
    let mut entries = target.entries("")?.into_iter();
    let has_work = entries.any(|entry| entry.name == WORK_FOLDER && entry.is_folder);
    let mut files = match (has_work && only.is_none(), options.delete) {
        (false, _) => Vec::new(),
        (true, false) => left(target, &options.limits)?,
        (true, true) => remove(target, options)?,
    };
    let rules = writer_parts::GcOptions {
        delete: options.delete,
        // Zero is whatever there is, also where nobody knows how old it is.
        before: (!options.older_than.is_zero())
            .then(|| SystemTime::now().checked_sub(options.older_than))
            .flatten(),
        only,
        lease_patience: Some(options.lease_patience),
        limits: options.limits.clone(),
        ..writer_parts::GcOptions::default()
    };
    let of_parts = writer_parts::gc(&place, &rules, &mut || !progress.is_cancelled())?;
    let file = |entry: writer_parts::GcEntry| GcFile {
        name: entry.name,
        bytes: entry.bytes,
        reason: entry.reason.name(),
    };
    files.extend(of_parts.entries.into_iter().map(file));
    Ok(GcReport {
        files,
        kept: of_parts.kept.into_iter().map(file).collect(),
        parts: waiting,
        deleted: options.delete,
    })
}

/// Keeps only those of the waiting parts that are one part, and answers the names of their files.
fn names_of(
    waiting: &mut Vec<WaitingPart>,
    part: Part,
    options: &GcOptions,
) -> Result<BTreeSet<String>, ConvertError> {
    let part = part.to_string();
    let known = waiting.iter().map(|waiting| waiting.part.clone()).collect();
    waiting.retain(|waiting| waiting.part == part);
    if waiting.is_empty() {
        return Err(ConvertError::NoSuchPart {
            dest: options.dest.to_string(),
            part,
            known,
        });
    }
    let names = waiting.iter().flat_map(|waiting| waiting.names.clone());
    Ok(names.collect())
}

/// Removes what an interrupted conversion left, while nobody else is at work.
fn remove(target: Target<'_>, options: &GcOptions) -> Result<Vec<GcFile>, ConvertError> {
    let place = target.place;
    let go_on = &mut target.go_on();
    let lease = PlaceLease::acquire(place, LEASE_NAME, options.lease_patience, go_on)?;
    recover(target, options.limits.index_bytes)?;
    // Looked at now that nobody else can change it.
    let mut files = left(target, &options.limits)?;
    // That one is ours by now.
    files.retain(|file| file.name != LEASE_NAME);
    // The journal goes behind what it names, so that this can be interrupted too.
    for in_work in [false, true] {
        let some: Vec<&GcFile> = files
            .iter()
            .filter(|file| file.name.starts_with(WORK_FOLDER) == in_work)
            .rev()
            .collect();
        target.for_each(some.len(), 1, |at| {
            let file = some.get(at);
            file.map_or(Ok(()), |file| target.remove(&file.name))
        })?;
        place.sync()?;
    }
    lease.end(go_on)?;
    let folders: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| Some(file.name.rsplit_once('/')?.0))
        .collect();
    for folder in folders.into_iter().rev() {
        if target.entries(folder)?.is_empty() {
            place.remove_folder(folder)?;
        }
    }
    Ok(files)
}

/// Files that belong to no dataset.
fn left(target: Target<'_>, limits: &Limits) -> Result<Vec<GcFile>, ConvertError> {
    let mut files = Vec::new();
    if let Some(found) = Found::read(target, limits)? {
        let folders = folders(&found.header);
        for (split, folder) in folders.iter().enumerate() {
            let index = in_folder(folder, INDEX_NAME);
            let index = match target.read(&index, limits.index_bytes)? {
                Some(bytes) => Some(DatasetIndex::parse(&bytes, limits).map_err(|error| {
                    ConvertError::Conflict {
                        dest: target.place.display(&index),
                        reason: format!(
                            "it cannot be read, so what belongs to it is not known: {error}"
                        ),
                        id: "dest-conflict",
                        hint: "repair the index, or remove the dataset yourself".into(),
                    }
                })?),
                None => None,
            };
            let stored = index.as_ref().map(DatasetIndex::stored_files);
            let named: BTreeSet<&str> = stored.iter().flatten().map(|(name, _)| *name).collect();
            let mut names: Vec<String> = found
                .files()
                .filter(|(of, name)| *of == split && !named.contains(name))
                .map(|(_, name)| in_folder(folder, name))
                .collect();
            if index.is_none() {
                let sides = [PROVENANCE_NAME, RECORD_NAME, TOMBSTONES_NAME];
                names.extend(sides.map(|name| in_folder(folder, name)));
            }
            add(target, names, &mut files)?;
        }
    }
    let mut work = Vec::new();
    below(target, WORK_FOLDER, 0, &mut work)?;
    // The lease is what keeps others away, and is the last to go.
    work.sort_by_key(|name| name == LEASE_NAME);
    add(target, work, &mut files)?;
    Ok(files)
}

/// The directories of the splits, as the journal's writer had them.
pub(crate) fn folders(header: &Value) -> Vec<String> {
    let splits = header
        .pointer("/config/split")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let names: Vec<String> = splits
        .iter()
        .filter_map(|split| split.get(0)?.as_str())
        .filter(|name| check_relative_path(name).is_ok())
        .map(str::to_owned)
        .collect();
    match names.is_empty() {
        true => vec![String::new()],
        false => names,
    }
}

/// Adds those of the files that are there.
fn add(
    target: Target<'_>,
    names: Vec<String>,
    files: &mut Vec<GcFile>,
) -> Result<(), StorageError> {
    let file_versions = target.for_each(names.len(), 1, |at| {
        names
            .get(at)
            .map_or(Ok(None), |name| target.file_version(name))
    })?;
    let there = names.into_iter().zip(file_versions);
    files.extend(there.filter_map(|(name, file_version)| {
        Some(GcFile {
            name,
            bytes: file_version?.bytes,
            reason: "journal",
        })
    }));
    Ok(())
}

/// All files below a folder.
fn below(
    target: Target<'_>,
    folder: &str,
    depth: usize,
    names: &mut Vec<String>,
) -> Result<(), StorageError> {
    /// Deeper than anything that a writer makes.
    const DEEPEST: usize = 8;

    for entry in target.entries(folder)? {
        let name = in_folder(folder, &entry.name);
        // What parts have left is found by their own rules.
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
