//! What a conversion has left beside an index: what its samples hold together, and which of them its table no longer has.

mod pending;

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;
use shardmill_core::{Diagnostic as _, ErrorKind, JOURNAL_NAME, PARTS_FOLDER, Unfinished};
use shardmill_mds::Content;
use shardmill_storage::{Dir, Folder, Remote, StorageError, Stored};

use crate::dataset::INDEX_NAME;
use crate::report::{ContentReport, Problem};

pub use pending::{PENDING_BYTES, PENDING_NAME, Pending};

/// The name of the file that says where data came from and how it was made. On purpose none of these names ends in
/// `.json`: tools that merge the indexes of sub-directories take every nested `*.json` for one.
pub const PROVENANCE_NAME: &str = "index.provenance";

/// The name of the file that says which samples are the rows of which files of a table.
pub const RECORD_NAME: &str = "index.increments";

/// The name of the list of samples that the table no longer has.
pub const TOMBSTONES_NAME: &str = "index.tombstones";

/// What an unfinished conversion into this directory has left there.
pub(crate) fn unfinished(dir: &Dir) -> Result<Option<Unfinished>, StorageError> {
    let found = match dir.exists(JOURNAL_NAME) {
        // No writer makes its journal a link.
        Err(StorageError::Symlink { .. }) => return Ok(None),
        found => found?,
    };
    if found {
        return Ok(Some(Unfinished::Conversion));
    }
    let parts = match dir.open_dir(PARTS_FOLDER).and_then(|parts| parts.entries()) {
        Ok(parts) => parts,
        Err(StorageError::Symlink { .. } | StorageError::NotDirectory { .. }) => return Ok(None),
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let names = parts.iter().filter_map(|entry| entry.name.to_str());
    let names: Vec<String> = names.map(|name| format!("{PARTS_FOLDER}/{name}")).collect();
    Ok(Unfinished::among(names.iter().map(String::as_str)))
}

/// What an unfinished conversion into this folder, which may be in a store, has left there.
///
/// # Errors
///
/// What the disk or the store says.
pub fn unfinished_in(folder: &Folder) -> Result<Option<Unfinished>, StorageError> {
    match folder {
        Folder::Local(dir) => unfinished(dir),
        folder if !folder.can_list() => Ok(None),
        folder => {
            let names = folder.all_names(Remote::LIST_MOST)?.unwrap_or_default();
            Ok(Unfinished::among(names.iter().map(String::as_str)))
        }
    }
}

/// Most bytes of a provenance.
pub const PROVENANCE_BYTES: u64 = 64 << 20;

/// Most bytes of a record, and of a list of tombstones.
pub const SIDE_BYTES: u64 = 1 << 30;

/// What a conversion says about the samples of its index.
#[derive(Clone, Debug, Default)]
pub struct Converted {
    content: Content,
    /// Samples that do not count, in order: the first number, and the one behind the last.
    tombstones: Vec<(u64, u64)>,
    /// Whether the keys of tar samples are numbers, which do not count either.
    pub has_numbers: bool,
}

/// What was found beside an index.
#[derive(Debug, Default)]
pub struct Beside {
    /// What the samples are to be compared with; `None` where nothing says it.
    pub converted: Option<Converted>,
    /// What is wrong with the side files.
    pub problem: Option<Problem>,
    /// Why nothing is compared.
    pub warning: Option<Problem>,
}

#[derive(Deserialize)]
struct Tombstones {
    tombstones: u64,
    count: u64,
    samples: Vec<(u64, u64)>,
}

/// Files of the folder of an index.
struct Files<'a> {
    open: &'a dyn Fn(&str) -> Result<Stored, StorageError>,
    /// What a run that was killed had not written yet.
    pending: BTreeMap<String, String>,
}

