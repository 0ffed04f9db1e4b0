//! Saving what is whole of a damaged shard.

use std::collections::{BTreeSet, HashMap};

use shardmill_core::{Diagnostic as _, Limits};

use crate::error::TarError;
use crate::group::{Grouper, SampleEntry};
use crate::names::Consumer;
use crate::shard::ShardMap;
use crate::tar::{Scanner, Step, check_member, find_header, write_trailer};

/// What a repair could not save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The key, where it is known.
    pub key: Option<String>,
    /// Where it begins in the damaged shard.
    pub begin: u64,
    /// Where it ends there.
    pub end: u64,
    /// The stable id of what is wrong there.
    pub id: &'static str,
    /// What is wrong there.
    pub text: String,
}

/// What a repair saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// A shard of the samples that are whole, their members as they were.
    pub bytes: Vec<u8>,
    /// What is in it.
    pub map: ShardMap,
    /// What is not.
    pub lost: Vec<Lost>,
}

/// Where a header says what its member is.
const TYPE_AT: usize = 156;

/// A run of members with one key.
struct Run {
    sample: SampleEntry,
    /// What is wrong at one of its ends or within it; `None` where the runs beside it, or the ends of the archive, show
    /// that nothing is missing.
    doubt: Option<(&'static str, String)>,
}

/// Finds the samples of a damaged shard that are whole, and puts them into a new one.
///
/// Tar files say nothing about the content of members, so only damage to their structure is found here: hashes tell the rest.
/// A sample beside damage is whole when it has every field that any sample without doubt has; a sample in several runs is
/// joined when no field is there twice. Behind damage, headers are looked for block by block; those without magic are not
/// found, and the members of a tar file that is itself the content of a damaged member are taken for members of the shard.
#[must_use]
pub fn repair(data: &[u8], limits: &Limits) -> Repaired {
    let (runs, mut lost) = runs(data, limits);
    let whole: Vec<&SampleEntry> = runs
        .iter()
        .filter(|run| run.doubt.is_none())
        .map(|run| &run.sample)
        .collect();
    let all_fields: BTreeSet<&str> = whole
        .iter()
        .flat_map(|sample| &sample.fields)
        .map(|field| &*field.name)
        .collect();

    // Runs of one key belong together, wherever they are.
    let mut order: Vec<&str> = Vec::new();
    let mut by_key: HashMap<&str, Vec<&Run>> = HashMap::new();
    for run in &runs {
        let list = by_key.entry(&run.sample.key).or_default();
        if list.is_empty() {
            order.push(&run.sample.key);
        }
        list.push(run);
    }
    let mut bytes = Vec::new();
    let mut map = ShardMap::default();
    for key in order {
        let list = by_key.get(key).map_or(&[][..], Vec::as_slice);
        match verdict(list, &all_fields) {
            Ok(()) => map.samples.push(copy(data, list, &mut bytes)),
            Err((id, text)) => {
                let begin = list.first().map_or(0, |run| run.sample.begin);
                let end = list.last().map_or(0, |run| run.sample.end);
                lost.push(Lost {
                    key: Some(key.to_owned()),
                    begin,
                    end,
                    id,
                    text,
                });
            }
        }
    }
    map.end = bytes.len() as u64;
    write_trailer(&mut bytes);
    map.bytes = bytes.len() as u64;
    lost.sort_by_key(|lost| lost.begin);
    Repaired { bytes, map, lost }
}

/// Whether the runs of one key make a whole sample.
fn verdict(runs: &[&Run], all_fields: &BTreeSet<&str>) -> Result<(), (&'static str, String)> {
    let mut fields = BTreeSet::new();
    for field in runs.iter().flat_map(|run| &run.sample.fields) {
        if !fields.insert(&*field.name) {
            let text = format!("the field `{}` is there twice", field.name);
            return Err(("tar-duplicate", text));
        }
    }
    match runs.iter().find_map(|run| run.doubt.clone()) {
        None => Ok(()),
        Some(_) if !all_fields.is_empty() && all_fields.is_subset(&fields) => Ok(()),
        Some(doubt) => Err(doubt),
    }
}

/// Copies the members of a sample and answers where they are now.
fn copy(data: &[u8], runs: &[&Run], out: &mut Vec<u8>) -> SampleEntry {
    let mut entry = SampleEntry {
        key: runs.first().map_or("".into(), |run| run.sample.key.clone()),
        begin: out.len() as u64,
        end: 0,
        fields: Vec::new(),
    };
    for run in runs {
        let (from, to) = (run.sample.begin, out.len() as u64);
        let bytes = usize::try_from(run.sample.end.saturating_sub(from)).unwrap_or(usize::MAX);
        let members = usize::try_from(from).ok().and_then(|from| data.get(from..));
        let members = members.unwrap_or_default();
        out.extend_from_slice(members.get(..bytes).unwrap_or(members));
        // The zeros behind the last content of a file that was cut may be missing.
        out.resize(out.len().next_multiple_of(512), 0);
        for field in &run.sample.fields {
            let mut field = field.clone();
            field.offset = field.offset.saturating_sub(from).saturating_add(to);
            entry.fields.push(field);
        }
    }
    entry.end = out.len() as u64;
    entry
}

/// The runs of a shard, and the damage between them.
fn runs(data: &[u8], limits: &Limits) -> (Vec<Run>, Vec<Lost>) {
    let length = data.len() as u64;
    let mut scanner = Scanner::new(length, limits);
    let mut grouper = Grouper::new(Consumer::Webdataset, limits);
    let (mut runs, mut lost) = (Vec::new(), Vec::new());
    // What is wrong in front of the run that is being read, and within it.
    let mut doubt: Option<(&'static str, String)> = None;
    loop {
        let at = scanner.position();
        let error = match scanner.step(0, data) {
            Ok(Step::Member(member)) => {
                let pushed = match check_member(&member) {
                    Ok(()) => grouper.push(&member),
                    Err(error) => Err(error),
                };
                match pushed {
                    Ok(None) => {}
                    Ok(Some(sample)) => runs.push(Run {
                        sample,
                        doubt: doubt.take(),
                    }),
                    Err(error) => {
                        // The member is left out; whether its sample can do without it, nobody knows.
                        lost.push(loss(&error, member.begin, member.end));
                        runs.extend(grouper.abandon().map(|sample| Run {
                            sample,
                            doubt: Some((error.id(), error.to_string())),
                        }));
                        doubt = Some((error.id(), error.to_string()));
                    }
                }
                continue;
            }
            Ok(Step::End(_)) => {
                runs.extend(grouper.abandon().map(|sample| Run { sample, doubt }));
                return (runs, lost);
            }
            Ok(Step::Need(range)) => TarError::TornHeader {
                offset: range.start,
                length,
            },
            Err(TarError::Trailing { end, offset }) => {
                lost.push(loss(&TarError::Trailing { end, offset }, offset, length));
                runs.extend(grouper.abandon().map(|sample| Run { sample, doubt }));
                return (runs, lost);
            }
            Err(error) => error,
        };
        let here = (error.id(), error.to_string());
        let behind = match begun_key(data, &error) {
            // Its last member is whole, and the next one is of another sample.
            Some(key) if grouper.open_key().is_some_and(|open| open != key) => doubt.take(),
            _ => Some(here.clone()),
        };
        runs.extend(grouper.abandon().map(|sample| Run {
            sample,
            doubt: behind,
        }));
        doubt = Some(here);
        let next = find_header(data, at.saturating_add(512));
        lost.push(loss(&error, at, next.unwrap_or(length)));
        match next {
            Some(next) => scanner.resume_at(next),
            None => return (runs, lost),
        }
    }
}

/// The key of a member whose header is sound and whose content is cut off.
fn begun_key<'a>(data: &[u8], error: &'a TarError) -> Option<&'a str> {
    let TarError::Short { offset, member, .. } = error else {
        return None;
    };
    // The header of an extension has a name of its own, and that of its member is not known.
    let kind = data.get(usize::try_from(*offset).ok()?.checked_add(TYPE_AT)?)?;
    let (key, _) = Consumer::Webdataset
        .split(member)
        .filter(|_| matches!(kind, 0 | b'0' | b'7'))?;
    Some(key)
}

fn loss(error: &TarError, begin: u64, end: u64) -> Lost {
    Lost {
        key: None,
        begin,
        end: end.max(begin),
        id: error.id(),
        text: error.to_string(),
    }
}
