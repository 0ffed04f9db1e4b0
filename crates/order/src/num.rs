//! Numeric conversions that lose precision on purpose or cannot lose any here.

use shardmill_core::Error;

use crate::error::OrderProblem;

/// Returns an empty vector with capacity for `length` elements, or an error if there is not enough memory.
pub(crate) fn room<T>(length: u64, what: &'static str) -> Result<Vec<T>, Error> {
    let mut room = Vec::new();
    let size = count(std::mem::size_of::<T>());
    let bytes = length.saturating_mul(size);
    // No machine has 2^42 bytes, but an operating system may promise them.
    if bytes > 1 << 42 || room.try_reserve_exact(index(length)).is_err() {
        return Err(OrderProblem::Memory.error(format!("{bytes} bytes for {what} cannot be had")));
    }
    Ok(room)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is what is asked for"
)]
#[inline]
pub(crate) const fn low32(value: u64) -> u32 {
    value as u32
}

#[inline]
pub(crate) const fn high32(value: u64) -> u32 {
    low32(value >> 32)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is what is asked for"
)]
#[inline]
pub(crate) const fn low64(value: u128) -> u64 {
    value as u64
}

/// Converts a count of elements in memory, or an index, to `usize`.
///
/// INVARIANT: `value` is at most the length of an allocation, or small (a window, a number of nodes). A value beyond
/// the address space becomes an index that no slice contains.
#[inline]
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Converts a length to `u64`; `usize` fits on every platform.
#[inline]
pub(crate) const fn count(length: usize) -> u64 {
    length as u64
}

/// Truncates towards zero like Python's `int()`; `None` for values of -1 or less, NaN, and values of 2^63 or more.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "truncation is the operation, the range is checked"
)]
pub(crate) fn trunc(value: f64) -> Option<u64> {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    (value > -1.0 && value < LIMIT).then_some(value as u64)
}

/// Converts an integer to a double, rounding to nearest like NumPy.
#[inline]
#[expect(
    clippy::cast_precision_loss,
    reason = "the same rounding as the original"
)]
pub(crate) const fn real(value: u64) -> f64 {
    value as f64
}

/// Returns `total · part / parts` without overflow, for a `part` of at most `parts`.
pub(crate) fn share(total: u64, part: u64, parts: u64) -> u64 {
    match total.checked_mul(part) {
        Some(product) => product / parts,
        None => low64(u128::from(total) * u128::from(part) / u128::from(parts)),
    }
}
