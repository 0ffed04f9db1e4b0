//! Locations to files: directories, patterns, partitions in directory names, fingerprints.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::walk::{Stamp, WalkOptions, resolve, shown, special, walk};
use crate::{SourceError, SourceFile, SourceKind, SourceOptions};

/// An input file of a table, as it was when it was listed.
#[derive(Clone, Debug)]
pub(crate) struct InputFile {
    pub path: PathBuf,
    /// The path as printed.
    pub shown: String,
    /// The path relative to its location, `/` between its parts.
    pub relative: String,
    pub stamp: Stamp,
}

impl InputFile {
    /// Opens the file, provided that it is still the one that was listed.
    ///
    /// # Errors
    ///
    /// [`SourceError::Io`] and [`SourceError::Changed`].
    pub(crate) fn open(&self) -> Result<File, SourceError> {
        let file = File::open(&self.path)
            .map_err(|source| SourceError::io("open", &self.shown, source))?;
        self.check(&file)?;
        Ok(file)
    }

    /// # Errors
    ///
    /// [`SourceError::Changed`] when the open file is no longer the one that was listed.
    pub(crate) fn check(&self, file: &File) -> Result<(), SourceError> {
        let metadata = file
            .metadata()
            .map_err(|source| SourceError::io("read", &self.shown, source))?;
        self.stamp.check(&self.shown, &metadata)
    }
}

/// The files of a table in the order of the data set: locations as given, the files of each sorted by the
/// bytes of their relative path.
///
/// # Errors
///
/// [`SourceError`] when a location is missing, empty or named twice, or overlaps the destination.
pub(crate) fn list_tables(
    locations: &[PathBuf],
    kind: SourceKind,
    options: &SourceOptions,
) -> Result<Vec<InputFile>, SourceError> {
    let mut files = Vec::new();
    for location in locations {
        let before = files.len();
        match expand(location)? {
            Expanded::Plain(path) => take_location(&path, "", kind, options, &mut files)?,
            Expanded::Pattern { base, matches } => {
                for path in matches {
                    let relative = path.strip_prefix(&base).unwrap_or(&path);
                    let relative = relative.to_str().map(str::to_owned).ok_or_else(|| {
                        SourceError::TreeName {
                            path: shown(&path, ""),
                            reason: "is not UTF-8",
                        }
                    })?;
                    take_location(&path, &relative, kind, options, &mut files)?;
                }
                if let Some(own) = files.get_mut(before..) {
                    own.sort_by(|a, b| a.relative.cmp(&b.relative));
                }
            }
        }
        if files.len() == before {
            return Err(SourceError::Empty {
                location: shown(location, ""),
                wanted: wanted(kind),
            });
        }
    }
    let mut seen = HashSet::with_capacity(files.len());
    for file in &files {
        if !seen.insert(file.path.as_path()) {
            return Err(SourceError::Duplicate {
                path: file.shown.clone(),
            });
        }
    }
    Ok(files)
}

const fn wanted(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::Parquet => "Parquet file",
        SourceKind::Arrow => "Arrow file",
        SourceKind::Csv => "CSV file",
        SourceKind::JsonLines => "JSON lines file",
        SourceKind::Delta | SourceKind::Tree | SourceKind::Mds => "file",
    }
}

fn take_location(
    path: &Path,
    relative: &str,
    kind: SourceKind,
    options: &SourceOptions,
    files: &mut Vec<InputFile>,
) -> Result<(), SourceError> {
    let metadata = stat(path)?;
    check_overlap(path, options)?;
    // Links in the location itself are resolved once, so that the same file is recognised by any name.
    let resolved = resolve(path);
    if metadata.is_dir() {
        let listing = list_directory(&resolved, kind)?;
        for (below, stamp) in listing.iter() {
            files.push(InputFile {
                path: resolved.join(below),
                shown: shown(path, below),
                relative: join(relative, below),
                stamp,
            });
        }
        return Ok(());
    }
    if let Some(what) = special(metadata.file_type()) {
        return Err(SourceError::TreeSpecial {
            path: shown(path, ""),
            what,
        });
    }
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    files.push(InputFile {
        shown: shown(path, ""),
        relative: if relative.is_empty() {
            name
        } else {
            relative.to_owned()
        },
        stamp: Stamp::of(&metadata),
        path: resolved,
    });
    Ok(())
}

