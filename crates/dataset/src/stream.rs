//! Opens one dataset of a mix: its index or its list of files, and which of its samples are read.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use shardmill_cache::private_folder;
use shardmill_core::{Diagnostic as _, ErrorKind, INDEX_NAME, Limits, escape};
use shardmill_mds::HashAlgo;
use shardmill_order::Weight;
use shardmill_storage::{Dir, Folder, Location, RemoteOptions, StorageError, StoreSettings};

use crate::cached_index::CachedIndex;
use crate::computed::{Computed, StreamFiles};
use crate::entry::{Entry, Shards};
use crate::error::DatasetError;
use crate::files::{self, ChosenFiles, FileList, FileOptions, open_list};
use crate::index_file::check_expected_index;
use crate::live::LiveShards;
use crate::problem::DatasetProblem;
use crate::stream_index::{IndexedStream, read_index};
use crate::tars::{TarPattern, find_tars, list_tars, scan};
use crate::view::{View, ViewTarget};
use crate::windows::{StreamWindows, Window};

/// The options of one dataset of a mix.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    /// The source of the dataset. `None` if `local` is the dataset.
    pub remote: Option<Location>,
    /// The local folder: the dataset itself, or the folder that shards are fetched to. It may be `None` if the remote
    /// is a local directory, which is then read in place.
    pub local: Option<PathBuf>,
    /// A folder within both `remote` and `local`, such as `train`.
    pub split: Option<String>,
    /// How many of its samples an epoch takes.
    pub weight: Weight,
    /// Whether the compressed files of fetched shards are kept as well.
    pub keep_zip: bool,
    /// The hash that every shard of this dataset must match before it is used; `None` for that of the reader.
    pub validate_hash: Option<HashAlgo>,
    /// The expected hash of the index, as `sha256:` and 64 hexadecimal digits.
    pub expect_index: Option<String>,
    /// The tar files that are its shards, if a pattern names them. `remote` is then the folder of the pattern, and the
    /// tar files are read without an index.
    pub pattern: Option<TarPattern>,
    /// Set for a stream of raw files, or of shards that are computed from files.
    pub files: Option<StreamFiles>,
    /// Whether deleted samples are read like all others.
    pub with_deleted: bool,
    /// The samples to read; `None` for all.
    pub view: Option<Arc<View>>,
    /// Settings of the store that only this stream has. They win over those of the catalog.
    pub settings: StoreSettings,
}

impl StreamOptions {
    /// Parses the name of a dataset: a folder, the URL of a prefix, a tar file, or a pattern of tar files (see
    /// [`TarPattern`]). Without `remote`, `local` is the dataset.
    ///
    /// # Errors
    ///
    /// As [`TarPattern::named`]; [`StorageError::At`].
    pub fn named(remote: Option<&str>, local: Option<PathBuf>) -> Result<Self, DatasetError> {
        let pattern = match (remote, local.as_deref().and_then(Path::to_str)) {
            (Some(remote), _) => TarPattern::named(remote)?,
            (None, Some(local)) => TarPattern::named(local)?,
            (None, None) => None,
        };
        let location = match &pattern {
            Some(pattern) => Some(pattern.folder().clone()),
            None => remote.map(Location::parse).transpose()?,
        };
        Ok(Self {
            // A pattern in `local` names tar files, not a folder to fetch to.
            local: local.filter(|_| remote.is_some() || pattern.is_none()),
            remote: location,
            pattern,
            ..Self::default()
        })
    }

    /// Returns the options of a dataset on a local disk.
    #[must_use]
    pub fn local(path: impl Into<PathBuf>) -> Self {
        Self {
            local: Some(path.into()),
            ..Self::default()
        }
    }

    /// Returns the options of a dataset elsewhere, and of the folder that its shards are fetched to.
    #[must_use]
    pub fn remote(remote: Location, local: impl Into<PathBuf>) -> Self {
        Self {
            remote: Some(remote),
            local: Some(local.into()),
            ..Self::default()
        }
    }
}

/// One opened dataset of a mix.
#[derive(Debug)]
pub struct Stream {
    /// Its shards.
    pub shards: Shards,
    /// Which samples are read.
    pub samples: LiveShards,
    /// The SHA-256 of `index.json`, or of the list of raw files.
    pub index_digest: [u8; 32],
    /// The number of its first shard among those of all streams.
    pub first_shard: usize,
    /// The folder of its shards, or the one that they are fetched to.
    pub local: Dir,
    /// The source that missing shards are fetched from; `None` if the shards are read in place.
    pub origin: Option<Folder>,
    /// The folder of its shards, if they are read in place.
    in_place: Folder,
    /// Whether the compressed files of fetched shards are kept as well.
    pub keep_zip: bool,
    /// The hash that every shard must match before it is used.
    pub validate: Option<HashAlgo>,
    /// How many of its samples an epoch takes.
    pub weight: Weight,
    /// The source as it was given, escaped, for messages.
    pub(crate) shown: String,
    /// The folder or URL of the files, for messages.
    pub(crate) root: String,
}

