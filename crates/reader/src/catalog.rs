//! The streams of a mix and their shards, numbered through all of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use shardmill_core::{Diagnostic as _, ErrorKind, Limits, escape};
use shardmill_mds::{HashAlgo, HashError};
use shardmill_order::{StreamConfig, Weight};
use shardmill_storage::{Dir, Location, Remote, RemoteOptions, StorageError};

use crate::dataset::{INDEX_NAME, check_expected_index};
use crate::entry::{Entry, Shards};
use crate::error::{Place, ReaderError};
use crate::files::{self, FileError, FileList, FileOptions, KnownFiles, open_list};
use crate::open::Piece;
use crate::scan::{Found, ListedTars, Offsets, Shelf, find_tars, list_tars, scan};
use crate::schema::Schema;
use crate::shard_cache::capacity_folder;
use crate::stream_live::{self, IndexedStream, StreamLive};
use crate::tar::{Subsets, TarProblem, TarSample};
use crate::tars::{TarPattern, TarSetError};

/// One dataset of a mix, as the caller names it.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    /// Where the dataset is kept. `None` when `local` is all there is.
    pub remote: Option<Location>,
    /// Where it is read: the dataset itself, or the folder that shards are fetched to. May be left out where the
    /// remote is a local directory, which is then read in place.
    pub local: Option<PathBuf>,
    /// A folder beneath both, such as `train`.
    pub split: Option<String>,
    /// How much of it an epoch takes.
    pub weight: Weight,
    /// Whether the compressed files of fetched shards are kept as well.
    pub keep_zip: bool,
    /// The hash that every shard of it has to pass before it is used; `None` for that of the reader.
    pub validate_hash: Option<HashAlgo>,
    /// The hash that the index has to have, as `sha256:` and 64 hexadecimal digits.
    pub expect_index: Option<String>,
    /// The tar files that are its shards, where a pattern names them. `remote` is their folder then, and they are read as
    /// tar files without an index.
    pub pattern: Option<TarPattern>,
    /// Set where it is a tree of raw files, each of which is a sample: which of them, and what is given out.
    pub files: Option<FileOptions>,
    /// Whether samples that the table of the dataset no longer has are read like all others.
    pub with_deleted: bool,
}

impl StreamOptions {
    /// A dataset as people name it: a folder, the URL of a prefix, a tar file, or a pattern of tar files, see
    /// [`TarPattern`]. Without `remote`, `local` is the dataset.
    ///
    /// # Errors
    ///
    /// As [`TarPattern::named`]; [`StorageError::Url`].
    pub fn named(remote: Option<&str>, local: Option<PathBuf>) -> Result<Self, TarSetError> {
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
            // A pattern is no folder to fetch to.
            local: local.filter(|_| remote.is_some() || pattern.is_none()),
            remote: location,
            pattern,
            ..Self::default()
        })
    }

    /// A dataset on a local disk.
    #[must_use]
    pub fn local(path: impl Into<PathBuf>) -> Self {
        Self {
            local: Some(path.into()),
            ..Self::default()
        }
    }

    /// A dataset somewhere else, and the folder that its shards are fetched to.
    #[must_use]
    pub fn remote(remote: Location, local: impl Into<PathBuf>) -> Self {
        Self {
            remote: Some(remote),
            local: Some(local.into()),
            ..Self::default()
        }
    }
}

/// Where the shards of a stream come from when they are not there yet.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// An object store.
    Store(Remote),
    /// A directory, such as a network file system.
    Folder(Dir),
}

/// One dataset of a mix, opened.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) shards: Shards,
    /// Which of their samples count.
    pub(crate) live: StreamLive,
    /// Where the samples of the first shards are, where that is known from a scan.
    offsets: Vec<Offsets>,
    /// The SHA-256 of `index.json`, or of the list of raw files.
    pub(crate) index_digest: [u8; 32],
    /// The number of its first shard among those of all streams.
    pub(crate) first_shard: usize,
    /// Where its shards lie, or are fetched to.
    pub(crate) local: Dir,
    /// `None` when they lie there.
    pub(crate) origin: Option<Origin>,
    pub(crate) keep_zip: bool,
    /// The hash that every shard has to pass before it is used.
    pub(crate) validate: Option<HashAlgo>,
    pub(crate) weight: Weight,
    /// What it is called in messages: where it comes from.
    pub(crate) shown: String,
    /// Where its files come from: a folder or a URL.
    root: String,
}

