//! The cache of shards: what the cache needs to know about shards, and samples of shards that are not cached.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use shardmill_cache::{
    Activity, BlobCatalog, BlobEntry, BlobPart, BlobProblem, BlobResult, BlobSet, Blobs, Cache,
    CacheError, CacheOptions, CachedBlob, Done, KnownFiles, Pending, RawBlob, Timings,
};
use shardmill_core::{Diagnostic as _, Error, lock};
use shardmill_dataset::{Catalog, DatasetError, DatasetProblem, Entry, Piece, Stream, samples_of};
use shardmill_mds::{Digest, FileInfo};
use shardmill_peers::{Cluster, ClusterStats, PeerFiles};
use shardmill_storage::{Dir, FileHandle};

use crate::check::{self, Trust};
use crate::open::OpenShard;
use crate::origin::{self, FileRange};
use crate::served::ServedShards;

/// An open shard that the cache keeps.
pub(crate) type SharedShard = Arc<CachedBlob<OpenShard>>;

/// The shards of a catalog, as the blobs of a cache.
#[derive(Debug)]
pub(crate) struct ShardBlobs {
    catalog: Arc<Catalog>,
    timings: Arc<Timings>,
    /// The nodes that share their caches.
    cluster: Option<Arc<Cluster>>,
    /// Shards whose fetched files were damaged. They are fetched from the store, because a peer may be the cause.
    doubted: Mutex<BTreeSet<usize>>,
}

/// Returns the shards of a stream as a set of blobs.
fn set_of(stream: &Stream) -> BlobSet<'_> {
    BlobSet {
        local: &stream.local,
        digest: &stream.index_digest,
        first: stream.first_shard,
        blobs: stream.shards.len(),
        is_remote: stream.origin.is_some(),
    }
}

impl BlobCatalog for ShardBlobs {
    type Error = DatasetError;

    fn len(&self) -> usize {
        self.catalog.len()
    }

    fn sets(&self) -> impl ExactSizeIterator<Item = BlobSet<'_>> {
        self.catalog.streams().iter().map(set_of)
    }

    fn entry(&self, blob: usize) -> Option<BlobEntry<'_>> {
        let (stream, number) = self.catalog.stream_of(blob)?;
        let entry = stream.shards.get(number)?;
        let mut described = entry.blob(stream.origin.is_some(), stream.keep_zip);
        described.is_unhashed |= stream.computed().is_some();
        Some(BlobEntry {
            blob: described,
            set: set_of(stream),
            set_number: origin::stream_number(&self.catalog, blob)?,
            number,
        })
    }

    fn index_bytes(&self, set: usize) -> u64 {
        self.catalog
            .streams()
            .get(set)
            .map_or(0, Stream::index_bytes)
    }

    fn is_divisible(&self, blob: usize) -> bool {
        let Some((stream, number)) = self.catalog.stream_of(blob) else {
            return false;
        };
        // Nodes exchange whole shards, which costs the store less than parts.
        self.cluster.is_none()
            && stream.origin.is_some()
            && stream.computed().is_none()
            && stream.validate.is_none()
            && stream
                .shards
                .get(number)
                .is_some_and(|entry| !entry.is_packed() && entry.offset_range(0).is_some())
    }

    fn name(&self, blob: usize) -> String {
        self.catalog.location(blob).file
    }

    fn contents(&self, blob: usize) -> String {
        let samples = self.catalog.entry(blob).map_or(0, Entry::samples);
        samples_of(self.catalog.first_sample(blob), samples)
    }

    fn error(&self, blob: usize, problem: BlobProblem) -> DatasetError {
        match problem {
            BlobProblem::Absent => self.catalog.no_shard(blob),
            BlobProblem::Changed => self.catalog.changed(blob),
            BlobProblem::Unverifiable => {
                let location = self.catalog.location(blob);
                DatasetProblem::FileUnknown.at(
                    location,
                    "it cannot be checked whether it is the listed file",
                )
            }
        }
    }
}

