//! Lists directories in parallel, into one compact, sorted listing.

use std::ffi::OsStr;
use std::fs::{self, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rayon::iter::Either;
use rayon::prelude::*;
use shardmill_core::{Error, PARTS_FOLDER, Unfinished, WORK_FOLDER};

use crate::SourceProblem;
use crate::error;

/// The deepest directories that are accepted. Real datasets are never deeper, but loops of bind mounts are.
pub(crate) const MAX_DEPTH: usize = 128;

/// Which names a walk lists, and how it handles links.
#[derive(Clone, Copy)]
pub(crate) struct WalkOptions<'a> {
    /// Whether to follow symbolic links. Otherwise they are errors.
    pub follow_links: bool,
    /// Whether to skip names that begin with a dot or an underscore, except directories called `key=value`. Spark, Hive
    /// and editors keep such files next to the data.
    pub skip_hidden: bool,
    /// Which files to list, by name.
    pub wanted: &'a (dyn Fn(&str) -> bool + Sync),
}

impl Default for WalkOptions<'_> {
    /// Lists all files, without following links.
    fn default() -> Self {
        Self {
            follow_links: false,
            skip_hidden: false,
            wanted: &|_| true,
        }
    }
}

/// A relative path with `/` as the separator, and the state of that file.
pub(crate) type Listed = (Box<str>, FileVersion);

/// The regular files below a directory, sorted by the bytes of their relative paths.
pub(crate) type Listing = Vec<Listed>;

/// Returns the relative path of a file; empty beyond the end.
pub(crate) fn path_of(listing: &[Listed], number: usize) -> &str {
    listing.get(number).map_or("", |(path, _)| path)
}

/// Returns the state of the file with this path, in a sorted listing.
pub(crate) fn version_of(listing: &[Listed], path: &str) -> Option<FileVersion> {
    let found = listing.binary_search_by(|(own, _)| (**own).cmp(path));
    listing
        .get(found.ok()?)
        .map(|(_, file_version)| *file_version)
}

/// The size and time of a file when it was listed, to compare with those when it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileVersion {
    pub bytes: u64,
    /// The modification time; for an object, a digest of its entity tag instead.
    pub mtime_ns: i64,
}

impl FileVersion {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            bytes: metadata.len(),
            mtime_ns: mtime_ns(metadata),
        }
    }

    /// Fails if the file has changed since.
    pub(crate) fn check(self, path: &str, metadata: &Metadata) -> Result<(), Error> {
        let now = Self::of(metadata);
        if now == self && metadata.is_file() {
            return Ok(());
        }
        let touched = now.mtime_ns != self.mtime_ns;
        Err(error::changed(path, self.bytes, now.bytes, touched))
    }
}

/// Returns the modification time in nanoseconds since 1970. Years beyond 2262 wrap, which still shows a change.
fn mtime_ns(metadata: &Metadata) -> i64 {
    metadata
        .mtime()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(metadata.mtime_nsec())
}

struct Directory {
    /// The relative path with a trailing `/`; empty for the root.
    prefix: String,
    /// If links are followed: the devices and inodes of the directory and of those that contain it, to detect loops.
    ids: Vec<(u64, u64)>,
}

/// An error, and the relative path that decides which of several errors is reported.
type Failure = (String, Box<Error>);

#[derive(Default)]
struct Found {
    files: Listing,
    directories: Vec<Directory>,
}

/// Lists the regular files below `root`, on the current rayon pool. Reports an error of the shallowest level that has one;
/// on that level, the first in path order.
pub(crate) fn walk(root: &Path, options: WalkOptions<'_>) -> Result<Listing, Error> {
    let mut root_ids = Vec::new();
    if options.follow_links {
        let metadata =
            fs::metadata(root).map_err(|source| error::io("list", shown(root, ""), source))?;
        root_ids.push((metadata.dev(), metadata.ino()));
    }
    let mut level = vec![Directory {
        prefix: String::new(),
        ids: root_ids,
    }];
    let mut listing = Listing::default();
    let mut depth = 0;
    while !level.is_empty() {
        if depth > MAX_DEPTH {
            let prefix = level.iter().map(|directory| &directory.prefix).min();
            let prefix = prefix.map_or("", |prefix| prefix.trim_end_matches('/'));
            let reason = format!("is more than {MAX_DEPTH} directories deep");
            return Err(SourceProblem::TreeDepth.at(shown(root, prefix), reason));
        }
        depth += 1;
        // Proceed level by level instead of recursively, so that a deep tree does not grow the stack.
        let listed = level.par_iter();
        let (found, failed): (Vec<Found>, Vec<Failure>) =
            listed.partition_map(|directory| match list(root, directory, options) {
                Ok(found) => Either::Left(found),
                Err(failure) => Either::Right(failure),
            });
        first_error(failed).map_err(|(_, error)| *error)?;
        level.clear();
        for found in found {
            listing.extend(found.files);
            level.extend(found.directories);
        }
    }
    listing.par_sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(listing)
}

