//! What a location holds, by names alone.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use shardmill_storage::{Location, RemoteLocation, RemoteOptions};

use crate::files::{Expanded, expand, is_hidden, kind_of_name, place, stat};
use crate::objects::{self, Found, Holds, Object, Store};
use crate::walk::{MAX_DEPTH, Stamp, shown};
use crate::{SourceError, SourceKind, SourceOptions};

/// The one kind that locations hold, each by its name and, for a directory, by the names in it.
///
/// A directory with `_delta_log` is [`SourceKind::Delta`], one with `index.json` is [`SourceKind::Mds`], or
/// [`SourceKind::Webdataset`] where the index says so; one with tar files is that as well; with a `.parquet` file anywhere below it is [`SourceKind::Parquet`]; where all files are CSV, JSON lines or
/// Arrow files it is that; anything else is a [`SourceKind::Tree`]. A pattern is what its matches are. Of a prefix in a
/// store no more than the first page of its listing is looked at.
///
/// # Errors
///
/// [`SourceError`] when a location does not exist, or is a file whose name says nothing; [`SourceError::Mixed`] when they
/// differ.
pub fn detect(locations: &[Location], remote: &RemoteOptions) -> Result<SourceKind, SourceError> {
    let options = SourceOptions {
        remote: remote.clone(),
        ..SourceOptions::default()
    };
    detect_all(locations, &options)
}

fn detect_one(location: &Location, options: &SourceOptions) -> Result<SourceKind, SourceError> {
    match location {
        Location::Local(path) => match expand(path)? {
            Expanded::Plain(path) => detect_path(&path),
            Expanded::Pattern { matches, .. } => one_kind(
                matches
                    .iter()
                    .map(|path| (shown(path, ""), detect_path(path))),
            ),
        },
        Location::Remote(remote) => detect_remote(remote, options),
    }
}

/// The one kind of several locations.
///
/// # Errors
///
/// As [`detect`].
pub(crate) fn detect_all(
    locations: &[Location],
    options: &SourceOptions,
) -> Result<SourceKind, SourceError> {
    let kinds = locations
        .iter()
        .map(|location| (place(location), detect_one(location, options)));
    one_kind(kinds)
}

fn one_kind(
    kinds: impl Iterator<Item = (String, Result<SourceKind, SourceError>)>,
) -> Result<SourceKind, SourceError> {
    let mut first: Option<(String, SourceKind)> = None;
    for (second, kind) in kinds {
        let second_kind = kind?;
        match &first {
            None => first = Some((second, second_kind)),
            Some((first, first_kind)) if *first_kind != second_kind => {
                return Err(SourceError::Mixed {
                    first: first.clone(),
                    first_kind: *first_kind,
                    second,
                    second_kind,
                });
            }
            Some(_) => {}
        }
    }
    first.map(|(_, kind)| kind).ok_or(SourceError::Option {
        option: "SOURCE",
        reason: "no location is given".to_owned(),
    })
}

fn detect_remote(
    location: &RemoteLocation,
    options: &SourceOptions,
) -> Result<SourceKind, SourceError> {
    match objects::find(location, options)? {
        Found::Object(object, stamp) => detect_object(&object, stamp),
        Found::Folder(store) => detect_store(&store),
        Found::Pattern(store, matches) => one_kind(matches.iter().map(|found| {
            let shown = store.remote().display(&found.name);
            let kind = match &found.holds {
                Holds::Object(stamp) => {
                    let object = Object {
                        store: Arc::clone(&store),
                        name: found.name.clone(),
                    };
                    detect_object(&object, *stamp)
                }
                Holds::Folder(names) => {
                    let names = names.iter().map(|(name, stamp)| (name, Some(stamp)));
                    detect_names(&store, &found.name, names)
                }
            };
            (shown, kind)
        })),
    }
}

fn detect_object(object: &Object, stamp: Stamp) -> Result<SourceKind, SourceError> {
    let name = object.name.rsplit('/').next().unwrap_or_default();
    if let Some(kind) = kind_of_name(name) {
        return Ok(kind);
    }
    if name == INDEX_NAME && is_tar_object(&object.store, &object.name, stamp.bytes)? {
        return Ok(SourceKind::Webdataset);
    }
    kind_of_other(name).ok_or_else(|| untold(object.shown()))
}

