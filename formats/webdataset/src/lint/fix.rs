//! Rewrites a shard to the canonical profile.

use std::collections::HashMap;

use shardmill_core::{Limits, escape};

use crate::error::{MemberKind, WebdatasetError, WebdatasetProblem};
use crate::member::MemberEntry;
use crate::names::Consumer;
use crate::shard::{Profile, ShardBuilder, ShardMap};
use crate::survey::Survey;

/// A change made by a rewrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// A stable id.
    pub id: &'static str,
    /// The member or the key.
    pub object: String,
    /// What is changed.
    pub text: &'static str,
}

/// A rewritten shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The new shard.
    pub bytes: Vec<u8>,
    /// The contents of the new shard.
    pub map: ShardMap,
    /// The differences, not counting headers.
    pub changes: Vec<Change>,
}

/// A sample being collected: its key, and its fields with member name and content.
struct Gathered<'a> {
    key: String,
    fields: Vec<(String, &'a str, &'a [u8])>,
}

/// Rewrites a raw shard to `profile`: plain headers, fields sorted and in lower case, each sample in one run, and only
/// members that belong to a sample. Samples keep their order; a sample in several runs moves to its first run. Members
/// that repeat a field with the same content are dropped.
///
/// # Errors
///
/// [`WebdatasetError`]: damage, links and devices (`Corrupt`, `Unsupported`), names that the profile does not allow
/// (`InvalidInput`), fields with two different contents (`Corrupt`).
pub fn fix(data: &[u8], profile: Profile, limits: &Limits) -> Result<Fixed, WebdatasetError> {
    let survey = Survey::of(data, limits);
    if let Some(error) = survey.error {
        return Err(error);
    }
    let mut changes = Vec::new();
    let mut samples: Vec<Gathered<'_>> = Vec::new();
    let mut indexes: HashMap<String, usize> = HashMap::new();
    let mut last = None;
    for member in &survey.members {
        let mut change = |id, text| {
            changes.push(Change {
                id,
                object: member.name.to_string(),
                text,
            });
        };
        if let Some(problem) = &member.problem {
            return Err(problem.clone());
        }
        if member.kind != MemberKind::File {
            change("member-directory", "the entry of a directory is left out");
            continue;
        }
        let Some((key, field)) = Consumer::Webdataset.split(&member.name) else {
            change("member-skipped", "it belongs to no sample and is left out");
            continue;
        };
        if key.ends_with('/') {
            change("sample-hidden", "a hidden file is left out");
            continue;
        }
        if field.starts_with('_') {
            change("field-metadata", "a field of metadata is left out");
            continue;
        }
        let clean = clean_key(key);
        if clean != key {
            change("key-prefix", "empty and `.` parts of the key are left out");
        }
        if !member.name.ends_with(&*field) {
            change("field-case", "the field is written in lower case");
        }
        let content = content(data, member)?;
        let index = *indexes.entry(clean.clone()).or_insert_with(|| {
            samples.push(Gathered {
                key: clean,
                fields: Vec::new(),
            });
            samples.len() - 1
        });
        let is_return = last != Some(index) && index + 1 != samples.len();
        if is_return {
            change("tar-split", "it joins the other members of its sample");
        }
        last = Some(index);
        let Some(sample) = samples.get_mut(index) else {
            continue;
        };
        let fields = sample.fields.len() as u64 + 1;
        WebdatasetError::check_limit("tar-fields", fields, limits.tar.fields, member.begin)?;
        match sample.fields.iter().find(|(name, ..)| *name == *field) {
            None => sample
                .fields
                .push((field.into_owned(), &member.name, content)),
            Some((_, _, first)) if *first == content => {
                change(
                    "tar-duplicate",
                    "a second copy of the same bytes is left out",
                );
            }
            Some((_, first, _)) => {
                return Err(WebdatasetProblem::FieldConflict.because(format!(
                    "field `{}` of sample `{}` occurs twice, with different content: `{}` and `{}`",
                    escape(&field),
                    escape(&sample.key),
                    escape(first),
                    escape(&member.name)
                )));
            }
        }
    }
    let mut shard = ShardBuilder::new(profile);
    for sample in &samples {
        let fields: Vec<(&str, &[u8])> = sample
            .fields
            .iter()
            .map(|(name, _, content)| (name.as_str(), *content))
            .collect();
        shard.push(&sample.key, &fields)?;
    }
    let (bytes, map) = shard.finish();
    Ok(Fixed {
        bytes,
        map,
        changes,
    })
}

/// Removes empty and `.` components from a key, such as those in `./a` and `a//b`.
fn clean_key(key: &str) -> String {
    let parts: Vec<&str> = key
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    parts.join("/")
}

/// Returns the content of a member.
fn content<'a>(data: &'a [u8], member: &MemberEntry) -> Result<&'a [u8], WebdatasetError> {
    usize::try_from(member.data)
        .ok()
        .zip(usize::try_from(member.bytes).ok())
        .and_then(|(at, bytes)| data.get(at..)?.get(..bytes))
        .ok_or_else(|| WebdatasetError::short(member.begin, &member.name, member.bytes, 0))
}
