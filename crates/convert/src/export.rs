//! Writes the indexes of other readers next to tar shards. They are built from the headers of the shards.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use shardmill_core::{Error, Limits, Progress, escape, parallel};
use shardmill_dataset::{DatasetError, TarFile, TarPattern, TarSet, each_in_order, is_tar_name};
use shardmill_storage::{
    Destination, Folder, Location, PublishMode, RemoteLocation, RemoteOptions, StorageError,
};
use shardmill_webdataset::sidecar::{
    SidecarShard, dali_index, dali_name, open_clip_sizes, wids_index,
};
use shardmill_webdataset::{Consumer, IndexShard, SampleEntry};
use shardmill_writer::{DatasetIndex, INDEX_NAME, IndexEntry, ShardPattern};

use crate::error::conflict;
use crate::options::ConvertOptions;
use crate::report::is_zero;
use crate::target::{Target, in_folder};

/// The names of the indexes of wids and `open_clip`.
const WIDS_NAME: &str = "shardindex.json";
const OPEN_CLIP_NAME: &str = "sizes.json";

/// The options of [`export`].
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The readers to write indexes for.
    pub readers: Vec<Consumer>,
    /// The number of shards inspected in parallel; 0 means one per core.
    pub jobs: usize,
    /// Whether existing files with other contents are replaced.
    pub replace: bool,
    /// The limits for reading files.
    pub limits: Limits,
    /// The options for accessing stores.
    pub remote: RemoteOptions,
}

/// The result of [`export`].
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Exported {
    /// The number of shards inspected.
    pub shards: u64,
    /// The number of samples in them, as the first of the readers groups them.
    pub samples: u64,
    /// The number of deleted samples among them. Other readers do not support deletions.
    #[serde(skip_serializing_if = "is_zero")]
    pub deleted_samples: u64,
    /// The files relative to the dataset, in the order in which they were written.
    pub files: Vec<String>,
}

/// Checks that a reader can read the shards it gets an index for.
pub(crate) fn check_reader(reader: Consumer, is_compressed: bool) -> Result<(), Error> {
    match reader {
        Consumer::Wids | Consumer::Dali if is_compressed => Err(Error::option_hint(
            "config-index-for",
            format!("{reader} reads shards that are not compressed"),
            "omit --compression, or the reader",
        )),
        Consumer::Wids | Consumer::Dali | Consumer::OpenClip => Ok(()),
        Consumer::Energon => Err(Error::option_hint(
            "config-index-for",
            "shardmill writes no index of energon",
            "run `energon prepare` on the shards",
        )),
        Consumer::Webdataset | Consumer::Hf => Err(Error::option_hint(
            "config-index-for",
            format!("{reader} has no index"),
            "choose from wids, dali, open_clip",
        )),
    }
}

/// Returns whether a file name can be one that [`export`] wrote next to shards with such names.
pub(crate) fn is_exported<'a>(
    name: &str,
    patterns: &[&ShardPattern],
    mut listed: impl Iterator<Item = &'a String>,
) -> bool {
    if [WIDS_NAME, OPEN_CLIP_NAME].contains(&name) {
        return true;
    }
    let Some(stem) = name.strip_suffix(".idx") else {
        return false;
    };
    let raw = format!("{stem}.tar");
    patterns.iter().any(|pattern| pattern.matches(&raw))
        || listed.any(|shard| dali_name(shard) == name)
}

/// Writes the indexes of other readers next to the tar shards of a local folder or of a prefix in a store.
///
/// Of uncompressed shards, only the headers and the bytes around them are read.
///
/// # Errors
///
/// Returns an error if a shard cannot be read or an index format cannot express it, and `Conflict` if an existing file
/// differs.
pub fn export(
    location: &Location,
    options: &ExportOptions,
    progress: &Progress,
) -> Result<Exported, Error> {
    let root = match location {
        Location::Local(path) => Location::Local(folder_of(path)),
        Location::Remote(location) => Location::Remote(prefix_of(location)),
    };
    let open = || {
        TarSet::open(
            std::slice::from_ref(location),
            &options.limits,
            &options.remote,
        )
    };
    export_to(&root, open, options, progress)
}