impl Stream {
    /// Returns the source of its files.
    pub const fn source(&self) -> &Folder {
        match &self.origin {
            Some(origin) => origin,
            None => &self.in_place,
        }
    }

    /// Returns the list of the files of a tree, or of those that shards are computed from.
    pub(crate) fn files(&self) -> Option<&FileList> {
        match &self.shards {
            Shards::Computed(_, computed) => Some(&computed.files),
            Shards::Files(files) => Some(files),
            Shards::Mds(_) | Shards::Tar(_) => None,
        }
    }

    /// Returns what computes the shards, if they do not exist as files.
    pub const fn computed(&self) -> Option<&Computed> {
        match &self.shards {
            Shards::Computed(_, computed) => Some(computed),
            _ => None,
        }
    }

    /// Returns the number of live samples of each shard.
    pub fn shard_sizes(&self) -> impl Iterator<Item = u64> {
        (0..self.shards.len()).map(|shard| self.samples.samples_of(shard))
    }

    /// Returns the size of the local copy of the index or file list, in bytes.
    pub fn index_bytes(&self) -> u64 {
        let index = match self.files() {
            // The list is in the cache's own folder, because an `index.json` here would be one of the files.
            Some(_) => private_folder(&self.local).and_then(|own| own.open_file(files::LIST)),
            None => self.local.open_file(INDEX_NAME),
        };
        index.map_or(0, |index| index.len())
    }
}

/// Options that apply to all streams.
#[derive(Clone, Debug, Default)]
pub struct CatalogOptions {
    /// The limits for files and indexes.
    pub limits: Limits,
    /// How stores are accessed.
    pub remote: RemoteOptions,
    /// The hash that every shard must match before it is used.
    pub validate: Option<HashAlgo>,
    /// The neighbours that are read with each sample.
    pub window: Option<Arc<Window>>,
}

/// Opens a stream. `number` is its position in the mix, `first_shard` the number of its first shard.
pub(crate) fn open_stream(
    stream: &StreamOptions,
    (number, first_shard): (usize, usize),
    options: &CatalogOptions,
) -> Result<(Stream, Option<StreamWindows>), DatasetError> {
    let split = stream.split.as_deref().unwrap_or_default();
    let beneath = |path: &Path| {
        if split.is_empty() {
            path.to_owned()
        } else {
            path.join(split)
        }
    };
    if !split.is_empty() {
        if let Some(pattern) = &stream.pattern {
            let reason = format!(
                "it names tar files, and there is no split `{}` below them",
                escape(split)
            );
            return Err(DatasetProblem::PatternSplit.at(pattern.text(), reason));
        }
        shardmill_core::check_relative_path(split).map_err(|source| StorageError::Name {
            name: split.to_owned(),
            source,
        })?;
    }
    let remote = stream.remote.as_ref().map(|remote| match split {
        "" => remote.clone(),
        split => remote.join(split),
    });
    let local = stream.local.as_deref().map(beneath);
    let (dir, origin, shown) = match (remote, local) {
        (None, None) => {
            let reason = "a stream needs a remote, a local folder, or both";
            return Err(DatasetProblem::Streams.of_call(reason));
        }
        (None, Some(local)) | (Some(Location::Local(local)), None) => (
            open_dir(&local, stream.files.is_none())?,
            None,
            local.to_string_lossy().into_owned(),
        ),
        (Some(Location::Local(remote)), Some(local)) => {
            let from = open_dir(&remote, stream.files.is_none())?;
            let shown = remote.to_string_lossy().into_owned();
            let to = Dir::create(&local)?.pooled();
            if from.is_same(&to)? {
                (to, None, shown)
            } else {
                (to, Some(Folder::Local(from)), shown)
            }
        }
        (Some(Location::Remote(remote)), Some(local)) => {
            let shown = remote.to_string();
            let store = Folder::open_store(&remote, &stream.settings.over(&options.remote))?;
            (Dir::create(&local)?.pooled(), Some(store), shown)
        }
        (Some(Location::Remote(remote)), None) => {
            let reason = "its shards need a local folder to be fetched into";
            return Err(DatasetProblem::StreamLocal.at(&*remote.to_string(), reason));
        }
    };
    let in_place = Folder::Local(dir.clone());
    let source = origin.as_ref().unwrap_or(&in_place);
    let cache = origin.is_some().then_some(&dir);
    let root = shown.clone();
    let shown = match &stream.pattern {
        Some(pattern) => pattern.text().to_owned(),
        None => shown,
    };
    let mut opened = match &stream.files {
        Some(files) => open_files(source, cache, &shown, files, options)?,
        None => open_indexed(source, cache, &shown, stream, &options.limits)?,
    };
    let window = options.window.as_deref().map(|window| (window, number));
    let windows = opened.choose(stream.view.as_deref(), window, &shown)?;
    let has_index = stream.files.is_none();
    let validate = stream.validate_hash.or(options.validate);
    let stream = Stream {
        samples: opened.samples,
        shards: opened.shards,
        index_digest: opened.index_digest,
        first_shard,
        local: dir,
        origin,
        in_place,
        keep_zip: stream.keep_zip && has_index,
        // The list of raw files has no hashes.
        validate: validate.filter(|_| has_index),
        weight: stream.weight,
        shown: escape(&shown).into_owned(),
        root,
    };
    Ok((stream, windows))
}

