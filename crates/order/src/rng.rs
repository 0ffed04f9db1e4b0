//! NumPy's default generator: `SeedSequence`, PCG64 (XSL-RR) and the methods that the sample order uses.
//!
//! Bit-identical to `numpy.random.default_rng(seed)`, with two additions. Draws can be skipped without storing their
//! results ([`Pcg64::skip_shuffle`], [`Pcg64::skip_choice`], [`Pcg64::advance`]). The state of a generator is a small
//! value that can be stored and restored ([`Checkpoint`]).
//!
//! Source: NumPy 2.1, `numpy/random/bit_generator.pyx`, `src/pcg64/`, `src/distributions/distributions.c`,
//! `_generator.pyx`. Differs in that shuffles do not branch on a rejected draw, and that the operating system provides
//! no entropy.

use std::collections::HashSet;

use shardmill_core::Error;

use crate::error::{self, OrderProblem};
use crate::num::{count, high32, index, low32, low64};

const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
const MULTIPLIER_2: u128 = MULTIPLIER.wrapping_mul(MULTIPLIER);
const MULTIPLIER_4: u128 = MULTIPLIER_2.wrapping_mul(MULTIPLIER_2);
/// 1 + M + M² + M³: the factor of the increment after four steps.
const SUM_4: u128 = MULTIPLIER_2
    .wrapping_add(1)
    .wrapping_mul(MULTIPLIER.wrapping_add(1));

/// Spreads an integer over 256 bits, like `numpy.random.SeedSequence(entropy).generate_state(4, numpy.uint64)`.
fn seed_state(entropy: u128) -> [u64; 4] {
    let mut hash = 0x43b0_d7e5_u32;
    let mut hashmix = move |value: u32| {
        let value = value ^ hash;
        hash = hash.wrapping_mul(0x931e_8875);
        let value = value.wrapping_mul(hash);
        value ^ (value >> 16)
    };
    let words = [0, 32, 64, 96].map(|bits| low32(low64(entropy >> bits)));
    let mut pool = words.map(&mut hashmix);
    for from in 0..4 {
        for to in 0..4 {
            if from != to {
                pool[to] = mix(pool[to], hashmix(pool[from]));
            }
        }
    }
    let mut hash = 0x8b51_f9dd_u32;
    let mut next = |position: usize| {
        let value = pool[position % 4] ^ hash;
        hash = hash.wrapping_mul(0x58f3_8ded);
        let value = value.wrapping_mul(hash);
        u64::from(value ^ (value >> 16))
    };
    [0, 2, 4, 6].map(|position| next(position) | next(position + 1) << 32)
}

fn mix(left: u32, right: u32) -> u32 {
    let value = 0xca01_f9dd_u32
        .wrapping_mul(left)
        .wrapping_sub(0x4973_f715_u32.wrapping_mul(right));
    value ^ (value >> 16)
}

/// The state of a generator. Together with the generator's increment, it is enough to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub(crate) state: u128,
    pub(crate) half: Option<u32>,
}

/// `numpy.random.default_rng(seed)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pcg64 {
    state: u128,
    increment: u128,
    /// The upper half of a 64-bit draw whose lower half was used.
    ///
    /// COMPAT: 64-bit draws and doubles neither use nor clear it, so it persists over any number of them.
    half: Option<u32>,
}

/// Four consecutive states that advance together, so that their multiplications are independent.
///
/// PERF: a single chain costs 2 ns a draw, four cost less than 1 (`examples/first_batch.rs`).
struct Lanes {
    next: [u128; 4],
    plus: u128,
}

impl Lanes {
    fn new(state: u128, increment: u128) -> Self {
        let mut next = [state; 4];
        let mut last = state;
        for lane in &mut next {
            last = last.wrapping_mul(MULTIPLIER).wrapping_add(increment);
            *lane = last;
        }
        Self {
            next,
            plus: SUM_4.wrapping_mul(increment),
        }
    }

    #[inline(always)]
    fn draw(&mut self) -> [u64; 4] {
        let mut out = [0; 4];
        for (word, lane) in out.iter_mut().zip(&mut self.next) {
            *word = output(*lane);
            *lane = lane.wrapping_mul(MULTIPLIER_4).wrapping_add(self.plus);
        }
        out
    }
}

