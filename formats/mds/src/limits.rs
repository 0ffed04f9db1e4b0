//! What the format itself bounds, beside the limits of `shardmill_core::Limits`.

/// Most dimensions that the header of an array can express: six bits.
pub(crate) const ARRAY_HEADER_DIMS: u8 = 63;

/// Most dimensions of an array that is written: the most that every reader with default limits accepts. (It
/// was also numpy's own bound before version 2.)
pub(crate) const ARRAY_WRITE_DIMS: u64 = 32;

/// Most digits of an integer text that CPython converts unless told otherwise (since 3.10.7); an integer with
/// more could be stored but not read by the original reader.
pub(crate) const INTEGER_TEXT_DIGITS: u64 = 4300;
