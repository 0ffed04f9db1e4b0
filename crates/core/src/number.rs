//! Converts whole numbers to floats and back, for estimates and for figures with a few digits. Mixes their bits.

/// Returns the nearest float.
#[expect(clippy::cast_precision_loss, reason = "for a few digits")]
#[inline]
#[must_use]
pub const fn float(number: u64) -> f64 {
    number as f64
}

/// Returns the whole part of a float; 0 for negative numbers and NaN, and the largest number for larger ones.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates"
)]
#[inline]
#[must_use]
pub const fn whole(number: f64) -> u64 {
    number as u64
}

/// Mixes the bits of a number: every bit of the input affects every bit of the result.
///
/// Source: the finalizer of SplitMix64, in Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014.
#[inline]
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
