//! Writes the indexes of other readers next to tar shards. They are built from the headers of the shards.

use std::path::{Path, PathBuf};

use shardmill_core::{Limits, Progress, escape, parallel};
use shardmill_dataset::{DatasetError, TarFile, TarPattern, TarSet, each_in_order, is_tar_name};
use shardmill_storage::{
    Destination, Folder, Location, PublishMode, RemoteLocation, RemoteOptions, StorageError,
};
use shardmill_webdataset::sidecar::{
    SidecarShard, dali_index, dali_name, open_clip_sizes, wids_index,
};
use shardmill_webdataset::{Consumer, Index, SampleEntry};
use shardmill_writer::{INDEX_NAME, ShardPattern};

use crate::error::ConvertError;
use crate::options::ConvertOptions;
use crate::report::is_zero;
use crate::target::{Target, WORK_FOLDER, in_folder};

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
pub(crate) fn check_reader(reader: Consumer, is_compressed: bool) -> Result<(), ConvertError> {
    match reader {
        Consumer::Wids | Consumer::Dali if is_compressed => Err(ConvertError::option_hint(
            "index-for",
            format!("{reader} reads shards that are not compressed"),
            "omit --compression, or the reader",
        )),
        Consumer::Wids | Consumer::Dali | Consumer::OpenClip => Ok(()),
        Consumer::Energon => Err(ConvertError::option_hint(
            "index-for",
            "shardmill writes no index of energon",
            "run `energon prepare` on the shards",
        )),
        Consumer::Webdataset | Consumer::Hf => Err(ConvertError::option_hint(
            "index-for",
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
) -> Result<Exported, ConvertError> {
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
) -> Result<Exported, ConvertError> {
    let open = || TarSet::of_pattern(pattern, &options.remote);
    export_to(pattern.folder(), open, options, progress)
}

fn export_to(
    root: &Location,
    open: impl FnOnce() -> Result<TarSet, DatasetError>,
    options: &ExportOptions,
    progress: &Progress,
) -> Result<Exported, ConvertError> {
    // The destination is opened first, so that a missing permission is reported before shards are read.
    let destination = Destination::open(root, &options.remote, None)?;
    let set = open()?.without_deleted(&options.limits)?;
    let deleted = set.shards().iter().filter_map(|shard| {
        let stored = shard.entry()?.samples;
        Some(stored - shard.live_samples(stored))
    });
    let deleted_samples = deleted.sum();
    let side_files = SideFiles::new(Target::new(&destination, progress));
    progress.set_totals(0, 0, set.shards().len() as u64);
    let (exported, files) = prepare(set.shards(), options, Some(progress), progress)?;
    side_files.publish_all(&files, options.replace)?;
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

/// The destination of side files.
pub(crate) struct SideFiles<'a> {
    target: Target<'a>,
    /// The folder of the dataset in the root; `""` is the root itself.
    folder: &'a str,
    /// The folder for temporary files in a local directory. `None` means the directory itself.
    temp_folder: Option<&'a str>,
}

/// Returns the indexes for shards that a conversion has just published in a folder of its destination, by name.
pub(crate) fn prepare_index(
    target: Target<'_>,
    folder: &str,
    index: &Index,
    options: &ConvertOptions,
    progress: &Progress,
) -> Result<Vec<(String, Vec<u8>)>, ConvertError> {
    let mut root = Folder::open(&target.destination.location(), &options.source.remote)?;
    if !folder.is_empty() {
        root = root.open_folder(folder)?;
    }
    let entries = index.shards.iter().cloned();
    let shards: Vec<TarFile> = entries
        .map(|entry| TarFile::of_entry(&root, entry))
        .collect();
    let options = ExportOptions {
        readers: options.shards.tar.index_for.clone(),
        jobs: options.source.resources.jobs,
        replace: true,
        limits: options.source.limits.clone(),
        remote: options.source.remote.clone(),
    };
    // Reading the shards again does not count as progress of the conversion.
    let (_, files) = prepare(&shards, &options, None, progress)?;
    Ok(files)
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
) -> Result<(Exported, Vec<NewFile>), ConvertError> {
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
        let (survey, bytes) = shard.survey_with_length(&options.limits)?;
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
        Ok::<_, ConvertError>(())
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
fn check_names(files: &[(String, Vec<u8>)]) -> Result<(), ConvertError> {
    let mut names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair.first() == pair.last()) {
        Some([name, ..]) => Err(ConvertError::option_hint(
            "index-for",
            format!("two shards would share the index `{}`", escape(name)),
            "name the shards so that they differ before their first dot",
        )),
        _ => Ok(()),
    }
}

fn located(mut error: ConvertError, shard: &TarFile) -> ConvertError {
    if let ConvertError::Input { reason, .. } = &mut error {
        let path = shard.path().display().to_string();
        *reason = format!("{reason}, and {} is", escape(&path));
    }
    error
}

impl<'a> SideFiles<'a> {
    /// Creates side files directly in the root. Temporary files are written there too.
    pub(crate) const fn new(target: Target<'a>) -> Self {
        Self {
            target,
            folder: "",
            temp_folder: None,
        }
    }

    /// Creates side files in a folder of a destination whose lease the caller holds.
    pub(crate) const fn beside(target: Target<'a>, folder: &'a str) -> Self {
        Self {
            target,
            folder,
            temp_folder: Some(WORK_FOLDER),
        }
    }

    /// Publishes the indexes of other readers.
    pub(crate) fn publish_all(&self, files: &[NewFile], replace: bool) -> Result<(), ConvertError> {
        let destination = self.target.destination;
        // In a local directory one thread is enough, because the disk serializes the writes.
        parallel::for_each(files.len(), destination.publishers(), |at, (): &mut ()| {
            // INVARIANT: the loop counts up to the number of files.
            let (name, bytes) = &files[at];
            self.publish(name, bytes, replace)
        })
    }

    /// Publishes a file, unless a file with the same contents exists.
    pub(crate) fn publish(
        &self,
        name: &str,
        bytes: &[u8],
        replace: bool,
    ) -> Result<(), ConvertError> {
        let (destination, name) = (self.target.destination, &in_folder(self.folder, name));
        let conflict = || {
            let (reason, hint) = ("another file exists", "replace it with --force");
            ConvertError::conflict(destination.display(name), "index-exists", reason, hint)
        };
        let limit = bytes.len() as u64;
        if let Some(file_version) = self.target.file_version(name)? {
            if file_version.bytes == limit
                && self.target.read(name, limit)?.as_deref() == Some(bytes)
            {
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
        let cancel = &mut self.target.cancel();
        match destination.publish_bytes(self.temp_folder, name, bytes, mode, cancel) {
            Err(StorageError::Exists { .. }) => Err(conflict()),
            published => Ok(published?),
        }
    }
}
