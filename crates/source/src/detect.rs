//! Detects what a location holds, by names alone.
//!
//! Two names at the top of a folder decide at once, because they list the files of the dataset: the log of a Delta
//! table (`_delta_log`) and the index of a dataset (`index.json`). Otherwise [`Contents`] decides, from all files in
//! and below the folder. The rule is the same for local folders, prefixes in stores and matches of patterns.

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use shardmill_core::{
    Contents, Error, FileClass, INDEX_NAME, JOURNAL_NAME, Verdict, begins_as_tar_index, escape,
};
use shardmill_storage::{Location, RemoteOptions};

use crate::error;
use crate::file_names::{file_of, has_extension, is_hidden, kind_of_name};
use crate::files::{find, shown_below, shown_location, stat};
use crate::hints::choices;
use crate::objects::{Folder, Found};
use crate::walk::{MAX_DEPTH, shown};
use crate::{SourceKind, SourceOptions, SourceProblem};

/// Detects the kind of data that all locations hold, from their names and, for folders, the names in them.
///
/// A folder with `_delta_log` is [`SourceKind::Delta`]. A folder with `index.json` is [`SourceKind::Mds`], or
/// [`SourceKind::Webdataset`] if the index says so. Otherwise, all files below it must be of one class, which is the
/// kind: tables, tar files, or plain files, which are a [`SourceKind::Tree`]. The kind of a pattern is that of its
/// matches.
///
/// # Errors
///
/// `NotFound` when a location does not exist; `InvalidInput` when it is a file whose name does not identify a kind, or
/// when locations or the files of one location differ in kind.
pub fn detect(locations: &[Location], remote: &RemoteOptions) -> Result<SourceKind, Error> {
    let options = SourceOptions {
        remote: remote.clone(),
        ..SourceOptions::default()
    };
    detect_all(locations, &options)
}

fn detect_one(location: &Location, options: &SourceOptions) -> Result<SourceKind, Error> {
    let found = find(location, options)?;
    one_kind(found.iter().map(|found| {
        let location = found.location();
        (shown_location(&location), kind_of(found, &location))
    }))
}

fn kind_of(found: &Found, location: &Location) -> Result<SourceKind, Error> {
    match found {
        Found::Path(path) if stat(path)?.is_dir() => detect_directory(path),
        Found::Path(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            kind_of_single(&name, location, || head(path))
        }
        Found::Object(object, file_version) => {
            let head = || object.head(file_version.bytes, HEAD);
            kind_of_single(&object.name, location, head)
        }
        Found::Folder(folder) => detect_folder(folder, location),
    }
}