/// The shards of a stream, and which of their samples are not deleted.
struct Opened {
    /// The SHA-256 of the index, or of the list of files.
    index_digest: [u8; 32],
    shards: Shards,
    samples: LiveShards,
}

impl Opened {
    /// All samples of these shards.
    fn all(index_digest: [u8; 32], shards: Shards) -> Self {
        Self {
            index_digest,
            samples: LiveShards::all(shards.iter().map(Entry::samples)),
            shards,
        }
    }

    /// Chooses the samples of the view that have a window. Returns the episodes if there is a window, which is given with
    /// the number of the stream. `shown` names the stream in messages.
    fn choose(
        &mut self,
        view: Option<&View>,
        window: Option<(&Window, usize)>,
        shown: &str,
    ) -> Result<Option<StreamWindows>, DatasetError> {
        let digest = self.shards.view_digest().unwrap_or(self.index_digest);
        let choose = |samples: &mut LiveShards, view: &View| {
            let live = samples.live.clone();
            samples.live = view.live_of(&ViewTarget { digest, live }, shown)?;
            Ok::<_, DatasetError>(())
        };
        let neighbours = window.map(|window| (window, self.samples.clone()));
        if let Some(view) = view {
            choose(&mut self.samples, view)?;
        }
        let Some(((window, number), neighbours)) = neighbours else {
            return Ok(None);
        };
        if matches!(self.shards, Shards::Files(_)) {
            let reason = "raw files have no windows";
            return Err(DatasetProblem::WindowFiles.at(shown, reason));
        }
        let windows = StreamWindows::new(window, number, digest, neighbours, shown)?;
        if let Some(complete) = windows.complete(window, digest) {
            let was_empty = self.samples.live.is_empty();
            choose(&mut self.samples, &complete)?;
            if self.samples.live.is_empty() && !was_empty {
                let offsets = window.offsets();
                let reason = format!(
                    "no sample has all neighbours from {} to {} in its episode",
                    offsets.first().copied().unwrap_or_default(),
                    offsets.last().copied().unwrap_or_default()
                );
                return Err(DatasetProblem::WindowEmpty.at(shown, reason));
            }
        }
        Ok(Some(windows))
    }
}

/// Opens a stream of raw files, or of shards that are computed from files.
fn open_files(
    source: &Folder,
    cache: Option<&Dir>,
    shown: &str,
    files: &StreamFiles,
    options: &CatalogOptions,
) -> Result<Opened, DatasetError> {
    let list = |only: Option<ChosenFiles>| {
        let path = cache.map_or(source.path(), Dir::path);
        if files.options.form.has_file() && path.to_str().is_none() {
            return Err(DatasetError::Storage(StorageError::Name {
                name: path.to_string_lossy().into_owned(),
                source: shardmill_core::NameError::Character,
            }));
        }
        let listed = FileOptions {
            only,
            ..files.options.clone()
        };
        open_list(source, cache, shown, &listed, &options.limits)
    };
    let (index_digest, shards) = match (&files.computed, cache) {
        (None, _) => {
            let list = list(None)?;
            (list.digest(), Shards::Files(list))
        }
        (Some(table), Some(cache)) => {
            let opened = table.open(source, cache, &options.limits, &list)?;
            let shards = Shards::Computed(opened.entries, opened.computed);
            (opened.digest, shards)
        }
        (Some(_), None) => {
            let reason = "its shards are computed, and need a local folder to be kept in";
            return Err(DatasetProblem::StreamLocal.at(shown, reason));
        }
    };
    Ok(Opened::all(index_digest, shards))
}

