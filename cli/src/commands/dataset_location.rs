//! Where a dataset that is looked at lies: on this machine or in a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shardmill_core::Limits;
use shardmill_reader::{
    Dataset, OpenOptions, TarPattern, TarSet, folder_holds_tars, holds_tars, is_tar_name,
    unfinished_in,
};
use shardmill_storage::{Dir, Folder, Location, RemoteOptions};

use super::dataset::INDEX_NAME;
use super::options;
use crate::args::StorageArgs;
use crate::error::{CliError, Stop};

/// A place that is looked at.
#[derive(Clone)]
pub enum DatasetLocation {
    Local(PathBuf),
    Store(StoreDatasetLocation),
    Pattern(PatternDatasetLocation),
}

/// The tar files that a pattern names.
#[derive(Clone)]
pub struct PatternDatasetLocation {
    pattern: Arc<TarPattern>,
    /// Their folder.
    folder: Folder,
    remote: RemoteOptions,
}

impl PatternDatasetLocation {
    /// The folder that they lie in, or beneath.
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }
}

/// A prefix in a store, or one of its objects.
#[derive(Clone)]
pub struct StoreDatasetLocation {
    location: Location,
    /// What was read of it is kept for whoever asks next.
    folder: Folder,
    /// An index or a tar file, where that was named.
    file: Option<String>,
}

impl StoreDatasetLocation {
    /// The folder that the dataset lies in.
    pub const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Whether it is a pattern, or has the name of a table's file: nothing is asked about what is beneath that.
    pub fn is_source(&self) -> bool {
        const ENDINGS: [&str; 9] = [
            "parquet", "arrow", "arrows", "feather", "csv", "jsonl", "ndjson", "gz", "zst",
        ];
        let Location::Remote(location) = &self.location else {
            return false;
        };
        let ending = location.prefix().rsplit_once('.').map(|(_, ending)| ending);
        location.prefix().contains(['*', '['])
            || self.file.is_none() && ending.is_some_and(|ending| ENDINGS.contains(&ending))
    }
}

