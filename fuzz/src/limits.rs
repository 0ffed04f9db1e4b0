//! The limits that targets pass to parsers.

use shardmill_core::Limits;

/// Returns limits that are small enough for thousands of runs a second.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.index_bytes = 1 << 20;
    limits.shard_bytes = 1 << 20;
    limits.sample_bytes = 1 << 20;
    limits.expansion.bytes = 1 << 20;
    limits
}
