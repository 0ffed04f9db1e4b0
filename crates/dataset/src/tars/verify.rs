//! Verifies tar shards by reading every byte.

use std::collections::{BTreeSet, BinaryHeap};
use std::sync::{Mutex, PoisonError};

use shardmill_core::{Diagnostic, Limits, Progress, escape, lock};
use shardmill_webdataset::{
    Consumer, Content, FieldKind, FieldSet, FieldSets, FileInfo, SampleEntry, Severity, ShardFacts,
    Survey, TarCompression, WebdatasetError, content_of_numbered, decode, decompress, inflate,
    lint, read_offsets,
};

use super::file::TarFile;
use super::repeated::{RepeatedKey, RepeatedKeys};
use super::set::TarSet;
use crate::error::DatasetError;
use crate::live::starts_of;
use crate::problem::ValueLocation;
use crate::report::{Found, MAX_FINDINGS, Problem, ReadTotals, VerifyReport};
use crate::shard_checks::{Checked, ShardCheck, VerifyOptions, check_shards};
use crate::side_files::{Converted, SideFiles};

/// Checks every tar file: its existence, length, hashes and decompression, whether the archive is complete and
/// unambiguous, and whether its samples and offsets match the index. With `deep`, it also decodes every field according
/// to its extension, and compares the samples with those that were converted.
///
/// Where [`readers`](VerifyOptions::readers) are named, what they or others would change, skip or refuse is a warning or a
/// problem, as a lint finds it.
///
/// A key in two shards is a problem, because a lookup by key finds only one of the samples. Keys are compared in
/// bounded memory: see [`RepeatedKeys`].
///
/// # Errors
///
/// [`DatasetError::Interrupted`], and errors of the temporary file for keys. Errors in the data, including unreadable
/// files, are in the report.
pub fn verify_tars(
    set: &TarSet,
    options: &VerifyOptions,
    limits: &Limits,
    progress: &Progress,
) -> Result<VerifyReport, DatasetError> {
    let shards = set.shards();
    let declared = |shard: &TarFile| shard.entry().map_or(0, |entry| entry.samples);
    let starts = starts_of(shards.iter().map(declared));
    let (mut numbers, mut bytes) = (Vec::new(), 0_u64);
    for (number, shard) in shards.iter().enumerate() {
        if !options.live_only || shard.has_live() {
            numbers.push(number);
            bytes = bytes.saturating_add(shard.open().map_or(0, |file| file.len()));
        }
    }
    progress.set_totals(bytes, 0, numbers.len() as u64);
    let side_files = side_files(set, limits);
    let converted = options.converted(&side_files);
    let all = Mutex::new(AllShards {
        keys: RepeatedKeys::default(),
        fields: (!options.readers.is_empty()).then(FieldSets::default),
        sound: vec![0; shards.len()],
    });
    let check = |found: &mut ShardCheck, (): &mut ()| {
        let number = found.shard;
        let Some(shard) = shards.get(number) else {
            return Ok(());
        };
        let mut check = TarCheck {
            shard,
            limits,
            options,
            converted: converted.zip(starts.get(number).copied()),
            found,
        };
        let samples = check.run().unwrap_or_else(|error| {
            check.error(&error);
            Vec::new()
        });
        // If a shard could not be read, the index tells how many samples are lost.
        let declared = shard.entry().map(|entry| entry.samples);
        found.samples = declared.unwrap_or(samples.len() as u64);
        found.bytes = found.read.stored_bytes;
        if found.problems.count == 0 {
            found.sound_samples = samples.len() as u64;
        }
        let mut all = lock(&all);
        for (at, sample) in (0..).zip(&samples) {
            all.keys.push(&sample.key, number, at)?;
        }
        if let Some(fields) = &mut all.fields {
            fields.add(number, &samples);
        }
        if let Some(sound) = all.sound.get_mut(number) {
            *sound = found.sound_samples;
        }
        Ok(())
    };
    let mut checked = check_shards(&numbers, options.jobs, progress, check)?;
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    report_repeated(all.keys, set, &starts, all.sound, &mut checked)?;
    let of_all = all.fields.iter();
    let of_all = of_all.flat_map(|fields| fields.findings(checked.counts.samples));
    let of_all = of_all.map(|finding| Problem::corrupt(finding.id, "", finding.text));
    checked.warnings.add(usize::MAX, of_all.collect());
    checked.counts.read.add(&ReadTotals {
        files: set.indexes().len() as u64,
        stored_bytes: set.indexes().iter().map(|index| index.bytes).sum(),
        ..ReadTotals::default()
    });
    Ok(checked.into_report(side_files, options))
}

