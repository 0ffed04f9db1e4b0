//! The location of a dataset: a local path, a store, or a pattern of tar files.

use std::path::PathBuf;
use std::sync::Arc;

use shardmill_core::{Error, ErrorKind, Limits, Unfinished};
use shardmill_dataset::{
    Dataset, OpenOptions, TarPattern, TarSet, folder_holds_tars, holds_tars, is_tar_name,
    read_ahead, unfinished_in,
};
use shardmill_storage::{Dir, Folder, Location, RemoteLocation, RemoteOptions, StorageError};
use shardmill_writer::INDEX_NAME;

use super::options;
use crate::args::{StorageArgs, values};
use crate::error::Stop;

/// The location of a dataset that a command reads.
#[derive(Clone)]
pub enum DatasetLocation {
    Local(PathBuf),
    /// A prefix in a store, or one of its objects.
    Store {
        location: RemoteLocation,
        /// The folder. It caches what was read for later readers.
        folder: Folder,
        /// The name of an index or a tar file, if the location names one.
        file: Option<String>,
    },
    /// The tar files that match a pattern.
    Pattern {
        pattern: Arc<TarPattern>,
        /// The folder of the files.
        folder: Folder,
        remote: RemoteOptions,
    },
}

impl DatasetLocation {
    /// Parses a location that the user typed.
    pub fn parse(text: &str, storage: &StorageArgs) -> Result<Self, Stop> {
        if let Some(pattern) = TarPattern::parse(text)? {
            let remote = options::remote(storage)?;
            return Ok(Self::Pattern {
                folder: Folder::open(pattern.folder(), &remote)?,
                pattern: Arc::new(pattern),
                remote,
            });
        }
        let location = match values::location(text)? {
            Location::Local(path) => return Ok(Self::Local(path)),
            Location::Remote(location) => location,
        };
        let remote = options::remote(storage)?;
        let named = location
            .split_name()
            .filter(|(_, name)| *name == INDEX_NAME || is_tar_name(name));
        let (folder, file) = match named {
            Some((folder, name)) => (folder, Some(name.to_owned())),
            None => (location.clone(), None),
        };
        Ok(Self::Store {
            folder: Folder::open_store(&folder, &remote)?,
            location,
            file,
        })
    }

    /// Returns whether the location in a store is a pattern or has the extension of a table file. Then nothing below it is
    /// listed.
    pub fn is_source_in_store(&self) -> bool {
        const ENDINGS: [&str; 12] = [
            "parquet",
            "arrow",
            "arrows",
            "feather",
            "csv",
            "jsonl",
            "ndjson",
            "tfrecord",
            "tfrecords",
            "tfrec",
            "gz",
            "zst",
        ];
        let Self::Store { location, file, .. } = self else {
            return false;
        };
        let ending = location.prefix().rsplit_once('.').map(|(_, ending)| ending);
        location.prefix().contains(['*', '['])
            || file.is_none() && ending.is_some_and(|ending| ENDINGS.contains(&ending))
    }

    /// Returns the location as it is printed.
    pub fn shown(&self) -> String {
        match self {
            Self::Local(path) => path.display().to_string(),
            Self::Store { location, .. } => location.to_string(),
            Self::Pattern { pattern, .. } => pattern.text().to_owned(),
        }
    }

    /// Returns the location.
    pub fn location(&self) -> Location {
        match self {
            Self::Local(path) => path.clone().into(),
            Self::Store { location, .. } => Location::Remote(location.clone()),
            Self::Pattern { pattern, .. } => pattern.folder().clone(),
        }
    }

    /// Returns the location of a folder in this one.
    pub fn join(&self, name: &str) -> Result<Self, Stop> {
        Ok(match self {
            Self::Local(path) => Self::Local(path.join(name)),
            Self::Store {
                location, folder, ..
            } => Self::Store {
                location: location.join(name),
                folder: folder.open_folder(name)?,
                file: None,
            },
            // A pattern has no folders.
            Self::Pattern { .. } => self.clone(),
        })
    }

    /// Returns whether the location names files. Then findings are reported under their names.
    pub fn is_file(&self) -> bool {
        match self {
            Self::Local(path) => path.is_file(),
            Self::Store { file, .. } => file.is_some(),
            Self::Pattern { .. } => true,
        }
    }

    /// Returns whether the location is a folder, and not a file or a pattern.
    pub fn is_folder(&self) -> bool {
        match self {
            Self::Local(path) => path.is_dir(),
            Self::Store { file, .. } => file.is_none() && !self.is_source_in_store(),
            Self::Pattern { .. } => false,
        }
    }

