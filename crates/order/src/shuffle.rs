//! Shuffles: map positions of the epoch to big ids, one window at a time.
//!
//! Creating a [`Shuffle`] advances the epoch's generator once and keeps checkpoints, but no samples. The exception is
//! `naive`, which keeps the whole permutation, because its swaps cross the whole epoch. A window of a canonical node
//! is then computed from the nearest checkpoint, independently of other windows.

mod keyed;
pub(crate) mod layout;
pub(crate) mod py1br;
mod py1e;
mod py1s;
mod py2s;

use std::ops::Range;

use shardmill_core::Error;

use crate::config::ShuffleAlgo;
use crate::num::{count, index, low32, room};
use crate::rng::Pcg64;
use crate::rng_checkpoints::{self, Kept};
use crate::units::Units;

use keyed::Keyed;
use layout::{CheckpointList, Layout, ShuffleConfig, Window, border, node_of, positions_of};
use py1br::Py1br;
use py1e::Py1e;
use py1s::Py1s;
use py2s::Py2s;

/// Where a window ended, so that the next one needs no search.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Follow(Option<(f64, u64)>);

/// Memory that is reused for each window.
///
/// PERF: new memory for each window costs as much in page faults as the window itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) window: Window,
    py1e: py1e::Scratch,
}

/// The order of an epoch, or of one stream in it.
#[derive(Clone, Debug)]
pub struct Shuffle {
    kind: Kind,
    pub(crate) samples: u64,
    nodes: u64,
    /// The hash of the inputs of the checkpoints; 0 without checkpoints.
    identity: u128,
    /// Whether stored checkpoints were used.
    is_kept: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    Unshuffled,
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
    Py1s(Py1s),
    Py2s(Py2s),
    Py1br(Py1br),
    Py1e(Py1e),
    Keyed(Keyed),
}

impl Shuffle {
    /// Creates the identity order.
    pub(crate) const fn unshuffled(samples: u64, nodes: u64) -> Self {
        Self {
            kind: Kind::Unshuffled,
            samples,
            nodes,
            identity: 0,
            is_kept: false,
        }
    }

    /// Creates a shuffle and advances the generator over the epoch.
    ///
    /// Takes about a nanosecond per sample. It keeps about 32 bytes per span and per 16,384 samples. `naive` takes 4
    /// bytes per sample (8 from 2^32 samples on). `shardmill` does not advance the generator and keeps nothing per
    /// sample.
    ///
    /// # Errors
    /// `InvalidInput` if the block size is too small, or if a canonical node has no samples with `py1e`.
    pub(crate) fn new(units: &Units, config: &ShuffleConfig) -> Result<Self, Error> {
        Self::with_checkpoints(units, config, Kept::new(&[]))
    }

    /// Like [`new`](Self::new), but uses stored checkpoints if they match.
    pub(crate) fn with_checkpoints(
        units: &Units,
        config: &ShuffleConfig,
        kept: Kept<'_>,
    ) -> Result<Self, Error> {
        let (samples, nodes, block) = (units.samples(), config.canonical_nodes, config.block);
        let identity = match config.algo {
            ShuffleAlgo::Naive | ShuffleAlgo::Shardmill => 0,
            _ => rng_checkpoints::identity(units.ranges(), config),
        };
        let kept = kept.find(identity);
        let is_kept = kept.is_some();
        let lay_out = || Layout::new(units, nodes, config.seed, config.epoch);
        let kind = match config.algo {
            ShuffleAlgo::Naive => {
                let mut rng = Pcg64::new(u128::from(config.seed) + u128::from(config.epoch));
                if u32::try_from(samples).is_ok() {
                    let mut order = room(samples, "the order of naive")?;
                    order.extend(0..low32(samples));
                    rng.shuffle(&mut order);
                    Kind::Narrow(order)
                } else {
                    let mut order = room(samples, "the order of naive")?;
                    order.extend(0..samples);
                    rng.shuffle(&mut order);
                    Kind::Wide(order)
                }
            }
            ShuffleAlgo::Py1s => {
                let (layout, rng) = lay_out();
                Kind::Py1s(Py1s::new(layout, rng, kept))
            }
            ShuffleAlgo::Py2s => {
                Kind::Py2s(Py2s::new(units, nodes, config.seed, config.epoch, kept))
            }
            ShuffleAlgo::Py1br => {
                let (layout, rng) = lay_out();
                Kind::Py1br(Py1br::new(layout, rng, nodes, block, kept)?)
            }
            ShuffleAlgo::Py1e => {
                let (layout, rng) = lay_out();
                Kind::Py1e(Py1e::new(layout, rng, nodes, block, kept)?)
            }
            ShuffleAlgo::Shardmill => {
                let (layout, rng) = lay_out();
                Kind::Keyed(Keyed::new(layout, rng, samples, nodes, block))
            }
        };
        Ok(Self {
            kind,
            samples,
            nodes,
            identity,
            is_kept,
        })
    }

    /// Returns the big id at a position if the shuffle has random access; otherwise `None`.
    pub(crate) fn direct(&self, position: u64) -> Option<u64> {
        match &self.kind {
            Kind::Unshuffled => Some(position),
            Kind::Narrow(order) => order.get(index(position)).copied().map(u64::from),
            Kind::Wide(order) => order.get(index(position)).copied(),
            Kind::Keyed(keyed) => Some(keyed.at(position)),
            Kind::Py1s(_) | Kind::Py2s(_) | Kind::Py1br(_) | Kind::Py1e(_) => None,
        }
    }

