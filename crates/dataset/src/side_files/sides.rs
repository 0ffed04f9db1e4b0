//! Reads the side files of an index.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use shardmill_core::{Diagnostic as _, ErrorKind, INDEX_NAME};
use shardmill_mds::{
    Content, HashAlgo, PENDING_BYTES, PENDING_NAME, PROVENANCE_BYTES, PROVENANCE_NAME, Pending,
    RECORD_NAME, SIDE_BYTES, TOMBSTONES_NAME, hash_hex,
};
use shardmill_storage::{Folder, StorageError};

use super::shape::IndexShape;
use crate::error::DatasetError;
use crate::live::LiveSamples;
use crate::problem::DatasetProblem;
use crate::report::{ContentReport, Problem};

/// What a conversion recorded about the samples of its index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Converted {
    content: Content,
    live: LiveSamples,
    /// Whether the keys of tar samples are numbers. The hash then excludes the keys.
    pub(crate) has_numbers: bool,
}

/// The side files of an index, as they were read.
#[derive(Debug, Default)]
pub(crate) struct SideFiles {
    /// What to compare the samples with; `None` if no file records it.
    pub(crate) converted: Option<Converted>,
    /// The live samples. If `problem` is set, these are all samples.
    live: LiveSamples,
    /// The error that prevents the use of the side files.
    problem: Option<DatasetError>,
    /// Set if the index does not have the samples, the shards and the order that its conversion recorded.
    other: Option<DatasetError>,
    /// Why there is nothing to compare the samples with.
    absent: Option<Absent>,
    /// The files, if samples are deleted.
    sides: Option<Sides>,
}

/// The bytes of the side files of a dataset with deleted samples.
#[derive(Debug)]
pub(crate) struct Sides {
    pub(crate) provenance: Vec<u8>,
    pub(crate) tombstones: Vec<u8>,
}

/// Why there is no content hash.
#[derive(Debug)]
enum Absent {
    /// The provenance does not exist: another program may have made the dataset.
    Missing,
    /// The store does not reveal whether a provenance exists.
    Hidden(StorageError),
    /// The provenance has no content hash.
    Silent,
}

/// The list of deleted samples, as in its file.
#[derive(Deserialize)]
struct Tombstones {
    tombstones: u64,
    count: u64,
    samples: Vec<(u64, u64)>,
}

/// What a provenance records about the list of deleted samples.
struct Noted {
    count: u64,
    /// Length and SHA-256 of the file; older provenance files lack both.
    file: Option<(u64, String)>,
}

/// Reads a whole file of the folder of an index, up to a number of bytes; `None` if the file does not exist.
pub type ReadFile<'a> = dyn Fn(&str, u64) -> Result<Option<Vec<u8>>, StorageError> + 'a;