/// Returns the error whose path is first.
fn first_error(failed: Vec<Failure>) -> Result<(), Failure> {
    let first = failed.into_iter().min_by(|a, b| a.0.cmp(&b.0));
    first.map_or(Ok(()), Err)
}

/// Returns a path as printed: the root as given, then the relative path.
pub(crate) fn shown(root: &Path, relative: &str) -> String {
    if relative.is_empty() {
        return root.to_string_lossy().into_owned();
    }
    root.join(relative).to_string_lossy().into_owned()
}

/// Lists one directory.
fn list(root: &Path, directory: &Directory, options: WalkOptions<'_>) -> Result<Found, Failure> {
    let path = root.join(&directory.prefix);
    let failed = |source| {
        let path = shown(root, directory.prefix.trim_end_matches('/'));
        let error = failure("list", path, source);
        (directory.prefix.clone(), Box::new(error))
    };
    let mut found = Found::default();
    let mut errors = Vec::new();
    for entry in fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let raw_name = entry.file_name();
        if let Err(error) = take(root, directory, options, &raw_name, &entry, &mut found) {
            let relative = format!("{}{}", directory.prefix, raw_name.to_string_lossy());
            errors.push((relative, Box::new(error)));
        }
    }
    first_error(errors)?;
    Ok(found)
}

fn take(
    root: &Path,
    directory: &Directory,
    options: WalkOptions<'_>,
    raw_name: &OsStr,
    entry: &fs::DirEntry,
    found: &mut Found,
) -> Result<(), Error> {
    let io = |action, source| {
        let relative = format!("{}{}", directory.prefix, raw_name.to_string_lossy());
        failure(action, shown(root, &relative), source)
    };
    let kind = entry.file_type().map_err(|source| io("list", source))?;
    let lossy = raw_name.to_string_lossy();
    let hidden = options.skip_hidden && lossy.starts_with(['.', '_']);
    if hidden && !(lossy.contains('=') && (kind.is_dir() || kind.is_symlink())) {
        return Ok(());
    }
    if raw_name == WORK_FOLDER && kind.is_dir() {
        // A conversion's work folder contains no data, but the files next to it may be some of its shards.
        return match unfinished(&root.join(&directory.prefix)) {
            None => Ok(()),
            Some(found) => Err(error::unfinished(
                &shown(root, directory.prefix.trim_end_matches('/')),
                found,
            )),
        };
    }
    let path = || shown(root, &format!("{}{lossy}", directory.prefix));
    let (kind, metadata) = if kind.is_symlink() {
        if !options.follow_links {
            return Err(SourceProblem::TreeSymlink.at(path(), "is a symbolic link"));
        }
        match fs::metadata(entry.path()) {
            Ok(metadata) => (metadata.file_type(), Some(metadata)),
            // Ignore a broken link if the source would not have read the file.
            Err(_) if !(options.wanted)(&lossy) => return Ok(()),
            // Name the action: the link exists, but its target does not.
            Err(source) => return Err(error::io("follow the link", path(), source)),
        }
    } else {
        (kind, None)
    };
    if kind.is_dir() {
        let name = check_name(raw_name, &path)?;
        let mut ids = directory.ids.clone();
        if options.follow_links {
            let metadata = match metadata {
                Some(metadata) => metadata,
                None => entry.metadata().map_err(|source| io("list", source))?,
            };
            let id = (metadata.dev(), metadata.ino());
            if ids.contains(&id) {
                return Err(
                    SourceProblem::TreeLoop.at(path(), "is a link to a directory that contains it")
                );
            }
            ids.push(id);
        }
        found.directories.push(Directory {
            prefix: format!("{}{name}/", directory.prefix),
            ids,
        });
        return Ok(());
    }
    if !(options.wanted)(&lossy) {
        return Ok(());
    }
    let name = check_name(raw_name, &path)?;
    if let Some(what) = special(kind) {
        return Err(SourceProblem::TreeSpecial.at(path(), format!("is a {what}, not a file")));
    }
    let metadata = match metadata {
        Some(metadata) => metadata,
        None => entry.metadata().map_err(|source| io("list", source))?,
    };
    let relative = format!("{}{name}", directory.prefix);
    let file_version = FileVersion::of(&metadata);
    found.files.push((relative.into(), file_version));
    Ok(())
}

