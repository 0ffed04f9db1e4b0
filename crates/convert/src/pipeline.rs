//! What all conversions share: the call of the writer, and the report.

use std::time::Instant;

use shardmill_core::{Error, Progress};
use shardmill_writer::{
    Base, Checkpoint, DatasetIndex, Input, Output, Resources, ShardEnds, Written,
};

use crate::plan::ConvertPlan;
use crate::report::{ConvertReport, Outcome, SplitReport};
use crate::target::{Target, WORK_FOLDER};

/// The memory for encoded samples if shards have no size limit.
const UNLIMITED_SHARD_BYTES: u64 = 64 << 20;

/// Reads, encodes and writes the whole source. `base` is the existing dataset.
pub(crate) fn write(
    plan: &ConvertPlan,
    target: Target<'_>,
    base: Base,
    checkpoint: &dyn Checkpoint,
    progress: &Progress,
) -> Result<Written, Error> {
    let output = output(plan, target);
    write_input(plan, &plan.input(), &output, base, checkpoint, progress)
}

/// Reads, encodes and writes an input.
pub(crate) fn write_input(
    plan: &ConvertPlan,
    input: &impl Input,
    output: &Output<'_>,
    base: Base,
    checkpoint: &dyn Checkpoint,
    progress: &Progress,
) -> Result<Written, Error> {
    let resources = Resources {
        jobs: plan.options.source.resources.jobs,
        budget_bytes: budget(plan),
    };
    let encoder = &plan.encoder;
    shardmill_writer::run(
        input, encoder, output, base, resources, checkpoint, progress,
    )
}

/// Returns the output of a conversion whose shards get their final names at once.
pub(crate) fn output<'a>(plan: &'a ConvertPlan, target: Target<'a>) -> Output<'a> {
    Output {
        destination: target.destination,
        temp_folder: WORK_FOLDER,
        splits: &plan.folders,
        form: plan.form.clone(),
        ends: match plan.options.shards.keep_row_groups {
            true => ShardEnds::Units,
            false => ShardEnds::of_samples(plan.options.shards.samples_per_shard),
        },
        at: None,
        key_prefix: "",
    }
}

/// Returns the memory for encoded samples: one shard for each thread and one that is being filled. It is at most half of
/// the memory limit, but at least 16 MiB.
fn budget(plan: &ConvertPlan) -> u64 {
    let shard = plan
        .form
        .size_limit()
        .unwrap_or(UNLIMITED_SHARD_BYTES)
        .max(1 << 20);
    let jobs = u64::try_from(plan.options.source.resources.jobs).unwrap_or(1);
    let wanted = shard.saturating_mul(jobs + 1);
    // Compressed shards and the buffers of the source need about as much again.
    plan.options
        .source
        .resources
        .memory_limit
        .map_or(wanted, |limit| wanted.min(limit / 2))
        .max(16 << 20)
}

/// Returns the report of a conversion, without dropped rows and idle time.
pub(crate) fn report(
    plan: &ConvertPlan,
    indexes: &[DatasetIndex],
    outcome: Outcome,
    began: Instant,
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
        dropped_rows: 0,
        deleted_samples: plan.source.description().deleted_samples,
        source_bytes: plan.source.description().bytes,
        elapsed_seconds: began.elapsed().as_secs_f64(),
        idle_seconds: 0.0,
        increment: None,
    }
}

/// Returns the report of a run that wrote shards.
pub(crate) fn report_written(
    plan: &ConvertPlan,
    indexes: &[DatasetIndex],
    written: &Written,
    is_resumed: bool,
    began: Instant,
) -> ConvertReport {
    let outcome = match is_resumed {
        true => Outcome::Resumed {
            reused_shards: written.reused,
        },
        false => Outcome::Converted,
    };
    ConvertReport {
        dropped_rows: written.dropped,
        idle_seconds: written.idle.as_secs_f64(),
        ..report(plan, indexes, outcome, began)
    }
}
