//! The objects of a Zarr store, in a directory, a prefix of a store or on a web server.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};
use shardmill_core::{Error, Limits, lock};
use shardmill_storage::Location;
use shardmill_zarr::{ZarrArray, ZarrError, attributes, consolidated};
use xxhash_rust::xxh3::xxh3_64;

use crate::error;
use crate::file_names::join;
use crate::files::{check_overlap, shown_below, shown_location, stat};
use crate::objects::Store;
use crate::walk::{FileVersion, Listed, Listing, WalkOptions, resolve, walk};
use crate::{SourceOptions, SourceProblem};

/// A Zarr store.
pub(super) struct ZarrStore {
    location: Location,
    objects: Objects,
    limits: Limits,
    /// The copies of other objects in the object with consolidated metadata.
    consolidated: BTreeMap<String, Vec<u8>>,
    /// The objects that were requested from a web server; `None` for those that do not exist.
    looked_up: Mutex<HashMap<String, Option<FileVersion>>>,
}

enum Objects {
    Directory(PathBuf),
    Store(Arc<Store>),
}

/// An object to read, and the range of it if not all.
pub(super) struct Wanted {
    pub name: String,
    /// The version that was listed. Without one, the object need not exist.
    pub file_version: Option<FileVersion>,
    pub range: Option<Range<u64>>,
}

/// The metadata of an array, and a digest of its bytes.
pub(super) type Metadata = (ZarrArray, FileVersion);

impl ZarrStore {
    pub(super) fn open(location: &Location, options: &SourceOptions) -> Result<Self, Error> {
        check_overlap(location, options)?;
        let objects = match location {
            Location::Local(path) => {
                if !stat(path)?.is_dir() {
                    let shown = shown_location(location);
                    return Err(SourceProblem::Unsupported.at(shown, "is a file, not a Zarr store"));
                }
                Objects::Directory(resolve(path))
            }
            Location::Remote(remote) => Objects::Store(Store::open(remote, options)?),
        };
        let mut store = Self {
            location: location.clone(),
            objects,
            limits: options.limits.clone(),
            consolidated: BTreeMap::new(),
            looked_up: Mutex::default(),
        };
        for name in ["zarr.json", ".zmetadata"] {
            if let Some(bytes) = store.read(name)? {
                let found = consolidated(&bytes, name);
                store.consolidated = found.map_err(|error| store.failed(name, error))?;
                break;
            }
        }
        Ok(store)
    }

    /// Returns the printed name of an object.
    pub(super) fn shown(&self, name: &str) -> String {
        shown_below(&self.location, name)
    }

    /// Returns the metadata of an array, or `None` if there is no array of that name.
    pub(super) fn array(&self, name: &str) -> Result<Option<Metadata>, Error> {
        let of_file = |file: &str| format!("{name}/{file}");
        let Some((file, bytes)) = self.first(&["zarr.json", ".zarray"].map(of_file))? else {
            return Ok(None);
        };
        let mut digest = FileVersion {
            bytes: bytes.len() as u64,
            mtime_ns: xxh3_64(&bytes).cast_signed(),
        };
        let array = if file.ends_with("zarr.json") {
            ZarrArray::parse_v3(&bytes, &self.limits)
        } else {
            let attributes = self.first(&[of_file(".zattrs")])?;
            let attributes = attributes.map(|(_, bytes)| bytes);
            digest.mtime_ns ^= xxh3_64(attributes.as_deref().unwrap_or_default()).cast_signed();
            ZarrArray::parse_v2(&bytes, attributes.as_deref(), &self.limits)
        };
        let array = array.map_err(|error| self.failed(&file, error))?;
        Ok(Some((array, digest)))
    }

    /// Returns the attributes of a group, whose name is empty or ends with a slash.
    pub(super) fn attributes(&self, group: &str) -> Result<Map<String, Value>, Error> {
        let names = ["zarr.json", ".zattrs"].map(|file| format!("{group}{file}"));
        match self.first(&names)? {
            Some((name, bytes)) => {
                attributes(&bytes, &name).map_err(|error| self.failed(&name, error))
            }
            None => Ok(Map::new()),
        }
    }

    /// Returns the first object of these names, also from consolidated metadata, which counts like that of xarray.
    fn first(&self, names: &[String]) -> Result<Option<(String, Vec<u8>)>, Error> {
        for name in names {
            if let Some(bytes) = self.consolidated.get(name) {
                return Ok(Some((name.clone(), bytes.clone())));
            }
        }
        for name in names {
            if let Some(bytes) = self.read(name)? {
                return Ok(Some((name.clone(), bytes)));
            }
        }
        Ok(None)
    }

    /// Returns the error about an object.
    pub(super) fn failed(&self, name: &str, error: ZarrError) -> Error {
        let problem = match error {
            ZarrError::Type(_) => SourceProblem::Type,
            ZarrError::Codec(_) => SourceProblem::ZarrCodec,
            ZarrError::Chunk(_) => SourceProblem::ZarrChunk,
            ZarrError::Time(_) => SourceProblem::ZarrTime,
            ZarrError::Limit(limit) => return error::limit(&limit, &self.shown(name)),
            _ => SourceProblem::ZarrMetadata,
        };
        problem.at(self.shown(name), error.to_string())
    }