/// Whether an index in a store is one of tar files.
fn is_tar_object(store: &Store, name: &str, bytes: u64) -> Result<bool, SourceError> {
    let head = store.remote().read_range(name, None, 0..bytes.min(HEAD))?;
    Ok(begins_as_tar_index(&head))
}

/// Names of a page.
const PAGE: u32 = 1000;

fn detect_store(store: &Store) -> Result<SourceKind, SourceError> {
    let remote = store.remote();
    let go_on = &mut |_| true;
    let mut names = remote.peek("", PAGE, go_on)?;
    let is_cut = names.len() as u64 >= u64::from(PAGE);
    if is_cut && !remote.peek("_delta_log/", 1, go_on)?.is_empty() {
        return Ok(SourceKind::Delta);
    }
    if is_cut && let Some(index) = remote.look_up(INDEX_NAME, go_on)? {
        names.push(index);
    }
    // Where a page has the names of one folder only, the first folder stands for all of them.
    for _ in 0..MAX_DEPTH {
        let has_files = names
            .iter()
            .any(|found| !found.is_marker() && !is_hidden(&found.name));
        let folder = names.iter().find(|found| {
            found.is_marker() && (!found.name.starts_with(['.', '_']) || found.name.contains('='))
        });
        match folder.map(|folder| folder.name.clone()) {
            Some(folder) if !has_files => {
                let known = names.len();
                let below = remote.peek(&folder, PAGE, go_on)?;
                names.retain(|found| found.name != folder);
                names.extend(below.into_iter().filter(|found| found.name != folder));
                if names.len() < known {
                    continue;
                }
            }
            _ => break,
        }
    }
    let found = names.iter().map(|found| (found.name.as_str(), None));
    let bytes = |name: &str| {
        names
            .iter()
            .find(|found| found.name == name)
            .map(|found| found.bytes)
    };
    if let (Some(bytes), false) = (
        bytes(INDEX_NAME),
        names.iter().any(|found| is_log(&found.name)),
    ) {
        return Ok(match is_tar_object(store, INDEX_NAME, bytes)? {
            true => SourceKind::Webdataset,
            false => SourceKind::Mds,
        });
    }
    detect_names(store, "", found)
}

/// Whether a name beneath a prefix is that of a part of a table log.
fn is_log(name: &str) -> bool {
    name.starts_with("_delta_log/")
}

/// What names beneath `folder` say.
fn detect_names<'a>(
    store: &Store,
    folder: &str,
    names: impl Iterator<Item = (&'a str, Option<Stamp>)>,
) -> Result<SourceKind, SourceError> {
    let shown = |name: &str| match folder {
        "" => store.remote().display(name),
        folder => store.remote().display(&format!("{folder}/{name}")),
    };
    let mut census = Census::default();
    for (name, stamp) in names {
        if is_log(name) {
            return Ok(SourceKind::Delta);
        }
        if let (INDEX_NAME, Some(stamp)) = (name, stamp) {
            let name = format!("{folder}/{INDEX_NAME}");
            return Ok(match is_tar_object(store, &name, stamp.bytes)? {
                true => SourceKind::Webdataset,
                false => SourceKind::Mds,
            });
        }
        if name.is_empty() || name.ends_with('/') || is_hidden(name) {
            continue;
        }
        let file = name.rsplit('/').next().unwrap_or_default();
        census.count(file, || shown(name));
    }
    census.kind(|| shown(""))
}

fn detect_path(path: &Path) -> Result<SourceKind, SourceError> {
    let metadata = stat(path)?;
    if metadata.is_dir() {
        return detect_directory(path);
    }
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    if let Some(kind) = kind_of_name(&name) {
        return Ok(kind);
    }
    if name == INDEX_NAME && is_tar_index(path)? {
        return Ok(SourceKind::Webdataset);
    }
    kind_of_other(&name).ok_or_else(|| untold(shown(path, "")))
}

/// What a file holds that is no table by its name.
fn kind_of_other(name: &str) -> Option<SourceKind> {
    if ends_with(name, ".json") {
        return Some(SourceKind::JsonLines);
    }
    is_tar(name).then_some(SourceKind::Webdataset)
}

