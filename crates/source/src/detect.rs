//! What a location holds, by names alone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::{Expanded, expand, kind_of_name, stat};
use crate::walk::{MAX_DEPTH, shown};
use crate::{SourceError, SourceKind};

/// What a location holds, by its name and, for a directory, by the names in it.
///
/// A directory with `_delta_log` is [`SourceKind::Delta`], one with `index.json` is [`SourceKind::Mds`]; with a
/// `.parquet` file anywhere below it is [`SourceKind::Parquet`]; where all files are CSV, JSON lines or
/// Arrow files it is that; anything else is a [`SourceKind::Tree`]. A pattern is what its matches are.
///
/// # Errors
///
/// [`SourceError`] when the location does not exist, is of a kind that is not supported yet
/// (WebDataset), or is a file whose name says nothing.
pub fn detect(location: &Path) -> Result<SourceKind, SourceError> {
    match expand(location)? {
        Expanded::Plain(path) => detect_path(&path),
        Expanded::Pattern { matches, .. } => detect_all(&matches),
    }
}

/// The one kind of several locations.
///
/// # Errors
///
/// As [`detect`], and [`SourceError::Mixed`] when they differ.
pub(crate) fn detect_all(locations: &[PathBuf]) -> Result<SourceKind, SourceError> {
    let mut first: Option<(&Path, SourceKind)> = None;
    for location in locations {
        let kind = detect(location)?;
        match first {
            None => first = Some((location, kind)),
            Some((path, first_kind)) if first_kind != kind => {
                return Err(SourceError::Mixed {
                    first: shown(path, ""),
                    first_kind,
                    second: shown(location, ""),
                    second_kind: kind,
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
    if ends_with(&name, ".json") {
        return Ok(SourceKind::JsonLines);
    }
    if is_tar(&name) {
        return Err(web_dataset(path));
    }
    Err(SourceError::Unsupported {
        location: shown(path, ""),
        what: "is a single file whose name does not tell what it holds",
        hint: "say what it holds with --from",
    })
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

fn web_dataset(path: &Path) -> SourceError {
    SourceError::Unsupported {
        location: shown(path, ""),
        what: "holds tar files (WebDataset), which are not supported yet as a source",
        hint: "unpack them into a directory and convert that",
    }
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
}

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
    if root.join("index.json").is_file() {
        return Ok(SourceKind::Mds);
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
            let table = kind_of_name(&name);
            census.files = true;
            if table == Some(SourceKind::Parquet) {
                census.parquet = true;
                continue;
            }
            let path = shown(&entry.path(), "");
            if !accompanies(&name) && census.other.as_ref().is_none_or(|other| path < *other) {
                census.other = Some(path);
            }
            census.tar |= is_tar(&name);
            census.common = Some(match census.common {
                Some(common) if common != table => None,
                _ => table,
            });
        }
    }
    match census.other {
        // Reading the table would leave the other files out without a word.
        Some(other) if census.parquet => {
            return Err(SourceError::Option {
                option: "--from",
                reason: format!(
                    "{} holds Parquet files and others such as {}: say --from parquet to read the table, or --from tree to take every file",
                    shardmill_core::escape(&shown(root, "")),
                    shardmill_core::escape(&other)
                ),
            });
        }
        _ if census.parquet => return Ok(SourceKind::Parquet),
        _ => {}
    }
    if census.tar {
        return Err(web_dataset(root));
    }
    Ok(census
        .common
        .filter(|_| census.files)
        .flatten()
        .unwrap_or(SourceKind::Tree))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardmill_core::Diagnostic as _;

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
            (&["a.csv", "a.jpg"], SourceKind::Tree),
            (&["a.jpg", "a.csv"], SourceKind::Tree),
            (&["a.csv", "b.jsonl"], SourceKind::Tree),
            (&["a.json", "b.json"], SourceKind::Tree),
            (&["a/001.jpg", "a/001.json"], SourceKind::Tree),
            (&[".hidden"], SourceKind::Tree),
        ] {
            let root = tree(paths);
            assert_eq!(detect(root.path()).unwrap(), kind, "{paths:?}");
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
    fn what_is_not_supported_yet_is_named() {
        let root = tree(&["0.tar", "1.tar"]);
        assert!(
            detect(root.path())
                .unwrap_err()
                .to_string()
                .contains("WebDataset")
        );
        assert!(
            detect(&root.path().join("0.tar"))
                .unwrap_err()
                .to_string()
                .contains("WebDataset")
        );
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
        let root = tree(&["a.parquet", "b.json", "c.csv", "d/x.parquet"]);
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
        let error =
            detect_all(&[root.path().join("a.parquet"), root.path().join("c.csv")]).unwrap_err();
        assert_eq!(error.id(), "source-mixed");
        assert!(error.to_string().contains("holds csv, but"), "{error}");
    }
}