fn join(directory: &str, below: &str) -> String {
    if directory.is_empty() {
        below.to_owned()
    } else {
        format!("{directory}/{below}")
    }
}

/// The files of a kind below a directory. Where no name has a fitting extension (Hive writes `000000_0`)
/// all files count: whoever gets here has said what they are.
fn list_directory(path: &Path, kind: SourceKind) -> Result<crate::walk::Listing, SourceError> {
    let options = WalkOptions {
        follow_links: true,
        skip_hidden: true,
        wanted: &|name| {
            kind_of_name(name) == Some(kind)
                || (kind == SourceKind::JsonLines && has_extension(name, &["json"]))
        },
    };
    let listing = walk(path, options)?;
    if listing.len() > 0 {
        return Ok(listing);
    }
    walk(
        path,
        WalkOptions {
            wanted: &|name| !name.contains('.'),
            ..options
        },
    )
}

fn has_extension(name: &str, extensions: &[&str]) -> bool {
    name.rsplit_once('.').is_some_and(|(stem, extension)| {
        !stem.is_empty()
            && extensions
                .iter()
                .any(|known| extension.eq_ignore_ascii_case(known))
    })
}

/// The kind of table that a file name promises.
pub(crate) fn kind_of_name(name: &str) -> Option<SourceKind> {
    if has_extension(name, &["parquet", "parq", "pq"]) {
        return Some(SourceKind::Parquet);
    }
    if has_extension(name, &["arrow", "arrows", "feather", "ipc"]) {
        return Some(SourceKind::Arrow);
    }
    let plain = match name.rsplit_once('.') {
        Some((stem, extension))
            if ["gz", "zst", "zstd"]
                .iter()
                .any(|known| extension.eq_ignore_ascii_case(known)) =>
        {
            stem
        }
        _ => name,
    };
    if has_extension(plain, &["csv"]) {
        Some(SourceKind::Csv)
    } else if has_extension(plain, &["jsonl", "ndjson"]) {
        Some(SourceKind::JsonLines)
    } else {
        None
    }
}

pub(crate) fn stat(path: &Path) -> Result<fs::Metadata, SourceError> {
    fs::metadata(path).map_err(|source| {
        if source.kind() == std::io::ErrorKind::NotFound {
            SourceError::NotFound {
                location: shown(path, ""),
            }
        } else {
            SourceError::io("open", shown(path, ""), source)
        }
    })
}

/// A location after its pattern, if it is one, has been looked up.
pub(crate) enum Expanded {
    Plain(PathBuf),
    /// What a pattern matches, sorted by bytes, and the part of the pattern before the first wildcard.
    Pattern {
        base: PathBuf,
        matches: Vec<PathBuf>,
    },
}

/// Looks up a pattern with `*`, `?` or `[…]`, unless something is called exactly so.
///
/// # Errors
///
/// [`SourceError::NotFound`] when nothing matches, [`SourceError::Option`] for a broken pattern.
pub(crate) fn expand(location: &Path) -> Result<Expanded, SourceError> {
    let Some(pattern) = location.to_str() else {
        return Ok(Expanded::Plain(location.to_owned()));
    };
    let is_pattern = |part: &str| part.contains(['*', '?', '[']);
    if !is_pattern(pattern) || fs::symlink_metadata(location).is_ok() {
        return Ok(Expanded::Plain(location.to_owned()));
    }
    let rules = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let found = glob::glob_with(pattern, rules).map_err(|error| SourceError::Option {
        option: "SOURCE",
        reason: format!(
            "`{}` is not a pattern: {}",
            shardmill_core::escape(pattern),
            error.msg
        ),
    })?;
    let mut matches = Vec::new();
    for path in found {
        matches.push(path.map_err(|error| {
            let path = shown(error.path(), "");
            SourceError::io("list", path, error.into())
        })?);
    }
    if matches.is_empty() {
        return Err(SourceError::NotFound {
            location: pattern.to_owned(),
        });
    }
    matches.sort();
    let base = location
        .components()
        .take_while(|part| {
            part.as_os_str()
                .to_str()
                .is_some_and(|part| !is_pattern(part))
        })
        .collect();
    Ok(Expanded::Pattern { base, matches })
}