    /// Returns whether [`direct`](Self::direct) returns ids.
    pub(crate) const fn is_direct(&self) -> bool {
        !matches!(
            self.kind,
            Kind::Py1s(_) | Kind::Py2s(_) | Kind::Py1br(_) | Kind::Py1e(_)
        )
    }

    /// Returns the position of a big id; `None` for an id that does not exist.
    ///
    /// Takes a step per span, and the samples of the shuffled part that contains the id. `naive` takes a step per
    /// sample.
    pub(crate) fn position_of(&self, big: u64) -> Option<u64> {
        if big >= self.samples {
            return None;
        }
        let in_window = |node: u64, from: u64| {
            let mut scratch = Scratch::default();
            self.window(node, from, 1, &mut Follow::default(), &mut scratch);
            let offset = scratch.window.ids.iter().position(|id| *id == big)?;
            Some(scratch.window.start + count(offset))
        };
        match &self.kind {
            Kind::Unshuffled => Some(big),
            Kind::Narrow(order) => order.iter().position(|id| u64::from(*id) == big).map(count),
            Kind::Wide(order) => order.iter().position(|id| *id == big).map(count),
            Kind::Keyed(keyed) => keyed.position_of(big),
            Kind::Py1s(Py1s { layout, .. }) | Kind::Py1br(Py1br { layout, .. }) => {
                // The window at the position before the shuffle contains all positions that the sample may take.
                let from = layout.position_of(big)?;
                in_window(node_of(self.samples, from, self.nodes), from)
            }
            Kind::Py2s(py2s) => py2s
                .pieces_of(big)
                .find_map(|(node, from)| in_window(node, from)),
            Kind::Py1e(py1e) => py1e.position_of(big),
        }
    }

    /// Computes a window of canonical node `node` that contains position `from`, of about `wanted` positions. The
    /// window is stored in `scratch`.
    pub(crate) fn window(
        &self,
        node: u64,
        from: u64,
        wanted: u64,
        follow: &mut Follow,
        scratch: &mut Scratch,
    ) {
        let window = &mut scratch.window;
        window.ids.clear();
        match &self.kind {
            Kind::Py1s(py1s) => py1s.window(node, from, wanted, window),
            Kind::Py2s(py2s) => py2s.window(node, from, wanted, window),
            Kind::Py1br(py1br) => py1br.window(node, from, wanted, window),
            Kind::Py1e(py1e) => {
                let axis = py1e.window(node, from, wanted, follow.0, window, &mut scratch.py1e);
                follow.0 = Some((axis, window.start + count(window.ids.len())));
            }
            Kind::Unshuffled | Kind::Narrow(_) | Kind::Wide(_) | Kind::Keyed(_) => {
                let end = border(self.samples, node + 1, self.nodes).min(from + wanted.max(1));
                window.start = from;
                window
                    .ids
                    .extend((from..end).filter_map(|position| self.direct(position)));
            }
        }
    }

    /// Calls `each` for every part of a unit in canonical node `node`, with one of its big ids and the positions that
    /// its samples may take.
    ///
    /// The range never misses a position, except for `py1e` with a probability of about 1 in 10^8.
    pub(crate) fn reaches(&self, units: &Units, node: u64, mut each: impl FnMut(u64, Range<u64>)) {
        let node_positions = positions_of(self.samples, node, self.nodes);
        match &self.kind {
            Kind::Unshuffled => {
                for unit in units.ranges() {
                    let both =
                        unit.start.max(node_positions.start)..unit.end.min(node_positions.end);
                    if !both.is_empty() {
                        each(unit.start, both);
                    }
                }
            }
            Kind::Narrow(_) | Kind::Wide(_) => {
                for unit in units.ranges() {
                    each(unit.start, node_positions.clone());
                }
            }
            Kind::Py1s(py1s) => py1s.layout.each(node, each),
            Kind::Py2s(py2s) => py2s.reaches(node, each),
            Kind::Py1br(py1br) => py1br
                .layout
                .each(node, |id, positions| each(id, py1br.reach(node, positions))),
            Kind::Py1e(py1e) => py1e.layout.each(node, |id, positions| {
                each(id, py1e.reach(&node_positions, positions))
            }),
            Kind::Keyed(keyed) => keyed.layout.each(node, |id, positions| {
                let (start, length) = (
                    node_positions.start,
                    node_positions.end - node_positions.start,
                );
                let reach = keyed.reach(length, positions.start - start..positions.end - start);
                each(id, reach.start + start..reach.end + start);
            }),
        }
    }

    fn checkpoint_lists(&self) -> Vec<&CheckpointList> {
        match &self.kind {
            Kind::Py1s(py1s) => py1s.checkpoint_lists(),
            Kind::Py2s(py2s) => py2s.checkpoint_lists(),
            Kind::Py1br(py1br) => py1br.checkpoint_lists(),
            Kind::Py1e(py1e) => py1e.checkpoint_lists(),
            Kind::Unshuffled | Kind::Narrow(_) | Kind::Wide(_) | Kind::Keyed(_) => Vec::new(),
        }
    }

    pub(crate) fn checkpoints(&self) -> u64 {
        self.checkpoint_lists()
            .into_iter()
            .map(CheckpointList::len)
            .sum()
    }

    /// Returns whether the generator was advanced over all samples to create this shuffle.
    pub(crate) fn has_computed_checkpoints(&self) -> bool {
        !self.is_kept && !self.checkpoint_lists().is_empty()
    }

    /// Writes the checkpoints, if there are any.
    pub(crate) fn write_checkpoints(&self, out: &mut rng_checkpoints::Writer) {
        let checkpoint_lists = self.checkpoint_lists();
        if !checkpoint_lists.is_empty() {
            out.section(self.identity, &checkpoint_lists);
        }
    }
}