impl Blobs for ShardBlobs {
    type Open = OpenShard;

    fn timings(&self) -> &Arc<Timings> {
        &self.timings
    }

    fn fetch(&self, blob: usize, part: BlobPart, done: Done<DatasetError>) -> Pending {
        let step = self.timings.start(Activity::Fetch);
        let done = |result: Result<Vec<u8>, DatasetError>| {
            drop(step);
            done(result.map_err(cache_error));
        };
        if let Some(cluster) = &self.cluster
            && let Some((file, info)) = origin::peer_file(&self.catalog, blob, part)
            && !cluster.is_own(&file)
            && !lock(&self.doubted).contains(&blob)
        {
            let catalog = Arc::clone(&self.catalog);
            return Box::new(cluster.fetch(file, info.bytes, move |found| match found {
                Some(bytes) => {
                    done(Ok(bytes));
                    Box::new(())
                }
                None => origin::fetch(&catalog, blob, part, done),
            }));
        }
        origin::fetch(&self.catalog, blob, part, done)
    }

    fn unpack(&self, blob: usize, files: Vec<Vec<u8>>) -> BlobResult<RawBlob, DatasetError> {
        let unpacked = check::unpack(&self.catalog, &self.timings, blob, files);
        if self.cluster.is_some() {
            match unpacked {
                Ok(_) => lock(&self.doubted).remove(&blob),
                Err(_) => lock(&self.doubted).insert(blob),
            };
        }
        unpacked.map_err(cache_error)
    }

    fn demands(&self, blob: usize, file: &FileInfo) -> Vec<Digest> {
        check::demands(&self.catalog, blob, file)
    }

    fn check_file(
        &self,
        blob: usize,
        info: &FileInfo,
        file: &FileHandle,
        hashes: bool,
    ) -> BlobResult<(), DatasetError> {
        let trust = if hashes { Trust::Unknown } else { Trust::Known };
        let _step = self.timings.start(Activity::Hash);
        check::check_file(&self.catalog, blob, info, file, trust).map_err(cache_error)
    }

    fn open_in_place(
        &self,
        blob: usize,
        known: Option<KnownFiles>,
    ) -> BlobResult<(OpenShard, Option<KnownFiles>), DatasetError> {
        open_in_place(self, blob, known).map_err(cache_error)
    }

    fn map(
        &self,
        blob: usize,
        dir: &Dir,
        data: &FileHandle,
        table: Option<&FileHandle>,
    ) -> BlobResult<OpenShard, DatasetError> {
        OpenShard::map(&self.catalog, blob, dir, data, table).map_err(cache_error)
    }

    fn in_memory(&self, blob: usize, raw: RawBlob) -> BlobResult<OpenShard, DatasetError> {
        OpenShard::in_memory(&self.catalog, blob, raw.data, raw.table).map_err(cache_error)
    }

    fn is_lasting(&self, error: &DatasetError) -> bool {
        match error {
            error if error.is_file_change() || error.is_shard_missing() => true,
            // A value that has no encoding is not an error of the transfer; a damaged page may be one.
            DatasetError::Described(error) => error.id() != "parquet-corrupt",
            error => error.id() == "hash-absent",
        }
    }
}

fn cache_error(error: DatasetError) -> CacheError<DatasetError> {
    match error {
        DatasetError::Storage(error) => CacheError::Storage(error),
        error => CacheError::Blob(Box::new(error)),
    }
}

