//! Opens all streams of a mix and numbers their shards and samples consecutively.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use shardmill_core::{Diagnostic as _, ErrorKind, INDEX_NAME, Limits, escape};
use shardmill_mds::HashAlgo;
use shardmill_order::{StreamConfig, Weight};
use shardmill_storage::{Dir, Folder, Location, RemoteOptions, StorageError, StoreSettings};

use crate::entry::{Entry, Shards, check_hashes_present};
use crate::error::{DatasetError, DatasetProblem, Place};
use crate::files::{self, FileList, FileOptions, KnownFiles, open_list};
use crate::index_file::check_expected_index;
use crate::mapped::Piece;
use crate::scan::{Found, ListedTars, Offsets, find_tars, list_tars, scan};
use crate::schema::Schema;
use crate::stream_live::{self, IndexedStream, StreamLive};
use crate::tar::{Subsets, TarProblem, TarSample};
use crate::tars::TarPattern;
use crate::view::{View, ViewTarget};
use crate::windows::{StreamWindows, Window};
use shardmill_cache::private_folder;

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
    /// Set for a tree of raw files, each of which is a sample: which files to read, and which columns to return.
    pub files: Option<FileOptions>,
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
    pub live: StreamLive,
    /// The offsets of the samples of the first shards, if a scan found them.
    offsets: Vec<Offsets>,
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
    names: StreamNames,
}

/// How messages name a stream and its files.
#[derive(Debug)]
struct StreamNames {
    /// The source as it was given, escaped.
    shown: String,
    /// The folder or URL of the files.
    root: String,
}

impl Stream {
    /// Returns the source of its files.
    pub const fn source(&self) -> &Folder {
        match &self.origin {
            Some(origin) => origin,
            None => &self.in_place,
        }
    }

    /// Returns the number of live samples of each shard.
    pub fn shard_sizes(&self) -> impl Iterator<Item = u64> {
        let entries = self.shards.iter().enumerate();
        entries.map(|(number, entry)| self.live.samples_of(number, entry.samples()))
    }

    /// Returns the size of the local copy of the index or file list, in bytes.
    pub fn index_bytes(&self) -> u64 {
        let index = match &self.shards {
            // The list of a tree is in the cache's own folder, because an `index.json` here would be one of the files.
            Shards::Files(_) => {
                private_folder(&self.local).and_then(|own| own.open_file(files::LIST))
            }
            Shards::Mds(_) | Shards::Tar(_) => self.local.open_file(INDEX_NAME),
        };
        index.map_or(0, |index| index.len())
    }
}

/// The shards of all streams. Sample numbers exclude samples that are deleted, or that no view selects.
#[derive(Debug)]
pub struct Catalog {
    streams: Vec<Stream>,
    /// Whether any stream has samples that are not read.
    has_deleted: bool,
    /// The number of the first sample of each shard, then the number of samples.
    starts: Vec<u64>,
    /// For each range of `1 << bucket_bits` samples, the shard that contains its first sample.
    buckets: Vec<u32>,
    bucket_bits: u32,
    /// The distinct sets of columns, then for each shard the position of its set.
    schemas: Vec<Arc<Schema>>,
    schema_of: Vec<u32>,
    subsets: Subsets,
    /// The window of each sample, and the episodes of each stream.
    windows: Option<(Arc<Window>, Vec<StreamWindows>)>,
    limits: Limits,
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

impl Catalog {
    /// Opens all streams.
    ///
    /// # Errors
    ///
    /// [`DatasetError`] for the first stream that cannot be opened.
    pub fn open(streams: &[StreamOptions], options: &CatalogOptions) -> Result<Self, DatasetError> {
        if streams.is_empty() {
            return Err(DatasetProblem::Streams.of_call("there is no stream to read"));
        }
        let mut opened: Vec<Stream> = Vec::with_capacity(streams.len());
        let mut windows = Vec::new();
        let mut first_shard = 0;
        for (number, stream) in streams.iter().enumerate() {
            let (stream, own) = open_stream(stream, (number, first_shard), options)?;
            windows.extend(own);
            first_shard += stream.shards.len();
            if let Some(algo) = stream.validate {
                check_hashes_present(stream.shards.iter(), algo)?;
            }
            opened.push(stream);
        }
        let mut catalog = Self::new(opened, options)?;
        if let Some(window) = &options.window {
            window.check(&catalog.schemas)?;
            catalog.windows = Some((Arc::clone(window), windows));
        }
        let wanted = streams
            .iter()
            .filter_map(|stream| stream.files.as_ref()?.expect.as_ref());
        for expected in wanted {
            let found = catalog.files_digest().unwrap_or_default();
            if found != *expected {
                let trees = catalog.streams.iter();
                let trees = trees.filter(|stream| matches!(stream.shards, Shards::Files(_)));
                let names: Vec<&str> = trees.map(|stream| stream.names.shown.as_str()).collect();
                let reason = format!(
                    "the list of files has the digest {found}, not {expected}: files were added or removed, or their lengths changed"
                );
                return Err(DatasetProblem::FilesDigest.at(&*names.join(", "), reason));
            }
        }
        Ok(catalog)
    }

