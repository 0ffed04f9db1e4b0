//! Finds members and samples that a particular reader refuses or misreads.

use std::collections::{BTreeSet, HashMap, HashSet};

use shardmill_codec::Algorithm;
use shardmill_core::{Limits, escape};

use super::finding::{Finding, Severity, ShardFacts};
use crate::error::WebdatasetError;
use crate::group::SampleEntry;
use crate::member::MemberEntry;
use crate::names::Consumer;
use crate::survey::Survey;

/// The number of samples of the first shard from which Hugging Face `datasets` infers the fields of all.
const HF_SAMPLES: usize = 5;

pub(super) fn check(
    consumer: Consumer,
    survey: &Survey,
    facts: &ShardFacts<'_>,
    limits: &Limits,
) -> Vec<Finding> {
    let (samples, problems) = survey.samples(consumer, limits);
    let mut findings: Vec<Finding> = problems.iter().map(Finding::of).collect();
    findings.extend(compression(consumer, facts));
    findings.extend(split_runs(&samples));
    findings.extend(differences(consumer, survey));
    match consumer {
        Consumer::Webdataset => {}
        Consumer::Hf => findings.extend(hf(&samples, facts.is_first)),
        Consumer::Dali => findings.extend(dali(survey, &samples)),
        Consumer::Energon => {
            if samples.is_empty() {
                let text = "the shard has no samples, with which `energon prepare` gives up";
                findings.push(Finding::error("sidecar-empty", text.to_owned()));
            }
        }
        Consumer::Wids => findings.extend(wids(survey)),
        Consumer::OpenClip => findings.extend(open_clip(&samples)),
    }
    findings
        .into_iter()
        .map(|finding| finding.for_consumer(consumer))
        .collect()
}

/// Returns a finding if the reader needs uncompressed tar files.
fn compression(consumer: Consumer, facts: &ShardFacts<'_>) -> Option<Finding> {
    let compression = facts.compression?;
    let family = compression.algorithm();
    let (severity, text) = match consumer {
        Consumer::Dali | Consumer::Energon | Consumer::Wids => (
            Severity::Error,
            format!("{consumer} needs uncompressed shards, and this one is {family}"),
        ),
        Consumer::Hf if family == Algorithm::Gzip => {
            // The reader accepts other names, and decompresses while it reads.
            facts.name.ends_with(".tgz").then_some(())?;
            (
                Severity::Warning,
                "files that end in `.tgz` are taken for shards only where the builder `webdataset` is named"
                    .to_owned(),
            )
        }
        Consumer::Hf => (
            Severity::Error,
            format!("shards that are compressed with {family} are not read"),
        ),
        Consumer::Webdataset | Consumer::OpenClip if family == Algorithm::Zstd => (
            Severity::Warning,
            "zstd is read through a command such as `zstd -dc` only; a decoder that stops after the first frame sees a part of the samples"
                .to_owned(),
        ),
        Consumer::Webdataset | Consumer::OpenClip => return None,
    };
    Some(Finding::new("shard-compressed", severity, text))
}

/// Returns findings for keys in several runs, each of which this reader treats as a sample.
fn split_runs(samples: &[SampleEntry]) -> Vec<Finding> {
    let mut seen: HashSet<&str> = HashSet::new();
    samples
        .iter()
        .filter(|sample| !seen.insert(&sample.key))
        .map(|sample| {
            let key = escape(&sample.key);
            let text =
                format!("the key `{key}` occurs in several samples, each with some of the fields");
            Finding::error("tar-split", text)
        })
        .collect()
}

/// Returns findings for members that this reader interprets differently from the original.
fn differences(consumer: Consumer, survey: &Survey) -> Vec<Finding> {
    if matches!(consumer, Consumer::Webdataset | Consumer::OpenClip) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for member in survey.files() {
        let theirs = consumer.split(member.name_for(consumer));
        let original = Consumer::Webdataset.split(&member.name);
        let shown = |split: &Option<(&str, std::borrow::Cow<'_, str>)>| match split {
            None => "skips it".to_owned(),
            Some((key, field)) => format!("has field `{}` of `{}`", escape(field), escape(key)),
        };
        // In wids, every field begins with a dot.
        let same = match (&theirs, &original) {
            (None, None) => true,
            (Some((key, field)), Some((original_key, original_field))) => {
                let field = match consumer {
                    Consumer::Wids => field.strip_prefix('.').unwrap_or(field),
                    _ => field,
                };
                key == original_key && field == *original_field
            }
            _ => false,
        };
        if !same {
            let (theirs, original) = (shown(&theirs), shown(&original));
            let text = format!("{consumer} {theirs}, webdataset {original}");
            findings.push(Finding::warning("split-differs", text));
        }
    }
    findings
}

