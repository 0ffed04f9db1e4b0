//! Writes one part of a conversion. [`commit`](crate::commit()) publishes all parts.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use serde_json::{Value, json};
use shardmill_core::{Error, Progress, Unfinished, lock};
use shardmill_storage::{CancelToken, Destination, StorageError, random_number};
use shardmill_writer::parts::{
    Manifest, ManifestBuilder, NameForm, PARTS_FOLDER, Staging, Verify, WORK_FOLDER,
};
use shardmill_writer::{
    Base, Batches, Checkpoint, DatasetIndex, FileState, INDEX_NAME, Input, Output, ShardForm,
    ShardRecord, Written, internal,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::dest;
use crate::error::conflict;
use crate::input::SourceInput;
use crate::journal::Found;
use crate::options::Part;
use crate::part_manifest::{self, AboutPart, MANIFEST, MAX_BYTES};
use crate::pipeline::{self, report, report_written};
use crate::plan::ConvertPlan;
use crate::report::{ConvertReport, Outcome, SplitReport};
use crate::target::Target;

/// Writes one part. Its shards belong to no dataset before [`commit`].
pub(crate) fn run_part(
    plan: &ConvertPlan,
    part: Part,
    progress: &Progress,
) -> Result<ConvertReport, Error> {
    let began = Instant::now();
    let options = &plan.options;
    let destination = Destination::create(&options.dest, &options.source.remote, options.spool())?;
    let target = Target::new(&destination, progress);
    if let Some(indexes) = find_finished(target, plan)? {
        return Ok(report(plan, &indexes, Outcome::AlreadyDone, began));
    }
    let names = match &plan.form {
        ShardForm::Streaming(_) => NameForm::Mds,
        ShardForm::Tar(form) => NameForm::Tar(form.pattern.clone()),
        ShardForm::Table(_) => {
            return Err(internal("a plan allowed parts of a table"));
        }
    };
    let staging = Staging::fresh(&job(plan, part.count), names)?;
    let name = format!(
        "{PARTS_FOLDER}/{}-{:05}{MANIFEST}",
        staging.job(),
        part.number
    );
    if let Some(text) = target.read(&name, MAX_BYTES)?
        && let Ok((manifest, _)) = part_manifest::parse(&text, &options.source.limits)
        && is_intact(target, &manifest, options.source.resources.jobs)?
    {
        let shards = manifest.shards.into_iter();
        let index = plan.form.index(shards.map(|shard| shard.entry));
        return Ok(report(plan, &[index], Outcome::AlreadyDone, began));
    }

    // The attempt name is unique, so two runs of the same part do not touch each other's files.
    let attempt = format!("{:016x}", random_number());
    let builder = ManifestBuilder::new(&destination, &staging, part.number, &attempt, &plan.form)?;
    let checkpoint = Gathered::default();
    let written = write(plan, part, target, &builder, &checkpoint, progress);
    let written = written.and_then(|written| {
        let mut builder = builder.clone();
        for shard in checkpoint.take().into_values() {
            builder.add(shard);
        }
        let about = AboutPart {
            parts: part.count,
            identity: plan.identity.to_json(),
            provenance: match part.number {
                // The counts are only known at the commit.
                0 => plan.provenance(&SplitReport::default()).to_json(),
                _ => Value::Null,
            },
            dropped: written.dropped,
        };
        let mut manifest = builder.finish();
        manifest.about = json!(about);
        destination.make_folder(PARTS_FOLDER)?;
        target.publish(&name, manifest.to_json().as_bytes())?;
        Ok(report_written(
            plan,
            &written.indexes,
            &written,
            false,
            began,
        ))
    });
    if written.is_err() {
        // The original error is reported. `gc` finds files that cannot be removed here.
        discard(target, &builder, &checkpoint);
    }
    written
}

/// Inspects the destination. Returns the finished dataset if there is one, or an error if something else is in the way.
fn find_finished(
    target: Target<'_>,
    plan: &ConvertPlan,
) -> Result<Option<Vec<DatasetIndex>>, Error> {
    let options = &plan.options;
    if target.file_version(INDEX_NAME)?.is_some() {
        return dest::finished(target, &plan.folders, &plan.identity, options).map(Some);
    }
    if Found::read(target, &options.source.limits)?.is_some() {
        let dest = options.dest_text();
        let hint = Unfinished::Conversion.hint(&dest);
        let reason = "it holds an interrupted conversion that is not in parts";
        return Err(conflict(dest, "dest-conflict", reason, hint));
    }
    Ok(None)
}

/// Returns the job of a conversion. It is the same for the same source, configuration and number of parts.
fn job(plan: &ConvertPlan, count: u64) -> String {
    let text = json!([
        plan.identity.config_fingerprint,
        plan.identity.source_fingerprint,
        count
    ]);
    format!("{:032x}", xxh3_128(text.to_string().as_bytes()))
}

fn write(
    plan: &ConvertPlan,
    part: Part,
    target: Target<'_>,
    builder: &ManifestBuilder,
    checkpoint: &Gathered,
    progress: &Progress,
) -> Result<Written, Error> {
    let input = PartInput::new(plan, part);
    progress.set_totals(input.bytes, 0, 0);
    if let Some(folder) = builder.folder() {
        target.destination.make_folder(folder)?;
    }
    let at = |name: &str| builder.at(name);
    let prefix = builder.key_prefix();
    let output = Output {
        temp_folder: builder.folder().unwrap_or(WORK_FOLDER),
        at: Some(&at),
        key_prefix: &prefix,
        ..pipeline::output(plan, target)
    };
    let base = Base::default();
    pipeline::write_input(plan, &input, &output, base, checkpoint, progress)
}

/// Removes the files of an attempt.
fn discard(target: Target<'_>, builder: &ManifestBuilder, checkpoint: &Gathered) {
    match (target.destination, builder.folder()) {
        (Destination::Local(dir), Some(folder)) => {
            let _ = dir.remove_all_in(folder);
            let _ = dir.remove_dir(folder);
        }
        _ => {
            let shards = checkpoint.take().into_values();
            let files = shards.flat_map(|shard| shard.files);
            let _ = target.remove_own(&files.map(|file| file.at).collect::<Vec<_>>());
        }
    }
}

/// Returns whether all files of a part are intact.
fn is_intact(target: Target<'_>, manifest: &Manifest, jobs: usize) -> Result<bool, Error> {
    let files = manifest.shards.iter().flat_map(|shard| &shard.files);
    let files: Vec<_> = files.collect();
    let states = target.for_each(&files, jobs, |file| {
        let (destination, cancel) = (target.destination, &mut target.cancel());
        file.compare(destination, &file.at, Verify::Sizes, &mut || cancel(0))
    })?;
    Ok(states.iter().all(|state| *state == FileState::Intact))
}

/// The units of one part.
struct PartInput {
    all: SourceInput,
    first: usize,
    count: usize,
    bytes: u64,
}

impl PartInput {
    /// Divides the units among the parts by size, in order. A part gets the units whose middle lies in its share.
    fn new(plan: &ConvertPlan, part: Part) -> Self {
        let all = plan.input();
        let units = plan.source.units();
        // The weight is at least 1, so that units of unknown size are divided too.
        let weight = |unit: &shardmill_source::Unit| u128::from(unit.bytes) + 1;
        let total: u128 = units.iter().map(weight).sum();
        let mut before = 0;
        let parts = units.iter().map(|unit| {
            let middle = 2 * before + weight(unit);
            before += weight(unit);
            middle * u128::from(part.count) / (2 * total).max(1)
        });
        let wanted = u128::from(part.number);
        let mut own = (units.len(), 0, 0);
        for (at, (of, unit)) in parts.zip(units).enumerate() {
            if of == wanted {
                own = (own.0.min(at), own.1 + 1, own.2 + unit.bytes);
            }
        }
        Self {
            all,
            first: own.0,
            count: own.1,
            bytes: own.2,
        }
    }
}

impl Input for PartInput {
    fn units(&self) -> usize {
        self.count
    }

    fn open(&self, unit: usize) -> Result<Box<dyn Batches>, Error> {
        self.all.open(self.first + unit)
    }

    fn row_origin(&self, unit: usize, row: u64) -> String {
        self.all.row_origin(self.first + unit, row)
    }
}

/// The shards of a part, by number.
#[derive(Default)]
struct Gathered(Mutex<BTreeMap<u64, ShardRecord>>);

impl Gathered {
    fn take(&self) -> BTreeMap<u64, ShardRecord> {
        std::mem::take(&mut *lock(&self.0))
    }
}

impl Checkpoint for Gathered {
    fn published(&self, shard: &ShardRecord, _: &mut CancelToken<'_>) -> Result<(), StorageError> {
        lock(&self.0).insert(shard.shard, shard.clone());
        Ok(())
    }
}
