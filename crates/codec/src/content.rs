//! A hash of the samples of a dataset, independent of its shards.

use std::fmt;

use xxhash_rust::xxh3::xxh3_128;

/// The sum of the hashes of samples. It is the same for the same samples in any order, in shards of any size,
/// compressed or not. Samples can be added and removed.
///
/// The hash of a sample is the 128-bit XXH3 of its encoded bytes. Numbers that tar samples have as keys are not included.
/// The sum is taken modulo 2^128. It detects accidental differences, not intentional ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content(u128);

impl Content {
    /// Returns the hash of one sample, given its encoded bytes.
    #[must_use]
    pub fn of(sample: &[u8]) -> Self {
        Self(xxh3_128(sample))
    }

    /// Returns the sum with the given samples added.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// Returns the sum with the given samples removed.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }

    /// Returns the first `bits` bits (at most 64) as a number.
    #[must_use]
    pub fn first_bits(self, bits: u32) -> usize {
        let shifted = self.0.checked_shr(u128::BITS - bits).unwrap_or(0);
        usize::try_from(shifted).unwrap_or(0)
    }

    /// Parses what [`Display`](fmt::Display) writes: 32 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = text.len() == 32
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_plain
            .then(|| u128::from_str_radix(text, 16).ok())
            .flatten()
            .map(Self)
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromIterator<Self> for Content {
    fn from_iter<T: IntoIterator<Item = Self>>(parts: T) -> Self {
        parts.into_iter().fold(Self::default(), Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> Content {
        Content::of(text.as_bytes())
    }

    #[test]
    fn content_hash_depends_on_samples_but_not_their_order() {
        let sum = |texts: &[&str]| texts.iter().map(|text| content(text)).collect::<Content>();
        assert_eq!(sum(&["a", "b", "b"]), sum(&["b", "a", "b"]));
        assert_ne!(sum(&["a", "b", "b"]), sum(&["a", "b"]));
        assert_ne!(sum(&["a", "b", "b"]), sum(&["a", "a", "b"]));
        assert_eq!(sum(&["a", "b"]).without(content("a")), content("b"));
        assert_eq!(sum(&[]).to_string(), "0".repeat(32));
        let some = sum(&["a", "b"]);
        assert_eq!(Content::parse(&some.to_string()), Some(some));
        for text in [
            "",
            "0",
            "g0000000000000000000000000000000",
            "+0000000000000000000000000000001",
        ] {
            assert_eq!(Content::parse(text), None, "{text}");
        }
    }
}
