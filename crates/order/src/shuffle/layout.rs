//! The common first stage of `py1s`, `py1br`, `py1e` and `shardmill`: units in a random order, cut at the borders of
//! canonical nodes and mixed within each node. Also the inputs of a shuffle, and the geometry of its windows.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/shuffle/py1s.py`.

use std::ops::Range;

use crate::config::ShuffleAlgo;
use crate::num::{count, index, low32, real, share, trunc};
use crate::rng::{Checkpoint, Pcg64};
use crate::units::Units;

/// The inputs of a shuffle, besides the units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShuffleConfig {
    /// The algorithm.
    pub algo: ShuffleAlgo,
    /// The fixed division of sample space.
    pub canonical_nodes: u64,
    /// The seed of the run.
    pub seed: u64,
    /// The epoch number, which is added to the seed.
    pub epoch: u64,
    /// The shuffle block size, in samples.
    pub block: u64,
}

/// The big ids of consecutive positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// The first position.
    pub(crate) start: u64,
    /// The ids, from that position on.
    pub(crate) ids: Vec<u64>,
}

/// A range of consecutive big ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// Spans in the order of the epoch, before their samples are shuffled.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) spans: Vec<Span>,
    /// The position of each span, then the number of samples.
    pub(crate) offsets: Vec<u64>,
    /// The first span of each canonical node, then the number of spans.
    pub(crate) nodes: Vec<usize>,
}

/// Returns the first position of canonical node `node` of `nodes`.
pub(crate) fn border(samples: u64, node: u64, nodes: u64) -> u64 {
    share(samples, node, nodes)
}

/// Returns the canonical node that owns a position below `samples`.
pub(crate) fn node_of(samples: u64, position: u64, nodes: u64) -> u64 {
    let mut node = share(nodes, position, samples.max(1)).min(nodes - 1);
    while node + 1 < nodes && border(samples, node + 1, nodes) <= position {
        node += 1;
    }
    node
}

impl Layout {
    /// Creates the layout, and returns the epoch's generator in its state after the layout.
    pub(crate) fn new(units: &Units, nodes: u64, seed: u64, epoch: u64) -> (Self, Pcg64) {
        let mut whole = spans_of(units);
        Pcg64::new(u128::from(seed)).shuffle(&mut whole);
        let (mut spans, nodes) = cut(&whole, units.samples(), nodes);
        drop(whole);
        let mut rng = Pcg64::new(u128::from(seed) + u128::from(epoch));
        for node in nodes.windows(2) {
            rng.shuffle(&mut spans[node[0]..node[1]]);
        }
        let layout = Self {
            offsets: offsets_of(&spans),
            spans,
            nodes,
        };
        (layout, rng)
    }

    /// Returns the spans of a canonical node.
    pub(crate) fn node(&self, node: u64) -> Range<usize> {
        let node = index(node);
        self.nodes[node]..self.nodes[node + 1]
    }

    /// Returns the positions of a canonical node.
    pub(crate) fn positions(&self, node: u64) -> Range<u64> {
        let spans = self.node(node);
        self.offsets[spans.start]..self.offsets[spans.end]
    }

    /// Calls `each` for every span of a canonical node, with its first big id and its positions.
    pub(crate) fn each(&self, node: u64, mut each: impl FnMut(u64, Range<u64>)) {
        for span_index in self.node(node) {
            each(
                self.spans[span_index].start,
                self.offsets[span_index]..self.offsets[span_index + 1],
            );
        }
    }

    /// Returns the span that contains a position; spans must not be empty.
    pub(crate) fn span_at(&self, position: u64) -> usize {
        self.offsets.partition_point(|offset| *offset <= position) - 1
    }

    /// Returns the span that contains a big id; `None` for an id that does not exist. Takes a step per span.
    pub(crate) fn span_of(&self, big: u64) -> Option<usize> {
        let contains = |span: &Span| {
            big.checked_sub(span.start)
                .is_some_and(|at| at < span.length)
        };
        self.spans.iter().position(contains)
    }

    /// Returns the position of a big id before the samples of a span are shuffled.
    pub(crate) fn position_of(&self, big: u64) -> Option<u64> {
        let span = self.span_of(big)?;
        Some(self.offsets[span] + (big - self.spans[span].start))
    }

    pub(crate) fn node_of_span(&self, span: usize) -> u64 {
        count(self.nodes.partition_point(|first| *first <= span) - 1)
    }

    /// Appends the big ids of `positions`, unshuffled.
    pub(crate) fn fill(&self, positions: Range<u64>, out: &mut Vec<u64>) {
        let mut position = positions.start;
        let mut span = self.span_at(position);
        while position < positions.end {
            let stop = self.offsets[span + 1].min(positions.end);
            let first = self.spans[span].start + (position - self.offsets[span]);
            out.extend(first..first + (stop - position));
            position = stop;
            span += 1;
        }
    }
}

/// Returns the big ids of each unit.
pub(crate) fn spans_of(units: &Units) -> Vec<Span> {
    let ranges = units.ranges();
    ranges
        .map(|range| Span {
            start: range.start,
            length: range.end - range.start,
        })
        .collect()
}

/// Returns the position of each span, then the number of samples.
pub(crate) fn offsets_of(spans: &[Span]) -> Vec<u64> {
    let mut offsets = Vec::with_capacity(spans.len() + 1);
    let mut next = 0;
    offsets.push(next);
    for span in spans {
        next += span.length;
        offsets.push(next);
    }
    offsets
}

