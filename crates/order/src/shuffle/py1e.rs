//! `py1e`: moves every sample by a bounded random distance.
//!
//! The samples of a canonical node, span by span and shuffled within each span, have the positions 0, 1, 2, …. A
//! uniform random shift is added to each position, and sorting by the sums gives the order. A sum differs from its
//! position by at most 5/8 of a block, so a window of the order needs only nearby spans. Their shifts and shuffles are
//! recomputed from checkpoints, and the samples before them are only counted.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/shuffle/py1e.py`. Differs in that equal sums keep their order; in
//! the original it depends on the processor. Equal sums are likely from about 10^8 samples in a canonical node.

use std::ops::Range;

use shardmill_core::Error;

use super::layout::{CheckpointList, Layout, Window, block_range, shuffled_indexes};
use crate::error;
use crate::num::{count, index, low32, real, trunc};
use crate::rng::Pcg64;
use crate::rng_checkpoints::CheckpointLists;

#[derive(Clone, Debug)]
pub(crate) struct Py1e {
    pub(crate) layout: Layout,
    pub(crate) block: u64,
    /// Checkpoints of the shuffles within spans.
    shuffles: CheckpointList,
    /// Checkpoints of block sizes and shifts.
    shifts: CheckpointList,
    rng: Pcg64,
}

/// The range of shifts of the samples of one span.
#[derive(Clone, Copy, Debug)]
struct Reach {
    low: f64,
    high: f64,
}

/// Computes the range of shifts of a span.
///
/// COMPAT: a block is drawn for every span. A span larger than its block does not move, but its shifts are still
/// drawn.
fn reach(drawn: u64, length: u64, offset: u64, node_length: u64) -> Reach {
    let cutoff = ((real(drawn) - real(length)) / 2.0).max(0.0);
    Reach {
        low: (-cutoff).max(-real(offset)),
        high: cutoff.min(real(node_length - offset - length)),
    }
}

/// Memory that is reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    /// The sum and the index of each sample of a span that is in the window.
    sums: Vec<(f64, u32)>,
    members: Vec<u32>,
    found: Vec<Moved>,
    sorted: Vec<Moved>,
    ends: Vec<u32>,
}

/// A sample of a window before sorting.
#[derive(Clone, Copy, Debug)]
struct Moved {
    to: f64,
    id: u64,
}

/// A range of sums of position and shift in a node.
#[derive(Clone, Copy, Debug)]
struct Axis {
    low: f64,
    high: f64,
}

impl Py1e {
    pub(crate) fn new(
        layout: Layout,
        mut rng: Pcg64,
        nodes: u64,
        block: u64,
        kept: Option<CheckpointLists<'_>>,
    ) -> Result<Self, Error> {
        let spans = layout.spans.len();
        if let Some((shuffles, shifts)) =
            kept.and_then(|mut kept| Some((kept.next(spans)?, kept.next(spans)?)))
        {
            return Ok(Self {
                layout,
                block,
                shuffles,
                shifts,
                rng,
            });
        }
        let (low, high) = block_range(block);
        let (mut shuffles, mut shifts) = (CheckpointList::default(), CheckpointList::default());
        for node in 0..nodes {
            let spans = layout.node(node);
            if spans.is_empty() {
                return Err(error::empty_canonical_node(
                    layout.offsets[layout.spans.len()],
                    nodes,
                ));
            }
            for span_index in spans.clone() {
                let length = layout.spans[span_index].length;
                shuffles.pass(span_index, length, span_index == spans.start, &rng);
                rng.skip_shuffle(length);
            }
            for span_index in spans.clone() {
                let length = layout.spans[span_index].length;
                shifts.pass(span_index, length, span_index == spans.start, &rng);
                rng.integers(low, high)?;
                rng.advance(length);
            }
        }
        Ok(Self {
            layout,
            block,
            shuffles,
            shifts,
            rng,
        })
    }

    /// Returns the greatest distance that any sample moves, rounded up.
    fn farthest(&self) -> u64 {
        block_range(self.block).1 / 2 + 1
    }

