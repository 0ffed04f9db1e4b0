//! Classifies files by their names, and a folder by the classes of its files.
//!
//! Every reader recognises a source by this one rule:
//!
//! 1. The name of a file determines its [`FileClass`], by the table [`RULES`]. Case does not matter.
//! 2. Files that accompany any data, such as a README or a checksum, are ignored ([`accompanies`]).
//! 3. Files that accompany one class, such as `sizes.json` next to tar files, are ignored next to that class.
//! 4. If all other files have one class, the folder has that class. If they differ, it is a mixture, and the caller
//!    refuses it: reading only one of the classes would silently omit the others.
//!
//! Hidden files (`.name`, `_name`) never count; callers filter them out.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use crate::named::named_enum;

named_enum! {
    /// The class of a file, determined by its name.
    pub enum FileClass {
        /// A file of the log of a Delta table.
        DeltaLog = "a Delta table",
        /// A Parquet file.
        Parquet = "Parquet files",
        /// An Arrow IPC file or stream.
        Arrow = "Arrow files",
        /// Comma-separated values.
        Csv = "CSV files",
        /// Tab-separated values.
        Tsv = "TSV files",
        /// JSON lines: one object per line.
        JsonLines = "JSON lines files",
        /// A TFRecord file.
        Tfrecord = "TFRecord files",
        /// A tar file of samples.
        Tar = "tar files",
        /// A shard of an MDS dataset.
        MdsShard = "MDS shards",
        /// Any other file.
        Plain = "plain files",
    }
}

impl FileClass {
    /// Returns the class of a file by its name, which may be a path with `/` between its parts.
    #[must_use]
    pub fn of(name: &str) -> Self {
        if name.starts_with("_delta_log/") || name.contains("/_delta_log/") {
            return Self::DeltaLog;
        }
        let name = without_number(file_name(name));
        let found = RULES.iter().find(|rule| {
            let plain = match extension(name) {
                Some((stem, last)) if rule.packed.iter().any(|known| is(last, known)) => stem,
                _ => name,
            };
            extension(plain)
                .is_some_and(|(_, last)| rule.extensions.iter().any(|known| is(last, known)))
        });
        found.map_or(Self::Plain, |rule| rule.class)
    }
}

/// A row of the table: files with one of these extensions, optionally followed by the extension of a compression.
struct Rule {
    class: FileClass,
    extensions: &'static [&'static str],
    packed: &'static [&'static str],
}

const fn rule(
    class: FileClass,
    extensions: &'static [&'static str],
    packed: &'static [&'static str],
) -> Rule {
    Rule {
        class,
        extensions,
        packed,
    }
}

/// The compressions of text files.
const TEXT: &[&str] = &["gz", "zst", "zstd"];

/// The class of each file name. Names that match no row are [`FileClass::Plain`].
const RULES: &[Rule] = &[
    rule(FileClass::Parquet, &["parquet", "parq", "pq"], &[]),
    rule(
        FileClass::Arrow,
        &["arrow", "arrows", "feather", "ipc"],
        &[],
    ),
    rule(FileClass::Csv, &["csv"], TEXT),
    rule(FileClass::Tsv, &["tsv"], TEXT),
    rule(FileClass::JsonLines, &["jsonl", "ndjson"], TEXT),
    rule(
        FileClass::Tfrecord,
        &["tfrecord", "tfrecords", "tfrec"],
        TEXT,
    ),
    rule(FileClass::Tar, &["tar"], &["gz", "zst"]),
    rule(FileClass::Tar, &["tgz"], &[]),
    rule(
        FileClass::MdsShard,
        &["mds"],
        &["zstd", "zst", "gz", "br", "bz2", "snappy"],
    ),
];

/// Names of documents that often accompany data, without the extensions of [`DOCUMENTS`].
const DESCRIPTIONS: &[&str] = &[
    "readme",
    "license",
    "licence",
    "copying",
    "copyright",
    "notice",
    "authors",
    "contributors",
    "changelog",
    "citation",
    "dataset_card",
    "datasheet",
];

