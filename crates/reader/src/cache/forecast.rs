//! What a training run will fetch, hit, pad and wait for, before it is run.
//!
//! Each node is gone through event by event, with the same [`AccessPlan`] and the same choice of who leaves as in the
//! reader: shards are fetched in the order of next use, as many at a time as connections and bytes in flight allow; a
//! shard is held from the first to the last batch that may need it; while there is nothing else to do, those that come
//! next are fetched ahead.
//!
//! What is a model and not the reader: the line is shared equally by all transfers and nothing is lost on it; each
//! transfer waits once for its first byte, however many requests it is cut into; all ranks of a node step together and
//! no node waits for another. A batch waits for the shards whose first sample lies in it; where in its stretch that is,
//! is drawn from the distribution that the number of its samples gives. A shard for which there is no room among those
//! that are needed at once is read past the cache: every process of the node that needs it fetches it once for its
//! stretch and holds it in memory.

mod net;
mod node;
mod timeline;

use std::time::Duration;

use serde::Serialize;
use shardmill_order::{BatchingMethod, Epoch, EpochConfig, OrderError};

use super::policy::AccessPlan;
use super::simulate::{Policy, share};
use node::Node;
pub use timeline::Point;

/// Entries of an epoch up to which repeated samples are counted one by one where their number does not follow from
/// the arithmetic of the deal: a tenth of a second.
const MOST_COUNTED: u64 = 1 << 22;

/// What a shard costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardCost {
    /// Bytes that are fetched.
    pub fetch_bytes: u64,
    /// Bytes that it takes up in the cache.
    pub cache_bytes: u64,
    /// Bytes that must be free before it is fetched: of a compressed shard both forms.
    pub reserve_bytes: u64,
}

/// How a run is gone through.
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastOptions {
    /// Epochs of the run.
    pub epochs: u64,
    /// Most bytes in the cache of a node; `None` for no limit.
    pub cache_limit: Option<u64>,
    /// Most bytes that are fetched at a time, and most that are fetched ahead in the place of others.
    pub in_flight: u64,
    /// Bytes a second that reach a node.
    pub bandwidth: u64,
    /// Time from a request to its first byte.
    pub latency: Duration,
    /// Shards that are fetched at a time.
    pub connections: usize,
    /// Time of a step, without waiting for data.
    pub step: Duration,
    /// Epochs that are known, the one under way included; 0 counts as 1.
    pub known_epochs: u64,
    /// Most nodes that are gone through: evenly spaced ones where there are more. 0 counts as 1.
    pub most_nodes: u64,
}

impl Default for ForecastOptions {
    /// Three epochs, as that is where the second and the third show what the cache keeps; 1 GB/s, 30 ms, 64 connections
    /// and 256 MiB in flight as the reader has them, steps of 100 ms, two known epochs, 16 nodes.
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
        }
    }
}

/// What a run will do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Forecast {
    /// Nodes of the world after replication.
    pub nodes_in_all: u64,
    /// What the order says of each epoch.
    pub epochs: Vec<EpochFacts>,
    /// The nodes that were gone through.
    pub nodes: Vec<NodeForecast>,
}

/// What the order says of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EpochFacts {
    /// The epoch.
    pub epoch: u64,
    /// Samples that are drawn.
    pub samples: u64,
    /// Steps of every rank.
    pub steps: u64,
    /// Samples that are given a second time so that all ranks have as many. `None`: too many to count.
    pub padded: Option<u64>,
    /// Samples that nobody is given, because they do not fill a batch. `None`: too many to count.
    pub dropped: Option<u64>,
}

/// What a node will do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeForecast {
    /// The node.
    pub node: u64,
    /// With the cache that knows what comes.
    pub belady: CacheForecast,
    /// With the same cache and the same fetching ahead, if it let go what was used longest ago.
    pub lru: CacheForecast,
    /// Shards that it reads in the whole run, and what they take up in the cache.
    pub distinct_shards: u64,
    /// What they take up in the cache: with so much nothing is fetched twice.
    pub distinct_bytes: u64,
    /// Most that shards which are needed in the same batches take up: with less, shards are read past the cache.
    pub needed_at_once_bytes: u64,
    /// Most that shards between their first and their last use in an epoch take up: with so much nothing is fetched
    /// twice in an epoch.
    pub needed_in_epoch_bytes: u64,
}

/// What a cache will do on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheForecast {
    /// From the start to the first batch.
    pub first_batch_seconds: f64,
    /// From the start to the end of the last step.
    pub seconds: f64,
    /// Most bytes in the cache, those that are on their way included.
    pub most_resident_bytes: u64,
    /// Each epoch.
    pub epochs: Vec<CacheEpoch>,
    /// The history of the whole run.
    pub timeline: Vec<Point>,
}

