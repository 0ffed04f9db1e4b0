//! The streams of a mix and their shards, numbered through all of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use shardmill_core::{Limits, escape};
use shardmill_mds::{HashAlgo, HashError, Index, ShardEntry};
use shardmill_order::{StreamConfig, Weight};
use shardmill_storage::{Dir, Location, PublishMode, Remote, RemoteOptions, StorageError};

use crate::dataset::{INDEX_NAME, read_index_bytes};
use crate::error::{Place, ReaderError};
use crate::load::parts;
use crate::schema::Schema;

/// One data set of a mix, as the caller names it.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    /// Where the data set is kept. `None` when `local` is all there is.
    pub remote: Option<Location>,
    /// Where it is read: the data set itself, or the folder that shards are fetched to. May be left out where the
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
}

impl StreamOptions {
    /// A data set on a local disk.
    #[must_use]
    pub fn local(path: impl Into<PathBuf>) -> Self {
        Self {
            local: Some(path.into()),
            ..Self::default()
        }
    }

    /// A data set somewhere else, and the folder that its shards are fetched to.
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

/// One data set of a mix, opened.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) index: Index,
    /// The SHA-256 of `index.json`.
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
}

/// The shards of all streams.
#[derive(Debug)]
pub(crate) struct Catalog {
    streams: Vec<Stream>,
    /// The first sample of each shard, and at the end the number of samples.
    starts: Vec<u64>,
    /// For each stretch of `1 << bucket_bits` samples the shard that its first one is in.
    buckets: Vec<u32>,
    bucket_bits: u32,
    /// The columns that occur, and for each shard which of them it has.
    schemas: Vec<Arc<Schema>>,
    schema_of: Vec<u32>,
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
            first_shard += stream.index.shards.len();
            if let Some(algo) = stream.validate {
                check_hashes_present(&stream, algo)?;
            }
            opened.push(stream);
        }
        Self::new(opened, options)
    }

    fn new(streams: Vec<Stream>, options: &CatalogOptions) -> Result<Self, ReaderError> {
        let shards = streams.iter().map(|stream| stream.index.shards.len()).sum();
        let mut starts = Vec::with_capacity(shards + 1);
        let mut samples = 0_u64;
        let mut schemas: Vec<Arc<Schema>> = Vec::new();
        let mut schema_of = Vec::with_capacity(shards);
        for entry in streams.iter().flat_map(|stream| &stream.index.shards) {
            starts.push(samples);
            samples = samples.saturating_add(entry.samples);
            // Shards that follow one another are mostly of the same columns.
            let same = |schema: &Arc<Schema>| schema.is_of(&entry.config);
            let place = match schemas.iter().rposition(same) {
                Some(place) => place,
                None => {
                    schemas.push(Arc::new(Schema::new(&entry.config)));
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
            streams,
            starts,
            buckets,
            bucket_bits,
            schemas,
            schema_of,
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
        let is_packed = |entry: &ShardEntry| entry.zip_data.is_some();
        self.streams
            .iter()
            .any(|stream| stream.origin.is_some() || stream.index.shards.iter().any(is_packed))
    }

    pub(crate) fn streams(&self) -> &[Stream] {
        &self.streams
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The hash that every shard has to pass before it is used.
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
        (number < stream.index.shards.len()).then_some((stream, number))
    }

    pub(crate) fn entry(&self, shard: usize) -> Option<&ShardEntry> {
        let (stream, number) = self.stream_of(shard)?;
        stream.index.shards.get(number)
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

    /// The shard that holds a sample, and the sample's place in it.
    #[inline]
    pub(crate) fn locate(&self, sample: u64) -> Option<(usize, u64)> {
        let bucket = usize::try_from(sample >> self.bucket_bits).ok()?;
        let mut shard = usize::try_from(*self.buckets.get(bucket)?).ok()?;
        let mut start = *self.starts.get(shard)?;
        loop {
            let next = *self.starts.get(shard + 1)?;
            if sample < next {
                return Some((shard, sample - start));
            }
            shard += 1;
            start = next;
        }
    }

    /// A shard's file in messages: with its stream where there are several.
    pub(crate) fn place(&self, shard: usize) -> Place {
        let file = self.stream_of(shard).and_then(|(stream, number)| {
            let entry = stream.index.shards.get(number)?;
            let name = &parts(entry).next()?.stored().basename;
            Some(if self.streams.len() > 1 {
                format!("{}/{name}", stream.shown)
            } else {
                name.to_string()
            })
        });
        Place::file(shard as u64, file.as_deref().unwrap_or("?"))
    }

    /// The streams as the order sees them.
    pub(crate) fn stream_configs(&self) -> Vec<StreamConfig> {
        let config = |stream: &Stream| {
            let sizes: Vec<u64> = stream
                .index
                .shards
                .iter()
                .map(|entry| entry.samples)
                .collect();
            StreamConfig::new(&sizes).with_weight(stream.weight)
        };
        self.streams.iter().map(config).collect()
    }
}

/// Finding out at shard 900,000 that a hash is missing would be late.
fn check_hashes_present(stream: &Stream, algo: HashAlgo) -> Result<(), ReaderError> {
    for (number, entry) in stream.index.shards.iter().enumerate() {
        for part in parts(entry) {
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
            open_dir(&local)?,
            None,
            local.to_string_lossy().into_owned(),
        ),
        (Some(Location::Local(remote)), Some(local)) => {
            let from = open_dir(&remote)?;
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
    let bytes = match &origin {
        None => dir
            .open_file(INDEX_NAME)
            .and_then(|file| file.read_all(options.limits.index_bytes)),
        Some(Origin::Folder(from)) => from
            .open_file(INDEX_NAME)
            .and_then(|file| file.read_all(options.limits.index_bytes)),
        Some(Origin::Store(store)) => store.read(INDEX_NAME, options.limits.index_bytes),
    };
    let bytes = bytes.map_err(|error| {
        if error.is_not_found() {
            ReaderError::IndexMissing {
                path: PathBuf::from(&shown),
            }
        } else {
            error.into()
        }
    })?;
    let path = Path::new(&shown).join(INDEX_NAME);
    let index = read_index_bytes(
        &bytes,
        &path,
        stream.expect_index.as_deref(),
        &options.limits,
    )?;
    if origin.is_some() {
        keep_index(&dir, &bytes, &shown)?;
    }
    Ok(Stream {
        index,
        index_digest: Sha256::digest(&bytes).into(),
        first_shard,
        local: dir,
        origin,
        keep_zip: stream.keep_zip,
        validate: stream.validate_hash.or(options.validate),
        weight: stream.weight,
        shown: escape(&shown).into_owned(),
    })
}

fn open_dir(path: &Path) -> Result<Dir, ReaderError> {
    Dir::open(path).map_err(|error| {
        if error.is_not_found() {
            ReaderError::IndexMissing {
                path: path.to_owned(),
            }
        } else {
            error.into()
        }
    })
}

/// Puts the index beside the shards that will be fetched, so that the folder is a data set. Another index that lies
/// there belongs to another data set, which is not mixed with this one.
fn keep_index(dir: &Dir, bytes: &[u8], remote: &str) -> Result<(), ReaderError> {
    let foreign = || ReaderError::CacheForeign {
        path: dir.path_of(INDEX_NAME),
        remote: remote.to_owned(),
    };
    for _ in 0..2 {
        match dir.open_file(INDEX_NAME) {
            Ok(file) => {
                let same =
                    file.len() == bytes.len() as u64 && file.read_all(bytes.len() as u64)? == bytes;
                return if same { Ok(()) } else { Err(foreign()) };
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        match dir.publish_bytes(None, INDEX_NAME, bytes, PublishMode::CreateNew) {
            Ok(()) => return Ok(()),
            // Somebody else was faster: what did they put there?
            Err(StorageError::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(foreign())
}