/// Extensions of documents.
const DOCUMENTS: &[&str] = &["md", "txt", "rst", "html", "pdf", "cff", "bib"];

/// Extensions of checksums.
const CHECKSUMS: &[&str] = &["crc", "md5", "sha1", "sha256", "sha512"];

/// Other files that accompany any data, by their full names.
const BESIDE_ANY: &[&str] = &[
    // Written by shardmill next to an index.
    "index.provenance",
    "index.increments",
    "index.tombstones",
    "md5sums",
    "sha1sums",
    "sha256sums",
    "sha512sums",
    "thumbs.db",
    "desktop.ini",
];

/// Written by Hugging Face `datasets` next to Arrow and Parquet files, and by TensorFlow Datasets next to TFRecord files.
const BESIDE_SAVED: &[&str] = &[
    "features.json",
    "dataset_info.json",
    "dataset_infos.json",
    "state.json",
    "dataset_dict.json",
];

/// Written next to tar shards by the tools that create them: lists of the shards and of their sizes.
const BESIDE_TARS: &[&str] = &[
    "sizes.json",
    "dataset.json",
    "wids.json",
    "shardindex.json",
    "__shardindex.json",
];

/// Extensions of files about one tar shard, which begin with its name: `00000.idx`, `00000_stats.json`.
const BESIDE_ONE_TAR: &[&str] = &["idx", "index", "json", "txt", "yaml", "yml"];

/// The maximum number of files that are remembered as possible companions of a tar shard. Above it, all count as plain.
const MAX_NEIGHBOURS: usize = 1 << 16;

/// Returns whether a file accompanies data of any class: a description, a license, a checksum.
#[must_use]
pub fn accompanies(name: &str) -> bool {
    let name = file_name(name).to_ascii_lowercase();
    if BESIDE_ANY.contains(&name.as_str()) {
        return true;
    }
    let stem = match extension(&name) {
        Some((_, last)) if CHECKSUMS.contains(&last) => return true,
        Some((stem, last)) if DOCUMENTS.contains(&last) => stem,
        _ => &name,
    };
    DESCRIPTIONS.iter().any(|known| {
        stem.strip_prefix(known)
            // Matches `LICENSE-MIT` and `README.de.md`, but not `license_plate.txt` or `readme.jpg`.
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-') || is_language(rest))
    })
}

/// Returns whether the rest of the name of a document is a language, as in `README.zh-cn.md`.
fn is_language(rest: &str) -> bool {
    rest.strip_prefix('.').is_some_and(|tag| {
        let main = tag.split(['-', '_']).next().unwrap_or(tag);
        main.len() == 2 && main.bytes().all(|byte| byte.is_ascii_lowercase())
    })
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns a name without the number of a TFRecord file, as in `mnist-train.tfrecord-00000-of-00001`.
fn without_number(name: &str) -> &str {
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.rsplit_once("-of-").and_then(|(rest, files)| {
        let (stem, file) = rest.rsplit_once('-')?;
        Some((stem, file, files))
    });
    match parts {
        Some((stem, file, files)) if is_number(file) && is_number(files) => stem,
        _ => name,
    }
}

/// Splits a name at its last dot.
fn extension(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty())
}

const fn is(extension: &str, known: &str) -> bool {
    extension.eq_ignore_ascii_case(known)
}

/// Counts the classes of the files of a folder.
#[derive(Debug, Default)]
pub struct Contents {
    /// The smallest path of each class, in byte order.
    examples: BTreeMap<FileClass, String>,
    /// The smallest path of the files that accompany only Arrow, Parquet and TFRecord files.
    saved: Option<String>,
    /// The smallest path of the files that accompany only tar files.
    beside_tars: Option<String>,
    /// Files that may belong to one tar shard.
    beside_one: Vec<String>,
    /// Whether there were too many of these, so that they count as plain files.
    has_too_many: bool,
    /// The paths of the tar files without their extensions.
    tar_stems: HashSet<String>,
    is_split: bool,
}

