//! Doing what was planned.

use std::path::Path;
use std::time::{Duration, Instant};

use shardmill_core::{Diagnostic as _, ErrorKind, Limits, Progress};
use shardmill_reader::{PENDING_NAME, PROVENANCE_NAME, RECORD_NAME};
use shardmill_storage::{Dir, Place, PlaceLease, PublishMode, StorageError, TempFile};
use shardmill_writer::{
    Base, DatasetIndex, Output, PipelineError, Resources, TarKeys, Written, publish_index,
};

use crate::dest::{self, Dest};
use crate::error::ConvertError;
use crate::export;
use crate::increment;
use crate::input::SourceInput;
use crate::journal::{Found, Journal, LEASE_NAME, OF_PARTS, WORK_FOLDER};
use crate::options::ConvertOptions;
use crate::parts;
use crate::plan::{ConvertPlan, is_resumable};
use crate::provenance::{in_folder, provenance};
use crate::report::{ConvertReport, Outcome, SplitReport};
use crate::target::Target;

/// Memory for encoded samples when shards have no size limit.
const UNLIMITED_SHARD_BYTES: u64 = 64 << 20;

/// Runs a plan to its end. Shards appear under their names when they are complete and on the disk; the dataset
/// exists from the moment its index does, which is the last act. Of a conversion in parts, one part is made, which
/// [`commit`](crate::commit) publishes.
///
/// Interrupted by `progress.cancel()`, a signal or a full disk, the same plan run again goes on with the
/// shards that are complete and ends with the same bytes. After an error in the data the destination is left
/// as it was found.
///
/// # Errors
///
/// What reading, encoding and writing run into; `Conflict` when another writer is at work or the destination
/// has changed since it was planned; `Interrupted` after a cancellation.
pub fn run(plan: ConvertPlan, progress: &Progress) -> Result<ConvertReport, ConvertError> {
    if let Some(part) = plan.options.part {
        return parts::run_part(&plan, part, progress);
    }
    if let Some(increment) = &plan.increment {
        return increment::run(&plan, increment, progress);
    }
    let began = Instant::now();
    let description = plan.source.description();
    progress.set_totals(description.bytes, description.rows.unwrap_or(0), 0);
    let options = &plan.options;
    let state = dest::look(&plan.folders, &plan.identity, options, progress)?;
    if let Dest::Done(indexes) = state {
        let place = Place::open(&options.dest, &options.remote, options.spool())?;
        remove_leftover(Target::new(&place, progress), options)?;
        return Ok(report(
            &plan,
            &indexes,
            Outcome::AlreadyDone,
            0,
            began,
            Duration::ZERO,
        ));
    }
    let existed = options.dest.as_local().is_none_or(Path::exists);
    let place = Place::create(&options.dest, &options.remote, options.spool())?;
    let target = Target::new(&place, progress);
    let go_on = &mut target.go_on();
    let lease = PlaceLease::acquire(&place, LEASE_NAME, options.lease_patience, go_on)?;
    // Looked at again now that nobody else can change it.
    let found = match dest::look_in(target, &plan.folders, &plan.identity, options)? {
        Dest::Done(indexes) => {
            lease.remove_folder(&OF_PARTS, go_on)?;
            return Ok(report(
                &plan,
                &indexes,
                Outcome::AlreadyDone,
                0,
                began,
                Duration::ZERO,
            ));
        }
        Dest::Replaceable => {
            dest::clear(target, options)?;
            target.remove(PENDING_NAME)?;
            None
        }
        Dest::Interrupted(found) => Some(found),
        Dest::Empty => None,
    };
    match convert(&plan, target, &lease, found, progress, began) {
        Ok(report) => {
            lease.remove_folder(&OF_PARTS, go_on)?;
            Ok(report)
        }
        // A store that has failed is not asked for more, and neither is one that another writer is at.
        Err(error) if is_resumable(&error) && place.as_local().is_none() => Err(error),
        Err(error) if lease.is_lost() => Err(error),
        Err(error) if is_resumable(&error) && has_shards(target, &options.limits) => Err(error),
        Err(error) => {
            // What failed would fail again, or there is nothing to go on from; and nobody has seen the shards. The
            // destination becomes what it was.
            let cleaned = dest::discard(target, &plan.folders, options)
                .and_then(|()| lease.remove_folder(&OF_PARTS, go_on));
            if let Some(dir) = place.as_local().filter(|_| cleaned.is_ok() && !existed) {
                remove_if_empty(dir);
            }
            Err(error)
        }
    }
}

