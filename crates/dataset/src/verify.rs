//! Verifies MDS datasets.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use shardmill_core::{INDEX_NAME, Progress, WORK_FOLDER, parallel};
use shardmill_mds::{
    Content, Field, FileInfo, MdsError, SampleValue, ShardEntry, ShardView, check_datum, decode,
    digest,
};
use shardmill_storage::{Dir, Entry, EntryKind, Folder, Remote, Stored};

use crate::dataset::{Dataset, Loader, parts};
use crate::entry::Part;
use crate::error::DatasetError;
use crate::late::COLUMNS_NAME;
use crate::lengths::Lengths;
use crate::problem::Place;
use crate::report::{Findings, Found, Problem, ReadTotals, VerifyReport};
use crate::side_files::{
    Converted, PROVENANCE_NAME, RECORD_NAME, SideFiles, TOMBSTONES_NAME, read_file,
};
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

/// Options for verifying a dataset.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// Decode every value of every sample, and compare the samples with the content hash that the conversion recorded
    /// in `index.provenance`.
    pub deep: bool,
    /// Check only the shards with live samples, for example those of a view. The samples are then not compared with the
    /// content hash, which is of all of them.
    pub live_only: bool,
    /// The number of shards to check in parallel; 0 for one per core.
    pub jobs: usize,
    /// The most bytes of shards in memory at a time, but at least one shard; `None` for as many as `jobs` need.
    pub memory_limit: Option<u64>,
}

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
    let shards: Vec<(usize, &ShardEntry)> = dataset
        .index()
        .shards
        .iter()
        .enumerate()
        .filter(|(shard, _)| !options.live_only || dataset.samples_of(*shard) > 0)
        .collect();
    let stored = |entry: &ShardEntry| {
        parts(entry).fold(0, |sum: u64, part| sum.saturating_add(part.stored().bytes))
    };
    let total = shards
        .iter()
        .fold(0, |sum: u64, (_, entry)| sum.saturating_add(stored(entry)));
    let samples = shards.iter().map(|(_, entry)| entry.samples).sum();
    progress.set_totals(total, samples, shards.len() as u64);

    let side_files = side_files(dataset);
    let (of_all, warning) = side_files.findings(options.deep);
    let collected = Mutex::new(Collected::default());
    parallel::for_each(
        shards.len(),
        affordable_jobs(dataset, options),
        |number, memory: &mut Memory| {
            let Some((shard, entry)) = shards.get(number).copied() else {
                return Ok::<_, DatasetError>(());
            };
            let mut check = ShardCheck {
                loader: Loader::new(dataset, None),
                shard,
                entry,
                progress,
                counts: VerifyReport::default(),
                problems: Found::default(),
                warnings: Found::default(),
                converted: side_files.converted.as_ref(),
                content: None,
                file: stored_name(entry).to_owned(),
            };
            check.run(memory, options.deep)?;
            let ShardCheck {
                counts,
                problems,
                warnings,
                content,
                ..
            } = check;
            let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
            collected.add(shard, &counts, problems, warnings);
            collected.content = collected.content.with(content.unwrap_or_default());
            collected.without_content |= content.is_none();
            drop(collected);
            progress.add_input_bytes(stored(entry));
            progress.add_samples(entry.samples);
            progress.add_shard(0);
            Ok(())
        },
    )?;

    let mut collected = collected
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    collected.warnings.add(usize::MAX, unlisted(dataset));
    let found = (!collected.without_content).then_some(collected.content);
    let compares = options.deep && !options.live_only;
    let converted = side_files.converted.filter(|_| compares);
    let compared = converted.map(|converted| converted.compare(found));
    let (content, differs) = compared.unzip();
    let of_all = of_all.into_iter().chain(differs.flatten());
    collected.problems.add(usize::MAX, of_all.collect());
    collected
        .warnings
        .add(usize::MAX, warning.into_iter().collect());
    let Collected {
        counts,
        problems,
        warnings,
        ..
    } = collected;
    let mut read = counts.read;
    read.add(&ReadTotals {
        files: 1,
        stored_bytes: dataset.index_bytes(),
        ..ReadTotals::default()
    });
    Ok(VerifyReport {
        shards: shards.len() as u64,
        samples,
        deep: options.deep,
        content,
        read,
        problem_count: problems.count,
        warning_count: warnings.count,
        problems: problems.into_sorted(),
        warnings: warnings.into_sorted(),
        ..counts
    })
}