/// Writes the indexes of other readers for the tar files of a pattern, into the common folder of the files.
///
/// # Errors
///
/// Returns the errors of [`export`].
pub fn export_pattern(
    pattern: &TarPattern,
    options: &ExportOptions,
    progress: &Progress,
) -> Result<Exported, Error> {
    let open = || TarSet::of_pattern(pattern, &options.remote);
    export_to(pattern.folder(), open, options, progress)
}

fn export_to(
    root: &Location,
    open: impl FnOnce() -> Result<TarSet, DatasetError>,
    options: &ExportOptions,
    progress: &Progress,
) -> Result<Exported, Error> {
    // The destination is opened first, so that a missing permission is reported before shards are read.
    let destination = Destination::open(root, &options.remote, None)?;
    let set = open()?.without_deleted(&options.limits)?;
    let deleted = set.shards().iter().filter_map(|shard| {
        let stored = shard.entry()?.samples;
        Some(stored - shard.live_samples(stored))
    });
    let deleted_samples = deleted.sum();
    let target = Target::new(&destination, progress);
    progress.set_totals(0, 0, set.shards().len() as u64);
    let (exported, files) = prepare(set.shards(), options, Some(progress), progress)?;
    publish_all(target, None, &files, options.replace)?;
    Ok(Exported {
        deleted_samples,
        ..exported
    })
}

/// Returns the folder of a file, or the folder itself.
fn folder_of(path: &Path) -> PathBuf {
    let folder = match path.is_file() {
        true => path.parent().unwrap_or(path),
        false => path,
    };
    match folder.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => folder.to_owned(),
    }
}

/// Returns the prefix of an object, or the prefix itself.
fn prefix_of(location: &RemoteLocation) -> RemoteLocation {
    match location.split_name() {
        Some((folder, name)) if name == INDEX_NAME || is_tar_name(name) => folder,
        _ => location.clone(),
    }
}

/// The name of a file, and its contents.
type NewFile = (String, Vec<u8>);

/// Returns the indexes for shards that a conversion has just published in a folder of its destination, by path.
pub(crate) fn prepare_index(
    target: Target<'_>,
    folder: &str,
    index: &DatasetIndex,
    options: &ConvertOptions,
    progress: &Progress,
) -> Result<Vec<NewFile>, Error> {
    let mut root = Folder::open(&target.destination.location(), &options.source.remote)?;
    if !folder.is_empty() {
        root = root.open_folder(folder)?;
    }
    let entries = index.entries.iter().filter_map(IndexEntry::tar).cloned();
    let shards: Vec<TarFile> = entries
        .map(|entry| TarFile::of_entry(&root, entry))
        .collect();
    let options = ExportOptions {
        readers: options.shards.tar.readers().to_vec(),
        jobs: options.source.resources.jobs,
        replace: true,
        limits: options.source.limits.clone(),
        remote: options.source.remote.clone(),
    };
    // Reading the shards again does not count as progress of the conversion.
    let (_, files) = prepare(&shards, &options, None, progress)?;
    let files = files.into_iter();
    Ok(files
        .map(|(name, bytes)| (in_folder(folder, &name), bytes))
        .collect())
}

