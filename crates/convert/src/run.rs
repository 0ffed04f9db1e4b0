//! Doing what was planned.

use std::time::{Duration, Instant};

use shardmill_core::{Limits, Progress};
use shardmill_mds::Index;
use shardmill_storage::{Dir, Lease, PublishMode, StorageError};
use shardmill_writer::{Output, PipelineError, Resources, publish_index, stored_bytes};

use crate::dest::{self, Dest};
use crate::error::ConvertError;
use crate::input::SourceInput;
use crate::journal::{Found, Journal, LEASE_NAME, WORK_FOLDER};
use crate::plan::{ConvertPlan, is_resumable};
use crate::provenance::{PROVENANCE_NAME, in_folder, provenance};
use crate::report::{ConvertReport, Outcome, SplitReport};

/// Memory for encoded samples when shards have no size limit.
const UNLIMITED_SHARD_BYTES: u64 = 64 << 20;

/// Runs a plan to its end. Shards appear under their names when they are complete and on the disk; the data
/// set exists from the moment its index does, which is the last act.
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
    let began = Instant::now();
    let description = plan.source.description();
    progress.set_totals(description.bytes, description.rows.unwrap_or(0), 0);
    let options = &plan.options;
    let state = dest::look(
        &options.dest,
        &plan.folders,
        &plan.identity,
        options.overwrite,
        &options.limits,
    )?;
    if let Dest::Done(indexes) = state {
        remove_leftover(&Dir::open(&options.dest)?)?;
        return Ok(report(
            &plan,
            &indexes,
            Outcome::AlreadyDone,
            0,
            began,
            Duration::ZERO,
        ));
    }
    let existed = options.dest.exists();
    let dir = Dir::create(&options.dest)?;
    let lease = Lease::acquire(&dir, LEASE_NAME)?;
    // Looked at again now that nobody else can change it.
    let found = match dest::look_in(
        &dir,
        &plan.folders,
        &plan.identity,
        options.overwrite,
        &options.limits,
    )? {
        Dest::Done(indexes) => {
            lease.remove_folder()?;
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
            dest::clear(&dir)?;
            None
        }
        Dest::Interrupted(found) => Some(found),
        Dest::Empty => None,
    };
    match convert(&plan, &dir, found, progress, began) {
        Ok(report) => {
            lease.remove_folder()?;
            Ok(report)
        }
        Err(error) if is_resumable(&error) && has_shards(&dir, &options.limits) => Err(error),
        Err(error) => {
            // What failed would fail again, or there is nothing to go on from; and nobody has seen the shards. The
            // destination becomes what it was.
            let cleaned = dest::discard(&dir, &plan.folders, &options.limits)
                .and_then(|()| lease.remove_folder());
            if cleaned.is_ok() && !existed {
                remove_if_empty(&dir);
            }
            Err(error)
        }
    }
}

/// Whether a later run has something to go on from.
fn has_shards(dir: &Dir, limits: &Limits) -> bool {
    matches!(Found::read(dir, limits), Ok(Some(found)) if found.shards() > 0)
}

/// A run that was killed in its very last act leaves its work folder beside a finished data set.
fn remove_leftover(dir: &Dir) -> Result<(), StorageError> {
    if dir.kind_of(WORK_FOLDER)?.is_none() {
        return Ok(());
    }
    match Lease::acquire(dir, LEASE_NAME) {
        Ok(lease) => lease.remove_folder(),
        // Somebody is at it.
        Err(StorageError::OtherWriter { .. }) => Ok(()),
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
    dir: &Dir,
    found: Option<Found>,
    progress: &Progress,
    began: Instant,
) -> Result<ConvertReport, ConvertError> {
    let options = &plan.options;
    let resumed = found.is_some();
    remove_temporary(dir)?;
    let may_start_in_the_middle = plan.split.is_single() && !plan.nulls.drops();
    let journal = Journal::open(
        dir,
        &plan.identity,
        found,
        &plan.folders,
        options.jobs,
        may_start_in_the_middle,
    )?;
    // After the journal, which tells a later run whose they are.
    for folder in plan.folders.iter().filter(|folder| !folder.is_empty()) {
        dir.make_dir(folder)?;
    }
    let input = SourceInput {
        source: std::sync::Arc::clone(&plan.source),
        nulls: std::sync::Arc::clone(&plan.nulls),
        split: std::sync::Arc::clone(&plan.split),
    };
    let output = Output {
        dir,
        temp_folder: WORK_FOLDER,
        splits: &plan.folders,
        config: std::sync::Arc::clone(&plan.config),
        samples_per_shard: options.samples_per_shard,
    };
    let resources = Resources {
        jobs: options.jobs,
        budget_bytes: budget(plan),
    };
    let written = shardmill_writer::run(
        &input,
        &plan.encoder,
        &output,
        resources,
        &journal,
        progress,
    )
    .map_err(|error| match error {
        PipelineError::Input(error) => error,
        PipelineError::Write(error) => error.into(),
    })?;
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
    for ((folder, split), index) in plan
        .folders
        .iter()
        .zip(&report.splits)
        .zip(&written.indexes)
    {
        let text = provenance(
            &plan.identity,
            plan.source.description(),
            split,
            Some(written.dropped),
        );
        dir.publish_bytes(
            Some(WORK_FOLDER),
            &in_folder(folder, PROVENANCE_NAME),
            text.as_bytes(),
            PublishMode::Replace,
        )?;
        publish_index(dir, WORK_FOLDER, folder, index)?;
    }
    Ok(ConvertReport {
        elapsed_seconds: began.elapsed().as_secs_f64(),
        ..report
    })
}

/// Temporary files of a run that was killed. Whoever made them is gone: the lease is ours.
fn remove_temporary(dir: &Dir) -> Result<(), StorageError> {
    let work = dir.open_dir(WORK_FOLDER)?;
    for name in work.list()? {
        if name != "lease" && name != "journal" {
            work.remove(&name)?;
        }
    }
    Ok(())
}

/// Bytes of encoded samples in memory: one shard a thread, one that is being filled, and some to read ahead.
fn budget(plan: &ConvertPlan) -> u64 {
    let shard = plan
        .config
        .size_limit
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

fn report(
    plan: &ConvertPlan,
    indexes: &[Index],
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
            shards: u64::try_from(index.shards.len()).unwrap_or(u64::MAX),
            raw_bytes: index
                .shards
                .iter()
                .map(|entry| {
                    entry.raw_data.bytes + entry.raw_meta.as_ref().map_or(0, |meta| meta.bytes)
                })
                .sum(),
            stored_bytes: index.shards.iter().map(stored_bytes).sum(),
        })
        .collect();
    ConvertReport {
        outcome,
        dest: plan.options.dest.display().to_string(),
        splits,
        dropped_rows,
        source_bytes: plan.source.description().bytes,
        elapsed_seconds: began.elapsed().as_secs_f64(),
        idle_seconds: idle.as_secs_f64(),
    }
}
