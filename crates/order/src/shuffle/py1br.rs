//! `py1br`: shuffles samples within staggered blocks of random size.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/shuffle/py1br.py`. Differs in that a block can be shuffled without
//! the blocks before it.

use std::ops::Range;

use shardmill_core::Error;

use super::layout::{CheckpointList, Layout, Window, block_range};
use crate::num::index;
use crate::rng::Pcg64;
use crate::rng_checkpoints::CheckpointLists;

#[derive(Clone, Debug)]
pub(crate) struct Py1br {
    pub(crate) layout: Layout,
    /// The blocks of all nodes, as ranges of positions ordered by start.
    pub(crate) blocks: Vec<Range<u64>>,
    /// Blocks that no earlier block overlaps; a window may begin at each of them.
    pub(crate) groups: Vec<usize>,
    /// The first group of each node, then the number of groups.
    node_groups: Vec<usize>,
    /// The generator before the blocks of each node are drawn.
    starts: CheckpointList,
    checkpoint_list: CheckpointList,
    rng: Pcg64,
}

/// Draws the sizes of a node's blocks, and calls `each` with the positions of each block.
///
/// COMPAT: the end advances by the length of a block that was cut off at the node's start, while positions are shifted
/// by the stagger. So the second block overlaps the first, and the last samples of a node may stay in place.
pub(crate) fn node_blocks(
    rng: &mut Pcg64,
    positions: Range<u64>,
    stagger: u64,
    block: u64,
    mut each: impl FnMut(Range<u64>),
) -> Result<(), Error> {
    let (low, high) = block_range(block);
    let mut end = positions.start;
    while end < positions.end {
        let size = rng.integers(low, high)?;
        let start = end.saturating_sub(stagger).max(positions.start);
        let stop = (end + size).saturating_sub(stagger).min(positions.end);
        // INVARIANT: the stagger is below every size, so no block is empty and the loop ends.
        end += stop - start;
        each(start..stop);
    }
    Ok(())
}

impl Py1br {
    pub(crate) fn new(
        layout: Layout,
        mut rng: Pcg64,
        nodes: u64,
        block: u64,
        kept: Option<CheckpointLists<'_>>,
    ) -> Result<Self, Error> {
        let (low, _) = block_range(block);
        let mut staggers = Vec::with_capacity(index(nodes));
        for _ in 0..nodes {
            staggers.push(rng.integers(0, low)?);
        }
        let (mut blocks, mut groups, mut node_groups) = (Vec::new(), Vec::new(), vec![0]);
        let (mut checkpoint_list, mut starts) =
            (CheckpointList::default(), CheckpointList::default());
        let kept = kept.and_then(|mut kept| {
            let starts = kept.next(index(nodes))?;
            let checkpoint_list =
                kept.next(layout.offsets.last().map_or(0, |samples| index(*samples)))?;
            (starts.len() == nodes).then_some((starts, checkpoint_list))
        });
        let mut known = kept.as_ref().map(|(starts, _)| starts.marks().iter());
        for (node, stagger) in (0..nodes).zip(staggers) {
            let first = blocks.len();
            if let Some((_, start)) = known.as_mut().and_then(Iterator::next) {
                rng = rng.at(*start);
            }
            starts.pass(index(node), 0, true, &rng);
            node_blocks(&mut rng, layout.positions(node), stagger, block, |range| {
                blocks.push(range)
            })?;
            let mut reach = 0;
            for (block_index, range) in blocks.iter().enumerate().skip(first) {
                let length = range.end - range.start;
                if block_index == first || range.start >= reach {
                    groups.push(block_index);
                    if kept.is_none() {
                        checkpoint_list.pass(block_index, length, true, &rng);
                    }
                }
                reach = reach.max(range.end);
                if kept.is_none() {
                    rng.skip_shuffle(length);
                }
            }
            node_groups.push(groups.len());
        }
        if let Some((_, kept)) = kept {
            checkpoint_list = kept;
        }
        Ok(Self {
            layout,
            blocks,
            groups,
            node_groups,
            starts,
            checkpoint_list,
            rng,
        })
    }

    /// Computes whole groups of blocks from the one at `from`, until there are at least `wanted` positions or the node
    /// ends.
    pub(crate) fn window(&self, node: u64, from: u64, wanted: u64, window: &mut Window) {
        let positions = self.layout.positions(node);
        let mine = self.node_groups[index(node)]..self.node_groups[index(node) + 1];
        let starts = |group: usize| self.blocks[self.groups[group]].start;
        let group = mine.start
            + self.groups[mine.clone()].partition_point(|block| self.blocks[*block].start <= from)
            - 1;
        let start = starts(group);
        let mut next = group + 1;
        while next < mine.end && starts(next) < from + wanted {
            next += 1;
        }
        let (stop, last_block) = if next < mine.end {
            (starts(next), self.groups[next])
        } else {
            let after = self.groups.get(next).copied().unwrap_or(self.blocks.len());
            (positions.end, after)
        };
        window.start = start;
        let ids = &mut window.ids;
        self.layout.fill(start..stop, ids);
        let first_block = self.groups[group];
        if let Some((_, checkpoint)) = self.checkpoint_list.before(first_block) {
            let mut rng = self.rng.at(checkpoint);
            for block in &self.blocks[first_block..last_block] {
                rng.shuffle(&mut ids[index(block.start - start)..index(block.end - start)]);
            }
        }
    }

    /// Returns the positions that the samples at `positions` of a canonical node may take.
    pub(crate) fn reach(&self, node: u64, positions: Range<u64>) -> Range<u64> {
        let mine = self.node_groups[index(node)]..self.node_groups[index(node) + 1];
        let groups = &self.groups[mine];
        let start = |block: &usize| self.blocks[*block].start;
        let first = groups.partition_point(|block| start(block) <= positions.start) - 1;
        let next = groups.partition_point(|block| start(block) < positions.end);
        let end = groups
            .get(next)
            .map_or(self.layout.positions(node).end, start);
        start(&groups[first])..end
    }

    pub(crate) fn checkpoint_lists(&self) -> Vec<&CheckpointList> {
        vec![&self.starts, &self.checkpoint_list]
    }
}
