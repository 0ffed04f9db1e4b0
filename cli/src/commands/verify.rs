//! The command `shardmill verify`: checks a dataset against its index.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use shardmill_convert::verify_table;
use shardmill_core::{ErrorKind, Limits, escape};
use shardmill_dataset::{ContentReport, OpenOptions, Problem, VerifyOptions, VerifyReport};

use super::dataset;
use super::dataset_location::DatasetLocation;
use super::samples::SampleChoice;
use crate::args::VerifyArgs;
use crate::error::{Fault, Stop, one_line};
use crate::output::{Exit, Output, bytes, count, many, rate, seconds};
use crate::signals;

#[derive(Serialize)]
struct JsonReport<'a> {
    dataset: &'a str,
    ok: bool,
    elapsed_seconds: f64,
    #[serde(flatten)]
    report: &'a VerifyReport,
}

pub fn run(args: &VerifyArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let options = VerifyOptions {
        deep: args.deep,
        live_only: args.view.is_some(),
        jobs: args.jobs.count(),
    };
    let dataset_location = DatasetLocation::parse(&args.dataset, &args.storage)?;
    if let Some(exit) = table(args, &dataset_location, &limits, &options, out)? {
        return Ok(exit);
    }
    // Tar files need no index.
    let (dataset_locations, several) = if dataset_location.holds_tars(&limits)? {
        (vec![dataset_location], false)
    } else {
        dataset::find_all(&args.dataset, &dataset_location)?
    };
    let samples = SampleChoice::of_view(args.view.as_ref(), true, &args.storage)?;
    if several && args.expect_index.is_some() {
        let hint = "verify the datasets one by one";
        return Err(Fault::option(
            "expect-index",
            "there are several datasets here, each with an index",
            hint,
        )
        .into());
    }
    let mut exit = Exit::Done;
    for dataset_location in dataset_locations {
        match one(args, &dataset_location, (&samples, &limits), &options, out) {
            Ok(Exit::Done) => {}
            Ok(other) => exit = other,
            // If there are several datasets, one that cannot be opened does not hide the others.
            Err(Stop::Fault(fault)) if several && fault.kind == ErrorKind::Corrupt => {
                out.flush()?;
                out.console().error(&fault, None);
                exit = Exit::Problems;
            }
            Err(stop) => return Err(stop),
        }
    }
    Ok(exit)
}

/// Checks a table of Parquet files. Returns `None` if there is none.
fn table(
    args: &VerifyArgs,
    dataset_location: &DatasetLocation,
    limits: &Limits,
    options: &VerifyOptions,
    out: &mut Output,
) -> Result<Option<Exit>, Stop> {
    if matches!(dataset_location, DatasetLocation::Pattern(_)) || dataset_location.is_file() {
        return Ok(None);
    }
    let start = Instant::now();
    let location = dataset_location.location();
    let remote = super::options::remote(&args.storage)?;
    let report = signals::with_progress("verifying", out, |progress| {
        verify_table(&location, options, (limits, &remote), progress)
    })?;
    let Some(report) = report else {
        return Ok(None);
    };
    let misplaced = match () {
        () if args.view.is_some() => Some("view"),
        () if args.expect_index.is_some() => Some("expect-index"),
        () => None,
    };
    if let Some(option) = misplaced {
        let fact = "a table of Parquet files does not support it";
        return Err(Fault::option(option, fact, "leave it out").into());
    }
    let (shown, elapsed) = (dataset_location.shown(), start.elapsed().as_secs_f64());
    if out.is_json() {
        out.json(&JsonReport {
            dataset: &shown,
            ok: report.is_clean(),
            elapsed_seconds: elapsed,
            report: &report,
        })?;
    } else {
        show(&shown, &shown, &report, elapsed, out)?;
    }
    Ok(Some(match report.is_clean() {
        true => Exit::Done,
        false => Exit::Problems,
    }))
}