impl Stream {
    /// How many samples of each shard count.
    pub(crate) fn shard_sizes(&self) -> impl Iterator<Item = u64> {
        let entries = self.shards.iter().enumerate();
        entries.map(|(number, entry)| self.live.samples_of(number, entry.samples()))
    }

    /// What the list of its shards takes up beside them.
    pub(crate) fn index_bytes(&self) -> u64 {
        let index = match &self.shards {
            // An `index.json` would be one of the files.
            Shards::Files(_) => {
                capacity_folder(&self.local).and_then(|own| own.open_file(files::LIST))
            }
            Shards::Mds(_) | Shards::Tar(_) => self.local.open_file(INDEX_NAME),
        };
        index.map_or(0, |index| index.len())
    }
}

/// The shards of all streams. Samples are numbered without those that are deleted.
#[derive(Debug)]
pub(crate) struct Catalog {
    streams: Vec<Stream>,
    /// Whether samples of some stream are deleted.
    has_deleted: bool,
    /// The first sample of each shard, and at the end the number of samples.
    starts: Vec<u64>,
    /// For each stretch of `1 << bucket_bits` samples the shard that its first one is in.
    buckets: Vec<u32>,
    bucket_bits: u32,
    /// The columns that occur, and for each shard which of them it has.
    schemas: Vec<Arc<Schema>>,
    schema_of: Vec<u32>,
    subsets: Subsets,
    limits: Limits,
}

/// What opening streams needs besides the streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct CatalogOptions {
    pub(crate) limits: Limits,
    pub(crate) remote: RemoteOptions,
    /// The hash that every shard has to pass before it is used.
    pub(crate) validate: Option<HashAlgo>,
}

impl Catalog {
    pub(crate) fn open(
        streams: &[StreamOptions],
        options: &CatalogOptions,
    ) -> Result<Self, ReaderError> {
        if streams.is_empty() {
            return Err(ReaderError::NoStreams);
        }
        let mut opened: Vec<Stream> = Vec::with_capacity(streams.len());
        let mut first_shard = 0;
        for stream in streams {
            let stream = open_stream(stream, first_shard, options)?;
            first_shard += stream.shards.len();
            if let Some(algo) = stream.validate {
                check_hashes_present(&stream, algo)?;
            }
            opened.push(stream);
        }
        let catalog = Self::new(opened, options)?;
        let wanted = streams
            .iter()
            .filter_map(|stream| stream.files.as_ref()?.expect.as_ref());
        for expected in wanted {
            let found = catalog.files_digest().unwrap_or_default();
            if found != *expected {
                let trees = catalog.streams.iter();
                let trees = trees.filter(|stream| matches!(stream.shards, Shards::Files(_)));
                let names: Vec<&str> = trees.map(|stream| stream.shown.as_str()).collect();
                return Err(FileError::Digest {
                    location: names.join(", "),
                    expected: expected.clone(),
                    found,
                }
                .into());
            }
        }
        Ok(catalog)
    }

