//! Maps positions of the epoch to nodes, ranks and batches, by arithmetic alone.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/partition/`. The original fills a tensor for the epoch; this
//! module computes each entry on demand.

use std::ops::Range;

use shardmill_core::Error;

use crate::config::PartitionAlgo;
use crate::error::{self, OrderProblem};
use crate::num::share;
use crate::shuffle::layout::node_of;

/// A position of the epoch that a rank receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RankPosition {
    /// The position, from 0 to the number of samples, exclusive.
    pub position: u64,
    /// The canonical node that owns the position.
    pub canonical_node: u64,
    /// Whether this is padding: a repeated sample, so that all ranks receive equally many.
    pub repeated: bool,
}

/// The inputs of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The number of samples.
    pub samples: u64,
    /// The fixed division of sample space.
    pub canonical_nodes: u64,
    /// Physical nodes.
    pub nodes: u64,
    /// Ranks of each node.
    pub ranks_per_node: u64,
    /// Samples of a rank in one step.
    pub batch_size: u64,
    /// Samples that were delivered before, to all ranks together.
    pub drop: u64,
}

/// A partition, as a function of the batch and the entry in the global batch.
///
/// A global batch lists the samples of one step, node by node and rank by rank. Loader workers only determine which
/// process loads a batch and have no influence here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    cut: Cut,
    /// Entries of each canonical node before padding: `ceil(samples / canonical_nodes)`.
    row: u64,
    /// Entries of each canonical node.
    padded_row: u64,
    /// The column from which the padding of a row is copied.
    padding_from: u64,
    /// Whether a single entry provides all padding of a row.
    padding_single: bool,
    /// Whether there are fewer samples than canonical nodes; the samples then repeat cyclically.
    tiny: bool,
    /// Entries of each node.
    per_node: u64,
    /// Entries of each rank.
    per_rank: u64,
}

impl Partition {
    /// Creates a partition. `relaxed` equals `orig` if one number of nodes divides the other, or if the run is new.
    /// Otherwise it distributes the sequence of the first run's nodes anew.
    ///
    /// # Errors
    /// `InvalidInput` if neither number of nodes divides the other, if the drop is beyond the end, or if a canonical
    /// node has too few samples for its padding. With `relaxed`, also if the devices of the first run cannot share the
    /// global batch equally.
    pub fn new(algo: PartitionAlgo, cut: Cut, initial_nodes: Option<u64>) -> Result<Self, Error> {
        let ranks = cut.nodes * cut.ranks_per_node;
        if ranks == 0 || cut.samples == 0 {
            return Err(error::nothing_chosen());
        }
        if cut.samples + (ranks - cut.samples % ranks) < cut.drop {
            return Err(error::beyond_end(cut.drop, cut.samples));
        }
        let divides = cut.nodes.is_multiple_of(cut.canonical_nodes)
            || cut.canonical_nodes.is_multiple_of(cut.nodes);
        let Some(initial_nodes) =
            initial_nodes.filter(|_| !divides && algo == PartitionAlgo::Relaxed)
        else {
            return Self::unchecked(cut);
        };
        let global_batch = ranks * cut.batch_size;
        let devices = initial_nodes.saturating_mul(cut.ranks_per_node);
        if devices == 0 || !global_batch.is_multiple_of(devices) {
            return Err(OrderProblem::GlobalBatch.error(format!(
                "a global batch of {global_batch} samples cannot be divided over the {devices} devices of the first run"
            )));
        }
        Self::unchecked(Cut {
            nodes: initial_nodes,
            batch_size: global_batch / devices,
            ..cut
        })
    }