fn one(
    args: &VerifyArgs,
    dataset_location: &DatasetLocation,
    (samples, limits): (&SampleChoice, &Limits),
    options: &VerifyOptions,
    out: &mut Output,
) -> Result<Exit, Stop> {
    let start = Instant::now();
    let report = if dataset_location.holds_tars(limits)? {
        let set = match &args.expect_index {
            Some(expected) => dataset_location.pinned_tars(expected, limits)?,
            None => dataset_location.tars(limits)?,
        };
        let set = match &samples.view {
            Some(view) => set.of_view(view, limits)?,
            None => set,
        };
        signals::with_progress("verifying", out, |progress| {
            shardmill_dataset::verify_tars(&set, options, limits, progress)
        })?
    } else {
        let dataset = dataset_location.dataset(&OpenOptions {
            limits: limits.clone(),
            expect_index: args.expect_index.clone(),
            // All stored samples are checked, and the side files as well.
            with_deleted: samples.with_deleted,
            with_late: true,
            view: samples.view.clone(),
            ..OpenOptions::default()
        })?;
        signals::with_progress("verifying", out, |progress| {
            shardmill_dataset::verify(&dataset, options, progress)
        })?
    };
    let is_clean = report.is_clean() && !(args.strict && report.warning_count > 0);
    let shown = dataset_location.shown();
    let elapsed_seconds = start.elapsed().as_secs_f64();
    if out.is_json() {
        out.json(&JsonReport {
            dataset: &shown,
            ok: is_clean,
            elapsed_seconds,
            report: &report,
        })?;
    } else {
        // Findings in a single file already contain its name.
        let folder = match dataset_location {
            DatasetLocation::Local(path) if path.is_file() => path
                .parent()
                .map_or_else(String::new, |parent| parent.display().to_string()),
            _ if dataset_location.is_file() => {
                dataset_location.folder()?.path().display().to_string()
            }
            _ => shown.clone(),
        };
        show(&shown, &folder, &report, elapsed_seconds, out)?;
        if report.is_clean() && !is_clean && !out.is_quiet() {
            out.line(format_args!(
                "{}: {}, and --strict takes warnings for problems",
                escape(&shown),
                many(report.warning_count, "warning")
            ))?;
        }
    }
    Ok(if is_clean { Exit::Done } else { Exit::Problems })
}

fn show(
    dataset: &str,
    folder: &str,
    report: &VerifyReport,
    elapsed: f64,
    out: &mut Output,
) -> Result<(), Stop> {
    let console = Arc::clone(out.console());
    for problem in &report.problems {
        console.error(&fault(folder, problem), None);
    }
    let listed = report.problems.len() as u64;
    if report.problem_count > listed {
        console.line(format_args!(
            "and {} problems more",
            count(report.problem_count - listed)
        ));
    }
    if !out.is_quiet() {
        for warning in &report.warnings {
            console.warning(&fault(folder, warning));
        }
        let listed = report.warnings.len() as u64;
        if report.warning_count > listed {
            console.line(format_args!(
                "and {} warnings more",
                count(report.warning_count - listed)
            ));
        }
    }
    if out.is_quiet() {
        return Ok(());
    }
    let dataset = escape(dataset);
    let how = match (&report.content, report.deep) {
        (_, false) => "values not decoded",
        (Some(ContentReport { found: Some(_), .. }), true) => {
            "every value decoded, content compared"
        }
        (_, true) => "every value decoded",
    };
    let work = format!(
        "{}, {}, {}, {how}, in {} at {}",
        many(report.read.files, "file"),
        bytes(report.read.stored_bytes),
        many(report.read.hashes, "hash"),
        seconds(elapsed),
        rate(report.read.stored_bytes, elapsed),
    );
    let (samples, shards) = (many(report.samples, "sample"), many(report.shards, "shard"));
    if report.is_clean() {
        return out.line(format_args!(
            "{dataset}: all is well: {samples} in {shards} ({work})"
        ));
    }
    let problems = many(report.problem_count, "problem");
    if report.damaged_shards == 0 {
        return out.line(format_args!(
            "{dataset}: {problems} outside the shards: {samples} in {shards} ({work})"
        ));
    }
    out.line(format_args!(
        "{dataset}: {} in {} of {shards}, which hold {} of {samples} ({work})",
        problems,
        count(report.damaged_shards),
        count(report.samples.saturating_sub(report.sound_samples)),
    ))
}

/// Converts a finding to an error line. The dataset precedes the file name.
fn fault(dataset: &str, problem: &Problem) -> Fault {
    let object = match dataset {
        "" => problem.object.clone(),
        _ => format!("{}/{}", dataset.trim_end_matches('/'), problem.object),
    };
    Fault {
        object: Some(one_line(&object)),
        hint: problem.hint.as_deref().map(one_line),
        ..Fault::new(problem.kind, problem.id, &problem.message)
    }
}
