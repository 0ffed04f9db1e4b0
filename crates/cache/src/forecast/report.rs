//! The options of a forecast and its result.

use std::time::Duration;

use serde::Serialize;

use super::timeline::Point;

/// The cost of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShardCost {
    /// Bytes that are fetched.
    pub fetch_bytes: u64,
    /// Bytes that the shard takes in the cache.
    pub cache_bytes: u64,
    /// Bytes that must be free before the fetch. A compressed shard needs both of its forms.
    pub reserve_bytes: u64,
}

/// Options of a forecast.
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastOptions {
    /// Epochs of the run.
    pub epochs: u64,
    /// The most bytes in the cache of a node; `None` for no limit.
    pub cache_limit: Option<u64>,
    /// The most bytes that are fetched at a time, and the most that are prefetched by evicting other shards.
    pub in_flight: u64,
    /// The bandwidth of a node, in bytes per second.
    pub bandwidth: u64,
    /// The time from a request to its first byte.
    pub latency: Duration,
    /// The most shards that are fetched at a time.
    pub connections: usize,
    /// The time of a step, without waiting for data.
    pub step: Duration,
    /// How many epochs are known, including the current one; 0 counts as 1.
    pub known_epochs: u64,
    /// The most nodes to simulate. If the run has more, evenly spaced ones are chosen. 0 counts as 1.
    pub most_nodes: u64,
    /// The node that owns each shard, if the nodes share their caches. Then all nodes are simulated. Empty if they do not.
    pub owners: Vec<usize>,
}

impl Default for ForecastOptions {
    /// Three epochs, because the second and third show what the cache keeps. 1 GB/s, 30 ms, 64 connections and 256 MiB
    /// in flight, as in the reader; steps of 100 ms; two known epochs; 16 nodes.
    fn default() -> Self {
        Self {
            epochs: 3,
            cache_limit: None,
            in_flight: 256 << 20,
            bandwidth: 1_000_000_000,
            latency: Duration::from_millis(30),
            connections: 64,
            step: Duration::from_millis(100),
            known_epochs: 2,
            most_nodes: 16,
            owners: Vec::new(),
        }
    }
}

/// The forecast of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// The number of nodes after replication.
    pub nodes_in_all: u64,
    /// Facts of each epoch that follow from the sample order.
    pub epochs: Vec<EpochFacts>,
    /// The simulated nodes.
    pub nodes: Vec<NodeForecast>,
    /// What the nodes fetch together, if they share their caches. The fetches of each node are from the store and from
    /// other nodes then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<ClusterEpoch>,
}

/// What nodes that share their caches fetch in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterEpoch {
    /// The number of the epoch.
    pub epoch: u64,
    /// Shards fetched from the store.
    pub store_shards: u64,
    /// Their bytes.
    pub store_bytes: u64,
    /// Shards fetched from other nodes.
    pub peer_shards: u64,
    /// Their bytes.
    pub peer_bytes: u64,
}

/// Facts of an epoch that follow from the sample order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EpochFacts {
    /// The number of the epoch.
    pub epoch: u64,
    /// Samples that are drawn.
    pub samples: u64,
    /// Steps of every rank.
    pub steps: u64,
    /// Samples that are repeated so that all ranks have the same number. `None` if there are too many to count.
    pub padded: Option<u64>,
    /// Samples that are dropped, because they do not fill a batch. `None` if there are too many to count.
    pub dropped: Option<u64>,
}

/// The forecast of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeForecast {
    /// The number of the node.
    pub node: u64,
    /// With Belady's policy, as in the reader.
    pub belady: CacheForecast,
    /// With the same cache and prefetching, but least recently used eviction.
    pub lru: CacheForecast,
    /// Distinct shards that the node reads in the whole run.
    pub distinct_shards: u64,
    /// Bytes that those shards take in the cache. With this limit, no shard is fetched twice.
    pub distinct_bytes: u64,
    /// The most bytes of shards that the same batches need. With less, shards bypass the cache.
    pub needed_at_once_bytes: u64,
    /// The most bytes of shards between their first and last use in an epoch. With this limit, no shard is fetched
    /// twice in an epoch.
    pub needed_in_epoch_bytes: u64,
}

/// The forecast of one cache on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheForecast {
    /// Time from the start to the first batch.
    pub first_batch_seconds: f64,
    /// Time from the start to the end of the last step.
    pub seconds: f64,
    /// The most bytes in the cache, including shards in flight.
    pub most_resident_bytes: u64,
    /// The epochs.
    pub epochs: Vec<CacheEpoch>,
    /// The history of the whole run.
    pub timeline: Vec<Point>,
}

/// The forecast of one cache in one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CacheEpoch {
    /// The number of the epoch.
    pub epoch: u64,
    /// Access windows: ranges of batches that need a shard.
    pub uses: u64,
    /// Access windows whose shard was already in the cache.
    pub hits: u64,
    /// Shards whose fetch began in this epoch, for this epoch or the next.
    pub fetched_shards: u64,
    /// The bytes of those shards.
    pub fetched_bytes: u64,
    /// Shards evicted from the cache.
    pub evictions: u64,
    /// Shards that bypassed the cache.
    pub bypasses: u64,
    /// The bytes of those shards. Every process of the node fetches them for itself.
    pub bypassed_bytes: u64,
    /// Fetched bytes if the processes of the node are so far apart that they share no fetches. Equal to `fetched_bytes`
    /// if everything fits, or with one process.
    pub most_fetched_bytes: u64,
    /// Time from the first to the last step of the epoch.
    pub seconds: f64,
    /// Time in the epoch that was spent waiting for shards, except for the first batch of the run.
    pub wait_seconds: f64,
}

impl CacheForecast {
    /// Returns the bytes fetched in the whole run.
    #[must_use]
    pub fn fetched_bytes(&self) -> u64 {
        self.epochs.iter().map(|epoch| epoch.fetched_bytes).sum()
    }

    /// Returns the time spent waiting in the whole run, except for the first batch.
    #[must_use]
    pub fn wait_seconds(&self) -> f64 {
        self.epochs.iter().map(|epoch| epoch.wait_seconds).sum()
    }
}