impl DatasetLocation {
    /// A place as typed.
    pub fn parse(text: &str, storage: &StorageArgs) -> Result<Self, Stop> {
        if let Some(pattern) = TarPattern::parse(text)? {
            let remote = options::remote(storage)?;
            return Ok(Self::Pattern(PatternDatasetLocation {
                folder: Folder::open(pattern.folder(), &remote)?,
                pattern: Arc::new(pattern),
                remote,
            }));
        }
        let location = match options::place(text)? {
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
        Ok(Self::Store(StoreDatasetLocation {
            folder: Folder::open_store(&folder, &remote)?,
            location: Location::Remote(location),
            file,
        }))
    }

    /// As printed.
    pub fn shown(&self) -> String {
        match self {
            Self::Local(path) => path.display().to_string(),
            Self::Store(dataset_location) => dataset_location.location.to_string(),
            Self::Pattern(dataset_location) => dataset_location.pattern.text().to_owned(),
        }
    }

    /// The location.
    pub fn location(&self) -> Location {
        match self {
            Self::Local(path) => path.clone().into(),
            Self::Store(dataset_location) => dataset_location.location.clone(),
            Self::Pattern(dataset_location) => dataset_location.pattern.folder().clone(),
        }
    }

    /// A folder beneath it.
    pub fn beneath(&self, name: &str) -> Result<Self, Stop> {
        Ok(match self {
            Self::Local(path) => Self::Local(path.join(name)),
            Self::Store(dataset_location) => Self::Store(StoreDatasetLocation {
                location: dataset_location.location.join(name),
                folder: dataset_location.folder.open_folder(name)?,
                file: None,
            }),
            // What is beneath tar files nobody asks for.
            Self::Pattern(_) => self.clone(),
        })
    }

    /// The folder that the dataset lies in, where it is in a store.
    pub fn store(&self) -> Option<&Folder> {
        match self {
            Self::Local(_) => None,
            Self::Store(dataset_location) => Some(&dataset_location.folder),
            Self::Pattern(dataset_location) => {
                Some(&dataset_location.folder).filter(|folder| folder.is_store())
            }
        }
    }

    /// The name of an object that was named itself.
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::Local(_) | Self::Pattern(_) => None,
            Self::Store(dataset_location) => dataset_location.file.as_deref(),
        }
    }

    /// Whether it is one file, by which findings in it are called.
    pub fn is_file(&self) -> bool {
        match self {
            Self::Local(path) => path.is_file(),
            Self::Store(dataset_location) => dataset_location.file.is_some(),
            Self::Pattern(_) => false,
        }
    }

    /// That neither an index nor a directory with one is here; `location` is what was typed.
    pub fn no_dataset(&self, location: &str) -> CliError {
        let folder = match self {
            Self::Local(path) => Dir::open(path).map(Folder::Local),
            Self::Store(dataset_location) => Ok(dataset_location.folder.clone()),
            Self::Pattern(dataset_location) => Ok(dataset_location.folder.clone()),
        };
        CliError::NoDataset {
            location: location.to_owned(),
            // What cannot be looked at is as little a conversion as it is a dataset.
            unfinished: folder
                .ok()
                .and_then(|folder| unfinished_in(&folder).unwrap_or_default()),
        }
    }

    /// Whether tar shards lie here. A place that is not there holds none.
    pub fn holds_tars(&self, limits: &Limits) -> Result<bool, Stop> {
        match self {
            Self::Local(path) => Ok(path.exists() && holds_tars(path)?),
            Self::Store(dataset_location) => match dataset_location.file.as_deref() {
                Some(name) if name != INDEX_NAME => Ok(true),
                _ => Ok(folder_holds_tars(&dataset_location.folder, limits)?),
            },
            Self::Pattern(_) => Ok(true),
        }
    }

    /// The tar shards that lie here.
    pub fn tars(&self, limits: &Limits) -> Result<TarSet, Stop> {
        let dataset_location = match self {
            Self::Local(path) => return Ok(TarSet::open(std::slice::from_ref(path), limits)?),
            Self::Store(dataset_location) => dataset_location,
            Self::Pattern(dataset_location) => {
                return Ok(TarSet::of_pattern(
                    &dataset_location.pattern,
                    &dataset_location.remote,
                )?);
            }
        };
        Ok(match dataset_location.file.as_deref() {
            Some(name) if name != INDEX_NAME => TarSet::of_file(&dataset_location.folder, name),
            _ => TarSet::open_in(&dataset_location.folder, limits)?,
        })
    }

    /// The tar shards that the index here names, which has to have a hash.
    pub fn pinned_tars(&self, expected: &str, limits: &Limits) -> Result<TarSet, Stop> {
        let no_index = || {
            let hint = "give the folder of the dataset";
            CliError::option("expect-index", "a tar file has no index", hint)
        };
        let folder = match self {
            Self::Local(path) if path.is_file() => {
                if path.file_name().is_none_or(|name| name != INDEX_NAME) {
                    return Err(no_index().into());
                }
                let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
                Folder::Local(Dir::open(parent.unwrap_or(Path::new(".")))?)
            }
            Self::Local(path) => Folder::Local(Dir::open(path)?),
            Self::Store(dataset_location) => match dataset_location.file.as_deref() {
                Some(name) if name != INDEX_NAME => return Err(no_index().into()),
                _ => dataset_location.folder.clone(),
            },
            Self::Pattern(_) => return Err(no_index().into()),
        };
        Ok(TarSet::open_pinned(&folder, expected, limits)?)
    }

    /// The dataset that lies here.
    pub fn dataset(&self, options: &OpenOptions) -> Result<Dataset, Stop> {
        Ok(match self {
            Self::Local(path) => Dataset::open(path, options)?,
            Self::Store(dataset_location) => {
                Dataset::open_in(dataset_location.folder.clone(), INDEX_NAME, options)?
            }
            // Whoever wants an index wants a folder.
            Self::Pattern(dataset_location) => {
                return Err(self.no_dataset(dataset_location.pattern.text()).into());
            }
        })
    }
}
