//! Reads objects of stores as input files: lists them once, and downloads them into unnamed temporary files.
//!
//! Disk use is bounded. Of Parquet files, it holds the column chunks of open row groups and of those that
//! [`Prefetch`](crate::prefetch::Prefetch) has fetched. Of other formats, it holds the open files, and the most
//! recently used [`KEPT_FILES`] files, of at most [`KEPT_BYTES`] in total.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use shardmill_core::{Error, Unfinished, WORK_FOLDER, check_relative_path, lock};
use shardmill_storage::{ListOptions, Location, Remote, RemoteLocation, StorageError};
use xxhash_rust::xxh3::xxh3_64;

use crate::error;
use crate::file_names::{
    PATTERN_RULES, bad_pattern, has_extension, is_pattern, join, kind_of_name,
};
use crate::walk::{FileVersion, Listed, Listing, MAX_DEPTH, version_of};
use crate::{SourceOptions, SourceProblem};

/// The most bytes of whole files that are kept after they were closed.
const KEPT_BYTES: u64 = 1 << 30;

/// The most files that are kept. Each holds a file descriptor.
const KEPT_FILES: usize = 64;

/// The most whole files that are downloaded ahead at the same time.
const EARLY: usize = 2;

/// A prefix of a store that files are read from.
#[derive(Debug)]
pub(crate) struct Store {
    remote: Remote,
    temp_dir: PathBuf,
    kept: Mutex<Kept>,
    /// A folder in which a listing found the remains of an unfinished conversion.
    unfinished: OnceLock<(String, Unfinished)>,
}

/// Whole files, least recently used first.
#[derive(Debug, Default)]
struct Kept {
    files: VecDeque<Arc<Whole>>,
    early: usize,
}

/// A whole object, and its file once it is downloaded.
#[derive(Debug)]
struct Whole {
    name: String,
    bytes: u64,
    file: Mutex<Option<File>>,
}

/// An object of a store.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub store: Arc<Store>,
    /// The key, relative to the store.
    pub name: String,
}

/// What a location refers to, or a match of its pattern.
pub(crate) enum Found {
    /// A file or directory on this machine.
    Path(PathBuf),
    Object(Object, FileVersion),
    Folder(Folder),
}

/// All objects of a store, or those of a folder that matches a pattern.
pub(crate) struct Folder {
    pub store: Arc<Store>,
    /// The name in the store; empty for all objects.
    pub name: String,
    /// The names below it, if they are known.
    listing: Option<Listing>,
}

impl Folder {
    fn all_of(store: Arc<Store>) -> Found {
        Found::Folder(Self {
            store,
            name: String::new(),
            listing: None,
        })
    }

    /// Returns the name in the store of a file below the folder.
    pub(crate) fn key(&self, below: &str) -> String {
        join(&self.name, below)
    }

    /// Returns the files below the folder, sorted by the bytes of their names.
    pub(crate) fn files(
        &self,
    ) -> Result<Box<dyn Iterator<Item = Result<Listed, Error>> + '_>, Error> {
        Ok(match &self.listing {
            Some(listing) => Box::new(listing.iter().cloned().map(Ok)),
            None => Box::new(self.store.list("")?),
        })
    }

    /// Returns the names below the folder.
    pub(crate) fn listing(&self) -> Result<Listing, Error> {
        let listing: Listing = self.files()?.collect::<Result<_, _>>()?;
        if listing.is_empty() {
            let shown = self.store.remote.display(&self.name);
            return Err(error::not_found(shown));
        }
        Ok(listing)
    }

    /// Returns whether the folder has a folder of this name, whose slash it includes.
    pub(crate) fn has_folder(&self, name: &str) -> Result<bool, Error> {
        match &self.listing {
            Some(listing) => Ok(listing.iter().any(|(below, _)| below.starts_with(name))),
            None => Ok(!self.store.remote.peek(name, 1, &mut |_| true)?.is_empty()),
        }
    }

    /// Returns a file directly in the folder, and its length.
    pub(crate) fn file(&self, name: &str) -> Result<Option<(Object, u64)>, Error> {
        let bytes = match &self.listing {
            Some(listing) => version_of(listing, name).map(|file_version| file_version.bytes),
            None => {
                let found = self.store.remote.look_up(name, &mut |_| true)?;
                found.map(|found| found.bytes)
            }
        };
        Ok(bytes.map(|bytes| (self.store.named(&self.key(name)), bytes)))
    }
}