    /// Returns the spans of a node with samples that may have sums in `axis`.
    fn spans_near(&self, node: u64, axis: Axis) -> Range<usize> {
        let spans = self.layout.node(node);
        let base = self.layout.offsets[spans.start];
        let farthest = self.farthest();
        let low = base + trunc(axis.low).unwrap_or(0).saturating_sub(farthest);
        let high = base + trunc(axis.high).unwrap_or(0) + farthest + 1;
        let offsets = &self.layout.offsets[spans.start..=spans.end];
        let first = offsets.partition_point(|offset| *offset <= low) - 1;
        let last = offsets.partition_point(|offset| *offset < high);
        spans.start + first..(spans.start + last).min(spans.end)
    }

    /// Returns the last span with a checkpoint of the shifts up to `span_index`, and the generator there.
    fn shifts_before(&self, span_index: usize) -> (usize, Pcg64) {
        // INVARIANT: the first span of every node has a checkpoint.
        match self.shifts.before(span_index) {
            Some((mark, checkpoint)) => (mark, self.rng.at(checkpoint)),
            None => (span_index, self.rng.clone()),
        }
    }

    /// Returns the generators of the shuffle and of the shifts of a span.
    fn generators(&self, span_index: usize) -> (Pcg64, Pcg64) {
        let spans = &self.layout.spans;
        let shuffle = self.shuffles.generator(&self.rng, spans, span_index);
        let (low, high) = block_range(self.block);
        let (mark, mut shift) = self.shifts_before(span_index);
        for span in &spans[mark..span_index] {
            shift.lemire(high - 1 - low);
            shift.advance(span.length);
        }
        (shuffle.unwrap_or_else(|| self.rng.clone()), shift)
    }

    /// Collects the samples whose sums are in `axis`, and returns how many samples have lower sums.
    fn collect(&self, node: u64, axis: Axis, scratch: &mut Scratch) -> u64 {
        let layout = &self.layout;
        let node_positions = layout.positions(node);
        let node_length = node_positions.end - node_positions.start;
        let near = self.spans_near(node, axis);
        let mut below = layout.offsets[near.start] - node_positions.start;
        let Scratch {
            sums,
            members,
            found,
            ..
        } = scratch;
        found.clear();
        let (low, high) = block_range(self.block);
        let (mut shuffle, mut shift) = self.generators(near.start);
        for span_index in near {
            let span = layout.spans[span_index];
            let offset = layout.offsets[span_index] - node_positions.start;
            let reach = reach(
                low + shift.lemire(high - 1 - low),
                span.length,
                offset,
                node_length,
            );
            // Samples before `first` are certainly below the axis, and those from `last` on above it.
            let first = clamp(axis.low - real(offset) - reach.high - 2.0, span.length);
            let last = clamp(axis.high - real(offset) - reach.low + 2.0, span.length).max(first);
            below += first;
            sums.clear();
            if first < last {
                let start = shift.clone();
                shift.advance(first);
                let width = reach.high - reach.low;
                let mut at = first;
                shift.doubles(last - first, |unit| {
                    let to = real(offset + at) + (reach.low + width * unit);
                    if to < axis.low {
                        below += 1;
                    } else if to < axis.high {
                        sums.push((to, low32(at)));
                    }
                    at += 1;
                });
                shift = start;
            }
            shift.advance(span.length);
            if sums.is_empty() {
                shuffle.skip_shuffle(span.length);
            } else {
                shuffled_indexes(&mut shuffle, span.length, members);
                found.extend(sums.iter().map(|(to, at)| Moved {
                    to: *to,
                    id: span.start + u64::from(members[*at as usize]),
                }));
            }
        }
        below
    }