fn names(sample: &SampleEntry) -> BTreeSet<&str> {
    sample.fields.iter().map(|field| &*field.name).collect()
}

fn hf(samples: &[SampleEntry], is_first: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(first) = samples.first() else {
        return findings;
    };
    let expected = names(first);
    for (index, sample) in samples.iter().enumerate() {
        let found = names(sample);
        if found == expected {
            continue;
        }
        let key = escape(&sample.key);
        let (severity, text) = if is_first && index < HF_SAMPLES {
            let text = format!(
                "sample `{key}` has other fields than the first one, and the first {HF_SAMPLES} samples have to agree"
            );
            (Severity::Error, text)
        } else {
            let text = format!(
                "sample `{key}` has other fields than the first ones: what it lacks becomes null, and what it has beyond them is lost"
            );
            (Severity::Warning, text)
        };
        findings.push(Finding::new("sample-fields", severity, text));
    }
    findings
}

fn dali(survey: &Survey, samples: &[SampleEntry]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in survey.files() {
        let reason = if member.name.contains(char::is_whitespace) {
            "a space, which its index cannot express"
        } else if !member.name.is_ascii() {
            "characters beyond ASCII, at which `wds2idx` fails"
        } else {
            continue;
        };
        let text = format!("the name `{}` has {reason}", escape(&member.name));
        findings.push(Finding::error("sidecar-name", text));
    }
    let all: BTreeSet<&str> = samples.iter().flat_map(names).collect();
    for sample in samples {
        let found = names(sample);
        if let Some(missing) = all.iter().find(|field| !found.contains(*field)) {
            let text = format!(
                "sample `{}` lacks `{}`: it is skipped, filled or refused, as `missing_component_behavior` says",
                escape(&sample.key),
                escape(missing)
            );
            findings.push(Finding::warning("sample-fields", text));
        }
    }
    if samples.is_empty() {
        let text = "an index of DALI needs a sample".to_owned();
        findings.push(Finding::error("sidecar-empty", text));
    }
    findings
}

fn wids(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut short: HashMap<&str, &MemberEntry> = HashMap::new();
    for member in &survey.members {
        if member.has_large_size {
            let name = escape(&member.name);
            let text = format!("`{name}` has a size that wids cannot read");
            findings.push(Finding::error("tar-size", text));
        }
        // wids ignores members that are not files.
        if !member.is_file_for(Consumer::Wids) {
            continue;
        }
        if let Some(name) = &member.short_name {
            let text = format!("`{}` is read as `{}`", escape(&member.name), escape(name));
            findings.push(Finding::error("tar-long-name", text));
        }
        let name = member.name_for(Consumer::Wids);
        if let Some(first) = short.insert(name, member) {
            findings.push(Finding::of(&WebdatasetError::duplicate_field(
                member.begin,
                name,
                "",
                &first.name,
                &member.name,
            )));
        }
    }
    findings
}

/// The fields that `open_clip` tries in this order for the image.
const OPEN_CLIP_IMAGES: [&str; 4] = ["jpg", "png", "jpeg", "webp"];

/// Source: `open_clip` 3.3.0, `open_clip_train/data.py`, `filter_no_caption_or_no_image`.
fn open_clip(samples: &[SampleEntry]) -> Vec<Finding> {
    let lacks = |wanted: &[&str], what: &str| {
        let mut lacking = samples
            .iter()
            .filter(|sample| wanted.iter().all(|field| sample.field(field).is_none()));
        let first = lacking.next()?;
        let (count, key) = (lacking.count() + 1, escape(&first.key));
        let text =
            format!("{count} samples have no {what} and are left out, the first of them `{key}`");
        Some(Finding::warning("sample-fields", text))
    };
    lacks(&OPEN_CLIP_IMAGES, "`jpg`, `png`, `jpeg` or `webp`")
        .into_iter()
        .chain(lacks(&["txt"], "`txt`"))
        .collect()
}
