//! Runs a planned conversion.

use std::path::Path;
use std::time::{Duration, Instant};

use shardmill_core::{Diagnostic as _, ErrorKind, Limits, Progress};
use shardmill_dataset::{PENDING_NAME, PROVENANCE_NAME, RECORD_NAME};
use shardmill_storage::{Dir, Place, PlaceLease, PublishMode, StorageError, TempFile};
use shardmill_writer::{Base, DatasetIndex, Output, Resources, TarKeys, Written, publish_index};

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

/// The memory for encoded samples if shards have no size limit.
const UNLIMITED_SHARD_BYTES: u64 = 64 << 20;

/// Runs a plan to its end.
///
/// Shards get their final names when they are complete and on disk. The dataset exists once its index is published,
/// which is the last step. In a conversion in parts, this writes one part; [`commit`](crate::commit) publishes all
/// parts.
///
/// If the run is interrupted by `progress.cancel()`, a signal or a full disk, running the same plan again resumes with
/// the complete shards. The result has the same bytes. After an error in the data, the destination is restored to its
/// previous state.
///
/// # Errors
///
/// - The error of reading, encoding or writing.
/// - `Conflict`: another writer is running, or the destination has changed since it was planned.
/// - `Interrupted`: the run was cancelled.
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
    // The destination is inspected again while holding the lease, so no other process changes it.
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
        // After a store error, or if another writer has the lease, no cleanup is attempted.
        Err(error) if is_resumable(&error) && place.as_local().is_none() => Err(error),
        Err(error) if lease.is_lost() => Err(error),
        Err(error) if is_resumable(&error) && has_shards(target, &options.limits) => Err(error),
        Err(error) => {
            // The error would occur again, or no shard is complete. No index lists the shards, so the destination is
            // restored.
            let cleaned = dest::discard(target, &plan.folders, options)
                .and_then(|()| lease.remove_folder(&OF_PARTS, go_on));
            if let Some(dir) = place.as_local().filter(|_| cleaned.is_ok() && !existed) {
                remove_if_empty(dir);
            }
            Err(error)
        }
    }
}

/// Returns whether a later run can resume from complete shards.
fn has_shards(target: Target<'_>, limits: &Limits) -> bool {
    matches!(Found::read(target, limits), Ok(Some(found)) if found.shards() > 0)
}

/// Removes the work folder of a run that was killed after it published the index.
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
        // Another process holds the lease.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes the directory that the run created, if it is empty.
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
        // The original error is reported, even if the directory cannot be removed.
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
    // Keys that must be unique are all read again.
    let forgets_keys = !matches!(
        plan.encoder.keys(),
        Some(TarKeys::Column { unique: false, .. })
    );
    // A record also needs the samples of every unit.
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
    // The journal is written first. A later run uses it to recognise these folders.
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

/// Reads, encodes and writes the whole source. `base` is the existing dataset.
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
}

/// Removes the temporary files of a killed run. The caller must hold the lease, so their owner is gone.
pub(crate) fn remove_temporary(target: Target<'_>) -> Result<(), StorageError> {
    // Temporary files for a store have no name.
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

/// Returns the memory for encoded samples: one shard for each thread and one that is being filled. It is at most half of
/// the memory limit, but at least 16 MiB.
pub(crate) fn budget(plan: &ConvertPlan) -> u64 {
    let shard = plan
        .form
        .size_limit()
        .unwrap_or(UNLIMITED_SHARD_BYTES)
        .max(1 << 20);
    let jobs = u64::try_from(plan.options.jobs).unwrap_or(1);
    let wanted = shard.saturating_mul(jobs + 1);
    // Compressed shards and the buffers of the source need about as much again.
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