#[inline(always)]
const fn output(state: u128) -> u64 {
    (low64(state >> 64) ^ low64(state)).rotate_right(low32(low64(state >> 122)))
}

#[inline(always)]
const fn unit(word: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let mantissa = (word >> 11) as f64;
    mantissa * (1.0 / 9_007_199_254_740_992.0)
}

impl Pcg64 {
    /// Creates `default_rng(seed)`. The order uses `seed` and `seed + epoch`, which need at most 65 bits.
    #[must_use]
    pub fn new(seed: u128) -> Self {
        let words = seed_state(seed).map(u128::from);
        let start = words[0] << 64 | words[1];
        let mut generator = Self {
            state: 0,
            increment: (words[2] << 64 | words[3]) << 1 | 1,
            half: None,
        };
        generator.step();
        generator.state = generator.state.wrapping_add(start);
        generator.step();
        generator
    }

    /// Returns the current state as a checkpoint.
    #[must_use]
    pub const fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            state: self.state,
            half: self.half,
        }
    }

    /// Returns this generator at a checkpoint of itself or of a copy.
    #[must_use]
    pub const fn at(&self, checkpoint: Checkpoint) -> Self {
        Self {
            state: checkpoint.state,
            increment: self.increment,
            half: checkpoint.half,
        }
    }

    #[inline(always)]
    const fn step(&mut self) {
        self.state = self
            .state
            .wrapping_mul(MULTIPLIER)
            .wrapping_add(self.increment);
    }

    /// Returns the next 64 bits.
    #[inline(always)]
    pub const fn next_u64(&mut self) -> u64 {
        self.step();
        output(self.state)
    }

    /// Returns the next 32 bits: the lower half of a 64-bit draw, then its upper half.
    #[inline(always)]
    pub const fn next_u32(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            half
        } else {
            let word = self.next_u64();
            self.half = Some(high32(word));
            low32(word)
        }
    }

    /// Returns the next double in `[0, 1)`.
    #[inline(always)]
    pub const fn next_f64(&mut self) -> f64 {
        unit(self.next_u64())
    }

    /// Skips `steps` 64-bit draws or doubles, with a multiplication for each bit of `steps`.
    pub fn advance(&mut self, steps: u64) {
        // Any number of steps is one affine map modulo 2^128.
        let (mut base, mut base_plus) = (MULTIPLIER, self.increment);
        let mut left = steps;
        while left > 0 {
            if left & 1 == 1 {
                self.state = self.state.wrapping_mul(base).wrapping_add(base_plus);
            }
            base_plus = base.wrapping_add(1).wrapping_mul(base_plus);
            base = base.wrapping_mul(base);
            left >>= 1;
        }
    }

    /// Returns a uniform integer in `[0, most]` by masked rejection, as `shuffle` draws it.
    #[inline]
    pub const fn interval(&mut self, max: u64) -> u64 {
        if max == 0 {
            return 0;
        }
        let mask = u64::MAX >> max.leading_zeros();
        if max <= u32::MAX as u64 {
            loop {
                let value = self.next_u32() as u64 & mask;
                if value <= max {
                    return value;
                }
            }
        }
        loop {
            let value = self.next_u64() & mask;
            if value <= max {
                return value;
            }
        }
    }

    /// Returns a uniform integer in `[0, most]` by Lemire's multiplication, as `integers` and `choice` draw it.
    #[inline]
    pub fn lemire(&mut self, max: u64) -> u64 {
        if max == 0 {
            return 0;
        }
        if max < u64::from(u32::MAX) {
            let range = low32(max) + 1;
            let mut product = u64::from(self.next_u32()) * u64::from(range);
            if low32(product) < range {
                let threshold = (u32::MAX - low32(max)) % range;
                while low32(product) < threshold {
                    product = u64::from(self.next_u32()) * u64::from(range);
                }
            }
            return product >> 32;
        }
        if max == u64::from(u32::MAX) {
            return u64::from(self.next_u32());
        }
        if max == u64::MAX {
            return self.next_u64();
        }
        let range = max + 1;
        let mut product = u128::from(self.next_u64()) * u128::from(range);
        if low64(product) < range {
            let threshold = (u64::MAX - max) % range;
            while low64(product) < threshold {
                product = u128::from(self.next_u64()) * u128::from(range);
            }
        }
        low64(product >> 64)
    }

    /// Returns `integers(low, high)`.
    ///
    /// # Errors
    /// `InvalidInput` if the range is empty.
    pub fn integers(&mut self, low: u64, high: u64) -> Result<u64, Error> {
        if low >= high {
            return Err(OrderProblem::ShuffleBlock.at(
                "shuffle_block_size",
                format!("no integer is at least {low} and below {high}"),
            ));
        }
        Ok(low + self.lemire(high - 1 - low))
    }

    /// Returns `uniform(low, high)`.
    #[inline]
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        // No fused multiply-add, because the original rounds twice.
        low + (high - low) * self.next_f64()
    }

    /// Calls `each` with `draws` doubles in `[0, 1)`, in order.
    #[inline]
    pub fn doubles(&mut self, draws: u64, mut each: impl FnMut(f64)) {
        let mut left = draws;
        if left >= 4 {
            let mut lanes = Lanes::new(self.state, self.increment);
            let mut last = self.state;
            while left >= 4 {
                last = lanes.next[3];
                for word in lanes.draw() {
                    each(unit(word));
                }
                left -= 4;
            }
            self.state = last;
        }
        for _ in 0..left {
            each(self.next_f64());
        }
    }

    /// Shuffles in place, like `shuffle(x)`.
    ///
    /// PERF: a rejected draw swaps an element with itself instead of branching. A quarter of all draws are rejected,
    /// which a branch predictor cannot foresee.
    pub fn shuffle<T: Copy>(&mut self, x: &mut [T]) {
        self.shuffle_from(x, 1);
    }

    /// Runs `shuffle(x)` only until the positions from `from` on are final. The positions before contain the same set
    /// as after the whole shuffle, in another order.
    pub fn shuffle_from<T: Copy>(&mut self, x: &mut [T], from: usize) {
        let from = from.max(1);
        if x.len() <= from {
            return;
        }
        if u32::try_from(x.len() - 1).is_err() {
            for i in (from..x.len()).rev() {
                x.swap(i, index(self.interval(count(i))));
            }
            return;
        }
        let mut i = x.len() - 1;
        while i >= from {
            // All indexes in [floor, 2·floor) are drawn with the same mask.
            let floor = 1_usize << (usize::BITS - 1 - i.leading_zeros());
            let mask = 2 * floor - 1;
            let stop = floor.max(from);
            while i >= stop {
                let value = self.next_u32() as usize & mask;
                let accepted = value <= i;
                let other = if accepted { value } else { i };
                let (here, there) = (x[i], x[other]);
                x[i] = there;
                x[other] = here;
                i -= usize::from(accepted);
            }
        }
    }

    /// Returns `permutation(n)`.
    #[must_use]
    pub fn permutation(&mut self, n: u64) -> Vec<u64> {
        let mut order: Vec<u64> = (0..n).collect();
        self.shuffle(&mut order);
        order
    }

    /// Advances the generator like a `shuffle` of `n` elements, in constant memory.
    ///
    /// The number of draws depends on the values drawn, so all draws are made but nothing is swapped.
    pub fn skip_shuffle(&mut self, n: u64) {
        let mut i = n.saturating_sub(1);
        while i > u64::from(u32::MAX >> 1) {
            self.interval(i);
            i -= 1;
        }
        let mut i = low32(i);
        if i >= BLOCK_FROM {
            if let Some(half) = self.half.take() {
                let mask = u32::MAX >> i.leading_zeros();
                i -= u32::from(half & mask <= i);
            }
            i = self.skip_blocks(i);
        }
        while i > 0 {
            let mask = u32::MAX >> i.leading_zeros();
            let floor = mask / 2 + 1;
            while i >= floor {
                let value = self.next_u32() & mask;
                i -= u32::from(value <= i);
            }
        }
    }

    /// Runs the part of [`skip_shuffle`](Self::skip_shuffle) above [`BLOCK_FROM`], eight draws at a time.
    ///
    /// PERF: eight draws lower `i` by at most eight. So a draw of at most `i − 8` is accepted and one above `i` is
    /// rejected, whatever the other draws are. Only a draw in between (8 in `i`) requires sequential evaluation.
    fn skip_blocks(&mut self, from: u32) -> u32 {
        let mut lanes = Lanes::new(self.state, self.increment);
        let mut i = from;
        let mut last = self.state;
        while i >= BLOCK_FROM {
            let mask = u32::MAX >> i.leading_zeros();
            let masks = u64::from(mask) * BOTH;
            // Eight draws near a change of the mask are evaluated one by one.
            let stop = mask / 2 + 1 + 8;
            while i >= stop {
                let words = lanes.draw();
                // In each half of a word: 2^31 + i − draw, whose top bit is set if the draw is accepted, and the same
                // for i − 8. There is no borrow across halves, because i and the draws are below 2^31.
                let able = u64::from(i) * BOTH + TOPS;
                let sure = able - 8 * BOTH;
                let (mut accepted, mut differ) = (0_u64, 0_u64);
                for word in words {
                    let draws = word & masks;
                    let (able, sure) = (able.wrapping_sub(draws), sure.wrapping_sub(draws));
                    accepted = accepted.wrapping_add(able >> 31 & BOTH);
                    differ |= able ^ sure;
                }
                if differ & TOPS == 0 {
                    i = i.wrapping_sub(low32(accepted).wrapping_add(high32(accepted)));
                } else {
                    for word in words {
                        i = i.wrapping_sub(u32::from(low32(word) & mask <= i));
                        i = i.wrapping_sub(u32::from(high32(word) & mask <= i));
                    }
                }
            }
            last = lanes.next[3];
            for word in lanes.draw() {
                for draw in [low32(word), high32(word)] {
                    i -= u32::from(draw & u32::MAX >> i.leading_zeros() <= i);
                }
            }
        }
        self.state = last;
        i
    }

    /// Returns `choice(n, k, replace=False)`.
    ///
    /// # Errors
    /// `InvalidInput` if `k > n`.
    pub fn choice(&mut self, n: u64, k: u64) -> Result<Vec<u64>, Error> {
        if k > n {
            return Err(error::choose_too_many(k, n));
        }
        if uses_tail(n, k) {
            let mut x: Vec<u64> = (0..n).collect();
            for i in ((n - k).max(1)..n).rev() {
                x.swap(index(i), index(self.lemire(i)));
            }
            return Ok(x.split_off(index(n - k)));
        }
        let mut taken = HashSet::with_capacity(index(k));
        let mut chosen = Vec::with_capacity(index(k));
        for j in n - k..n {
            let value = self.lemire(j);
            let value = if taken.insert(value) { value } else { j };
            taken.insert(value);
            chosen.push(value);
        }
        for i in (1..k).rev() {
            chosen.swap(index(i), index(self.lemire(i)));
        }
        Ok(chosen)
    }

    /// Advances the generator like [`choice`](Self::choice), in constant memory; does nothing if `k > n`.
    pub fn skip_choice(&mut self, n: u64, k: u64) {
        if k > n {
            return;
        }
        if uses_tail(n, k) {
            let low = (n - k).max(1);
            for i in (low..n).rev() {
                self.lemire(i);
            }
        } else {
            for j in n - k..n {
                self.lemire(j);
            }
            for i in (1..k).rev() {
                self.lemire(i);
            }
        }
    }
}

