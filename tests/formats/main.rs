//! Formats against the original writers, both ways: what they wrote is parsed, opened, decoded to what their
//! reader returned, and written again to the same bytes. The bytes come from `fixtures/`.
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
mod mutants;
mod rewrite;
mod shards;
mod values;
