//! Predicts when a node needs each shard, for a cache that plans ahead.
//!
//! The schedule follows from the layout of the shuffle and the arithmetic of the batch plan, without the samples. It
//! costs a few operations per shard part and lists ranges of batches:
//!
//! - For `py1s`, `py2s` and unshuffled epochs, the ranges are exact.
//! - For `py1br` and `shardmill`, they are those of the blocks that contain a shard part.
//! - For `py1e`, they are the batches that the samples can reach, with a margin.
//! - For `naive`, they are the whole epoch.
//!
//! Samples repeated as padding in the last batches are not included. A cache must be able to fetch a shard that the
//! schedule does not list.

use std::ops::Range;

use shardmill_core::Error;

use crate::batch_plan::Method;
use crate::epoch::{Epoch, Source};
use crate::num::index;
use crate::shuffle::layout::positions_of;

/// A range of batches in which samples of a shard are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Use {
    /// The shard, numbered across all streams.
    pub shard: usize,
    /// The first batch that may need the shard, counted from the start of this epoch or its resumption.
    pub first: u64,
    /// The last batch that may need the shard.
    pub last: u64,
}

/// The uses of each shard in an epoch.
#[derive(Clone, Debug)]
pub struct AccessSchedule {
    /// All uses, ordered by shard, then by first batch.
    all: Vec<Use>,
    /// The first use of each shard, then the number of uses.
    starts: Vec<usize>,
}

impl AccessSchedule {
    fn new(mut all: Vec<Use>, shards: usize) -> Self {
        all.sort_unstable();
        all.dedup();
        let starts = (0..=shards)
            .map(|shard| all.partition_point(|found| found.shard < shard))
            .collect();
        Self { all, starts }
    }

    /// Returns the schedule in which each use of a shard also needs the other shards in its reach.
    #[must_use]
    pub fn with_windows(&self, reach: &dyn Fn(usize) -> Range<usize>) -> Self {
        let all = self.all.iter().flat_map(|found| {
            let shards = reach(found.shard);
            shards.map(|shard| Use { shard, ..*found })
        });
        Self::new(all.collect(), self.starts.len().saturating_sub(1))
    }

    /// Returns the uses of one shard ordered by first batch; empty for a shard that does not exist.
    #[must_use]
    pub fn of(&self, shard: usize) -> &[Use] {
        match (self.starts.get(shard), self.starts.get(shard + 1)) {
            (Some(start), Some(stop)) => self.all.get(*start..*stop).unwrap_or_default(),
            _ => &[],
        }
    }
}

impl Epoch {
    /// Returns when the ranks of a node need each shard. Nodes are those of the world before replication. The schedule
    /// is empty for a node that does not exist.
    #[must_use]
    pub fn access_schedule_of_node(&self, node: u64, ranks_per_node: u64) -> AccessSchedule {
        let first = self.entries_of_rank(node.saturating_mul(ranks_per_node));
        let last = self.entries_of_rank((node + 1).saturating_mul(ranks_per_node) - 1);
        match (first, last) {
            (Ok(first), Ok(last)) => self.uses(first.start..last.end),
            _ => AccessSchedule::new(Vec::new(), self.inner.table.len()),
        }
    }

    /// Like [`Epoch::access_schedule_of_node`], but exact for shards with a single sample each.
    ///
    /// For such shards, the range that a shuffle can reach is almost useless. `single` returns the shard of a sample
    /// if it is such a shard, and `is_single` tests a shard. This function reads the order of the node once.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a node that does not exist.
    pub fn exact_access_schedule_of_node(
        &self,
        node: u64,
        ranks_per_node: u64,
        single: &dyn Fn(u64) -> Option<usize>,
        is_single: &dyn Fn(usize) -> bool,
    ) -> Result<AccessSchedule, Error> {
        let shards = self.inner.table.len();
        let mut all = Vec::new();
        if (0..shards).any(|shard| !is_single(shard)) {
            all = self.access_schedule_of_node(node, ranks_per_node).all;
            all.retain(|found| !is_single(found.shard));
        }
        let mut entries = Vec::new();
        for rank in node * ranks_per_node..(node + 1) * ranks_per_node {
            let mut cursor = self.rank(rank)?;
            for step in 0..self.batches() {
                cursor.read(step, &mut entries);
                let shards = entries.iter().filter_map(|entry| single(entry.sample.0));
                all.extend(shards.map(|shard| Use {
                    first: step,
                    last: step,
                    shard,
                }));
            }
        }
        Ok(AccessSchedule::new(all, shards))
    }

    /// Returns when the given entries of the global batches need each shard.
    fn uses(&self, entries: Range<u64>) -> AccessSchedule {
        let inner = &self.inner;
        let finder = Finder::new(self, entries);
        let nodes = inner.batch_plan.canonical_nodes;
        let mut uses = Vec::new();
        for (source_index, source) in inner.sources.iter().enumerate() {
            let tiny = source.units.samples() <= nodes && nodes > 1;
            for node in 0..nodes {
                if tiny {
                    // With fewer samples than canonical nodes, the samples repeat cyclically.
                    for unit in source.units.ranges() {
                        uses.extend(finder.found(
                            source,
                            unit.start,
                            0..inner.batch_plan.batches(),
                        ));
                    }
                    break;
                }
                if finder.wants(source_index, node) {
                    source
                        .shuffle
                        .reaches(&source.units, node, |big, positions| {
                            let start = positions_of(source.units.samples(), node, nodes).start;
                            let batches = finder.batches(
                                source_index,
                                node,
                                positions.start - start..positions.end - start,
                            );
                            uses.extend(finder.found(source, big, batches));
                        });
                }
            }
        }
        AccessSchedule::new(uses, inner.table.len())
    }
}

