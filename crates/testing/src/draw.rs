//! Numbers that look random and can be drawn again.

use std::time::{SystemTime, UNIX_EPOCH};

/// A sequence of numbers that its seed decides (SplitMix64).
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in the environment variable `name`, or one that differs each time. Whoever uses it prints it.
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

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`; 0 when `end` is.
    pub const fn below(&mut self, end: u64) -> u64 {
        // The bias of a remainder does not matter to a test.
        if end == 0 { 0 } else { self.next() % end }
    }

    /// One of the items; `None` of none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let at = self.below(items.len() as u64);
        items.get(usize::try_from(at).unwrap_or(0))
    }

    /// Text of `bytes` letters that compresses about as well as prose does.
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

    /// Bytes that do not compress.
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
    fn a_seed_decides_the_sequence() {
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