/// Detects the one kind of several locations.
pub(crate) fn detect_all(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<SourceKind, Error> {
    let kinds = locations
        .iter()
        .map(|location| (shown_location(location), detect_one(location, options)));
    one_kind(kinds)
}

fn one_kind(
    kinds: impl Iterator<Item = (String, Result<SourceKind, Error>)>,
) -> Result<SourceKind, Error> {
    let mut first: Option<(String, SourceKind)> = None;
    for (second, kind) in kinds {
        let second_kind = kind?;
        match &first {
            None => first = Some((second, second_kind)),
            Some((first, first_kind)) if *first_kind != second_kind => {
                let first = escape(first);
                let reason = format!("holds {second_kind}, but {first} holds {first_kind}");
                return Err(SourceProblem::Mixed
                    .at(second, reason)
                    .with_hint("convert them one by one"));
            }
            Some(_) => {}
        }
    }
    first
        .map(|(_, kind)| kind)
        .ok_or_else(|| SourceProblem::Option.at("SOURCE", "no location is given"))
}

/// Returns the kind of a single file. `head` reads its first bytes.
fn kind_of_single(
    path: &str,
    location: &Location,
    head: impl FnOnce() -> Result<Vec<u8>, Error>,
) -> Result<SourceKind, Error> {
    let name = file_of(path);
    if let Some(kind) = kind_of_name(name) {
        return Ok(kind);
    }
    if name == INDEX_NAME && kind_of_index(&head()?) == SourceKind::Webdataset {
        return Ok(SourceKind::Webdataset);
    }
    if has_extension(name, &["json"]) {
        return Ok(SourceKind::JsonLines);
    }
    let reason = "is a single file whose name does not show its format";
    let error = SourceProblem::Unsupported.at(shown_location(location), reason);
    Err(error.with_hint("set its format with --from KIND, such as --from csv"))
}

fn detect_folder(folder: &Folder, location: &Location) -> Result<SourceKind, Error> {
    if folder.has_folder("_delta_log/")? {
        return Ok(SourceKind::Delta);
    }
    if let Some((index, bytes)) = folder.file(INDEX_NAME)? {
        return Ok(kind_of_index(&index.head(bytes, HEAD)?));
    }
    let mut census = Census::default();
    for listed in folder.files()? {
        let (name, file_version) = listed?;
        census.count_path(&name, file_version.bytes);
    }
    census.kind(location, |name, bytes| {
        let index = folder.store.named(&folder.key(name));
        index.head(bytes, HEAD)
    })
}

/// The number of bytes of an index that are read.
const HEAD: u64 = 256;

/// Reads the first bytes of a file.
fn head(path: &Path) -> Result<Vec<u8>, Error> {
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.map_err(|source| error::io("read", shown(path, ""), source))?;
    Ok(head)
}

/// Returns the kind of dataset that an index lists.
fn kind_of_index(head: &[u8]) -> SourceKind {
    match begins_as_tar_index(head) {
        true => SourceKind::Webdataset,
        false => SourceKind::Mds,
    }
}

/// Counts the files below a folder, and notes what else determines its kind.
#[derive(Default)]
struct Census {
    contents: Contents,
    /// Folders directly in the folder that have an `index.json`, with its length.
    indexes: Vec<(String, u64)>,
    /// Whether the folder contains an unfinished conversion.
    is_unfinished: bool,
}

/// The most folders in a folder whose `index.json` is read.
const MAX_INDEXES: usize = 64;

impl Census {
    /// Counts a file by its path relative to the folder, with `/` as the separator.
    fn count_path(&mut self, path: &str, bytes: u64) {
        self.is_unfinished |= path == JOURNAL_NAME;
        let is_log = FileClass::of(path) == FileClass::DeltaLog;
        if path.is_empty() || path.ends_with('/') || (is_hidden(path) && !is_log) {
            return;
        }
        if let Some((folder, INDEX_NAME)) = path.split_once('/')
            && self.indexes.len() < MAX_INDEXES
        {
            self.indexes.push((folder.to_owned(), bytes));
        }
        self.contents.count(path);
    }

    /// Returns the kind that the files add up to. `head` reads the first bytes of an `index.json`.
    fn kind(
        mut self,
        location: &Location,
        head: impl Fn(&str, u64) -> Result<Vec<u8>, Error>,
    ) -> Result<SourceKind, Error> {
        let shown = |name: &str| shown_below(location, name);
        let root = || escape(shown("").trim_end_matches('/')).into_owned();
        let refused = |reason: String| SourceProblem::Option.at("--from", reason);
        let is_split = self.contents.is_split();
        let verdict = self.contents.verdict();
        let kind = match &verdict {
            Verdict::One(class, _) => SourceKind::of_class(*class),
            Verdict::Nothing | Verdict::Mixed(_) => None,
        };
        match kind {
            Some(SourceKind::Arrow) if is_split => {
                return Err(refused(format!(
                    "{} holds a dataset for each split (dataset_dict.json): name the folder of one, or pass --from arrow to read all of them as one table",
                    root()
                )));
            }
            Some(kind) => return Ok(kind),
            None => {}
        }
        // The shards of an unfinished conversion are not samples of a tree.
        if self.is_unfinished {
            return Err(refused(format!(
                "{} holds the shards of a conversion that is not finished: run it again to complete it, or pass --from tree to take every file",
                root()
            )));
        }
        self.indexes.sort_unstable();
        let dataset = self.indexes.iter().find(|(folder, bytes)| {
            let name = format!("{folder}/{INDEX_NAME}");
            // A file that cannot be read counts as an ordinary file.
            head(&name, *bytes).is_ok_and(|head| begins_as_index(&head))
        });
        if let Some((folder, _)) = dataset {
            return Err(refused(format!(
                "{} holds datasets in folders, such as {}: name one of them, or pass --from tree to take every file",
                root(),
                escape(folder)
            )));
        }
        match verdict {
            Verdict::Mixed(found) => {
                let classes = [found[0].0, found[1].0];
                let examples = found.map(|(class, path)| {
                    let path = match class {
                        // Name the table's folder.
                        FileClass::DeltaLog => path.split("/_delta_log/").next().unwrap_or(&path),
                        _ => &path,
                    };
                    format!("{} such as {}", class.name(), escape(&shown(path)))
                });
                Err(SourceProblem::Mixed
                    .at(
                        shown("").trim_end_matches('/'),
                        format!("holds {}", examples.join(", and ")),
                    )
                    .with_hint(choices(classes)))
            }
            Verdict::One(FileClass::MdsShard, example) => Err(refused(format!(
                "{} holds MDS shards such as {} without their index.json: name the folder that has it, or pass --from tree to take every file",
                root(),
                escape(&shown(&example))
            ))),
            Verdict::One(FileClass::DeltaLog, path) => {
                let table = path.split("/_delta_log/").next().unwrap_or(&path);
                Err(refused(format!(
                    "{} holds Delta tables in folders, such as {}: name one of them, or pass --from tree to take every file",
                    root(),
                    escape(table)
                )))
            }
            _ => Ok(SourceKind::Tree),
        }
    }
}

fn detect_directory(root: &Path) -> Result<SourceKind, Error> {
    if root.join("_delta_log").is_dir() {
        return Ok(SourceKind::Delta);
    }
    let index = root.join(INDEX_NAME);
    if index.is_file() {
        return Ok(kind_of_index(&head(&index)?));
    }
    let mut census = Census {
        is_unfinished: root.join(JOURNAL_NAME).exists(),
        ..Census::default()
    };
    let mut links = Links::default();
    let mut pending = vec![(root.to_owned(), String::new(), 0)];
    while let Some((directory, prefix, depth)) = pending.pop() {
        let io = |source| error::io("list", shown(&directory, ""), source);
        for entry in fs::read_dir(&directory).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().map_err(io)?;
            let is_folder = if kind.is_symlink() && entry.path().is_dir() {
                if !links.enter(root, &entry.path()) {
                    continue;
                }
                true
            } else {
                kind.is_dir()
            };
            if !is_folder {
                census.count_path(&path, 0);
                continue;
            }
            if name == "_delta_log" {
                census.count_path(&format!("{path}/log"), 0);
            } else if (!name.starts_with(['.', '_']) || name.contains('=')) && depth < MAX_DEPTH {
                pending.push((entry.path(), format!("{path}/"), depth + 1));
            }
        }
    }
    census.kind(&root.into(), |name, _| head(&root.join(name)))
}