/// Turns the error for a missing file into `None`.
pub(crate) fn if_there(
    found: Result<Vec<u8>, StorageError>,
) -> Result<Option<Vec<u8>>, StorageError> {
    match found {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The files of the folder of an index.
struct Files<'a> {
    read: &'a ReadFile<'a>,
    /// Files that a killed run had not written or removed yet.
    pending: BTreeMap<String, Option<String>>,
}

/// Files that only a dataset with a provenance has.
const LOST_WITHOUT: [&str; 2] = [TOMBSTONES_NAME, RECORD_NAME];

impl<'a> Files<'a> {
    fn new(read: &'a ReadFile<'a>) -> Self {
        Self {
            read,
            pending: BTreeMap::new(),
        }
    }

    /// Returns the first of these names that exists.
    fn first_of(&self, names: &[&'static str]) -> Result<Option<&'static str>, StorageError> {
        for name in names {
            if self.read(name, SIDE_BYTES)?.is_some() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Reads a whole file; `None` if it does not exist.
    fn read(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>, StorageError> {
        if let Some(text) = self.pending.get(name) {
            return Ok(text.clone().map(String::into_bytes));
        }
        (self.read)(name, max)
    }

    /// Loads the files that a killed increment had not written, if they belong to the index.
    fn take_pending(&mut self, index_bytes: u64) -> Result<(), StorageError> {
        let Some(text) = self.read(PENDING_NAME, PENDING_BYTES)? else {
            return Ok(());
        };
        let Some(pending) = Pending::parse(&text) else {
            return Ok(());
        };
        let index = self.read(INDEX_NAME, index_bytes)?.unwrap_or_default();
        self.pending = pending.files_of(&index).unwrap_or_default();
        Ok(())
    }
}

/// Returns whether the note of an interrupted writer says that the current index has no file of this name.
pub(crate) fn is_gone(
    read: &ReadFile<'_>,
    name: &str,
    index_bytes: u64,
) -> Result<bool, StorageError> {
    let mut files = Files::new(read);
    files.take_pending(index_bytes)?;
    Ok(files.pending.get(name).is_some_and(Option::is_none))
}

/// Reads a whole file of a folder; in a store this takes one request.
pub(crate) fn read_file(
    folder: &Folder,
    name: &str,
    max: u64,
) -> Result<Option<Vec<u8>>, StorageError> {
    folder.keep(name, max)?;
    if_there(folder.open_file(name).and_then(|file| file.read_all(max)))
}

/// Returns the live samples of an index of this shape, and checks that its conversion wrote it. `read` reads a file of its
/// folder, up to a number of bytes.
///
/// # Errors
///
/// Invalid side files; an index of another shape.
pub fn check_sides(
    read: &ReadFile<'_>,
    shape: &IndexShape,
    index_bytes: u64,
) -> Result<LiveSamples, DatasetError> {
    SideFiles::read(read, shape, index_bytes).into_checked_live()
}

/// Returns the entry of a provenance about the list of deleted samples.
#[must_use]
pub fn tombstones_note(text: &[u8], count: u64) -> Value {
    json!({
        "file": TOMBSTONES_NAME,
        "count": count,
        "bytes": text.len(),
        "sha256": hash_hex(HashAlgo::Sha256, text),
    })
}

impl SideFiles {
    /// Reads the side files of an index of this shape, after the changes of an interrupted writer.
    pub(crate) fn read(read: &ReadFile<'_>, shape: &IndexShape, index_bytes: u64) -> Self {
        let mut files = Files::new(read);
        let provenance = files
            .take_pending(index_bytes)
            .and_then(|()| files.read(PROVENANCE_NAME, PROVENANCE_BYTES));
        Self::or_pending(files, provenance, &LOST_WITHOUT, shape, index_bytes)
    }

    /// Reads the side files of the index of a folder, as [`Self::read`].
    pub(crate) fn of_folder(folder: &Folder, shape: &IndexShape, index_bytes: u64) -> Self {
        let read = |name: &str, max| read_file(folder, name, max);
        Self::read(&read, shape, index_bytes)
    }

    /// Like [`Self::read`], with few requests to a store: the provenance was already read. The changes of an interrupted
    /// writer are read only if the files do not fit together, or list deleted samples.
    pub(crate) fn read_with(
        read: &ReadFile<'_>,
        provenance: Result<Option<Vec<u8>>, StorageError>,
        shape: &IndexShape,
        index_bytes: u64,
    ) -> Self {
        let files = Files::new(read);
        Self::or_pending(files, provenance, &[TOMBSTONES_NAME], shape, index_bytes)
    }

    fn or_pending(
        mut files: Files<'_>,
        provenance: Result<Option<Vec<u8>>, StorageError>,
        lost_without: &[&'static str],
        shape: &IndexShape,
        index_bytes: u64,
    ) -> Self {
        let of = |files: &Files<'_>, provenance| {
            Self::of(files, provenance, lost_without, shape).unwrap_or_else(|problem| Self {
                problem: Some(problem),
                live: LiveSamples::all(shape.samples),
                ..Self::default()
            })
        };
        let found = of(&files, provenance);
        let fits = found.problem.is_none() && found.other.is_none();
        if fits && (found.sides.is_none() || !files.pending.is_empty()) {
            return found;
        }
        // A writer may be replacing the files right now, or was killed while it did. Without the hash of the order, a list
        // of deleted samples may be that of the index before.
        if files.take_pending(index_bytes).is_err() || (fits && files.pending.is_empty()) {
            return found;
        }
        let provenance = files.read(PROVENANCE_NAME, PROVENANCE_BYTES);
        of(&files, provenance)
    }

    fn of(
        files: &Files<'_>,
        provenance: Result<Option<Vec<u8>>, StorageError>,
        lost_without: &[&'static str],
        shape: &IndexShape,
    ) -> Result<Self, DatasetError> {
        let (samples, shards) = (shape.samples, shape.shards);
        let path = || PathBuf::from(PROVENANCE_NAME);
        let without = |absent| Self {
            absent: Some(absent),
            live: LiveSamples::all(samples),
            ..Self::default()
        };
        let text = match provenance {
            Ok(Some(text)) => text,
            Ok(None) => {
                return match files.first_of(lost_without)? {
                    Some(name) => {
                        let reason = format!("the file does not exist, but {name} belongs to it");
                        Err(DatasetProblem::ProvenanceMissing.at(path(), reason))
                    }
                    None => Ok(without(Absent::Missing)),
                };
            }
            // A store without the permission to list gives this answer for a missing object.
            Err(error @ StorageError::At { .. }) if error.kind() == ErrorKind::Permission => {
                return Ok(without(Absent::Hidden(error)));
            }
            Err(error) => return Err(error.into()),
        };
        let damaged = |reason: &str| {
            let reason = format!("it cannot be read: {reason}");
            Err(DatasetProblem::ProvenanceDamaged.at(path(), reason))
        };
        let side = match serde_json::from_slice::<Value>(&text) {
            Ok(side @ Value::Object(_)) => side,
            Ok(_) => return damaged("it is no object"),
            Err(error) => return damaged(&error.to_string()),
        };
        let number = |pointer: &str| side.pointer(pointer).and_then(Value::as_u64);
        let in_samples = number("/samples").unwrap_or(samples);
        let in_shards = number("/shards").unwrap_or(shards);
        let noted = Noted::of(&side);
        let order = side.get("order").and_then(Value::as_str);
        let reason = if (in_samples, in_shards) != (samples, shards) {
            Some(format!(
                "the conversion recorded {in_samples} samples in {in_shards} shards, but the index has {samples} in {shards}"
            ))
        } else if order.is_some_and(|order| order != shape.order) {
            Some(format!(
                "the conversion recorded another order of the {shards} shards, or shards of other names or numbers of samples"
            ))
        } else {
            None
        };
        if let Some(reason) = reason {
            let other = DatasetProblem::ProvenanceOther.at(path(), reason);
            if noted.is_some() {
                // The numbers in the list would refer to other samples.
                return Err(other);
            }
            return Ok(Self {
                other: Some(other),
                live: LiveSamples::all(samples),
                ..Self::default()
            });
        }
        let (live, tombstones) = match noted {
            None => (LiveSamples::all(samples), None),
            Some(noted) => {
                let (live, tombstones) = live_samples(files, &noted, samples)?;
                (live, Some(tombstones))
            }
        };
        let content = side.get("content").and_then(Value::as_str);
        let content = content.and_then(Content::parse);
        Ok(Self {
            absent: content.is_none().then_some(Absent::Silent),
            converted: content.map(|content| Converted {
                content,
                live: live.clone(),
                has_numbers: side.get("keys").and_then(Value::as_str) == Some("number"),
            }),
            live,
            sides: tombstones.map(|tombstones| Sides {
                provenance: text,
                tombstones,
            }),
            ..Self::default()
        })
    }

    /// Returns the live samples, and the files that list the deleted ones.
    ///
    /// # Errors
    ///
    /// The error that prevents reading which samples are deleted.
    pub(crate) fn into_live(self) -> Result<(LiveSamples, Option<Sides>), DatasetError> {
        match self.problem {
            Some(problem) => Err(problem),
            None => Ok((self.live, self.sides)),
        }
    }

    /// Returns the live samples, and checks that the conversion wrote this index.
    ///
    /// # Errors
    ///
    /// As [`Self::into_live`]; an index of another shape.
    pub(crate) fn into_checked_live(self) -> Result<LiveSamples, DatasetError> {
        match self.problem.or(self.other) {
            Some(problem) => Err(problem),
            None => Ok(self.live),
        }
    }

    /// As [`Self::into_checked_live`], for side files that were read in this folder.
    pub(crate) fn into_checked_live_of(self, folder: &Folder) -> Result<LiveSamples, DatasetError> {
        let live = self.into_checked_live();
        live.map_err(|error| error.with_side_path(|name| folder.path_of(name)))
    }

    /// Returns what a merged index takes over: the live samples, the content hash if it is known, and whether there is
    /// a provenance.
    pub(crate) fn into_part(self) -> Result<(LiveSamples, Option<Content>, bool), DatasetError> {
        let content = self.converted.as_ref().map(|converted| converted.content);
        let has_provenance = !matches!(self.absent, Some(Absent::Missing | Absent::Hidden(_)));
        Ok((self.into_checked_live()?, content, has_provenance))
    }

    /// Returns the problem and the warning that `verify` reports.
    pub(crate) fn findings(&self, deep: bool) -> (Option<Problem>, Option<Problem>) {
        let problem = self.problem.as_ref().or(self.other.as_ref());
        let warning = match &self.absent {
            _ if !deep || problem.is_some() => None,
            Some(Absent::Missing) => Some((
                "provenance-missing",
                "the file does not exist, so the samples were not compared with a content hash; only conversions with shardmill write it"
                    .to_owned(),
            )),
            Some(Absent::Silent) => Some((
                "provenance-silent",
                "it records no content hash, so the samples were not compared with one"
                    .to_owned(),
            )),
            Some(Absent::Hidden(error)) => Some((error.id(), error.to_string())),
            None => None,
        };
        let warning = warning.map(|(id, text)| Problem::corrupt(id, PROVENANCE_NAME, text));
        let problem = problem.map(|error| Problem {
            kind: error.kind(),
            hint: error.hint(),
            ..Problem::corrupt(error.id(), error.side_name(), error.to_string())
        });
        (problem, warning)
    }
}

impl Noted {
    fn of(provenance: &Value) -> Option<Self> {
        let number = |pointer: &str| provenance.pointer(pointer).and_then(Value::as_u64);
        let hash = provenance.pointer("/tombstones/sha256");
        let file = number("/tombstones/bytes").zip(hash.and_then(Value::as_str));
        let file = file.map(|(bytes, hash)| (bytes, hash.to_owned()));
        let count = number("/tombstones/count");
        let count = count.or_else(|| number("/increment/all_tombstones"));
        let count = count.unwrap_or_default();
        (count > 0 || file.is_some()).then_some(Self { count, file })
    }
}

/// Reads the list of deleted samples. Returns the live samples and the bytes of the list.
fn live_samples(
    files: &Files<'_>,
    noted: &Noted,
    samples: u64,
) -> Result<(LiveSamples, Vec<u8>), DatasetError> {
    let path = || PathBuf::from(TOMBSTONES_NAME);
    let damaged = |reason: String| DatasetProblem::TombstonesDamaged.at(path(), reason);
    let text = files.read(TOMBSTONES_NAME, SIDE_BYTES)?;
    let Some(text) = text else {
        return Err(DatasetProblem::TombstonesMissing.at(
            path(),
            format!(
                "the file is missing; it lists the {} samples that are no longer in the table",
                noted.count
            ),
        ));
    };
    let list: Tombstones = serde_json::from_slice(&text)
        .map_err(|error| damaged(format!("it is no list: {error}")))?;
    if list.tombstones != 1 {
        return Err(damaged(format!(
            "its version is {}, not 1",
            list.tombstones
        )));
    }
    let live = LiveSamples::without(samples, list.samples).map_err(|(start, end)| {
        damaged(format!(
            "the numbers {start} to {end} are none of {samples} samples, or in disorder"
        ))
    })?;
    if live.deleted() != noted.count || live.deleted() != list.count {
        return Err(damaged(format!(
            "it names {} samples, says that there are {}, and {PROVENANCE_NAME} says {}",
            live.deleted(),
            list.count,
            noted.count
        )));
    }
    if let Some(noted) = &noted.file {
        let found = (text.len() as u64, hash_hex(HashAlgo::Sha256, &text));
        if found != *noted {
            return Err(damaged(format!(
                "it has {} bytes and the sha256 {}, and {PROVENANCE_NAME} says {} and {}",
                found.0, found.1, noted.0, noted.1
            )));
        }
    }
    Ok((live, text))
}

impl Converted {
    /// Returns a function that tells whether one of the samples with these numbers is live.
    pub(crate) fn counts(&self, numbers: Range<u64>) -> impl Fn(u64) -> bool + use<'_> {
        // PERF: most shards have no deleted samples.
        let all = self.live.count_in(&numbers) == numbers.end - numbers.start;
        move |number| all || self.live.contains(number)
    }

    /// Compares the content hash; `found` is `None` if some samples could not be read.
    pub(crate) fn compare(&self, found: Option<Content>) -> (ContentReport, Option<Problem>) {
        let report = ContentReport {
            expected: self.content.to_string(),
            found: found.map(|found| found.to_string()),
            tombstones: self.live.deleted(),
        };
        let problem = found.filter(|found| *found != self.content).map(|found| {
            let text = format!(
                "the content hash of the samples is {found}, but the conversion recorded {}: samples were changed, lost or exchanged, and the index as well",
                self.content
            );
            let hint = "fetch the dataset again with its index and side files, or convert it again";
            Problem {
                hint: Some(hint.to_owned()),
                ..Problem::corrupt("content-mismatch", PROVENANCE_NAME, text)
            }
        });
        (report, problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_samples_are_not_counted() {
        let converted = Converted {
            live: LiveSamples::without(20, [(2, 4), (7, 8), (11, 15)]).unwrap(),
            ..Converted::default()
        };
        for (from, to) in [(0, 20), (3, 12), (4, 7), (7, 8), (15, 16), (5, 5)] {
            let counts = converted.counts(from..to);
            for number in from..to {
                let is_gone = matches!(number, 2..4 | 7 | 11..15);
                assert_eq!(counts(number), !is_gone, "{number} of {from}..{to}");
            }
        }
    }
}
