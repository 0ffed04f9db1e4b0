//! Commits a job: turns the manifests of all parts into one index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use shardmill_core::{Limits, WORK_FOLDER, escape};
use shardmill_mds::Hasher;
use shardmill_storage::{Dir, FileHandle, Place, PlaceLease, PublishMode, StorageError};

use super::gc;
use super::lease::{claim, release, tidy};
use super::manifest::{Manifest, PartFile, columns_of, difference};
use super::names::NameForm;
use super::staging::{SaveMode, Staging, parse_index};
use crate::entry::{DatasetIndex, IndexEntry};
use crate::error::WriteError;
use crate::index::INDEX_NAME;

/// The number of bytes that are hashed at a time.
const STEP_BYTES: u64 = 1 << 20;
/// The number of files in a store that are checked at the same time.
const LOOKERS: usize = 16;
/// The interval at which a waiting caller checks whether to continue.
const PATIENCE: Duration = Duration::from_millis(100);

/// How thoroughly a commit checks the files of the parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Checks the lengths, and in a store also the ETags.
    #[default]
    Sizes,
    /// Checks the hash of every file, which reads each shard once.
    Hashes,
}

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
    place: &Place,
    staging: &Staging,
    manifests: Vec<Manifest>,
    options: &CommitOptions,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Committed, WriteError> {
    let manifests = in_order(place, staging, manifests, options.parts)?;
    let ours: Vec<IndexEntry> = manifests
        .iter()
        .flat_map(|manifest| manifest.shards.iter().map(|shard| shard.entry.clone()))
        .collect();
    let mut done = Committed {
        shards: u64::try_from(ours.len()).unwrap_or(u64::MAX),
        samples: manifests.iter().map(Manifest::samples).sum(),
        total_samples: 0,
        was_done: false,
    };
    let files: Vec<(u64, &PartFile)> = manifests
        .iter()
        .flat_map(|manifest| {
            let files = manifest.shards.iter().flat_map(|shard| &shard.files);
            files.map(|file| (manifest.part, file))
        })
        .collect();
    let text = place.read(INDEX_NAME, options.limits.index_bytes, &mut |_| go_on())?;
    if let Some(total) = published(
        place,
        staging,
        text.as_deref(),
        &ours,
        &files,
        options,
        go_on,
    )? {
        (done.total_samples, done.was_done) = (total, true);
        gc::sweep(place, staging, go_on);
        tidy(place, options.lease_patience, go_on);
        return Ok(done);
    }
    place.make_folder(WORK_FOLDER)?;
    let lease = claim(place, options.lease_patience, go_on)?;
    let outcome = publish(place, staging, &files, ours, &lease, options, go_on);
    if outcome.is_ok() {
        gc::sweep(place, staging, go_on);
    }
    release(lease, place, go_on);
    (done.total_samples, done.was_done) = outcome?;
    Ok(done)
}