impl Found {
    pub(crate) fn location(&self) -> Location {
        let (store, name) = match self {
            Self::Path(path) => return path.clone().into(),
            Self::Object(Object { store, name }, _) | Self::Folder(Folder { store, name, .. }) => {
                (store, name)
            }
        };
        Location::Remote(store.remote.location().join(name))
    }

    /// Returns the name of a match, relative to the part of the pattern before the first wildcard.
    fn name(&self) -> &str {
        match self {
            Self::Object(Object { name, .. }, _) | Self::Folder(Folder { name, .. }) => name,
            Self::Path(_) => "",
        }
    }
}

/// Returns the version of an object when it was listed. A hash of its entity tag replaces the modification time.
fn file_version(bytes: u64, tag: &str) -> FileVersion {
    FileVersion {
        bytes,
        mtime_ns: xxh3_64(tag.trim_matches('"').as_bytes()).cast_signed(),
    }
}

/// Returns whether a name looks like that of a file rather than of a folder.
fn is_file_name(name: &str) -> bool {
    kind_of_name(name).is_some() || has_extension(name, &["json", "tar", "tgz", "gz", "zst"])
}

/// Finds out what a location refers to. The matches of a pattern are sorted by the bytes of their names.
pub(crate) fn find(
    location: &RemoteLocation,
    options: &SourceOptions,
) -> Result<Vec<Found>, Error> {
    let missing = || error::not_found(location.to_string());
    let Some((folder, name)) = location.split_name() else {
        return Ok(vec![Folder::all_of(Store::open(location, options)?)]);
    };
    let store = Store::open(&folder, options)?;
    let can_list = store.remote.can_list();
    let is_pattern = is_pattern(location.prefix());
    if is_file_name(name) || is_pattern || !can_list {
        if let Some(found) = store.object(name)? {
            return Ok(vec![found]);
        }
        if is_pattern {
            return expand(location, options);
        }
        if !can_list {
            return Err(missing());
        }
        return Ok(vec![Folder::all_of(Store::open(location, options)?)]);
    }
    let folder = Store::open(location, options)?;
    if !folder.remote.peek("", 1, &mut |_| true)?.is_empty() {
        return Ok(vec![Folder::all_of(folder)]);
    }
    Ok(vec![store.object(name)?.ok_or_else(missing)?])
}

/// Expands a pattern. It requests only names that begin with the part before the first wildcard.
fn expand(location: &RemoteLocation, options: &SourceOptions) -> Result<Vec<Found>, Error> {
    let parts: Vec<&str> = location.prefix().split('/').collect();
    let exact = parts.iter().take_while(|part| !is_pattern(part)).count();
    let base = parts.get(..exact).unwrap_or_default().join("/");
    let rest = parts.get(exact..).unwrap_or_default();
    let pattern = rest.join("/");
    let compiled = glob::Pattern::new(&pattern);
    let compiled = compiled.map_err(|error| bad_pattern(&location.to_string(), &error))?;
    let head = rest.first().copied().unwrap_or_default();
    let head = head.split(['*', '?', '[']).next().unwrap_or_default();
    // Without `**`, a pattern with this many parts matches names with as many parts, and folders by their first parts.
    let depth = (!rest.contains(&"**")).then_some(rest.len());
    let store = Store::open(&location.root().join(&base), options)?;
    let mut matches: Vec<Found> = Vec::new();
    for listed in store.list(head)? {
        let (name, file_version) = listed?;
        let end = depth.and_then(|depth| name.match_indices('/').nth(depth - 1));
        let Some((end, _)) = end else {
            if compiled.matches_with(&name, PATTERN_RULES) {
                store.check_name(&name)?;
                matches.push(Found::Object(store.named(&name), file_version));
            }
            continue;
        };
        let (folder, below) = name.split_at(end);
        let below = below.strip_prefix('/').unwrap_or(below);
        let own = (below.into(), file_version);
        if let Some(Found::Folder(last)) = matches.last_mut()
            && last.name == folder
        {
            last.listing.get_or_insert_default().push(own);
        } else if compiled.matches_with(folder, PATTERN_RULES) {
            matches.push(Found::Folder(Folder {
                store: Arc::clone(&store),
                name: folder.to_owned(),
                listing: Some(vec![own]),
            }));
        }
    }
    if matches.is_empty() {
        return Err(error::not_found(location.to_string()));
    }
    matches.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(matches)
}

