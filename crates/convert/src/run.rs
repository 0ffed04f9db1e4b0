//! Runs a planned conversion.

use std::path::Path;
use std::time::Instant;

use serde_json::json;
use shardmill_core::{Diagnostic as _, Error, ErrorKind, Limits, Progress};
use shardmill_dataset::{PROVENANCE_NAME, RECORD_NAME};
use shardmill_storage::{Destination, DestinationLease, StorageError};
use shardmill_writer::{Base, TarKeys, interrupted, publish_index};

use crate::dataset_files::{dataset_files, holds_dataset, next_generation};
use crate::dest::{self, Dest};
use crate::error::{conflict, is_resumable};
use crate::export;
use crate::increment::{first_record, run_increment};
use crate::journal::{Found, Journal};
use crate::lengths::{LengthsOptions, write_lengths, write_videos};
use crate::options::ConvertOptions;
use crate::parts;
use crate::pipeline::{report, report_written, write};
use crate::plan::ConvertPlan;
use crate::provenance::{self, Provenance};
use crate::replace::{self, NewDataset};
use crate::report::{ConvertReport, Outcome};
use crate::target::{OF_PARTS, Target, WORK_FOLDER, in_folder, remove_if_empty, side_name};
use crate::tokens::with_lengths;

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
pub fn run(plan: ConvertPlan, progress: &Progress) -> Result<ConvertReport, Error> {
    let options = plan.options.clone();
    let columns = with_lengths(&options);
    let folders = plan.folders.clone();
    let report = run_plan(plan, progress)?;
    // These files name the index, so they follow it. A run that was killed in between, or whose dataset is complete,
    // writes the missing ones.
    let of_columns = |columns: Vec<String>| LengthsOptions {
        columns,
        jobs: options.source.resources.jobs,
        limits: options.source.limits.clone(),
        remote: options.source.remote.clone(),
    };
    let lengths = of_columns(columns);
    let videos = of_columns(options.columns.videos.clone());
    for folder in &folders {
        let location = options.dest.join(folder);
        if !lengths.columns.is_empty() {
            write_lengths(&location, &lengths, progress)?;
        }
        if !videos.columns.is_empty() {
            write_videos(&location, &videos, progress)?;
        }
    }
    Ok(report)
}