/// Whether a later run has something to go on from.
fn has_shards(target: Target<'_>, limits: &Limits) -> bool {
    matches!(Found::read(target, limits), Ok(Some(found)) if found.shards() > 0)
}

/// A run that was killed in its very last act leaves its work folder beside a finished dataset.
fn remove_leftover(target: Target<'_>, options: &ConvertOptions) -> Result<(), StorageError> {
    let entries = target.entries("")?;
    if !entries.iter().any(|entry| entry.name == WORK_FOLDER) {
        return Ok(());
    }
    let go_on = &mut target.go_on();
    match PlaceLease::acquire(target.place, LEASE_NAME, options.lease_patience, go_on) {
        Ok(lease) => {
            increment::recover(target, options.limits.index_bytes)?;
            lease.remove_folder(&OF_PARTS, go_on)
        }
        // Somebody is at it.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes the directory that the run made, if nothing else came to lie in it.
fn remove_if_empty(dir: &Dir) {
    if let (Some(parent), Some(name)) = (
        dir.path().parent(),
        dir.path().file_name().and_then(|name| name.to_str()),
    ) {
        let parent = if parent.as_os_str().is_empty() {
            std::path::Path::new(".")
        } else {
            parent
        };
        // An empty directory that stays is not worth an error beside the one that is being reported.
        let _ = Dir::open(parent).and_then(|parent| parent.remove_dir(name));
    }
}

fn convert(
    plan: &ConvertPlan,
    target: Target<'_>,
    lease: &PlaceLease,
    found: Option<Found>,
    progress: &Progress,
    began: Instant,
) -> Result<ConvertReport, ConvertError> {
    let options = &plan.options;
    let resumed = found.is_some();
    remove_temporary(target)?;
    // Keys that have to be told apart are all read again.
    let forgets_keys = !matches!(
        plan.encoder.keys(),
        Some(TarKeys::Column { unique: false, .. })
    );
    // And a record wants to know what became of every unit.
    let may_start_in_the_middle =
        plan.split.is_single() && !plan.nulls.drops() && forgets_keys && !options.incremental;
    let journal = Journal::open(
        target,
        &plan.identity,
        found,
        &plan.folders,
        options.jobs,
        may_start_in_the_middle,
    )?;
    // After the journal, which tells a later run whose they are.
    for folder in plan.folders.iter().filter(|folder| !folder.is_empty()) {
        target.place.make_folder(folder)?;
    }
    let written = write(plan, target, Base::default(), &journal, progress)?;
    let outcome = if resumed {
        Outcome::Resumed {
            reused_shards: written.reused,
        }
    } else {
        Outcome::Converted
    };
    let report = report(
        plan,
        &written.indexes,
        outcome,
        written.dropped,
        began,
        written.idle,
    );
    let mut increment = None;
    for (((folder, split), index), content) in plan
        .folders
        .iter()
        .zip(&report.splits)
        .zip(&written.indexes)
        .zip(&written.contents)
    {
        if let DatasetIndex::Tar(index) = index
            && !options.tar.index_for.is_empty()
        {
            export::export_index(target, folder, index, options, progress)?;
        }
        if lease.is_lost() {
            return Err(ConvertError::Conflict {
                dest: options.dest_text(),
                reason: "another writer has taken over: this one was silent for too long"
                    .to_owned(),
                id: "other-writer",
                hint: "wait until it is done, and run it again".into(),
            });
        }
        if options.incremental {
            let record = increment::first_record(plan, &written, index);
            let text = record.to_json();
            target.publish_bytes(RECORD_NAME, text.as_bytes(), PublishMode::Replace)?;
            increment = Some(increment::report(&record));
        }
        let text = provenance(
            plan,
            split,
            Some(*content),
            Some(written.dropped),
            (increment.as_ref(), None),
        );
        let name = in_folder(folder, PROVENANCE_NAME);
        target.publish_bytes(&name, text.as_bytes(), PublishMode::Replace)?;
        let go_on = &mut target.go_on();
        publish_index(target.place, WORK_FOLDER, folder, index, go_on)?;
    }
    Ok(ConvertReport {
        elapsed_seconds: began.elapsed().as_secs_f64(),
        increment,
        ..report
    })
}

/// Reads, encodes and writes all there is to read. What is there already is `base`.
pub(crate) fn write(
    plan: &ConvertPlan,
    target: Target<'_>,
    base: Base,
    journal: &Journal,
    progress: &Progress,
) -> Result<Written, ConvertError> {
    let options = &plan.options;
    let input = SourceInput {
        source: std::sync::Arc::clone(&plan.source),
        nulls: std::sync::Arc::clone(&plan.nulls),
        split: std::sync::Arc::clone(&plan.split),
    };
    let output = Output {
        place: target.place,
        temp_folder: WORK_FOLDER,
        splits: &plan.folders,
        form: plan.form.clone(),
        samples_per_shard: options.samples_per_shard,
        at: None,
        key_prefix: "",
    };
    let resources = Resources {
        jobs: options.jobs,
        budget_bytes: budget(plan),
    };
    shardmill_writer::run(
        &input,
        &plan.encoder,
        &output,
        base,
        resources,
        journal,
        progress,
    )
    .map_err(|error| match error {
        PipelineError::Input(error) => error,
        PipelineError::Write(error) => error.into(),
    })
}

/// Temporary files of a run that was killed. Whoever made them is gone: the lease is ours.
pub(crate) fn remove_temporary(target: Target<'_>) -> Result<(), StorageError> {
    // What is made for a store has no name.
    if target.place.as_local().is_none() {
        return Ok(());
    }
    for entry in target.entries(WORK_FOLDER)? {
        if !entry.is_folder && entry.name.starts_with(TempFile::PREFIX) {
            target.remove(&in_folder(WORK_FOLDER, &entry.name))?;
        }
    }
    Ok(())
}

/// Bytes of encoded samples in memory: one shard a thread, one that is being filled, and some to read ahead.
pub(crate) fn budget(plan: &ConvertPlan) -> u64 {
    let shard = plan
        .form
        .size_limit()
        .unwrap_or(UNLIMITED_SHARD_BYTES)
        .max(1 << 20);
    let jobs = u64::try_from(plan.options.jobs).unwrap_or(1);
    let wanted = shard.saturating_mul(jobs + 1);
    // Compressed shards and the source's own buffers need about as much again.
    plan.options
        .memory_limit
        .map_or(wanted, |limit| wanted.min(limit / 2))
        .max(16 << 20)
}

pub(crate) fn report(
    plan: &ConvertPlan,
    indexes: &[DatasetIndex],
    outcome: Outcome,
    dropped_rows: u64,
    began: Instant,
    idle: Duration,
) -> ConvertReport {
    let splits = plan
        .folders
        .iter()
        .zip(indexes)
        .map(|(name, index)| SplitReport {
            name: name.clone(),
            samples: index.samples(),
            shards: index.shards(),
            raw_bytes: index.raw_bytes(),
            stored_bytes: index.stored_bytes(),
        })
        .collect();
    ConvertReport {
        outcome,
        dest: plan.options.dest_text(),
        splits,
        dropped_rows,
        deleted_samples: plan.source.description().deleted_samples,
        source_bytes: plan.source.description().bytes,
        elapsed_seconds: began.elapsed().as_secs_f64(),
        idle_seconds: idle.as_secs_f64(),
        increment: None,
    }
}