/// Finds what an unfinished conversion has left in a folder. A folder that cannot be read counts as empty.
fn unfinished(folder: &Path) -> Option<Unfinished> {
    let names = |beneath: &str| {
        let entries = fs::read_dir(folder.join(beneath)).into_iter().flatten();
        let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
        let names = entries.filter_map(move |entry| name(entry.ok()?));
        let names = names.map(|name| format!("{beneath}/{name}"));
        names.collect::<Vec<String>>()
    };
    let all = [names(WORK_FOLDER), names(PARTS_FOLDER)].concat();
    Unfinished::among(all.iter().map(String::as_str))
}

/// Returns the error for an entry of a listing. A missing entry was removed by another process.
fn failure(action: &'static str, path: String, source: std::io::Error) -> Error {
    match source.kind() {
        std::io::ErrorKind::NotFound => {
            SourceProblem::Changed.at(path, "it was removed while the source was listed")
        }
        _ => error::io(action, path, source),
    }
}

/// Describes a file that is neither regular nor a directory.
pub(crate) fn special(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_fifo() {
        Some("named pipe")
    } else if kind.is_socket() {
        Some("socket")
    } else if kind.is_char_device() || kind.is_block_device() {
        Some("device")
    } else {
        Some("special file")
    }
}

fn check_name<'a>(name: &'a OsStr, path: &dyn Fn() -> String) -> Result<&'a str, Error> {
    let reason = match name.to_str() {
        None => "is not UTF-8",
        Some(name) if name.chars().any(char::is_control) => "has a control character",
        Some(name) => return Ok(name),
    };
    Err(SourceProblem::TreeName.at(path(), format!("the name {reason}")))
}

/// Runs on a pool of `jobs` threads, or on the current pool for 0.
pub(crate) fn on_pool<T: Send>(jobs: usize, run: impl FnOnce() -> T + Send) -> Result<T, Error> {
    if jobs == 0 {
        return Ok(run());
    }
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(jobs)
        .thread_name(|_| "shardmill-list".to_owned())
        .build()
        .map_err(|error| error::io("start threads", "", std::io::Error::other(error)))?;
    Ok(pool.install(run))
}