/// Opens a shard of a dataset that is read in place. `known` are its files if this process has checked them.
fn open_in_place(
    blobs: &ShardBlobs,
    shard: usize,
    known: Option<KnownFiles>,
) -> Result<(OpenShard, Option<KnownFiles>), DatasetError> {
    let catalog = &blobs.catalog;
    let absent = || catalog.no_shard(shard);
    let (stream, number) = catalog.stream_of(shard).ok_or_else(absent)?;
    let entry = stream.shards.get(number).ok_or_else(absent)?;
    let dir = &stream.local;
    let open = |name: &str| {
        dir.open_file(name)
            .map_err(|error| origin::named(error, origin::missing(catalog, shard)))
    };
    let data = open(&entry.data().basename)?;
    if let Some(file) = entry.raw_file() {
        origin::check_listed(catalog, shard, file, &data)?;
        // PERF: does not store an identity per file, because there may be a million files.
        return Ok((OpenShard::map(catalog, shard, dir, &data, None)?, None));
    }
    let info = entry.table();
    let table = info.map(|info| open(&info.basename)).transpose()?;
    let identity = table.as_ref().map(FileHandle::identity);
    let found = (data.identity()?, identity.transpose()?);
    let trust = if known == Some(found) {
        Trust::Known
    } else {
        Trust::Own
    };
    let files = [Some((entry.data(), &data)), info.zip(table.as_ref())];
    for (info, file) in files.into_iter().flatten() {
        let _step = blobs.timings.start(Activity::Hash);
        check::check_file(catalog, shard, info, file, trust)?;
    }
    let open = OpenShard::map(catalog, shard, dir, &data, table.as_ref())?;
    Ok((open, Some(found)))
}

/// The encoded bytes of a sample, and their offset in the shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extract {
    pub(crate) begin: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Extract {
    pub(crate) fn piece(&self) -> Piece<'_> {
        Piece {
            begin: self.begin,
            bytes: &self.bytes,
        }
    }
}

/// The cache of a reader's shards.
pub(crate) struct ShardCache {
    catalog: Arc<Catalog>,
    blobs: Arc<ShardBlobs>,
    cache: Arc<Cache<ShardBlobs>>,
    /// The server of this node has a weak reference to it.
    _served: Option<Arc<dyn PeerFiles>>,
}

impl Drop for ShardCache {
    fn drop(&mut self) {
        // The server of this node may hold the cache for a moment longer.
        self.cache.stop();
    }
}

impl fmt::Debug for ShardCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cache.fmt(f)
    }
}

impl Deref for ShardCache {
    type Target = Cache<ShardBlobs>;

    fn deref(&self) -> &Self::Target {
        &self.cache
    }
}

impl ShardCache {
    pub(crate) fn new(
        catalog: Arc<Catalog>,
        timings: Arc<Timings>,
        options: &CacheOptions,
        cluster: Option<Cluster>,
    ) -> Result<Self, Error> {
        let blobs = Arc::new(ShardBlobs {
            catalog: Arc::clone(&catalog),
            timings,
            cluster: cluster.map(Arc::new),
            doubted: Mutex::default(),
        });
        let cache = Arc::new(Cache::new(Arc::clone(&blobs), options)?);
        let mut served = None;
        if let Some(cluster) = &blobs.cluster {
            let files: Arc<dyn PeerFiles> = Arc::new(ServedShards {
                catalog: Arc::clone(&catalog),
                cache: Arc::clone(&cache),
                cluster: Arc::clone(cluster),
            });
            cluster.serve(Arc::downgrade(&files))?;
            served = Some(files);
        }
        Ok(Self {
            catalog,
            blobs,
            cache,
            _served: served,
        })
    }

    /// Returns the counters of the fetches from other nodes in this process.
    pub(crate) fn cluster_stats(&self) -> ClusterStats {
        let cluster = self.blobs.cluster.as_ref();
        cluster.map_or_else(ClusterStats::default, |cluster| cluster.stats())
    }

    /// Discards what is known about a shard whose files changed. The next use verifies it again.
    pub(crate) fn forget_verification(&self, shard: usize) {
        if let Some(engine) = self.started() {
            engine.forget_verification(shard);
        }
    }