/// A 1, and the highest bit, in each half of a word.
const BOTH: u64 = 0x0000_0001_0000_0001;
const TOPS: u64 = BOTH << 31;

/// Below this, draws are skipped one by one, because too many blocks would need sequential evaluation.
const BLOCK_FROM: u32 = 1024;

/// Returns whether `choice` shuffles the tail of a full array; otherwise it uses Floyd's method.
const fn uses_tail(n: u64, k: u64) -> bool {
    n > 10_000 && k > n / 50
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn seeding_equals_numpy() {
        for (seed, state, increment) in [
            (
                0,
                0x1aa1_b534_5996_452d_0958_5eb7_a695_61e3,
                0x418d_dadb_3af7_1a82_5881_33bc_4478_73a9,
            ),
            (
                9176,
                0xf1ef_16c8_22be_aeb8_bac9_a92f_5966_dea5,
                0x03bb_e0d5_3f44_8498_02b8_82f1_26e3_fb37_u128,
            ),
            (
                1 << 32,
                0x24d0_60cf_1520_dbdd_21bb_f7fb_ff1a_c5d4,
                0x77ff_3ed8_6c5c_5633_7b62_eea7_340c_a9c7,
            ),
        ] {
            let rng = Pcg64::new(seed);
            assert_eq!(
                (rng.state, rng.increment),
                (state, increment),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn draws_equal_numpy() {
        let fresh = || Pcg64::new(9176);
        let mut rng = fresh();
        assert_eq!(
            [rng.next_u64(), rng.next_u64(), rng.next_u64()],
            [
                0xce48_8e5f_f4c1_0304,
                0x233a_25e3_fe39_60b0,
                0xbc04_ca4c_34b5_a59c
            ]
        );
        let mut rng = fresh();
        assert_eq!(
            [rng.next_u32(), rng.next_u32(), rng.next_u32()],
            [0xf4c1_0304, 0xce48_8e5f, 0xfe39_60b0]
        );
        let mut rng = fresh();
        assert_eq!(rng.permutation(10), [8, 1, 2, 7, 5, 6, 9, 3, 0, 4]);
        assert_eq!(
            rng.next_f64().to_bits(),
            (f64::from_bits(0x3ff5_6023_b248_97ac) / 8.0).to_bits()
        );
        assert_eq!(
            [rng.integers(0, 100).unwrap(), rng.integers(0, 100).unwrap()],
            [83, 84]
        );
        let mut rng = fresh();
        assert_eq!(rng.choice(10, 4).unwrap(), [7, 1, 8, 6]);
        assert_eq!(rng.choice(20_000, 3).unwrap(), [17_077, 15_196, 6_623]);
        let mut rng = fresh();
        let tail = rng.choice(20_000, 500).unwrap();
        assert_eq!(
            tail[..8],
            [18_955, 9_120, 3_174, 448, 11_717, 16_114, 685, 16_696]
        );
        assert_eq!(rng.next_u64(), 0xde04_dd0d_d225_0873);
        let mut rng = fresh();
        let drawn: Vec<_> = (0..4)
            .map(|_| rng.integers(196_608, 327_680).unwrap())
            .collect();
        assert_eq!(drawn, [321_922, 302_225, 326_770, 214_644]);
        assert!(rng.integers(5, 5).is_err());
        assert!(rng.choice(5, 6).is_err());
    }

    fn plain_shuffle(rng: &mut Pcg64, x: &mut [u32]) {
        for i in (1..x.len()).rev() {
            x.swap(i, index(rng.interval(count(i))));
        }
    }

    proptest! {
        #[test]
        fn skip_shuffle_advances_like_shuffle(seed: u64, odd: bool, n in prop_oneof![0_usize..70, 900_usize..9000, 30_000_usize..150_000]) {
            let mut start = Pcg64::new(u128::from(seed));
            if odd {
                start.next_u32();
            }
            let mut plain: Vec<u32> = (0..u32::try_from(n).unwrap()).collect();
            let mut fast = plain.clone();
            let (mut first, mut second, mut third) = (start.clone(), start.clone(), start);
            plain_shuffle(&mut first, &mut plain);
            second.shuffle(&mut fast);
            third.skip_shuffle(count(n));
            prop_assert_eq!(plain, fast);
            prop_assert_eq!(&first, &second);
            prop_assert_eq!(&first, &third);
        }

        #[test]
        fn skip_choice_advances_like_choice(seed: u64, odd: bool, n in prop_oneof![1_u64..200, 9_000_u64..30_000], part in 0_u64..=1000) {
            let mut first = Pcg64::new(u128::from(seed));
            if odd {
                first.next_u32();
            }
            let mut second = first.clone();
            let k = n * part / 1000;
            let chosen = first.choice(n, k).unwrap();
            second.skip_choice(n, k);
            prop_assert_eq!(&first, &second);
            let distinct: HashSet<_> = chosen.iter().collect();
            prop_assert_eq!(count(distinct.len()), k);
            prop_assert!(chosen.iter().all(|value| *value < n));
        }

        #[test]
        fn advance_equals_repeated_draws(seed: u64, odd: bool, steps in 0_u64..3000) {
            let mut first = Pcg64::new(u128::from(seed));
            if odd {
                first.next_u32();
            }
            let (mut second, mut third) = (first.clone(), first.clone());
            let drawn: Vec<u64> = (0..steps).map(|_| first.next_f64().to_bits()).collect();
            second.advance(steps);
            let mut again = Vec::new();
            third.doubles(steps, |value| again.push(value.to_bits()));
            prop_assert_eq!(&first, &second);
            prop_assert_eq!(&first, &third);
            prop_assert_eq!(drawn, again);
        }
    }
}
