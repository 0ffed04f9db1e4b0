//! `shardmill`: two keyed permutations of overlapping blocks, computed for each position on demand.
//!
//! Spans are laid out as for `py1e`. The shards have a random order that is fixed for the run and are cut at canonical
//! nodes. They are mixed within each node anew in every epoch. This sequence of each node is divided into plain blocks
//! of half a shuffle block. It is also divided into shifted blocks, which start a quarter of a shuffle block earlier.
//!
//! A position is first permuted within its shifted block, then the result is permuted within its plain block. Both
//! permutations are bijections of their block, so their composition is a bijection of the node. Their keys depend on
//! seed, epoch, node and block. A sample moves by at most three quarters of a shuffle block. At any moment, samples of
//! at most one and a half shuffle blocks are mixed. Samples cross every block border.
//!
//! Memory is that of the layout: a few bytes per shard, none per sample.

use shardmill_core::number::mix;

use super::layout::{Layout, border, node_of};
use crate::num::low64;
use crate::rng::Pcg64;

/// A pseudo-random permutation of `0..n`: an alternating Feistel network over the bits of `n`, repeated while the
/// result is out of range. It is deterministic and not cryptographic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    n: u64,
    key: u64,
    low_bits: u32,
    high_bits: u32,
}

const ROUNDS: u32 = 6;

impl Permutation {
    pub(crate) fn new(n: u64, key: u64) -> Self {
        let bits = (u64::BITS - n.saturating_sub(1).leading_zeros()).max(2);
        Self {
            n,
            key,
            low_bits: bits / 2,
            high_bits: bits - bits / 2,
        }
    }

    pub(crate) fn at(&self, position: u64) -> u64 {
        self.in_range(position, Self::once)
    }

    /// Returns the position whose value is `value`.
    pub(crate) fn position_of(&self, value: u64) -> u64 {
        self.in_range(value, Self::once_back)
    }

    /// Repeats a step until the result is below `n`.
    #[inline]
    fn in_range(&self, mut value: u64, step: impl Fn(&Self, u64) -> u64) -> u64 {
        if self.n < 2 {
            return value;
        }
        loop {
            value = step(self, value);
            // The domain is less than twice `n` (or four values), so this takes at most two iterations on average.
            if value < self.n {
                return value;
            }
        }
    }

    /// Inverts [`once`](Self::once): the rounds in reverse order.
    fn once_back(&self, value: u64) -> u64 {
        let (mut low_bits, mut high_bits) = (self.low_bits, self.high_bits);
        let mut low = value & ((1 << low_bits) - 1);
        let mut high = value >> low_bits;
        for round in (0..ROUNDS).rev() {
            (low_bits, high_bits) = (high_bits, low_bits);
            let mixed = high;
            high = low;
            low = mixed
                ^ (round_function(high, self.key.rotate_left(11 * round)) & ((1 << low_bits) - 1));
        }
        high << low_bits | low
    }

    #[inline]
    fn once(&self, value: u64) -> u64 {
        let (mut low_bits, mut high_bits) = (self.low_bits, self.high_bits);
        let mut low = value & ((1 << low_bits) - 1);
        let mut high = value >> low_bits;
        for round in 0..ROUNDS {
            // The halves swap: `high` is kept, and `low` is mixed with it.
            let mixed = low
                ^ (round_function(high, self.key.rotate_left(11 * round)) & ((1 << low_bits) - 1));
            low = high;
            high = mixed;
            (low_bits, high_bits) = (high_bits, low_bits);
        }
        debug_assert!(high_bits == self.high_bits && low_bits == self.low_bits);
        high << low_bits | low
    }
}

/// The round function: XORs both halves of a product, so that every bit of `value` and `key` affects the lowest bits.
#[inline]
fn round_function(value: u64, key: u64) -> u64 {
    let product = u128::from(value ^ key) * 0x9e37_79b9_7f4a_7c15_u128;
    low64(product) ^ low64(product >> 64)
}

/// A block of positions of a node, and the permutation of them.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: u64,
    permutation: Permutation,
}

impl Block {
    fn at(&self, position: u64) -> u64 {
        self.first + self.permutation.at(position - self.first)
    }

