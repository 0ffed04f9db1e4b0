//! Predicts which of the fetches of nodes that share their caches reach the store.

use std::collections::{BTreeMap, BTreeSet};

use super::report::{ClusterEpoch, ShardCost};

/// A change of the cache of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    /// The time from the start of the run.
    pub(super) at: f64,
    /// The position of its epoch in the run.
    pub(super) epoch: usize,
    pub(super) shard: usize,
    pub(super) kind: MoveKind,
    /// The bytes in the cache afterwards.
    pub(super) used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveKind {
    Fetched,
    /// The processes of the node fetch it without the cache.
    Bypassed {
        copies: u64,
    },
    Evicted,
}

/// The cache of a node, as other nodes see it.
#[derive(Default)]
struct Shared {
    /// The shards in it. Those that only other nodes read have the number of their last fetch.
    resident: BTreeMap<usize, Option<u64>>,
    /// Those that only other nodes read, by that number: the first is evicted first.
    guests: BTreeSet<(u64, usize)>,
    guest_bytes: u64,
    used: u64,
}

impl Shared {
    /// Removes a shard that only other nodes read. Returns whether it was there.
    fn take_guest(&mut self, shard: usize, bytes: u64) -> bool {
        let Some(Some(number)) = self.resident.get(&shard).copied() else {
            return false;
        };
        self.resident.remove(&shard);
        self.guests.remove(&(number, shard));
        self.guest_bytes -= bytes;
        true
    }

    fn add_guest(&mut self, number: u64, shard: usize, bytes: u64) {
        self.resident.insert(shard, Some(number));
        self.guests.insert((number, shard));
        self.guest_bytes += bytes;
    }

    /// Evicts shards that only other nodes read until all fit.
    fn shrink(&mut self, limit: Option<u64>, shards: &[ShardCost]) {
        while let Some(limit) = limit
            && self.used.saturating_add(self.guest_bytes) > limit
            && let Some((_, shard)) = self.guests.first().copied()
        {
            self.take_guest(shard, shards.get(shard).map_or(0, |cost| cost.cache_bytes));
        }
    }
}

/// Replays the changes of all nodes, given by node in the order of time. `owners` has the owner of each shard.
pub(super) fn replay(
    nodes: &[Vec<Move>],
    epochs: Vec<u64>,
    shards: &[ShardCost],
    owners: &[usize],
    limit: Option<u64>,
) -> Vec<ClusterEpoch> {
    let mut found: Vec<ClusterEpoch> = epochs
        .into_iter()
        .map(|epoch| ClusterEpoch {
            epoch,
            ..ClusterEpoch::default()
        })
        .collect();
    let mut caches: Vec<Shared> = Vec::new();
    caches.resize_with(nodes.len(), Shared::default);
    let moves = nodes.iter().enumerate();
    let moves = moves.flat_map(|(node, moves)| moves.iter().map(move |change| (node, change)));
    let mut moves: Vec<(usize, &Move)> = moves.collect();
    // A stable sort: changes of a node at the same time keep their order.
    moves.sort_by(|(_, one), (_, other)| one.at.total_cmp(&other.at));
    for (number, (node, change)) in (0..).zip(moves) {
        let shard = change.shard;
        let (Some(cost), Some(owner)) = (shards.get(shard), owners.get(shard).copied()) else {
            continue;
        };
        let Some(counts) = found.get_mut(change.epoch) else {
            continue;
        };
        let copies = match change.kind {
            MoveKind::Fetched => 1,
            MoveKind::Bypassed { copies } => copies,
            MoveKind::Evicted => 0,
        };
        if let Some(cache) = caches.get_mut(owner)
            && copies > 0
        {
            let was_guest = cache.take_guest(shard, cost.cache_bytes);
            if owner == node {
                // What the owner fetched for another node is in its cache.
                counts.fetch_from_store(if was_guest { 0 } else { copies }, cost);
            } else {
                counts.peer_shards += copies;
                counts.peer_bytes += cost.fetch_bytes.saturating_mul(copies);
                if !cache.resident.contains_key(&shard) {
                    counts.fetch_from_store(u64::from(!was_guest), cost);
                    cache.add_guest(number, shard, cost.cache_bytes);
                    cache.shrink(limit, shards);
                }
            }
        }
        if let Some(cache) = caches.get_mut(node) {
            cache.used = change.used;
            match change.kind {
                MoveKind::Fetched => cache.resident.insert(shard, None),
                MoveKind::Evicted => cache.resident.remove(&shard),
                MoveKind::Bypassed { .. } => None,
            };
            cache.shrink(limit, shards);
        }
    }
    found
}

impl ClusterEpoch {
    const fn fetch_from_store(&mut self, copies: u64, cost: &ShardCost) {
        self.store_shards += copies;
        self.store_bytes += cost.fetch_bytes.saturating_mul(copies);
    }
}
