//! Converts whole numbers to floats and back, for estimates and for figures with a few digits.

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
