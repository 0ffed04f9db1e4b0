//! Verifies tar shards by reading every byte.

use std::collections::{BTreeSet, BinaryHeap};

use shardmill_core::{Diagnostic, Limits, Progress, escape};
use shardmill_webdataset::{
    Consumer, Content, FieldKind, FieldSet, FileInfo, Lint, SampleEntry, Severity, ShardFacts,
    Survey, TarCompression, WebdatasetError, content_of_numbered, decode, decompress, digest,
    inflate, read_offsets,
};

use super::file::TarFile;
use super::ordered::each_in_order;
use super::repeated::{RepeatedKey, RepeatedKeys};
use super::set::TarSet;
use crate::error::DatasetError;
use crate::report::{MOST_FINDINGS, Problem, ReadTotals, VerifyReport};
use crate::side_files::{Converted, SideFiles};
use crate::verify::VerifyOptions;

/// Findings that make a sample unusable for no reader: only `tar lint` reports them.
const MATTERS_OF_STYLE: [&str; 1] = ["tar-padding"];

/// Checks every tar file: its existence, length, hashes and decompression, whether the archive is complete and
/// unambiguous, and whether its samples and offsets match the index. With `deep`, it also decodes every field according
/// to its extension, and compares the samples with those that were converted.
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
    let is_checked = |shard: &&TarFile| !options.live_only || shard.has_live();
    let checked_shards = shards.iter().filter(is_checked);
    let total = checked_shards
        .clone()
        .filter_map(|shard| shard.open().ok())
        .fold(0, |sum: u64, file| sum.saturating_add(file.len()));
    let shards_checked = checked_shards.count() as u64;
    progress.set_totals(total, 0, shards_checked);
    let mut report = VerifyReport {
        shards: shards_checked,
        deep: options.deep,
        read: ReadTotals {
            files: set.indexes().len() as u64,
            stored_bytes: set.indexes().iter().map(|index| index.bytes).sum(),
            ..ReadTotals::default()
        },
        ..VerifyReport::default()
    };
    let mut lint = Lint::new([], limits);
    let mut keys = RepeatedKeys::default();
    // For each shard, the number of samples and whether it is damaged.
    let mut checked: Vec<(u64, bool)> = Vec::with_capacity(shards.len());
    let side_files = side_files(set, limits);
    let (of_all, warning) = side_files.findings(options.deep);
    let compares = options.deep && !options.live_only;
    let converted = side_files.converted.as_ref().filter(|_| compares);
    let mut content = Some(Content::default());
    let mut starts = Vec::with_capacity(shards.len());
    let mut start = 0_u64;
    for shard in shards {
        starts.push(start);
        start = start.saturating_add(shard.entry().map_or(0, |entry| entry.samples));
    }
    let work = |number: usize| {
        let Some(shard) = shards.get(number).filter(is_checked) else {
            return Ok(None);
        };
        let first = starts.get(number).copied().unwrap_or_default();
        let converted = converted.map(|converted| (converted, first));
        let looked = Looked::at(shard, number, options.deep, converted, limits);
        progress.add_input_bytes(looked.read.stored_bytes);
        progress.add_samples(looked.samples.len() as u64);
        progress.add_shard(0);
        Ok(Some((shard, looked)))
    };
    each_in_order(
        shards.len(),
        options.jobs,
        progress,
        work,
        |number, looked| {
            let Some((shard, looked)) = looked else {
                checked.push((0, false));
                return Ok(());
            };
            let Looked {
                survey,
                samples,
                problems,
                read,
                content: own,
            } = looked;
            content = content.zip(own).map(|(sum, own)| sum.with(own));
            let before = report.problem_count;
            for problem in problems {
                report.add(problem);
            }
            if let Some(survey) = survey {
                let facts = ShardFacts {
                    name: shard.name(),
                    ..ShardFacts::default()
                };
                for finding in lint.shard(&survey, &facts) {
                    let is_damage = finding.severity == Severity::Error;
                    if is_damage && !MATTERS_OF_STYLE.contains(&finding.id) {
                        report.add(described(shard.name(), number, finding.id, finding.text));
                    }
                }
            }
            for (at, sample) in samples.iter().enumerate() {
                keys.push(&sample.key, number, at as u64)?;
            }
            let found = samples.len() as u64;
            // If a shard could not be read, the index tells how many samples are lost.
            let all = shard.entry().map_or(found, |entry| entry.samples);
            report.samples = report.samples.saturating_add(all);
            report.read.add(&read);
            checked.push((found, report.problem_count > before));
            Ok(())
        },
    )?;
    repeated(keys, set, &starts, &mut checked, &mut report)?;
    for (found, is_damaged) in checked {
        match is_damaged {
            true => report.damaged_shards = report.damaged_shards.saturating_add(1),
            false => report.sound_samples = report.sound_samples.saturating_add(found),
        }
    }
    let compared = converted.map(|converted| converted.compare(content));
    let (content, differs) = compared.unzip();
    report.content = content;
    for problem in of_all.into_iter().chain(differs.flatten()) {
        report.add(problem);
    }
    warning.into_iter().for_each(|found| report.warn(found));
    Ok(report)
}

