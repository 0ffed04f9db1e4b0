//! Tests formats against the original writers in both directions. Their shards are parsed, opened, decoded to what
//! their reader returned, and written again to the same bytes. The bytes are in `fixtures/`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking and prints its seed; so do helpers outside of `#[test]` functions"
)]

mod expected;
mod fixtures;
mod indexes;
mod rewrite;
mod shards;
mod values;
