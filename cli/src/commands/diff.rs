//! The command `shardmill diff`: compares two datasets.

use std::collections::BTreeMap;

use serde::Serialize;
use shardmill_core::{Limits, escape};
use shardmill_profile::{ChangeKind, Diff, DiffOptions, RowChange};

use super::dataset_location::DatasetLocation;
use super::rows;
use super::samples::SampleChoice;
use super::shards::Shards;
use crate::args::{self, DiffArgs};
use crate::error::Stop;
use crate::output::{Exit, Output, Table, count, many};
use crate::signals;

#[derive(Serialize)]
struct JsonDiff<'a> {
    before: &'a str,
    after: &'a str,
    equal: bool,
    /// `None` unless both are datasets.
    shards: Option<ShardDiff>,
    #[serde(flatten)]
    diff: &'a Diff,
}

/// The shards of two datasets, compared by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct ShardDiff {
    /// With the same hash.
    same: u64,
    /// With another hash or another size.
    changed: u64,
    /// With the same size, and without a hash in common.
    unknown: u64,
    /// Only in the second dataset.
    added: u64,
    /// Only in the first dataset.
    removed: u64,
}

impl ShardDiff {
    const fn is_identical(self) -> bool {
        self.changed == 0 && self.unknown == 0 && self.added == 0 && self.removed == 0
    }
}

pub fn run(args: &DiffArgs, limits: Limits, out: &mut Output) -> Result<Exit, Stop> {
    let jobs = args::jobs(None);
    let open = |location| rows::open(location, &args.storage, limits.clone(), None, jobs);
    let (before, after) = (open(&args.before)?, open(&args.after)?);
    let shards = (
        shards(&args.before, args, &limits)?,
        shards(&args.after, args, &limits)?,
    );
    let (shards, is_identical) = match shards {
        (Some(a), Some(b)) => {
            let shards = compare(&a, &b);
            let has_all = !a.has_deleted && !b.has_deleted;
            (Some(shards), shards.is_identical() && has_all)
        }
        _ => (None, false),
    };
    let options = DiffOptions {
        key: args.key_column.clone(),
        listed: usize::try_from(args.listed).unwrap_or(usize::MAX),
        temp_dir: args.temp_dir.clone(),
        rows_are_identical: is_identical,
    };
    let diff = signals::with_progress("comparing", out, |progress| {
        shardmill_profile::diff([&*before, &*after], &options, progress)
    })?;
    let json = JsonDiff {
        before: &args.before,
        after: &args.after,
        equal: diff.is_equal(),
        shards,
        diff: &diff,
    };
    if out.wants_summary(&json)? {
        show(args, &diff, shards, out)?;
    }
    Ok(match diff.is_equal() {
        true => Exit::Done,
        false => Exit::Different,
    })
}

/// The shards of a dataset: for each name, the stored bytes and the hashes.
struct HashedShards {
    files: BTreeMap<String, (u64, Vec<String>)>,
    has_deleted: bool,
}

/// Returns the shards of a dataset; `None` for a source.
fn shards(location: &str, args: &DiffArgs, limits: &Limits) -> Result<Option<HashedShards>, Stop> {
    let dataset_location = DatasetLocation::parse(location, &args.storage)?;
    if rows::find(location, &dataset_location, limits)?.is_none() {
        return Ok(None);
    }
    let samples = SampleChoice::default();
    let shards = Shards::open(location, &dataset_location, limits, &samples)?;
    let files = shards.facts().map(|shard| {
        // A shard of two files is the same if both are.
        let meta = shard.meta_basename.zip(shard.meta_hashes);
        let files = std::iter::once((shard.basename, shard.hashes)).chain(meta);
        let hashes = match files.clone().all(|(_, hashes)| !hashes.is_empty()) {
            true => files
                .flat_map(|(name, hashes)| {
                    let hashes = hashes.iter();
                    hashes.map(move |hash| format!("{name}:{}:{hash}", hash.algo()))
                })
                .collect(),
            false => Vec::new(),
        };
        (shard.basename.to_owned(), (shard.stored_bytes, hashes))
    });
    Ok(Some(HashedShards {
        files: files.collect(),
        has_deleted: shards.deleted() > 0,
    }))
}

fn compare(before: &HashedShards, after: &HashedShards) -> ShardDiff {
    let mut found = ShardDiff::default();
    for (name, (bytes, hashes)) in &before.files {
        let Some((other_bytes, other_hashes)) = after.files.get(name) else {
            found.removed += 1;
            continue;
        };
        if hashes.iter().any(|hash| other_hashes.contains(hash)) {
            found.same += 1;
        } else if bytes != other_bytes || !hashes.is_empty() && !other_hashes.is_empty() {
            found.changed += 1;
        } else {
            found.unknown += 1;
        }
    }
    let names = after.files.keys();
    found.added = names
        .filter(|name| !before.files.contains_key(*name))
        .count() as u64;
    found
}

fn show(
    args: &DiffArgs,
    diff: &Diff,
    shards: Option<ShardDiff>,
    out: &mut Output,
) -> Result<(), Stop> {
    let (before, after) = (escape(&args.before), escape(&args.after));
    if let Some(shards) = shards {
        out.line(format_args!(
            "shards: {} same, {} changed, {} added, {} removed{}",
            count(shards.same),
            count(shards.changed),
            count(shards.added),
            count(shards.removed),
            match shards.unknown {
                0 => String::new(),
                unknown => format!(", {} without a hash", count(unknown)),
            }
        ))?;
    }
    for column in &diff.columns {
        let name = escape(&column.name);
        match (&column.before, &column.after) {
            (Some(before), Some(after)) => out.line(format_args!(
                "column {name}: {}, was {}",
                escape(after),
                escape(before)
            ))?,
            (Some(before), None) => {
                out.line(format_args!(
                    "column {name}: removed, was {}",
                    escape(before)
                ))?;
            }
            (None, after) => out.line(format_args!(
                "column {name}: added, {}",
                escape(after.as_deref().unwrap_or_default())
            ))?,
        }
    }
    out.line(format_args!(
        "samples: {} same, {} changed, {} added, {} removed",
        count(diff.same),
        count(diff.changed),
        count(diff.added),
        count(diff.removed),
    ))?;
    if !diff.changes.is_empty() {
        let mut table = Table::aligned("|>|");
        for change in &diff.changes {
            table.row(cells(change));
        }
        out.text(table)?;
        let listed = diff.changes.len() as u64;
        let all = diff.changed + diff.added + diff.removed;
        if all > listed {
            out.line(format_args!(
                "  and {} more; -n N lists N",
                count(all - listed)
            ))?;
        }
    }
    match diff.is_equal() {
        true => out.line(format_args!(
            "{before} and {after} are the same: {}",
            many(diff.same, "sample")
        )),
        false => out.line(format_args!("{before} and {after} differ")),
    }
}

fn cells(change: &RowChange) -> [String; 3] {
    let what = match change.change {
        ChangeKind::Removed => "  removed",
        ChangeKind::Changed => "  changed",
        ChangeKind::Added => "  added",
    };
    let number = change.before.or(change.after).unwrap_or(0);
    let name = match &change.key {
        Some(key) => escape(key).into_owned(),
        None => format!("sample {}", count(number)),
    };
    [
        what.to_owned(),
        name,
        escape(&change.columns.join(", ")).into_owned(),
    ]
}