    /// Computes about `wanted` positions from `from` on; `from` is always included.
    ///
    /// `after` is the end of an earlier window of this node, on the axis and as a position. Returns the end of the
    /// window on the axis.
    pub(crate) fn window(
        &self,
        node: u64,
        from: u64,
        wanted: u64,
        after: Option<(f64, u64)>,
        window: &mut Window,
        scratch: &mut Scratch,
    ) -> f64 {
        let positions = self.layout.positions(node);
        let length = real(positions.end - positions.start) + 1.0;
        let local = from - positions.start;
        let wanted = real(wanted.max(64));
        let mut low = match after {
            Some((axis, end)) if end == from => axis,
            _ => self.axis_before(node, local, wanted),
        };
        let mut high = (low + wanted).min(length);
        loop {
            let axis = Axis { low, high };
            let below = self.collect(node, axis, scratch);
            if below > local {
                // The guess was too high; 0 is always valid.
                low = (low - (high - low)).max(0.0);
            } else if below + count(scratch.found.len()) <= local && high < length {
                high = (high + wanted).min(length);
            } else {
                sort(scratch, axis);
                window.start = positions.start + below;
                window
                    .ids
                    .extend(scratch.sorted.iter().map(|moved| moved.id));
                return high;
            }
        }
    }

    /// Returns the position of a big id; `None` for an id that does not exist.
    ///
    /// The sum of the sample is recomputed. Its position is the number of lower sums.
    pub(crate) fn position_of(&self, big: u64) -> Option<u64> {
        let layout = &self.layout;
        let span_index = layout.span_of(big)?;
        let node = layout.node_of_span(span_index);
        let positions = layout.positions(node);
        let (span, offset) = (
            layout.spans[span_index],
            layout.offsets[span_index] - positions.start,
        );
        let (mut shuffle, mut shift) = self.generators(span_index);
        let mut members = Vec::new();
        shuffled_indexes(&mut shuffle, span.length, &mut members);
        let member = low32(big - span.start);
        let at = count(members.iter().position(|found| *found == member)?);
        let (low, high) = block_range(self.block);
        let drawn = low + shift.lemire(high - 1 - low);
        let length = positions.end - positions.start;
        let reach = reach(drawn, span.length, offset, length);
        shift.advance(at);
        let mut to = 0.0;
        let width = reach.high - reach.low;
        shift.doubles(1, |unit| {
            to = real(offset + at) + (reach.low + width * unit)
        });
        let axis = Axis {
            low: to,
            high: to + 1.0,
        };
        let mut scratch = Scratch::default();
        let below = self.collect(node, axis, &mut scratch);
        sort(&mut scratch, axis);
        let found = scratch.sorted.iter().position(|moved| moved.id == big)?;
        Some(positions.start + below + count(found))
    }

    /// Returns a point on the axis below which slightly fewer than `local` samples are expected.
    fn axis_before(&self, node: u64, local: u64, wanted: f64) -> f64 {
        if local == 0 {
            return 0.0;
        }
        let positions = self.layout.positions(node);
        let length = positions.end - positions.start;
        let farthest = real(self.farthest());
        let (low, high) = block_range(self.block);
        let mut left = (real(local) - farthest).max(0.0);
        let mut right = (real(local) + farthest).min(real(length));
        let near = self.spans_near(
            node,
            Axis {
                low: left,
                high: right,
            },
        );
        let (mark, mut shift) = self.shifts_before(near.start);
        let mut spans = Vec::with_capacity(near.len());
        for span_index in mark..near.end {
            let span = self.layout.spans[span_index];
            let offset = self.layout.offsets[span_index] - positions.start;
            let drawn = low + shift.lemire(high - 1 - low);
            shift.advance(span.length);
            if span_index >= near.start {
                spans.push((
                    offset,
                    span.length,
                    reach(drawn, span.length, offset, length),
                ));
            }
        }
        let before = real(self.layout.offsets[near.start] - positions.start);
        let expected = |axis: f64| -> f64 {
            let counts = spans.iter().map(|(offset, length, reach)| {
                expected_below(axis - real(*offset), *length, *reach)
            });
            before + counts.sum::<f64>()
        };
        // Six standard deviations of the sum of at most `2 * farthest` coin flips.
        let margin = 6.0 * (farthest / 2.0).sqrt() + 4.0;
        let target = real(local) - margin;
        while right - left > wanted / 16.0 {
            let middle = f64::midpoint(left, right);
            if expected(middle) > target {
                right = middle;
            } else {
                left = middle;
            }
        }
        left
    }