/// Reports the keys that several shards contain: one problem per key for each shard but the first.
fn repeated(
    keys: RepeatedKeys,
    set: &TarSet,
    starts: &[u64],
    checked: &mut [(u64, bool)],
    report: &mut VerifyReport,
) -> Result<(), DatasetError> {
    // A heap of bounded size keeps the first findings in the order of the shards; its top is the last of them.
    let mut listed: BinaryHeap<RepeatedKey> = BinaryHeap::new();
    let mut count = 0_u64;
    keys.finish(|found| {
        count = count.saturating_add(1);
        if let Some((_, is_damaged)) = checked.get_mut(found.shard) {
            *is_damaged = true;
        }
        listed.push(found);
        if listed.len() > MOST_FINDINGS {
            listed.pop();
        }
    })?;
    let not_listed = count.saturating_sub(listed.len() as u64);
    let shards = set.shards();
    for found in listed.into_sorted_vec() {
        let (Some(shard), Some(first)) = (shards.get(found.shard), shards.get(found.first)) else {
            continue;
        };
        let text = format!(
            "the key `{}` is also in `{}`",
            escape(&found.key),
            escape(first.name())
        );
        let mut problem = described(shard.name(), found.shard, "sample-key-twice", text);
        // Without an index, the number of samples before the shard is unknown.
        let start = starts.get(found.shard).filter(|_| shard.entry().is_some());
        problem.sample = start.map(|start| start.saturating_add(found.at));
        problem.hint = Some(
            "write one of the samples under another key: readers that find samples by key deliver one of them"
                .to_owned(),
        );
        report.add(problem);
    }
    report.problem_count = report.problem_count.saturating_add(not_listed);
    Ok(())
}

/// Reads the side files, if all shards come from one index.
fn side_files(set: &TarSet, limits: &Limits) -> SideFiles {
    match set.indexes() {
        [index] if index.shards.len() == set.shards().len() => set.side_files(index, limits),
        _ => SideFiles::default(),
    }
}

impl VerifyReport {
    fn add(&mut self, problem: Problem) {
        self.problem_count = self.problem_count.saturating_add(1);
        if self.problems.len() < MOST_FINDINGS {
            self.problems.push(problem);
        }
    }

    fn warn(&mut self, problem: Problem) {
        self.warning_count = self.warning_count.saturating_add(1);
        if self.warnings.len() < MOST_FINDINGS {
            self.warnings.push(problem);
        }
    }
}

fn described(name: &str, number: usize, id: &'static str, message: String) -> Problem {
    Problem {
        shard: Some(number as u64),
        ..Problem::corrupt(id, name, message)
    }
}

/// The result of checking one shard.
#[derive(Default)]
struct Looked {
    /// The survey of its headers, if its raw bytes could be read.
    survey: Option<Survey>,
    samples: Vec<SampleEntry>,
    problems: Vec<Problem>,
    read: ReadTotals,
    /// The content hash of its samples, if it is needed and all of them were read.
    content: Option<Content>,
}