/// # Errors
///
/// [`SourceError::Overlap`] when a location lies inside the destination or the destination inside it.
pub(crate) fn check_overlap(location: &Path, options: &SourceOptions) -> Result<(), SourceError> {
    let Some(exclude) = &options.exclude else {
        return Ok(());
    };
    let (source, destination) = (resolve(location), resolve(exclude));
    let (inner, outer) = if destination.starts_with(&source) {
        ("destination", "source")
    } else if source.starts_with(&destination) {
        ("source", "destination")
    } else {
        return Ok(());
    };
    let (inside, container) = if inner == "source" {
        (location, exclude.as_path())
    } else {
        (exclude.as_path(), location)
    };
    Err(SourceError::Overlap {
        location: shown(inside, ""),
        container: shown(container, ""),
        inner,
        outer,
    })
}

/// The description's list of files.
pub(crate) fn described(files: &[InputFile]) -> Vec<SourceFile> {
    files
        .iter()
        .map(|file| SourceFile {
            path: file.shown.clone(),
            bytes: file.stamp.bytes,
        })
        .collect()
}

/// Digests paths, sizes and modification times.
pub(crate) struct Fingerprint(Xxh3);

impl Fingerprint {
    pub(crate) fn new(kind: SourceKind) -> Self {
        let mut digest = Xxh3::new();
        digest.update(kind.name().as_bytes());
        Self(digest)
    }

    /// Adds one file.
    pub(crate) fn add(&mut self, relative: &str, stamp: Stamp) {
        self.0.update(&(relative.len() as u64).to_le_bytes());
        self.0.update(relative.as_bytes());
        self.0.update(&stamp.bytes.to_le_bytes());
        self.0.update(&stamp.mtime_ns.to_le_bytes());
    }

    /// Marks the end of a location.
    pub(crate) fn separate(&mut self) {
        self.0.update(&u64::MAX.to_le_bytes());
    }

    /// 32 hexadecimal digits.
    pub(crate) fn finish(&self) -> String {
        format!("{:032x}", self.0.digest128())
    }

