//! `py2s`: shuffles the samples of each unit once for the run, and the samples of each piece again for the epoch.
//!
//! Source: MosaicML Streaming 0.13, `streaming/base/shuffle/py2s.py`. Differs in that pieces are shuffled on demand.

use std::ops::Range;

use super::layout::{CheckpointList, Span, Window, cut, offsets_of, shuffled_span, spans_of};
use crate::num::{count, index};
use crate::rng::Pcg64;
use crate::rng_checkpoints::CheckpointLists;
use crate::units::Units;

#[derive(Clone, Debug)]
pub(crate) struct Py2s {
    /// Units in the order of the run.
    pub(crate) units: Vec<Span>,
    /// The position of each unit's first sample in the shuffled list of the run, then the number of samples.
    unit_offsets: Vec<u64>,
    run: Pcg64,
    run_checkpoint_list: CheckpointList,
    /// Pieces in the order of the epoch, as ranges of the shuffled list of the run.
    pub(crate) pieces: Vec<Span>,
    /// The position of each piece, then the number of samples.
    pub(crate) offsets: Vec<u64>,
    pub(crate) nodes: Vec<usize>,
    epoch: Pcg64,
    /// The generator before the pieces of each node are drawn.
    epoch_starts: CheckpointList,
    epoch_checkpoint_list: CheckpointList,
}

impl Py2s {
    pub(crate) fn new(
        units: &Units,
        nodes: u64,
        seed: u64,
        epoch: u64,
        kept: Option<CheckpointLists<'_>>,
    ) -> Self {
        let mut run = Pcg64::new(u128::from(seed));
        let mut whole = spans_of(units);
        run.shuffle(&mut whole);
        let unit_offsets = offsets_of(&whole);
        let slices: Vec<Span> = whole
            .iter()
            .zip(&unit_offsets)
            .map(|(unit, offset)| Span {
                start: *offset,
                length: unit.length,
            })
            .collect();
        let (mut pieces, nodes) = cut(&slices, units.samples(), nodes);
        drop(slices);
        let mut rng = Pcg64::new(u128::from(seed) + u128::from(epoch));
        let kept = kept.and_then(|mut kept| {
            let checkpoint_lists = [
                kept.next(whole.len())?,
                kept.next(nodes.len() - 1)?,
                kept.next(pieces.len())?,
            ];
            (checkpoint_lists[1].len() == count(nodes.len() - 1)).then_some(checkpoint_lists)
        });
        let [run_checkpoint_list, epoch_starts, epoch_checkpoint_list] = match kept {
            Some(checkpoint_lists) => {
                // The order of each node's pieces is drawn before their samples.
                for (node, (_, start)) in nodes.windows(2).zip(checkpoint_lists[1].marks()) {
                    rng = rng.at(*start);
                    rng.shuffle(&mut pieces[node[0]..node[1]]);
                }
                checkpoint_lists
            }
            None => advance(&whole, &mut pieces, &nodes, &mut run, &mut rng),
        };
        Self {
            offsets: offsets_of(&pieces),
            unit_offsets,
            units: whole,
            run,
            run_checkpoint_list,
            pieces,
            nodes,
            epoch: rng,
            epoch_starts,
            epoch_checkpoint_list,
        }
    }

    /// Computes whole pieces from the one at `from`, until there are at least `wanted` positions or the node ends.
    pub(crate) fn window(&self, node: u64, from: u64, wanted: u64, window: &mut Window) {
        let mut piece = self.offsets.partition_point(|offset| *offset <= from) - 1;
        window.start = self.offsets[piece];
        let last = self.nodes[index(node) + 1];
        let ids = &mut window.ids;
        let list = &self.epoch_checkpoint_list;
        let Some(mut rng) = list.generator(&self.epoch, &self.pieces, piece) else {
            return;
        };
        while piece < last && self.offsets[piece] < from + wanted {
            let begin = ids.len();
            self.run_slice(self.pieces[piece], ids);
            rng.shuffle(&mut ids[begin..]);
            piece += 1;
        }
    }