/// Publishes while holding the lease. Returns the number of samples of the dataset, and whether another call had
/// already published the same manifests.
fn publish(
    place: &Place,
    staging: &Staging,
    files: &[(u64, &PartFile)],
    ours: Vec<IndexEntry>,
    lease: &PlaceLease,
    options: &CommitOptions,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(u64, bool), WriteError> {
    let text = place.read(INDEX_NAME, options.limits.index_bytes, &mut |_| go_on())?;
    if !staging.is_base(text.as_deref()) {
        let there = text.as_deref();
        if let Some(total) = published(place, staging, there, &ours, files, options, go_on)? {
            return Ok((total, true));
        }
        let place = place.display(INDEX_NAME);
        return Err(match staging.mode() {
            SaveMode::Create => WriteError::DatasetExists { place },
            SaveMode::Append | SaveMode::Overwrite => WriteError::DatasetChanged { place },
        });
    }
    let before = text
        .map(|text| parse_index(place, &text, &options.limits))
        .transpose()?;
    let index = joined(place, staging, before, ours)?;
    look(place, files, options.verify, go_on)?;
    if let Some(dir) = place.as_local() {
        settle(place, dir, files, lease.is_exclusive(), go_on)?;
    }
    // The renames must be durable before the index is published.
    place.sync()?;
    if lease.is_lost() {
        return Err(WriteError::DatasetChanged {
            place: place.display(INDEX_NAME),
        });
    }
    let mode = match staging.has_base() {
        false => PublishMode::CreateNew,
        true => PublishMode::Replace,
    };
    place
        .publish_bytes(
            Some(WORK_FOLDER),
            INDEX_NAME,
            index.to_json().as_bytes(),
            mode,
            &mut |_| go_on(),
        )
        .map_err(|error| match error {
            StorageError::Exists { .. } => WriteError::DatasetExists {
                place: place.display(INDEX_NAME),
            },
            error => error.into(),
        })?;
    Ok((index.samples(), false))
}

/// Sorts the manifests by part number and checks that they are complete and compatible.
fn in_order(
    place: &Place,
    staging: &Staging,
    manifests: Vec<Manifest>,
    parts: Option<u64>,
) -> Result<Vec<Manifest>, WriteError> {
    let given = u64::try_from(manifests.len()).unwrap_or(u64::MAX);
    let mut by_part: BTreeMap<u64, Manifest> = BTreeMap::new();
    for manifest in manifests {
        let part = manifest.part;
        if manifest.job != staging.job() {
            return Err(WriteError::PartJob {
                part,
                found: manifest.job,
                expected: staging.job().to_owned(),
            });
        }
        if let Some(first) = by_part.get(&part) {
            return Err(WriteError::PartTwice {
                part,
                first: first.attempt.clone(),
                second: manifest.attempt,
            });
        }
        let is_tar = matches!(staging.names(), NameForm::Tar(_));
        let odd = |entry: &IndexEntry| matches!(entry, IndexEntry::Tar(_)) != is_tar;
        if manifest.shards.iter().any(|shard| odd(&shard.entry)) {
            return Err(WriteError::PartNames {
                expected: staging.names().to_json(),
                found: "another format".to_owned(),
            });
        }
        by_part.insert(part, manifest);
    }
    let most = parts.unwrap_or(given);
    let missing = (0..most).find(|part| !by_part.contains_key(part));
    if let Some(part) = missing {
        let last = by_part.last_key_value().map_or(0, |(part, _)| part + 1);
        return Err(WriteError::PartMissing {
            place: place.location().to_string(),
            part,
            given,
            parts: parts.unwrap_or(last),
        });
    }
    if let Some((part, _)) = by_part.range(most..).next() {
        return Err(WriteError::PartSurplus {
            part: *part,
            parts: most,
        });
    }
    let mut formed = by_part
        .values()
        .filter_map(|part| Some((part.part, part.form.as_ref()?)));
    if let Some((first, form)) = formed.next()
        && let Some((part, other)) = formed.find(|(_, other)| *other != form)
    {
        return Err(WriteError::PartForm {
            part,
            first,
            difference: difference(form, other),
        });
    }
    Ok(by_part.into_values().collect())
}

/// Returns the number of samples of the dataset if an earlier call has already published these shards in it.
fn published(
    place: &Place,
    staging: &Staging,
    text: Option<&[u8]>,
    ours: &[IndexEntry],
    files: &[(u64, &PartFile)],
    options: &CommitOptions,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<u64>, WriteError> {
    let Some(text) = text.filter(|text| !staging.is_base(Some(text))) else {
        return Ok(None);
    };
    let index = parse_index(place, text, &options.limits)?;
    let samples = index.samples();
    let there: Vec<String> = index
        .into_entries()
        .map(|entry| entry.to_json().to_string())
        .collect();
    let ours: Vec<String> = ours
        .iter()
        .map(|entry| entry.to_json().to_string())
        .collect();
    // Other jobs may have appended shards after these.
    let is_listed = match (staging.mode(), ours.first()) {
        (SaveMode::Append, None) => false,
        (SaveMode::Append, Some(first)) if staging.has_base() => there
            .iter()
            .position(|entry| entry == first)
            .is_some_and(|at| there.iter().skip(at).take(ours.len()).eq(&ours)),
        (SaveMode::Create | SaveMode::Overwrite, None) => there.is_empty(),
        (_, Some(_)) => there.starts_with(&ours),
    };
    let is_ours = is_listed
        && match place.as_local() {
            Some(dir) => are_settled(dir, files, go_on)?,
            // In a store, the names contain the job and the attempt.
            None => true,
        };
    Ok(is_ours.then_some(samples))
}

/// Returns whether the files with the final names were moved there by a commit of these manifests. Another job that
/// began on the same index writes files with the same names, and often with the same lengths.
fn are_settled(
    dir: &Dir,
    files: &[(u64, &PartFile)],
    go_on: &mut dyn FnMut() -> bool,
) -> Result<bool, WriteError> {
    // INVARIANT: a commit moves all files before it writes the index.
    for (_, file) in files {
        if dir.exists(&file.at)? {
            return Ok(false);
        }
    }
    for (_, file) in files {
        let is_same = match open(dir, &file.name)? {
            Some(handle) => is_same(&handle, file, go_on)?,
            None => false,
        };
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Combines the existing index and the new shards into one index.
fn joined(
    place: &Place,
    staging: &Staging,
    before: Option<DatasetIndex>,
    ours: Vec<IndexEntry>,
) -> Result<DatasetIndex, WriteError> {
    let before: Vec<IndexEntry> = before
        .map(DatasetIndex::into_entries)
        .into_iter()
        .flatten()
        .collect();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for (name, _) in before
        .iter()
        .chain(&ours)
        .flat_map(IndexEntry::stored_files)
    {
        if !names.insert(name.to_owned()) {
            return Err(WriteError::NameTwice {
                name: name.to_owned(),
            });
        }
    }
    let kept = match staging.mode() {
        SaveMode::Append => before,
        SaveMode::Create | SaveMode::Overwrite => Vec::new(),
    };
    if let (Some(old), Some(new)) = (kept.last(), ours.first())
        && !alike(old, new)
    {
        return Err(WriteError::DatasetFormat {
            place: place.display(INDEX_NAME),
            found: described(old),
            expected: described(new),
        });
    }
    let entries = kept.into_iter().chain(ours);
    Ok(match staging.names() {
        NameForm::Streaming(_) => DatasetIndex::Streaming(shardmill_mds::Index {
            shards: entries.filter_map(IndexEntry::into_streaming).collect(),
        }),
        NameForm::Tar(_) => DatasetIndex::Tar(shardmill_webdataset::Index {
            shards: entries.filter_map(IndexEntry::into_tar).collect(),
        }),
    })
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
    }
}

/// Checks all files. In a store, several files are checked at the same time.
fn look(
    place: &Place,
    files: &[(u64, &PartFile)],
    verify: Verify,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), WriteError> {
    let next = AtomicUsize::new(0);
    let stopped = AtomicBool::new(false);
    let lookers = match place {
        Place::Local(_) => 1,
        Place::Store(_) => LOOKERS.min(files.len()),
    };
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        for _ in 0..lookers {
            let (sender, next, stopped) = (sender.clone(), &next, &stopped);
            scope.spawn(move || {
                while let Some((part, file)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut stay = || !stopped.load(Ordering::Relaxed);
                    let seen = match stay() {
                        true => look_at(place, *part, file, verify, &mut stay),
                        false => return,
                    };
                    if seen.is_err() {
                        stopped.store(true, Ordering::Relaxed);
                        // The receiver waits for all senders.
                        let _ = sender.send(seen);
                        return;
                    }
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(PATIENCE) {
                Ok(seen) => return seen,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if go_on() => {}
                Err(RecvTimeoutError::Timeout) => {
                    stopped.store(true, Ordering::Relaxed);
                    return Err(WriteError::Interrupted { samples: 0 });
                }
            }
        }
    })
}

fn look_at(
    place: &Place,
    part: u64,
    file: &PartFile,
    verify: Verify,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), WriteError> {
    let missing = || WriteError::PartFileMissing {
        place: place.display(&file.at),
        part,
    };
    let check = |at: &str, bytes: u64| match bytes == file.bytes {
        true => Ok(()),
        false => Err(WriteError::PartFileLength {
            place: place.display(at),
            part,
            found: bytes,
            expected: file.bytes,
        }),
    };
    let differs = |at: &str, found: String, expected: &str| WriteError::PartFileHash {
        place: place.display(at),
        part,
        found,
        expected: expected.to_owned(),
    };
    let Some(dir) = place.as_local() else {
        let file_version = place
            .file_version(&file.at, &mut |_| go_on())?
            .ok_or_else(missing)?;
        check(&file.at, file_version.bytes)?;
        if let (Some(noted), Some(found)) = (&file.etag, file_version.etag)
            && *noted != found
        {
            return Err(differs(&file.at, found, noted));
        }
        if verify == Verify::Hashes {
            let bytes = place
                .read(&file.at, file.bytes, &mut |_| go_on())?
                .ok_or_else(missing)?;
            let found = shardmill_mds::hash_hex(file.algo, &bytes);
            if found != file.hex {
                return Err(differs(&file.at, found, &file.hex));
            }
        }
        return Ok(());
    };
    let (at, handle, is_moved) = match open(dir, &file.at)? {
        Some(handle) => (&file.at, handle, false),
        // A killed commit has already moved it.
        None => (
            &file.name,
            open(dir, &file.name)?.ok_or_else(missing)?,
            true,
        ),
    };
    check(at, handle.len())?;
    if verify == Verify::Hashes || is_moved {
        let found = hash_of(&handle, file, go_on)?;
        if found != file.hex {
            return Err(differs(at, found, &file.hex));
        }
    }
    Ok(())
}

fn open(dir: &Dir, name: &str) -> Result<Option<FileHandle>, StorageError> {
    match dir.open_file(name) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_same(
    handle: &FileHandle,
    file: &PartFile,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<bool, WriteError> {
    Ok(handle.len() == file.bytes && hash_of(handle, file, go_on)? == file.hex)
}

fn hash_of(
    handle: &FileHandle,
    file: &PartFile,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<String, WriteError> {
    let mut hasher = Hasher::new(file.algo);
    let mut at = 0;
    while at < handle.len() {
        if !go_on() {
            return Err(WriteError::Interrupted { samples: 0 });
        }
        let length = STEP_BYTES.min(handle.len() - at);
        hasher.update(&handle.read_range(at, length)?);
        at += length;
    }
    Ok(hasher.finish_hex())
}

/// Renames all files to their final names. Files that a killed commit has already moved are skipped.
fn settle(
    place: &Place,
    dir: &Dir,
    files: &[(u64, &PartFile)],
    is_exclusive: bool,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), WriteError> {
    for (_, file) in files {
        // No index lists the file that has this name, and no other commit is running. So a killed commit has left it.
        let mode = match is_exclusive {
            true => PublishMode::Replace,
            false => PublishMode::CreateNew,
        };
        match dir.rename(&file.at, &file.name, mode) {
            Ok(()) => {}
            Err(error) if error.is_not_found() && dir.exists(&file.name)? => {}
            Err(StorageError::Exists { .. }) => {
                let same = match open(dir, &file.name)? {
                    Some(handle) => is_same(&handle, file, go_on)?,
                    None => false,
                };
                if !same {
                    return Err(WriteError::FileInTheWay {
                        place: place.display(&file.name),
                    });
                }
                // The file was committed already, so its copy in the attempt folder is removed.
                dir.remove(&file.at)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
