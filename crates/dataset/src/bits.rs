//! A bit for each sample of a dataset, with counts of the bits before each block.

use std::ops::Range;

const WORD: u64 = u64::BITS as u64;
/// Words of a block, which has one count.
const BLOCK: usize = 8;

/// A sequence of bits that counts and finds set bits quickly. It takes 1.13 bits for each bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    words: Box<[u64]>,
    /// The number of set bits before each block, then the number of all set bits.
    counts: Box<[u64]>,
    len: u64,
}

fn at(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the bits of a word from `from` on.
const fn from_bit(word: u64, from: u64) -> u64 {
    if from >= WORD {
        0
    } else {
        word >> from << from
    }
}

impl Bits {
    /// Creates `len` bits, of which those in the ranges are set. Parts of ranges beyond the end are ignored.
    pub fn new(len: u64, set: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut words = vec![0_u64; at(len.div_ceil(WORD))].into_boxed_slice();
        for range in set {
            let (mut next, end) = (range.start, range.end.min(len));
            while next < end {
                let stop = (next - next % WORD + WORD).min(end);
                let above = from_bit(u64::MAX, stop - (next - next % WORD));
                if let Some(word) = words.get_mut(at(next / WORD)) {
                    *word |= from_bit(u64::MAX, next % WORD) & !above;
                }
                next = stop;
            }
        }
        let mut counts = Vec::with_capacity(words.len() / BLOCK + 2);
        let mut count = 0;
        for block in words.chunks(BLOCK) {
            counts.push(count);
            count += ones(block);
        }
        counts.push(count);
        Self {
            words,
            counts: counts.into(),
            len,
        }
    }

    /// Returns the number of set bits.
    pub fn ones(&self) -> u64 {
        self.counts.last().copied().unwrap_or(0)
    }

    /// Returns whether a bit is set.
    pub fn contains(&self, bit: u64) -> bool {
        let word = self.words.get(at(bit / WORD)).copied().unwrap_or(0);
        word >> (bit % WORD) & 1 == 1
    }

    /// Returns the number of set bits before a position.
    pub fn rank(&self, bit: u64) -> u64 {
        if bit >= self.len {
            return self.ones();
        }
        let word = at(bit / WORD);
        let block = word / BLOCK;
        let before = self.counts.get(block).copied().unwrap_or(0);
        let words = self.words.get(block * BLOCK..word).unwrap_or_default();
        let last = self.words.get(word).copied().unwrap_or(0);
        let rest = last & !from_bit(u64::MAX, bit % WORD);
        before + ones(words) + u64::from(rest.count_ones())
    }

    /// Returns the position of the set bit with this number; the number of bits if there is none.
    pub fn select(&self, number: u64) -> u64 {
        if number >= self.ones() {
            return self.len;
        }
        let block = self.counts.partition_point(|count| *count <= number) - 1;
        let mut left = number - self.counts.get(block).copied().unwrap_or(0);
        let words = self.words.get(block * BLOCK..).unwrap_or_default();
        for (word, first) in words.iter().zip((block * BLOCK) as u64..) {
            let count = u64::from(word.count_ones());
            if left < count {
                let word = (0..left).fold(*word, |word, _| word & (word - 1));
                return first * WORD + u64::from(word.trailing_zeros());
            }
            left -= count;
        }
        self.len
    }

    /// Returns the first position from `from` on whose bit is set, or is not set; the number of bits if there is none.
    pub fn next(&self, from: u64, set: bool) -> u64 {
        let mut mask = from % WORD;
        let first = from / WORD;
        let words = self.words.get(at(first)..).unwrap_or_default();
        for (word, number) in words.iter().zip(first..) {
            let word = from_bit(if set { *word } else { !*word }, mask);
            if word != 0 {
                return (number * WORD + u64::from(word.trailing_zeros())).min(self.len);
            }
            mask = 0;
        }
        self.len
    }
}

fn ones(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_equal_a_plain_list(
            len in 0_u64..1500,
            ranges in prop::collection::vec((0_u64..1600, 0_u64..300), 0..12),
        ) {
            let ranges: Vec<_> = ranges.iter().map(|(start, count)| *start..*start + *count).collect();
            let bits = Bits::new(len, ranges.iter().cloned());
            let has = |bit: u64| bit < len && ranges.iter().any(|range| range.contains(&bit));
            let set: Vec<u64> = (0..len).filter(|bit| has(*bit)).collect();
            prop_assert_eq!(bits.ones(), set.len() as u64);
            for bit in 0..len + 70 {
                prop_assert_eq!(bits.contains(bit), has(bit));
                prop_assert_eq!(bits.rank(bit), set.partition_point(|other| *other < bit) as u64);
                for is_set in [true, false] {
                    let next = (bit..len).find(|bit| has(*bit) == is_set).unwrap_or(len);
                    prop_assert_eq!(bits.next(bit, is_set), next, "{} {}", bit, is_set);
                }
            }
            for (number, bit) in set.iter().enumerate() {
                prop_assert_eq!(bits.select(number as u64), *bit);
            }
            prop_assert_eq!(bits.select(set.len() as u64), len);
        }
    }
}