/// Publishes the indexes beside a finished dataset if one of them is missing, because a run was killed before it wrote
/// them.
pub(crate) fn complete(
    target: Target<'_>,
    folder: &str,
    index: &DatasetIndex,
    options: &ConvertOptions,
    progress: &Progress,
) -> Result<(), Error> {
    let mut names = Vec::new();
    for reader in options.shards.tar.readers() {
        match reader {
            Consumer::Wids => names.push(in_folder(folder, WIDS_NAME)),
            Consumer::OpenClip => names.push(in_folder(folder, OPEN_CLIP_NAME)),
            Consumer::Dali => {
                let shards = index.entries.iter().filter_map(IndexEntry::tar);
                let name = |shard: &IndexShard| dali_name(&shard.stored().basename);
                names.extend(shards.map(|shard| in_folder(folder, &name(shard))));
            }
            Consumer::Webdataset | Consumer::Hf | Consumer::Energon => {}
        }
    }
    let jobs = options.source.resources.jobs;
    let is_there = target.for_each(&names, jobs, |name| target.file_version(name))?;
    let missing: BTreeSet<&String> = (names.iter().zip(is_there))
        .filter_map(|(name, found)| found.is_none().then_some(name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut files = prepare_index(target, folder, index, options, progress)?;
    files.retain(|(name, _)| missing.contains(name));
    publish_all(target, None, &files, false)
}

/// The samples of a shard, as each of the readers groups them.
type Grouped = Vec<(Consumer, Vec<SampleEntry>)>;

/// The data of one shard that the indexes need.
struct Described {
    name: String,
    bytes: u64,
    md5: Option<String>,
    grouped: Grouped,
}

impl Described {
    fn samples(&self, reader: Consumer) -> &[SampleEntry] {
        let found = self.grouped.iter().find(|(one, _)| *one == reader);
        found.map_or(&[], |(_, samples)| samples)
    }

    fn sidecar(&self, reader: Consumer) -> SidecarShard<'_> {
        SidecarShard {
            name: &self.name,
            bytes: self.bytes,
            md5: self.md5.as_deref(),
            samples: self.samples(reader),
        }
    }
}

/// Returns the number of samples that the first of the readers finds.
fn count(grouped: &[(Consumer, Vec<SampleEntry>)]) -> u64 {
    let first = grouped.first();
    first.map_or(0, |(_, samples)| samples.len() as u64)
}

/// Returns the indexes for shards by name, and their report.
fn prepare(
    shards: &[TarFile],
    options: &ExportOptions,
    shown: Option<&Progress>,
    progress: &Progress,
) -> Result<(Exported, Vec<NewFile>), Error> {
    let mut described: Vec<Described> = Vec::with_capacity(shards.len());
    let mut dali: Vec<(String, Vec<u8>)> = Vec::new();
    let work = |at: usize, (): &mut ()| {
        if progress.is_cancelled() {
            return Ok(());
        }
        // INVARIANT: the loops count up to the number of shards and files.
        let shard = &shards[at];
        let is_compressed = shard.compression()?.is_some();
        let mut readers = options.readers.iter();
        readers.try_for_each(|reader| {
            check_reader(*reader, is_compressed).map_err(|error| located(error, shard))
        })
    };
    parallel::for_each(shards.len(), options.jobs, work)?;
    let wants = |reader| options.readers.contains(&reader);
    let work = |at: usize| {
        let shard = &shards[at];
        let (survey, bytes) = shard.survey(&options.limits)?;
        let mut problem = survey.error.clone();
        let mut grouped: Grouped = Vec::new();
        for reader in &options.readers {
            if grouped.iter().any(|(one, _)| one == reader) {
                continue;
            }
            let (samples, problems) = survey.samples(*reader, &options.limits);
            problem = problem.or_else(|| problems.into_iter().next());
            grouped.push((*reader, samples));
        }
        if let Some(source) = problem {
            return Err(DatasetError::tar_file(&shard.path(), source).into());
        }
        if let Some(shown) = shown {
            shown.add_samples(count(&grouped));
            shown.add_shard(0);
        }
        Ok((grouped, bytes))
    };
    let take = |at: usize, (grouped, bytes): (Grouped, u64)| {
        let shard = &shards[at];
        let md5 = shard.entry().and_then(|entry| {
            let digest = entry.stored().hashes.get("md5".parse().ok()?)?;
            Some(digest.to_string())
        });
        let mut one = Described {
            name: shard.name().to_owned(),
            bytes,
            md5,
            grouped,
        };
        if wants(Consumer::Dali) {
            let text = dali_index(&one.sidecar(Consumer::Dali))?;
            dali.push((dali_name(shard.name()), text.into()));
        }
        // The other readers need only the number of samples.
        for sample in one.grouped.iter_mut().flat_map(|(_, samples)| samples) {
            sample.fields = Vec::new();
        }
        described.push(one);
        Ok::<_, Error>(())
    };
    each_in_order(shards.len(), options.jobs, progress, work, take)?;
    let samples = described.iter().map(|one| count(&one.grouped)).sum();
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for reader in &options.readers {
        let sidecars: Vec<SidecarShard<'_>> =
            described.iter().map(|one| one.sidecar(*reader)).collect();
        match reader {
            Consumer::Wids => {
                let text = wids_index(&sidecars, None, None);
                files.push((WIDS_NAME.to_owned(), text.into()));
            }
            Consumer::OpenClip => {
                let text = open_clip_sizes(&sidecars)?;
                files.push((OPEN_CLIP_NAME.to_owned(), text.into()));
            }
            Consumer::Dali => files.append(&mut dali),
            Consumer::Webdataset | Consumer::Hf | Consumer::Energon => {
                check_reader(*reader, false)?
            }
        }
    }
    files.dedup_by(|a, b| a.0 == b.0);
    check_names(&files)?;
    let exported = Exported {
        shards: shards.len() as u64,
        samples,
        deleted_samples: 0,
        files: files.iter().map(|(name, _)| name.clone()).collect(),
    };
    Ok((exported, files))
}

/// Checks that no two shards share a DALI index. Names that differ only after the first dot do.
fn check_names(files: &[(String, Vec<u8>)]) -> Result<(), Error> {
    let mut names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair.first() == pair.last()) {
        Some([name, ..]) => Err(Error::option_hint(
            "config-index-for",
            format!("two shards would share the index `{}`", escape(name)),
            "name the shards so that they differ before their first dot",
        )),
        _ => Ok(()),
    }
}

