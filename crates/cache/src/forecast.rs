//! Predicts what a training run will fetch, hit, pad and wait for.
//!
//! The forecast simulates each node event by event, with the [`AccessPlan`] and the eviction policy of the reader.
//! Shards are fetched in the order of next use, limited by the number of connections and the bytes in flight. A shard
//! is pinned from the first to the last batch that may need it. Idle connections prefetch the next shards.
//!
//! The model differs from the reader in these points. All transfers share the bandwidth equally, without losses. Each
//! transfer waits once for its first byte, however many requests it takes. All ranks of a node step together, and no
//! node waits for another.
//!
//! A batch waits for the shards whose first sample is in it. The position of that sample in the access window is drawn
//! from the distribution for the shard's number of samples. A shard that does not fit with the other shards in use
//! bypasses the cache. Every process of the node that needs it then fetches it once per access window and holds it in
//! memory.
//!
//! If the nodes share their caches, the fetches of all nodes are replayed in the order of time. The first fetch of a shard
//! makes its owner fetch it from the store. An owner with a limit keeps the shards of other nodes in the space that its own
//! leave. A fetch from a node takes as long as one from the store.

mod cluster;
mod net;
mod node;
mod report;
mod timeline;

use std::cell::RefCell;

use shardmill_core::Error;
use shardmill_order::{BatchingMethod, Epoch, EpochConfig};

use super::policy::AccessPlan;
use super::ranks::Policy;
use cluster::Move;
use node::Node;
pub use report::{
    CacheEpoch, CacheForecast, ClusterEpoch, EpochFacts, Forecast, ForecastOptions, NodeForecast,
    ShardCost,
};
pub use timeline::Point;

/// The largest epoch, in entries, whose repeated samples are counted one by one, if their number does not follow from
/// the batching. That takes a tenth of a second.
const MAX_COUNTED: u64 = 1 << 22;

