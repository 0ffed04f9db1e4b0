//! Streams, opened for training: epochs of batches, and single samples.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::Limits;
use shardmill_mds::HashAlgo;
use shardmill_memory::Pool;
use shardmill_order::{EpochConfig, World};
use shardmill_storage::{RemoteOptions, RemoteStats};

use crate::batches::{BatchOptions, Batches};
use crate::catalog::{Catalog, CatalogOptions, Origin, StreamOptions};
use crate::error::ReaderError;
use crate::fill::Supply;
use crate::foresight::Foresight;
use crate::residency::{CacheOptions, CacheStats, Residency};
use crate::schema::Schema;

/// Free memory that is kept for the next batches.
const POOL_BYTES: usize = 64 << 20;
/// What comes through a connection in the time that a request takes to be answered: 30 ms at 35 MB/s.
const REQUEST_BYTES: u64 = 1 << 20;

/// How streams are opened.
#[derive(Clone, Debug, Default)]
pub struct ReaderOptions {
    /// How much a file may ask for.
    pub limits: Limits,
    /// How remote stores are talked to.
    pub remote: RemoteOptions,
    /// How much of the shards is kept, and how they are fetched.
    pub cache: CacheOptions,
    /// The hash that every shard has to pass before it is used; `None` for the strongest that a fetched shard has, and
    /// for none of a shard that is read where it lies.
    pub validate_hash: Option<HashAlgo>,
}

/// Streams that are read together. Shared between threads freely.
///
/// ```
/// # use shardmill_reader::{BatchOptions, Reader, ReaderError, ReaderOptions, StreamOptions};
/// # use shardmill_order::World;
/// # fn read() -> Result<(), ReaderError> {
/// let reader = Reader::open(&[StreamOptions::local("data/train")], &ReaderOptions::default())?;
/// let mut config = reader.epoch_config(64, World::SINGLE);
/// config.shuffle = true;
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
    supply: Arc<Supply>,
    foresight: Arc<Foresight>,
    /// Samples of each shard that were asked for one by one since it was last fetched as a whole.
    asked: Mutex<HashMap<usize, u64>>,
}

impl Reader {
    /// Opens the streams: reads their indexes, nothing else.
    ///
    /// # Errors
    ///
    /// [`ReaderError::IndexMissing`], [`ReaderError::Index`], [`ReaderError::HashAbsent`]; options that contradict each
    /// other; whatever keeps a remote from being read.
    pub fn open(streams: &[StreamOptions], options: &ReaderOptions) -> Result<Self, ReaderError> {
        let catalog = Arc::new(Catalog::open(
            streams,
            &CatalogOptions {
                limits: options.limits.clone(),
                remote: options.remote.clone(),
                validate: options.validate_hash,
            },
        )?);
        let supply = Arc::new(Supply {
            residency: Residency::new(Arc::clone(&catalog), &options.cache)?,
            catalog,
            pool: Pool::new(POOL_BYTES),
        });
        Ok(Self {
            foresight: Arc::new(Foresight::new(Arc::clone(&supply))),
            supply,
            asked: Mutex::default(),
        })
    }

