//! Limits of the format itself, in addition to those of `shardmill_core::Limits`.

/// The most dimensions that the header of an array can express, with six bits.
pub(crate) const ARRAY_HEADER_DIMS: u8 = 63;

/// The most dimensions of an array that is written. Every reader with default limits accepts that many. (It was also
/// numpy's limit before version 2.)
pub(crate) const ARRAY_WRITE_DIMS: u64 = 32;

/// The most digits of an integer text that CPython converts by default (since 3.10.7). A longer integer could be
/// stored, but the original reader could not read it.
pub(crate) const INTEGER_TEXT_DIGITS: u64 = 4300;