/// Returns an absolute path with links resolved, as far as the path exists.
pub(crate) fn resolve(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut rest = Vec::new();
    let mut existing = absolute.as_path();
    loop {
        if let Ok(mut resolved) = fs::canonicalize(existing) {
            resolved.extend(rest.iter().rev());
            return resolved;
        }
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) => {
                rest.push(name);
                existing = parent;
            }
            _ => return absolute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything(follow_links: bool) -> WalkOptions<'static> {
        WalkOptions {
            follow_links,
            ..WalkOptions::default()
        }
    }

    fn paths(listing: &[Listed]) -> Vec<&str> {
        listing.iter().map(|(path, _)| &**path).collect()
    }

    #[test]
    fn file_removed_during_listing_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(root.path().join(name), "x").unwrap();
        }
        let options = WalkOptions {
            wanted: &|name| {
                if name == "b" {
                    fs::remove_file(root.path().join(name)).unwrap();
                }
                true
            },
            ..everything(false)
        };
        let error = walk(root.path(), options).unwrap_err();
        assert_eq!(
            (error.id(), error.kind()),
            ("source-changed", shardmill_core::ErrorKind::Corrupt)
        );
        assert!(error.object().unwrap().ends_with("/b"));
        assert!(error.hint().unwrap().contains("run again"));
    }

    #[test]
    fn working_files_are_skipped_and_unfinished_output_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        for name in ["a", ".shardmill/lease", "sub/.shardmill/tmp-1", "sub/b"] {
            write(name);
        }
        let listing = walk(root.path(), everything(false)).unwrap();
        assert_eq!(paths(&listing), ["a", "sub/b"]);
        write("sub/.shardmill/parts/job-00000.json");
        let error = walk(root.path(), everything(false)).unwrap_err();
        assert_eq!(error.id(), "parts-uncommitted");
        assert!(error.object().unwrap().ends_with("/sub"));
        write(".shardmill/journal");
        let error = walk(root.path(), everything(false)).unwrap_err();
        assert_eq!(error.id(), "dest-unfinished");
        // Tables ignore it, like everything hidden.
        let options = WalkOptions {
            skip_hidden: true,
            ..everything(false)
        };
        assert_eq!(paths(&walk(root.path(), options).unwrap()), ["a", "sub/b"]);
    }

    #[test]
    fn files_are_sorted_by_the_bytes_of_the_full_path() {
        let root = tempfile::tempdir().unwrap();
        for path in ["a/b.txt", "a-b", "a.txt", "Z", "a/b/c", "é"] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let listing = walk(root.path(), everything(false)).unwrap();
        assert_eq!(
            paths(&listing),
            ["Z", "a-b", "a.txt", "a/b.txt", "a/b/c", "é"]
        );
        assert_eq!(listing.len(), 6);
        assert_eq!(listing[0].1.bytes, 1);
    }

    #[test]
    fn hidden_names_are_ignored_except_partitions() {
        let root = tempfile::tempdir().unwrap();
        for path in [
            "_SUCCESS",
            ".x.crc",
            "_k=1/part",
            "_tmp/part",
            ".hidden/part",
            "part",
            "_odd=name",
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let options = WalkOptions {
            skip_hidden: true,
            ..everything(false)
        };
        assert_eq!(
            paths(&walk(root.path(), options).unwrap()),
            ["_k=1/part", "part"]
        );
    }

    #[test]
    fn links_are_rejected_or_followed_and_loops_are_errors() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("d")).unwrap();
        fs::write(root.path().join("d/f"), "1").unwrap();
        std::os::unix::fs::symlink("d", root.path().join("l")).unwrap();
        let error = walk(root.path(), everything(false)).unwrap_err();
        assert_eq!(error.id(), "tree-symlink");
        assert!(error.object().unwrap().ends_with("/l"));
        assert_eq!(
            paths(&walk(root.path(), everything(true)).unwrap()),
            ["d/f", "l/f"]
        );
        std::os::unix::fs::symlink("..", root.path().join("d/up")).unwrap();
        let error = walk(root.path(), everything(true)).unwrap_err();
        assert_eq!(error.id(), "tree-loop");
        fs::remove_file(root.path().join("d/up")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.path().join("dangling")).unwrap();
        let error = walk(root.path(), everything(true)).unwrap_err();
        assert_eq!(error.id(), "not-found");
    }

    #[test]
    fn special_files_and_invalid_names_are_rejected() {
        use std::os::unix::ffi::OsStrExt as _;
        let root = tempfile::tempdir().unwrap();
        let socket = root.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = walk(root.path(), everything(false)).unwrap_err();
        assert_eq!(
            (error.id(), error.to_string().as_str()),
            ("tree-special", "is a socket, not a file")
        );
        drop(listener);
        fs::remove_file(socket).unwrap();
        fs::write(root.path().join("a\nb"), "").unwrap();
        let error = walk(root.path(), everything(false)).unwrap_err();
        assert_eq!(
            (error.id(), error.to_string().as_str()),
            ("tree-name", "the name has a control character")
        );
        assert!(!error.object().unwrap().contains('\n'));
        fs::remove_file(root.path().join("a\nb")).unwrap();
        fs::write(root.path().join(OsStr::from_bytes(b"\xff")), "").unwrap();
        assert_eq!(
            walk(root.path(), everything(false))
                .unwrap_err()
                .to_string(),
            "the name is not UTF-8"
        );
    }

    #[test]
    fn too_deep_directory_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", MAX_DEPTH).collect();
        fs::create_dir_all(root.path().join(&deep)).unwrap();
        fs::write(root.path().join(&deep).join("f"), "").unwrap();
        assert_eq!(walk(root.path(), everything(false)).unwrap().len(), 1);
        fs::create_dir_all(root.path().join(&deep).join("d")).unwrap();
        assert_eq!(
            walk(root.path(), everything(false)).unwrap_err().id(),
            "tree-depth"
        );
    }

    #[test]
    fn resolve_keeps_missing_path_components() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(root.path(), root.path().join("self")).unwrap();
        let resolved = resolve(&root.path().join("self/new/deeper"));
        assert_eq!(
            resolved,
            fs::canonicalize(root.path()).unwrap().join("new/deeper")
        );
    }
}