/// Returns the number of threads for which the memory suffices, given the largest shard.
fn affordable_jobs(dataset: &Dataset, options: &VerifyOptions) -> usize {
    let jobs = parallel::threads(options.jobs);
    let Some(limit) = options.memory_limit else {
        return jobs;
    };
    let bytes = |part: Part<'_>| {
        part.raw
            .bytes
            .saturating_add(part.zip.map_or(0, |(zip, _)| zip.bytes))
    };
    let shard = |entry| parts(entry).fold(0, |sum: u64, part| sum.saturating_add(bytes(part)));
    let largest = dataset
        .index()
        .shards
        .iter()
        .map(shard)
        .max()
        .unwrap_or_default();
    let affordable = limit.checked_div(largest).unwrap_or(u64::MAX);
    jobs.min(usize::try_from(affordable).unwrap_or(usize::MAX))
        .max(1)
}

#[derive(Debug, Default)]
struct Collected {
    counts: VerifyReport,
    problems: Findings,
    warnings: Findings,
    content: Content,
    /// Whether the content of any shard is unknown.
    without_content: bool,
}

impl Collected {
    fn add(&mut self, shard: usize, counts: &VerifyReport, problems: Found, warnings: Found) {
        self.counts.damaged_shards += u64::from(problems.count > 0);
        self.counts.sound_samples += counts.sound_samples;
        self.counts.read.add(&counts.read);
        self.problems.add(shard, problems);
        self.warnings.add(shard, warnings);
    }
}

/// Buffers that a thread reuses for each shard.
#[derive(Debug, Default)]
struct Memory {
    stored: Vec<u8>,
    data: Vec<u8>,
    meta: Vec<u8>,
}

struct ShardCheck<'a> {
    loader: Loader<'a>,
    shard: usize,
    entry: &'a ShardEntry,
    progress: &'a Progress,
    counts: VerifyReport,
    problems: Found,
    warnings: Found,
    /// What to compare the samples with.
    converted: Option<&'a Converted>,
    /// The content hash of the samples, if all of them were read.
    content: Option<Content>,
    /// The file whose samples are checked.
    file: String,
}

