//! The few conversions that lose something on purpose or cannot lose anything here, each in one place.

use crate::error::OrderError;

/// An empty vector with room for `length` things, or an error where there is not so much memory.
pub(crate) fn room<T>(length: u64, what: &'static str) -> Result<Vec<T>, OrderError> {
    let mut room = Vec::new();
    let size = count(std::mem::size_of::<T>());
    let bytes = length.saturating_mul(size);
    // 2^42 bytes are beyond any machine, though an operating system may promise them.
    if bytes > 1 << 42 || room.try_reserve_exact(index(length)).is_err() {
        return Err(OrderError::Memory { what, bytes });
    }
    Ok(room)
}

/// The low 32 bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is what is asked for"
)]
#[inline]
pub(crate) const fn low32(value: u64) -> u32 {
    value as u32
}

/// The high 32 bits.
#[inline]
pub(crate) const fn high32(value: u64) -> u32 {
    low32(value >> 32)
}

/// The low 64 bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is what is asked for"
)]
#[inline]
pub(crate) const fn low64(value: u128) -> u64 {
    value as u64
}

/// A count of things that are in memory, or an index of one of them.
///
/// INVARIANT: `value` is at most the length of an allocation, or small (a window, a number of nodes); a value beyond
/// the address space would become an index that no slice has.
#[inline]
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The length of something in memory; every platform's `usize` fits.
#[inline]
pub(crate) const fn count(length: usize) -> u64 {
    length as u64
}

/// Towards zero, as Python's `int()` of a float; `None` for what is negative, not a number or beyond 2^63.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "truncation is the operation, the range is checked"
)]
pub(crate) fn trunc(value: f64) -> Option<u64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (value > -1.0 && value < LIMIT).then_some(value as u64)
}

/// An integer as a double, rounded to nearest as NumPy does.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    reason = "the same rounding as the original"
)]
pub(crate) const fn real(value: u64) -> f64 {
    value as f64
}

/// `total · part / parts` without overflow, for a `part` of at most `parts`.
pub(crate) fn share(total: u64, part: u64, parts: u64) -> u64 {
    match total.checked_mul(part) {
        Some(product) => product / parts,
        None => low64(u128::from(total) * u128::from(part) / u128::from(parts)),
    }
}
