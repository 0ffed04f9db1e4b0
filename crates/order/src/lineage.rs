//! Lineage: which samples a step delivers, and which steps deliver a sample, by arithmetic and without a log.
//!
//! A *step* is a global batch, numbered from 0 at the start of the epoch or, if the epoch is resumed, at the sample of
//! the state. A step is read at random: only the windows of the order that contain its positions are computed. The
//! way back from a sample inverts each stage: units, shuffle, partition and batching. Memory does not depend on the
//! number of samples, except for the shuffle `naive`, which holds the whole order anyway.

use shardmill_core::Error;

use crate::batch_plan::BatchPlan;
use crate::epoch::{Entry, Epoch, SampleId};
use crate::error;
use crate::num::{count, index};

/// The window length for reading a single step.
const WINDOW: u64 = 1 << 10;

/// Where a sample is delivered: an entry of the batch of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delivery {
    /// The step, from the start of the epoch or of its resumption.
    pub step: u64,
    /// The rank in the world after replication. Replicas of it receive the same samples.
    pub rank: u64,
    /// The position in the batch of the rank, from 0.
    pub position: u64,
    /// Whether the sample is padding there.
    pub repeated: bool,
}

impl Epoch {
    /// Returns the samples of a step, one list for each rank of the world after replication.
    ///
    /// # Errors
    /// `InvalidInput` if the epoch has fewer steps.
    pub fn step(&self, step: u64) -> Result<Vec<Vec<Entry>>, Error> {
        let mut entries = Vec::new();
        if !self
            .all_ranks()
            .with_window(WINDOW)
            .read(step, &mut entries)
        {
            return Err(self.no_step(step));
        }
        let batch_size = index(self.inner.batch_plan.batch_size);
        if count(entries.len()) == self.global_batch() {
            return Ok(entries.chunks(batch_size).map(<[Entry]>::to_vec).collect());
        }
        // A short batch may be short on some ranks only, so each rank reads it separately.
        let ranks = 0..self.resolved().world.ranks();
        ranks
            .map(|rank| self.step_of_rank(step, rank * self.inner.replication))
            .collect()
    }

    /// Returns the samples of a step for one rank of the world before replication.
    ///
    /// # Errors
    /// `InvalidInput` if the rank does not exist, or if the epoch has fewer steps.
    pub fn step_of_rank(&self, step: u64, rank: u64) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        let mut cursor = self.rank(rank)?.with_window(WINDOW);
        if !cursor.read(step, &mut entries) {
            return Err(self.no_step(step));
        }
        Ok(entries)
    }

    fn no_step(&self, step: u64) -> Error {
        error::no_such_step(step, self.batches())
    }

    /// Returns all deliveries of a sample in this epoch, in order. Deliveries before a resumption are not included.
    ///
    /// The list is empty if the epoch does not contain the sample, for example because only a part of its shard is
    /// drawn, or because only complete batches are delivered.
    ///
    /// # Errors
    /// `InvalidInput` if the sample does not exist.
    pub fn deliveries(&self, sample: SampleId) -> Result<Vec<Delivery>, Error> {
        let inner = &self.inner;
        let Some((shard, index_in_shard)) = inner.table.locate(sample.0) else {
            return Err(error::no_such_sample(sample.0, inner.table.samples()));
        };
        let mut found = Vec::new();
        for (number, source) in inner.sources.iter().enumerate() {
            for big in source.units.big_ids(&inner.table, shard, index_in_shard) {
                let Some(position) = source.shuffle.position_of(big) else {
                    continue;
                };
                for (step, entry, repeated) in inner.batch_plan.entries_of(number, position) {
                    found.push(delivery(&inner.batch_plan, step, entry, repeated));
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// Converts an entry of a global batch to a rank and the position in its batch.
fn delivery(plan: &BatchPlan, step: u64, entry: u64, repeated: bool) -> Delivery {
    let rank = entry / plan.batch_size;
    let first = rank * plan.batch_size;
    // An entry without a sample does not take a position. Such entries exist in the last steps only.
    let position = (first..entry).filter(|entry| plan.position_at(step, *entry).is_some());
    let position = count(position.count());
    Delivery {
        step,
        rank,
        position,
        repeated,
    }
}

#[cfg(test)]
mod tests;