    fn new(streams: Vec<Stream>, options: &CatalogOptions) -> Result<Self, DatasetError> {
        let shards = streams.iter().map(|stream| stream.shards.len()).sum();
        let mut starts = Vec::with_capacity(shards + 1);
        let mut samples = 0_u64;
        let mut schemas: Vec<Arc<Schema>> = Vec::new();
        let mut schema_of = Vec::with_capacity(shards);
        let all = streams
            .iter()
            .flat_map(|stream| stream.shard_sizes().zip(stream.shards.iter()));
        for (size, entry) in all {
            starts.push(samples);
            samples = samples.saturating_add(size);
            // Neighbouring shards mostly have the same columns, so the search starts with the last ones.
            let same = |schema: &Arc<Schema>| schema.is_of(entry.columns());
            let place = match schemas.iter().rposition(same) {
                Some(place) => place,
                None => {
                    schemas.push(Arc::new(Schema::new(entry.columns())));
                    schemas.len() - 1
                }
            };
            schema_of.push(u32::try_from(place).unwrap_or(u32::MAX));
        }
        starts.push(samples);
        // About as many buckets as shards, so that a lookup takes one or two steps.
        let per_shard = samples / (shards.max(1) as u64);
        let bucket_bits = per_shard.max(1).ilog2();
        let mut buckets = Vec::new();
        let mut shard = 0_usize;
        let mut start = 0_u64;
        while start < samples {
            while starts.get(shard + 1).is_some_and(|next| *next <= start) {
                shard += 1;
            }
            buckets.push(u32::try_from(shard).unwrap_or(u32::MAX));
            start = start.saturating_add(1 << bucket_bits);
        }
        Ok(Self {
            has_deleted: streams.iter().any(|stream| !stream.live.is_all()),
            streams,
            starts,
            buckets,
            bucket_bits,
            schemas,
            schema_of,
            subsets: Subsets::default(),
            windows: None,
            limits: options.limits.clone(),
        })
    }

    /// Returns the number of shards of all streams.
    pub fn len(&self) -> usize {
        self.schema_of.len()
    }

    /// Returns whether there are no shards.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the error for a shard whose file changed while it was read.
    #[must_use]
    pub fn changed(&self, shard: usize) -> DatasetError {
        DatasetError::shard_changed(self.place(shard))
    }

    /// Returns the error for a shard that no stream has.
    #[must_use]
    pub fn no_shard(&self, shard: usize) -> DatasetError {
        let shards = self.len();
        let reason = format!("there is no shard {shard}: the streams have {shards}");
        DatasetProblem::NoShard.of_call(reason)
    }

    /// Returns the number of samples of all streams.
    pub fn samples(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns whether shards of any stream are fetched from a source, or decompressed before they are read.
    pub fn is_cached(&self) -> bool {
        self.streams
            .iter()
            .any(|stream| stream.origin.is_some() || stream.shards.iter().any(Entry::is_packed))
    }

    /// Returns the streams, in the order of the mix.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Returns the limits for files and indexes.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the hash that a shard must match before it is used.
    pub fn validate(&self, shard: usize) -> Option<HashAlgo> {
        self.stream_of(shard)?.0.validate
    }

    /// Returns the stream of a shard, and the number of the shard in it.
    pub fn stream_of(&self, shard: usize) -> Option<(&Stream, usize)> {
        let behind = self
            .streams
            .partition_point(|stream| stream.first_shard <= shard);
        // Of several streams with the same first shard, all but the last are empty.
        let stream = self.streams.get(behind.checked_sub(1)?)?;
        let number = shard - stream.first_shard;
        (number < stream.shards.len()).then_some((stream, number))
    }

    /// Returns the index entry of a shard.
    pub fn entry(&self, shard: usize) -> Option<Entry<'_>> {
        let (stream, number) = self.stream_of(shard)?;
        stream.shards.get(number)
    }

