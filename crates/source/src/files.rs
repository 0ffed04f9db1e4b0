//! Resolves locations to files: directories, patterns, hive partitions and fingerprints.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use shardmill_core::{Error, escape};
use shardmill_storage::Location;
use xxhash_rust::xxh3::Xxh3;

use crate::error;
use crate::file_filter::FileFilter;
use crate::file_names::{
    PATTERN_RULES, bad_pattern, file_of, has_extension, is_hidden, is_pattern, join, kind_of_name,
};
use crate::objects::{self, Found, Object, Store};
use crate::walk::{FileVersion, Listing, WalkOptions, on_pool, resolve, shown, special, walk};
use crate::{SourceDescription, SourceFile, SourceKind, SourceOptions, SourceProblem, Unit};

/// The fewest threads that inspect files in stores.
const INSPECT_THREADS: usize = 16;

/// An input file of a table, in its state when it was listed.
#[derive(Clone, Debug)]
pub(crate) struct InputFile {
    pub origin: Origin,
    /// The path as printed.
    pub shown: String,
    /// The path relative to its location, with `/` as the separator.
    pub relative: String,
    pub file_version: FileVersion,
}

/// Where an input file is.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// On this machine.
    Local(PathBuf),
    /// In a store.
    Object(Object),
}

impl InputFile {
    /// Returns an object of a store.
    pub(crate) fn object_in(
        store: &Arc<Store>,
        name: &str,
        relative: &str,
        file_version: FileVersion,
    ) -> Self {
        let object = store.named(name);
        Self {
            shown: object.shown(),
            relative: relative.to_owned(),
            file_version,
            origin: Origin::Object(object),
        }
    }

    /// Opens the file, provided that it is still the one that was listed. The caller must read by position, because the
    /// file offset may be shared. An object is downloaded completely.
    pub(crate) fn open(&self) -> Result<File, Error> {
        match &self.origin {
            Origin::Local(path) => {
                let file =
                    File::open(path).map_err(|source| error::io("open", &self.shown, source))?;
                self.check(&file)?;
                Ok(file)
            }
            Origin::Object(object) => object.open(self.file_version),
        }
    }

    /// Refuses a file that is no longer the one that was listed. The file of an object never changes, because only bytes
    /// of the listed version are written to it.
    pub(crate) fn check(&self, file: &File) -> Result<(), Error> {
        if self.object().is_some() {
            return Ok(());
        }
        let metadata = file.metadata();
        let metadata = metadata.map_err(|source| self.read_error(source))?;
        self.file_version.check(&self.shown, &metadata)
    }

    /// Returns the error of the operating system when it read the file.
    pub(crate) fn read_error(&self, source: io::Error) -> Error {
        error::io("read", &self.shown, source)
    }

    /// Fills a buffer with the bytes of the open file at an offset.
    pub(crate) fn read_at(&self, file: &File, into: &mut [u8], offset: u64) -> Result<(), Error> {
        let read = file.read_exact_at(into, offset);
        read.map_err(|source| self.read_error(source))
    }

    /// Checks a limit of [`Limits`](shardmill_core::Limits) on a number that the file claims.
    pub(crate) fn check_limit(
        &self,
        name: &'static str,
        value: u64,
        limit: u64,
    ) -> Result<(), Error> {
        error::check_limit(name, value, limit, || self.shown.clone())
    }

    /// Returns the object, if the file is in a store.
    pub(crate) const fn object(&self) -> Option<&Object> {
        match &self.origin {
            Origin::Local(_) => None,
            Origin::Object(object) => Some(object),
        }
    }

    /// Returns a path that identifies the file.
    fn identity(&self) -> PathBuf {
        match &self.origin {
            Origin::Local(path) => path.clone(),
            Origin::Object(object) => PathBuf::from(object.shown()),
        }
    }
}

/// Returns the file that a unit is read from, and starts to download the one after it if that is in a store.
pub(crate) fn file_of_unit<'a>(
    files: &'a [InputFile],
    units: &[Unit],
    unit: usize,
) -> Result<&'a InputFile, Error> {
    let number = units.get(unit).and_then(|unit| unit.file);
    let found = number.and_then(|number| Some((number, files.get(number)?)));
    let (number, input) = found.ok_or_else(|| error::no_unit(unit))?;
    if let Some(next) = files.get(number + 1)
        && let Some(object) = next.object()
    {
        object.fetch_early(next.file_version);
    }
    Ok(input)
}