    /// Returns the encoded bytes of samples, each given by its shard and its position in the shard. Samples of
    /// uncompressed shards that are not cached are fetched individually, all at once; their hash cannot be checked.
    /// The whole shard is fetched if it is compressed or if hashes have to be checked.
    pub(crate) fn samples(&self, wanted: &[(usize, u64)]) -> Result<Vec<Extract>, Error> {
        let engine = self.engine()?;
        let mut found: Vec<Extract> = vec![Extract::default(); wanted.len()];
        let mut ranges = Vec::new();
        let mut whole = Vec::new();
        for (index, &(shard, at)) in wanted.iter().enumerate() {
            let entry = self.catalog.entry(shard);
            let entry = entry.ok_or_else(|| self.catalog.no_shard(shard))?;
            if self.blobs.is_divisible(shard)
                && let Some(range) = entry.offset_range(at)
                && !engine.is_at_hand(shard)
            {
                // INVARIANT: below the number of samples, so the offset table contains it.
                if at >= entry.samples() {
                    return Err(self.catalog.changed(shard).into());
                }
                ranges.push((index, shard, range));
                continue;
            }
            whole.push((shard, at, index));
        }
        // Sorted by shard, so that each shard is fetched at most once, even if only one can be kept.
        whole.sort_unstable();
        let mut last: Option<SharedShard> = None;
        for (shard, at, index) in whole {
            let open = match last.take().filter(|open| open.number() == shard) {
                Some(open) => open,
                None => engine.whole(shard)?,
            };
            let piece = open.sample(at).ok_or_else(|| self.catalog.changed(shard))?;
            let mut bytes = Vec::new();
            if open.has_late() {
                let joined = open.join_sample(at, &mut bytes);
                joined.ok_or_else(|| self.catalog.changed(shard))?;
            } else {
                bytes.extend_from_slice(piece.bytes);
            }
            let extract = Extract {
                begin: piece.begin,
                bytes,
            };
            if let Err(error) = open.check(&self.catalog) {
                engine.forget_verification(shard);
                return Err(error.into());
            }
            if let Some(slot) = found.get_mut(index) {
                *slot = extract;
            }
            last = Some(open);
        }
        if !ranges.is_empty() {
            engine.count_parts(ranges.len() as u64);
            let _step = self.blobs.timings.start(Activity::Fetch);
            self.read_individually(ranges, &mut found)?;
        }
        Ok(found)
    }

    /// Fetches the offsets of the samples, then the samples: two rounds of concurrent requests.
    fn read_individually(
        &self,
        wanted: Vec<(usize, usize, Range<u64>)>,
        found: &mut [Extract],
    ) -> Result<(), Error> {
        let catalog = &self.catalog;
        let offsets: Vec<FileRange> = wanted
            .iter()
            .map(|(_, shard, range)| {
                let has_table = catalog
                    .entry(*shard)
                    .is_some_and(|entry| entry.table().is_some());
                FileRange {
                    shard: *shard,
                    part: if has_table {
                        BlobPart::Table
                    } else {
                        BlobPart::Data
                    },
                    range: range.clone(),
                }
            })
            .collect();
        let mut samples = Vec::with_capacity(offsets.len());
        for (piece, bytes) in offsets.iter().zip(origin::read_ranges(catalog, &offsets)) {
            let bytes = bytes?;
            let entry = catalog.entry(piece.shard);
            let range = entry.and_then(|entry| entry.range_in(&bytes));
            let range = range.ok_or_else(|| catalog.changed(piece.shard))?;
            let limit = ("sample-bytes", catalog.limits().sample_bytes);
            let path = || PathBuf::from(catalog.location(piece.shard).file);
            DatasetError::check_limit(limit, range.end - range.start, path)?;
            samples.push(FileRange {
                shard: piece.shard,
                part: BlobPart::Data,
                range,
            });
        }
        let read = origin::read_ranges(catalog, &samples);
        for (((index, ..), piece), bytes) in wanted.into_iter().zip(samples).zip(read) {
            let bytes = bytes?;
            if bytes.len() as u64 != piece.range.end - piece.range.start {
                return Err(catalog.changed(piece.shard).into());
            }
            if let Some(slot) = found.get_mut(index) {
                *slot = Extract {
                    begin: piece.range.start,
                    bytes,
                };
            }
        }
        Ok(())
    }
}