    /// Returns the schema of a sample. Samples of tar files and raw files are also encoded as MDS samples, and appended
    /// to `out`.
    pub fn encode(
        &self,
        shard: usize,
        sample: Piece<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Arc<Schema>, TarProblem> {
        let Some(schema) = self.schema(shard) else {
            return Err(TarProblem::Absent);
        };
        if !schema.is_made() {
            return Ok(Arc::clone(schema));
        }
        if let Some(Entry::File(file, form)) = self.entry(shard) {
            let local = self.file_path(shard).unwrap_or_default();
            let path = &file.info.basename;
            for value in form.values(sample.bytes, &local, path) {
                let bytes = value.len() as u64;
                let length = u32::try_from(bytes).map_err(|_| TarProblem::Large { bytes })?;
                out.extend_from_slice(&length.to_le_bytes());
            }
            for value in form.values(sample.bytes, &local, path) {
                out.extend_from_slice(value);
            }
            return Ok(Arc::clone(schema));
        }
        let sample = TarSample::read(sample.begin, sample.bytes, &self.limits)?;
        let schema = match schema.as_ref() {
            Schema::Fields(fields) => self.subsets.schema_of(fields, &sample)?,
            _ => Arc::clone(schema),
        };
        sample.encode(&schema, out)?;
        Ok(schema)
    }

    /// Returns the local path of a raw file when it is on this machine; `None` for other shards.
    pub fn file_path(&self, shard: usize) -> Option<String> {
        let (stream, number) = self.stream_of(shard)?;
        let file = stream.shards.get(number)?.raw_file()?;
        let path = stream.local.path_of(&file.info.basename);
        // INVARIANT: the path is UTF-8; this was checked when the stream was opened.
        path.into_os_string().into_string().ok()
    }

    /// Returns the sample number of a raw file, by its path in the first stream that is a tree of raw files.
    pub fn find_file(&self, path: &str) -> Result<u64, DatasetError> {
        let mut trees = self
            .streams
            .iter()
            .filter_map(|stream| match &stream.shards {
                Shards::Files(files) => Some((stream, files)),
                Shards::Mds(_) | Shards::Tar(_) => None,
            });
        let (stream, files) = trees.next().ok_or_else(DatasetError::no_tree)?;
        match files.find(path) {
            Some(number) => Ok(self.first_sample(stream.first_shard + number)),
            None => {
                let reason = format!(
                    "the list of {} has no such file",
                    escape(&stream.names.shown)
                );
                Err(DatasetProblem::NoSuchFile.at(path, reason))
            }
        }
    }

    /// Returns whether any stream is a tree of raw files.
    pub fn has_files(&self) -> bool {
        let is_tree = |stream: &Stream| matches!(stream.shards, Shards::Files(_));
        self.streams.iter().any(is_tree)
    }

    /// Returns the list of the files of a stream; `None` if the stream is not a tree of raw files.
    pub fn known_files(&self, stream: usize) -> Option<KnownFiles> {
        match &self.streams.get(stream)?.shards {
            Shards::Files(files) => Some(files.known()),
            _ => None,
        }
    }

    /// Returns a digest of the paths and lengths of all raw files, which is equal for copies of the same trees. Returns
    /// `None` if there are no raw files.
    pub fn files_digest(&self) -> Option<String> {
        let mut hasher = Sha256::new();
        let mut any = false;
        for (number, stream) in self.streams.iter().enumerate() {
            if let Shards::Files(files) = &stream.shards {
                any = true;
                hasher.update((number as u64).to_le_bytes());
                hasher.update((files.len() as u64).to_le_bytes());
                files.hash_into(&mut hasher);
            }
        }
        any.then(|| {
            let digest = hasher.finalize();
            digest.iter().map(|byte| format!("{byte:02x}")).collect()
        })
    }

    /// Returns the error for a sample that cannot be encoded.
    pub fn refused(&self, shard: usize, at: u64, problem: TarProblem) -> DatasetError {
        let place = self.place(shard);
        let number = self.number_of(shard, at);
        match problem {
            TarProblem::Read(source) => DatasetError::tar(place, number, source),
            TarProblem::Fields { key, fields } => {
                let names: Vec<String> = fields
                    .iter()
                    .map(|field| format!("`{}`", escape(field)))
                    .collect();
                let reason = format!(
                    "the sample `{}` has the fields {}, and the index says otherwise",
                    escape(&key),
                    names.join(", ")
                );
                let sample = Some(number);
                DatasetProblem::TarFields.at(Place { sample, ..place }, reason)
            }
            TarProblem::Large { bytes } => DatasetError::out_of_memory(bytes),
            TarProblem::Absent => DatasetError::shard_changed(place),
        }
    }

    /// Returns the offsets of the samples of a shard, if a scan found them.
    pub fn offsets(&self, shard: usize) -> Option<&Offsets> {
        let (stream, number) = self.stream_of(shard)?;
        stream.offsets.get(number)
    }

    /// Returns the columns of a shard.
    pub fn schema(&self, shard: usize) -> Option<&Arc<Schema>> {
        let place = usize::try_from(*self.schema_of.get(shard)?).ok()?;
        self.schemas.get(place)
    }

    /// Returns the distinct sets of columns of all shards.
    pub fn schemas(&self) -> &[Arc<Schema>] {
        &self.schemas
    }

    /// Returns the columns if all shards have the same ones.
    pub fn single_schema(&self) -> Option<&Arc<Schema>> {
        match self.schemas.as_slice() {
            [schema] => Some(schema),
            _ => None,
        }
    }

    /// Returns the number of the first sample of a shard, over all streams.
    pub fn first_sample(&self, shard: usize) -> u64 {
        self.starts
            .get(shard)
            .copied()
            .unwrap_or_else(|| self.samples())
    }

    /// Returns the number of the sample at position `at` of a shard, over all streams. For a deleted sample it is the
    /// number of the next live one.
    pub fn number_of(&self, shard: usize, at: u64) -> u64 {
        let before = match self.stream_of(shard) {
            Some((stream, number)) => stream.live.live_before(number, at),
            None => at,
        };
        self.first_sample(shard).saturating_add(before)
    }

    /// Returns whether the sample at position `at` of a shard is live.
    pub fn has_sample(&self, shard: usize, at: u64) -> bool {
        let stream = self.stream_of(shard);
        stream.is_none_or(|(stream, number)| stream.live.has(number, at))
    }

    /// Returns the position in its shard of the live sample with this number in the shard.
    fn stored_at(&self, shard: usize, number: u64) -> u64 {
        match self.stream_of(shard) {
            Some((stream, own)) => stream.live.stored_at(own, number),
            None => number,
        }
    }

    /// Returns the shard of a sample, and the position of the sample in it.
    #[inline]
    pub fn locate(&self, sample: u64) -> Option<(usize, u64)> {
        let bucket = usize::try_from(sample >> self.bucket_bits).ok()?;
        let mut shard = usize::try_from(*self.buckets.get(bucket)?).ok()?;
        let mut start = *self.starts.get(shard)?;
        loop {
            let next = *self.starts.get(shard + 1)?;
            if sample < next {
                let number = sample - start;
                let at = match self.has_deleted {
                    true => self.stored_at(shard, number),
                    false => number,
                };
                return Some((shard, at));
            }
            shard += 1;
            start = next;
        }
    }

    /// Returns the neighbours that are read with each sample.
    pub fn window(&self) -> Option<&Arc<Window>> {
        self.windows.as_ref().map(|(window, _)| window)
    }

    /// Calls `found` for each offset of the window of a sample: with the shard, the position in it, and whether it is
    /// padding. Without a window, only the sample itself is found.
    pub fn each_neighbour(
        &self,
        (shard, at): (usize, u64),
        mut found: impl FnMut(usize, u64, bool),
    ) {
        let Some((window, windows, first)) = self.windows_of(shard) else {
            return found(shard, at, false);
        };
        windows.each(window, (shard - first, at), |shard, at, padded| {
            found(first + shard, at, padded);
        });
    }

    /// Returns the shards that the windows of the samples of a shard need.
    pub fn reach_of(&self, shard: usize) -> Range<usize> {
        let samples = self.first_sample(shard)..self.first_sample(shard + 1);
        let own = shard..shard + 1;
        let (Some((window, windows, first)), Some(last)) =
            (self.windows_of(shard), samples.end.checked_sub(1))
        else {
            return own;
        };
        let (Some((_, start)), Some((_, end))) = (self.locate(samples.start), self.locate(last))
        else {
            return own;
        };
        if samples.is_empty() {
            return own;
        }
        let reach = windows.reach(window, (shard - first, start), (shard - first, end));
        first + reach.start..first + reach.end
    }

    /// Returns the window, the episodes of the stream of a shard, and the first shard of the stream.
    fn windows_of(&self, shard: usize) -> Option<(&Window, &StreamWindows, usize)> {
        let (window, windows) = self.windows.as_ref()?;
        let after = self
            .streams
            .partition_point(|stream| stream.first_shard <= shard);
        let number = after.checked_sub(1)?;
        let first = self.streams.get(number)?.first_shard;
        Some((window, windows.get(number)?, first))
    }

    /// Returns the place of a shard in messages: its file, with the root of its stream. A raw file of a single stream
    /// is shown by its listed name alone.
    pub fn place(&self, shard: usize) -> Place {
        let file = self.stream_of(shard).and_then(|(stream, number)| {
            let entry = stream.shards.get(number)?;
            let name = &entry.parts().next()?.stored().basename;
            // A raw file of a single stream is shown as it was listed.
            let is_file = matches!(entry, Entry::File(..));
            Some(if is_file && self.streams.len() == 1 {
                name.to_string()
            } else {
                format!("{}/{name}", stream.names.root.trim_end_matches('/'))
            })
        });
        Place::file(file.as_deref().unwrap_or("?"))
    }

    /// Returns the configurations of the streams for `shardmill-order`.
    pub fn stream_configs(&self) -> Vec<StreamConfig> {
        let config = |stream: &Stream| {
            let sizes: Vec<u64> = stream.shard_sizes().collect();
            let config = StreamConfig::new(&sizes).with_weight(stream.weight);
            config.with_deleted(stream.live.digest())
        };
        self.streams.iter().map(config).collect()
    }
}

fn open_stream(
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
                "it names tar files, and there is no split `{}` beneath those",
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
            let to = Dir::create(&local)?;
            if from.is_same(&to)? {
                (to, None, shown)
            } else {
                (to, Some(Folder::Local(from)), shown)
            }
        }
        (Some(Location::Remote(remote)), Some(local)) => {
            let shown = remote.to_string();
            let store = Folder::open_store(&remote, &stream.settings.over(&options.remote))?;
            (Dir::create(&local)?, Some(store), shown)
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
    let chosen = Chosen {
        view: stream.view.as_deref(),
        window: options.window.as_deref(),
        number,
        shown: &shown,
    };
    if let Some(files) = &stream.files {
        let list = open_files(source, cache, &shown, files, options)?;
        let index_digest = list.digest();
        let shards = Shards::Files(list);
        let (live, windows) = chosen.read(StreamLive::default(), index_digest, &shards)?;
        let stream = Stream {
            live,
            offsets: Vec::new(),
            index_digest,
            shards,
            first_shard,
            local: dir,
            origin,
            in_place,
            keep_zip: false,
            // The list of raw files has no hashes.
            validate: None,
            weight: stream.weight,
            names: StreamNames {
                shown: escape(&shown).into_owned(),
                root,
            },
        };
        return Ok((stream, windows));
    }
    // An index in the folder of a pattern may describe other files.
    let read = || stream_live::read_index(source, stream.with_deleted, &options.limits);
    let answer = stream.pattern.is_none().then(read);
    let (bytes, provenance) = match answer {
        Some(answer) => (Some(answer.index), answer.provenance),
        None => (None, None),
    };
    let path = Path::new(&shown).join(INDEX_NAME);
    let is_none = |found: &Option<Result<Vec<u8>, StorageError>>| match found {
        Some(Err(error)) => error.is_not_found(),
        found => found.is_none(),
    };
    let mut live = StreamLive::default();
    let (bytes, shards, offsets) = match bytes {
        Some(Ok(bytes)) => {
            check_expected_index(&bytes, &path, stream.expect_index.as_deref())?;
            let shards = Shards::parse(&bytes, &path, &options.limits)?;
            let indexed = IndexedStream {
                source,
                cache,
                shards: &shards,
                with_deleted: stream.with_deleted,
            };
            live = indexed.live(provenance, &options.limits)?;
            (bytes, shards, Vec::new())
        }
        Some(Err(error)) if error.is_no_bucket() => return Err(error.into()),
        // A caller that expects a certain index must not get a scan instead.
        found if is_none(&found) && stream.expect_index.is_none() => {
            let pattern = stream.pattern.as_ref();
            scan_tars(source, cache, &shown, pattern, &options.limits)?
        }
        Some(Err(error)) if !error.is_not_found() => return Err(error.into()),
        _ => return Err(index_missing(&shown)),
    };
    if let Some(cache) = cache {
        stream_live::keep_index(cache, &bytes, &shown)?;
    }
    let index_digest = Sha256::digest(&bytes).into();
    let (live, windows) = chosen.read(live, index_digest, &shards)?;
    let stream = Stream {
        live,
        shards,
        offsets,
        index_digest,
        first_shard,
        local: dir,
        origin,
        in_place,
        keep_zip: stream.keep_zip,
        validate: stream.validate_hash.or(options.validate),
        weight: stream.weight,
        names: StreamNames {
            shown: escape(&shown).into_owned(),
            root,
        },
    };
    Ok((stream, windows))
}

/// Which samples of a stream are read, besides those that are not deleted.
struct Chosen<'a> {
    view: Option<&'a View>,
    window: Option<&'a Window>,
    /// The number of the stream.
    number: usize,
    /// The name of the stream in messages.
    shown: &'a str,
}

impl Chosen<'_> {
    /// Returns which of the `live` samples are read, and the episodes if there is a window.
    fn read(
        &self,
        live: StreamLive,
        digest: [u8; 32],
        shards: &Shards,
    ) -> Result<(StreamLive, Option<StreamWindows>), DatasetError> {
        let neighbours = live.to_live(shards);
        let live = live.of_view(self.view, digest, shards, self.shown)?;
        let Some(window) = self.window else {
            return Ok((live, None));
        };
        let target = ViewTarget {
            digest,
            live: neighbours,
        };
        let windows = StreamWindows::new(window, self.number, shards, target, self.shown)?;
        let complete = windows.complete(window, digest);
        let was_empty = live.is_empty();
        let live = live.of_view(complete.as_ref(), digest, shards, self.shown)?;
        if live.is_empty() && !was_empty {
            let offsets = window.offsets();
            let reason = format!(
                "no sample has all neighbours from {} to {} in its episode",
                offsets.first().copied().unwrap_or_default(),
                offsets.last().copied().unwrap_or_default()
            );
            return Err(DatasetProblem::WindowEmpty.at(self.shown, reason));
        }
        Ok((live, Some(windows)))
    }
}

