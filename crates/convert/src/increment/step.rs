//! Compares the converted files with the current files of the table.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_source::{DeltaCommit, DeltaFile, DeltaHistory};

use super::ranges::Ranges;
use super::record::FileSamples;

/// The work that an increment has to do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Samples whose rows are still in the table, in these or other files.
    pub(crate) kept: Vec<FileSamples>,
    /// All other samples. They are compared with the rows of the files to read.
    pub(crate) touched: Ranges,
    /// The files to read.
    pub(crate) read: BTreeSet<String>,
}

/// Compares the converted files with the current ones. Commits show which rows were only moved to other files. Without
/// commits, moved rows are read and matched by content.
pub(crate) fn step(all_file_samples: &[FileSamples], history: &DeltaHistory) -> Step {
    let mut books = Books::new(all_file_samples);
    for commit in history.commits.iter().flatten() {
        books.follow(commit);
    }
    let now: BTreeSet<&DeltaFile> = history.files.iter().collect();
    books.settle(&now);
    let covered: BTreeSet<&str> = books.by_path.keys().map(String::as_str).collect();
    let read = history.files.iter().map(|file| &file.path);
    let read = read.filter(|path| !covered.contains(path.as_str()));
    Step {
        read: read.cloned().collect(),
        touched: Ranges::union(&books.touched),
        kept: books.kept.into_iter().flatten().collect(),
    }
}

struct Books {
    kept: Vec<Option<FileSamples>>,
    /// The position in `kept` for each path of a kept file.
    by_path: BTreeMap<String, usize>,
    touched: Vec<Ranges>,
}

impl Books {
    fn new(all_file_samples: &[FileSamples]) -> Self {
        let mut books = Self {
            kept: Vec::new(),
            by_path: BTreeMap::new(),
            touched: Vec::new(),
        };
        for file_samples in all_file_samples {
            books.keep(file_samples.clone());
        }
        books
    }

    fn keep(&mut self, file_samples: FileSamples) {
        let paths = file_samples.files.iter().map(|file| file.path.clone());
        self.by_path
            .extend(paths.map(|path| (path, self.kept.len())));
        self.kept.push(Some(file_samples));
    }

    fn take(&mut self, number: usize) -> Option<FileSamples> {
        let file_samples = self.kept.get_mut(number)?.take()?;
        for file in &file_samples.files {
            self.by_path.remove(&file.path);
        }
        Some(file_samples)
    }

    fn touch(&mut self, number: usize) {
        let file_samples = self.take(number);
        self.touched
            .extend(file_samples.map(|file_samples| file_samples.samples));
    }

    fn file_samples_of(&self, file: &DeltaFile) -> Option<usize> {
        let number = *self.by_path.get(&file.path)?;
        let file_samples = self.kept.get(number)?.as_ref()?;
        file_samples.files.contains(file).then_some(number)
    }

    fn follow(&mut self, commit: &DeltaCommit) {
        let from: Vec<Option<usize>> = commit
            .removed
            .iter()
            .map(|file| self.file_samples_of(file))
            .collect();
        let known: BTreeSet<usize> = from.iter().flatten().copied().collect();
        if commit.rearranges && !from.is_empty() && from.iter().all(Option::is_some) {
            let mut files: BTreeSet<DeltaFile> = BTreeSet::new();
            let mut samples = Vec::new();
            for number in known {
                if let Some(file_samples) = self.take(number) {
                    files.extend(file_samples.files);
                    samples.push(file_samples.samples);
                }
            }
            for file in &commit.removed {
                files.remove(file);
            }
            files.extend(commit.added.iter().cloned());
            self.keep(FileSamples {
                files: files.into_iter().collect(),
                samples: Ranges::union(&samples),
            });
            return;
        }
        for number in known {
            self.touch(number);
        }
        // The same path was added with another deletion vector.
        for file in &commit.added {
            if let Some(number) = self.by_path.get(&file.path).copied()
                && self.file_samples_of(file).is_none()
            {
                self.touch(number);
            }
        }
    }