fn run_plan(plan: ConvertPlan, progress: &Progress) -> Result<ConvertReport, Error> {
    if let Some(part) = plan.options.run.part {
        return parts::run_part(&plan, part, progress);
    }
    if let Some(increment) = &plan.increment {
        return run_increment(&plan, increment, progress);
    }
    let began = Instant::now();
    let description = plan.source.description();
    progress.set_totals(description.bytes, description.rows.unwrap_or(0), 0);
    let options = &plan.options;
    let state = dest::inspect(&plan.folders, &plan.identity, options, progress)?;
    if let Dest::Done(indexes) = state {
        let destination =
            Destination::open(&options.dest, &options.source.remote, options.spool())?;
        let target = Target::new(&destination, progress);
        remove_leftover(target, options)?;
        for (folder, index) in plan.folders.iter().zip(&indexes) {
            export::complete(target, folder, index, options, progress)?;
        }
        return Ok(report(&plan, &indexes, Outcome::AlreadyDone, began));
    }
    let existed = options.dest.as_local().is_none_or(Path::exists);
    let destination = Destination::create(&options.dest, &options.source.remote, options.spool())?;
    let target = Target::new(&destination, progress);
    let cancel = &mut target.cancel();
    let lease = target.lease(options.run.lease_patience)?;
    let limits = &options.source.limits;
    if options.run.overwrite {
        replace::recover(target, limits.index_bytes)?;
    }
    // The destination is inspected again while holding the lease, so no other process changes it.
    let found = match dest::inspect_target(target, &plan.folders, &plan.identity, options)? {
        Dest::Done(indexes) => {
            lease.remove_folder(&OF_PARTS, cancel)?;
            return Ok(report(&plan, &indexes, Outcome::AlreadyDone, began));
        }
        Dest::Replaceable => {
            replace::finish(target, limits.index_bytes)?;
            match holds_dataset(target)? {
                // The dataset stays until the new one is published.
                true => dest::forget(target, options)?,
                false => dataset_files(target, options)?.remove(target)?,
            }
            None
        }
        Dest::Interrupted(found) => Some(found),
        Dest::Empty => None,
    };
    match convert(&plan, target, &lease, found, progress, began) {
        Ok(report) => {
            lease.remove_folder(&OF_PARTS, cancel)?;
            Ok(report)
        }
        // After a store error, or if another writer has the lease, no cleanup is attempted.
        Err(error) if is_resumable(&error) && destination.as_local().is_none() => Err(error),
        Err(error) if lease.is_lost() => Err(error),
        // The next run, or `gc`, removes the old files.
        Err(error)
            if !matches!(
                replace::has_published(target, limits.index_bytes),
                Ok(false)
            ) =>
        {
            Err(error)
        }
        Err(error) if is_resumable(&error) && has_shards(target, &options.source.limits) => {
            Err(error)
        }
        Err(error) => {
            // The error would occur again, or no shard is complete. No index lists the shards, so the destination is
            // restored.
            let cleaned = dest::discard(target, (&plan.folders, &plan.form), options)
                .and_then(|()| Ok(lease.remove_folder(&OF_PARTS, cancel)?));
            if let Some(dir) = destination
                .as_local()
                .filter(|_| cleaned.is_ok() && !existed)
            {
                remove_if_empty(dir.path());
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
    let cancel = &mut target.cancel();
    match target.lease(options.run.lease_patience) {
        Ok(lease) => {
            let max = options.source.limits.index_bytes;
            replace::recover(target, max)?;
            replace::finish(target, max)?;
            lease.remove_folder(&OF_PARTS, cancel)
        }
        // Another process holds the lease.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        Err(error) => Err(error),
    }
}

fn convert(
    plan: &ConvertPlan,
    target: Target<'_>,
    lease: &DestinationLease,
    found: Option<Found>,
    progress: &Progress,
    began: Instant,
) -> Result<ConvertReport, Error> {
    let options = &plan.options;
    let resumed = found.is_some();
    target.remove_temporary()?;
    if !plan.source.prepare(&|| !progress.is_cancelled())? {
        return Err(interrupted(0));
    }
    // Keys that must be unique are all read again.
    let forgets_keys = !matches!(
        plan.encoder.keys(),
        Some(TarKeys::Column { unique: false, .. })
    );
    // A record also needs the samples of every unit.
    let may_start_in_the_middle =
        plan.split.is_single() && !plan.nulls.drops() && forgets_keys && !options.run.incremental;
    let (replaces, generation) = match &found {
        Some(found) => (found.is_replacing(), found.generation()),
        None if options.run.overwrite && holds_dataset(target)? => {
            let limits = &options.source.limits;
            let generation = next_generation(target, &plan.folders, &plan.form, limits)?;
            (true, generation)
        }
        None => (false, None),
    };
    let mut header = plan.identity.to_json();
    if replaces {
        header["replaces"] = json!({"generation": generation});
    }
    let journal = Journal::open(
        target,
        &header,
        found,
        options.source.resources.jobs,
        may_start_in_the_middle,
    )?;
    // The journal is written first. A later run uses it to recognise these folders.
    for folder in plan.folders.iter().filter(|folder| !folder.is_empty()) {
        target.destination.make_folder(folder)?;
    }
    let base = Base {
        generation,
        ..Base::default()
    };
    let written = write(plan, target, base, &journal, progress)?;
    let mut report = report_written(plan, &written.indexes, &written, resumed, began);
    let mut increment = None;
    let mut new = Vec::with_capacity(plan.folders.len());
    for (((folder, split), index), content) in plan
        .folders
        .iter()
        .zip(&report.splits)
        .zip(&written.indexes)
        .zip(&written.contents)
    {
        let exported = match options.shards.tar.readers() {
            [] => Vec::new(),
            _ => export::prepare_index(target, folder, index, options, progress)?,
        };
        let mut files = Vec::new();
        if options.run.incremental {
            let record = first_record(plan, &written, index);
            files.push((RECORD_NAME, record.to_json()));
            increment = Some(record.report());
        }
        let provenance = Provenance {
            // The samples of tables are not hashed one by one.
            content: (!options.shards.to.is_table()).then_some(*content),
            order: Some(provenance::order_of(index)),
            dropped_rows: Some(written.dropped),
            increment: increment.as_ref(),
            ..plan.provenance(split)
        };
        files.push((PROVENANCE_NAME, provenance::text_of(&provenance.to_json())));
        new.push(NewDataset {
            folder,
            index,
            files,
            exported,
        });
    }
    if lease.is_lost() {
        return Err(conflict(
            options.dest_text(),
            "other-writer",
            "another writer has taken over: this one was silent for too long",
            "wait until it is done, and run it again",
        ));
    }
    match replaces {
        true => replace::publish(target, &new, options)?,
        false => publish(target, &new, options)?,
    }
    report.elapsed_seconds = began.elapsed().as_secs_f64();
    report.increment = increment;
    Ok(report)
}

/// Publishes datasets in folders without one.
fn publish(
    target: Target<'_>,
    new: &[NewDataset<'_>],
    options: &ConvertOptions,
) -> Result<(), Error> {
    for dataset in new {
        export::publish_all(target, Some(WORK_FOLDER), &dataset.exported, true)?;
        for (name, text) in &dataset.files {
            let name = in_folder(dataset.folder, &side_name(options.shards.to, name));
            target.publish(&name, text.as_bytes())?;
        }
        let cancel = &mut target.cancel();
        let folder = dataset.folder;
        publish_index(
            target.destination,
            WORK_FOLDER,
            folder,
            dataset.index,
            cancel,
        )?;
    }
    Ok(())
}