impl Store {
    pub(crate) fn open(
        location: &RemoteLocation,
        options: &SourceOptions,
    ) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            remote: Remote::open(location, &options.remote)?,
            temp_dir: options.resources.temp_folder(),
            kept: Mutex::default(),
            unfinished: OnceLock::new(),
        }))
    }

    pub(crate) const fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Returns the object of a name.
    pub(crate) fn named(self: &Arc<Self>, name: &str) -> Object {
        Object {
            store: Arc::clone(self),
            name: name.to_owned(),
        }
    }

    /// Returns the object of that name in its current version.
    fn object(self: &Arc<Self>, name: &str) -> Result<Option<Found>, Error> {
        let version = self.version(name)?;
        Ok(version.map(|version| Found::Object(self.named(name), version)))
    }

    /// Returns the current version of an object, the only one that is read from now on; `None` if it does not exist.
    pub(crate) fn version(&self, name: &str) -> Result<Option<FileVersion>, Error> {
        let Some(found) = self.remote.look_up(name, &mut |_| true)? else {
            return Ok(None);
        };
        self.remote
            .pin(std::iter::once((name, found.tag.as_str())))?;
        Ok(Some(file_version(found.bytes, &found.tag)))
    }

    /// Returns the objects whose names begin with `prefix`, sorted by bytes, without objects that mark folders. Once one
    /// of them is returned, reading another version of it is an error.
    pub(crate) fn list(
        &self,
        prefix: &str,
    ) -> Result<impl Iterator<Item = Result<Listed, Error>> + '_, Error> {
        let (temp_dir, options) = (Some(&*self.temp_dir), ListOptions::default());
        let listing = self
            .remote
            .list_sorted(prefix, temp_dir, &options, &mut |_| true)?;
        Ok(listing.filter_map(|entry| {
            let entry = match entry {
                Ok(entry) if self.is_internal(&entry.name) => return None,
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let pinned = std::iter::once((entry.name.as_str(), entry.tag.as_str()));
            let version = file_version(entry.bytes, &entry.tag);
            let pinned = self.remote.pin(pinned).map_err(Error::from);
            Some(pinned.map(|()| (entry.name.into(), version)))
        }))
    }

    /// Returns whether an object belongs to a writer that works in the store. Records an unfinished conversion if the
    /// object belongs to one.
    fn is_internal(&self, name: &str) -> bool {
        let inside = format!("{WORK_FOLDER}/");
        let at = match name.starts_with(&inside) {
            true => 0,
            false => match name.find(&format!("/{inside}")) {
                Some(slash) => slash + 1,
                None => return false,
            },
        };
        let (folder, inner) = name.split_at(at);
        if let Some(found) = Unfinished::among([inner]) {
            let folder = self.remote.display(folder.trim_end_matches('/'));
            self.unfinished.get_or_init(|| (folder, found));
        }
        true
    }

    /// Fails if a listing found the remains of an unfinished conversion.
    pub(crate) fn check_finished(&self) -> Result<(), Error> {
        match self.unfinished.get().cloned() {
            Some((location, found)) => Err(error::unfinished(&location, found)),
            None => Ok(()),
        }
    }

    /// Refuses names that cannot be file names, and folders that are nested too deep.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), Error> {
        check_relative_path(name).map_err(|source| {
            let name = self.remote.display(name);
            StorageError::Name { name, source }
        })?;
        if name.matches('/').count() > MAX_DEPTH {
            return Err(SourceProblem::TreeDepth.at(
                self.remote.display(name),
                format!("is more than {MAX_DEPTH} directories deep"),
            ));
        }
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }

    /// Returns the cache entry of a whole object, and marks it as the most recently used.
    fn whole(&self, name: &str, bytes: u64) -> Arc<Whole> {
        let mut kept = self.kept();
        let known = kept.files.iter().position(|whole| whole.name == name);
        let known = known.and_then(|at| kept.files.remove(at));
        let whole = known.unwrap_or_else(|| {
            Arc::new(Whole {
                name: name.to_owned(),
                bytes,
                file: Mutex::default(),
            })
        });
        kept.files.push_back(Arc::clone(&whole));
        let mut kept_bytes: u64 = kept.files.iter().map(|whole| whole.bytes).sum();
        while kept.files.len() > 1 && (kept.files.len() > KEPT_FILES || kept_bytes > KEPT_BYTES) {
            if let Some(oldest) = kept.files.pop_front() {
                kept_bytes -= oldest.bytes;
            }
        }
        whole
    }
}