/// Lists the files of a tree as shards.
fn open_files(
    source: &Folder,
    cache: Option<&Dir>,
    shown: &str,
    files: &FileOptions,
    options: &CatalogOptions,
) -> Result<FileList, DatasetError> {
    let path = cache.map_or(source.path(), Dir::path);
    if files.form.has_file() && path.to_str().is_none() {
        return Err(StorageError::Name {
            name: path.to_string_lossy().into_owned(),
            source: shardmill_core::NameError::Character,
        }
        .into());
    }
    open_list(source, cache, shown, files, &options.limits)
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
) -> Result<(Vec<u8>, Shards, Vec<Offsets>), DatasetError> {
    let found = match pattern {
        Some(pattern) => ListedTars::All(find_tars(source, pattern)?),
        None => match list_tars(source) {
            Ok(found) => found,
            // If the source refuses to list its files, the error is the missing index.
            Err(error) if is_unlisted(&error) && !error.is_no_bucket() => {
                ListedTars::All(Vec::new())
            }
            Err(error) => return Err(error.into()),
        },
    };
    let path = || PathBuf::from(shown);
    let found = match found {
        ListedTars::All(found) => found,
        ListedTars::Unfinished(unfinished) => {
            return Err(DatasetError::IndexMissing {
                path: path(),
                unfinished: Some(unfinished),
            });
        }
        ListedTars::Stray(names) => return Err(DatasetError::stray(path(), &names)),
    };
    if found.is_empty() {
        return Err(index_missing(shown));
    }
    if let Some(cache) = cache
        && let Ok(file) = cache.open_file(INDEX_NAME)
        && let Ok(bytes) = file.read_all(limits.index_bytes)
        && let Ok(index) = shardmill_webdataset::Index::parse(&bytes, limits)
        && found
            .iter()
            .map(Found::file)
            .eq(index.shards.iter().map(|shard| {
                let stored = shard.stored();
                (&*stored.basename, stored.bytes)
            }))
    {
        return Ok((bytes, Shards::Tar(index.shards), Vec::new()));
    }
    let (index, offsets) = scan(source, &found, limits)?;
    let bytes = index.to_json().into_bytes();
    Ok((bytes, Shards::Tar(index.shards), offsets))
}

/// Opens the folder of a stream. If `has_index`, a missing folder is reported as a missing index.
fn open_dir(path: &Path, has_index: bool) -> Result<Dir, DatasetError> {
    Dir::open(path).map_err(|error| {
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