    /// Reads a small object; `None` if it does not exist.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        match &self.objects {
            Objects::Directory(root) => {
                let failed = |source| error::io("read", self.shown(name), source);
                match std::fs::metadata(root.join(name)) {
                    Ok(metadata) => error::check_limit(
                        "index-bytes",
                        metadata.len(),
                        self.limits.index_bytes,
                        || self.shown(name),
                    )?,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                    Err(error) => return Err(failed(error)),
                }
                std::fs::read(root.join(name)).map(Some).map_err(failed)
            }
            Objects::Store(store) => existing(store, name, self.limits.index_bytes),
        }
    }

    /// Lists all objects of an array. Their names are relative to the array. Web servers list none.
    pub(super) fn list(&self, array: &str) -> Result<Option<Listing>, Error> {
        let listing = match &self.objects {
            Objects::Directory(root) => {
                let options = WalkOptions {
                    follow_links: true,
                    ..WalkOptions::default()
                };
                walk(&root.join(array), options)?
            }
            Objects::Store(store) if !store.remote().can_list() => return Ok(None),
            Objects::Store(store) => {
                let prefix = format!("{array}/");
                let relative = |(name, file_version): Listed| {
                    let name = name.strip_prefix(prefix.as_str()).unwrap_or(&name);
                    (Box::from(name), file_version)
                };
                let listed = store.list(&prefix)?.map(|listed| listed.map(relative));
                listed.collect::<Result<Listing, Error>>()?
            }
        };
        Ok(Some(listing))
    }

    /// Returns the version of an object of a web server, or `None` if it does not exist.
    pub(super) fn look_up(&self, name: &str) -> Result<Option<FileVersion>, Error> {
        if let Some(known) = lock(&self.looked_up).get(name) {
            return Ok(*known);
        }
        let found = match &self.objects {
            Objects::Directory(_) => None,
            Objects::Store(store) => store.version(name)?,
        };
        lock(&self.looked_up).insert(name.to_owned(), found);
        Ok(found)
    }

    /// Returns the names of the arrays and groups directly in a group, for messages.
    pub(super) fn members(&self, group: &str) -> Vec<String> {
        let prefix = join(group, "");
        let copies = self.consolidated.keys();
        let copies = copies.filter_map(|name| Some(name.strip_prefix(&prefix)?.split_once('/')?.0));
        let mut names: Vec<String> = copies.map(str::to_owned).collect();
        match &self.objects {
            Objects::Directory(root) => names.extend(
                std::fs::read_dir(root.join(group))
                    .into_iter()
                    .flatten()
                    .filter_map(|entry| entry.ok().filter(|entry| entry.path().is_dir()))
                    .map(|entry| entry.file_name().to_string_lossy().into_owned()),
            ),
            Objects::Store(store) if store.remote().can_list() => {
                let entries = store.remote().entries(&prefix, &mut |_| true);
                let folders = entries
                    .into_iter()
                    .flatten()
                    .filter(|entry| entry.is_folder);
                names.extend(folders.map(|entry| entry.name));
            }
            Objects::Store(_) => {}
        }
        names.sort();
        names.dedup();
        names
    }

    /// Reads objects, with concurrent requests in a store. Objects that do not exist are `None`.
    pub(super) fn fetch(&self, wanted: &[&Wanted]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        match &self.objects {
            Objects::Directory(root) => wanted
                .iter()
                .map(|wanted| self.read_file(&root.join(&wanted.name), wanted).map(Some))
                .collect(),
            Objects::Store(store) if wanted.iter().any(|wanted| wanted.file_version.is_none()) => {
                std::thread::scope(|scope| {
                    let read = |wanted: &&'_ Wanted| {
                        existing(store, &wanted.name, self.limits.shard_bytes)
                    };
                    let reads: Vec<_> = wanted
                        .iter()
                        .map(|wanted| scope.spawn(move || read(wanted)))
                        .collect();
                    let ended = || error::bug("a thread that reads a chunk panicked");
                    reads
                        .into_iter()
                        .map(|read| read.join().unwrap_or_else(|_| Err(ended())))
                        .collect()
                })
            }
            Objects::Store(store) => {
                let ranges = wanted.iter().map(|wanted| {
                    let bytes = wanted.file_version.unwrap_or_default().bytes;
                    let range = wanted.range.clone().unwrap_or(0..bytes);
                    (wanted.name.clone(), bytes, range)
                });
                let found = store.remote().read_ranges_of(&ranges.collect::<Vec<_>>());
                let found = found.into_iter().zip(wanted).map(|(found, wanted)| {
                    let object = store.named(&wanted.name);
                    let listed = wanted.file_version.unwrap_or_default();
                    found
                        .map(Some)
                        .map_err(|error| object.changed(error.into(), listed))
                });
                found.collect()
            }
        }
    }

    fn read_file(&self, path: &PathBuf, wanted: &Wanted) -> Result<Vec<u8>, Error> {
        let failed = |action, source| error::io(action, self.shown(&wanted.name), source);
        let file = File::open(path).map_err(|source| failed("open", source))?;
        let metadata = file.metadata().map_err(|source| failed("read", source))?;
        let listed = wanted.file_version.unwrap_or_default();
        listed.check(&self.shown(&wanted.name), &metadata)?;
        let range = wanted.range.clone().unwrap_or(0..listed.bytes);
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, range.start)
            .map_err(|source| failed("read", source))?;
        Ok(bytes)
    }
}

/// Reads a whole object of at most `max` bytes; `None` if it does not exist.
fn existing(store: &Store, name: &str, max: u64) -> Result<Option<Vec<u8>>, Error> {
    match store.remote().read(name, max) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
