//! Finds and removes the leftovers of failed and killed jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use shardmill_core::{Error, Limits, PARTS_FOLDER, WORK_FOLDER};
use shardmill_storage::{Destination, Dir, Remote, StorageError, TempFile};
use shardmill_webdataset::sidecar::dali_name;

use super::lease::{claim, is_converting, release};
use super::names::{NameForm, is_shard_name, token, token_of};
use super::staging::{Staging, parse_index};
use crate::error::WriteProblem;
use crate::form::{STREAMING_PREFIX, ShardPattern};
use crate::index::{INDEX_NAME, TABLE_INDEX_NAME};
use crate::part_names::part_of;

/// The options of [`gc`].
#[derive(Clone, Debug, Default)]
pub struct GcOptions {
    /// Whether to remove what was found.
    pub delete: bool,
    /// Selects only entries last changed before this time. Without it, everything is selected; then no job may be
    /// running.
    pub before: Option<SystemTime>,
    /// The names of the shards, if they follow neither MosaicML Streaming nor `shard-%06d.tar`.
    pub names: Option<NameForm>,
    /// Selects only these entries, regardless of their age. `None` selects all entries.
    pub only: Option<BTreeSet<String>>,
    /// The time without a heartbeat after which the lease of a commit in a store is taken over. `None` means
    /// [`LEASE_PATIENCE`](shardmill_storage::LEASE_PATIENCE).
    pub lease_patience: Option<Duration>,
    /// The limits for reading the index.
    pub limits: Limits,
}

shardmill_core::named_enum! {
    /// The reason why an entry is garbage.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum GcReason {
        /// A file of an interrupted conversion.
        Journal = "journal",
        /// An attempt that was not committed.
        Attempt = "attempt",
        /// A shard that the index does not list.
        Unlisted = "unlisted",
        /// A temporary file.
        Temporary = "temporary",
    }
}

/// A file or folder that is garbage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct GcEntry {
    /// Its name, relative to the dataset.
    pub name: String,
    /// Its size in bytes. The size of a folder is the sum of its files.
    pub bytes: u64,
    /// The reason why it is garbage.
    pub reason: GcReason,
    /// Whether it is a folder.
    #[serde(skip)]
    pub is_folder: bool,
}

/// The result of [`gc`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// The selected entries, sorted by name.
    pub entries: Vec<GcEntry>,
    /// The garbage that was changed too recently to be selected, sorted by name.
    pub kept: Vec<GcEntry>,
    /// Whether the selected entries were removed.
    pub deleted: bool,
}

