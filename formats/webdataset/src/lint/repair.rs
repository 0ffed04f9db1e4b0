//! Recovers the complete samples of a damaged shard.

use std::collections::{BTreeSet, HashMap};

use shardmill_core::{Diagnostic as _, Limits};

use crate::error::{WebdatasetError, WebdatasetProblem};
use crate::group::{Grouper, SampleEntry};
use crate::names::Consumer;
use crate::shard::ShardMap;
use crate::tar::{Scanner, Step, check_member, find_header, write_trailer};

/// A sample or range that a repair could not recover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The key, if it is known.
    pub key: Option<String>,
    /// Its begin in the damaged shard.
    pub begin: u64,
    /// Its end in the damaged shard.
    pub end: u64,
    /// The stable id of the error.
    pub id: &'static str,
    /// The message of the error.
    pub text: String,
}

/// The result of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// A shard of the complete samples, with their members unchanged.
    pub bytes: Vec<u8>,
    /// The contents of the new shard.
    pub map: ShardMap,
    /// What could not be recovered.
    pub lost: Vec<Lost>,
}

/// The offset of the member's type in a header.
const TYPE_AT: usize = 156;

/// A run of members with the same key.
struct Run {
    sample: SampleEntry,
    /// The error at one of its ends or within it. `None` if its neighbours, or the ends of the archive, show that it is
    /// complete.
    doubt: Option<(&'static str, String)>,
}

/// Finds the complete samples of a damaged shard, and writes them into a new one.
///
/// Tar files have no checksums of content, so this finds only structural damage; hashes reveal the rest. A sample next
/// to damage is complete if it has every field that any sample without doubt has. Runs of the same sample are joined if
/// no field repeats. After damage, the next header is searched block by block. Headers without magic are not found. If
/// a damaged member contains a tar file, its members count as members of the shard.
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

    // Join the runs of each key, wherever they are.
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

/// Checks that the runs of one key form a complete sample.
fn verdict(runs: &[&Run], all_fields: &BTreeSet<&str>) -> Result<(), (&'static str, String)> {
    let mut fields = BTreeSet::new();
    for field in runs.iter().flat_map(|run| &run.sample.fields) {
        if !fields.insert(&*field.name) {
            let text = format!("the field `{}` occurs twice", field.name);
            return Err(("tar-duplicate", text));
        }
    }
    match runs.iter().find_map(|run| run.doubt.clone()) {
        None => Ok(()),
        Some(_) if !all_fields.is_empty() && all_fields.is_subset(&fields) => Ok(()),
        Some(doubt) => Err(doubt),
    }
}

/// Copies the members of a sample, and returns their new positions.
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
        // In a truncated file, the padding after the last content may be missing.
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

/// Returns the runs of a shard, and the damage between them.
fn runs(data: &[u8], limits: &Limits) -> (Vec<Run>, Vec<Lost>) {
    let length = data.len() as u64;
    let mut scanner = Scanner::new(length, limits);
    let mut grouper = Grouper::new(Consumer::Webdataset, limits);
    let (mut runs, mut lost) = (Vec::new(), Vec::new());
    // The error before the run being read, or within it.
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
                        // The member is dropped, and the sample may be incomplete without it.
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
            Ok(Step::Need(range)) => WebdatasetError::torn_header(range.start, length),
            Err(error @ WebdatasetError::Trailing { .. }) => {
                lost.push(loss(&error, error.offset().unwrap_or(length), length));
                runs.extend(grouper.abandon().map(|sample| Run { sample, doubt }));
                return (runs, lost);
            }
            Err(error) => error,
        };
        let here = (error.id(), error.to_string());
        let behind = match begun_key(data, &error) {
            // Its last member is complete, and the next one belongs to another sample.
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

/// Returns the key of a member whose header is valid but whose content is truncated.
fn begun_key<'a>(data: &[u8], error: &'a WebdatasetError) -> Option<&'a str> {
    let WebdatasetError::Shard {
        problem: WebdatasetProblem::Short,
        offset,
        member: Some(member),
        ..
    } = error
    else {
        return None;
    };
    // An extension header has a name of its own; the name of its member is unknown.
    let kind = data.get(usize::try_from(*offset).ok()?.checked_add(TYPE_AT)?)?;
    let (key, _) = Consumer::Webdataset
        .split(member)
        .filter(|_| matches!(kind, 0 | b'0' | b'7'))?;
    Some(key)
}

fn loss(error: &WebdatasetError, begin: u64, end: u64) -> Lost {
    Lost {
        key: None,
        begin,
        end: end.max(begin),
        id: error.id(),
        text: error.to_string(),
    }
}
