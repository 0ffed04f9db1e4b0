//! Verifies datasets of MDS, JSON and XSV shards: checks each file, decodes the samples on request, and reports files that
//! the index does not list.

use std::collections::BTreeSet;

use shardmill_core::{INDEX_NAME, Progress, WORK_FOLDER};
use shardmill_mds::{
    Content, Field, FileInfo, MdsError, ShardEntry, ShardView, check_datum, decode,
};
use shardmill_storage::{Dir, Entry, EntryKind, Folder, Remote, Stored};

use crate::dataset::{Dataset, parts};
use crate::entry::Part;
use crate::error::DatasetError;
use crate::late::{COLUMNS_FOLDER, COLUMNS_NAME};
use crate::lengths::Lengths;
use crate::problem::ValueLocation;
use crate::report::{Found, Problem, ReadTotals, VerifyReport};
use crate::shard_checks::{ShardCheck, VerifyOptions, check_shards};
use crate::side_files::{Converted, PROVENANCE_NAME, RECORD_NAME, TOMBSTONES_NAME};
use crate::videos::Videos;

/// Files next to an index that the index does not list: its side files, and the work folder of a writer.
const COMPANIONS: [&str; 6] = [
    COLUMNS_NAME,
    INDEX_NAME,
    PROVENANCE_NAME,
    RECORD_NAME,
    TOMBSTONES_NAME,
    WORK_FOLDER,
];

/// Checks every file of a dataset: its existence, length, hashes, decompression and structure. With `deep`, it also
/// decodes every value, and compares the samples with those that were converted. Files that the index does not list are
/// warnings.
///
/// If a shard exists both compressed and raw, both files are checked. A file with a wrong hash is not checked further.
/// The report does not depend on the number of threads.
///
/// # Errors
///
/// Only [`DatasetError::Interrupted`]. Errors in the data, including unreadable files, are in the report.
pub fn verify(
    dataset: &Dataset,
    options: &VerifyOptions,
    progress: &Progress,
) -> Result<VerifyReport, DatasetError> {
    let entries = &dataset.index().shards;
    let shards: Vec<usize> = (0..entries.len())
        .filter(|shard| !options.live_only || dataset.samples_of(*shard) > 0)
        .collect();
    let checked_entries = || shards.iter().filter_map(|shard| entries.get(*shard));
    let bytes = checked_entries().map(stored_bytes);
    progress.set_totals(
        bytes.fold(0, u64::saturating_add),
        checked_entries().map(|entry| entry.samples).sum(),
        shards.len() as u64,
    );
    let side_files = dataset.side_files();
    let check = |found: &mut ShardCheck, memory: &mut Memory| {
        let Some(entry) = entries.get(found.shard) else {
            return Ok(());
        };
        (found.bytes, found.samples) = (stored_bytes(entry), entry.samples);
        let mut check = MdsCheck {
            dataset,
            entry,
            progress,
            deep: options.deep,
            converted: options.converted(&side_files),
            file: stored_name(entry).to_owned(),
            found,
        };
        check.run(memory)
    };
    let mut checked = check_shards(&shards, options.jobs, progress, check)?;
    checked.warnings.add(usize::MAX, unlisted(dataset));
    checked.counts.read.add(&ReadTotals {
        files: 1,
        stored_bytes: dataset.index_bytes(),
        ..ReadTotals::default()
    });
    Ok(checked.into_report(side_files, options))
}

/// Buffers that a thread reuses for each shard.
#[derive(Debug, Default)]
struct Memory {
    stored: Vec<u8>,
    data: Vec<u8>,
    meta: Vec<u8>,
}

/// The check of one shard.
struct MdsCheck<'a> {
    dataset: &'a Dataset,
    entry: &'a ShardEntry,
    progress: &'a Progress,
    deep: bool,
    /// What to compare the samples with.
    converted: Option<&'a Converted>,
    /// The file whose samples are checked.
    file: String,
    found: &'a mut ShardCheck,
}

