//! Runs an increment.

use std::time::Instant;

use shardmill_core::{Error, Limits, Progress, parallel};
use shardmill_dataset::{
    Dataset, DatasetError, OpenOptions, PROVENANCE_NAME, Pending, RECORD_NAME, TOMBSTONES_NAME,
    TarSet, tombstones_note,
};
use shardmill_source::{DeltaFile, DeltaSummary};
use shardmill_storage::{Destination, DestinationLease};
use shardmill_webdataset::ShardMap;
use shardmill_writer::{
    Base, Content, DatasetIndex, DedupIndex, RowEncoder, ShardFormat, UnitSamples, Written,
    internal, interrupted,
};

use super::plan::{ExistingDataset, Increment, read};
use super::ranges::Ranges;
use super::record::{self, FileSamples, Generation, Record};
use crate::dest::forget;
use crate::error::{conflict, is_resumable};
use crate::journal::{Found, Journal};
use crate::options::ConvertOptions;
use crate::pending;
use crate::pipeline::{report, report_written, write};
use crate::plan::ConvertPlan;
use crate::provenance::{self, Provenance};
use crate::replace;
use crate::report::{ConvertReport, IncrementReport, Outcome};
use crate::target::{OF_PARTS, Target, WORK_FOLDER};

/// Brings a dataset up to date. Readers see either the old or the new index. The next run resumes a killed run, or
/// discards it if the table has changed since.
pub(crate) fn run(
    plan: &ConvertPlan,
    increment: &Increment,
    progress: &Progress,
) -> Result<ConvertReport, Error> {
    let began = Instant::now();
    let options = &plan.options;
    let destination = Destination::open(&options.dest, &options.source.remote, options.spool())?;
    let target = Target::new(&destination, progress);
    let entries = target.entries("")?;
    let is_left = entries.iter().any(|entry| entry.name == WORK_FOLDER);
    if increment.is_noted() && !is_left && increment.existing.fault.is_none() {
        return Ok(unchanged(
            plan,
            increment,
            increment.existing.record.clone(),
            began,
        ));
    }
    let cancel = &mut target.cancel();
    let lease = target.lease(options.run.lease_patience)?;
    replace::recover(target, options.source.limits.index_bytes)?;
    replace::finish(target, options.source.limits.index_bytes)?;
    // The dataset is read again while holding the lease, so no other process changes it.
    let now = match read(target, options)? {
        Some(now) if now.text == increment.existing.text => now,
        _ => {
            lease.end(cancel)?;
            return Err(changed(options, "it has changed since it was looked at"));
        }
    };
    let is_restored = match now.fault {
        None => false,
        Some(fault) if fault.is_of_tombstones() => {
            restore(target, &increment.existing.record)?;
            true
        }
        // An increment that changes the dataset rewrites its provenance.
        Some(_) if !increment.is_noted() => false,
        Some(fault) => {
            lease.end(cancel)?;
            let path = |name: &str| target.destination.display(name).into();
            return Err(fault.with_side_path(path).into());
        }
    };
    let restored = |mut report: ConvertReport| {
        if let Some(increment) = &mut report.increment {
            increment.restored_tombstones = is_restored;
        }
        report
    };
    let identity = increment.identity(&plan.identity);
    let mut found = Found::read(target, &options.source.limits)?;
    let is_other = |found: &mut Found| identity.difference(&found.header).is_some();
    if found.take_if(is_other).is_some() {
        forget(target, options)?;
    }
    if increment.is_noted() {
        lease.remove_folder(&OF_PARTS, cancel)?;
        let record = increment.existing.record.clone();
        return Ok(restored(unchanged(plan, increment, record, began)));
    }
    let mut is_published = false;
    let mut add = Addition {
        plan,
        increment,
        target,
        lease: &lease,
        is_published: &mut is_published,
    };
    match add.run(found, progress, began) {
        Ok(report) => {
            lease.remove_folder(&OF_PARTS, cancel)?;
            Ok(restored(report))
        }
        Err(error) if is_published || lease.is_lost() || is_resumable(&error) => Err(error),
        Err(error) => {
            // The error would occur again. No index lists the files that were written.
            let cleaned = forget(target, options);
            if cleaned.is_ok() {
                lease.remove_folder(&OF_PARTS, cancel)?;
            }
            Err(error)
        }
    }
}