    fn new(streams: Vec<Stream>, options: &CatalogOptions) -> Result<Self, ReaderError> {
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
            // Shards that follow one another are mostly of the same columns.
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
        // About as many buckets as shards, so that looking up takes a step or two.
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
            limits: options.limits.clone(),
        })
    }

    /// Shards of all streams.
    pub(crate) fn len(&self) -> usize {
        self.schema_of.len()
    }

    /// Samples of all streams.
    pub(crate) fn samples(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether shards of some stream are fetched from elsewhere, or unpacked before they are read.
    pub(crate) fn is_cached(&self) -> bool {
        self.streams
            .iter()
            .any(|stream| stream.origin.is_some() || stream.shards.iter().any(Entry::is_packed))
    }

    pub(crate) fn streams(&self) -> &[Stream] {
        &self.streams
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The hash that a shard has to pass before it is used.
    pub(crate) fn validate(&self, shard: usize) -> Option<HashAlgo> {
        self.stream_of(shard)?.0.validate
    }

    /// The stream of a shard, and the shard's number in it.
    pub(crate) fn stream_of(&self, shard: usize) -> Option<(&Stream, usize)> {
        let behind = self
            .streams
            .partition_point(|stream| stream.first_shard <= shard);
        // Of several streams that begin here, all but the last are empty.
        let stream = self.streams.get(behind.checked_sub(1)?)?;
        let number = shard - stream.first_shard;
        (number < stream.shards.len()).then_some((stream, number))
    }

    pub(crate) fn entry(&self, shard: usize) -> Option<Entry<'_>> {
        let (stream, number) = self.stream_of(shard)?;
        stream.shards.get(number)
    }

    /// The schema of a sample, and, of a sample of a tar file and a raw file, its values in the form of MDS behind what is
    /// in `out`.
    pub(crate) fn encode(
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

    /// Where a raw file lies on this machine when it is here; `None` for other shards.
    pub(crate) fn file_path(&self, shard: usize) -> Option<String> {
        let (stream, number) = self.stream_of(shard)?;
        let file = stream.shards.get(number)?.raw_file()?;
        let path = stream.local.path_of(&file.info.basename);
        // INVARIANT: looked at when the stream was opened.
        path.into_os_string().into_string().ok()
    }

    /// The number of the sample that is a raw file, by its path in the tree of the first stream that is one.
    pub(crate) fn find_file(&self, path: &str) -> Result<u64, FileError> {
        let mut trees = self
            .streams
            .iter()
            .filter_map(|stream| match &stream.shards {
                Shards::Files(files) => Some((stream, files)),
                Shards::Mds(_) | Shards::Tar(_) => None,
            });
        let (stream, files) = trees.next().ok_or(FileError::NoTree)?;
        match files.find(path) {
            Some(number) => Ok(self.first_sample(stream.first_shard + number)),
            None => Err(FileError::NoFile {
                path: path.to_owned(),
                location: stream.shown.clone(),
            }),
        }
    }

    /// Whether some streams are trees of raw files.
    pub(crate) fn has_files(&self) -> bool {
        let is_tree = |stream: &Stream| matches!(stream.shards, Shards::Files(_));
        self.streams.iter().any(is_tree)
    }

    /// The list of the files of a stream; `None` where it is none of raw files.
    pub(crate) fn known_files(&self, stream: usize) -> Option<KnownFiles> {
        match &self.streams.get(stream)?.shards {
            Shards::Files(files) => Some(files.known()),
            _ => None,
        }
    }

    /// A digest of the paths and lengths of all raw files, which is the same for copies of the same trees; `None` where
    /// there are none.
    pub(crate) fn files_digest(&self) -> Option<String> {
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

    /// Why a sample of a tar file is not given out.
    pub(crate) fn refused(&self, shard: usize, at: u64, problem: TarProblem) -> ReaderError {
        let place = self.place(shard);
        let number = self.number_of(shard, at);
        match problem {
            TarProblem::Read(source) => ReaderError::tar(place, number, source),
            TarProblem::Fields { key, fields } => ReaderError::TarFields {
                place: Place {
                    sample: Some(number),
                    ..place
                },
                key,
                fields,
            },
            TarProblem::Large { bytes } => ReaderError::OutOfMemory { bytes },
            TarProblem::Absent => ReaderError::ShardChanged { place },
        }
    }

    /// Where the samples of a shard are, where that is known from a scan.
    pub(crate) fn offsets(&self, shard: usize) -> Option<&Offsets> {
        let (stream, number) = self.stream_of(shard)?;
        stream.offsets.get(number)
    }

    /// The columns of a shard.
    pub(crate) fn schema(&self, shard: usize) -> Option<&Arc<Schema>> {
        let place = usize::try_from(*self.schema_of.get(shard)?).ok()?;
        self.schemas.get(place)
    }

    /// Whether all shards have the same columns.
    pub(crate) fn schemas(&self) -> &[Arc<Schema>] {
        &self.schemas
    }

    /// The columns, where they are the same in all shards.
    pub(crate) fn single_schema(&self) -> Option<&Arc<Schema>> {
        match self.schemas.as_slice() {
            [schema] => Some(schema),
            _ => None,
        }
    }

    /// The number of the first sample of a shard, through all streams.
    pub(crate) fn first_sample(&self, shard: usize) -> u64 {
        self.starts
            .get(shard)
            .copied()
            .unwrap_or_else(|| self.samples())
    }

    /// The number of the sample at a place in a shard, through all streams; of a deleted one that of the next.
    pub(crate) fn number_of(&self, shard: usize, at: u64) -> u64 {
        let before = match self.stream_of(shard) {
            Some((stream, number)) => stream.live.live_before(number, at),
            None => at,
        };
        self.first_sample(shard).saturating_add(before)
    }

    /// Whether the sample at a place in a shard counts.
    pub(crate) fn has_sample(&self, shard: usize, at: u64) -> bool {
        let stream = self.stream_of(shard);
        stream.is_none_or(|(stream, number)| stream.live.has(number, at))
    }

    /// The place in its shard of the sample that has this number there.
    fn stored_at(&self, shard: usize, number: u64) -> u64 {
        match self.stream_of(shard) {
            Some((stream, own)) => stream.live.stored_at(own, number),
            None => number,
        }
    }

    /// The shard that holds a sample, and the sample's place in it.
    #[inline]
    pub(crate) fn locate(&self, sample: u64) -> Option<(usize, u64)> {
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

    /// A shard's file in messages: with its stream where there are several.
    pub(crate) fn place(&self, shard: usize) -> Place {
        let file = self.stream_of(shard).and_then(|(stream, number)| {
            let entry = stream.shards.get(number)?;
            let name = &entry.parts().next()?.stored().basename;
            // A raw file is known by the name that was listed.
            let is_file = matches!(entry, Entry::File(..));
            Some(if is_file && self.streams.len() == 1 {
                name.to_string()
            } else {
                format!("{}/{name}", stream.root.trim_end_matches('/'))
            })
        });
        Place::file(shard as u64, file.as_deref().unwrap_or("?"))
    }

    /// The streams as the order sees them.
    pub(crate) fn stream_configs(&self) -> Vec<StreamConfig> {
        let config = |stream: &Stream| {
            let sizes: Vec<u64> = stream.shard_sizes().collect();
            let config = StreamConfig::new(&sizes).with_weight(stream.weight);
            config.with_deleted(stream.live.digest())
        };
        self.streams.iter().map(config).collect()
    }
}

/// Finding out at shard 900,000 that a hash is missing would be late.
fn check_hashes_present(stream: &Stream, algo: HashAlgo) -> Result<(), ReaderError> {
    for (number, entry) in stream.shards.iter().enumerate() {
        for part in entry.parts() {
            let stored = part.stored();
            if stored.hashes.get(algo).is_none() {
                return Err(ReaderError::HashAbsent {
                    place: Place::file((stream.first_shard + number) as u64, &stored.basename),
                    source: Box::new(HashError::Absent { algo }),
                });
            }
        }
    }
    Ok(())
}

fn open_stream(
    stream: &StreamOptions,
    first_shard: usize,
    options: &CatalogOptions,
) -> Result<Stream, ReaderError> {
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
            return Err(ReaderError::PatternSplit {
                pattern: pattern.text().to_owned(),
                split: split.to_owned(),
            });
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
        (None, None) => return Err(ReaderError::StreamNowhere),
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
                (to, Some(Origin::Folder(from)), shown)
            }
        }
        (Some(Location::Remote(remote)), Some(local)) => {
            let shown = remote.to_string();
            let store = Remote::open(&remote, &options.remote)?;
            (Dir::create(&local)?, Some(Origin::Store(store)), shown)
        }
        (Some(Location::Remote(remote)), None) => {
            return Err(ReaderError::StreamLocal {
                remote: remote.to_string(),
            });
        }
    };
    let root = shown.clone();
    let shown = match &stream.pattern {
        Some(pattern) => pattern.text().to_owned(),
        None => shown,
    };
    if let Some(files) = &stream.files {
        let list = open_files(&dir, origin.as_ref(), &shown, files, options)?;
        return Ok(Stream {
            live: StreamLive::default(),
            offsets: Vec::new(),
            index_digest: list.digest(),
            shards: Shards::Files(list),
            first_shard,
            local: dir,
            origin,
            keep_zip: false,
            // There is no hash of a raw file.
            validate: None,
            weight: stream.weight,
            shown: escape(&shown).into_owned(),
            root,
        });
    }
    // An index beside the tar files of a pattern may be one of others.
    let answer = stream.pattern.is_none().then(|| {
        let with_deleted = stream.with_deleted;
        stream_live::read_index(&dir, origin.as_ref(), with_deleted, &options.limits)
    });
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
                dir: &dir,
                origin: origin.as_ref(),
                shards: &shards,
                shown: &shown,
                with_deleted: stream.with_deleted,
            };
            live = indexed.live(provenance, &options.limits)?;
            (bytes, shards, Vec::new())
        }
        Some(Err(error)) if error.is_no_bucket() => return Err(error.into()),
        // Whoever names the hash of an index wants that index.
        found if is_none(&found) && stream.expect_index.is_none() => {
            let pattern = stream.pattern.as_ref();
            scan_tars(&dir, origin.as_ref(), &shown, pattern, &options.limits)?
        }
        Some(Err(error)) if !error.is_not_found() => return Err(error.into()),
        _ => return Err(index_missing(&shown)),
    };
    if origin.is_some() {
        stream_live::keep_index(&dir, &bytes, &shown)?;
    }
    Ok(Stream {
        shards,
        live,
        offsets,
        index_digest: Sha256::digest(&bytes).into(),
        first_shard,
        local: dir,
        origin,
        keep_zip: stream.keep_zip,
        validate: stream.validate_hash.or(options.validate),
        weight: stream.weight,
        shown: escape(&shown).into_owned(),
        root,
    })
}