/// Removes the uncommitted files of a job. Returns the number of removed files and folders.
///
/// Files that the index lists are never removed. An attempt that is still running may write more files afterwards.
///
/// # Errors
///
/// Returns the error of the disk or the store, or of an index that cannot be read.
pub fn abort(
    destination: &Destination,
    staging: &Staging,
    limits: &Limits,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<u64, Error> {
    let mut removed = 0_u64;
    match destination {
        Destination::Local(dir) => {
            let own = format!("{}-", staging.job());
            for entry in destination.entries(PARTS_FOLDER, &mut |_| cancel())? {
                if entry.is_folder && entry.name.starts_with(&own) {
                    remove_tree(
                        destination,
                        &format!("{PARTS_FOLDER}/{}", entry.name),
                        cancel,
                    )?;
                    removed += 1;
                }
            }
            for folder in [PARTS_FOLDER, WORK_FOLDER] {
                // Other jobs may be using these folders. Only empty folders are removed.
                let _ = dir.remove_dir(folder);
            }
        }
        Destination::Store(_) => {
            let prefix = staging.names().prefix();
            let own = token(staging.job(), "");
            let listed = listed(destination, limits, cancel)?.unwrap_or_default();
            for entry in destination.entries("", &mut |_| cancel())? {
                let is_own = token_of(&entry.name, prefix).is_some_and(|it| it.starts_with(&own));
                if !entry.is_folder && is_own && !listed.contains(&entry.name) {
                    destination.remove(&entry.name, &mut |_| cancel())?;
                    removed += 1;
                }
            }
        }
    }
    Ok(removed)
}

/// Finds garbage, and removes it if the options say so.
///
/// Garbage is: attempts that were not committed, shards that the index does not list (for example after an overwrite),
/// and temporary files.
///
/// # Errors
///
/// - `Corrupt` if the index cannot be read.
/// - [`WriteProblem::NoAges`] if the options select by age and the store does not report ages.
/// - A conflict if another commit is running.
/// - The error of the disk or the store.
pub fn gc(
    destination: &Destination,
    options: &GcOptions,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<GcReport, Error> {
    let lease = match options.delete {
        true => {
            destination.make_folder(WORK_FOLDER)?;
            Some(claim(destination, options.lease_patience, cancel)?)
        }
        false => None,
    };
    let mut report = find(destination, options, cancel)?;
    report.entries.sort();
    report.kept.sort();
    if let Some(lease) = lease {
        for entry in &report.entries {
            match entry.is_folder {
                true => remove_tree(destination, &entry.name, cancel)?,
                false => destination.remove(&entry.name, &mut |_| cancel())?,
            }
        }
        destination.sync()?;
        release(lease, destination, cancel);
    }
    Ok(report)
}

fn find(
    destination: &Destination,
    options: &GcOptions,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<GcReport, Error> {
    let sizes = object_sizes(destination, cancel)?;
    let mut found = GcReport {
        deleted: options.delete,
        ..GcReport::default()
    };
    let mut add =
        |name: String, reason: GcReason, is_folder: bool, cancel: &mut dyn FnMut() -> bool| {
            let size = match (&sizes, destination.as_local()) {
                (None, Some(dir)) => local_size(destination, dir, &name, is_folder, cancel)?,
                (sizes, _) => sizes.as_ref().and_then(|sizes| sizes.get(&name).copied()),
            };
            let Some(size) = size else { return Ok(()) };
            let is_wanted = match (&options.only, options.before, size.changed) {
                (Some(only), _, _) if !only.contains(&name) => return Ok(()),
                (Some(_), _, _) | (None, None, _) => true,
                (None, Some(before), Some(changed)) => changed < before,
                (None, Some(_), None) => {
                    let reason = "how old it is is not known: the store does not list times";
                    return Err(WriteProblem::NoAges.at(destination.display(&name), reason));
                }
            };
            let entry = GcEntry {
                name,
                bytes: size.bytes,
                reason,
                is_folder,
            };
            match is_wanted {
                true => found.entries.push(entry),
                false => found.kept.push(entry),
            }
            Ok(())
        };
    for entry in destination.entries(PARTS_FOLDER, &mut |_| cancel())? {
        let name = format!("{PARTS_FOLDER}/{}", entry.name);
        add(name, GcReason::Attempt, entry.is_folder, cancel)?;
    }
    for entry in destination.entries(WORK_FOLDER, &mut |_| cancel())? {
        if !entry.is_folder && entry.name.starts_with(TempFile::PREFIX) {
            let name = format!("{WORK_FOLDER}/{}", entry.name);
            add(name, GcReason::Temporary, false, cancel)?;
        }
    }
    let listed = listed(destination, &options.limits, cancel)?;
    // Shards without a part number in their names may belong to a conversion that will resume.
    let work = destination.entries(WORK_FOLDER, &mut |_| cancel())?;
    let plain = listed.is_some() && !is_converting(&work);
    let listed = listed.unwrap_or_default();
    for entry in destination.entries("", &mut |_| cancel())? {
        let is_shard = is_shard(&entry.name, options.names.as_ref(), plain);
        if !entry.is_folder && is_shard && !listed.contains(&entry.name) {
            add(entry.name, GcReason::Unlisted, false, cancel)?;
        }
    }
    Ok(found)
}

/// Returns whether a file name is the name of a shard. With `plain`, shards of datasets without parts count too.
fn is_shard(name: &str, names: Option<&NameForm>, plain: bool) -> bool {
    let default = ShardPattern::default();
    let prefixes = [STREAMING_PREFIX, default.prefix()].into_iter();
    let mut prefixes = prefixes.chain(names.map(NameForm::prefix));
    let is_own = || matches!(names, Some(NameForm::Tar(pattern)) if pattern.matches(name));
    prefixes.any(|prefix| part_of(name, prefix).is_some())
        || plain && (is_shard_name(name) || default.matches(name) || is_own())
}

/// Returns the files that the indexes list, with DALI's index of each, or `None` if there is no index.
fn listed(
    destination: &Destination,
    limits: &Limits,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<Option<BTreeSet<String>>, Error> {
    let mut names = None;
    for name in [INDEX_NAME, TABLE_INDEX_NAME] {
        let text = destination.read(name, limits.index_bytes, &mut |_| cancel())?;
        let Some(text) = text else { continue };
        let names: &mut BTreeSet<String> = names.get_or_insert_default();
        for entry in parse_index(destination, &text, limits)?.entries {
            for name in entry.names() {
                names.insert(name.to_owned());
                // DALI's indexes have names like those of shards.
                names.insert(dali_name(name));
            }
        }
    }
    Ok(names)
}

#[derive(Clone, Copy, Debug)]
struct Size {
    bytes: u64,
    /// `None` if the store does not report it.
    changed: Option<SystemTime>,
}

/// Returns the sizes and ages of all objects, if the root is in a store.
fn object_sizes(
    destination: &Destination,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<Option<BTreeMap<String, Size>>, Error> {
    let Destination::Store(store) = destination else {
        return Ok(None);
    };
    let objects = store
        .remote()
        .list("", Remote::MAX_LISTED, &mut |_| cancel())?;
    let sizes = objects.into_iter().map(|object| {
        let changed = object
            .modified_ms
            .and_then(|since| u64::try_from(since).ok())
            .and_then(|since| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(since)));
        let bytes = object.bytes;
        (object.name, Size { bytes, changed })
    });
    Ok(Some(sizes.collect()))
}

/// Returns the size and the last change of a file or folder. A folder includes all files in it. Returns `None` if it no
/// longer exists.
fn local_size(
    destination: &Destination,
    dir: &Dir,
    name: &str,
    is_folder: bool,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<Option<Size>, Error> {
    let mut names = vec![name.to_owned()];
    if is_folder {
        let entries = destination.entries(name, &mut |_| cancel())?.into_iter();
        names.extend(entries.map(|entry| format!("{name}/{}", entry.name)));
    }
    let mut total: Option<Size> = None;
    for name in names {
        let path = dir.path_of(&name);
        let found = std::fs::symlink_metadata(&path)
            .and_then(|metadata| Ok((metadata.is_file(), metadata.len(), metadata.modified()?)));
        let (is_file, length, changed) = match found {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(source) => {
                let action = "look up";
                let error = StorageError::Io {
                    action,
                    path,
                    source,
                };
                return Err(error.into());
            }
        };
        let bytes = total.map_or(0, |total| total.bytes);
        total = Some(Size {
            bytes: bytes.saturating_add(if is_file { length } else { 0 }),
            changed: total.and_then(|total| total.changed).max(Some(changed)),
        });
    }
    Ok(total)
}

fn remove_tree(
    destination: &Destination,
    name: &str,
    cancel: &mut dyn FnMut() -> bool,
) -> Result<(), StorageError> {
    let Some(dir) = destination.as_local() else {
        for entry in destination.entries(name, &mut |_| cancel())? {
            destination.remove(&format!("{name}/{}", entry.name), &mut |_| cancel())?;
        }
        return Ok(());
    };
    let removed = dir.remove_all_in(name).and_then(|()| dir.remove_dir(name));
    match removed {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        // A running attempt of the job has written another file in the meantime.
        Err(StorageError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::DirectoryNotEmpty =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}
