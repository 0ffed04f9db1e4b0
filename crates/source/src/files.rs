//! Resolves locations to files: directories, patterns, hive partitions and fingerprints.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rayon::prelude::*;
use shardmill_core::escape;
use shardmill_storage::{Location, RemoteLocation};
use xxhash_rust::xxh3::Xxh3;

use crate::file_filter::FileFilter;
use crate::file_names::{
    PATTERN_RULES, bad_pattern, file_of, has_extension, is_hidden, is_pattern, join, kind_of_name,
};
use crate::objects::{self, Found, Holds, Match, Object, Store};
use crate::walk::{FileVersion, Listing, WalkOptions, on_pool, resolve, shown, special, walk};
use crate::{SourceDescription, SourceError, SourceFile, SourceKind, SourceOptions, SourceProblem};

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
    /// Opens the file, provided that it is still the one that was listed. The caller must read by position, because the
    /// file offset may be shared. An object is downloaded completely.
    pub(crate) fn open(&self) -> Result<File, SourceError> {
        match &self.origin {
            Origin::Local(path) => {
                let file = File::open(path)
                    .map_err(|source| SourceError::io("open", &self.shown, source))?;
                self.check(&file)?;
                Ok(file)
            }
            Origin::Object(object) => object.open(self.file_version),
        }
    }

    /// Refuses a file that is no longer the one that was listed. The file of an object never changes, because only bytes
    /// of the listed version are written to it.
    pub(crate) fn check(&self, file: &File) -> Result<(), SourceError> {
        if self.object().is_some() {
            return Ok(());
        }
        let metadata = file
            .metadata()
            .map_err(|source| SourceError::io("read", &self.shown, source))?;
        self.file_version.check(&self.shown, &metadata)
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

/// Starts to download the file after the one that is being read, if it is in a store.
pub(crate) fn fetch_early(files: &[InputFile], number: usize) {
    if let Some(next) = files.get(number.saturating_add(1))
        && let Some(object) = next.object()
    {
        object.fetch_early(next.file_version);
    }
}

/// Inspects files on several threads, in order. Files in stores get more threads, because these mostly wait.
pub(crate) fn inspect_each<T: Send>(
    files: &[InputFile],
    jobs: usize,
    inspect: impl Fn(usize, &InputFile) -> Result<T, SourceError> + Sync,
) -> Result<Vec<T>, SourceError> {
    let jobs = match files.iter().any(|file| file.object().is_some()) {
        true => jobs.max(INSPECT_THREADS),
        false => jobs,
    };
    // The first error in the order of the files is returned, so that it does not depend on the threads.
    let found: Vec<Result<T, SourceError>> = on_pool(jobs, || {
        let files = files.par_iter().enumerate();
        files.map(|(number, file)| inspect(number, file)).collect()
    })?;
    found.into_iter().collect()
}

/// Lists the files of a table in the order of the dataset: locations as given, and the files of each location sorted by
/// the bytes of their relative paths.
pub(crate) fn list_tables(
    locations: &[Location],
    kind: SourceKind,
    options: &SourceOptions,
) -> Result<Vec<InputFile>, SourceError> {
    let filter = FileFilter::new(&options.files)?;
    let mut files = Vec::new();
    for location in locations {
        let before = files.len();
        let location = match location {
            Location::Local(path) => path,
            Location::Remote(remote) => {
                take_remote(remote, kind, options, &mut files)?;
                keep_selected(&mut files, before, &filter);
                if files.len() == before {
                    return Err(empty(remote.to_string(), kind, &filter));
                }
                continue;
            }
        };
        match expand(location)? {
            Expanded::DirectSource(path) => take_location(&path, "", kind, options, &mut files)?,
            Expanded::Pattern { base, matches } => {
                for path in matches {
                    let relative = path.strip_prefix(&base).unwrap_or(&path);
                    let relative = relative.to_str().map(str::to_owned).ok_or_else(|| {
                        SourceProblem::TreeName.at(shown(&path, ""), "the name is not UTF-8")
                    })?;
                    take_location(&path, &relative, kind, options, &mut files)?;
                }
                if let Some(own) = files.get_mut(before..) {
                    own.sort_by(|a, b| a.relative.cmp(&b.relative));
                }
            }
        }
        keep_selected(&mut files, before, &filter);
        if files.len() == before {
            return Err(empty(shown(location, ""), kind, &filter));
        }
    }
    let mut seen = HashSet::with_capacity(files.len());
    for file in &files {
        if !seen.insert(file.identity()) {
            return Err(
                SourceProblem::Duplicate.at(file.shown.clone(), "is part of the source twice")
            );
        }
    }
    Ok(files)
}

/// Removes the files after the first `before` ones that the patterns do not select.
fn keep_selected(files: &mut Vec<InputFile>, before: usize, filter: &FileFilter) {
    if !filter.takes_all() {
        let mut at = 0;
        files.retain(|file| {
            at += 1;
            at <= before || filter.takes(&file.relative)
        });
    }
}

fn empty(location: String, kind: SourceKind, filter: &FileFilter) -> SourceError {
    let reason = format!("holds no {}{}", wanted(kind), filter.reason());
    SourceProblem::Empty.at(location, reason)
}

const fn wanted(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::Parquet => "Parquet file",
        SourceKind::Arrow => "Arrow file",
        SourceKind::Csv => "CSV file",
        SourceKind::Tsv => "TSV file",
        SourceKind::JsonLines => "JSON lines file",
        SourceKind::Tfrecord | SourceKind::TfrecordRaw => "TFRecord file",
        SourceKind::Megatron | SourceKind::MegatronDocuments => ".bin and .idx file",
        SourceKind::Litdata => "index.json of LitData",
        SourceKind::Arrayrecord => "ArrayRecord file",
        SourceKind::Delta
        | SourceKind::Zarr
        | SourceKind::Tree
        | SourceKind::Mds
        | SourceKind::Webdataset => "file",
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
    check_overlap(&path.into(), options)?;
    // Resolve links in the location itself once, so that the same file is recognised under any name.
    let resolved = resolve(path);
    if metadata.is_dir() {
        let listing = list_directory(&resolved, kind)?;
        for (below, file_version) in listing.iter() {
            files.push(InputFile {
                origin: Origin::Local(resolved.join(below)),
                shown: shown(path, below),
                relative: join(relative, below),
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
        file_version: FileVersion::of(&metadata),
        origin: Origin::Local(resolved),
    });
    Ok(())
}

/// Lists the files of a location in a store.
fn take_remote(
    location: &RemoteLocation,
    kind: SourceKind,
    options: &SourceOptions,
    files: &mut Vec<InputFile>,
) -> Result<(), SourceError> {
    let mut push = |store: &Arc<Store>, name: String, relative: String, file_version| {
        let object = Object {
            store: Arc::clone(store),
            name,
        };
        files.push(InputFile {
            shown: object.shown(),
            relative,
            file_version,
            origin: Origin::Object(object),
        });
    };
    let given = Location::Remote(location.clone());
    match objects::find(location, options)? {
        Found::Object(object, file_version) => {
            check_overlap(&given, options)?;
            push(
                &object.store,
                object.name.clone(),
                object.name,
                file_version,
            );
        }
        Found::Folder(store) => {
            check_overlap(&given, options)?;
            let (listing, all) = list_store(&store, kind)?;
            if all == 0 {
                return Err(SourceError::not_found(location.to_string()));
            }
            for (name, file_version) in listing.iter() {
                push(&store, name.to_owned(), name.to_owned(), file_version);
            }
        }
        Found::Pattern(store, matches) => {
            let mut found = Vec::new();
            for Match { name, holds } in matches {
                check_overlap(&store.location(&name), options)?;
                match holds {
                    Holds::Object(file_version) => found.push((name, file_version)),
                    Holds::Folder(listing) => {
                        let all = || listing.iter();
                        let mut own: Vec<_> =
                            all().filter(|(below, _)| is_wanted(below, kind)).collect();
                        if own.is_empty() {
                            own = all().filter(|(below, _)| is_bare(below, kind)).collect();
                        }
                        found.extend(
                            own.into_iter()
                                .map(|(below, file_version)| (join(&name, below), file_version)),
                        );
                    }
                }
            }
            found.sort_by(|a, b| a.0.cmp(&b.0));
            for (name, file_version) in found {
                store.check_name(&name)?;
                push(&store, name.clone(), name, file_version);
            }
        }
    }
    Ok(())
}

/// Lists the objects of a kind below a prefix, by the rules of [`list_directory`], and counts all objects.
fn list_store(store: &Store, kind: SourceKind) -> Result<(Listing, u64), SourceError> {
    let (listing, all) = store.listing(&|name| is_wanted(name, kind))?;
    if listing.len() > 0 || all == 0 {
        return Ok((listing, all));
    }
    store.listing(&|name| is_bare(name, kind))
}

/// Returns whether an object below a prefix is of a kind.
fn is_wanted(name: &str, kind: SourceKind) -> bool {
    fits(file_of(name), kind) && !is_hidden(name)
}

/// Returns whether the name of a file indicates a kind that the caller has specified.
fn fits(file: &str, kind: SourceKind) -> bool {
    match kind {
        SourceKind::Megatron | SourceKind::MegatronDocuments => {
            has_extension(file, &["bin", "idx"])
        }
        SourceKind::Litdata => has_extension(file, &["bin"]) || file == "index.json",
        SourceKind::Arrayrecord => {
            has_extension(file, &["array_record", "arrayrecord", "riegeli"])
                || file.contains(".array_record-")
                || file.contains(".arrayrecord-")
        }
        SourceKind::JsonLines if has_extension(file, &["json"]) => true,
        _ => kind_of_name(file) == Some(kind.of_names()),
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
fn list_directory(path: &Path, kind: SourceKind) -> Result<Listing, SourceError> {
    let options = WalkOptions {
        follow_links: true,
        skip_hidden: true,
        wanted: &|name| fits(name, kind),
    };
    let listing = walk(path, options)?;
    if listing.len() > 0 {
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

pub(crate) fn stat(path: &Path) -> Result<fs::Metadata, SourceError> {
    fs::metadata(path).map_err(|source| {
        if source.kind() == std::io::ErrorKind::NotFound {
            SourceError::not_found(shown(path, ""))
        } else {
            SourceError::io("open", shown(path, ""), source)
        }
    })
}

/// A location whose pattern, if it has one, has been expanded.
pub(crate) enum Expanded {
    DirectSource(PathBuf),
    /// The matches of a pattern, sorted by bytes, and the part of the pattern before the first wildcard.
    Pattern {
        base: PathBuf,
        matches: Vec<PathBuf>,
    },
}

/// Expands a pattern with `*`, `?` or `[…]`, unless a file has exactly that name.
pub(crate) fn expand(location: &Path) -> Result<Expanded, SourceError> {
    let Some(pattern) = location.to_str() else {
        return Ok(Expanded::DirectSource(location.to_owned()));
    };
    if !is_pattern(pattern) || fs::symlink_metadata(location).is_ok() {
        return Ok(Expanded::DirectSource(location.to_owned()));
    }
    let found = glob::glob_with(pattern, PATTERN_RULES);
    let found = found.map_err(|error| bad_pattern(pattern, &error))?;
    let mut matches = Vec::new();
    for path in found {
        matches.push(path.map_err(|error| {
            let path = shown(error.path(), "");
            SourceError::io("list", path, error.into())
        })?);
    }
    if matches.is_empty() {
        return Err(SourceError::not_found(pattern));
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

/// Refuses a location inside the destination, or one that contains it.
pub(crate) fn check_overlap(
    location: &Location,
    options: &SourceOptions,
) -> Result<(), SourceError> {
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
            exclude.beneath(location).is_some(),
            location.beneath(exclude).is_some(),
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
    let container = place(container);
    let reason = format!("the {inner} lies inside the {outer} {}", escape(&container));
    Err(SourceProblem::Overlap.at(place(inside), reason))
}

/// Returns a location as printed.
pub(crate) fn place(location: &Location) -> String {
    match location {
        Location::Local(path) => shown(path, ""),
        Location::Remote(remote) => remote.to_string(),
    }
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
    use shardmill_core::Diagnostic as _;

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

    fn list(locations: &[PathBuf]) -> Result<Vec<InputFile>, SourceError> {
        let locations: Vec<Location> = locations.iter().cloned().map(Location::from).collect();
        list_tables(&locations, SourceKind::Parquet, &SourceOptions::default())
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
    fn files_without_extension_count_where_there_are_no_others() {
        let root = tempfile::tempdir().unwrap();
        touch(root.path(), &["000000_0", "000001_0", "_SUCCESS", "x.txt"]);
        assert_eq!(
            relative_paths(&list(&[root.path().to_owned()]).unwrap()),
            ["000000_0", "000001_0"]
        );
    }

    #[test]
    fn the_destination_may_not_overlap() {
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