/// The files of a tree as shards.
fn open_files(
    dir: &Dir,
    origin: Option<&Origin>,
    shown: &str,
    files: &FileOptions,
    options: &CatalogOptions,
) -> Result<FileList, ReaderError> {
    if files.form.has_file() && dir.path().to_str().is_none() {
        return Err(StorageError::Name {
            name: dir.path().to_string_lossy().into_owned(),
            source: shardmill_core::NameError::Character,
        }
        .into());
    }
    let (shelf, local) = match origin {
        None => (files::Shelf::Folder(dir), None),
        Some(Origin::Folder(from)) => (files::Shelf::Folder(from), Some(dir)),
        Some(Origin::Store(store)) => (files::Shelf::Store(store), Some(dir)),
    };
    open_list(shelf, local, shown, files, &options.limits)
}

fn index_missing(shown: &str) -> ReaderError {
    ReaderError::IndexMissing {
        path: PathBuf::from(shown),
        unfinished: None,
    }
}

/// Whether a place cannot be listed, however often one tries.
fn is_unlisted(error: &StorageError) -> bool {
    let kinds = [
        ErrorKind::NotFound,
        ErrorKind::Permission,
        ErrorKind::Unsupported,
    ];
    kinds.contains(&error.kind())
}

fn read_index(dir: &Dir, limits: &Limits) -> Result<Vec<u8>, StorageError> {
    dir.open_file(INDEX_NAME)?.read_all(limits.index_bytes)
}

