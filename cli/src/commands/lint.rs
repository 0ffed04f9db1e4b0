//! The command `shardmill tar lint`: finds problems in tar files.

use std::collections::BinaryHeap;
use std::sync::Arc;

use serde::Serialize;
use shardmill_core::{ErrorKind, Limits, escape};
use shardmill_dataset::{RepeatedKey, RepeatedKeys, TarFile, TarSet, each_in_order};
use shardmill_webdataset::{Consumer, Finding, Lint, Severity, ShardFacts, splits};

use super::options;
use crate::args::LintArgs;
use crate::error::{CliError, Stop};
use crate::output::{Exit, Output, count, many, show_progress};
use crate::signals;

/// The maximum number of repeated keys that are listed.
const MAX_KEYS: usize = 100;

/// A finding as JSON.
#[derive(Serialize)]
struct JsonFinding<'a> {
    id: &'a str,
    severity: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reader: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    message: &'a str,
}

#[derive(Serialize)]
struct JsonSplit<'a> {
    shard: &'a str,
    reader: &'a str,
    member: &'a str,
    key: Option<&'a str>,
    field: Option<&'a str>,
}

#[derive(Serialize)]
struct JsonSummary {
    ok: bool,
    shards: u64,
    samples: u64,
    #[serde(flatten)]
    found: FindingCounts,
}

#[derive(Clone, Copy, Default, Serialize)]
struct FindingCounts {
    errors: u64,
    warnings: u64,
    notes: u64,
}

struct Report<'a> {
    out: &'a mut Output,
    found: FindingCounts,
}

impl Report<'_> {
    fn add(&mut self, shard: Option<&str>, finding: &Finding) -> Result<(), Stop> {
        match finding.severity {
            Severity::Error => self.found.errors += 1,
            Severity::Warning => self.found.warnings += 1,
            Severity::Note => self.found.notes += 1,
        }
        let reader = finding.consumer.map(Consumer::name);
        if self.out.is_json() {
            return self.out.json(&JsonFinding {
                id: finding.id,
                severity: finding.severity.name(),
                shard,
                reader,
                member: finding.member.as_deref(),
                offset: finding.offset,
                message: &finding.text,
            });
        }
        let text = match reader {
            Some(reader) => format!("{reader}: {}", finding.text),
            None => finding.text.clone(),
        };
        let mut cli_error = CliError::new(ErrorKind::Corrupt, finding.id, &text);
        if let Some(shard) = shard {
            cli_error = cli_error.about(shard);
        }
        let console = self.out.console();
        match finding.severity {
            Severity::Error => console.error(&cli_error, None),
            Severity::Warning if !self.out.is_quiet() => console.warning(&cli_error),
            Severity::Note if !self.out.is_quiet() => {
                let (id, message) = (&cli_error.id, &cli_error.message);
                let object = cli_error.object.as_deref().unwrap_or_default();
                console.line(format_args!("note[{id}]: {object}: {message}"));
            }
            Severity::Warning | Severity::Note => {}
        }
        Ok(())
    }
}

