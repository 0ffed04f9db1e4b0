//! Finds problems that concern all readers, over the shards of a dataset.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use shardmill_core::{Diagnostic as _, Limits, escape};

use super::consumers;
use super::finding::{Finding, Severity, ShardFacts};
use crate::error::{MemberKind, WebdatasetError};
use crate::field::FieldKind;
use crate::member::MemberEntry;
use crate::names::Consumer;
use crate::survey::Survey;
use crate::tar::TRAILER_BYTES;

/// How one reader splits the name of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The member.
    pub member: String,
    /// Its key and its field; `None` if the reader skips it.
    pub key_and_field: Option<(String, String)>,
}

/// Returns how a reader splits the names of all members of a shard, in order.
#[must_use]
pub fn splits(survey: &Survey, consumer: Consumer) -> Vec<Split> {
    survey
        .members
        .iter()
        .map(|member| {
            let split = match member.kind {
                MemberKind::File => consumer.split(member.name_for(consumer)),
                _ => None,
            };
            Split {
                member: member.name.to_string(),
                key_and_field: split.map(|(key, field)| (key.to_owned(), field.into_owned())),
            }
        })
        .collect()
}

/// Finds problems in the shards of a dataset, one after the other.
///
/// Problems of one shard are reported with that shard. Fields are compared across all shards, but keys are not. The
/// caller collects keys, and calls [`repeated_key`](Lint::repeated_key) for each key that occurs in several shards.
#[derive(Clone, Debug)]
pub struct Lint {
    consumers: BTreeSet<Consumer>,
    limits: Limits,
    shards: u64,
    samples: u64,
    field_sets: BTreeMap<Vec<Box<str>>, (u64, String)>,
}

/// The most findings of one id in one shard that are listed. Further ones are only counted.
const MAX_OF_A_KIND: usize = 20;

impl Lint {
    /// Creates a lint for all readers in general and for some in particular.
    #[must_use]
    pub fn new(consumers: impl IntoIterator<Item = Consumer>, limits: &Limits) -> Self {
        Self {
            consumers: consumers.into_iter().collect(),
            limits: limits.clone(),
            shards: 0,
            samples: 0,
            field_sets: BTreeMap::new(),
        }
    }

    /// Returns the number of samples in the shards so far, as grouped by the original reader.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the findings for the next shard.
    pub fn shard(&mut self, survey: &Survey, facts: &ShardFacts<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        findings.extend(hashes(facts));
        findings.extend(self.structure(survey));
        findings.extend(self.grouping(survey));
        findings.extend(style(survey));
        for consumer in &self.consumers {
            let first = self.shards == 0;
            findings.extend(consumers::check(
                *consumer,
                survey,
                facts,
                first,
                &self.limits,
            ));
        }
        self.shards = self.shards.saturating_add(1);
        summarise(findings)
    }

    /// Returns the findings for a key that the shard `shard` has at an offset, and the shard `first` has as well.
    #[must_use]
    pub fn repeated_key(&self, key: &str, shard: &str, first: &str, offset: u64) -> Vec<Finding> {
        let text = format!(
            "the key `{}` of `{}` is also in `{}`",
            escape(key),
            escape(shard),
            escape(first)
        );
        let finding = Finding::warning("sample-key-twice", text).at(offset);
        let mut findings = Vec::new();
        if self.consumers.contains(&Consumer::Energon) {
            // Energon's database has only one row for each key.
            let mut refused = finding.clone().for_consumer(Consumer::Energon);
            refused.severity = Severity::Error;
            findings.push(refused);
        }
        findings.push(finding);
        findings
    }

    /// Returns the findings for the whole dataset.
    #[must_use]
    pub fn finish(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.field_sets.len() > 1 {
            for (fields, (count, key)) in &self.field_sets {
                let text = format!(
                    "{count} of {} samples have the fields {}, the first of them `{}`",
                    self.samples,
                    fields.join(", "),
                    escape(key)
                );
                findings.push(Finding::warning("sample-fields", text));
            }
        }
        if self.samples == 0 {
            let text = "the dataset has no samples".to_owned();
            findings.push(Finding::warning("dataset-empty", text));
        }
        summarise(findings)
    }

    fn structure(&self, survey: &Survey) -> Vec<Finding> {
        let mut findings: Vec<Finding> = survey.error.iter().map(Finding::of).collect();
        if let Some(sample) = survey.torn_sample(&self.limits) {
            let fields: Vec<&str> = sample.fields.iter().map(|field| &*field.name).collect();
            let text = format!(
                "the shard breaks off within or after sample `{}`, which has {} so far; many readers deliver it like that",
                escape(&sample.key),
                fields.join(", ")
            );
            findings.push(Finding::error("sample-torn", text).at(sample.begin));
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
    fn grouping(&mut self, survey: &Survey) -> Vec<Finding> {
        let (samples, problems) = survey.samples(Consumer::Webdataset, &self.limits);
        let mut findings: Vec<Finding> = problems.iter().map(Finding::of).collect();
        let mut here = HashSet::new();
        for sample in &samples {
            if !here.insert(&*sample.key) {
                let error = WebdatasetError::split_sample(sample.begin, &sample.key);
                findings.push(Finding::of(&error));
                continue;
            }
            if sample.key.ends_with('/') {
                let key = escape(&sample.key);
                let text = format!("hidden files become a sample with the key `{key}`");
                findings.push(Finding::warning("sample-hidden", text).at(sample.begin));
            }
            let mut fields: Vec<Box<str>> = sample
                .fields
                .iter()
                .map(|field| field.name.clone())
                .collect();
            fields.sort_unstable();
            let first = || (0, sample.key.to_string());
            self.field_sets.entry(fields).or_insert_with(first).0 += 1;
        }
        self.samples = self.samples.saturating_add(samples.len() as u64);
        findings
    }
}

fn hashes(facts: &ShardFacts<'_>) -> Vec<Finding> {
    let Some((declared, found)) = facts.hashes else {
        return Vec::new();
    };
    declared
        .iter()
        .filter_map(|digest| found.get(digest.algo()))
        .filter_map(|digest| declared.check_digest(digest).err())
        .map(|error| Finding::error(error.id(), error.to_string()))
        .collect()
}

/// Returns findings that affect no reader, but may interest the user.
fn style(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    let extended = survey.files().filter(|member| member.header_bytes() > 512);
    let (mut count, mut bytes) = (0_u64, 0_u64);
    for member in extended {
        count += 1;
        bytes = bytes.saturating_add(member.header_bytes() - 512);
    }
    if count > 0 {
        let text = format!(
            "{count} members have additional headers (PAX or GNU, for long names or exact times), which take {bytes} bytes"
        );
        findings.push(Finding::new("tar-extended", Severity::Note, text));
    }
    let is_skipped = |member: &&MemberEntry| Consumer::Webdataset.split(&member.name).is_none();
    for member in survey.files().filter(is_skipped) {
        let name = escape(&member.name);
        let text =
            format!("`{name}` belongs to no sample: its name has no dot, or marks it as metadata");
        findings.push(Finding::warning("member-skipped", text).of_member(member));
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
            findings.push(Finding::warning("field-case", text).of_member(member));
        }
        if FieldKind::of(&field).0 == FieldKind::Pickle {
            let text = format!("the field `{shown}` is a pickle, which runs code when it is read");
            findings.push(Finding::warning("encoding-unsafe", text).of_member(member));
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
