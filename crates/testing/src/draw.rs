//! Reproducible pseudo-random numbers.

use std::time::{SystemTime, UNIX_EPOCH};

/// A pseudo-random sequence determined by its seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// Returns the sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the seed in the environment variable `name`, or one that depends on the time. Callers should print it.
    #[must_use]
    pub fn seed_from(name: &str) -> u64 {
        let given = std::env::var(name).ok().and_then(|text| text.parse().ok());
        given.unwrap_or_else(|| {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            u64::from(now.subsec_nanos()) ^ now.as_secs() << 20 ^ u64::from(std::process::id())
        })
    }

    /// Returns the next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        // The bias of the remainder does not matter in a test.
        if end == 0 { 0 } else { self.next() % end }
    }

    /// Returns one of the items; `None` if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let at = self.below(items.len() as u64);
        items.get(usize::try_from(at).unwrap_or(0))
    }

    /// Returns text of `bytes` letters that compresses about as well as prose.
    pub fn text(&mut self, bytes: usize) -> String {
        const SYLLABLES: [&str; 32] = [
            "ba", "cho ", "den", "er ", "fi", "gra ", "hul", "in ", "jo", "kas ", "le", "mon ",
            "nu", "or ", "pi", "qua ", "re", "sto ", "ti", "un ", "va", "wel ", "xi", "yor ", "ze",
            "al ", "bru", "co ", "du", "ent ", "fo", "ge. ",
        ];
        let mut text = String::with_capacity(bytes + 8);
        while text.len() < bytes {
            let mut bits = self.next();
            for _ in 0..12 {
                text.push_str(SYLLABLES.get((bits & 31) as usize).copied().unwrap_or(" "));
                bits >>= 5;
            }
        }
        text.truncate(bytes);
        text
    }

    /// Returns bytes that do not compress.
    pub fn bytes(&mut self, bytes: usize) -> Vec<u8> {
        let mut noise: Vec<u8> = (0..bytes.div_ceil(8))
            .flat_map(|_| self.next().to_le_bytes())
            .collect();
        noise.truncate(bytes);
        noise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_sequences() {
        let (mut a, mut b) = (Draw::new(7), Draw::new(7));
        assert_eq!(
            (a.text(100), a.bytes(13), a.below(10)),
            (b.text(100), b.bytes(13), b.below(10))
        );
        assert_ne!(Draw::new(7).next(), Draw::new(8).next());
        assert_eq!(
            (a.text(101).len(), a.bytes(3).len(), a.below(1), a.below(0)),
            (101, 3, 0, 0)
        );
    }
}