    pub(crate) fn of(kind: SourceKind, files: &[InputFile]) -> String {
        let mut fingerprint = Self::new(kind);
        for file in files {
            fingerprint.add(&file.relative, file.stamp);
        }
        fingerprint.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardmill_core::Diagnostic as _;

    fn touch(root: &Path, paths: &[&str]) {
        for path in paths {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
    }

    fn relatives(files: &[InputFile]) -> Vec<&str> {
        files.iter().map(|file| file.relative.as_str()).collect()
    }

    fn list(locations: &[PathBuf]) -> Result<Vec<InputFile>, SourceError> {
        list_tables(locations, SourceKind::Parquet, &SourceOptions::default())
    }

    #[test]
    fn names_promise_kinds() {
        for (name, kind) in [
            ("a.parquet", Some(SourceKind::Parquet)),
            ("a.PARQUET", Some(SourceKind::Parquet)),
            ("part-0.snappy.parquet", Some(SourceKind::Parquet)),
            ("x.feather", Some(SourceKind::Arrow)),
            ("x.csv.gz", Some(SourceKind::Csv)),
            ("x.jsonl.zst", Some(SourceKind::JsonLines)),
            ("x.ndjson", Some(SourceKind::JsonLines)),
            ("x.json", None),
            ("csv", None),
            (".csv", None),
            ("x.gz", None),
        ] {
            assert_eq!(kind_of_name(name), kind, "{name}");
        }
    }

    #[test]
    fn directories_patterns_and_files_keep_their_order() {
        let root = tempfile::tempdir().unwrap();
        touch(
            root.path(),
            &[
                "b/2.parquet",
                "b/10.parquet",
                "b/_SUCCESS",
                "b/_committed_1",
                "b/.2.parquet.crc",
                "b/notes.txt",
                "a/k=1/x.parquet",
                "a/k=2/x.parquet",
                "one.parquet",
            ],
        );
        let at = |path: &str| root.path().join(path);
        let files = list(&[at("one.parquet"), at("b"), at("a/k=*")]).unwrap();
        assert_eq!(
            relatives(&files),
            [
                "one.parquet",
                "10.parquet",
                "2.parquet",
                "k=1/x.parquet",
                "k=2/x.parquet"
            ]
        );
        assert_eq!(
            relatives(&list(&[at("a/*/*.parquet")]).unwrap()),
            ["k=1/x.parquet", "k=2/x.parquet"]
        );
        assert_eq!(
            list(&[at("b"), at("b/2.parquet")]).unwrap_err().id(),
            "source-duplicate"
        );
        assert_eq!(list(&[at("nowhere")]).unwrap_err().id(), "source-not-found");
        assert_eq!(
            list(&[at("z*.parquet")]).unwrap_err().id(),
            "source-not-found"
        );
        fs::create_dir(at("empty")).unwrap();
        let error = list(&[at("empty")]).unwrap_err();
        assert_eq!(
            (error.id(), error.to_string().as_str()),
            ("source-empty", "holds no Parquet file")
        );
    }

    #[test]
    fn files_without_extension_count_where_there_are_no_others() {
        let root = tempfile::tempdir().unwrap();
        touch(root.path(), &["000000_0", "000001_0", "_SUCCESS", "x.txt"]);
        assert_eq!(
            relatives(&list(&[root.path().to_owned()]).unwrap()),
            ["000000_0", "000001_0"]
        );
    }

    #[test]
    fn the_destination_may_not_overlap() {
        let root = tempfile::tempdir().unwrap();
        touch(root.path(), &["in/x.parquet"]);
        let open = |location: &str, exclude: &str| {
            let options = SourceOptions {
                exclude: Some(root.path().join(exclude)),
                ..SourceOptions::default()
            };
            list_tables(&[root.path().join(location)], SourceKind::Parquet, &options).map(|_| ())
        };
        open("in", "out").unwrap();
        open("in", "in2").unwrap();
        open("in/x.parquet", "in/out").unwrap();
        for (location, exclude, inner) in [
            ("in", "in/out", "destination"),
            ("in", "in", "destination"),
            ("in/x.parquet", "in", "source"),
        ] {
            let error = open(location, exclude).unwrap_err();
            assert_eq!(error.id(), "tree-overlap");
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("the {inner} lies inside")),
                "{error}"
            );
        }
    }

    #[test]
    fn the_fingerprint_sees_every_change_but_a_move() {
        let root = tempfile::tempdir().unwrap();
        touch(root.path(), &["a/x.parquet", "a/y.parquet"]);
        let of = |path: &str| {
            Fingerprint::of(
                SourceKind::Parquet,
                &list(&[root.path().join(path)]).unwrap(),
            )
        };
        let first = of("a");
        assert_eq!(first.len(), 32);
        fs::rename(root.path().join("a"), root.path().join("b")).unwrap();
        assert_eq!(of("b"), first);
        fs::write(root.path().join("b/x.parquet"), "xy").unwrap();
        assert_ne!(of("b"), first);
    }
}