impl Files<'_> {
    /// A whole file; `None` where there is none.
    fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StorageError> {
        if let Some(text) = self.pending.get(name) {
            return Ok(Some(text.clone().into_bytes()));
        }
        match (self.open)(name) {
            Ok(file) => file.read_all(most).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds what an increment that was killed has left to be written, where it belongs to the index.
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

impl Beside {
    /// Reads the side files of an index of so many samples in so many shards; `open` opens files of its folder.
    pub fn read(
        open: &dyn Fn(&str) -> Result<Stored, StorageError>,
        (samples, shards): (u64, u64),
        index_bytes: u64,
    ) -> Self {
        let mut files = Files {
            open,
            pending: BTreeMap::new(),
        };
        let found = files
            .take_pending(index_bytes)
            .and_then(|()| files.read(PROVENANCE_NAME, PROVENANCE_BYTES));
        let text = match found {
            Ok(Some(text)) => text,
            Ok(None) => return Self::default(),
            // A store may give no answer about an object that is not there.
            Err(error) => return Self::warning(error.id(), error.to_string()),
        };
        let Ok(side) = serde_json::from_slice::<Value>(&text) else {
            return Self::warning(
                "provenance-damaged",
                "it is no JSON, so that the samples are not compared with what the conversion noted"
                    .to_owned(),
            );
        };
        let number = |pointer: &str| side.pointer(pointer).and_then(Value::as_u64);
        let content = side.get("content").and_then(Value::as_str);
        let Some(content) = content.and_then(Content::parse) else {
            return Self::default();
        };
        let noted = (number("/samples"), number("/shards"));
        if noted != (Some(samples), Some(shards)) {
            let text = format!(
                "it is about {} samples in {} shards, and the index has {samples} in {shards}, so that the samples are not compared with what the conversion noted",
                noted.0.unwrap_or_default(),
                noted.1.unwrap_or_default(),
            );
            return Self::warning("provenance-other", text);
        }
        let gone = number("/increment/all_tombstones").unwrap_or_default();
        let tombstones = match gone {
            0 => Ok(Vec::new()),
            gone => tombstones(&files, gone, samples),
        };
        match tombstones {
            Ok(tombstones) => Self {
                converted: Some(Converted {
                    content,
                    tombstones,
                    has_numbers: side.get("keys").and_then(Value::as_str) == Some("number"),
                }),
                ..Self::default()
            },
            Err(problem) => Self {
                problem: Some(*problem),
                ..Self::default()
            },
        }
    }

    fn warning(id: &'static str, text: String) -> Self {
        Self {
            warning: Some(described(PROVENANCE_NAME, id, text, None)),
            ..Self::default()
        }
    }
}

/// The samples that a table no longer has, of which there are `gone`.
fn tombstones(files: &Files<'_>, gone: u64, samples: u64) -> Result<Vec<(u64, u64)>, Box<Problem>> {
    let hint = Some("fetch it again; convert --incremental writes it when there is something new");
    let damaged =
        |text: String| Box::new(described(TOMBSTONES_NAME, "tombstones-damaged", text, hint));
    let text = match files.read(TOMBSTONES_NAME, SIDE_BYTES) {
        Ok(Some(text)) => text,
        Ok(None) => {
            let text = format!(
                "the file is missing, and with it which {gone} samples are gone from the table"
            );
            let problem = described(TOMBSTONES_NAME, "tombstones-missing", text, hint);
            return Err(Box::new(problem));
        }
        Err(error) => {
            let mut problem = damaged(error.to_string());
            (problem.id, problem.kind, problem.hint) = (error.id(), error.kind(), error.hint());
            return Err(problem);
        }
    };
    let list: Tombstones = serde_json::from_slice(&text)
        .map_err(|error| damaged(format!("it is no list: {error}")))?;
    if list.tombstones != 1 {
        return Err(damaged(format!(
            "its version is {}, not 1",
            list.tombstones
        )));
    }
    let mut before = None;
    let mut count = 0_u64;
    for (start, end) in &list.samples {
        if start >= end || *end > samples || before.is_some_and(|before| before >= *start) {
            return Err(damaged(format!(
                "the numbers {start} to {end} are none of {samples} samples, or in disorder"
            )));
        }
        before = Some(*end);
        count = count.saturating_add(end - start);
    }
    if count != gone || count != list.count {
        return Err(damaged(format!(
            "it names {count} samples, says that there are {}, and {PROVENANCE_NAME} says {gone}",
            list.count
        )));
    }
    Ok(list.samples)
}

impl Converted {
    /// Which of the samples with these numbers count.
    pub fn counts(&self, numbers: Range<u64>) -> impl Fn(u64) -> bool + use<'_> {
        let first = self
            .tombstones
            .partition_point(|(_, end)| *end <= numbers.start);
        let here = self.tombstones.get(first..).unwrap_or_default();
        let end = here.partition_point(|(start, _)| *start < numbers.end);
        let here = here.get(..end).unwrap_or_default();
        move |number| {
            let next = here.partition_point(|(_, end)| *end <= number);
            here.get(next).is_none_or(|(start, _)| number < *start)
        }
    }

    /// Compares; `found` is `None` where not all samples could be read.
    pub fn compare(&self, found: Option<Content>) -> (ContentReport, Option<Problem>) {
        let report = ContentReport {
            expected: self.content.to_string(),
            found: found.map(|found| found.to_string()),
            tombstones: self.tombstones.iter().map(|(start, end)| end - start).sum(),
        };
        let problem = found.filter(|found| *found != self.content).map(|found| {
            let text = format!(
                "the content of the samples is {found}, and the conversion noted {}: samples were changed, lost or exchanged, and the index with them",
                self.content
            );
            let hint = "fetch the data set again with its index and side files, or convert it again";
            described(PROVENANCE_NAME, "content-mismatch", text, Some(hint))
        });
        (report, problem)
    }
}

fn described(name: &str, id: &'static str, message: String, hint: Option<&'static str>) -> Problem {
    Problem {
        id,
        kind: ErrorKind::Corrupt,
        object: name.to_owned(),
        message,
        hint: hint.map(str::to_owned),
        shard: None,
        sample: None,
        column: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_are_gone_do_not_count() {
        let converted = Converted {
            tombstones: vec![(2, 4), (7, 8), (11, 15)],
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
