//! The command `shardmill verify`: checks a dataset against its index.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use shardmill_convert::verify_table;
use shardmill_core::{ErrorKind, Limits, escape};
use shardmill_dataset::{ContentReport, OpenOptions, Problem, VerifyOptions, VerifyReport};

use super::dataset::{self, Found};
use super::dataset_location::DatasetLocation;
use super::samples::SampleChoice;
use crate::args::VerifyArgs;
use crate::error::{CliError, Stop, one_line};
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
        readers: args.readers.iter().flatten().copied().collect(),
        jobs: args.jobs.count(),
    };
    let dataset_location = DatasetLocation::parse(&args.dataset, &args.storage)?;
    if let Some(exit) = table(args, &dataset_location, &limits, &options, out)? {
        return Ok(exit);
    }
    // Tar files need no index.
    let found = match dataset_location.holds_tars(&limits)? {
        true => Found::Tars,
        false => dataset::find(&dataset_location)?,
    };
    let (dataset_locations, several) = match found {
        Found::Tars | Found::One => (vec![dataset_location], false),
        Found::Splits(splits) => (splits.into_iter().map(|(_, split)| split).collect(), true),
        Found::Nothing => return Err(dataset_location.no_dataset(&args.dataset).into()),
    };
    let samples = SampleChoice::of_view(args.view.as_ref(), true, &args.storage)?;
    if several && args.expect_index.is_some() {
        let hint = "verify the datasets one by one";
        return Err(CliError::option(
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
            Err(Stop::CliError(cli_error)) if several && cli_error.kind == ErrorKind::Corrupt => {
                out.flush()?;
                out.console().error(&cli_error, None);
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
    if dataset_location.is_file() {
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
        () if args.readers.is_some() => Some("for"),
        () => None,
    };
    if let Some(option) = misplaced {
        let fact = "a table of Parquet files does not support it";
        return Err(CliError::option(option, fact, "omit it").into());
    }
    let report = JsonReport {
        dataset: &dataset_location.shown(),
        ok: report.is_clean(),
        elapsed_seconds: start.elapsed().as_secs_f64(),
        report: &report,
    };
    Ok(Some(show(&report, dataset_location, out)?))
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
        if args.readers.is_some() {
            let fact = "these readers read only tar shards";
            return Err(CliError::option("for", fact, "omit it").into());
        }
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
    let report = JsonReport {
        dataset: &dataset_location.shown(),
        ok: report.is_clean() && !(args.strict && report.warning_count > 0),
        elapsed_seconds: start.elapsed().as_secs_f64(),
        report: &report,
    };
    show(&report, dataset_location, out)
}

fn show(json: &JsonReport<'_>, location: &DatasetLocation, out: &mut Output) -> Result<Exit, Stop> {
    let exit = match json.ok {
        true => Exit::Done,
        false => Exit::Problems,
    };
    if out.is_json() {
        out.json(json)?;
        return Ok(exit);
    }
    let (report, elapsed) = (json.report, json.elapsed_seconds);
    // Findings in a single file already contain its name.
    let folder = match location {
        DatasetLocation::Local(path) if path.is_file() => path
            .parent()
            .map_or_else(String::new, |parent| parent.display().to_string()),
        _ if location.is_file() => location.folder()?.path().display().to_string(),
        _ => json.dataset.to_owned(),
    };
    let console = Arc::clone(out.console());
    for problem in &report.problems {
        console.error(&cli_error(&folder, problem), None);
    }
    let listed = report.problems.len() as u64;
    if report.problem_count > listed {
        console.line(format_args!(
            "and {} problems more",
            count(report.problem_count - listed)
        ));
    }
    if out.is_quiet() {
        return Ok(exit);
    }
    for warning in &report.warnings {
        console.warning(&cli_error(&folder, warning));
    }
    let listed = report.warnings.len() as u64;
    if report.warning_count > listed {
        console.line(format_args!(
            "and {} warnings more",
            count(report.warning_count - listed)
        ));
    }
    let dataset = escape(json.dataset);
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
        out.line(format_args!(
            "{dataset}: all is well: {samples} in {shards} ({work})"
        ))?;
        if !json.ok {
            out.line(format_args!(
                "{dataset}: {}, and --strict takes warnings for problems",
                many(report.warning_count, "warning")
            ))?;
        }
        return Ok(exit);
    }
    let problems = many(report.problem_count, "problem");
    if report.damaged_shards == 0 {
        out.line(format_args!(
            "{dataset}: {problems} outside the shards: {samples} in {shards} ({work})"
        ))?;
    } else {
        out.line(format_args!(
            "{dataset}: {problems} in {} of {shards}, which hold {} of {samples} ({work})",
            count(report.damaged_shards),
            count(report.samples.saturating_sub(report.sound_samples)),
        ))?;
    }
    Ok(exit)
}

/// Converts a finding to an error line. The dataset precedes the file name.
fn cli_error(dataset: &str, problem: &Problem) -> CliError {
    let object = match (dataset, &*problem.object) {
        ("", object) => object.to_owned(),
        (dataset, "") => dataset.to_owned(),
        _ => format!("{}/{}", dataset.trim_end_matches('/'), problem.object),
    };
    CliError {
        object: Some(one_line(&object)),
        hint: problem.hint.as_deref().map(one_line),
        ..CliError::new(problem.kind, problem.id, &problem.message)
    }
}