    /// Returns the positions that the samples at `positions` of a canonical node may take.
    ///
    /// A sample's position is the number of lower sums. Away from the node's ends, equally many samples cross a point
    /// from the left and from the right, with two deviations. One is chance, for which six standard deviations are
    /// allowed. The other is blocks drawn large on one side and small on the other, for which a sixth of a block is
    /// allowed. Near the ends, the full distance is used.
    pub(crate) fn reach(&self, node: &Range<u64>, positions: Range<u64>) -> Range<u64> {
        let length = positions.end - positions.start;
        let farthest = self.farthest();
        let (_, high) = block_range(self.block);
        let cutoff = high.saturating_sub(length).div_ceil(2) + 1;
        let chance = trunc(6.0 * real(farthest).sqrt()).unwrap_or(0);
        let inside = cutoff + self.block / 6 + chance + 8;
        let near_start = positions.start - node.start < 3 * farthest;
        let near_end = node.end - positions.end < 3 * farthest;
        let apart = if near_start || near_end {
            2 * farthest
        } else {
            inside
        };
        let start = positions.start.saturating_sub(apart).max(node.start);
        start..(positions.end + apart).min(node.end)
    }

    pub(crate) fn checkpoint_lists(&self) -> Vec<&CheckpointList> {
        vec![&self.shuffles, &self.shifts]
    }
}

/// Clamps a real number to an index in a span.
fn clamp(value: f64, length: u64) -> u64 {
    trunc(value.max(0.0)).unwrap_or(0).min(length)
}

/// Returns how many samples of a span are expected below `axis`, which is relative to the span's offset.
fn expected_below(axis: f64, length: u64, reach: Reach) -> f64 {
    let length = real(length);
    let width = reach.high - reach.low;
    if width <= 0.0 {
        return (axis - reach.low).clamp(0.0, length);
    }
    // The integral of the clamped ramp `(axis - low - i) / width` over i from 0 to the length.
    let ramp = |value: f64| {
        if value <= 0.0 {
            0.0
        } else if value >= width {
            value - width / 2.0
        } else {
            value * value / (2.0 * width)
        }
    };
    let top = axis - reach.low;
    ramp(top) - ramp(top - length)
}

/// Sorts stably by sum, with one bucket per position.
///
/// PERF: a bucket contains about one sample, so this is linear; a comparison sort takes three times as long.
fn sort(scratch: &mut Scratch, axis: Axis) {
    let Scratch {
        found,
        sorted,
        ends,
        ..
    } = scratch;
    let base = trunc(axis.low).unwrap_or(0);
    let buckets = trunc(axis.high).unwrap_or(0).saturating_sub(base) + 2;
    let bucket = |moved: &Moved| {
        index(
            trunc(moved.to)
                .unwrap_or(0)
                .saturating_sub(base)
                .min(buckets - 1),
        )
    };
    ends.clear();
    ends.resize(index(buckets) + 1, 0_u32);
    for moved in found.iter() {
        ends[bucket(moved) + 1] += 1;
    }
    let mut next = 0;
    for end in ends.iter_mut() {
        next += *end;
        *end = next;
    }
    sorted.clear();
    sorted.extend_from_slice(found);
    for moved in found.iter() {
        let slot = &mut ends[bucket(moved)];
        sorted[*slot as usize] = *moved;
        *slot += 1;
    }
    // Buckets are in order, so elements only move within their bucket.
    for i in 1..sorted.len() {
        let moved = sorted[i];
        let mut at = i;
        while at > 0 && sorted[at - 1].to > moved.to {
            sorted[at] = sorted[at - 1];
            at -= 1;
        }
        sorted[at] = moved;
    }
}