/// Inspects files on several threads, in order. Files in stores get more threads, because these mostly wait.
pub(crate) fn inspect_each<T: Send>(
    files: &[InputFile],
    inspect: impl Fn(usize, &InputFile) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let run = || {
        let files = files.par_iter().enumerate();
        files.map(|(number, file)| inspect(number, file)).collect()
    };
    // The first error in the order of the files is returned, so that it does not depend on the threads.
    let found: Vec<Result<T, Error>> = match files.iter().any(|file| file.object().is_some()) {
        true => on_pool(INSPECT_THREADS.max(rayon::current_num_threads()), run)?,
        false => run(),
    };
    found.into_iter().collect()
}

/// Lists the files of a table in the order of the dataset: locations as given, and the files of each location sorted by
/// the bytes of their relative paths.
pub(crate) fn list_tables(
    locations: &[Location],
    kind: SourceKind,
    options: &SourceOptions,
) -> Result<Vec<InputFile>, Error> {
    let filter = FileFilter::new(&options.files)?;
    let mut files = Vec::new();
    for location in locations {
        let mut own = Vec::new();
        for found in find(location, options)? {
            take(location, found, kind, options, &mut own)?;
        }
        own.retain(|file| filter.takes(&file.relative));
        own.sort_by(|a, b| a.relative.cmp(&b.relative));
        if own.is_empty() {
            let reason = format!("holds no {}{}", wanted(kind), filter.reason());
            return Err(SourceProblem::Empty.at(shown_location(location), reason));
        }
        files.append(&mut own);
    }
    let mut seen = HashSet::with_capacity(files.len());
    for file in &files {
        if !seen.insert(file.identity()) {
            return Err(SourceProblem::Duplicate.at(&file.shown, "is part of the source twice"));
        }
    }
    Ok(files)
}

const fn wanted(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::Parquet => "Parquet file",
        SourceKind::Arrow => "Arrow file",
        SourceKind::Csv => "CSV file",
        SourceKind::Tsv => "TSV file",
        SourceKind::JsonLines => "JSON lines file",
        SourceKind::Tfrecord | SourceKind::TfrecordRaw => "TFRecord file",
        SourceKind::Delta
        | SourceKind::Zarr
        | SourceKind::Tree
        | SourceKind::Mds
        | SourceKind::Webdataset => "file",
    }
}

/// Adds the files of a location, or of a match of its pattern.
fn take(
    location: &Location,
    found: Found,
    kind: SourceKind,
    options: &SourceOptions,
    files: &mut Vec<InputFile>,
) -> Result<(), Error> {
    if let Found::Path(path) = &found {
        return take_path(location, path, kind, options, files);
    }
    check_overlap(&found.location(), options)?;
    let mut push = |store: &Arc<Store>, name: &str, file_version| {
        files.push(InputFile::object_in(store, name, name, file_version));
    };
    match &found {
        Found::Path(_) => {}
        Found::Object(object, file_version) => push(&object.store, &object.name, *file_version),
        Found::Folder(folder) => {
            let listing = folder.listing()?;
            let mut takes: fn(&str, SourceKind) -> bool = is_wanted;
            if !listing.iter().any(|(below, _)| is_wanted(below, kind)) {
                takes = is_bare;
            }
            for (below, file_version) in listing.iter().filter(|(below, _)| takes(below, kind)) {
                let name = folder.key(below);
                folder.store.check_name(&name)?;
                push(&folder.store, &name, *file_version);
            }
        }
    }
    Ok(())
}

/// Adds a file, or the files of a directory.
fn take_path(
    location: &Location,
    path: &Path,
    kind: SourceKind,
    options: &SourceOptions,
    files: &mut Vec<InputFile>,
) -> Result<(), Error> {
    let metadata = stat(path)?;
    check_overlap(&path.into(), options)?;
    let relative = match location {
        Location::Local(pattern) if pattern != path => below_pattern(pattern, path)?,
        _ => "",
    };
    // Resolve links in the location itself once, so that the same file is recognised under any name.
    let resolved = resolve(path);
    if metadata.is_dir() {
        let listing = list_directory(&resolved, kind)?;
        for (below, file_version) in listing {
            files.push(InputFile {
                origin: Origin::Local(resolved.join(&*below)),
                shown: shown(path, &below),
                relative: join(relative, &below),
                file_version,
            });
        }
        return Ok(());
    }
    if let Some(what) = special(metadata.file_type()) {
        return Err(
            SourceProblem::TreeSpecial.at(shown(path, ""), format!("is a {what}, not a file"))
        );
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    files.push(InputFile {
        shown: shown(path, ""),
        relative: match relative {
            "" => name.into_owned(),
            relative => relative.to_owned(),
        },
        file_version: FileVersion::of(&metadata),
        origin: Origin::Local(resolved),
    });
    Ok(())
}

/// Returns the path of a match relative to the part of the pattern before the first wildcard.
fn below_pattern<'a>(pattern: &Path, path: &'a Path) -> Result<&'a str, Error> {
    let is_exact = |part: &Component<'_>| {
        let part = part.as_os_str().to_str();
        part.is_some_and(|part| !is_pattern(part))
    };
    let base: PathBuf = pattern.components().take_while(is_exact).collect();
    let relative = path.strip_prefix(&base).unwrap_or(path).to_str();
    relative.ok_or_else(|| SourceProblem::TreeName.at(shown(path, ""), "the name is not UTF-8"))
}