/// The class of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No file counts.
    Nothing,
    /// All files have this class; with the first path.
    One(FileClass, String),
    /// There are several classes; with the first path of two of them.
    Mixed([(FileClass, String); 2]),
}

impl Contents {
    /// Counts a file by its path, with `/` between its parts.
    pub fn count(&mut self, path: &str) {
        let class = FileClass::of(path);
        if class != FileClass::Plain {
            if class == FileClass::Tar {
                self.tar_stems.insert(tar_stem(path));
            }
            note(self.examples.entry(class), path);
            return;
        }
        let name = file_name(path);
        if accompanies(name) {
            return;
        }
        if BESIDE_SAVED.contains(&name) {
            self.is_split |= name == "dataset_dict.json";
            keep_first(&mut self.saved, path);
            return;
        }
        if BESIDE_TARS.contains(&name) {
            keep_first(&mut self.beside_tars, path);
            return;
        }
        // If there already is another plain file, these change nothing.
        if !self.has_too_many
            && extension(name).is_some_and(|(_, last)| BESIDE_ONE_TAR.contains(&last))
            && !self.examples.contains_key(&FileClass::Plain)
        {
            self.beside_one.push(path.to_owned());
            if self.beside_one.len() > MAX_NEIGHBOURS {
                self.give_up_beside();
            }
            return;
        }
        note(self.examples.entry(FileClass::Plain), path);
    }

    /// Counts the files that may belong to one tar shard as plain files.
    fn give_up_beside(&mut self) {
        self.has_too_many = true;
        for path in std::mem::take(&mut self.beside_one) {
            note(self.examples.entry(FileClass::Plain), &path);
        }
    }

    /// Returns whether Hugging Face `datasets` wrote the folder with several splits.
    #[must_use]
    pub const fn is_split(&self) -> bool {
        self.is_split
    }

    /// Returns the class of the folder.
    #[must_use]
    pub fn verdict(mut self) -> Verdict {
        let has_tars = self.examples.contains_key(&FileClass::Tar);
        let has_saved = [FileClass::Arrow, FileClass::Parquet, FileClass::Tfrecord]
            .iter()
            .any(|class| self.examples.contains_key(class));
        let mut plain = Vec::new();
        plain.extend(self.saved.take().filter(|_| !has_saved));
        plain.extend(self.beside_tars.take().filter(|_| !has_tars));
        let beside = std::mem::take(&mut self.beside_one);
        plain.extend(
            beside
                .into_iter()
                .filter(|path| !has_tars || !is_about(path, &self.tar_stems)),
        );
        for path in plain {
            note(self.examples.entry(FileClass::Plain), &path);
        }
        let mut found = self.examples.into_iter();
        match (found.next(), found.next()) {
            (None, _) => Verdict::Nothing,
            (Some((class, path)), None) => Verdict::One(class, path),
            (Some(first), Some(second)) => Verdict::Mixed([first, second]),
        }
    }
}

fn note(entry: Entry<'_, FileClass, String>, path: &str) {
    entry
        .and_modify(|first| {
            if path < first.as_str() {
                path.clone_into(first);
            }
        })
        .or_insert_with(|| path.to_owned());
}

fn keep_first(first: &mut Option<String>, path: &str) {
    if first.as_deref().is_none_or(|first| path < first) {
        *first = Some(path.to_owned());
    }
}

/// Returns the path of a tar file without its extensions.
fn tar_stem(path: &str) -> String {
    let lower = path.to_ascii_lowercase();
    let ending = [".tar.gz", ".tar.zst", ".tgz", ".tar"]
        .iter()
        .find(|ending| lower.ends_with(*ending));
    let length = path.len() - ending.map_or(0, |ending| ending.len());
    path.get(..length).unwrap_or(path).to_owned()
}