/// Opens a stream with an index, or makes the index of tar files that have none.
fn open_indexed(
    source: &Folder,
    cache: Option<&Dir>,
    shown: &str,
    stream: &StreamOptions,
    limits: &Limits,
) -> Result<Opened, DatasetError> {
    let path = Path::new(shown).join(INDEX_NAME);
    let keep = |bytes: &[u8], shards: &Shards| match cache {
        Some(local) => CachedIndex {
            local,
            source,
            shown,
            limits,
        }
        .keep(bytes, shards),
        None => Ok(()),
    };
    let pattern = stream.pattern.as_ref();
    // An index in the folder of a pattern may describe other files.
    if pattern.is_none() {
        let answer = read_index(source, stream.with_deleted, limits);
        match answer.index {
            Ok(bytes) => {
                check_expected_index(&bytes, &path, stream.expect_index.as_deref())?;
                let mut shards = Shards::parse(&bytes, &path, limits)?;
                keep(&bytes, &shards)?;
                let indexed = IndexedStream {
                    source,
                    cache,
                    shards: &shards,
                    with_deleted: stream.with_deleted,
                };
                let samples = indexed.live(answer.provenance, limits)?;
                let index_digest = Sha256::digest(&bytes).into();
                if let Some(joined) = indexed.with_late(answer.columns, &index_digest, limits)? {
                    shards = joined;
                }
                return Ok(Opened {
                    index_digest,
                    shards,
                    samples,
                });
            }
            Err(error) if !error.is_not_found() || error.is_no_bucket() => {
                return Err(error.into());
            }
            Err(_) => {}
        }
    }
    // A caller that expects a certain index must not get a scan instead.
    if stream.expect_index.is_some() {
        return Err(index_missing(shown));
    }
    let (bytes, shards) = scan_tars(source, cache, shown, pattern, limits)?;
    keep(&bytes, &shards)?;
    let index_digest = Sha256::digest(&bytes).into();
    Ok(Opened::all(index_digest, shards))
}

fn index_missing(shown: &str) -> DatasetError {
    DatasetError::IndexMissing {
        path: PathBuf::from(shown),
        unfinished: None,
    }
}

/// Returns whether an error means that a folder cannot be listed, even with retries.
fn is_unlisted(error: &StorageError) -> bool {
    let kinds = [
        ErrorKind::NotFound,
        ErrorKind::Permission,
        ErrorKind::Unsupported,
    ];
    kinds.contains(&error.kind())
}

/// Builds the index of tar files without one from their headers. The index is stored in the cache folder, and reused as
/// long as the tar files have the same names and lengths.
fn scan_tars(
    source: &Folder,
    cache: Option<&Dir>,
    shown: &str,
    pattern: Option<&TarPattern>,
    limits: &Limits,
) -> Result<(Vec<u8>, Shards), DatasetError> {
    let found = match pattern {
        Some(pattern) => find_tars(source, pattern)?,
        None => match list_tars(source, Path::new(shown)) {
            // If the source refuses to list its files, the error is the missing index.
            Err(DatasetError::Storage(error)) if is_unlisted(&error) && !error.is_no_bucket() => {
                Vec::new()
            }
            found => found?,
        },
    };
    if found.is_empty() {
        return Err(index_missing(shown));
    }
    if let Some(cache) = cache
        && let Ok(file) = cache.open_file(INDEX_NAME)
        && let Ok(bytes) = file.read_all(limits.index_bytes)
        && let Ok(index) = shardmill_webdataset::Index::parse(&bytes, limits)
        && found.len() == index.shards.len()
        && found.iter().zip(&index.shards).all(|(new, old)| {
            let (new, old) = (new.stored(), old.stored());
            (&new.basename, new.bytes) == (&old.basename, old.bytes)
        })
    {
        return Ok((bytes, Shards::Tar(index.shards)));
    }
    let index = scan(source, &found, limits)?;
    let bytes = index.to_json().into_bytes();
    Ok((bytes, Shards::Tar(index.shards)))
}

/// Opens the folder of a stream. If `has_index`, a missing folder is reported as a missing index.
fn open_dir(path: &Path, has_index: bool) -> Result<Dir, DatasetError> {
    Dir::open(path).map(Dir::pooled).map_err(|error| {
        if error.is_not_found() && has_index {
            DatasetError::IndexMissing {
                path: path.to_owned(),
                unfinished: None,
            }
        } else {
            error.into()
        }
    })
}