/// Reports the keys that several shards contain: one problem per key for each shard but the first. `sound` holds the
/// number of samples of each shard without a problem.
fn report_repeated(
    keys: RepeatedKeys,
    set: &TarSet,
    starts: &[u64],
    mut sound: Vec<u64>,
    checked: &mut Checked,
) -> Result<(), DatasetError> {
    // A heap of bounded size keeps the first findings in the order of the shards; its top is the last of them.
    let mut listed: BinaryHeap<RepeatedKey> = BinaryHeap::new();
    let mut count = 0_u64;
    keys.finish(|found| {
        count = count.saturating_add(1);
        let sound = sound.get_mut(found.shard).map(std::mem::take);
        if let Some(samples) = sound.filter(|samples| *samples > 0) {
            checked.counts.damaged_shards += 1;
            checked.counts.sound_samples -= samples;
        }
        listed.push(found);
        if listed.len() > MAX_FINDINGS {
            listed.pop();
        }
    })?;
    let shards = set.shards();
    let mut problems = Found::default();
    for found in listed.into_sorted_vec() {
        let (Some(shard), Some(first)) = (shards.get(found.shard), shards.get(found.first)) else {
            continue;
        };
        let text = format!(
            "the key `{}` is also in `{}`",
            escape(&found.key),
            escape(first.name())
        );
        // Without an index, the number of samples before the shard is unknown.
        let start = starts.get(found.shard).filter(|_| shard.entry().is_some());
        problems.push(|| Problem {
            shard: Some(found.shard as u64),
            sample: start.map(|start| start.saturating_add(found.at)),
            hint: Some(
                "write one of the samples under another key: readers that find samples by key deliver one of them"
                    .to_owned(),
            ),
            ..Problem::corrupt("sample-key-twice", shard.name(), text)
        });
    }
    problems.count = count;
    checked.problems.add(usize::MAX, problems);
    Ok(())
}

/// Reads the side files, if all shards come from one index.
fn side_files(set: &TarSet, limits: &Limits) -> SideFiles {
    match set.indexes() {
        [index] if index.shards.len() == set.shards().len() => set.side_files(index, limits),
        _ => SideFiles::default(),
    }
}

/// What is compared over all shards.
struct AllShards {
    keys: RepeatedKeys,
    /// The fields of samples, if readers are named.
    fields: Option<FieldSets>,
    /// For each shard, the number of its samples if it has no problem.
    sound: Vec<u64>,
}

/// The check of one shard.
struct TarCheck<'a> {
    shard: &'a TarFile,
    limits: &'a Limits,
    options: &'a VerifyOptions,
    /// What to compare the samples with, and the stored number of the first one.
    converted: Option<(&'a Converted, u64)>,
    found: &'a mut ShardCheck,
}