    /// Opens the folder of the dataset. Fails for a local file.
    pub fn folder(&self) -> Result<Folder, StorageError> {
        Ok(match self {
            Self::Local(path) => Folder::Local(Dir::open(path)?),
            Self::Store { folder, .. } | Self::Pattern { folder, .. } => folder.clone(),
        })
    }

    /// Opens the folder of the dataset, or that of a local file.
    pub fn folder_or_parent(&self) -> Result<Folder, StorageError> {
        match self {
            Self::Local(path) if path.is_file() => {
                Dir::open(options::parent_of(path)).map(Folder::Local)
            }
            _ => self.folder(),
        }
    }

    /// Returns whether the location contains shards, so that only the index is missing.
    pub fn holds_shards(&self) -> bool {
        let is_shard = |name: &str| {
            name.strip_prefix("shard.")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let entries = self.folder().and_then(|folder| folder.entries());
        entries.is_ok_and(|entries| entries.iter().any(|entry| is_shard(&entry.name)))
    }

    /// Returns the error that there is no dataset at this location. `location` is the text that the user typed.
    pub fn no_dataset(&self, location: &str) -> Error {
        // If the folder cannot be read, no interrupted conversion is reported.
        let unfinished = self.folder().and_then(|folder| unfinished_in(&folder));
        let unfinished = unfinished.unwrap_or_default();
        let missing = |message: &str| Error::new(ErrorKind::NotFound, "index-missing", message);
        let (error, hint) = match unfinished {
            None => (
                missing("there is no `index.json` here or in a subdirectory"),
                "`shardmill index rebuild` makes an index from shards".to_owned(),
            ),
            Some(found @ Unfinished::Conversion) => (
                missing("there is no `index.json`, and a conversion into it is not finished"),
                found.hint(location),
            ),
            Some(found @ Unfinished::Parts) => (
                Error::new(ErrorKind::Conflict, found.id(), found.to_string()),
                found.hint(location),
            ),
        };
        error.about(location).with_hint(hint)
    }

    /// Returns whether the location contains tar shards. A missing path contains none.
    pub fn holds_tars(&self, limits: &Limits) -> Result<bool, Stop> {
        match self {
            Self::Local(path) => Ok(path.exists() && holds_tars(path)?),
            Self::Store { folder, file, .. } => match file.as_deref() {
                Some(name) if name != INDEX_NAME => Ok(true),
                _ => Ok(folder_holds_tars(folder, limits)?),
            },
            Self::Pattern { .. } => Ok(true),
        }
    }

    /// Opens the tar shards at the location.
    pub fn tars(&self, limits: &Limits) -> Result<TarSet, Stop> {
        Ok(match self {
            Self::Local(path) => {
                TarSet::open(&[path.clone().into()], limits, &RemoteOptions::default())?
            }
            Self::Store { folder, file, .. } => match file.as_deref() {
                Some(name) if name != INDEX_NAME => TarSet::of_file(folder, name),
                _ => TarSet::open_in(folder, None, limits)?,
            },
            Self::Pattern {
                pattern, remote, ..
            } => TarSet::of_pattern(pattern, remote)?,
        })
    }

    /// Reads the index of a folder in a store and the small files next to it at the same time.
    pub fn read_ahead(&self, limits: &Limits) {
        if let Self::Store { folder, .. } = self
            && self.is_folder()
        {
            read_ahead(folder, limits);
        }
    }

    /// Opens the tar shards that the index lists, and checks the hash of the index.
    pub fn pinned_tars(&self, expected: &str, limits: &Limits) -> Result<TarSet, Stop> {
        let names_index = match self {
            Self::Local(path) => !path.is_file() || path.ends_with(INDEX_NAME),
            Self::Store { file, .. } => file.as_deref().is_none_or(|name| name == INDEX_NAME),
            Self::Pattern { .. } => false,
        };
        if !names_index {
            let hint = "pass the folder of the dataset";
            return Err(
                Error::option_hint("config-expect-index", "a tar file has no index", hint).into(),
            );
        }
        let folder = self.folder_or_parent()?;
        Ok(TarSet::open_in(&folder, Some(expected), limits)?)
    }

    /// Opens the dataset at the location.
    pub fn dataset(&self, options: &OpenOptions) -> Result<Dataset, Stop> {
        Ok(match self {
            Self::Local(path) => Dataset::open(path, options)?,
            Self::Store { folder, .. } => Dataset::open_in(folder.clone(), INDEX_NAME, options)?,
            // A dataset needs an index, and a pattern has none.
            Self::Pattern { pattern, .. } => {
                return Err(self.no_dataset(pattern.text()).into());
            }
        })
    }
}