fn changed(options: &ConvertOptions, reason: &str) -> Error {
    let hint = "wait until no other process writes there, and run it again";
    conflict(options.dest_text(), "other-writer", reason, hint)
}

/// Restores the list of deleted samples from the record, and updates the provenance.
fn restore(target: Target<'_>, record: &Record) -> Result<(), Error> {
    let text = record.tombstones_json();
    target.publish(TOMBSTONES_NAME, text.as_bytes())?;
    let Some(serde_json::Value::Object(mut side)) = provenance::read(target, "") else {
        return Ok(());
    };
    let note = tombstones_note(text.as_bytes(), record.tombstones.len());
    side.insert("tombstones".to_owned(), note);
    let text = provenance::text_of(&serde_json::Value::Object(side));
    target.publish(PROVENANCE_NAME, text.as_bytes())?;
    Ok(target.destination.sync()?)
}

/// Returns the report of a run that found no new and no deleted samples.
fn unchanged(
    plan: &ConvertPlan,
    increment: &Increment,
    record: Record,
    began: Instant,
) -> ConvertReport {
    let indexes = [increment.existing.index.clone()];
    ConvertReport {
        increment: Some(IncrementReport {
            from_version: Some(increment.existing.record.version()),
            added_samples: 0,
            added_shards: 0,
            tombstones: 0,
            ..record.report()
        }),
        ..report(plan, &indexes, Outcome::AlreadyDone, began)
    }
}

/// Returns the record of a newly written dataset.
pub(crate) fn first_record(plan: &ConvertPlan, written: &Written, index: &DatasetIndex) -> Record {
    let delta = plan.source.description().delta.as_ref();
    let table = delta.map_or("", |delta| delta.id.as_str());
    let config = plan.identity.config.clone();
    let mut record = Record::new(table, config, &plan.identity.config_fingerprint);
    let content = written.contents.first().copied().unwrap_or_default();
    add_generation(&mut record, plan, index, 0, content);
    record.all_file_samples = samples_by_file(plan, written);
    record
}

/// Returns the samples of each file that was read.
fn samples_by_file(plan: &ConvertPlan, written: &Written) -> Vec<FileSamples> {
    let delta = plan.source.description().delta.as_ref();
    let files: &[DeltaFile] = delta.map_or(&[], |delta| &delta.files);
    let units = written.units.first().into_iter().flatten();
    let by_file = units.filter_map(|(unit, samples): (&usize, &UnitSamples)| {
        Some((plan.source.units().get(*unit)?.file?, samples))
    });
    record::all_file_samples(files, by_file)
}

fn add_generation(
    record: &mut Record,
    plan: &ConvertPlan,
    index: &DatasetIndex,
    tombstones: u64,
    content: Content,
) {
    let delta = plan.source.description().delta.as_ref();
    record.generations.push(Generation {
        version: delta.map_or(0, |delta| delta.version),
        timestamp: delta.and_then(DeltaSummary::timestamp),
        samples: index.samples(),
        shards: index.shards(),
        tombstones,
        content: content.to_string(),
    });
    record.index = Pending::hash(index.to_json().as_bytes());
}

struct Addition<'a> {
    plan: &'a ConvertPlan,
    increment: &'a Increment,
    target: Target<'a>,
    lease: &'a DestinationLease,
    is_published: &'a mut bool,
}