/// The index of tar files that have none, by their headers. Beside a cache it is kept, and used again as long as the tar
/// files have the same names and lengths.
fn scan_tars(
    dir: &Dir,
    origin: Option<&Origin>,
    shown: &str,
    pattern: Option<&TarPattern>,
    limits: &Limits,
) -> Result<(Vec<u8>, Shards, Vec<Offsets>), ReaderError> {
    let shelf = match origin {
        None => Shelf::Folder(dir),
        Some(Origin::Folder(from)) => Shelf::Folder(from),
        Some(Origin::Store(store)) => Shelf::Store(store),
    };
    let found = match pattern {
        Some(pattern) => ListedTars::All(find_tars(shelf, pattern)?),
        None => match list_tars(shelf) {
            Ok(found) => found,
            // Where nothing may be listed, the index is what is missing.
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
            return Err(ReaderError::IndexMissing {
                path: path(),
                unfinished: Some(unfinished),
            });
        }
        ListedTars::Stray([tar, other]) => {
            return Err(ReaderError::Stray {
                path: path(),
                tar,
                other,
            });
        }
    };
    if found.is_empty() {
        return Err(index_missing(shown));
    }
    if origin.is_some()
        && let Ok(bytes) = read_index(dir, limits)
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
    let (index, offsets) = scan(shelf, &found, limits)?;
    let bytes = index.to_json().into_bytes();
    Ok((bytes, Shards::Tar(index.shards), offsets))
}

/// Opens the folder of a stream; of one that has an index, what is missing is that.
fn open_dir(path: &Path, has_index: bool) -> Result<Dir, ReaderError> {
    Dir::open(path).map_err(|error| {
        if error.is_not_found() && has_index {
            ReaderError::IndexMissing {
                path: path.to_owned(),
                unfinished: None,
            }
        } else {
            error.into()
        }
    })
}