/// Returns whether an object below a prefix is of a kind.
fn is_wanted(name: &str, kind: SourceKind) -> bool {
    fits(file_of(name), kind) && !is_hidden(name)
}

/// Returns whether the name of a file indicates a kind that the caller has specified.
fn fits(file: &str, kind: SourceKind) -> bool {
    match kind {
        SourceKind::JsonLines if has_extension(file, &["json"]) => true,
        SourceKind::TfrecordRaw => kind_of_name(file) == Some(SourceKind::Tfrecord),
        _ => kind_of_name(file) == Some(kind),
    }
}

/// Returns whether the name of an object below a prefix does not rule out a kind.
fn is_bare(name: &str, kind: SourceKind) -> bool {
    may_be(file_of(name), kind) && !is_hidden(name)
}

/// Returns whether a file may be of a kind, in a folder where no name identifies that kind.
fn may_be(file: &str, kind: SourceKind) -> bool {
    !file.contains('.') || (kind == SourceKind::Csv && kind_of_name(file) == Some(SourceKind::Tsv))
}

/// Lists the files of a kind below a directory. If no name has a fitting extension (Hive writes `000000_0`), files
/// without an extension count, and `.tsv` counts as CSV: the caller has specified the kind.
fn list_directory(path: &Path, kind: SourceKind) -> Result<Listing, Error> {
    let options = WalkOptions {
        follow_links: true,
        skip_hidden: true,
        wanted: &|name| fits(name, kind),
    };
    let listing = walk(path, options)?;
    if !listing.is_empty() {
        return Ok(listing);
    }
    walk(
        path,
        WalkOptions {
            wanted: &|name| may_be(name, kind),
            ..options
        },
    )
}

pub(crate) fn stat(path: &Path) -> Result<fs::Metadata, Error> {
    fs::metadata(path).map_err(|source| {
        if source.kind() == io::ErrorKind::NotFound {
            error::not_found(shown(path, ""))
        } else {
            error::io("open", shown(path, ""), source)
        }
    })
}

/// Finds out what a location refers to, or what matches its pattern, sorted by bytes. A pattern has `*`, `?` or `[…]`, and
/// no file has exactly that name.
pub(crate) fn find(location: &Location, options: &SourceOptions) -> Result<Vec<Found>, Error> {
    let path = match location {
        Location::Local(path) => path,
        Location::Remote(remote) => return objects::find(remote, options),
    };
    let pattern = path.to_str().filter(|text| is_pattern(text));
    let Some(pattern) = pattern.filter(|_| fs::symlink_metadata(path).is_err()) else {
        return Ok(vec![Found::Path(path.clone())]);
    };
    let found = glob::glob_with(pattern, PATTERN_RULES);
    let found = found.map_err(|error| bad_pattern(pattern, &error))?;
    let mut matches = Vec::new();
    for path in found {
        matches.push(path.map_err(|error| {
            let path = shown(error.path(), "");
            error::io("list", path, error.into())
        })?);
    }
    if matches.is_empty() {
        return Err(error::not_found(pattern));
    }
    matches.sort();
    Ok(matches.into_iter().map(Found::Path).collect())
}

