//! The result of a verification.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use shardmill_core::{Diagnostic, Error, ErrorKind, escape};

use crate::error::DatasetError;

/// The most problems, and the most warnings, that a report lists. The counts include those beyond this limit.
pub const MAX_FINDINGS: usize = 10_000;

/// A problem or a warning that the check of a dataset found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The stable id, as in `error[id]`.
    pub id: &'static str,
    /// The kind of error. The kind of the first problem decides the exit code.
    #[serde(skip)]
    pub kind: ErrorKind,
    /// The printable name of the file, sample and column that it is about.
    pub object: String,
    /// What is wrong, with numbers.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The number of the shard, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u64>,
    /// The number of the sample in the dataset, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<u64>,
    /// The column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
}

impl Problem {
    /// Makes a problem of corrupt data.
    pub(crate) fn corrupt(id: &'static str, object: &str, message: String) -> Self {
        Self {
            id,
            kind: ErrorKind::Corrupt,
            object: escape(object).into_owned(),
            message,
            hint: None,
            shard: None,
            sample: None,
            column: None,
        }
    }

    pub(crate) fn of_file(name: &str, error: &Error) -> Self {
        Self {
            kind: error.kind(),
            hint: error.hint().map(str::to_owned),
            ..Self::corrupt(error.id(), name, error.chain())
        }
    }

    pub(crate) fn new(error: &DatasetError, root: &Path, shard: usize) -> Self {
        let location = error.location();
        Self {
            id: error.id(),
            kind: error.kind(),
            object: error.object_below(root).unwrap_or_default(),
            message: error.chain(),
            hint: error.hint(),
            shard: Some(shard as u64),
            sample: location.and_then(|location| location.sample),
            column: location.and_then(|location| location.column.clone()),
        }
    }
}

/// The hash of the samples, compared with the one that the conversion recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContentReport {
    /// The hash in `index.provenance`: over all samples, independent of their order and of how shards split them.
    pub expected: String,
    /// The hash of the samples that were read; `None` if some of them could not be read.
    pub found: Option<String>,
    /// Deleted samples, which the hash excludes.
    pub tombstones: u64,
}

/// What a verification read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReadTotals {
    /// Files read, including the index.
    pub files: u64,
    /// Bytes of the files read.
    pub stored_bytes: u64,
    /// Raw bytes of the shards that were read, after decompression.
    pub raw_bytes: u64,
    /// Hashes compared.
    pub hashes: u64,
}

impl ReadTotals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.files = self.files.saturating_add(other.files);
        self.stored_bytes = self.stored_bytes.saturating_add(other.stored_bytes);
        self.raw_bytes = self.raw_bytes.saturating_add(other.raw_bytes);
        self.hashes = self.hashes.saturating_add(other.hashes);
    }
}

/// What [`verify`](crate::verify()) checked and found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Shards in the index; all of them were checked.
    pub shards: u64,
    /// Shards with a problem.
    pub damaged_shards: u64,
    /// Samples in the index.
    pub samples: u64,
    /// Samples in shards whose structure is sound.
    pub sound_samples: u64,
    /// Whether every value was decoded.
    pub deep: bool,
    /// What was read.
    #[serde(flatten)]
    pub read: ReadTotals,
    /// The comparison of the content hash; `None` unless every value was decoded and the conversion recorded a hash.
    pub content: Option<ContentReport>,
    /// Problems, in the order of their shards; at most [`MAX_FINDINGS`].
    pub problems: Vec<Problem>,
    /// How many problems there are, listed or not.
    pub problem_count: u64,
    /// Oddities that do not prevent reading; at most [`MAX_FINDINGS`].
    pub warnings: Vec<Problem>,
    /// How many warnings there are, listed or not.
    pub warning_count: u64,
}

impl VerifyReport {
    /// Returns whether there is no problem. Warnings do not count.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.problem_count == 0
    }

    /// Adds an error about a file beside the index.
    pub fn add_file_error(&mut self, name: &str, error: impl Into<Error>) {
        self.problem_count += 1;
        self.problems.push(Problem::of_file(name, &error.into()));
    }

    /// Returns the kind of the first problem, which decides the exit code; `None` for a sound dataset.
    #[must_use]
    pub fn kind(&self) -> Option<ErrorKind> {
        self.problems.first().map(|problem| problem.kind)
    }
}

/// Findings of several shards. Those of the lowest shards are kept, in whatever order the shards are added.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    kept: BTreeMap<usize, Vec<Problem>>,
    kept_count: usize,
    pub(crate) count: u64,
}

impl Findings {
    pub(crate) fn add(&mut self, shard: usize, found: Found) {
        self.count += found.count;
        if found.kept.is_empty() {
            return;
        }
        self.kept_count += found.kept.len();
        self.kept.entry(shard).or_default().extend(found.kept);
        while self.kept_count > MAX_FINDINGS
            && let Some((shard, mut last)) = self.kept.pop_last()
        {
            let before = last.len();
            last.truncate(before.saturating_sub(self.kept_count - MAX_FINDINGS));
            self.kept_count -= before - last.len();
            if !last.is_empty() {
                self.kept.insert(shard, last);
            }
        }
    }

    pub(crate) fn into_sorted(self) -> Vec<Problem> {
        self.kept.into_values().flatten().collect()
    }
}

/// Findings of one shard, in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct Found {
    kept: Vec<Problem>,
    pub(crate) count: u64,
}

impl Found {
    /// Counts a finding. It calls `describe` only while the list has room: a million bad samples must not build a
    /// million texts.
    pub(crate) fn push(&mut self, describe: impl FnOnce() -> Problem) {
        self.count += 1;
        if self.kept.len() < MAX_FINDINGS {
            self.kept.push(describe());
        }
    }
}

impl FromIterator<Problem> for Found {
    fn from_iter<T: IntoIterator<Item = Problem>>(problems: T) -> Self {
        let mut found = Self::default();
        for problem in problems {
            found.push(|| problem);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(shard: usize, count: usize) -> Found {
        let mut found = Found::default();
        for sample in 0..count {
            found.push(|| Problem {
                shard: Some(shard as u64),
                sample: Some(sample as u64),
                ..Problem::corrupt("x", "", String::new())
            });
        }
        found
    }

    #[test]
    fn first_findings_are_kept_regardless_of_order() {
        let sizes = [3, 0, 9_000, 12_000, 5, 10_001, 700];
        let mut expected = None;
        for order in [
            [0, 1, 2, 3, 4, 5, 6],
            [6, 5, 4, 3, 2, 1, 0],
            [3, 6, 0, 5, 1, 4, 2],
        ] {
            let mut findings = Findings::default();
            for shard in order {
                findings.add(shard, found(shard, sizes[shard]));
            }
            assert_eq!(findings.count, sizes.iter().sum::<usize>() as u64);
            let kept = findings.into_sorted();
            assert_eq!(kept.len(), MAX_FINDINGS);
            let last = kept.last().unwrap();
            assert_eq!((last.shard, last.sample), (Some(3), Some(996)));
            let expected = expected.get_or_insert_with(|| kept.clone());
            assert!(*expected == kept);
        }
    }
}