    /// Compares the result with the current files, which take precedence over the commits.
    fn settle(&mut self, now: &BTreeSet<&DeltaFile>) {
        for number in 0..self.kept.len() {
            let file_samples = self.kept.get(number).and_then(Option::as_ref);
            if file_samples.is_some_and(|own| !own.files.iter().all(|file| now.contains(file))) {
                self.touch(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::single_range_in_vec_init,
        reason = "ranges are what it is about"
    )]

    use super::*;

    /// Parses `a`, or `a#dv` with a deletion vector.
    fn file(text: &str) -> DeltaFile {
        let (path, deletion) = match text.split_once('#') {
            Some((path, deletion)) => (path, Some(deletion.to_owned())),
            None => (text, None),
        };
        DeltaFile {
            path: path.to_owned(),
            deletion,
        }
    }

    fn files(text: &str) -> Vec<DeltaFile> {
        text.split_whitespace().map(file).collect()
    }

    fn commit(text: &str) -> DeltaCommit {
        let (removed, added) = text.trim_start_matches('=').split_once('>').unwrap();
        DeltaCommit {
            rearranges: text.starts_with('='),
            removed: files(removed),
            added: files(added),
        }
    }

    /// Starts with the files `a`, `b` and `c` of ten samples each.
    fn after(commits: Option<&[&str]>, now: &str) -> (Vec<String>, String, String) {
        let all_file_samples: Vec<FileSamples> = ["a", "b", "c"]
            .iter()
            .zip([0, 10, 20])
            .map(|(path, first)| FileSamples {
                files: files(path),
                samples: Ranges::of([first..first + 10]),
            })
            .collect();
        let step = step(
            &all_file_samples,
            &DeltaHistory {
                version: 9,
                id: String::new(),
                files: files(now),
                commits: commits.map(|commits| commits.iter().map(|text| commit(text)).collect()),
            },
        );
        let kept = step.kept.iter().map(|file_samples| {
            let paths: Vec<&str> = file_samples.files.iter().map(|file| &*file.path).collect();
            let samples = serde_json::to_string(&file_samples.samples).unwrap();
            format!("{} {samples}", paths.join("+"))
        });
        let read: Vec<String> = step.read.into_iter().collect();
        let touched = serde_json::to_string(&step.touched).unwrap();
        (kept.collect(), touched, read.join(" "))
    }

    fn expect(commits: Option<&[&str]>, now: &str, kept: &[&str], touched: &str, read: &str) {
        let found = after(commits, now);
        let kept: Vec<String> = kept.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(
            found,
            (kept, touched.to_owned(), read.to_owned()),
            "{commits:?}"
        );
    }

    const ALL: [&str; 3] = ["a [[0,10]]", "b [[10,20]]", "c [[20,30]]"];

    #[test]
    fn only_added_files_are_read() {
        expect(Some(&[]), "a b c", &ALL, "[]", "");
        expect(Some(&[">d", ">e"]), "a b c d e", &ALL, "[]", "d e");
        expect(None, "a b c d", &ALL, "[]", "d");
    }

    #[test]
    fn rewritten_or_deleted_files_are_compared() {
        let kept = ["a [[0,10]]", "c [[20,30]]"];
        expect(Some(&["b>d"]), "a c d", &kept, "[[10,20]]", "d");
        expect(None, "a c d", &kept, "[[10,20]]", "d");
        expect(Some(&["b>"]), "a c", &kept, "[[10,20]]", "");
        // A deletion vector was added.
        expect(Some(&["b>b#1"]), "a b#1 c", &kept, "[[10,20]]", "b");
        expect(Some(&[">b#1"]), "a b#1 c", &kept, "[[10,20]]", "b");
        expect(None, "a b#1 c", &kept, "[[10,20]]", "b");
        // The change was undone.
        expect(Some(&["b>d", "d>b"]), "a b c", &kept, "[[10,20]]", "b");
    }

    #[test]
    fn moved_rows_are_neither_read_nor_compared() {
        let kept = ["c [[20,30]]", "d+e [[0,20]]"];
        expect(Some(&["=a b>d e"]), "c d e", &kept, "[]", "");
        // The rows were moved twice, together with a file of the second commit.
        let kept = ["e+f [[0,30]]"];
        expect(Some(&["=a b>d e", "=c d>f"]), "e f", &kept, "[]", "");
        // The deletion vector was applied by a rewrite.
        expect(
            Some(&["=a>a#1"]),
            "a#1 b c",
            &["b [[10,20]]", "c [[20,30]]", "a [[0,10]]"],
            "[]",
            "",
        );
    }

    #[test]
    fn rows_moved_together_with_new_ones_are_compared() {
        let kept = ["b [[10,20]]", "c [[20,30]]"];
        expect(Some(&[">d", "=a d>e"]), "b c e", &kept, "[[0,10]]", "e");
        // The rows were moved and then changed.
        let kept = ["c [[20,30]]"];
        expect(
            Some(&["=a b>d e", "d>f"]),
            "c e f",
            &kept,
            "[[0,20]]",
            "e f",
        );
        // Without the log, the move is unknown.
        expect(None, "c d e", &kept, "[[0,20]]", "d e");
    }

    #[test]
    fn file_list_overrides_the_log() {
        expect(
            Some(&["=a>d"]),
            "b c e",
            &["b [[10,20]]", "c [[20,30]]"],
            "[[0,10]]",
            "e",
        );
    }
}