    fn unchecked(mut cut: Cut) -> Result<Self, Error> {
        let (canonical, nodes) = (cut.canonical_nodes, cut.nodes);
        let (small, large) = (canonical.min(nodes), canonical.max(nodes));
        if small == 0 || !large.is_multiple_of(small) {
            return Err(error::nodes_do_not_divide(canonical, nodes));
        }
        // COMPAT: the drop is rounded down, so a resumed run may repeat up to `nodes - 1` samples.
        cut.drop -= cut.drop % nodes;
        let row = cut.samples.div_ceil(canonical);
        let ratio = if canonical < nodes {
            nodes / canonical
        } else {
            1
        };
        let padding = row.next_multiple_of(ratio) - row;
        let tiny = cut.samples < canonical || (cut.samples == canonical && canonical < nodes);
        let (mut padding_from, mut padding_single) = (0, false);
        if padding > 0 && !tiny {
            // COMPAT: a slice that would start before the row is cut off there. A slice of a single entry is repeated
            // for all padding; any other length is an error.
            padding_from = (row + 1).saturating_sub(padding + ratio);
            let found = (row + 1).saturating_sub(ratio) - padding_from;
            padding_single = found == 1;
            if found != padding && !padding_single {
                return Err(OrderProblem::CanonicalNodes.error(format!(
                    "{} samples are too few to pad {canonical} canonical nodes over {nodes} nodes",
                    cut.samples
                )));
            }
        }
        let padded_row = row + padding;
        let per_node = (canonical * padded_row).saturating_sub(cut.drop) / nodes;
        Ok(Self {
            row,
            padded_row,
            padding_from,
            padding_single,
            tiny,
            per_node,
            per_rank: per_node.div_ceil(cut.ranks_per_node),
            cut,
        })
    }

    /// Returns the number of samples.
    pub const fn samples(&self) -> u64 {
        self.cut.samples
    }

    /// Returns the number of entries of each rank, including padding.
    pub const fn per_rank(&self) -> u64 {
        self.per_rank
    }

    /// Returns the number of entries of a global batch.
    pub const fn global_batch(&self) -> u64 {
        self.cut.nodes * self.cut.ranks_per_node * self.cut.batch_size
    }

    /// Returns the number of global batches; the last one may be short.
    pub const fn batches(&self) -> u64 {
        self.per_rank.div_ceil(self.cut.batch_size)
    }

    /// Returns the number of complete global batches.
    pub const fn full_batches(&self) -> u64 {
        self.per_rank / self.cut.batch_size
    }

    /// Returns whether there are so few samples for the canonical nodes that they repeat cyclically.
    pub const fn is_tiny(&self) -> bool {
        self.tiny
    }

    /// Returns whether a node has so few samples that they repeat cyclically on its ranks.
    pub const fn is_scarce(&self) -> bool {
        let ranks = self.cut.ranks_per_node;
        let short = self.per_rank * ranks - self.per_node;
        short > 0 && ranks + short - 1 > self.per_node
    }

    /// Returns what is at `entry` of global batch `batch`; `None` after the end.
    pub fn position_at(&self, batch: u64, entry: u64) -> Option<RankPosition> {
        let cut = &self.cut;
        let per_node = cut.ranks_per_node * cut.batch_size;
        if entry >= per_node * cut.nodes {
            return None;
        }
        let (node, in_node) = (entry / per_node, entry % per_node);
        let (rank, in_batch) = (in_node / cut.batch_size, in_node % cut.batch_size);
        let turn = batch.checked_mul(cut.batch_size)?.checked_add(in_batch)?;
        if turn >= self.per_rank {
            return None;
        }
        let mut entry = turn * cut.ranks_per_node + rank;
        let mut repeated = false;
        if entry >= self.per_node {
            repeated = true;
            let (length, ranks) = (self.per_node, cut.ranks_per_node);
            let over = entry - length;
            let short = self.per_rank * ranks - length;
            entry = if ranks + short - 1 <= length {
                length + 1 - ranks - short + over
            } else {
                over % length
            };
        }
        let global = cut.drop + entry * cut.nodes + node;
        let (column, row) = (global / cut.canonical_nodes, global % cut.canonical_nodes);
        let rank_position = self.row_entry(row, column);
        Some(RankPosition {
            repeated: repeated || rank_position.repeated,
            ..rank_position
        })
    }

    /// Returns the batches and entries of a position, and whether it is padding there. Inverts
    /// [`position_at`](Self::position_at).
    pub(crate) fn entries_of(&self, position: u64) -> Vec<(u64, u64, bool)> {
        let cut = &self.cut;
        let mut found = Vec::new();
        for (row, column, repeated) in self.cells_of(position) {
            let global = column * cut.canonical_nodes + row;
            // A position before the drop was delivered before.
            let Some(rest) = global.checked_sub(cut.drop) else {
                continue;
            };
            let (entry, node) = (rest / cut.nodes, rest % cut.nodes);
            for (entry, padding) in self.node_entries(entry) {
                let (turn, rank) = (entry / cut.ranks_per_node, entry % cut.ranks_per_node);
                let (batch, in_batch) = (turn / cut.batch_size, turn % cut.batch_size);
                let device = node * cut.ranks_per_node + rank;
                let entry = device * cut.batch_size + in_batch;
                found.push((batch, entry, repeated || padding));
            }
        }
        found
    }