pub fn run(args: &LintArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let readers = args.readers.clone().unwrap_or_default();
    let jobs = args.jobs.count();
    let remote = options::remote(&args.storage)?;
    let set = TarSet::open_at(&args.paths.concat(), &limits, &remote)?;
    let progress = signals::cancelled_by_signals(out.console());
    let shards = set.shards();
    progress.set_totals(0, 0, shards.len() as u64);
    let (mode, console) = (out.progress_mode(), Arc::clone(out.console()));
    let mut lint = Lint::new(readers.iter().copied(), &limits);
    let found = FindingCounts::default();
    let mut report = Report { out, found };
    let mut keys = RepeatedKeys::default();
    let work = |at: usize| {
        let Some(shard) = shards.get(at) else {
            return Ok(None);
        };
        let (survey, compression, _) = shard.survey_with_compression(&limits)?;
        progress.add_shard(0);
        Ok(Some((survey, compression)))
    };
    show_progress(&progress, mode, "reading", &console, || {
        each_in_order(shards.len(), jobs, &progress, work, |at, surveyed| {
            let (Some((survey, compression)), Some(shard)) = (surveyed, shards.get(at)) else {
                return Ok(());
            };
            let path = shard.path().display().to_string();
            let facts = ShardFacts {
                name: shard.name(),
                compression,
                hashes: None,
            };
            let (samples, _) = survey.samples(Consumer::Webdataset, &limits);
            for sample in samples {
                keys.push(&sample.key, at, sample.begin)?;
            }
            for finding in lint.shard(&survey, &facts) {
                report.add(Some(&path), &finding)?;
            }
            if args.show_keys {
                for reader in &readers {
                    show_splits(&path, *reader, &splits(&survey, *reader), report.out)?;
                }
            }
            Ok::<_, Stop>(())
        })
    })?;
    repeated(keys, &lint, shards, &mut report)?;
    for finding in lint.finish() {
        report.add(None, &finding)?;
    }
    let found = report.found;
    let summary = JsonSummary {
        ok: found.errors == 0,
        shards: shards.len() as u64,
        samples: lint.samples(),
        found,
    };
    if out.wants_summary(&summary)? {
        out.line(format_args!(
            "{} in {}: {}, {}, {}",
            many(summary.samples, "sample"),
            many(summary.shards, "shard"),
            many(found.errors, "error"),
            many(found.warnings, "warning"),
            many(found.notes, "note")
        ))?;
        if found.errors + found.warnings > 0 {
            out.console().line(
                "hint: `shardmill convert` with `--to webdataset` rewrites undamaged shards for all readers",
            );
        }
    }
    Ok(match summary.ok {
        true => Exit::Done,
        false => Exit::Problems,
    })
}

/// Reports keys that occur in several shards. The first ones are listed, in the order of the shards.
fn repeated(
    keys: RepeatedKeys,
    lint: &Lint,
    shards: &[TarFile],
    report: &mut Report<'_>,
) -> Result<(), Stop> {
    let mut listed: BinaryHeap<RepeatedKey> = BinaryHeap::new();
    let mut more = 0_u64;
    keys.finish(|found| {
        listed.push(found);
        if listed.len() > MAX_KEYS {
            listed.pop();
            more += 1;
        }
    })?;
    for found in listed.into_sorted_vec() {
        let (Some(shard), Some(first)) = (shards.get(found.shard), shards.get(found.first)) else {
            continue;
        };
        let path = shard.path().display().to_string();
        for finding in lint.repeated_key(&found.key, shard.name(), first.name(), found.at) {
            report.add(Some(&path), &finding)?;
        }
    }
    if more > 0 {
        let text = format!("and {} more keys that are in several shards", count(more));
        report.add(None, &Finding::warning("sample-key-twice", text))?;
    }
    Ok(())
}

fn show_splits(
    shard: &str,
    reader: Consumer,
    splits: &[shardmill_webdataset::Split],
    out: &mut Output,
) -> Result<(), Stop> {
    for split in splits {
        let pair = split.key_and_field.as_ref();
        let (key, field) = (
            pair.map(|pair| pair.0.as_str()),
            pair.map(|pair| pair.1.as_str()),
        );
        if out.is_json() {
            out.json(&JsonSplit {
                shard,
                reader: reader.name(),
                member: &split.member,
                key,
                field,
            })?;
            continue;
        }
        let member = escape(&split.member);
        match (key, field) {
            (Some(key), Some(field)) => {
                let (key, field) = (escape(key), escape(field));
                out.line(format_args!(
                    "{reader}: {member}: key `{key}`, field `{field}`"
                ))?;
            }
            _ => out.line(format_args!("{reader}: {member}: skipped"))?,
        }
    }
    Ok(())
}
