//! Tests the order of samples across crates: it equals the original's, is the same in every world, and can be resumed
//! at any step. Every state passes through the JSON of a checkpoint.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking; so do helpers outside of `#[test]` functions"
)]

mod chains;
mod golden;
mod resume;
mod support;
mod worlds;