/// Returns whether a path begins with the path of a tar file without its extensions.
fn is_about(path: &str, stems: &HashSet<String>) -> bool {
    path.match_indices(['.', '_', '-'])
        .any(|(at, _)| path.get(..at).is_some_and(|stem| stems.contains(stem)))
}

/// Returns whether an index is one of tar files, judged by its first bytes. Only those indexes have `format` at the top
/// level, and their keys are sorted.
#[must_use]
pub fn begins_as_tar_index(head: &[u8]) -> bool {
    let body = head.trim_ascii_start().strip_prefix(b"{");
    body.is_some_and(|body| body.trim_ascii_start().starts_with(br#""format""#))
}

/// Returns the smallest path that is neither a tar file nor belongs to one. Readers of tar shards read all tar files
/// below a folder. If there is such a path, the folder may be something else that only happens to contain a tar file.
///
/// The rule is more lenient than [`Contents`], because readers read shards only. Lists and notes (`BESIDE_ONE_TAR`)
/// may be in the folder itself and in every folder with tar files. Any file whose name begins with that of a tar file
/// belongs to it.
#[must_use]
pub fn stray_among_tars<'a>(paths: &[&'a str]) -> Option<&'a str> {
    let is_tar = |path: &str| FileClass::of(path) == FileClass::Tar;
    let tars = || paths.iter().copied().filter(|path| is_tar(path));
    let stems: HashSet<String> = tars().map(tar_stem).collect();
    let folder = |path: &'a str| path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut folders: HashSet<&str> = tars().map(folder).collect();
    folders.insert("");
    let is_stray = |path: &&'a str| {
        let is_note = extension(file_name(path)).is_some_and(|(_, last)| {
            BESIDE_ONE_TAR.contains(&last) && folders.contains(folder(path))
        });
        !is_tar(path) && !accompanies(path) && !is_note && !is_about(path, &stems)
    };
    paths.iter().copied().filter(is_stray).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(paths: &[&str]) -> Verdict {
        let mut found = Contents::default();
        for path in paths {
            found.count(path);
        }
        found.verdict()
    }

    #[test]
    fn file_class_is_derived_from_the_name() {
        for (name, class) in [
            ("a/b.PARQUET", FileClass::Parquet),
            ("x.csv.gz", FileClass::Csv),
            ("x.tsv", FileClass::Tsv),
            ("x.jsonl.zst", FileClass::JsonLines),
            ("x.TAR.gz", FileClass::Tar),
            ("x.tgz", FileClass::Tar),
            ("shard.00000.mds.zstd", FileClass::MdsShard),
            ("t/_delta_log/0.json", FileClass::DeltaLog),
            ("x.tfrecord", FileClass::Tfrecord),
            ("d/x.tfrecords.gz", FileClass::Tfrecord),
            ("mnist-train.tfrecord-00000-of-00001", FileClass::Tfrecord),
            ("train-00000-of-00001", FileClass::Plain),
            ("x.json", FileClass::Plain),
            ("x.tar.gz.txt", FileClass::Plain),
            ("x.parquet.gz", FileClass::Plain),
            ("csv", FileClass::Plain),
        ] {
            assert_eq!(FileClass::of(name), class, "{name}");
        }
    }

    #[test]
    fn only_well_known_names_are_companion_files() {
        for name in [
            "README",
            "readme.md",
            "README.de.md",
            "README.zh-cn.md",
            "LICENSE-MIT",
            "CITATION.cff",
            "SHA256SUMS",
            "index.provenance",
            "part.parquet.crc",
            "Thumbs.db",
        ] {
            assert!(accompanies(name), "{name}");
        }
        for name in [
            "readme.jpg",
            "license_plate.txt",
            "notes.md",
            "licenses.txt",
            "readmes/1.txt",
            "x.json",
        ] {
            assert!(!accompanies(name), "{name}");
        }
    }

    #[test]
    fn different_file_classes_are_mixed() {
        use FileClass::{Arrow, Csv, DeltaLog, JsonLines, MdsShard, Parquet, Plain, Tar, Tsv};

        let one = |class, path: &str| Verdict::One(class, path.to_owned());
        let mixed = |a, x: &str, b, y: &str| Verdict::Mixed([(a, x.to_owned()), (b, y.to_owned())]);
        for (paths, expected) in [
            (&[][..], Verdict::Nothing),
            (&["README.md"], Verdict::Nothing),
            (&["b.csv", "a.csv", "LICENSE"], one(Csv, "a.csv")),
            (&["b.jpg", "a.json"], one(Plain, "a.json")),
            (
                &["x.jpg", "a/b/old.tar"],
                mixed(Tar, "a/b/old.tar", Plain, "x.jpg"),
            ),
            (
                &["x.csv", "d/y.tar.gz"],
                mixed(Csv, "x.csv", Tar, "d/y.tar.gz"),
            ),
            (&["x.csv", "y.tsv"], mixed(Csv, "x.csv", Tsv, "y.tsv")),
            (
                &["x.parquet", "y.jsonl"],
                mixed(Parquet, "x.parquet", JsonLines, "y.jsonl"),
            ),
            (
                &["t/_delta_log/0.json", "t/0.parquet"],
                mixed(DeltaLog, "t/_delta_log/0.json", Parquet, "t/0.parquet"),
            ),
            (
                &["a.mds", "b.txt"],
                mixed(MdsShard, "a.mds", Plain, "b.txt"),
            ),
            (&["a.arrow", "state.json"], one(Arrow, "a.arrow")),
            (
                &["a.tfrecord", "features.json", "dataset_info.json"],
                one(FileClass::Tfrecord, "a.tfrecord"),
            ),
            (
                &["a.csv", "state.json"],
                mixed(Csv, "a.csv", Plain, "state.json"),
            ),
            (&["0.tar", "sizes.json"], one(Tar, "0.tar")),
            (
                &["d/0_stats.json", "d/0.tar.idx", "d/0.idx", "d/0.tar"],
                one(Tar, "d/0.tar"),
            ),
            (
                &["d/0.tar", "0.json"],
                mixed(Tar, "d/0.tar", Plain, "0.json"),
            ),
            (
                &["1.txt", "2.txt", "old.tar"],
                mixed(Tar, "old.tar", Plain, "1.txt"),
            ),
            (
                &["0.tar", "0.parquet"],
                mixed(Parquet, "0.parquet", Tar, "0.tar"),
            ),
        ] {
            assert_eq!(verdict(paths), expected, "{paths:?}");
            let mut reversed = paths.to_vec();
            reversed.reverse();
            assert_eq!(verdict(&reversed), expected, "{paths:?} reversed");
        }
    }

    #[test]
    fn files_unrelated_to_tars_are_stray() {
        for (paths, stray) in [
            (&["a/b/old.tar", "2.jpg", "1.jpg"][..], Some("1.jpg")),
            (&["old.tar", "x.csv"], Some("x.csv")),
            (
                &["00.tar", "00.parquet", "00_stats.json", "meta.json"],
                None,
            ),
            (
                &["train/00.tar", "notes.txt", "train/list.txt", "README"],
                None,
            ),
            (&["train/00.tar", "texts/1.txt"], Some("texts/1.txt")),
            (&["train/00.tar", "val/00.parquet"], Some("val/00.parquet")),
        ] {
            assert_eq!(stray_among_tars(paths), stray, "{paths:?}");
        }
    }

    #[test]
    fn too_many_companion_files_count_as_plain_files() {
        let mut found = Contents::default();
        found.count("0.tar");
        for number in 0..=MAX_NEIGHBOURS {
            found.count(&format!("0_{number}.json"));
        }
        assert!(matches!(found.verdict(), Verdict::Mixed(_)));
    }
}