    /// Returns the entries of a node that are filled from its entry `entry`, and whether each is padding.
    fn node_entries(&self, entry: u64) -> Vec<(u64, bool)> {
        let (length, ranks) = (self.per_node, self.cut.ranks_per_node);
        if entry >= length {
            return Vec::new();
        }
        let mut found = vec![(entry, false)];
        let short = self.per_rank * ranks - length;
        if ranks + short - 1 <= length {
            let first = length + 1 - ranks - short;
            let over = entry.checked_sub(first).filter(|over| *over < short);
            found.extend(over.map(|over| (length + over, true)));
        } else {
            let mut over = entry;
            while over < short {
                found.push((length + over, true));
                over += length;
            }
        }
        found
    }

    /// Returns the rows and columns of a position, and whether it is padding there. Inverts
    /// [`row_entry`](Self::row_entry).
    fn cells_of(&self, position: u64) -> Vec<(u64, u64, bool)> {
        let (samples, canonical) = (self.cut.samples, self.cut.canonical_nodes);
        let mut found = Vec::new();
        if position >= samples {
            return found;
        }
        if self.tiny {
            let mut flat = position;
            while flat < canonical * self.padded_row {
                found.push((
                    flat / self.padded_row,
                    flat % self.padded_row,
                    flat >= samples,
                ));
                flat += samples;
            }
            return found;
        }
        let row = node_of(samples, position, canonical);
        let start = share(samples, row, canonical);
        let length = share(samples, row + 1, canonical) - start;
        let column = position - start;
        found.push((row, column, false));
        if column + 1 == length {
            found.extend((length..self.row).map(|column| (row, column, true)));
        }
        let padding = self.padded_row - self.row;
        if let Some(over) = column
            .checked_sub(self.padding_from)
            .filter(|_| padding > 0)
        {
            if self.padding_single && over == 0 {
                found.extend((self.row..self.padded_row).map(|column| (row, column, true)));
            } else if !self.padding_single && over < padding {
                found.push((row, self.row + over, true));
            }
        }
        found
    }

    fn row_entry(&self, row: u64, column: u64) -> RankPosition {
        let (samples, canonical) = (self.cut.samples, self.cut.canonical_nodes);
        if self.tiny {
            let flat = row * self.padded_row + column;
            let position = flat % samples;
            return RankPosition {
                position,
                canonical_node: node_of(samples, position, canonical),
                repeated: flat >= samples,
            };
        }
        let start = share(samples, row, canonical);
        let length = share(samples, row + 1, canonical) - start;
        if column >= self.row {
            let over = if self.padding_single {
                0
            } else {
                column - self.row
            };
            return RankPosition {
                position: start + self.padding_from + over,
                canonical_node: row,
                repeated: true,
            };
        }
        // A short row repeats its last sample.
        let repeated = column >= length;
        RankPosition {
            position: start + column - u64::from(repeated),
            canonical_node: row,
            repeated,
        }
    }

    /// Returns the number of global batches from the start that are complete and without repeated samples. This is a
    /// lower bound, too small by at most one column of canonical nodes. It is 0 if there are fewer samples than
    /// canonical nodes.
    pub fn clean_batches(&self) -> u64 {
        if self.tiny {
            return 0;
        }
        let clean_columns = self.cut.samples / self.cut.canonical_nodes;
        let clean = (clean_columns * self.cut.canonical_nodes).saturating_sub(self.cut.drop);
        clean / self.global_batch()
    }

    /// Returns whether the entries `entries` of global batches may contain samples of a canonical node.
    pub fn may_contain(&self, canonical_node: u64, entries: &Range<u64>) -> bool {
        let cut = &self.cut;
        let per_node = cut.ranks_per_node * cut.batch_size;
        let nodes = entries.start / per_node..entries.end.div_ceil(per_node).min(cut.nodes);
        if self.tiny || nodes.end.saturating_sub(nodes.start) >= cut.nodes {
            true
        } else if cut.canonical_nodes >= cut.nodes {
            nodes.contains(&(canonical_node % cut.nodes))
        } else {
            nodes
                .clone()
                .any(|node| node % cut.canonical_nodes == canonical_node)
        }
    }