impl Addition<'_> {
    fn run(
        &mut self,
        found: Option<Found>,
        progress: &Progress,
        began: Instant,
    ) -> Result<ConvertReport, Error> {
        let (plan, target) = (self.plan, self.target);
        let (existing, step) = (&self.increment.existing, &self.increment.step);
        let is_resumed = found.is_some();
        target.remove_temporary()?;
        let identity = self.increment.identity(&plan.identity);
        let jobs = plan.options.source.resources.jobs;
        // The record needs the samples of every unit, so all units are read.
        let journal = Journal::open(target, &identity.to_json(), found, jobs, false)?;
        let dedup_index = match step.touched.is_empty() {
            true => None,
            false => {
                let contents = contents(plan, existing, &step.touched, progress)?;
                Some(DedupIndex::new(contents))
            }
        };
        let stored = existing.index.stored_files().into_iter();
        let last = plan.form.last_number(stored.map(|(name, _)| name));
        let base = Base {
            shards: existing.index.shards(),
            samples: existing.index.samples(),
            generation: last.filter(|number| *number > 0),
            dedup_index,
        };
        let written = write(plan, target, base, &journal, progress)?;
        let left = written.dedup_index.iter().flat_map(DedupIndex::left);
        let (gone_content, gone): (Vec<Content>, Vec<u64>) = left.unzip();
        let gone = Ranges::of(gone.into_iter().map(|number| number..number + 1));
        let added = written.contents.iter().copied().collect();
        let content = existing.record.content().with(added);
        let content = content.without(gone_content.into_iter().collect());
        let mut record = existing.record.clone();
        record.all_file_samples.clone_from(&step.kept);
        record
            .all_file_samples
            .extend(samples_by_file(plan, &written));
        record.tombstones = Ranges::union([&record.tombstones, &gone]);
        if gone.is_empty() && written.indexes.iter().all(|index| index.samples() == 0) {
            let delta = plan.source.description().delta.as_ref();
            let timestamp = delta.and_then(DeltaSummary::timestamp);
            record.has_seen(self.increment.version, timestamp);
            let text = record.to_json();
            target.publish(RECORD_NAME, text.as_bytes())?;
            return Ok(unchanged(plan, self.increment, record, began));
        }
        let index = self.index(&written);
        add_generation(&mut record, plan, &index, gone.len(), content);

        let indexes = [index];
        let mut report = report_written(plan, &indexes, &written, is_resumed, began);
        report.increment = Some(record.report());
        let [index] = &indexes;
        self.publish(index, &record, &report, content)?;
        report.elapsed_seconds = began.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Returns the index with the new shards after the old ones.
    fn index(&self, written: &Written) -> DatasetIndex {
        let old = self.increment.existing.index.entries.iter();
        let new = written.indexes.iter().flat_map(|index| &index.entries);
        self.plan.form.index(old.chain(new).cloned())
    }

    fn publish(
        &mut self,
        index: &DatasetIndex,
        record: &Record,
        report: &ConvertReport,
        content: Content,
    ) -> Result<(), Error> {
        let plan = self.plan;
        if self.lease.is_lost() {
            let reason = "another writer has taken over: this one was silent for too long";
            return Err(changed(&plan.options, reason));
        }
        let tombstones = record.tombstones_json();
        let side = report.splits.first().map(|split| {
            let note = tombstones_note(tombstones.as_bytes(), record.tombstones.len());
            let provenance = Provenance {
                content: Some(content),
                order: Some(provenance::order_of(index)),
                dropped_rows: Some(report.dropped_rows),
                increment: report.increment.as_ref(),
                tombstones: Some(note),
                ..plan.provenance(split)
            };
            provenance::text_of(&provenance.to_json())
        });
        let files = [
            (RECORD_NAME, Some(record.to_json())),
            (TOMBSTONES_NAME, Some(tombstones)),
            (PROVENANCE_NAME, Some(side.unwrap_or_default())),
        ];
        let text = index.to_json();
        *self.is_published = true;
        let to = plan.options.shards.to;
        Ok(pending::publish(self.target, "", to, &text, files)?)
    }
}

