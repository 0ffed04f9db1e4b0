//! Opens streams for training: returns epochs of batches, and single samples.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shardmill_cache::{Activity, Timings, TraceStep};
use shardmill_core::{Error, Limits, escape, lock};
use shardmill_mds::{DType, HashAlgo};
use shardmill_mmap::Pool;
use shardmill_order::{Entry as OrderEntry, EpochConfig, SampleId, Skip, World};
use shardmill_peers::{Cluster, ClusterOptions, ClusterStats};
use shardmill_storage::{Folder, RemoteOptions, RemoteStats, raise_file_limit};

use crate::batch::{Batch, Held};
use crate::batches::{BatchOptions, Batches};
use crate::cached::{Extract, ShardCache, SharedShard};
use crate::collate::Collator;
use crate::context::FillContext;
use crate::error::ReaderProblem;
use crate::packed::{TokenBatches, TokenOptions, measure};
use crate::prefetch_planner::PrefetchPlanner;
use crate::ranges::Ranges;
use shardmill_cache::{Access, Blob, CacheOptions, CacheStats, Cancel};
use shardmill_dataset::{
    Catalog, CatalogOptions, DatasetError, Entry, FileEntry, Keys, Schema, StreamOptions,
    TarSample, Window,
};

/// Free memory that the pool keeps for the next batches.
const POOL_BYTES: usize = 64 << 20;
/// The bytes that a connection transfers in the latency of one request: 30 ms at 35 MB/s.
const REQUEST_BYTES: u64 = 1 << 20;

/// Options for opening streams.
#[derive(Clone, Debug, Default)]
pub struct ReaderOptions {
    /// Limits on what a file may demand, such as memory.
    pub limits: Limits,
    /// How to connect to remote stores.
    pub remote: RemoteOptions,
    /// The size of the cache, and how shards are fetched.
    pub cache: CacheOptions,
    /// The hash that every shard must match before it is used. With `None`, a fetched shard is checked against the
    /// strongest hash of its index entry. A shard that is read in place is then not checked.
    pub validate_hash: Option<HashAlgo>,
    /// The neighbours that are returned with each sample.
    pub window: Option<Arc<Window>>,
    /// The nodes that share their caches. Compressed shards are then kept compressed as well, because the nodes
    /// exchange them in this form.
    pub cluster: Option<ClusterOptions>,
}

/// Streams that are read together. A reader can be shared between threads.
///
/// ```
/// # use shardmill_dataset::StreamOptions;
/// # use shardmill_order::World;
/// # use shardmill_core::Error;
/// # use shardmill_reader::{BatchOptions, Reader, ReaderOptions};
/// # fn read() -> Result<(), Error> {
/// let reader = Reader::open(&[StreamOptions::local("data/train")], &ReaderOptions::default())?;
/// let mut config = reader.epoch_config(64, World::SINGLE);
/// config.shuffle.enabled = true;
/// loop {
///     let mut batches = reader.epoch(&config, BatchOptions::default())?;
///     while let Some(batch) = batches.next_batch()? {
///         println!("step {}: {} samples, {} bytes", batch.step, batch.len(), batch.bytes());
///     }
///     if config.epoch == 2 {
///         return Ok(());
///     }
///     config = batches.next_config();
/// }
/// # }
/// # assert!(read().is_err());
/// ```
#[derive(Debug)]
pub struct Reader {
    context: Arc<FillContext>,
    prefetch_planner: Arc<PrefetchPlanner>,
    /// The number of single samples read from each shard since the whole shard was last fetched.
    single_reads: Mutex<HashMap<usize, u64>>,
    /// The raw file that was last read as a single sample.
    last: Mutex<Option<FileUse>>,
    /// The map from keys to samples; the first lookup of a key builds it.
    keys: Mutex<Option<Arc<Keys>>>,
}

/// One encoded sample.
#[derive(Clone, Debug)]
pub struct EncodedSample {
    /// The columns of the sample.
    pub schema: Arc<Schema>,
    /// The bytes of the sample: as in the shard, or as an encoded MDS sample if the shard is a tar file or a raw file.
    pub bytes: Vec<u8>,
    /// Pins the raw file if its path is among the values.
    pub held: Held,
}

