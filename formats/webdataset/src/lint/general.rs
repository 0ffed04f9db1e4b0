//! Finds problems that concern all readers, over the shards of a dataset.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use shardmill_core::{Limits, escape};

use super::consumers;
use super::finding::{Finding, ShardFacts};
use crate::error::WebdatasetError;
use crate::field::FieldKind;
use crate::group::SampleEntry;
use crate::member::MemberEntry;
use crate::names::Consumer;
use crate::survey::Survey;
use crate::tar::TRAILER_BYTES;

/// The most findings of one id in one shard that are listed. Further ones are only counted.
const MAX_OF_A_KIND: usize = 20;

/// Finds problems in a shard: those that concern all readers, and those of some readers.
///
/// Fields of samples are compared with [`FieldSets`], and keys of different shards by the caller.
#[must_use]
pub fn lint(
    survey: &Survey,
    facts: &ShardFacts<'_>,
    readers: &BTreeSet<Consumer>,
    limits: &Limits,
) -> Vec<Finding> {
    let mut findings = structure(survey, limits);
    findings.extend(grouping(survey, limits));
    findings.extend(style(survey));
    for reader in readers {
        findings.extend(consumers::check(*reader, survey, facts, limits));
    }
    summarise(findings)
}

/// The most sets of fields that are kept: the first ones in alphabetical order, whatever the order of the shards.
const MAX_SETS: usize = MAX_OF_A_KIND;

/// The sets of fields that the samples of a dataset have. Some readers expect the same fields in every sample.
#[derive(Clone, Debug, Default)]
pub struct FieldSets {
    /// For each set, the number of its samples, and the number of the shard and the key of the first one.
    sets: BTreeMap<Vec<Box<str>>, (u64, usize, Box<str>)>,
    /// The number of samples with other sets.
    others: u64,
}

impl FieldSets {
    /// Adds the samples of a shard. Shards may be added in any order.
    pub fn add(&mut self, shard: usize, samples: &[SampleEntry]) {
        let mut here = HashSet::new();
        for sample in samples.iter().filter(|sample| here.insert(&*sample.key)) {
            let fields = sample.fields.iter().map(|field| field.name.clone());
            let mut fields: Vec<Box<str>> = fields.collect();
            fields.sort_unstable();
            let first = || (0, shard, sample.key.clone());
            let set = self.sets.entry(fields).or_insert_with(first);
            set.0 += 1;
            if shard < set.1 {
                (set.1, set.2) = (shard, sample.key.clone());
            }
            if self.sets.len() > MAX_SETS
                && let Some((_, (count, ..))) = self.sets.pop_last()
            {
                self.others += count;
            }
        }
    }

    /// Returns the findings for the whole dataset, which has `samples` samples.
    #[must_use]
    pub fn findings(&self, samples: u64) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (fields, (count, _, key)) in self.sets.iter().filter(|_| self.sets.len() > 1) {
            let text = format!(
                "{count} of {samples} samples have the fields {}, the first of them `{}`",
                fields.join(", "),
                escape(key)
            );
            findings.push(Finding::warning("sample-fields", text));
        }
        if self.others > 0 {
            let text = format!("{} of {samples} samples have other fields", self.others);
            findings.push(Finding::warning("sample-fields", text));
        }
        if samples == 0 {
            let text = "the dataset has no samples".to_owned();
            findings.push(Finding::warning("dataset-empty", text));
        }
        findings
    }
}

fn structure(survey: &Survey, limits: &Limits) -> Vec<Finding> {
    let mut findings: Vec<Finding> = survey.error.iter().map(Finding::of).collect();
    if let Some(sample) = survey.torn_sample(limits) {
        let fields: Vec<&str> = sample.fields.iter().map(|field| &*field.name).collect();
        let text = format!(
            "the shard breaks off within or after sample `{}`, which has {} so far; many readers deliver it like that",
            escape(&sample.key),
            fields.join(", ")
        );
        findings.push(Finding::error("sample-torn", text));
    }
    for member in &survey.members {
        findings.extend(member.problem.iter().map(Finding::of));
    }
    if survey.is_complete() && !survey.bytes.is_multiple_of(TRAILER_BYTES) {
        let text = format!(
            "the file has {} bytes, which is not a multiple of {TRAILER_BYTES}: its end was cut, or another kind of program wrote it",
            survey.bytes
        );
        findings.push(Finding::warning("tar-padding", text));
    }
    findings
}

/// Returns the findings from grouping samples as the original reader does.
fn grouping(survey: &Survey, limits: &Limits) -> Vec<Finding> {
    let (samples, problems) = survey.samples(Consumer::Webdataset, limits);
    let mut findings: Vec<Finding> = problems.iter().map(Finding::of).collect();
    let mut here = HashSet::new();
    for sample in &samples {
        if !here.insert(&*sample.key) {
            let error = WebdatasetError::split_sample(sample.begin, &sample.key);
            findings.push(Finding::of(&error));
        } else if sample.key.ends_with('/') {
            let key = escape(&sample.key);
            let text = format!("hidden files become a sample with the key `{key}`");
            findings.push(Finding::warning("sample-hidden", text));
        }
    }
    findings
}

/// Returns findings about names and fields that some reader changes or skips.
fn style(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_skipped = |member: &&MemberEntry| Consumer::Webdataset.split(&member.name).is_none();
    for member in survey.files().filter(is_skipped) {
        let name = escape(&member.name);
        let text =
            format!("`{name}` belongs to no sample: its name has no dot, or marks it as metadata");
        findings.push(Finding::warning("member-skipped", text));
    }
    let mut in_capitals = BTreeSet::new();
    for member in survey.files() {
        let Some((_, field)) = Consumer::Energon.split(&member.name) else {
            continue;
        };
        let shown = escape(&field);
        if field.to_lowercase() != *field && in_capitals.insert(field.to_string()) {
            let text = format!(
                "the field `{shown}` has capitals, which some readers change and others keep"
            );
            findings.push(Finding::warning("field-case", text));
        }
        if FieldKind::of(&field).0 == FieldKind::Pickle {
            let text = format!("the field `{shown}` is a pickle, which runs code when it is read");
            findings.push(Finding::warning("encoding-unsafe", text));
        }
    }
    findings
}

/// Limits the findings of each id and reader to [`MAX_OF_A_KIND`], and adds one that counts the rest. Sorts the most
/// serious first.
fn summarise(findings: Vec<Finding>) -> Vec<Finding> {
    let mut counts: BTreeMap<(&str, Option<Consumer>), usize> = BTreeMap::new();
    let mut more: BTreeMap<(&str, Option<Consumer>), Finding> = BTreeMap::new();
    let mut kept = Vec::new();
    for finding in findings {
        let kind = (finding.id, finding.consumer);
        let count = counts.entry(kind).or_default();
        *count += 1;
        if *count <= MAX_OF_A_KIND {
            kept.push(finding);
        } else {
            let rest = *count - MAX_OF_A_KIND;
            let text = format!("{rest} more of this kind");
            let mut last = Finding::new(finding.id, finding.severity, text);
            last.consumer = finding.consumer;
            more.insert(kind, last);
        }
    }
    kept.extend(more.into_values());
    // The sort is stable: findings of the same severity stay in shard order.
    kept.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    kept
}