const fn untold(location: String) -> SourceError {
    SourceError::Unsupported {
        location,
        what: "is a single file whose name does not tell what it holds",
        hint: "say what it holds with --from",
    }
}

fn ends_with(name: &str, suffix: &str) -> bool {
    name.len() > suffix.len()
        && name
            .get(name.len() - suffix.len()..)
            .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}

fn is_tar(name: &str) -> bool {
    [".tar", ".tar.gz", ".tgz", ".tar.zst"]
        .iter()
        .any(|suffix| ends_with(name, suffix))
}

/// The name of the index of a data set.
const INDEX_NAME: &str = "index.json";

/// Whether an index is one of tar files: only those have their format at the top, and keys are sorted.
fn is_tar_index(path: &Path) -> Result<bool, SourceError> {
    let io = |source| SourceError::io("read", shown(path, ""), source);
    let mut head = Vec::new();
    let file = fs::File::open(path).map_err(io)?;
    file.take(HEAD).read_to_end(&mut head).map_err(io)?;
    Ok(begins_as_tar_index(&head))
}

/// Bytes of an index that are looked at.
const HEAD: u64 = 256;

fn begins_as_tar_index(head: &[u8]) -> bool {
    let mut words = head
        .split(|byte| matches!(byte, b'"' | b'{'))
        .map(<[u8]>::trim_ascii)
        .filter(|word| !word.is_empty());
    words.next() == Some(b"format".as_slice())
}

/// What the names below a directory say, counted until a Parquet file settles it.
#[derive(Default)]
struct Census {
    files: bool,
    tar: bool,
    parquet: bool,
    /// One of the files that are no Parquet, beside Parquet files.
    other: Option<String>,
    /// The kind that all files so far share; `Some(None)` when they are of no table kind or differ.
    common: Option<Option<SourceKind>>,
    /// There are files that Hugging Face `datasets` puts beside its Arrow files.
    saved: bool,
    /// Such a file of a folder with one data set for each split.
    splits: bool,
}

impl Census {
    /// Counts a file that is not hidden.
    fn count(&mut self, name: &str, path: impl FnOnce() -> String) {
        let table = kind_of_name(name);
        self.files = true;
        if table == Some(SourceKind::Parquet) {
            self.parquet = true;
            return;
        }
        if SAVED.contains(&name) {
            self.splits |= name == SPLITS;
            self.saved = true;
            return;
        }
        if !accompanies(name) {
            let path = path();
            if self.other.as_ref().is_none_or(|other| path < *other) {
                self.other = Some(path);
            }
        }
        self.tar |= is_tar(name);
        self.common = Some(match self.common {
            Some(common) if common != table => None,
            _ => table,
        });
    }

    fn kind(self, root: impl FnOnce() -> String) -> Result<SourceKind, SourceError> {
        if self.splits && self.common == Some(Some(SourceKind::Arrow)) {
            return Err(SourceError::Option {
                option: "--from",
                reason: format!(
                    "{} holds a data set for each split ({SPLITS}): name the folder of one, or say --from arrow to read all of them as one table",
                    shardmill_core::escape(root().trim_end_matches('/')),
                ),
            });
        }
        match self.other {
            // Reading the table would leave the other files out without a word.
            Some(other) if self.parquet => {
                return Err(SourceError::Option {
                    option: "--from",
                    reason: format!(
                        "{} holds Parquet files and others such as {}: say --from parquet to read the table, or --from tree to take every file",
                        shardmill_core::escape(root().trim_end_matches('/')),
                        shardmill_core::escape(&other)
                    ),
                });
            }
            _ if self.parquet => return Ok(SourceKind::Parquet),
            _ => {}
        }
        if self.tar {
            return Ok(SourceKind::Webdataset);
        }
        let common = self.common.filter(|_| self.files).flatten();
        // Beside anything else these are files like others.
        let common = common.filter(|kind| !self.saved || *kind == SourceKind::Arrow);
        Ok(common.unwrap_or(SourceKind::Tree))
    }
}

/// What Hugging Face `datasets` puts into the folders that it saves.
const SAVED: [&str; 3] = ["dataset_info.json", "state.json", SPLITS];