impl Reader {
    /// Opens the streams. This reads their indexes only.
    ///
    /// # Errors
    ///
    /// Errors of datasets: an index that is missing or cannot be used, a hash that the index lacks, options that
    /// contradict each other, or an error of the remote.
    pub fn open(streams: &[StreamOptions], options: &ReaderOptions) -> Result<Self, Error> {
        raise_file_limit();
        let timings = Arc::new(Timings::default());
        let step = timings.start(Activity::Open);
        let cluster = options.cluster.clone().map(Cluster::new).transpose()?;
        let mut streams = Cow::Borrowed(streams);
        if cluster.is_some() {
            for stream in streams.to_mut() {
                stream.keep_zip = true;
            }
        }
        let catalog = Arc::new(Catalog::open(
            &streams,
            &CatalogOptions {
                limits: options.limits.clone(),
                remote: options.remote.clone(),
                validate: options.validate_hash,
                window: options.window.clone(),
            },
        )?);
        drop(step);
        let context = Arc::new(FillContext {
            shard_cache: ShardCache::new(
                Arc::clone(&catalog),
                Arc::clone(&timings),
                &options.cache,
                cluster,
            )?,
            catalog,
            pool: Pool::new(POOL_BYTES),
            timings,
        });
        Ok(Self {
            prefetch_planner: Arc::new(PrefetchPlanner::new(Arc::clone(&context))),
            context,
            single_reads: Mutex::default(),
            last: Mutex::default(),
            keys: Mutex::default(),
        })
    }