    fn position_of(&self, value: u64) -> u64 {
        self.first + self.permutation.position_of(value - self.first)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    pub(crate) layout: Layout,
    nodes: u64,
    samples: u64,
    half: u64,
    key: u64,
}

impl Keyed {
    pub(crate) fn new(
        layout: Layout,
        mut rng: Pcg64,
        samples: u64,
        nodes: u64,
        block: u64,
    ) -> Self {
        Self {
            layout,
            nodes,
            samples,
            half: (block / 2).max(1),
            key: rng.next_u64(),
        }
    }

    /// Returns the big id at a position below the number of samples.
    pub(crate) fn at(&self, position: u64) -> u64 {
        let node = node_of(self.samples, position, self.nodes);
        let start = border(self.samples, node, self.nodes);
        let length = border(self.samples, node + 1, self.nodes) - start;
        let in_node = position - start;
        let in_node = self.shifted_block(node, length, in_node).at(in_node);
        let moved = start + self.plain_block(node, length, in_node).at(in_node);
        let span = self.layout.span_at(moved);
        self.layout.spans[span].start + (moved - self.layout.offsets[span])
    }

    /// Returns the position of a big id; `None` for an id that does not exist.
    pub(crate) fn position_of(&self, big: u64) -> Option<u64> {
        let moved = self.layout.position_of(big)?;
        let node = node_of(self.samples, moved, self.nodes);
        let start = border(self.samples, node, self.nodes);
        let length = border(self.samples, node + 1, self.nodes) - start;
        let in_node = self
            .plain_block(node, length, moved - start)
            .position_of(moved - start);
        Some(
            start
                + self
                    .shifted_block(node, length, in_node)
                    .position_of(in_node),
        )
    }

    fn block(&self, node: u64, layer: u64, block: u64, positions: std::ops::Range<u64>) -> Block {
        let key = mix(mix(self.key ^ mix(node << 1 | layer)).wrapping_add(block));
        Block {
            first: positions.start,
            permutation: Permutation::new(positions.end - positions.start, key),
        }
    }

    /// Returns the plain block that contains a position.
    fn plain_block(&self, node: u64, length: u64, position: u64) -> Block {
        let block = position / self.half;
        let first = block * self.half;
        self.block(node, 0, block, first..(first + self.half).min(length))
    }

    /// Returns the shifted block that contains a position.
    fn shifted_block(&self, node: u64, length: u64, position: u64) -> Block {
        let shift = self.half - self.half / 2;
        let block = (position + shift) / self.half;
        let first = (block * self.half).saturating_sub(shift);
        let last = ((block + 1) * self.half - shift).min(length);
        self.block(node, 1, block, first..last)
    }

    /// Returns the positions that the samples at `positions` may take; both are counted from the node's start.
    pub(crate) fn reach(
        &self,
        length: u64,
        positions: std::ops::Range<u64>,
    ) -> std::ops::Range<u64> {
        let first = positions.start / self.half * self.half;
        let last = (positions.end.saturating_sub(1) / self.half + 1) * self.half;
        let shift = self.half - self.half / 2;
        let first = ((first + shift) / self.half * self.half).saturating_sub(shift);
        let last =
            ((last.min(length).saturating_sub(1) + shift) / self.half + 1) * self.half - shift;
        first..last.min(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_are_bijections() {
        for n in (1..200).chain([1000, 4095, 4096, 4097]) {
            let permutation = Permutation::new(n, mix(n));
            let mut seen: Vec<u64> = (0..n).map(|position| permutation.at(position)).collect();
            for (position, value) in (0_u64..).zip(&seen) {
                assert_eq!(permutation.position_of(*value), position, "n {n}");
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..n).collect::<Vec<_>>(), "n {n}");
        }
    }

    #[test]
    fn permutations_are_uniform() {
        // Over many keys, each value is equally frequent at each position: chi-squared with 15 degrees of freedom.
        const N: u64 = 16;
        const KEYS: u64 = 16_000;
        for position in 0..N {
            let mut hits = [0_u32; 16];
            for key in 0..KEYS {
                hits[usize::try_from(Permutation::new(N, mix(key)).at(position)).unwrap()] += 1;
            }
            let expected = 1000.0;
            let chi: f64 = hits
                .iter()
                .map(|hit| (f64::from(*hit) - expected).powi(2) / expected)
                .sum();
            assert!(
                chi < 50.0,
                "position {position}: chi square {chi}, {hits:?}"
            );
        }
    }
}