/// Maps a position in a canonical node to the batch that contains it.
struct Finder<'a> {
    epoch: &'a Epoch,
    entries: Range<u64>,
    /// For each stream (and each node, with `device_per_stream`), the turns of its batches.
    turns: Vec<Vec<Vec<u64>>>,
}

impl<'a> Finder<'a> {
    fn new(epoch: &'a Epoch, entries: Range<u64>) -> Self {
        let streams = epoch.inner.sources.len();
        let sort = |origins: &[crate::batch_plan::Origin]| {
            let mut turns = vec![Vec::new(); streams];
            for (turn, origin) in (0_u64..).zip(origins) {
                turns[origin.stream()].push(turn);
            }
            turns
        };
        let turns = match &epoch.inner.batch_plan.method {
            Method::PerStream(_, origins) => vec![sort(origins)],
            Method::DevicePerStream(_, nodes) => {
                nodes.iter().map(|origins| sort(origins)).collect()
            }
            Method::Random(_) | Method::Stratified(..) | Method::Mixture(_) => Vec::new(),
        };
        Self {
            epoch,
            entries,
            turns,
        }
    }

    /// Returns whether the entries include samples of a canonical node of a source.
    fn wants(&self, source: usize, node: u64) -> bool {
        let batch_plan = &self.epoch.inner.batch_plan;
        match &batch_plan.method {
            Method::Random(partition) => partition.may_contain(node, &self.entries),
            // Every rank receives samples of all streams.
            Method::Mixture(_) => true,
            Method::PerStream(partitions, _) => partitions
                .get(source)
                .is_some_and(|partition| partition.may_contain(node, &self.entries)),
            Method::Stratified(_, starts) => match (starts.get(source), starts.get(source + 1)) {
                (Some(start), Some(stop)) => {
                    *start < self.entries.end && self.entries.start < *stop
                }
                _ => false,
            },
            Method::DevicePerStream(..) => {
                let per_node = batch_plan.ranks_per_node * batch_plan.batch_size;
                let nodes = self.entries.start / per_node..self.entries.end.div_ceil(per_node);
                // With several ranks on several nodes, batches cross nodes.
                batch_plan.ranks_per_node > 1
                    || nodes.contains(&(node / (batch_plan.canonical_nodes / batch_plan.nodes)))
            }
        }
    }

    /// Returns the batches that contain `positions` of a canonical node; empty if all of them are before the start.
    fn batches(&self, source: usize, node: u64, positions: Range<u64>) -> Range<u64> {
        if positions.is_empty() {
            return 0..0;
        }
        let last = self.batch(source, node, positions.end - 1);
        let Some(last) = last else {
            return 0..0;
        };
        let first = self.batch(source, node, positions.start).unwrap_or(0);
        first..(last + 1).min(self.epoch.batches())
    }

    /// Returns the batch that contains one position: `None` before the start; at least the number of batches after the
    /// end.
    fn batch(&self, source: usize, node: u64, position: u64) -> Option<u64> {
        let batch_plan = &self.epoch.inner.batch_plan;
        let nodes = batch_plan.canonical_nodes;
        let turn = |turns: &Vec<Vec<u64>>, batch: u64| {
            let turns = turns.get(source)?;
            Some(turns.get(index(batch)).copied().unwrap_or(u64::MAX >> 8))
        };
        let batch = match &batch_plan.method {
            Method::Random(partition) => partition.batch_of(node, position)?,
            Method::Mixture(mixed) => mixed.batch_of(source, position)?,
            Method::PerStream(partitions, _) => turn(
                self.turns.first()?,
                partitions.get(source)?.batch_of(node, position)?,
            )?,
            Method::Stratified(_, starts) => {
                let share = starts.get(source + 1)? - starts.get(source)?;
                (position * nodes + node) / share
            }
            Method::DevicePerStream(..) => {
                let canonical = nodes / batch_plan.nodes;
                let (owner, inside) = (node / canonical, node % canonical);
                let step = canonical * batch_plan.ranks_per_node;
                let flat = position / batch_plan.ranks_per_node * step
                    + inside * batch_plan.ranks_per_node
                    + position % batch_plan.ranks_per_node;
                let turn = turn(self.turns.get(index(owner))?, flat / batch_plan.batch_size)?;
                (turn * batch_plan.nodes + owner) / (batch_plan.nodes * batch_plan.ranks_per_node)
            }
        };
        batch.checked_sub(batch_plan.skipped)
    }

    fn found(&self, source: &Source, big: u64, batches: Range<u64>) -> Option<Use> {
        let shard = source.units.shard_of(big)?;
        (batches.start < batches.end).then(|| Use {
            first: batches.start,
            last: batches.end - 1,
            shard,
        })
    }
}