/// Simulates a run of `config`, starting with its epoch. `shards` are those of all streams; a missing one costs
/// nothing.
///
/// The result is deterministic. A forecast takes about a nanosecond per sample and a few microseconds per shard, node
/// and epoch. It needs 50 to 100 bytes of memory per shard and epoch.
///
/// # Errors
///
/// `InvalidInput` if the order cannot be computed.
pub fn forecast(
    config: &EpochConfig,
    shards: &[ShardCost],
    options: &ForecastOptions,
) -> Result<Forecast, Error> {
    let mut config = config.clone();
    let mut epochs = Vec::new();
    // The reader also looks beyond the last epoch.
    let shown = options.epochs.max(1);
    let known = shown.saturating_add(options.known_epochs.max(1) - 1);
    for _ in 0..known {
        let epoch = Epoch::new(&config)?;
        config.epoch = epoch.resolved().epoch.saturating_add(1);
        // Later epochs keep the canonical nodes of the first, as a resumed run does.
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
    // Evenly spaced, computed without a product that may overflow.
    let node = |index| index * (nodes_in_all / shown) + (nodes_in_all % shown) * index / shown;
    let shown: Vec<u64> = (0..shown).map(node).collect();
    let simulated = match options.owners.is_empty() {
        true => shown.clone(),
        false => (0..nodes_in_all).collect(),
    };
    let (mut nodes, mut moves) = (Vec::with_capacity(shown.len()), Vec::new());
    for node in simulated {
        let (found, of_node) = one_node(node, &epochs, shards, options);
        if shown.binary_search(&node).is_ok() {
            nodes.push(found);
        }
        moves.push(of_node);
    }
    let mut peers = Vec::new();
    if !options.owners.is_empty() {
        let epochs = facts.iter().map(|epoch| epoch.epoch).collect();
        let limit = options.cache_limit;
        peers = cluster::replay(&moves, epochs, shards, &options.owners, limit);
    }
    Ok(Forecast {
        nodes_in_all,
        epochs: facts,
        nodes,
        peers,
    })
}

fn one_node(
    node: u64,
    epochs: &[Epoch],
    shards: &[ShardCost],
    options: &ForecastOptions,
) -> (NodeForecast, Vec<Move>) {
    let access_plan = RefCell::new(AccessPlan::new(shards.len()));
    let mut belady = Node::new(Policy::Belady, &access_plan, shards, options);
    let mut lru = Node::new(Policy::Lru, &access_plan, shards, options);
    let mut sets = Sets::new(shards);
    let shown = usize::try_from(options.epochs.max(1)).unwrap_or(usize::MAX);
    let mut ahead = epochs.iter().enumerate();
    let mut learn = |nodes: [&mut Node<'_>; 2]| {
        let Some((number, epoch)) = ahead.next() else {
            return;
        };
        let from = access_plan.borrow().end();
        let per_node = epoch.resolved().world.ranks_per_node;
        let uses = epoch.access_schedule_of_node(node, per_node);
        access_plan.borrow_mut().push(&uses, epoch.batches());
        if number < shown {
            sets.count(&access_plan.borrow(), from);
        }
        for node in nodes {
            node.learn(from);
        }
    };
    for _ in 1..options.known_epochs.max(1) {
        learn([&mut belady, &mut lru]);
    }
    let mut from = 0;
    for epoch in epochs.iter().take(shown) {
        learn([&mut belady, &mut lru]);
        belady.run(epoch, from);
        lru.run(epoch, from);
        from += epoch.batches();
        access_plan.borrow_mut().forget(from);
    }
    let (belady, moves) = belady.finish();
    let forecast = NodeForecast {
        node,
        belady,
        lru: lru.finish().0,
        distinct_shards: sets.distinct_shards,
        distinct_bytes: sets.distinct_bytes,
        needed_at_once_bytes: sets.at_once,
        needed_in_epoch_bytes: sets.in_epoch,
    };
    (forecast, moves)
}

/// The space that shards need, independent of the cache.
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

    /// Counts the epoch that begins at `from`, which must be the last one of the access plan.
    fn count(&mut self, access_plan: &AccessPlan, from: u64) {
        let mut held: Vec<(u64, u64, u64)> = Vec::new();
        let mut spans: Vec<Option<(u64, u64)>> = vec![None; self.shards.len()];
        for found in access_plan.in_order(from) {
            let bytes = self.bytes(found.blob);
            held.push((found.first, found.last, bytes));
            if let Some(span) = spans.get_mut(found.blob) {
                let (first, last) = span.unwrap_or((found.first, found.last));
                *span = Some((first.min(found.first), last.max(found.last)));
            }
            if let Some(seen) = self.seen.get_mut(found.blob)
                && !*seen
            {
                *seen = true;
                self.distinct_shards += 1;
                self.distinct_bytes += bytes;
            }
        }
        self.at_once = self.at_once.max(peak_of(held.into_iter()));
        let spans = spans.into_iter().zip(self.shards);
        let spans = spans.filter_map(|(span, cost)| span.map(|(a, b)| (a, b, cost.cache_bytes)));
        self.in_epoch = self.in_epoch.max(peak_of(spans));
    }
}

/// Returns the most bytes of overlapping ranges, each given by its first tick, last tick and bytes.
fn peak_of(stretches: impl Iterator<Item = (u64, u64, u64)>) -> u64 {
    // At the same tick, ranges that end sort before ranges that begin.
    let mut changes: Vec<(u64, bool, u64)> = Vec::new();
    for (first, last, bytes) in stretches {
        changes.push((first, true, bytes));
        changes.push((last.saturating_add(1), false, bytes));
    }
    changes.sort_unstable();
    let (mut now, mut max) = (0_u64, 0_u64);
    for (_, begins, bytes) in changes {
        now = if begins { now + bytes } else { now - bytes };
        max = max.max(now);
    }
    max
}

/// Counts the padded and dropped samples of an epoch. Padding is in the ragged end, but with batching per stream it may
/// be anywhere.
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
    if counted > MAX_COUNTED {
        return facts;
    }
    let mut everyone = epoch.all_ranks();
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