    /// Returns the shards and samples of all streams.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.context.catalog
    }

    /// Returns the ranges of deleted samples of a stream, by stored number.
    #[must_use]
    pub fn deleted_samples(&self, stream: usize) -> Vec<(u64, u64)> {
        let stream = self.context.catalog.streams().get(stream);
        stream.map_or_else(Vec::new, |stream| {
            stream.samples.live.deleted_ranges().collect()
        })
    }

    /// Returns the size of the largest shard, raw and compressed files together, in bytes.
    #[must_use]
    pub fn largest_shard(&self) -> u64 {
        let catalog = &self.context.catalog;
        (0..catalog.len())
            .filter_map(|shard| catalog.entry(shard))
            .map(|entry| entry.blob(true, true).total_bytes())
            .max()
            .unwrap_or(0)
    }

    /// Returns the size of all shards before compression, in bytes.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        let catalog = &self.context.catalog;
        let sizes = (0..catalog.len()).filter_map(|shard| Some(catalog.entry(shard)?.data().bytes));
        sizes.fold(0, u64::saturating_add)
    }

    /// Returns a reader of consecutive samples.
    #[must_use]
    pub fn ranges(&self) -> Ranges {
        Ranges::new(&self.context)
    }

    /// Returns the columns of a sample; `None` for a sample that does not exist.
    #[must_use]
    pub fn schema(&self, sample: u64) -> Option<&Arc<Schema>> {
        let (shard, _) = self.context.catalog.locate(sample)?;
        self.context.catalog.schema(shard)
    }

    /// Returns a configuration of epoch 0 of these streams with default values. Change it as needed, then pass it to
    /// [`Reader::epoch`].
    #[must_use]
    pub fn epoch_config(&self, batch_size: u64, world: World) -> EpochConfig {
        EpochConfig::new(self.context.catalog.stream_configs(), batch_size, world)
    }

    /// Returns the batches of a rank in an epoch. The order of the following epoch is computed in the background, so
    /// the next epoch starts without a pause if its configuration comes from [`Batches::next_config`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid configuration.
    pub fn epoch(&self, config: &EpochConfig, options: BatchOptions) -> Result<Batches, Error> {
        self.epoch_without(config, options, &Skip::default())
    }

    /// Like [`Reader::epoch`], but leaves out some steps and samples.
    ///
    /// # Errors
    ///
    /// As [`Reader::epoch`], and `InvalidInput` if the skipped samples are not whole steps.
    pub fn epoch_without(
        &self,
        config: &EpochConfig,
        options: BatchOptions,
        skip: &Skip,
    ) -> Result<Batches, Error> {
        let node = options.rank / config.world.ranks_per_node.max(1);
        let (epoch, tick) = self.prefetch_planner.begin(config, node)?;
        Batches::new(
            Arc::clone(&self.context),
            Arc::clone(&self.prefetch_planner),
            (epoch.without(skip)?, config.clone(), tick),
            options,
        )
    }

    /// Returns the tokens of a rank in an epoch, in rows. The samples of a step in `config` are rows here, as are the
    /// position of its state and the ranges of `skip`. The tokens of skipped samples are padding.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an invalid configuration, lengths that are not those of the samples, or skipped rows
    /// that are not whole steps.
    pub fn token_batches(
        &self,
        config: &EpochConfig,
        options: BatchOptions,
        tokens: TokenOptions,
        skip: &Skip,
    ) -> Result<TokenBatches, Error> {
        TokenBatches::new(
            Arc::clone(&self.context),
            Arc::clone(&self.prefetch_planner),
            config,
            options,
            (tokens, skip),
        )
    }

    /// Returns the number of tokens of every sample. This reads all samples.
    ///
    /// # Errors
    ///
    /// [`ReaderProblem::TokensColumn`]; errors of fetching, opening or reading a shard.
    pub fn token_lengths(&self, column: &str, dtype: Option<DType>) -> Result<Vec<u32>, Error> {
        measure(self.ranges(), &self.context.catalog, column, dtype)
    }

    /// Reads one sample, by its number over all streams.
    ///
    /// A raw file whose path is returned stays in the cache until the next call of this function, and while the result
    /// exists. For an uncompressed shard in a store, only the bytes of the sample are fetched. Once many samples of the
    /// shard were read this way, the whole shard is fetched, because that then costs less.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a sample that the streams do not have; errors of reading the shard.
    pub fn sample(&self, sample: u64) -> Result<EncodedSample, Error> {
        let catalog = &self.context.catalog;
        let (shard, at) = self.context.locate(sample)?;
        if catalog
            .entry(shard)
            .is_some_and(|entry| entry.raw_file().is_some())
        {
            return self.file_sample(shard);
        }
        self.count_read(shard)?;
        let found = self.extract(shard, at)?;
        let mut encoded = Vec::new();
        let schema = catalog
            .encode(shard, found.piece(), &mut encoded)
            .map_err(|problem| catalog.refused(shard, at, problem))?;
        let bytes = if schema.needs_encoding() {
            encoded
        } else {
            found.bytes
        };
        Ok(EncodedSample {
            schema,
            bytes,
            held: Held::default(),
        })
    }

    /// Reads the window of one sample, by its number over all streams. Without a window this is the sample. Shards are
    /// fetched as by [`Reader::sample`].
    ///
    /// # Errors
    ///
    /// As for [`Reader::sample`].
    pub fn window(&self, sample: u64) -> Result<Batch, Error> {
        let (shard, _) = self.context.locate(sample)?;
        self.count_read(shard)?;
        let entry = OrderEntry {
            sample: SampleId(sample),
            repeated: false,
        };
        Collator::without_shards(&self.context).fill_one(entry)
    }

    /// Returns whether a sample and its neighbours can be read without access to a store or a source folder.
    #[must_use]
    pub fn is_at_hand(&self, sample: u64) -> bool {
        let catalog = &self.context.catalog;
        let mut all = true;
        if let Some(position) = catalog.locate(sample) {
            catalog.each_neighbour(position, |shard, _, _| {
                all &= !self.context.is_fetched(shard)
                    || self.context.shard_cache.get(shard).is_some();
            });
        }
        all
    }

    /// Returns what the threads that fill batches share.
    pub(crate) const fn context(&self) -> &Arc<FillContext> {
        &self.context
    }

    /// Returns the cache of shards.
    pub(crate) fn shard_cache(&self) -> &ShardCache {
        &self.context.shard_cache
    }

    /// Counts a single-sample read of a shard, and fetches the whole shard if it is read often.
    fn count_read(&self, shard: usize) -> Result<(), Error> {
        let shard_cache = &self.context.shard_cache;
        if !self.context.is_fetched(shard) || shard_cache.get(shard).is_some() {
            return Ok(());
        }
        let entry = self.context.catalog.entry(shard);
        let bytes = entry.map_or(0, |entry| entry.data().bytes);
        let is_often = {
            let mut single_reads = lock(&self.single_reads);
            let count = single_reads.entry(shard).or_default();
            *count += 1;
            let is_often = *count > (bytes / REQUEST_BYTES).max(1);
            if is_often {
                *count = 0;
            }
            is_often
        };
        if is_often {
            // If there is no space, its samples are still read individually.
            shard_cache.engine()?.need_now(shard, &Cancel::default())?;
        }
        Ok(())
    }

    fn extract(&self, shard: usize, at: u64) -> Result<Extract, Error> {
        let found = self.context.shard_cache.samples(&[(shard, at)])?.pop();
        Ok(found.ok_or_else(|| self.context.catalog.changed(shard))?)
    }

    /// Reads a raw file as a sample.
    fn file_sample(&self, shard: usize) -> Result<EncodedSample, Error> {
        let catalog = &self.context.catalog;
        // Dropped outside the lock, because the drop may close the file.
        let before = lock(&self.last).take();
        drop(before);
        let found = FileUse::new(&self.context, shard, &Cancel::default())?;
        let mut bytes = Vec::new();
        let whole;
        let piece = match &found.open {
            Some(open) => open.sample(0),
            None => {
                whole = self.extract(shard, 0)?;
                Some(whole.piece())
            }
        };
        let changed = || catalog.changed(shard);
        let schema = catalog
            .encode(shard, piece.ok_or_else(changed)?, &mut bytes)
            .map_err(|problem| catalog.refused(shard, 0, problem))?;
        let open = found.open.as_ref();
        if let Some(Err(error)) = open.map(|open| open.check(catalog)) {
            self.context.shard_cache.forget_verification(shard);
            return Err(error.into());
        }
        let pinned = open.filter(|open| open.is_pinned()).cloned();
        let held = Held(pinned.into_iter().collect());
        let before = lock(&self.last).replace(found);
        drop(before);
        Ok(EncodedSample {
            schema,
            bytes,
            held,
        })
    }

    /// Returns the number of the sample of a tar file that has this key; `None` if there is none.
    ///
    /// The first call reads the headers of all tar files and keeps 16 bytes for each sample. Every call reads the
    /// samples that it finds, to compare their keys.
    ///
    /// # Errors
    ///
    /// [`ReaderProblem::KeyTwice`]; an error of the dataset if the samples have no keys or a shard cannot be read.
    pub fn find_key(&self, key: &str) -> Result<Option<u64>, Error> {
        let keys = {
            // The lock is held while the map is built: other threads that look up keys wait for it.
            let mut keys = lock(&self.keys);
            match &*keys {
                Some(keys) => Arc::clone(keys),
                None => Arc::clone(keys.insert(Arc::new(Keys::read(&self.context.catalog)?))),
            }
        };
        let mut found = None;
        for sample in keys.candidates(key) {
            if self.key_of(sample)?.as_deref() != Some(key) {
                continue;
            }
            if let Some(first) = found {
                return Err(ReaderProblem::KeyTwice.error(format!(
                    "the key `{}` is that of sample {first} and of sample {sample}",
                    escape(key)
                )));
            }
            found = Some(sample);
        }
        Ok(found)
    }

    /// Returns the key of a sample of a tar file; `None` for other samples.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a sample that the streams do not have; errors of reading the sample.
    pub fn key_of(&self, sample: u64) -> Result<Option<String>, Error> {
        let catalog = &self.context.catalog;
        let (shard, at) = self.context.locate(sample)?;
        if !matches!(catalog.entry(shard), Some(Entry::Tar(_))) {
            return Ok(None);
        }
        let found = self.extract(shard, at)?;
        let piece = found.piece();
        match TarSample::read(piece.begin, piece.bytes, catalog.limits()) {
            Ok(sample) => Ok(Some(String::from_utf8_lossy(sample.key()).into_owned())),
            Err(problem) => Err(catalog.refused(shard, at, problem).into()),
        }
    }

    /// Returns the path of a raw file in its tree; `None` for samples that are not raw files.
    #[must_use]
    pub fn file_path(&self, sample: u64) -> Option<&str> {
        let (shard, _) = self.context.catalog.locate(sample)?;
        let file = self.context.catalog.entry(shard)?.raw_file()?;
        Some(&file.info.basename)
    }

    /// Fetches a raw file if needed, and pins it: the cache does not evict it while the result exists.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a sample that the streams do not have; `Resource` if other pins fill the cache
    /// for too long; errors of fetching the file.
    pub fn hold_file(&self, sample: u64) -> Result<FileUse, Error> {
        let shard = self.shard_of(sample)?;
        self.raw_file(shard)?;
        FileUse::new(&self.context, shard, &Cancel::default())
    }

    fn shard_of(&self, sample: u64) -> Result<usize, Error> {
        Ok(self.context.locate(sample)?.0)
    }

    fn raw_file(&self, shard: usize) -> Result<&FileEntry, Error> {
        let entry = self.context.catalog.entry(shard);
        let file = entry.and_then(Entry::raw_file);
        Ok(file.ok_or_else(DatasetError::no_tree)?)
    }

    /// Reads the bytes of a raw file from its source, bypassing the cache.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a sample that the streams do not have,
    /// [`DatasetProblem::NoTree`](shardmill_dataset::DatasetProblem::NoTree); errors of reading the source.
    pub fn read_file(&self, sample: u64) -> Result<Vec<u8>, Error> {
        let shard = self.shard_of(sample)?;
        self.raw_file(shard)?;
        let open = self.context.shard_cache.engine()?.load_once(shard)?;
        Ok(open
            .sample(0)
            .map_or_else(Vec::new, |piece| piece.bytes.to_vec()))
    }

    /// Checks that a raw file at its source is still the one that was listed.
    ///
    /// # Errors
    ///
    /// [`DatasetProblem::FileMissing`](shardmill_dataset::DatasetProblem::FileMissing),
    /// [`DatasetProblem::ListedFileChanged`](shardmill_dataset::DatasetProblem::ListedFileChanged); errors of the
    /// source.
    pub fn check_file(&self, sample: u64) -> Result<(), Error> {
        let catalog = &self.context.catalog;
        let shard = self.shard_of(sample)?;
        let file = self.raw_file(shard)?;
        let name = &file.info.basename;
        let (stream, _) = catalog
            .stream_of(shard)
            .ok_or_else(|| catalog.no_shard(shard))?;
        let found = match stream.source() {
            Folder::Store(store) => {
                let found = store.remote().look_up(name, &mut |_| true)?;
                found.map(|found| {
                    let (listed, now) = (file.tag.trim_matches('"'), found.tag.trim_matches('"'));
                    // Without a tag on both sides there is nothing to compare.
                    let same = listed == now || listed.is_empty() || now.is_empty();
                    (found.bytes, same)
                })
            }
            Folder::Local(dir) => match dir.open_file(name) {
                Ok(found) => Some((found.len(), file.is(&found))),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error.into()),
            },
        };
        let location = catalog.location(shard);
        match found {
            None => Err(DatasetError::file_missing(location).into()),
            Some((bytes, true)) if bytes == file.info.bytes => Ok(()),
            Some((found, _)) => {
                let is_object = stream.source().is_store();
                let listed = file.info.bytes;
                Err(DatasetError::listed_file_changed(location, listed, found, is_object).into())
            }
        }
    }

    /// Returns the smallest cache limit that can hold the `count` largest raw files at the same time; 0 if the cache
    /// keeps no raw files.
    pub fn least_limit(&self, count: usize) -> Result<u64, Error> {
        let mut sizes: Vec<u64> = Vec::new();
        for stream in self.context.catalog.streams() {
            let is_remote = stream.origin.is_some();
            let blobs = stream.shards.iter();
            let blobs = blobs.map(|entry| entry.blob(is_remote, false));
            let kept = blobs.filter(|blob| blob.needs_file && blob.is_kept);
            sizes.extend(kept.map(Blob::cached_bytes));
        }
        if sizes.is_empty() {
            return Ok(0);
        }
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let base = self.context.shard_cache.engine()?.base();
        let largest = sizes.iter().take(count);
        Ok(largest.fold(base, |sum, size| sum.saturating_add(*size)))
    }

    /// Returns the smallest cache limit that these streams can be opened with; 0 if any limit works.
    pub fn least_cache_limit(&self) -> Result<u64, Error> {
        Ok(self.context.shard_cache.engine()?.minimum())
    }

    /// Prefetches raw files in this order, in the background, as far as the cache has space. Returns how many of them
    /// were not known to be in the cache.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a sample that the streams do not have.
    pub fn preload(&self, samples: &[u64]) -> Result<u64, Error> {
        let shards = samples.iter().map(|sample| self.shard_of(*sample));
        let shards = shards.collect::<Result<Vec<_>, _>>()?;
        Ok(self.context.shard_cache.engine()?.preload(&shards))
    }

    /// Returns how many of the prefetched files are still queued or in flight.
    #[must_use]
    pub fn preloading(&self) -> u64 {
        let engine = self.context.shard_cache.started();
        engine.map_or(0, |engine| engine.preloading())
    }

    /// Returns whether the shard of a sample is on this machine.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a sample that the streams do not have; errors of reading the cache folder.
    pub fn is_here(&self, sample: u64) -> Result<bool, Error> {
        let shard = self.shard_of(sample)?;
        Ok(self.context.shard_cache.engine()?.has(shard)?)
    }

    /// Returns the statistics of all requests to stores so far, summed over the streams. Streams of one store share its
    /// connections, so the connection counts are the maximum over all streams.
    #[must_use]
    pub fn remote_stats(&self) -> RemoteStats {
        let mut all = RemoteStats::default();
        for stream in self.context.catalog.streams() {
            if let Folder::Store(store) = stream.source() {
                let stats = store.remote().stats();
                all.requests += stats.requests;
                all.retries += stats.retries;
                all.throttled += stats.throttled;
                all.bytes += stats.bytes;
                all.max_connections = all.max_connections.max(stats.max_connections);
                all.connections = all.connections.max(stats.connections);
            }
        }
        all
    }

    /// Returns the statistics of the fetches from other nodes so far.
    #[must_use]
    pub fn cluster_stats(&self) -> ClusterStats {
        self.context.shard_cache.cluster_stats()
    }

    /// Returns the statistics of the cache so far.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.context.shard_cache.stats()
    }

    /// Returns for how long at least one thread was doing this since the reader was opened.
    #[must_use]
    pub fn busy(&self, activity: Activity) -> Duration {
        self.context.timings.busy(activity)
    }

    /// Begins to record every step of this reader in memory. An earlier record that was not taken is discarded.
    pub fn start_trace(&self) {
        self.context.timings.start_trace();
    }

    /// Stops recording, and returns the steps that ended since [`Self::start_trace`], at most [`MAX_TRACE_STEPS`].
    ///
    /// [`MAX_TRACE_STEPS`]: crate::MAX_TRACE_STEPS
    #[must_use]
    pub fn end_trace(&self) -> Vec<TraceStep> {
        self.context.timings.end_trace()
    }
}

/// A raw file in use: it is pinned until this is dropped.
#[derive(Debug)]
pub struct FileUse {
    context: Arc<FillContext>,
    shard: usize,
    /// `None` for a file that is read from its source each time, because the cache has no space for it.
    open: Option<SharedShard>,
}

impl FileUse {
    fn new(context: &Arc<FillContext>, shard: usize, cancel: &Cancel) -> Result<Self, Error> {
        let engine = context.shard_cache.engine()?;
        let open = match engine.need_now(shard, cancel)? {
            Access::Open(open) => Some(open),
            Access::Uncached => None,
        };
        Ok(Self {
            context: Arc::clone(context),
            shard,
            open,
        })
    }

    /// Returns the local path of the file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let path = self.context.catalog.file_path(self.shard);
        path.unwrap_or_default().into()
    }
}

impl Drop for FileUse {
    fn drop(&mut self) {
        drop(self.open.take());
        if let Some(engine) = self.context.shard_cache.started() {
            engine.close(self.shard);
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The cache does not shut down while files are pinned.
        let last = self
            .last
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(last);
        self.prefetch_planner.stop();
    }
}