impl Object {
    /// Returns the name as printed.
    pub(crate) fn shown(&self) -> String {
        self.store.remote.display(&self.name)
    }

    /// Returns the first bytes of the object, at most `max`.
    pub(crate) fn head(&self, bytes: u64, max: u64) -> Result<Vec<u8>, Error> {
        let remote = self.store.remote();
        Ok(remote.read_range(&self.name, None, 0..bytes.min(max))?)
    }

    /// Returns the whole object as a file, which must be read by position.
    pub(crate) fn open(&self, file_version: FileVersion) -> Result<File, Error> {
        let bytes = file_version.bytes;
        let whole = self.store.whole(&self.name, bytes);
        // A second caller waits here until the first has downloaded the object.
        let mut cached = lock(&whole.file);
        let file = match cached.take() {
            Some(file) => file,
            None => {
                let all = 0..bytes;
                self.open_ranges(file_version, &[all])?
            }
        };
        let copy = file.try_clone();
        *cached = Some(file);
        copy.map_err(|source| error::io("open", self.shown(), source))
    }

    /// Downloads some ranges of the object into a sparse file, at their original offsets.
    pub(crate) fn open_ranges(
        &self,
        file_version: FileVersion,
        ranges: &[Range<u64>],
    ) -> Result<File, Error> {
        let Store {
            remote, temp_dir, ..
        } = &*self.store;
        let file = remote.spool(&self.name, file_version.bytes, ranges, Some(temp_dir));
        file.map_err(|error| self.changed(error.into(), file_version))
    }

    /// Starts to download the whole object, unless it is present or too many downloads ahead are in flight.
    pub(crate) fn fetch_early(&self, file_version: FileVersion) {
        let mut kept = self.store.kept();
        let is_known = kept.files.iter().any(|whole| whole.name == self.name);
        if is_known || kept.early >= EARLY || file_version.bytes > KEPT_BYTES / 2 {
            return;
        }
        kept.early += 1;
        drop(kept);
        let (object, store) = (self.clone(), Arc::clone(&self.store));
        let started = std::thread::Builder::new()
            .name("shardmill-early".to_owned())
            .spawn(move || {
                // The caller that needs the file tries again and reports the error.
                let _ = object.open(file_version);
                object.store.kept().early -= 1;
            });
        if started.is_err() {
            store.kept().early -= 1;
        }
    }

    /// Translates a failure to read a listed object: into a `source-changed` error if the object was replaced.
    pub(crate) fn changed(&self, error: Error, listed: FileVersion) -> Error {
        let found_bytes = match error.cause::<StorageError>().map(StorageError::fault) {
            Some(fault) if fault.is_without_ranges() => return error,
            Some(StorageError::ObjectChanged | StorageError::BodyRange { .. }) => listed.bytes,
            Some(StorageError::BodyLength { found, .. }) => *found,
            _ => return error,
        };
        error::changed(&self.shown(), listed.bytes, found_bytes, true)
    }
}