/// Refuses a location inside the destination, or one that contains it.
pub(crate) fn check_overlap(location: &Location, options: &SourceOptions) -> Result<(), Error> {
    let Some(exclude) = &options.files.destination else {
        return Ok(());
    };
    let (destination_inside, source_inside) = match (location, exclude) {
        (Location::Local(location), Location::Local(exclude)) => {
            let (source, destination) = (resolve(location), resolve(exclude));
            (
                destination.starts_with(&source),
                source.starts_with(&destination),
            )
        }
        (Location::Remote(location), Location::Remote(exclude)) => (
            exclude.strip_prefix(location).is_some(),
            location.strip_prefix(exclude).is_some(),
        ),
        _ => return Ok(()),
    };
    let (inside, container, inner, outer) = if destination_inside {
        (exclude, location, "destination", "source")
    } else if source_inside {
        (location, exclude, "source", "destination")
    } else {
        return Ok(());
    };
    let container = shown_location(container);
    let reason = format!("the {inner} lies inside the {outer} {}", escape(&container));
    Err(SourceProblem::Overlap.at(shown_location(inside), reason))
}

/// Returns a location as printed.
pub(crate) fn shown_location(location: &Location) -> String {
    match location {
        Location::Local(path) => shown(path, ""),
        Location::Remote(remote) => remote.to_string(),
    }
}

/// Returns a file below a location as printed.
pub(crate) fn shown_below(location: &Location, name: &str) -> String {
    shown_location(&location.join(name))
}

/// Describes a table of files.
pub(crate) fn describe(
    kind: SourceKind,
    files: &[InputFile],
    rows: Option<u64>,
) -> SourceDescription {
    let mut description = SourceDescription::new(kind);
    let shown = files.iter().map(|file| SourceFile {
        path: file.shown.clone(),
        bytes: file.file_version.bytes,
    });
    description.files = shown.collect();
    description.rows = rows;
    description.bytes = files.iter().map(|file| file.file_version.bytes).sum();
    description.fingerprint = Fingerprint::of(kind, files);
    description
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
    pub(crate) fn add(&mut self, relative: &str, file_version: FileVersion) {
        self.0.update(&(relative.len() as u64).to_le_bytes());
        self.0.update(relative.as_bytes());
        self.0.update(&file_version.bytes.to_le_bytes());
        self.0.update(&file_version.mtime_ns.to_le_bytes());
    }

    /// Marks the end of a location.
    pub(crate) fn separate(&mut self) {
        self.0.update(&u64::MAX.to_le_bytes());
    }

    /// Returns the digest as 32 hexadecimal digits.
    pub(crate) fn finish(&self) -> String {
        format!("{:032x}", self.0.digest128())
    }

    pub(crate) fn of(kind: SourceKind, files: &[InputFile]) -> String {
        let mut fingerprint = Self::new(kind);
        for file in files {
            fingerprint.add(&file.relative, file.file_version);
        }
        fingerprint.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileOptions;

    fn touch(root: &Path, paths: &[&str]) {
        for path in paths {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
    }

    fn relative_paths(files: &[InputFile]) -> Vec<&str> {
        files.iter().map(|file| file.relative.as_str()).collect()
    }

    fn list(locations: &[PathBuf]) -> Result<Vec<InputFile>, Error> {
        let locations: Vec<Location> = locations.iter().cloned().map(Location::from).collect();
        list_tables(&locations, SourceKind::Parquet, &SourceOptions::default())
    }

    #[test]
    fn kind_is_derived_from_file_extension() {
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
    fn listed_directories_patterns_and_files_keep_order() {
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
            relative_paths(&files),
            [
                "one.parquet",
                "10.parquet",
                "2.parquet",
                "k=1/x.parquet",
                "k=2/x.parquet"
            ]
        );
        assert_eq!(
            relative_paths(&list(&[at("a/*/*.parquet")]).unwrap()),
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
    fn files_without_extension_are_used_as_a_fallback() {
        let root = tempfile::tempdir().unwrap();
        touch(root.path(), &["000000_0", "000001_0", "_SUCCESS", "x.txt"]);
        assert_eq!(
            relative_paths(&list(&[root.path().to_owned()]).unwrap()),
            ["000000_0", "000001_0"]
        );
    }

    #[test]
    fn overlapping_source_and_destination_are_an_error() {
        let root = tempfile::tempdir().unwrap();
        touch(root.path(), &["in/x.parquet"]);
        let open = |location: &str, exclude: &str| {
            let options = SourceOptions {
                files: FileOptions {
                    destination: Some(root.path().join(exclude).into()),
                    ..FileOptions::default()
                },
                ..SourceOptions::default()
            };
            let location = Location::from(root.path().join(location));
            list_tables(&[location], SourceKind::Parquet, &options).map(|_| ())
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
    fn fingerprint_changes_with_content_but_not_with_a_move() {
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