/// What a cache will do in one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CacheEpoch {
    /// The epoch.
    pub epoch: u64,
    /// Stretches in which a shard is needed.
    pub uses: u64,
    /// Those whose shard was there from before.
    pub hits: u64,
    /// Shards whose fetch began, for this epoch or the next.
    pub fetched_shards: u64,
    /// Their bytes.
    pub fetched_bytes: u64,
    /// Shards that left the cache.
    pub evictions: u64,
    /// Shards that were read past the cache.
    pub bypasses: u64,
    /// Their bytes: every process of the node fetches them for itself.
    pub bypassed_bytes: u64,
    /// Bytes fetched if the processes of the node are so far apart that none uses what another one has fetched. The same
    /// as `fetched_bytes` where everything fits, or with one process.
    pub most_fetched_bytes: u64,
    /// From its first to its last step.
    pub seconds: f64,
    /// Time in it that was spent waiting for shards, without the wait for the first batch of the run.
    pub wait_seconds: f64,
}

impl CacheForecast {
    /// Uses whose shard was there, of all from epoch `first` on; 0 where there are none.
    #[must_use]
    pub fn hit_share(&self, first: usize) -> f64 {
        let epochs = self.epochs.get(first..).unwrap_or_default().iter();
        let (hits, uses) = epochs.fold((0, 0), |(hits, uses), epoch| {
            (hits + epoch.hits, uses + epoch.uses)
        });
        share(hits, uses)
    }

    /// Bytes fetched in the whole run.
    #[must_use]
    pub fn fetched_bytes(&self) -> u64 {
        self.epochs.iter().map(|epoch| epoch.fetched_bytes).sum()
    }

    /// Time spent waiting in the whole run, without the wait for the first batch.
    #[must_use]
    pub fn wait_seconds(&self) -> f64 {
        self.epochs.iter().map(|epoch| epoch.wait_seconds).sum()
    }
}

/// Goes through a run of `config`, from its epoch on. `shards` are those of all streams; one that is missing costs
/// nothing.
///
/// Deterministic. Costs about a nanosecond a sample and a few microseconds a shard, node and epoch; memory 50 to 100
/// bytes a shard and epoch.
///
/// # Errors
/// `InvalidInput` when the order cannot be made.
pub fn forecast(
    config: &EpochConfig,
    shards: &[ShardCost],
    options: &ForecastOptions,
) -> Result<Forecast, OrderError> {
    let mut config = config.clone();
    let mut epochs = Vec::new();
    // The reader looks ahead beyond the last epoch as well.
    let shown = options.epochs.max(1);
    let known = shown.saturating_add(options.known_epochs.max(1) - 1);
    for _ in 0..known {
        let epoch = Epoch::new(&config)?;
        config.epoch = epoch.resolved().epoch.saturating_add(1);
        // Later epochs keep what a state fixed.
        config.num_canonical_nodes = Some(epoch.resolved().canonical_nodes);
        config.resume = None;
        epochs.push(epoch);
    }
    let shown = usize::try_from(shown).unwrap_or(usize::MAX);
    let mut facts = Vec::with_capacity(epochs.len());
    for epoch in epochs.iter().take(shown) {
        facts.push(epoch_facts(epoch, config.batching_method));
    }
    let world = epochs.first().map(|epoch| epoch.resolved().world);
    let nodes_in_all = world.map_or(0, |world| world.nodes);
    let shown = nodes_in_all.min(options.most_nodes.max(1));
    let nodes = (0..shown).map(|place| {
        // Evenly spaced, without the product that may be too large.
        let node = place * (nodes_in_all / shown) + (nodes_in_all % shown) * place / shown;
        one_node(node, &epochs, shards, options)
    });
    Ok(Forecast {
        nodes_in_all,
        epochs: facts,
        nodes: nodes.collect(),
    })
}

fn one_node(
    node: u64,
    epochs: &[Epoch],
    shards: &[ShardCost],
    options: &ForecastOptions,
) -> NodeForecast {
    let mut access_plan = AccessPlan::new(shards.len());
    let mut belady = Node::new(Policy::Belady { known: 0 }, shards, options);
    let mut lru = Node::new(Policy::Lru, shards, options);
    let mut sets = Sets::new(shards);
    let shown = usize::try_from(options.epochs.max(1)).unwrap_or(usize::MAX);
    let mut ahead = epochs.iter().enumerate();
    let mut learn = |access_plan: &mut AccessPlan, nodes: [&mut Node<'_>; 2]| {
        let Some((number, epoch)) = ahead.next() else {
            return;
        };
        let from = access_plan.end();
        let per_node = epoch.resolved().world.ranks_per_node;
        access_plan.push(
            &epoch.access_schedule_of_node(node, per_node),
            epoch.batches(),
        );
        if number < shown {
            sets.count(access_plan, from);
        }
        for node in nodes {
            node.learn(access_plan, from);
        }
    };
    for _ in 1..options.known_epochs.max(1) {
        learn(&mut access_plan, [&mut belady, &mut lru]);
    }
    let mut from = 0;
    for epoch in epochs.iter().take(shown) {
        learn(&mut access_plan, [&mut belady, &mut lru]);
        for node in [&mut belady, &mut lru] {
            node.run(&access_plan, epoch, from);
        }
        from += epoch.batches();
        access_plan.forget(from);
    }
    NodeForecast {
        node,
        belady: belady.finish(),
        lru: lru.finish(),
        distinct_shards: sets.distinct_shards,
        distinct_bytes: sets.distinct_bytes,
        needed_at_once_bytes: sets.at_once,
        needed_in_epoch_bytes: sets.in_epoch,
    }
}

