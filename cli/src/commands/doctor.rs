//! The command `shardmill doctor`: tests what a location allows: list, read, write.

use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;
use shardmill_core::ErrorKind;
use shardmill_storage::{
    CredentialSource, Location, ProbeOutcome, ProbeReport, ProbeVerdict, probe,
};

use super::options;
use crate::args::{StorageArgs, values};
use crate::error::Stop;
use crate::output::{Exit, Output, Table};
use crate::signals;

/// Check which operations work at a location with your settings: list, put, read, create, delete
///
/// Names where the credentials came from, such as a profile or a machine, and when they expire.
///
/// Each operation is tried at most twice, so a wrong endpoint is reported within seconds; other commands try eight times.
///
/// Writes objects whose names begin with `.shardmill-probe-` and deletes them again. Without permission to write, reads
/// an existing object. The exit status is 0 if datasets can be read, whether or not they can be written.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// A folder or a prefix in a store, as in s3://bucket/sets, gs://bucket, az://container, https://host/sets
    #[arg(value_name = "LOCATION", value_parser = values::dest)]
    pub location: Location,

    #[command(flatten)]
    pub storage: StorageArgs,
}

#[derive(Serialize)]
struct JsonReport<'a> {
    location: &'a str,
    store: &'a str,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials: Option<JsonCredentials<'a>>,
    steps: Vec<JsonStep<'a>>,
    left: &'a [String],
}

/// Where the credentials came from, without secrets.
#[derive(Serialize)]
struct JsonCredentials<'a> {
    source: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    facts: &'a [String],
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

impl<'a> JsonCredentials<'a> {
    fn new(found: &'a CredentialSource) -> Self {
        // The time was converted from a duration, so it may be a fraction of a second too early.
        let rounded = |end: SystemTime| end.checked_add(Duration::from_millis(500));
        let since = |end: SystemTime| end.duration_since(SystemTime::UNIX_EPOCH).ok();
        Self {
            source: found.kind,
            name: &found.name,
            profile: found.profile.as_deref(),
            role: found.role.as_deref(),
            facts: &found.facts,
            expires: found
                .expires
                .and_then(rounded)
                .and_then(since)
                .map(|since| since.as_secs()),
        }
    }
}

#[derive(Serialize)]
struct JsonStep<'a> {
    action: String,
    works: bool,
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    seconds: f64,
}

pub fn run(args: &DoctorArgs, out: &mut Output) -> Result<Exit, Stop> {
    let options = options::remote(&args.storage)?;
    let progress = signals::cancelled_by_signals(out.console());
    let report = probe(&args.location, &options, &mut |_| !progress.is_cancelled())?;
    out.result(&json(&report), |out| show(&report, out))?;
    Ok(match report.verdict() {
        ProbeVerdict::Unusable => Exit::Failed(first_kind(&report)),
        _ => Exit::Done,
    })
}

/// Returns the kind of the first failure.
fn first_kind(report: &ProbeReport) -> ErrorKind {
    let kind = report.steps.iter().find_map(|step| match step.outcome {
        ProbeOutcome::Failed { kind, .. } => Some(kind),
        _ => None,
    });
    kind.unwrap_or(ErrorKind::Storage)
}

const fn verdict(report: ProbeVerdict) -> &'static str {
    match report {
        ProbeVerdict::ReadWrite => "read-write",
        ProbeVerdict::ReadWriteUnguarded => "read-write-unguarded",
        ProbeVerdict::ReadOnly => "read-only",
        _ => "unusable",
    }
}

fn json(report: &ProbeReport) -> JsonReport<'_> {
    let steps = report.steps.iter().map(|step| JsonStep {
        action: step.action.to_string(),
        works: step.outcome == ProbeOutcome::Works,
        outcome: step.outcome.to_string(),
        id: match &step.outcome {
            ProbeOutcome::Failed { id, .. } => Some(*id),
            _ => None,
        },
        seconds: step.took.as_secs_f64(),
    });
    JsonReport {
        location: &report.location,
        store: &report.store,
        verdict: verdict(report.verdict()),
        credentials: report.credentials.as_ref().map(JsonCredentials::new),
        steps: steps.collect(),
        left: &report.left,
    }
}

fn show(report: &ProbeReport, out: &mut Output) -> Result<(), Stop> {
    out.line(format_args!("{}: {}", report.location, report.store))?;
    if let Some(found) = &report.credentials {
        out.line(format_args!("credentials: {found}"))?;
    }
    let mut table = Table::aligned("|>|");
    for step in &report.steps {
        let took = match step.outcome {
            ProbeOutcome::Untried | ProbeOutcome::Absent => String::new(),
            _ => format!("{} ms", step.took.as_millis()),
        };
        table.row([step.action.to_string(), took, step.outcome.to_string()]);
    }
    out.text(table)?;
    for name in &report.left {
        out.line(format_args!("could not be removed: {name}"))?;
    }
    out.line(report.verdict())
}