impl MdsCheck<'_> {
    fn run(&mut self, memory: &mut Memory) -> Result<(), DatasetError> {
        let mut parts = parts(self.entry);
        let data = parts
            .next()
            .is_some_and(|part| self.part(part, &mut memory.stored, &mut memory.data));
        let meta = parts
            .next()
            .map(|part| self.part(part, &mut memory.stored, &mut memory.meta));
        if !data || meta == Some(false) {
            return Ok(());
        }
        let meta = meta.map(|_| memory.meta.as_slice());
        let Some([base, late]) = self.entry.halves() else {
            return self.samples(self.entry, &memory.data, meta);
        };
        self.samples(&base, &memory.data, None)?;
        // The content hash does not cover late columns, and their samples are the same ones.
        let (content, sound) = (self.found.content, self.found.sound_samples);
        self.converted = None;
        self.file = stored_name(&late).to_owned();
        self.samples(&late, &memory.meta, None)?;
        self.found.content = content;
        self.found.sound_samples = self.found.sound_samples.min(sound);
        Ok(())
    }

    /// Checks the structure of a raw shard, and with `deep` its samples.
    fn samples(
        &mut self,
        entry: &ShardEntry,
        data: &[u8],
        meta: Option<&[u8]>,
    ) -> Result<(), DatasetError> {
        let view = match ShardView::open(entry, data, meta, self.dataset.limits()) {
            Ok(view) => view,
            Err(source) => {
                self.shard_problem(None, source);
                return Ok(());
            }
        };
        self.found.sound_samples += view.len();
        if self.deep {
            self.decode(&view)
        } else {
            Ok(())
        }
    }

    fn location(&self, sample: Option<u64>, column: Option<&str>) -> ValueLocation {
        ValueLocation {
            sample: sample.map(|at| self.first_sample().saturating_add(at)),
            column: column.map(str::to_owned),
            ..ValueLocation::file(&self.file)
        }
    }

    fn first_sample(&self) -> u64 {
        self.dataset.stored_samples(self.found.shard).start
    }

    fn problem(&mut self, error: &DatasetError) {
        self.found.error(self.dataset.dir().path(), error);
    }

    fn shard_problem(&mut self, at: Option<u64>, source: MdsError) {
        let (location, first) = (self.location(at, None), self.first_sample());
        self.problem(&DatasetError::shard(location, first, source));
    }

    /// Checks the files of a part and stores its raw bytes in `raw`. Returns whether those bytes are valid.
    fn part(&mut self, part: Part<'_>, stored: &mut Vec<u8>, raw: &mut Vec<u8>) -> bool {
        let Some(zip) = part.zip else {
            return self.file(part.raw, self.open(part.raw), raw, true);
        };
        let (cached, zipped) = (self.open(part.raw), self.open(zip));
        let is_lost = is_missing(&zipped);
        if is_lost && cached.is_ok() {
            return self.file(part.raw, cached, raw, true);
        }
        let has_sound_copy = is_missing(&cached) || self.file(part.raw, cached, stored, false);
        // Of a raw file alone, the error is already reported.
        if is_lost && !has_sound_copy || !self.file(zip, zipped, stored, false) {
            return false;
        }
        // Frees the raw bytes of the previous shard before decompressing this one.
        *raw = Vec::new();
        let location = || ValueLocation::file(&zip.basename);
        match part.unpack(stored, location, self.dataset.limits()) {
            Ok(bytes) => *raw = bytes,
            Err(error) => {
                self.problem(&error);
                return false;
            }
        }
        self.found.read.raw_bytes += raw.len() as u64;
        self.found.hashes(&zip.basename, part.raw, raw, true)
    }

    fn open(&self, info: &FileInfo) -> Result<Stored, DatasetError> {
        self.dataset.open_part(self.found.shard, self.entry, info)
    }

    /// Reads a file that was opened and checks its hashes. Returns whether its bytes are valid.
    fn file(
        &mut self,
        info: &FileInfo,
        opened: Result<Stored, DatasetError>,
        bytes: &mut Vec<u8>,
        is_raw: bool,
    ) -> bool {
        let read = opened.and_then(|file| self.dataset.read_into(&file, bytes));
        if let Err(error) = read {
            self.problem(&error);
            return false;
        }
        self.found.read.files += 1;
        self.found.read.stored_bytes += info.bytes;
        if is_raw {
            self.found.read.raw_bytes += info.bytes;
        }
        self.found.hashes(&info.basename, info, bytes, false)
    }

    fn decode(&mut self, view: &ShardView<'_>) -> Result<(), DatasetError> {
        /// Often enough to stop within a moment.
        const CANCEL_CHECK_INTERVAL: u64 = 1024;

        let mut fields = Vec::new();
        let first = self.first_sample();
        let converted = self.converted;
        let counts = converted.map(|c| c.counts(first..first.saturating_add(view.len())));
        let mut content = counts.as_ref().map(|_| Content::default());
        for at in 0..view.len() {
            if at % CANCEL_CHECK_INTERVAL == 0 {
                DatasetError::check_cancelled(self.progress)?;
            }
            let outcome = if view.config().mds_columns().is_some() {
                self.fields(view, at, &mut fields)
            } else {
                view.values(at).map(drop)
            };
            if let Err(source) = outcome {
                self.shard_problem(Some(at), source);
            }
            // PERF: the sample was just decoded, so its bytes are in the CPU cache.
            if counts
                .as_ref()
                .is_some_and(|counts| counts(first.saturating_add(at)))
            {
                content = content
                    .zip(view.sample(at).ok())
                    .map(|(sum, sample)| sum.with(Content::of(sample)));
            }
        }
        self.found.content = content;
        Ok(())
    }

    fn fields<'v>(
        &mut self,
        view: &ShardView<'v>,
        at: u64,
        fields: &mut Vec<Field<'v>>,
    ) -> Result<(), MdsError> {
        let dataset = self.dataset;
        view.fields_into(at, fields)?;
        for field in fields {
            let Err(strict) = check_datum(field.encoding, field.datum, dataset.limits()) else {
                continue;
            };
            let location = self.location(Some(at), Some(field.name));
            match decode(field.encoding, field.datum, dataset.limits()) {
                Err(source) => self.problem(&DatasetError::value(location, source)),
                // COMPAT: MosaicML Streaming stores bytes unchanged, whatever the column declares. A PNG in a `jpeg`
                // column is therefore common, and all readers accept it.
                Ok(_) => {
                    let error = DatasetError::value(location, strict);
                    let (root, shard) = (dataset.dir().path(), self.found.shard);
                    let warning = || Problem::new(&error, root, shard);
                    self.found.warnings.push(warning);
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a file of a shard does not exist.
fn is_missing(opened: &Result<Stored, DatasetError>) -> bool {
    let error = opened.as_ref().err();
    error.is_some_and(DatasetError::is_shard_missing)
}

/// Returns the bytes of the files that the writer published.
fn stored_bytes(entry: &ShardEntry) -> u64 {
    parts(entry).fold(0, |sum, part| sum.saturating_add(part.stored().bytes))
}

fn stored_name(entry: &ShardEntry) -> &str {
    parts(entry)
        .next()
        .map_or("", |part| &part.stored().basename)
}

/// Finds files in the folders of the shards that the index does not list.
fn unlisted(dataset: &Dataset) -> Found {
    let mut listed: Vec<&str> = dataset
        .index()
        .shards
        .iter()
        .flat_map(parts)
        .flat_map(|part| [Some(part.raw), part.zip])
        .flatten()
        .map(|info| &*info.basename)
        .collect();
    listed.sort_unstable();
    let folders: BTreeSet<&str> = listed
        .iter()
        .map(|name| name.rsplit_once('/').map_or("", |(folder, _)| folder))
        .chain([""])
        .collect();
    let mut present: Vec<(String, EntryKind)> = Vec::new();
    match dataset.dir() {
        Folder::Local(dir) => {
            let late = late_folders(dir);
            let late = late.iter().map(String::as_str);
            for folder in late.chain(folders.iter().copied()).collect::<BTreeSet<_>>() {
                // If a folder cannot be opened, errors of all its shards are already reported.
                let entries = match folder {
                    "" => dir.entries(),
                    folder => dir.open_dir(folder).and_then(|dir: Dir| dir.entries()),
                };
                let start = if folder.is_empty() { "" } else { "/" };
                for Entry { name, kind } in entries.unwrap_or_default() {
                    if kind != EntryKind::Directory {
                        let name = name.to_string_lossy();
                        present.push((format!("{folder}{start}{name}"), kind));
                    }
                }
            }
        }
        folder => {
            // One listing has the names of all folders. A store that cannot list has no findings.
            let names = folder.all_names(Remote::MAX_LISTED).ok().flatten();
            let names = names.unwrap_or_default().into_iter();
            present.extend(names.map(|name| (name, EntryKind::File)));
        }
    }
    let index = dataset.index_path().file_name();
    let index = index.map(|name| name.to_string_lossy());
    // With a list of late columns, the shards of an earlier list may stay for running readers.
    let has_list = present.iter().any(|(name, _)| name == COLUMNS_NAME);
    let mut found = Found::default();
    for (full, kind) in present {
        let (folder, name) = full.rsplit_once('/').unwrap_or(("", &full));
        let is_known = (folder.is_empty() && index.as_deref() == Some(name))
            || COMPANIONS.contains(&name)
            || Lengths::is_file_name(name)
            || Videos::is_file_name(name)
            || listed.binary_search(&full.as_str()).is_ok();
        let is_orphan = !has_list && is_late_folder(folder);
        if (folders.contains(folder) || is_orphan) && !is_known {
            let text = || format!("the index does not name this {kind}");
            found.push(|| Problem::corrupt("file-unlisted", &full, text()));
        }
    }
    found
}

/// Returns the folders of late columns in a directory.
fn late_folders(dir: &Dir) -> Vec<String> {
    // Without a folder of this name there are none.
    let entries = dir.open_dir(COLUMNS_FOLDER).and_then(|late| late.entries());
    let entries = entries.unwrap_or_default().into_iter();
    let folders = entries.filter(|entry| entry.kind == EntryKind::Directory);
    folders
        .map(|entry| format!("{COLUMNS_FOLDER}/{}", entry.name.to_string_lossy()))
        .filter(|name| is_late_folder(name))
        .collect()
}

/// Returns whether a folder is one of late columns: a hash in their common folder.
fn is_late_folder(name: &str) -> bool {
    let hash = name
        .strip_prefix(COLUMNS_FOLDER)
        .and_then(|rest| rest.strip_prefix('/'));
    hash.is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