/// The folder links that were followed, so that each folder is listed once.
#[derive(Default)]
struct Links(HashSet<PathBuf>);

impl Links {
    /// Returns whether the target of a link has to be listed: it is new, and neither contains the root nor lies in it.
    fn enter(&mut self, root: &Path, link: &Path) -> bool {
        let (Ok(target), Ok(root)) = (fs::canonicalize(link), fs::canonicalize(root)) else {
            return false;
        };
        !target.starts_with(&root) && !root.starts_with(&target) && self.0.insert(target)
    }
}

/// Returns whether the first bytes of a file are those of the index of a dataset.
fn begins_as_index(head: &[u8]) -> bool {
    let has = |word: &[u8]| head.windows(word.len()).any(|found| found == word);
    head.starts_with(b"{") && has(b"\"shards\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(path: &Path) -> Result<SourceKind, Error> {
        detect_all(&[path.into()], &SourceOptions::default())
    }

    fn tree(paths: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for path in paths {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    #[test]
    fn directory_kind_is_detected_from_file_names() {
        for (paths, kind) in [
            (&["index.json", "shard.00000.mds"][..], SourceKind::Mds),
            (
                &["k=1/a.parquet", "_SUCCESS", "readme.txt"],
                SourceKind::Parquet,
            ),
            (&["a.csv", "b.csv.gz", "_SUCCESS"], SourceKind::Csv),
            (&["x/a.jsonl", "b.ndjson"], SourceKind::JsonLines),
            (&["x/a.arrow", "b.feather"], SourceKind::Arrow),
            (
                &["data-0.arrow", "dataset_info.json", "state.json"],
                SourceKind::Arrow,
            ),
            (&["a.parquet", "dataset_info.json"], SourceKind::Parquet),
            (&["state.json"], SourceKind::Tree),
            (&["a.tsv", "x/b.tsv.gz", "README.md"], SourceKind::Tsv),
            (&["a.csv", "LICENSE", ".DS_Store"], SourceKind::Csv),
            (&["README", "LICENSE"], SourceKind::Tree),
            (&["a.json", "b.json"], SourceKind::Tree),
            (&["a/001.jpg", "a/001.json"], SourceKind::Tree),
            (&[".hidden"], SourceKind::Tree),
            (&["0.tar", "1.tar", "sizes.json"], SourceKind::Webdataset),
            (&["train/0.tar.zst", "0.tgz"], SourceKind::Webdataset),
        ] {
            let root = tree(paths);
            assert_eq!(detect(root.path()).unwrap(), kind, "{paths:?}");
        }
    }

    #[test]
    fn index_format_distinguishes_webdataset_from_mds() {
        for (text, kind) in [
            (
                "{\"format\": \"webdataset\", \"shards\": [], \"version\": 1}",
                SourceKind::Webdataset,
            ),
            (
                "{\"shards\": [{\"format\": \"mds\"}], \"version\": 2}",
                SourceKind::Mds,
            ),
            ("", SourceKind::Mds),
        ] {
            let root = tree(&["index.json"]);
            fs::write(root.path().join("index.json"), text).unwrap();
            assert_eq!(detect(root.path()).unwrap(), kind, "{text}");
        }
    }

    #[test]
    fn mixed_directory_is_an_error_naming_two_files() {
        for (paths, first, second, from) in [
            (
                &["a.parquet", "x/photo.jpg"][..],
                "a.parquet",
                "x/photo.jpg",
                "--from parquet",
            ),
            (
                &["1.jpg", "x/y/old.tar"],
                "x/y/old.tar",
                "1.jpg",
                "--from webdataset",
            ),
            (
                &["1.jpg", "old.tgz"],
                "old.tgz",
                "1.jpg",
                "--from webdataset",
            ),
            (
                &["a.csv", "state.json"],
                "a.csv",
                "state.json",
                "--from csv",
            ),
            (&["a.csv", "x/old.tar"], "a.csv", "x/old.tar", "--from csv"),
            (&["a.csv", "a.jpg"], "a.csv", "a.jpg", "--from csv"),
            (&["a.csv", "b.jsonl"], "a.csv", "b.jsonl", "--from jsonl"),
            (&["a.csv", "b.tsv"], "a.csv", "b.tsv", "--from tsv"),
            (
                &["a.arrow", "b.parquet"],
                "a.arrow",
                "b.parquet",
                "--from arrow",
            ),
            (&["x/a.mds", "b.jpg"], "x/a.mds", "b.jpg", "index.json"),
            (
                &["t/_delta_log/0.json", "t/0.parquet"],
                "a Delta table such as",
                "t/0.parquet",
                "name the folder",
            ),
        ] {
            let root = tree(paths);
            let error = detect(root.path()).unwrap_err();
            assert_eq!(error.id(), "source-mixed", "{paths:?}");
            assert_eq!(error.kind(), shardmill_core::ErrorKind::InvalidInput);
            let (text, hint) = (error.to_string(), error.hint().unwrap());
            assert!(text.contains(first) && text.contains(second), "{text}");
            assert!(
                hint.contains(from) && hint.contains("--from tree"),
                "{hint}"
            );
        }
        let root = tree(&["t/_delta_log/0.json", "README"]);
        let error = detect(root.path()).unwrap_err().to_string();
        assert!(error.contains("such as t:"), "{error}");
        let root = tree(&["x/a.mds"]);
        let error = detect(root.path()).unwrap_err().to_string();
        assert!(error.contains("without their index.json"), "{error}");
    }

    #[test]
    fn detection_follows_links_to_folders_once() {
        let root = tree(&["a/x.csv"]);
        let other = tree(&["1.jpg"]);
        let link = |target: &Path, name: &str| {
            std::os::unix::fs::symlink(target, root.path().join(name)).unwrap();
        };
        link(root.path(), "a/up");
        link(&root.path().join("a"), "b");
        assert_eq!(detect(root.path()).unwrap(), SourceKind::Csv);
        link(other.path(), "c");
        link(other.path(), "d");
        assert_eq!(detect(root.path()).unwrap_err().id(), "source-mixed");
        std::os::unix::fs::symlink(other.path(), other.path().join("self")).unwrap();
        assert_eq!(detect(root.path()).unwrap_err().id(), "source-mixed");
    }

    #[test]
    fn hugging_face_splits_are_not_read_as_one_table() {
        let root = tree(&[
            "dataset_dict.json",
            "train/data-0.arrow",
            "train/state.json",
            "test/data-0.arrow",
        ]);
        let error = detect(root.path()).unwrap_err();
        assert_eq!(error.kind(), shardmill_core::ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(
            text.contains("dataset_dict.json") && text.contains("--from arrow"),
            "{text}"
        );
        assert_eq!(
            detect(&root.path().join("train")).unwrap(),
            SourceKind::Arrow
        );
    }

    #[test]
    fn folder_with_shards_is_not_detected_as_a_tree() {
        let root = tree(&["train/index.json", "train/shard.00000.bin", "notes.txt"]);
        assert_eq!(
            detect(root.path()).unwrap(),
            SourceKind::Tree,
            "an index of something else"
        );
        fs::write(
            root.path().join("train/index.json"),
            "{\"version\": 2, \"shards\": []}",
        )
        .unwrap();
        let error = detect(root.path()).unwrap_err().to_string();
        assert!(error.contains("such as train"), "{error}");
        let root = tree(&["shard.00000.mds", ".shardmill/journal"]);
        let error = detect(root.path()).unwrap_err().to_string();
        assert!(error.contains("not finished"), "{error}");
    }

    #[test]
    fn unknown_or_missing_source_is_an_error() {
        let root = tree(&["file.xyz"]);
        assert!(
            detect(&root.path().join("file.xyz"))
                .unwrap_err()
                .hint()
                .unwrap()
                .contains("--from")
        );
        assert_eq!(
            detect(&root.path().join("gone")).unwrap_err().id(),
            "source-not-found"
        );
    }

    #[test]
    fn file_and_pattern_kind_is_detected_from_extension() {
        let root = tree(&["a.parquet", "b.json", "c.csv", "d/x.parquet", "e.tar.gz"]);
        assert_eq!(
            detect(&root.path().join("e.tar.gz")).unwrap(),
            SourceKind::Webdataset
        );
        assert_eq!(
            detect(&root.path().join("a.parquet")).unwrap(),
            SourceKind::Parquet
        );
        assert_eq!(
            detect(&root.path().join("b.json")).unwrap(),
            SourceKind::JsonLines
        );
        assert_eq!(
            detect(&root.path().join("*/*.parquet")).unwrap(),
            SourceKind::Parquet
        );
        assert_eq!(
            detect(&root.path().join("*")).unwrap_err().id(),
            "source-mixed"
        );
        let two = ["a.parquet", "c.csv"].map(|name| Location::from(root.path().join(name)));
        let error = detect_all(&two, &SourceOptions::default()).unwrap_err();
        assert_eq!(error.id(), "source-mixed");
        assert!(error.to_string().contains("holds csv, but"), "{error}");
    }
}