    /// Returns of how many canonical nodes the entries `entries` of global batches may contain samples.
    pub fn count_nodes_in(&self, entries: &Range<u64>) -> u64 {
        (0..self.cut.canonical_nodes).fold(0, |sum, node| {
            sum + u64::from(self.may_contain(node, entries))
        })
    }

    /// Returns the global batch that contains the sample at `position` of canonical node `node`; `None` before the
    /// drop.
    pub fn batch_of(&self, node: u64, position: u64) -> Option<u64> {
        let cut = &self.cut;
        let global = position
            .checked_mul(cut.canonical_nodes)?
            .checked_add(node)?;
        let entry = global.checked_sub(cut.drop)? / cut.nodes;
        Some(entry / cut.ranks_per_node / cut.batch_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PartitionAlgo::{Orig, Relaxed};

    fn cut(
        samples: u64,
        canonical_nodes: u64,
        nodes: u64,
        ranks_per_node: u64,
        batch_size: u64,
        drop: u64,
    ) -> Cut {
        Cut {
            samples,
            canonical_nodes,
            nodes,
            ranks_per_node,
            batch_size,
            drop,
        }
    }

    /// Returns the positions of every rank, in order.
    fn ranks(partition: &Partition, ranks: u64, batch_size: u64) -> Vec<Vec<u64>> {
        let mut out = vec![Vec::new(); usize::try_from(ranks).unwrap()];
        for batch in 0..partition.batches() {
            for (rank, positions) in (0_u64..).zip(out.iter_mut()) {
                for entry in rank * batch_size..(rank + 1) * batch_size {
                    positions.extend(
                        partition
                            .position_at(batch, entry)
                            .map(|slot| slot.position),
                    );
                }
            }
        }
        out
    }

    #[test]
    fn partitions_match_golden_values() {
        let orig = |cut| Partition::new(Orig, cut, None).unwrap();
        assert_eq!(
            ranks(&orig(cut(10, 2, 1, 2, 2, 0)), 2, 2),
            [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
        );
        assert_eq!(
            ranks(&orig(cut(10, 2, 1, 2, 2, 4)), 2, 2),
            [[2, 3, 4], [7, 8, 9]]
        );
        assert_eq!(
            ranks(&orig(cut(7, 1, 2, 1, 2, 0)), 2, 2),
            [[0, 2, 4, 6], [1, 3, 5, 5]]
        );
        assert_eq!(ranks(&orig(cut(3, 4, 2, 1, 2, 0)), 2, 2), [[0, 2], [1, 0]]);
        assert_eq!(
            ranks(&orig(cut(10, 1, 1, 4, 1, 0)), 4, 1),
            [[0, 4, 8], [1, 5, 9], [2, 6, 5], [3, 7, 6]]
        );
        let relaxed = Partition::new(Relaxed, cut(12, 4, 3, 1, 4, 0), Some(2)).unwrap();
        assert_eq!(
            ranks(&relaxed, 3, 4),
            [[0, 6, 1, 7], [2, 8, 3, 9], [4, 10, 5, 11]]
        );
    }

    #[test]
    fn repeated_samples_are_flagged() {
        let partition = Partition::new(Orig, cut(10, 1, 1, 4, 1, 0), None).unwrap();
        let flags: Vec<_> = (8..12)
            .map(|i| partition.position_at(i / 4, i % 4).unwrap().repeated)
            .collect();
        assert_eq!(flags, [false, false, true, true]);
        assert_eq!(partition.clean_batches(), 2);
    }

    #[test]
    fn indivisible_partition_is_an_error() {
        assert!(Partition::new(Orig, cut(12, 4, 3, 1, 4, 0), None).is_err());
        assert!(Partition::new(Relaxed, cut(12, 4, 3, 1, 4, 0), None).is_err());
        assert!(Partition::new(Relaxed, cut(12, 4, 3, 1, 4, 0), Some(5)).is_err());
        assert!(Partition::new(Orig, cut(12, 4, 2, 1, 4, 20), None).is_err());
    }
}