impl ShardCheck<'_> {
    fn run(&mut self, memory: &mut Memory, deep: bool) -> Result<(), DatasetError> {
        self.stop_if_asked()?;
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
            return self.samples(self.entry, (&memory.data, meta), deep);
        };
        self.samples(&base, (&memory.data, None), deep)?;
        // The content hash does not cover late columns, and their samples are the same ones.
        let (content, sound) = (self.content, self.counts.sound_samples);
        self.converted = None;
        self.file = stored_name(&late).to_owned();
        self.samples(&late, (&memory.meta, None), deep)?;
        self.content = content;
        self.counts.sound_samples = self.counts.sound_samples.min(sound);
        Ok(())
    }

    /// Checks the structure of a raw shard, and with `deep` its samples.
    fn samples(
        &mut self,
        entry: &ShardEntry,
        (data, meta): (&[u8], Option<&[u8]>),
        deep: bool,
    ) -> Result<(), DatasetError> {
        let view = match ShardView::open(entry, data, meta, self.loader.dataset.limits()) {
            Ok(view) => view,
            Err(source) => {
                self.shard_problem(None, source);
                return Ok(());
            }
        };
        self.counts.sound_samples += view.len();
        if deep { self.deep(&view) } else { Ok(()) }
    }

    fn stop_if_asked(&self) -> Result<(), DatasetError> {
        if self.progress.is_cancelled() {
            Err(DatasetError::Interrupted)
        } else {
            Ok(())
        }
    }

    fn place(&self, file: &str, sample: Option<u64>, column: Option<&str>) -> Place {
        Place {
            sample: sample.map(|at| {
                let stored = self.loader.dataset.stored_samples(self.shard);
                stored.start.saturating_add(at)
            }),
            column: column.map(str::to_owned),
            ..Place::file(file)
        }
    }

    fn problem(&mut self, error: &DatasetError) {
        let root = self.loader.dataset.dir().path();
        self.problems.push(|| Problem::new(error, root, self.shard));
    }

    fn shard_problem(&mut self, at: Option<u64>, source: MdsError) {
        let place = self.place(&self.file, at, None);
        let first_sample = self.loader.dataset.stored_samples(self.shard).start;
        self.problem(&DatasetError::shard(place, first_sample, source));
    }

    /// Checks the files of a part and stores its raw bytes in `raw`. Returns whether those bytes are valid.
    fn part(&mut self, part: Part<'_>, stored: &mut Vec<u8>, raw: &mut Vec<u8>) -> bool {
        let Some((zip, packing)) = part.zip else {
            return match self.open(part.raw) {
                Ok(file) => self.read(part.raw, &file, raw, true),
                Err(error) => {
                    self.problem(&error);
                    false
                }
            };
        };
        let cached = self.open(part.raw);
        match (self.open(zip), cached) {
            (Err(DatasetError::ShardMissing { .. }), Ok(file)) => {
                self.read(part.raw, &file, raw, true)
            }
            (zipped, cached) => {
                let cache_sound = match cached {
                    Ok(file) => self.read(part.raw, &file, stored, false),
                    Err(DatasetError::ShardMissing { .. }) => true,
                    Err(error) => {
                        self.problem(&error);
                        false
                    }
                };
                let file = match zipped {
                    Ok(file) => file,
                    // Only the raw file exists, and its error is already reported.
                    Err(DatasetError::ShardMissing { .. }) if !cache_sound => return false,
                    Err(error) => {
                        self.problem(&error);
                        return false;
                    }
                };
                if !self.read(zip, &file, stored, false) {
                    return false;
                }
                // Frees the raw bytes of the previous shard before decompressing this one.
                *raw = Vec::new();
                let place = || self.place(&zip.basename, None, None);
                let limits = self.loader.dataset.limits();
                match packing.unpack(stored, part.raw.bytes, place, limits) {
                    Ok(bytes) => *raw = bytes,
                    Err(error) => {
                        self.problem(&error);
                        return false;
                    }
                }
                self.counts.read.raw_bytes =
                    self.counts.read.raw_bytes.saturating_add(raw.len() as u64);
                self.hashes(&zip.basename, part.raw, raw, true)
            }
        }
    }

    fn open(&self, info: &FileInfo) -> Result<Stored, DatasetError> {
        self.loader.open(self.shard, self.entry, info)
    }

    fn read(&mut self, info: &FileInfo, file: &Stored, bytes: &mut Vec<u8>, is_raw: bool) -> bool {
        if let Err(error) = self.loader.read_into(file, bytes) {
            self.problem(&error);
            return false;
        }
        self.counts.read.files += 1;
        self.counts.read.stored_bytes = self.counts.read.stored_bytes.saturating_add(info.bytes);
        if is_raw {
            self.counts.read.raw_bytes = self.counts.read.raw_bytes.saturating_add(info.bytes);
        }
        self.hashes(&info.basename, info, bytes, false)
    }

    fn hashes(&mut self, name: &str, info: &FileInfo, bytes: &[u8], raw: bool) -> bool {
        let mut sound = true;
        for expected in info.hashes.iter() {
            self.counts.read.hashes += 1;
            let found = digest(expected.algo(), bytes);
            let Err(source) = info.hashes.check_digest(found) else {
                continue;
            };
            sound = false;
            let place = self.place(name, None, None);
            self.problem(&DatasetError::hash(place, raw, source));
        }
        sound
    }

    fn deep(&mut self, view: &ShardView<'_>) -> Result<(), DatasetError> {
        /// Often enough to stop within a moment.
        const SAMPLES_BETWEEN_LOOKS: u64 = 1024;

        let mut fields = Vec::new();
        let first = self.loader.dataset.stored_samples(self.shard).start;
        let converted = self.converted;
        let counts = converted.map(|c| c.counts(first..first.saturating_add(view.len())));
        let mut content = counts.as_ref().map(|_| Content::default());
        for at in 0..view.len() {
            if at % SAMPLES_BETWEEN_LOOKS == 0 {
                self.stop_if_asked()?;
            }
            let outcome = if view.config().mds_columns().is_some() {
                self.fields(view, at, &mut fields)
            } else {
                self.text(view, at)
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
        self.content = content;
        Ok(())
    }

    fn text(&mut self, view: &ShardView<'_>, at: u64) -> Result<(), MdsError> {
        let values: Vec<(&str, SampleValue<'_>)> = view.values(at)?;
        drop(values);
        Ok(())
    }

    fn fields<'v>(
        &mut self,
        view: &ShardView<'v>,
        at: u64,
        fields: &mut Vec<Field<'v>>,
    ) -> Result<(), MdsError> {
        let dataset = self.loader.dataset;
        view.fields_into(at, fields)?;
        for field in fields {
            let Err(strict) = check_datum(field.encoding, field.datum, dataset.limits()) else {
                continue;
            };
            let place = self.place(&self.file, Some(at), Some(field.name));
            match decode(field.encoding, field.datum, dataset.limits()) {
                Err(source) => self.problem(&DatasetError::Value {
                    place,
                    source: Box::new(source),
                }),
                // COMPAT: MosaicML Streaming stores bytes unchanged, whatever the column declares. A PNG in a `jpeg`
                // column is therefore common, and all readers accept it.
                Ok(_) => {
                    let error = DatasetError::Value {
                        place,
                        source: Box::new(strict),
                    };
                    self.warnings
                        .push(|| Problem::new(&error, dataset.dir().path(), self.shard));
                }
            }
        }
        Ok(())
    }
}

/// Reads the side files of a dataset. An index with another name than the usual one has none.
fn side_files(dataset: &Dataset) -> SideFiles {
    if dataset
        .index_path()
        .file_name()
        .is_none_or(|name| name != INDEX_NAME)
    {
        return SideFiles::default();
    }
    let counts = (dataset.live().stored(), dataset.index().shards.len() as u64);
    let read = |name: &str, most| read_file(dataset.dir(), name, most);
    SideFiles::read(&read, counts, dataset.limits().index_bytes)
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
        .flat_map(|part| [Some(part.raw), part.zip.map(|(zip, _)| zip)])
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
            for folder in &folders {
                // If a folder cannot be opened, errors of all its shards are already reported.
                let entries = match *folder {
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
            let names = folder.all_names(Remote::LIST_MOST).ok().flatten();
            let names = names.unwrap_or_default().into_iter();
            present.extend(names.map(|name| (name, EntryKind::File)));
        }
    }
    let index = dataset.index_path().file_name();
    let index = index.map(|name| name.to_string_lossy());
    let mut found = Found::default();
    for (full, kind) in present {
        let (folder, name) = full.rsplit_once('/').unwrap_or(("", &full));
        let is_known = (folder.is_empty() && index.as_deref() == Some(name))
            || COMPANIONS.contains(&name)
            || Lengths::is_file_name(name)
            || Videos::is_file_name(name)
            || listed.binary_search(&full.as_str()).is_ok();
        if folders.contains(folder) && !is_known {
            let text = || format!("the index does not name this {kind}");
            found.push(|| Problem::corrupt("file-unlisted", &full, text()));
        }
    }
    found
}