impl Looked {
    fn at(
        shard: &TarFile,
        number: usize,
        deep: bool,
        converted: Option<(&Converted, u64)>,
        limits: &Limits,
    ) -> Self {
        let mut look = Look {
            shard,
            number,
            limits,
            looked: Self::default(),
        };
        if let Err(error) = look.run(deep, converted) {
            look.error(shard.name(), &error);
        }
        look.looked
    }
}

struct Look<'a> {
    shard: &'a TarFile,
    number: usize,
    limits: &'a Limits,
    looked: Looked,
}

impl Look<'_> {
    fn run(
        &mut self,
        deep: bool,
        converted: Option<(&Converted, u64)>,
    ) -> Result<(), DatasetError> {
        let file = self.shard.open()?;
        self.looked.read.files += 1;
        self.looked.read.stored_bytes += file.len();
        let entry = self.shard.entry();
        if let Some(entry) = entry
            && entry.stored().bytes != file.len()
        {
            self.error(
                self.shard.name(),
                &DatasetError::ShardLength {
                    place: self.shard.place(),
                    expected: entry.stored().bytes,
                    found: file.len(),
                },
            );
        }
        // The checks use the same bytes: the file is read once.
        let stored = file.read_all(self.limits.shard_bytes)?;
        if let Some(entry) = entry
            && !self.matches(entry.stored(), &stored)
        {
            return Ok(());
        }
        let raw = if TarCompression::sniff(&stored).is_some() {
            let raw_bytes = entry.map(|entry| entry.raw_data.bytes);
            let raw = decompress(&stored, raw_bytes, self.limits)
                .map_err(|source| DatasetError::decompress(self.shard.place(), source))?;
            if let Some(entry) = entry
                && !self.matches(&entry.raw_data, &raw)
            {
                return Ok(());
            }
            raw
        } else {
            stored
        };
        self.looked.read.raw_bytes += raw.len() as u64;
        let survey = Survey::of(&raw, self.limits);
        let (samples, _) = survey.samples(Consumer::Webdataset, self.limits);
        self.check_sizes(&samples);
        if survey.is_complete() {
            self.index(&survey, &samples);
        }
        if deep {
            self.fields(&raw, &samples);
        }
        if let Some((converted, first)) = converted
            && survey.is_complete()
        {
            self.looked.content = content(&raw, &samples, survey.end, converted, first);
        }
        self.looked.samples = samples;
        self.looked.survey = Some(survey);
        Ok(())
    }

    /// Checks the hashes of a file against the index. A file with other hashes is not checked further.
    fn matches(&mut self, file: &FileInfo, bytes: &[u8]) -> bool {
        let mut same = true;
        for declared in file.hashes.iter() {
            self.looked.read.hashes += 1;
            let found = digest(declared.algo(), bytes);
            if found != declared {
                let text = format!(
                    "its {} is {found}, the index says {declared}",
                    declared.algo()
                );
                self.push(&file.basename, "hash-mismatch", text);
                same = false;
            }
        }
        same
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
            Err(error) => return self.error(&offsets.basename, &error.into()),
        };
        self.looked.read.files += 1;
        self.looked.read.stored_bytes += bytes.len() as u64;
        if !self.matches(offsets, &bytes) {
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
                let place = found
                    .iter()
                    .zip(&expected)
                    .take_while(|(a, b)| a == b)
                    .count();
                let text = format!("the offset of sample {place} is not where the sample is");
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
                    let mut problem = described(self.shard.name(), self.number, error.id(), text);
                    problem.column = Some(field.name.to_string());
                    self.looked.problems.push(problem);
                }
            }
        }
    }

    fn push(&mut self, name: &str, id: &'static str, text: String) {
        let problem = described(name, self.number, id, text);
        self.looked.problems.push(problem);
    }

    fn error(&mut self, name: &str, error: &DatasetError) {
        self.looked.problems.push(Problem {
            kind: error.kind(),
            hint: error.hint(),
            ..described(name, self.number, error.id(), error.chain())
        });
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
