//! The command `shardmill verify`: checks a dataset against its index.

use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use shardmill_convert::verify_table;
use shardmill_core::{Error, ErrorKind, Limits, escape};
use shardmill_dataset::{ContentReport, OpenOptions, Problem, VerifyOptions, VerifyReport};
use shardmill_storage::Location;
use shardmill_webdataset::Consumer;

use super::dataset::{self, Found};
use super::dataset_location::DatasetLocation;
use super::samples::SampleChoice;
use crate::args::values::{self, List};
use crate::args::{JobsArgs, StorageArgs};
use crate::error::{Stop, one_line};
use crate::output::{Exit, Output, bytes, count, many, rate, seconds};
use crate::signals;

/// Check a dataset: structure, lengths, hashes; with --deep every sample
///
/// Tar files are checked with or without an index.json. Every problem is one error line; the exit status is 3 if there
/// is one. With --for, what these readers of tar files refuse is a problem, and what some reader changes or skips is a
/// warning.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The dataset, a directory of datasets, or a tar file; local or in a store
    #[arg(value_name = "DATASET")]
    pub dataset: String,

    /// Also decode every sample, and compare them with the content hash in index.provenance
    #[arg(long)]
    pub deep: bool,

    /// Also exit with 3 if there are warnings
    #[arg(long)]
    pub strict: bool,

    /// Readers whose rules tar shards must also meet: webdataset, hf, dali, energon, wids, open_clip
    #[arg(long = "for", value_name = "READER,...", value_parser = values::consumers)]
    pub readers: Option<List<Consumer>>,

    #[command(flatten)]
    pub jobs: JobsArgs,

    /// Hash that index.json must have: `sha256:` and 64 hex digits
    #[arg(long, value_name = "sha256:HEX")]
    pub expect_index: Option<String>,

    /// Check only the shards that have samples of this view, a file of `select`
    #[arg(long, value_name = "FILE", value_parser = values::location)]
    pub view: Option<Location>,

    #[command(flatten)]
    pub storage: StorageArgs,
}

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
        return Err(Error::option_hint(
            "config-expect-index",
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
            Err(Stop::Error(error)) if several && error.kind() == ErrorKind::Corrupt => {
                out.flush()?;
                out.console().error(&error, None);
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
        () if args.view.is_some() => Some("config-view"),
        () if args.expect_index.is_some() => Some("config-expect-index"),
        () if args.readers.is_some() => Some("config-for"),
        () => None,
    };
    if let Some(option) = misplaced {
        let fact = "a table of Parquet files does not support it";
        return Err(Error::option_hint(option, fact, "omit it").into());
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
            return Err(Error::option_hint("config-for", fact, "omit it").into());
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
        console.error(&error_of(&folder, problem), None);
    }
    let more = |all: u64, listed: usize, what: &str| {
        let left = all.saturating_sub(listed as u64);
        if left > 0 {
            console.line(format_args!("and {} {what} more", count(left)));
        }
    };
    more(report.problem_count, report.problems.len(), "problems");
    if out.is_quiet() {
        return Ok(exit);
    }
    for warning in &report.warnings {
        console.warning(&error_of(&folder, warning));
    }
    more(report.warning_count, report.warnings.len(), "warnings");
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
fn error_of(dataset: &str, problem: &Problem) -> Error {
    let object = match (dataset, &*problem.object) {
        ("", object) => object.to_owned(),
        (dataset, "") => dataset.to_owned(),
        _ => format!("{}/{}", dataset.trim_end_matches('/'), problem.object),
    };
    Error::new(problem.kind, problem.id, &problem.message)
        .about(one_line(&object))
        .with_any_hint(problem.hint.as_deref())
}