impl TarCheck<'_> {
    /// Returns the samples; none if a hash is wrong.
    fn run(&mut self) -> Result<Vec<SampleEntry>, DatasetError> {
        let shard = self.shard;
        let location = || ValueLocation::file(shard.name());
        let file = shard.open()?;
        self.found.read.files += 1;
        self.found.read.stored_bytes += file.len();
        let entry = shard.entry();
        let expected = entry.map_or(file.len(), |entry| entry.stored().bytes);
        if expected != file.len() {
            self.error(&DatasetError::shard_length(
                location(),
                expected,
                file.len(),
            ));
        }
        // The checks use the same bytes: the file is read once.
        let stored = file.read_all(self.limits.shard_bytes)?;
        if entry.is_some_and(|entry| !self.has_hashes(entry.stored(), &stored, false)) {
            return Ok(Vec::new());
        }
        let compression = TarCompression::sniff(&stored);
        let raw = if compression.is_some() {
            let raw_bytes = entry.map(|entry| entry.raw_data.bytes);
            let raw = decompress(&stored, raw_bytes, self.limits)
                .map_err(|source| DatasetError::decompress(location(), source))?;
            if entry.is_some_and(|entry| !self.has_hashes(&entry.raw_data, &raw, true)) {
                return Ok(Vec::new());
            }
            raw
        } else {
            stored
        };
        self.found.read.raw_bytes += raw.len() as u64;
        let survey = Survey::of(&raw, self.limits);
        let (samples, _) = survey.samples(Consumer::Webdataset, self.limits);
        self.check_sizes(&samples);
        if survey.is_complete() {
            self.index(&survey, &samples);
        }
        if self.options.deep {
            self.fields(&raw, &samples);
        }
        if let Some((converted, first)) = self.converted
            && survey.is_complete()
        {
            self.found.content = content(&raw, &samples, survey.end, converted, first);
        }
        let name = shard.name();
        let facts = ShardFacts {
            name,
            compression,
            is_first: self.found.shard == 0,
        };
        let shard = Some(self.found.shard as u64);
        for finding in lint(&survey, &facts, &self.options.readers, self.limits) {
            let list = match finding.severity {
                Severity::Error => &mut self.found.problems,
                Severity::Warning if self.options.readers.is_empty() => continue,
                Severity::Warning => &mut self.found.warnings,
            };
            list.push(|| Problem {
                shard,
                ..Problem::corrupt(finding.id, name, finding.text)
            });
        }
        Ok(samples)
    }

    /// Checks the hashes of a file against the index. A file with other hashes is not checked further.
    fn has_hashes(&mut self, file: &FileInfo, bytes: &[u8], raw: bool) -> bool {
        self.found.hashes(&file.basename, file, bytes, raw)
    }

    /// Reports samples that are larger than the limit.
    fn check_sizes(&mut self, samples: &[SampleEntry]) {
        for sample in samples {
            let checked = Limits::check(
                "sample-bytes",
                sample.content_bytes(),
                self.limits.sample_bytes,
            );
            if let Err(problem) = checked {
                let error = WebdatasetError::MemberLimit {
                    offset: sample.begin,
                    problem,
                };
                self.push(self.shard.name(), error.id(), error.to_string());
            }
        }
    }

    /// Compares the shard with its index entry.
    fn index(&mut self, survey: &Survey, samples: &[SampleEntry]) {
        let Some(entry) = self.shard.entry() else {
            return;
        };
        if entry.samples != samples.len() as u64 {
            let text = format!(
                "it has {} samples, the index says {}",
                samples.len(),
                entry.samples
            );
            self.push(self.shard.name(), "shard-samples", text);
        }
        let fields = FieldSet::of(samples);
        if fields != *entry.fields {
            let names = |set: &FieldSet| {
                let all: BTreeSet<&str> = set
                    .always
                    .iter()
                    .chain(&set.sometimes)
                    .map(|n| &**n)
                    .collect();
                all.into_iter().collect::<Vec<_>>().join(", ")
            };
            let text = format!(
                "its fields are {}, the index says {} (or says otherwise which of them every sample has)",
                names(&fields),
                names(&entry.fields)
            );
            self.push(self.shard.name(), "shard-fields", text);
        }
        let Some(offsets) = &entry.offsets else {
            return;
        };
        let file = self.shard.open_beside(&offsets.basename);
        let read = file.and_then(|file| file.read_all(self.limits.index_bytes));
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => return self.error(&error.into()),
        };
        self.found.read.files += 1;
        self.found.read.stored_bytes += bytes.len() as u64;
        if !self.has_hashes(offsets, &bytes, false) {
            return;
        }
        let expected: Vec<u64> = samples
            .iter()
            .map(|sample| sample.begin)
            .chain(survey.end)
            .collect();
        match read_offsets(&bytes, entry.samples) {
            Ok(found) if found == expected => {}
            Ok(found) => {
                let sample = found
                    .iter()
                    .zip(&expected)
                    .take_while(|(a, b)| a == b)
                    .count();
                let text = format!("the offset of sample {sample} is not where the sample is");
                self.push(&offsets.basename, "tar-offsets", text);
            }
            Err(error) => self.push(&offsets.basename, error.id(), error.to_string()),
        }
    }

    /// Decodes every field whose format is known.
    fn fields(&mut self, raw: &[u8], samples: &[SampleEntry]) {
        for sample in samples {
            for field in &sample.fields {
                let bytes = usize::try_from(field.offset)
                    .ok()
                    .zip(usize::try_from(field.bytes).ok())
                    .and_then(|(at, bytes)| raw.get(at..)?.get(..bytes));
                let Some(bytes) = bytes else {
                    continue;
                };
                if FieldKind::of(&field.name).0 == FieldKind::Pickle {
                    continue;
                }
                let decoded = inflate(&field.name, bytes, self.limits)
                    .and_then(|bytes| decode(&field.name, &bytes, self.limits).map(drop));
                if let Err(error) = decoded {
                    let text = format!("sample `{}`: {error}", escape(&sample.key));
                    let (shard, name) = (self.found.shard as u64, self.shard.name());
                    self.found.problems.push(|| Problem {
                        shard: Some(shard),
                        column: Some(field.name.to_string()),
                        ..Problem::corrupt(error.id(), name, text)
                    });
                }
            }
        }
    }

    fn push(&mut self, name: &str, id: &'static str, text: String) {
        let shard = Some(self.found.shard as u64);
        self.found.problems.push(|| Problem {
            shard,
            ..Problem::corrupt(id, name, text)
        });
    }

    fn error(&mut self, error: &DatasetError) {
        self.found.error(self.shard.root(), error);
    }
}

/// Returns the content hash of the samples of a shard. Each sample extends from its first header to that of the next
/// one, as it was written.
fn content(
    raw: &[u8],
    samples: &[SampleEntry],
    end: Option<u64>,
    converted: &Converted,
    first: u64,
) -> Option<Content> {
    let numbers = first..first.saturating_add(samples.len() as u64);
    let counts = converted.counts(numbers.clone());
    let ends = samples.iter().skip(1).map(|sample| Some(sample.begin));
    let mut memory = Vec::new();
    let mut sum = Content::default();
    for ((sample, end), number) in samples.iter().zip(ends.chain([end])).zip(numbers) {
        if !counts(number) {
            continue;
        }
        let begin = usize::try_from(sample.begin).ok()?;
        let bytes = raw.get(begin..usize::try_from(end?).ok()?)?;
        sum = sum.with(match converted.has_numbers {
            true => content_of_numbered(bytes, sample.key.len(), &mut memory),
            false => Content::of(bytes),
        });
    }
    Some(sum)
}