/// The same, in the folder above those of the splits.
const SPLITS: &str = "dataset_dict.json";

/// Whether a file is what people and writers put beside a table: a description, a licence, a checksum.
fn accompanies(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("readme")
        || name.starts_with("license")
        || ends_with(&name, ".md")
        || ends_with(&name, ".crc")
}

fn detect_directory(root: &Path) -> Result<SourceKind, SourceError> {
    if root.join("_delta_log").is_dir() {
        return Ok(SourceKind::Delta);
    }
    let index = root.join(INDEX_NAME);
    if index.is_file() {
        return Ok(match is_tar_index(&index)? {
            true => SourceKind::Webdataset,
            false => SourceKind::Mds,
        });
    }
    let mut census = Census::default();
    let mut pending = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = pending.pop() {
        let io = |source| SourceError::io("list", shown(&directory, ""), source);
        for entry in fs::read_dir(&directory).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let kind = entry.file_type().map_err(io)?;
            let hidden = name.starts_with(['.', '_']);
            if kind.is_dir() {
                if (!hidden || name.contains('=')) && depth < MAX_DEPTH {
                    pending.push((entry.path(), depth + 1));
                }
                continue;
            }
            if hidden {
                continue;
            }
            census.count(&name, || shown(&entry.path(), ""));
        }
    }
    let kind = census.kind(|| shown(root, ""))?;
    if kind == SourceKind::Tree {
        check_shards(root)?;
    }
    Ok(kind)
}

/// Refuses to take shards for files of a tree: those of a conversion that is not done, and data sets beneath a folder.
fn check_shards(root: &Path) -> Result<(), SourceError> {
    if root.join(shardmill_core::JOURNAL_NAME).exists() {
        return Err(SourceError::Option {
            option: "--from",
            reason: format!(
                "{} holds the shards of a conversion that is not finished: run that again to end it, or say --from tree to take every file",
                shown(root, "")
            ),
        });
    }
    let io = |source| SourceError::io("list", shown(root, ""), source);
    let mut names = Vec::new();
    for entry in fs::read_dir(root).map_err(io)? {
        let entry = entry.map_err(io)?;
        if is_dataset(&entry.path().join(INDEX_NAME)) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();
    match names.first() {
        None => Ok(()),
        Some(first) => Err(SourceError::Option {
            option: "--from",
            reason: format!(
                "{} holds data sets in folders, such as {}: name one of them, or say --from tree to take every file",
                shown(root, ""),
                shardmill_core::escape(first)
            ),
        }),
    }
}

/// Whether a file is the index of a data set. What cannot be read is none: it is a file like others.
fn is_dataset(index: &Path) -> bool {
    let mut head = Vec::new();
    let read = fs::File::open(index).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    let has = |word: &[u8]| head.windows(word.len()).any(|found| found == word);
    read.is_ok() && head.starts_with(b"{") && has(b"\"shards\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardmill_core::Diagnostic as _;

    fn detect(path: &Path) -> Result<SourceKind, SourceError> {
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
    fn directories_are_told_by_the_names_in_them() {
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
            (&["a.csv", "state.json"], SourceKind::Tree),
            (&["state.json"], SourceKind::Tree),
            (&["a.csv", "a.jpg"], SourceKind::Tree),
            (&["a.jpg", "a.csv"], SourceKind::Tree),
            (&["a.csv", "b.jsonl"], SourceKind::Tree),
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
    fn an_index_says_of_what_it_is() {
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
    fn a_table_among_other_files_is_not_guessed() {
        let root = tree(&["a.parquet", "x/photo.jpg"]);
        let error = detect(root.path()).unwrap_err();
        assert_eq!(error.kind(), shardmill_core::ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(
            text.contains("photo.jpg") && text.contains("--from tree"),
            "{text}"
        );
    }

    #[test]
    fn splits_are_not_read_as_one_table() {
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
    fn shards_are_not_taken_for_files_of_a_tree() {
        let root = tree(&["train/index.json", "train/shard.00000.mds", "notes.txt"]);
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
    fn what_cannot_be_told_is_named() {
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
    fn files_and_patterns_are_told_by_their_names() {
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