    /// Samples of all streams.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.supply.catalog.samples()
    }

    /// Shards of all streams.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.supply.catalog.len()
    }

    /// The bytes of the largest shard, raw and compressed files together.
    #[must_use]
    pub fn largest_shard(&self) -> u64 {
        let catalog = &self.supply.catalog;
        (0..catalog.len())
            .filter_map(|shard| catalog.entry(shard))
            .map(|entry| entry.files().map(|(_, file)| file.bytes).sum())
            .max()
            .unwrap_or(0)
    }

    /// The columns of a sample; `None` for a sample that there is not.
    #[must_use]
    pub fn schema(&self, sample: u64) -> Option<&Arc<Schema>> {
        let (shard, _) = self.supply.catalog.locate(sample)?;
        self.supply.catalog.schema(shard)
    }

    /// The columns, where they are the same in all shards.
    #[must_use]
    pub fn single_schema(&self) -> Option<&Arc<Schema>> {
        self.supply.catalog.single_schema()
    }

    /// The columns that occur, each once.
    #[must_use]
    pub fn schemas(&self) -> &[Arc<Schema>] {
        self.supply.catalog.schemas()
    }

    /// A configuration of epoch 0 of these streams with everything else as by default: to be changed, then given to
    /// [`Reader::epoch`].
    #[must_use]
    pub fn epoch_config(&self, batch_size: u64, world: World) -> EpochConfig {
        EpochConfig::new(self.supply.catalog.stream_configs(), batch_size, world)
    }

    /// The batches of a rank in an epoch. The order of the epoch behind it is made meanwhile, so that there is no pause
    /// between the two: ask for it with [`Batches::next_config`].
    ///
    /// # Errors
    ///
    /// [`ReaderError::Order`] for a configuration that cannot be carried out.
    pub fn epoch(
        &self,
        config: &EpochConfig,
        options: BatchOptions,
    ) -> Result<Batches, ReaderError> {
        let node = options.rank / config.world.ranks_per_node.max(1);
        let (epoch, tick) = self.foresight.begin(config, node)?;
        Batches::new(
            Arc::clone(&self.supply),
            Arc::clone(&self.foresight),
            (epoch, config.clone(), tick),
            options,
        )
    }

    /// The encoded bytes of one sample, by its number through all streams. Of a shard that lies in a store,
    /// uncompressed, only these bytes are fetched; the whole shard once so many of its samples were asked for that this is
    /// less work than going on.
    ///
    /// # Errors
    ///
    /// [`ReaderError::SampleBeyond`]; whatever keeps it from being read.
    pub fn sample(&self, sample: u64) -> Result<Vec<u8>, ReaderError> {
        let catalog = &self.supply.catalog;
        let beyond = || ReaderError::SampleBeyond {
            sample,
            samples: catalog.samples(),
        };
        let place = catalog.locate(sample).ok_or_else(beyond)?;
        if self.is_asked_often(place.0) {
            self.supply.residency.bring(place.0)?;
        }
        let mut found = self.supply.residency.samples(&[place])?;
        found.pop().ok_or_else(beyond)
    }

    /// Whether a sample can be read without asking a store or another folder for anything.
    #[must_use]
    pub fn is_at_hand(&self, sample: u64) -> bool {
        let catalog = &self.supply.catalog;
        let Some((shard, _)) = catalog.locate(sample) else {
            return true;
        };
        let is_remote = catalog
            .stream_of(shard)
            .is_some_and(|(stream, _)| stream.origin.is_some());
        !is_remote || self.supply.residency.get(shard).is_some()
    }

    /// Counts a sample of a shard; whether the shard as a whole should be fetched now.
    fn is_asked_often(&self, shard: usize) -> bool {
        let catalog = &self.supply.catalog;
        let is_remote = catalog
            .stream_of(shard)
            .is_some_and(|(stream, _)| stream.origin.is_some());
        if !is_remote || self.supply.residency.get(shard).is_some() {
            return false;
        }
        let bytes = catalog.entry(shard).map_or(0, |entry| entry.raw_data.bytes);
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let count = asked.entry(shard).or_default();
        *count += 1;
        let often = *count > (bytes / REQUEST_BYTES).max(1);
        if often {
            *count = 0;
        }
        often
    }

    /// What the stores were asked for so far, all streams together; nothing for streams of folders. Streams of one store
    /// share its connections, so the most and the present number of them are the largest of any stream.
    #[must_use]
    pub fn remote_stats(&self) -> RemoteStats {
        let mut all = RemoteStats::default();
        for stream in self.supply.catalog.streams() {
            if let Some(Origin::Store(remote)) = &stream.origin {
                let stats = remote.stats();
                all.requests += stats.requests;
                all.retries += stats.retries;
                all.bytes += stats.bytes;
                all.most_connections = all.most_connections.max(stats.most_connections);
                all.connections = all.connections.max(stats.connections);
            }
        }
        all
    }

    /// What the cache has done so far.
    #[must_use]
    pub fn cache_stats(&self) -> CacheStats {
        self.supply.residency.stats()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.foresight.stop();
    }
}