/// How much room shards need, whatever the cache.
struct Sets<'a> {
    shards: &'a [ShardCost],
    seen: Vec<bool>,
    distinct_shards: u64,
    distinct_bytes: u64,
    at_once: u64,
    in_epoch: u64,
}

impl<'a> Sets<'a> {
    fn new(shards: &'a [ShardCost]) -> Self {
        Self {
            shards,
            seen: vec![false; shards.len()],
            distinct_shards: 0,
            distinct_bytes: 0,
            at_once: 0,
            in_epoch: 0,
        }
    }

    fn bytes(&self, shard: usize) -> u64 {
        self.shards.get(shard).map_or(0, |cost| cost.cache_bytes)
    }

    /// The epoch that begins at `from` and is the last one of the horizon.
    fn count(&mut self, access_plan: &AccessPlan, from: u64) {
        let mut held: Vec<(u64, u64, u64)> = Vec::new();
        let mut spans: Vec<Option<(u64, u64)>> = vec![None; self.shards.len()];
        for found in access_plan.in_order(from) {
            let bytes = self.bytes(found.shard);
            held.push((found.first, found.last, bytes));
            if let Some(span) = spans.get_mut(found.shard) {
                let (first, last) = span.unwrap_or((found.first, found.last));
                *span = Some((first.min(found.first), last.max(found.last)));
            }
            if let Some(seen) = self.seen.get_mut(found.shard)
                && !*seen
            {
                *seen = true;
                self.distinct_shards += 1;
                self.distinct_bytes += bytes;
            }
        }
        self.at_once = self.at_once.max(most_at_once(held.into_iter()));
        let spans = spans.into_iter().zip(self.shards);
        let spans = spans.filter_map(|(span, cost)| span.map(|(a, b)| (a, b, cost.cache_bytes)));
        self.in_epoch = self.in_epoch.max(most_at_once(spans));
    }
}

/// Most bytes of stretches (first and last tick, bytes) that have a tick in common.
fn most_at_once(stretches: impl Iterator<Item = (u64, u64, u64)>) -> u64 {
    // At one tick the ends of those before it come first.
    let mut changes: Vec<(u64, bool, u64)> = Vec::new();
    for (first, last, bytes) in stretches {
        changes.push((first, true, bytes));
        changes.push((last.saturating_add(1), false, bytes));
    }
    changes.sort_unstable();
    let (mut now, mut most) = (0_u64, 0_u64);
    for (_, begins, bytes) in changes {
        now = if begins { now + bytes } else { now - bytes };
        most = most.max(now);
    }
    most
}

/// Padding stands in the ragged end; where streams are dealt one by one, it may stand anywhere.
fn epoch_facts(epoch: &Epoch, method: BatchingMethod) -> EpochFacts {
    let (samples, steps) = (epoch.samples(), epoch.batches());
    let resumed_at = epoch.resolved().sample_in_epoch.min(samples);
    let mut facts = EpochFacts {
        epoch: epoch.resolved().epoch,
        samples,
        steps,
        padded: None,
        dropped: None,
    };
    let from = match method {
        BatchingMethod::Random => epoch.clean_batches(),
        _ => 0,
    };
    let counted = (steps - from).saturating_mul(epoch.global_batch());
    if counted > MOST_COUNTED {
        return facts;
    }
    let mut everyone = epoch.everyone();
    let mut batch = Vec::new();
    let (mut entries, mut padded) = (from.saturating_mul(epoch.global_batch()), 0_u64);
    for step in from..steps {
        if everyone.read(step, &mut batch) {
            entries += batch.len() as u64;
            padded += batch.iter().filter(|entry| entry.repeated).count() as u64;
        }
    }
    facts.padded = Some(padded);
    facts.dropped = Some((samples - resumed_at).saturating_sub(entries - padded));
    facts
}

#[cfg(test)]
mod tests;