    /// Calls `each` for every piece of a canonical node, with the first big id of its unit and its positions.
    pub(crate) fn reaches(&self, node: u64, mut each: impl FnMut(u64, Range<u64>)) {
        for piece in self.nodes[index(node)]..self.nodes[index(node) + 1] {
            let unit = self.units[self.unit_at(self.pieces[piece].start)];
            each(unit.start, self.offsets[piece]..self.offsets[piece + 1]);
        }
    }

    /// Returns the canonical node and the first position of each piece that may contain a big id: those of its unit.
    pub(crate) fn pieces_of(&self, big: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let contains = |unit: &Span| {
            big.checked_sub(unit.start)
                .is_some_and(|at| at < unit.length)
        };
        let unit = self.units.iter().position(contains);
        let slice = unit.map_or(0..0, |unit| {
            self.unit_offsets[unit]..self.unit_offsets[unit + 1]
        });
        let pieces = self.pieces.iter().enumerate();
        pieces
            .filter(move |(_, piece)| slice.contains(&piece.start))
            .map(|(piece_index, _)| {
                let node = self.nodes.partition_point(|first| *first <= piece_index) - 1;
                (count(node), self.offsets[piece_index])
            })
    }

    /// Appends a part of one unit's samples in the order of the run.
    fn run_slice(&self, piece: Span, out: &mut Vec<u64>) {
        let unit = self.unit_at(piece.start);
        let list = &self.run_checkpoint_list;
        let Some(mut rng) = list.generator(&self.run, &self.units, unit) else {
            return;
        };
        let first = piece.start - self.unit_offsets[unit];
        if piece.length == self.units[unit].length {
            shuffled_span(&mut rng, self.units[unit], out);
        } else {
            let mut whole = Vec::new();
            shuffled_span(&mut rng, self.units[unit], &mut whole);
            out.extend(whole.iter().skip(index(first)).take(index(piece.length)));
        }
    }

    /// Returns the unit that contains a position of the shuffled list of the run.
    pub(crate) fn unit_at(&self, position_in_run: u64) -> usize {
        self.unit_offsets
            .partition_point(|offset| *offset <= position_in_run)
            - 1
    }

    pub(crate) fn checkpoint_lists(&self) -> Vec<&CheckpointList> {
        vec![
            &self.run_checkpoint_list,
            &self.epoch_starts,
            &self.epoch_checkpoint_list,
        ]
    }
}

/// Advances both generators over all samples and draws the order of each node's pieces. Returns the checkpoints of the
/// run, of the start of each node, and of the epoch.
fn advance(
    units: &[Span],
    pieces: &mut [Span],
    nodes: &[usize],
    run: &mut Pcg64,
    epoch: &mut Pcg64,
) -> [CheckpointList; 3] {
    let [
        mut run_checkpoint_list,
        mut starts,
        mut epoch_checkpoint_list,
    ] = <[CheckpointList; 3]>::default();
    // PERF: the two generators are independent, so they run in parallel.
    std::thread::scope(|scope| {
        // The scope propagates a panic of this thread.
        scope.spawn(|| {
            for (unit_index, unit) in units.iter().enumerate() {
                run_checkpoint_list.pass(unit_index, unit.length, false, run);
                run.skip_shuffle(unit.length);
            }
        });
        for (number, node) in nodes.windows(2).enumerate() {
            let node = node[0]..node[1];
            starts.pass(number, 0, true, epoch);
            epoch.shuffle(&mut pieces[node.clone()]);
            for piece in node.clone() {
                epoch_checkpoint_list.pass(piece, pieces[piece].length, piece == node.start, epoch);
                epoch.skip_shuffle(pieces[piece].length);
            }
        }
    });
    [run_checkpoint_list, starts, epoch_checkpoint_list]
}