/// Reads samples of the dataset, and returns the content and the number of each.
fn contents(
    plan: &ConvertPlan,
    existing: &ExistingDataset,
    wanted: &Ranges,
    progress: &Progress,
) -> Result<Vec<(Content, u64)>, Error> {
    let options = &plan.options;
    let limits = &options.source.limits;
    let mut first = 0;
    let entries = &existing.index.entries;
    let shards: Vec<(usize, std::ops::Range<u64>)> = entries
        .iter()
        .enumerate()
        .map(|(number, entry)| {
            let own = first..first + entry.samples();
            first = own.end;
            (number, own)
        })
        .filter(|(_, own)| wanted.within(own).next().is_some())
        .collect();
    let samples = Shards::open(existing, options)?;
    let found = parallel::map(shards.len(), options.source.resources.jobs, |at| {
        if progress.is_cancelled() {
            return Err(interrupted(0));
        }
        // INVARIANT: `map` counts up to the number of shards.
        let (number, own) = &shards[at];
        let numbers: Vec<u64> = wanted.within(own).collect();
        let inner = numbers.iter().map(|number| number - own.start);
        let found = samples.contents(*number, inner, &plan.encoder, limits)?;
        Ok::<Vec<_>, Error>(found.into_iter().zip(numbers).collect())
    })?;
    Ok(found.concat())
}

/// The shards of the dataset, open for reading.
enum Shards {
    Streaming(Box<Dataset>),
    Tar(TarSet),
}

impl Shards {
    fn open(existing: &ExistingDataset, options: &ConvertOptions) -> Result<Self, Error> {
        match existing.index.format {
            ShardFormat::Mds => {
                let open = OpenOptions {
                    limits: options.source.limits.clone(),
                    // The record determines which samples are read.
                    with_deleted: true,
                    ..OpenOptions::default()
                };
                let dataset = Dataset::open_at(&options.dest, &open, &options.source.remote)?;
                Ok(Self::Streaming(Box::new(dataset)))
            }
            ShardFormat::Parquet => Err(internal("a plan allowed an increment of a table")),
            ShardFormat::Webdataset => {
                let dest = std::slice::from_ref(&options.dest);
                let set = TarSet::open(dest, &options.source.limits, &options.source.remote)?;
                Ok(Self::Tar(set))
            }
        }
    }

    /// Returns the content of samples of one shard.
    fn contents(
        &self,
        shard: usize,
        samples: impl Iterator<Item = u64>,
        encoder: &RowEncoder,
        limits: &Limits,
    ) -> Result<Vec<Content>, Error> {
        let memory = &mut Vec::new();
        match self {
            Self::Streaming(dataset) => {
                let shard = dataset.shard(shard)?;
                samples
                    .map(|at| Ok(encoder.content_of(shard.sample(at)?, memory)))
                    .collect()
            }
            Self::Tar(set) => {
                let file = set.shards().get(shard).ok_or_else(|| missing(shard))?;
                let data = file.load_checked(limits)?;
                let bytes = data.as_ref();
                let map = ShardMap::read(bytes, limits);
                let map = map.map_err(|source| DatasetError::tar_file(&file.path(), source))?;
                let offsets = map.offsets();
                samples
                    .map(|at| {
                        let at = usize::try_from(at).map_err(|_| missing(shard))?;
                        let ends = offsets.get(at).zip(offsets.get(at + 1));
                        let to_usize = |end: &u64| usize::try_from(*end).unwrap_or(usize::MAX);
                        let range = ends.map(|(begin, end)| to_usize(begin)..to_usize(end));
                        let sample = range.and_then(|range| bytes.get(range));
                        let sample = sample.ok_or_else(|| missing(shard))?;
                        Ok(encoder.content_of(sample, memory))
                    })
                    .collect()
            }
        }
    }
}

/// Returns the error of a shard with fewer samples than the index says.
fn missing(shard: usize) -> Error {
    let hint = "pass --overwrite to convert it again";
    let reason = "it does not hold the samples that the index says";
    conflict(format!("shard {shard}"), "dest-damaged", reason, hint)
}