/// Cuts spans at the borders of canonical nodes; a span that fits exactly is not split.
pub(crate) fn cut(whole: &[Span], samples: u64, nodes: u64) -> (Vec<Span>, Vec<usize>) {
    let mut spans = Vec::with_capacity(whole.len() + index(nodes));
    let mut firsts = vec![0];
    let mut rest = whole.iter().copied();
    let mut current = rest.next();
    let mut filled = 0;
    for node in 0..nodes {
        let stop = border(samples, node + 1, nodes);
        while let Some(span) = current {
            let room = stop - filled;
            if span.length > room {
                if room > 0 {
                    spans.push(Span {
                        start: span.start,
                        length: room,
                    });
                    current = Some(Span {
                        start: span.start + room,
                        length: span.length - room,
                    });
                    filled = stop;
                }
                break;
            }
            spans.push(span);
            filled += span.length;
            current = rest.next();
        }
        firsts.push(spans.len());
    }
    (spans, firsts)
}

/// Generator checkpoints along a sequence of items.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckpointList {
    marks: Vec<(usize, Checkpoint)>,
    since: u64,
}

/// The number of samples between two checkpoints. Advancing over half as many takes about 10 µs, and a checkpoint
/// takes 32 bytes.
const STRIDE: u64 = 1 << 14;

impl CheckpointList {
    /// Creates a list from stored checkpoints.
    pub(crate) const fn of(marks: Vec<(usize, Checkpoint)>) -> Self {
        Self { marks, since: 0 }
    }

    /// Returns the checkpoints, ordered by item.
    pub(crate) fn marks(&self) -> &[(usize, Checkpoint)] {
        &self.marks
    }

    /// Adds a checkpoint if one is due; called before the generator advances over an item. `fresh` forces a
    /// checkpoint.
    pub(crate) fn pass(&mut self, item: usize, samples: u64, fresh: bool, rng: &Pcg64) {
        if fresh || self.marks.is_empty() || self.since >= STRIDE {
            self.marks.push((item, rng.checkpoint()));
            self.since = 0;
        }
        self.since += samples;
    }

    /// Returns the last checkpoint at or before `item`; `None` before the first.
    pub(crate) fn before(&self, item: usize) -> Option<(usize, Checkpoint)> {
        let after = self.marks.partition_point(|(at, _)| *at <= item);
        self.marks.get(after.checked_sub(1)?).copied()
    }

    /// Returns the generator before a span is shuffled; `None` before the first checkpoint.
    pub(crate) fn generator(&self, rng: &Pcg64, spans: &[Span], item: usize) -> Option<Pcg64> {
        let (mark, checkpoint) = self.before(item)?;
        let mut rng = rng.at(checkpoint);
        for span in &spans[mark..item] {
            rng.skip_shuffle(span.length);
        }
        Some(rng)
    }

    pub(crate) fn len(&self) -> u64 {
        count(self.marks.len())
    }
}

/// Returns the range from which block sizes are drawn, upper end exclusive.
pub(crate) fn block_range(block: u64) -> (u64, u64) {
    let part = |share: f64| trunc(share * real(block)).unwrap_or(0);
    (part(0.75), part(1.25))
}

/// Appends the shuffled ids of a span.
pub(crate) fn shuffled_span(rng: &mut Pcg64, span: Span, out: &mut Vec<u64>) {
    let begin = out.len();
    out.extend(span.start..span.start + span.length);
    rng.shuffle(&mut out[begin..]);
}

/// Shuffles the indexes of a span of fewer than 2^32 samples.
pub(crate) fn shuffled_indexes(rng: &mut Pcg64, length: u64, indexes: &mut Vec<u32>) {
    indexes.clear();
    indexes.extend(0..low32(length));
    rng.shuffle(indexes);
}

/// Returns the positions of a canonical node.
pub(crate) fn positions_of(samples: u64, node: u64, nodes: u64) -> Range<u64> {
    border(samples, node, nodes)..border(samples, node + 1, nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn node_of_position_matches_the_borders(samples in 1_u64..2000, nodes in 1_u64..300, at in 0.0..1.0_f64) {
            let position = crate::num::trunc(at * crate::num::real(samples)).unwrap().min(samples - 1);
            let node = node_of(samples, position, nodes);
            prop_assert!(border(samples, node, nodes) <= position && position < border(samples, node + 1, nodes));
        }

        #[test]
        fn cut_gives_every_node_its_share(sizes in prop::collection::vec(1_u64..50, 1..40), nodes in 1_u64..60) {
            let mut start = 0;
            let whole: Vec<_> = sizes.iter().map(|length| { let span = Span { start, length: *length }; start += length; span }).collect();
            let (spans, firsts) = cut(&whole, start, nodes);
            prop_assert_eq!(count(firsts.len()), nodes + 1);
            for node in 0..nodes {
                let length: u64 = spans[firsts[index(node)]..firsts[index(node + 1)]].iter().map(|span| span.length).sum();
                prop_assert_eq!(length, border(start, node + 1, nodes) - border(start, node, nodes));
            }
            let ids: Vec<u64> = spans.iter().flat_map(|span| span.start..span.start + span.length).collect();
            prop_assert_eq!(ids, (0..start).collect::<Vec<_>>());
        }
    }
}
