//! The objects of a Zarr store, in a directory or a prefix of a store.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use shardmill_core::Limits;
use shardmill_storage::Location;
use shardmill_zarr::{ZarrArray, ZarrError};

use crate::files::{check_overlap, shown_below, shown_location, stat};
use crate::objects::Store;
use crate::walk::{FileVersion, Listing, WalkOptions, resolve, walk};
use crate::{SourceError, SourceOptions, SourceProblem};

/// A Zarr store.
pub(super) struct ZarrStore {
    location: Location,
    objects: Objects,
}

enum Objects {
    Directory(PathBuf),
    Store(Arc<Store>),
}

/// An object to read, at the version that was listed, and the range of it if not all.
pub(super) struct Wanted {
    pub name: String,
    pub file_version: FileVersion,
    pub range: Option<Range<u64>>,
}

impl ZarrStore {
    pub(super) fn open(location: &Location, options: &SourceOptions) -> Result<Self, SourceError> {
        check_overlap(location, options)?;
        let objects = match location {
            Location::Local(path) => {
                if !stat(path)?.is_dir() {
                    return Err(SourceProblem::Unsupported
                        .at(shown_location(location), "is a file, not a Zarr store"));
                }
                Objects::Directory(resolve(path))
            }
            Location::Remote(remote) => {
                let store = Store::open(remote, options)?;
                if !store.remote().can_list() {
                    let reason =
                        "is on a web server, which does not list the chunks of a Zarr store";
                    return Err(SourceProblem::Unsupported.at(shown_location(location), reason));
                }
                Objects::Store(store)
            }
        };
        Ok(Self {
            location: location.clone(),
            objects,
        })
    }

    /// Returns the printed name of an object.
    pub(super) fn shown(&self, name: &str) -> String {
        shown_below(&self.location, name)
    }

    /// Returns the metadata of an array, or `None` if there is no array of that name.
    pub(super) fn array(
        &self,
        name: &str,
        limits: &Limits,
    ) -> Result<Option<ZarrArray>, SourceError> {
        let of_file = |file: &str| format!("{name}/{file}");
        let (file, found) = match self.read(&of_file("zarr.json"), limits)? {
            Some(bytes) => ("zarr.json", ZarrArray::parse_v3(&bytes, limits)),
            None => match self.read(&of_file(".zarray"), limits)? {
                None => return Ok(None),
                Some(bytes) => {
                    let attributes = self.read(&of_file(".zattrs"), limits)?;
                    (
                        ".zarray",
                        ZarrArray::parse_v2(&bytes, attributes.as_deref(), limits),
                    )
                }
            },
        };
        found
            .map(Some)
            .map_err(|error| self.failed(&of_file(file), error))
    }

    /// Returns the error about an object.
    pub(super) fn failed(&self, name: &str, error: ZarrError) -> SourceError {
        let problem = match error {
            ZarrError::Type(_) => SourceProblem::Type,
            ZarrError::Codec(_) => SourceProblem::ZarrCodec,
            ZarrError::Chunk(_) => SourceProblem::ZarrChunk,
            ZarrError::Limit(limit) => return SourceError::limit(&limit, &self.shown(name)),
            _ => SourceProblem::ZarrMetadata,
        };
        problem.at(self.shown(name), error.to_string())
    }

    /// Reads a small object; `None` if it does not exist.
    fn read(&self, name: &str, limits: &Limits) -> Result<Option<Vec<u8>>, SourceError> {
        match &self.objects {
            Objects::Directory(root) => {
                let failed = |source| SourceError::io("read", self.shown(name), source);
                match std::fs::metadata(root.join(name)) {
                    Ok(metadata) => SourceError::check_limit(
                        "index-bytes",
                        metadata.len(),
                        limits.index_bytes,
                        || self.shown(name),
                    )?,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                    Err(error) => return Err(failed(error)),
                }
                std::fs::read(root.join(name)).map(Some).map_err(failed)
            }
            Objects::Store(store) => match store.remote().read(name, limits.index_bytes) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Lists all objects of an array. Their names are relative to the array.
    pub(super) fn list(&self, array: &str) -> Result<Listing, SourceError> {
        match &self.objects {
            Objects::Directory(root) => {
                let options = WalkOptions {
                    follow_links: true,
                    ..WalkOptions::default()
                };
                walk(&root.join(array), options)
            }
            Objects::Store(store) => {
                let prefix = format!("{array}/");
                let mut listing = Listing::default();
                store.list(&prefix, &mut |name, file_version| {
                    listing.push(name.strip_prefix(&prefix).unwrap_or(name), file_version)
                })?;
                Ok(listing)
            }
        }
    }

    /// Returns the names of the arrays and groups directly in a group, for messages.
    pub(super) fn members(&self, group: &str) -> Vec<String> {
        let mut names: Vec<String> = match &self.objects {
            Objects::Directory(root) => std::fs::read_dir(root.join(group))
                .into_iter()
                .flatten()
                .filter_map(|entry| entry.ok().filter(|entry| entry.path().is_dir()))
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect(),
            Objects::Store(store) => {
                let prefix = if group.is_empty() {
                    String::new()
                } else {
                    format!("{group}/")
                };
                let entries = store
                    .remote()
                    .entries(&prefix, &mut |_| true)
                    .unwrap_or_default();
                entries
                    .into_iter()
                    .filter(|entry| entry.is_folder)
                    .map(|entry| entry.name)
                    .collect()
            }
        };
        names.sort();
        names
    }

    /// Reads objects, with concurrent requests in a store.
    pub(super) fn fetch(&self, wanted: &[&Wanted]) -> Result<Vec<Vec<u8>>, SourceError> {
        match &self.objects {
            Objects::Directory(root) => wanted
                .iter()
                .map(|wanted| self.read_file(&root.join(&wanted.name), wanted))
                .collect(),
            Objects::Store(store) => {
                let ranges = wanted.iter().map(|wanted| {
                    let bytes = wanted.file_version.bytes;
                    let range = wanted.range.clone().unwrap_or(0..bytes);
                    (wanted.name.clone(), bytes, range)
                });
                let found = store.remote().read_ranges_of(&ranges.collect::<Vec<_>>());
                let found = found.into_iter().zip(wanted).map(|(found, wanted)| {
                    let object = store.named(&wanted.name);
                    found.map_err(|error| object.changed(error.into(), wanted.file_version))
                });
                found.collect()
            }
        }
    }

    fn read_file(&self, path: &PathBuf, wanted: &Wanted) -> Result<Vec<u8>, SourceError> {
        let failed = |action, source| SourceError::io(action, self.shown(&wanted.name), source);
        let file = File::open(path).map_err(|source| failed("open", source))?;
        let metadata = file.metadata().map_err(|source| failed("read", source))?;
        wanted
            .file_version
            .check(&self.shown(&wanted.name), &metadata)?;
        let range = wanted.range.clone().unwrap_or(0..wanted.file_version.bytes);
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, range.start)
            .map_err(|source| failed("read", source))?;
        Ok(bytes)
    }
}