fn located(error: Error, shard: &TarFile) -> Error {
    let path = shard.path().display().to_string();
    let message = format!("{error}, and {} is", escape(&path));
    error.within(message)
}

/// Publishes the indexes of other readers. Temporary files are written to `temp_folder` of a local directory, or to the
/// directory itself.
pub(crate) fn publish_all(
    target: Target<'_>,
    temp_folder: Option<&str>,
    files: &[NewFile],
    replace: bool,
) -> Result<(), Error> {
    // In a local directory one thread is enough, because the disk serializes the writes.
    let jobs = target.destination.publishers();
    parallel::for_each(files.len(), jobs, |at, (): &mut ()| {
        // INVARIANT: the loop counts up to the number of files.
        let (name, bytes) = &files[at];
        publish(target, temp_folder, name, bytes, replace)
    })
}

/// Publishes the index of another reader, unless a file with the same contents exists.
pub(crate) fn publish(
    target: Target<'_>,
    temp_folder: Option<&str>,
    name: &str,
    bytes: &[u8],
    replace: bool,
) -> Result<(), Error> {
    let destination = target.destination;
    let conflict = || {
        let (reason, hint) = ("another file exists", "replace it with --force");
        conflict(destination.display(name), "index-exists", reason, hint)
    };
    let limit = bytes.len() as u64;
    if let Some(file_version) = target.file_version(name)? {
        if file_version.bytes == limit && target.read(name, limit)?.as_deref() == Some(bytes) {
            return Ok(());
        }
        if !replace {
            return Err(conflict());
        }
    }
    let mode = match replace {
        true => PublishMode::Replace,
        false => PublishMode::CreateNew,
    };
    match destination.publish_bytes(temp_folder, name, bytes, mode, &mut target.cancel()) {
        Err(StorageError::Exists { .. }) => Err(conflict()),
        published => Ok(published?),
    }
}
